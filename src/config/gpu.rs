//! Which GPU an entry of the quota file speaks of.

use std::fmt;

use super::refusal::Refusal;

/// Where a GPU sits on the PCI bus. The function is left out: a GPU is function 0 of its device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PciAddress {
    /// The PCI domain, 0 on most machines.
    pub domain: u32,
    /// The bus in the domain.
    pub bus: u8,
    /// The device on the bus.
    pub device: u8,
}

impl PciAddress {
    /// Reads the usual spellings, `0000:01:00.0`, `00000000:01:00.0` and `01:00.0`, in either case.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, function) = text.rsplit_once('.')?;
        if !matches!(function.as_bytes(), [b'0'..=b'7']) {
            return None;
        }
        let mut parts = address.rsplit(':');
        let device = hex(parts.next()?, 2)?;
        let bus = hex(parts.next()?, 2)?;
        let domain = match parts.next() {
            None => 0,
            Some(domain) => hex(domain, 8)?,
        };
        if parts.next().is_some() || device > 0x1f {
            return None;
        }
        Some(PciAddress { domain, bus: u8::try_from(bus).ok()?, device: u8::try_from(device).ok()? })
    }
}

/// One to `digits` hexadecimal digits, signs and blanks refused.
fn hex(text: &str, digits: usize) -> Option<u32> {
    let valid = (1..=digits).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit());
    valid.then(|| u32::from_str_radix(text, 16).ok())?
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:02x}:{:02x}.0", self.domain, self.bus, self.device)
    }
}

/// What a GPU says of itself, for finding the entry that matches it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GpuIdentity {
    /// The 16 bytes that `cuDeviceGetUuid` answers, in that order.
    pub uuid: [u8; 16],
    /// Whether this is a MIG instance, whose UUID is written `MIG-…` instead of `GPU-…`.
    pub mig: bool,
    /// Where it sits, if the driver says.
    pub pci: Option<PciAddress>,
    /// Its place among all GPUs of the machine in PCI bus order, if known; not the CUDA ordinal.
    pub pci_index: Option<u32>,
}

impl GpuIdentity {
    /// The UUID as drivers print it: `GPU-8f4c…` or `MIG-…`, lower case.
    pub fn uuid_text(&self) -> String {
        let mut text = String::with_capacity(40);
        text.push_str(if self.mig { "MIG-" } else { "GPU-" });
        for (at, byte) in self.uuid.iter().enumerate() {
            if matches!(at, 4 | 6 | 8 | 10) {
                text.push('-');
            }
            text.push_str(&format!("{byte:02x}"));
        }
        text
    }
}

/// The GPU that a `[[gpu]]` entry names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GpuSelector {
    /// A UUID of a GPU or a MIG instance, or the beginning of one; `GPU-` or `MIG-`, then lower case.
    Uuid(String),
    /// The GPU that sits there.
    Pci(PciAddress),
    /// The GPU in this place of the PCI bus order, counted from 0.
    Index(u32),
}

impl GpuSelector {
    /// Reads what stands behind `id =`.
    pub(super) fn parse_id(text: &str) -> Result<Self, Refusal> {
        let remedy = "write a UUID or the beginning of one (\"GPU-8f4c\", \"MIG-…\"), a PCI bus id \
                      (\"0000:01:00.0\"), or index = 0; `nvidia-smi -L` lists the UUIDs";
        let upper = text.get(..4).map(str::to_ascii_uppercase);
        if let Some(kind @ ("GPU-" | "MIG-")) = upper.as_deref() {
            let rest = text[4..].to_ascii_lowercase();
            if rest.is_empty() {
                return Err(Refusal::new("the beginning of every UUID", remedy));
            }
            if !begins_a_uuid(&rest) {
                return Err(Refusal::new("not the beginning of a UUID", remedy));
            }
            return Ok(GpuSelector::Uuid(format!("{kind}{rest}")));
        }
        if let Some(address) = PciAddress::parse(text) {
            return Ok(GpuSelector::Pci(address));
        }
        Err(Refusal::new("neither a UUID nor a PCI bus id", remedy))
    }

    /// Whether `gpu` is meant.
    pub fn matches(&self, gpu: &GpuIdentity) -> bool {
        match self {
            GpuSelector::Uuid(beginning) => gpu.uuid_text().starts_with(beginning.as_str()),
            GpuSelector::Pci(address) => gpu.pci == Some(*address),
            GpuSelector::Index(index) => gpu.pci_index == Some(*index),
        }
    }
}

impl fmt::Display for GpuSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GpuSelector::Uuid(beginning) => beginning.fmt(f),
            GpuSelector::Pci(address) => address.fmt(f),
            GpuSelector::Index(index) => write!(f, "index {index}"),
        }
    }
}

/// Whether `text`, in lower case, is the beginning of `8-4-4-4-12` hexadecimal digits.
fn begins_a_uuid(text: &str) -> bool {
    text.len() <= 36
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu() -> GpuIdentity {
        let uuid = [0x8f, 0x4c, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 0xef];
        GpuIdentity { uuid, mig: false, pci: PciAddress::parse("0000:0A:1f.0"), pci_index: Some(3) }
    }

    #[test]
    fn a_gpu_is_found_by_each_of_its_names() {
        let full = "GPU-8f4c0102-0304-0506-0708-090a0b0c0def";
        assert_eq!(gpu().uuid_text(), full);
        for id in
            [full, "gpu-8F4C", "GPU-8", "GPU-8f4c0102-03", "0a:1f.0", "0000:0A:1F.0", "00000000:0a:1f.0"]
        {
            assert!(GpuSelector::parse_id(id).unwrap().matches(&gpu()), "{id}");
        }
        assert!(GpuSelector::Index(3).matches(&gpu()));
    }

    #[test]
    fn another_gpu_is_not_taken_for_it() {
        for id in ["GPU-8f4d", "MIG-8f4c", "0a:1e.0", "0001:0a:1f.0"] {
            assert!(!GpuSelector::parse_id(id).unwrap().matches(&gpu()), "{id}");
        }
        assert!(!GpuSelector::Index(0).matches(&gpu()));
        let hidden = GpuIdentity { pci: None, pci_index: None, ..gpu() };
        assert!(!GpuSelector::Index(3).matches(&hidden));
        assert!(!GpuSelector::parse_id("0a:1f.0").unwrap().matches(&hidden));
        let instance = GpuIdentity { mig: true, ..gpu() };
        assert!(GpuSelector::parse_id("mig-8f4c").unwrap().matches(&instance));
        assert!(!GpuSelector::parse_id("GPU-8f4c").unwrap().matches(&instance));
    }

    #[test]
    fn what_names_no_gpu_is_refused() {
        for id in [
            "",
            "GPU-",
            "GPU",
            "8f4c",
            "GPU-xyz",
            "GPU-8f4c01020304",
            "0",
            "01:00",
            "01:00.8",
            "1:2:3:4.0",
            "0000:100:00.0",
            "01:20.0",
            "+1:00.0",
            "GPU-8f4c0102-0304-0506-0708-090a0b0c0def0",
            "é",
            "GPÜ-1",
        ] {
            let refusal = GpuSelector::parse_id(id).expect_err(id);
            assert!(refusal.remedy.contains("nvidia-smi -L"), "{id}");
        }
    }
}
