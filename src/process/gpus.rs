//! The cards this process has met, by what they are (their UUID) and never by an ordinal, which the process's
//! environment can turn around.

use core::ffi::CStr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::abi::{CUdevice, CUuuid, UUID_TEXT, nvmlDevice_t, nvmlPciInfo_t};
use crate::config::{GpuIdentity, PciAddress};
use crate::driver::Driver;
use crate::ledger::GpuIndex;

use super::Process;

/// One card, for the life of the process.
pub struct Gpu {
    /// What it is.
    pub identity: GpuIdentity,
    /// Its place in the ledger; `None` where the ledger has no room for one more card.
    pub ledger: Option<GpuIndex>,
    /// Physical bytes, as the interface that met it first told.
    physical: u64,
    limit: AtomicU64,
    /// What a context seemed to cost when this process last looked, in bytes.
    pub context_share_seen: AtomicU64,
}

impl Gpu {
    /// Physical bytes of the card.
    pub fn physical(&self) -> u64 {
        self.physical
    }

    /// The most this container may hold here, in bytes; `u64::MAX` if unlimited.
    pub fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }
}

/// A card as one of the interfaces names it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Name {
    Cuda(usize, CUdevice),
    Nvml(usize, nvmlDevice_t),
}
// SAFETY: the NVML handle in it is only compared, never followed.
unsafe impl Send for Name {}

/// See the module.
#[derive(Default)]
pub struct Gpus {
    known: Mutex<Vec<&'static Gpu>>,
    names: Mutex<Vec<(Name, &'static Gpu)>>,
}

impl Gpus {
    /// The card that copy `driver` of libcuda calls `device`; `None` where it knows no such device.
    pub fn by_device(&self, process: &Process, driver: usize, device: CUdevice) -> Option<&'static Gpu> {
        self.named(Name::Cuda(driver, device), || {
            let api = Driver::get(driver)?;
            let mut uuid = CUuuid { bytes: [0; 16] };
            // SAFETY: the output is a live local of the type that the driver fills.
            unsafe { api.device_uuid(&mut uuid, device) }.ok()?;
            let mut physical = 0;
            // SAFETY: as above.
            unsafe { api.device_total(&mut physical, device) }.ok()?;
            let pci = pci_of(api, device);
            let identity = GpuIdentity {
                uuid: uuid.bytes,
                mig: false,
                pci,
                pci_index: pci.and_then(|pci| index_of(api, pci)),
            };
            Some(self.meet(process, identity, physical as u64))
        })
    }

    /// The card behind an NVML handle, of `physical` bytes.
    pub fn by_nvml(
        &self,
        process: &Process,
        driver: usize,
        device: nvmlDevice_t,
        physical: u64,
    ) -> Option<&'static Gpu> {
        self.named(Name::Nvml(driver, device), || {
            let api = Driver::get(driver)?;
            let mut text = [0; UUID_TEXT];
            // SAFETY: the buffer is as long as said.
            unsafe { api.nvml_uuid(device, text.as_mut_ptr(), text.len() as u32) }.ok()?;
            // SAFETY: NVML ends what it writes with a NUL, and the buffer was all NUL before.
            let text = unsafe { CStr::from_ptr(text.as_ptr()) };
            let (mig, uuid) = parse_uuid(text.to_bytes())?;
            let pci = nvml_pci_of(api, device);
            let mut index = 0;
            // SAFETY: the output is a live local of the type that NVML fills.
            let pci_index = unsafe { api.nvml_index(device, &mut index) }.ok().map(|()| index);
            Some(self.meet(process, GpuIdentity { uuid, mig, pci, pci_index }, physical))
        })
    }

    fn named(&self, name: Name, ask: impl FnOnce() -> Option<&'static Gpu>) -> Option<&'static Gpu> {
        let known = lock(&self.names).iter().find(|(known, _)| *known == name).map(|(_, gpu)| *gpu);
        // The driver is asked outside the lock.
        known.or_else(|| {
            let gpu = ask()?;
            let mut names = lock(&self.names);
            if !names.iter().any(|(known, _)| *known == name) {
                names.push((name, gpu));
            }
            Some(gpu)
        })
    }

    fn meet(&self, process: &Process, identity: GpuIdentity, physical: u64) -> &'static Gpu {
        let ledger = process.ledger().gpu(identity.uuid);
        let limit = process.budget.limit(&identity, physical);
        let mut known = lock(&self.known);
        if let Some(gpu) = known.iter().find(|gpu| gpu.identity == identity) {
            return gpu;
        }
        let gpu = Box::leak(Box::new(Gpu {
            identity,
            ledger,
            physical,
            limit: AtomicU64::new(limit),
            context_share_seen: AtomicU64::new(0),
        }));
        known.push(gpu);
        gpu
    }

    /// Takes the limits over from a new version of the quota file; the new ones hold from the next request.
    pub fn refresh_limits(&self, process: &Process) {
        for gpu in lock(&self.known).iter() {
            let limit = process.budget.limit(&gpu.identity, gpu.physical);
            gpu.limit.store(limit, Ordering::Relaxed);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn pci_of(api: &Driver, device: CUdevice) -> Option<PciAddress> {
    let mut text = [0; 32];
    // SAFETY: the buffer is as long as said.
    unsafe { api.device_pci(text.as_mut_ptr(), text.len() as i32, device) }.ok()?;
    // SAFETY: the driver ends what it writes with a NUL, and the buffer was all NUL before.
    PciAddress::parse(unsafe { CStr::from_ptr(text.as_ptr()) }.to_str().ok()?)
}

fn nvml_pci_of(api: &Driver, device: nvmlDevice_t) -> Option<PciAddress> {
    // SAFETY: all-zero is a valid record of integers.
    let mut pci: nvmlPciInfo_t = unsafe { core::mem::zeroed() };
    // SAFETY: the output is a live local of the type that NVML fills.
    unsafe { api.nvml_pci(device, &mut pci) }.ok()?;
    // SAFETY: NVML ends what it writes with a NUL, and the last byte was NUL before.
    PciAddress::parse(unsafe { CStr::from_ptr(pci.bus_id.as_ptr()) }.to_str().ok()?)
}

/// The place of the card at `pci` in PCI bus order, among the cards this process can see.
fn index_of(api: &Driver, pci: PciAddress) -> Option<u32> {
    let mut count = 0;
    // SAFETY: the output is a live local of the type that the driver fills.
    unsafe { api.device_count(&mut count) }.ok()?;
    let before = (0..count).filter_map(|device| pci_of(api, device)).filter(|other| *other < pci).count();
    u32::try_from(before).ok()
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
