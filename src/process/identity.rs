//! Who a card is, as its driver tells.

use core::ffi::CStr;

use crate::abi::{CUdevice, CUuuid, UUID_TEXT, nvmlDevice_t, nvmlPciInfo_t};
use crate::config::{GpuIdentity, PciAddress};
use crate::driver::Driver;

/// All devices of a copy of libcuda, by their ordinals; `None` where it does not say. Their places in bus order are left
/// open.
pub fn all(api: &Driver) -> Option<Vec<GpuIdentity>> {
    let mut count = 0;
    // SAFETY: the output is a live local of the type that the driver fills.
    unsafe { api.device_count(&mut count) }.ok()?;
    (0..count).map(|device| of_device(api, device)).collect()
}

fn of_device(api: &Driver, device: CUdevice) -> Option<GpuIdentity> {
    let (mut own, mut card) = (CUuuid { bytes: [0; 16] }, CUuuid { bytes: [0; 16] });
    // SAFETY: the output is a live local of the type that the driver fills.
    unsafe { api.device_uuid(&mut own, device) }.ok()?;
    // Only a MIG instance has another UUID than the card it is a part of, which the first version answers.
    // SAFETY: as above.
    let mig = unsafe { api.device_uuid_v1(&mut card, device) }.is_ok() && card != own;
    Some(GpuIdentity { uuid: own.bytes, mig, pci: pci_of(api, device), pci_index: None })
}

fn pci_of(api: &Driver, device: CUdevice) -> Option<PciAddress> {
    let mut text = [0; 32];
    // SAFETY: the buffer is as long as said.
    unsafe { api.device_pci(text.as_mut_ptr(), text.len() as i32, device) }.ok()?;
    // SAFETY: the driver ends what it writes with a NUL, and the buffer was all NUL before.
    PciAddress::parse(unsafe { CStr::from_ptr(text.as_ptr()) }.to_str().ok()?)
}

/// The card behind an NVML handle, and its place in bus order if NVML says.
pub fn of_nvml(api: &Driver, device: nvmlDevice_t) -> Option<(GpuIdentity, Option<u32>)> {
    let mut text = [0; UUID_TEXT];
    // SAFETY: the buffer is as long as said.
    unsafe { api.nvml_uuid(device, text.as_mut_ptr(), text.len() as u32) }.ok()?;
    // SAFETY: NVML ends what it writes with a NUL, and the buffer was all NUL before.
    let text = unsafe { CStr::from_ptr(text.as_ptr()) };
    let (mig, uuid) = parse_uuid(text.to_bytes())?;
    let mut index = 0;
    // SAFETY: the output is a live local of the type that NVML fills.
    let index = unsafe { api.nvml_index(device, &mut index) }.ok().map(|()| index);
    // The index of an instance is among those of its card.
    let index = index.filter(|_| !mig);
    Some((GpuIdentity { uuid, mig, pci: nvml_pci_of(api, device), pci_index: None }, index))
}

fn nvml_pci_of(api: &Driver, device: nvmlDevice_t) -> Option<PciAddress> {
    // SAFETY: all-zero is a valid record of integers.
    let mut pci: nvmlPciInfo_t = unsafe { core::mem::zeroed() };
    // SAFETY: the output is a live local of the type that NVML fills.
    unsafe { api.nvml_pci(device, &mut pci) }.ok()?;
    // SAFETY: NVML ends what it writes with a NUL, and the last byte was NUL before.
    PciAddress::parse(unsafe { CStr::from_ptr(pci.bus_id.as_ptr()) }.to_str().ok()?)
}

/// `GPU-…` or `MIG-…` -> whether MIG, and the bytes.
fn parse_uuid(text: &[u8]) -> Option<(bool, [u8; 16])> {
    let text = core::str::from_utf8(text).ok()?;
    let (mig, digits) = match text.strip_prefix("GPU-") {
        Some(digits) => (false, digits),
        None => (true, text.strip_prefix("MIG-")?),
    };
    let mut uuid = [0; 16];
    let mut digits = digits.bytes().filter(|byte| *byte != b'-');
    for byte in &mut uuid {
        let mut digit = || (digits.next()? as char).to_digit(16);
        *byte = (digit()? << 4 | digit()?) as u8;
    }
    digits.next().is_none().then_some((mig, uuid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_uuids_that_nvml_prints() {
        let bytes = core::array::from_fn(|at| (at * 17) as u8);
        assert_eq!(parse_uuid(b"GPU-00112233-4455-6677-8899-aabbccddeeff"), Some((false, bytes)));
        assert_eq!(parse_uuid(b"MIG-00112233-4455-6677-8899-aabbccddeeff"), Some((true, bytes)));
        assert_eq!(parse_uuid(b"MIG-GPU-00112233"), None);
        assert_eq!(parse_uuid(b""), None);
    }
}
