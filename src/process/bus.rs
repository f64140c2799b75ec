//! A card's place in PCI bus order among all cards of the container, which an `index` of the quota file means.
//!
//! CUDA counts only what `CUDA_VISIBLE_DEVICES` left, so its own numbers say little: under `CUDA_VISIBLE_DEVICES=1` the
//! card in place 1 is device 0. Whoever knows better is asked, one after another: the kernel module, what the program set,
//! NVML where the program itself uses it. Where nobody knows, the visible cards before this one are what the place is at
//! least, and the strictest rule that may be meant holds.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use crate::abi::{CUdevice, nvmlDevice_t};
use crate::config::PciAddress;
use crate::driver::Driver;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BusPlace {
    /// It is this one.
    Known(u32),
    /// So many cards are before it, and perhaps more that this process cannot see.
    AtLeast(u32),
}

impl BusPlace {
    /// The place, where it is known.
    pub fn known(self) -> Option<u32> {
        match self {
            BusPlace::Known(place) => Some(place),
            BusPlace::AtLeast(_) => None,
        }
    }
}

/// What decides which cards a process sees, as the driver found it at `cuInit` and as nothing set later can change it.
#[derive(Clone, Debug, Default)]
pub struct Visibility {
    /// `CUDA_VISIBLE_DEVICES`.
    devices: Option<OsString>,
    /// `CUDA_DEVICE_ORDER`.
    order: Option<OsString>,
}

impl Visibility {
    /// As the environment says now.
    pub fn look() -> Visibility {
        Visibility {
            devices: std::env::var_os("CUDA_VISIBLE_DEVICES"),
            order: std::env::var_os("CUDA_DEVICE_ORDER"),
        }
    }

    /// The places of the devices, by their ordinals, where this alone says them: nothing is hidden, or places in bus
    /// order were asked for. `buses` are the devices' addresses.
    fn places(&self, buses: &[PciAddress]) -> Option<Vec<u32>> {
        let rank = |bus: &PciAddress| buses.iter().filter(|other| *other < bus).count() as u32;
        let Some(devices) = &self.devices else { return Some(buses.iter().map(rank).collect()) };
        if self.order.as_deref() != Some("PCI_BUS_ID".as_ref()) {
            return None;
        }
        let listed = |entry: &str| {
            let digits = entry.trim_matches(' ');
            digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
        };
        let entries = devices.to_str()?.split(',').take(buses.len());
        let places = entries.map(listed).collect::<Option<Vec<u32>>>()?;
        // The driver may have read the list in another way than this.
        let agree = |a: usize, b: usize| places[a].cmp(&places[b]) == buses[a].cmp(&buses[b]);
        let consistent =
            places.len() == buses.len() && (0..places.len()).all(|a| (0..a).all(|b| agree(a, b)));
        consistent.then_some(places)
    }
}

/// The place of `device`, one of those at `buses` (by their ordinals). `visibility` is `None` where nobody saw the
/// driver start, or where it enumerates parts of cards.
pub fn place_of(device: CUdevice, buses: &[PciAddress], visibility: Option<&Visibility>) -> BusPlace {
    let Some(bus) = usize::try_from(device).ok().and_then(|device| buses.get(device)) else {
        return BusPlace::AtLeast(0);
    };
    let by_kernel =
        || among(&cards_of_kernel(Path::new("/proc/driver/nvidia/gpus"), Path::new("/dev")), bus, buses);
    let by_environment = || visibility?.places(buses)?.get(device as usize).copied();
    let known = by_kernel().or_else(by_environment).or_else(|| by_nvml(*bus));
    known.map_or_else(
        || {
            // Those of different cards.
            let before =
                (0..buses.len()).filter(|at| buses[*at] < *bus && !buses[..*at].contains(&buses[*at]));
            BusPlace::AtLeast(before.count() as u32)
        },
        BusPlace::Known,
    )
}

/// The place of `bus` among `all`, which must have all of `visible`: else it is not of this driver's cards.
fn among(all: &[PciAddress], bus: &PciAddress, visible: &[PciAddress]) -> Option<u32> {
    let whole = visible.iter().all(|bus| all.contains(bus));
    whole.then(|| all.iter().filter(|other| *other < bus).count() as u32)
}

/// The cards that NVIDIA's kernel module shows in `gpus` and that have a device file in `dev`: a container may be shown
/// the whole machine's and be given some.
fn cards_of_kernel(gpus: &Path, dev: &Path) -> Vec<PciAddress> {
    let Ok(entries) = fs::read_dir(gpus) else { return Vec::new() };
    let given = |card: &Path| {
        let Ok(text) = fs::read_to_string(card.join("information")) else { return true };
        let minor = text.lines().find_map(|line| line.strip_prefix("Device Minor:"));
        let minor = minor.and_then(|minor| minor.trim().parse::<u32>().ok());
        minor.is_none_or(|minor| dev.join(format!("nvidia{minor}")).exists())
    };
    entries
        .flatten()
        .filter(|entry| given(&entry.path()))
        .filter_map(|entry| PciAddress::parse(entry.file_name().to_str()?))
        .collect()
}

/// What NVML says, where the program has it and has initialised it.
fn by_nvml(bus: PciAddress) -> Option<u32> {
    let (driver, _) = Driver::with(c"nvmlDeviceGetHandleByPciBusId_v2")?;
    let api = Driver::get(driver)?;
    let text = std::ffi::CString::new(bus.to_string()).ok()?;
    let mut handle: nvmlDevice_t = core::ptr::null_mut();
    // SAFETY: a C string, and a live local of the type that NVML fills.
    unsafe { api.nvml_by_pci(text.as_ptr(), &mut handle) }.ok()?;
    let mut index = 0;
    // SAFETY: NVML has just given the handle; the output is a live local of the type that it fills.
    unsafe { api.nvml_index(handle, &mut index) }.ok().map(|()| index)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bus(bus: u8) -> PciAddress {
        PciAddress { domain: 0, bus, device: 0 }
    }

    fn set(devices: Option<&str>, order: Option<&str>) -> Visibility {
        Visibility { devices: devices.map(Into::into), order: order.map(Into::into) }
    }

    #[test]
    fn where_nothing_is_hidden_the_order_of_the_visible_is_that_of_all() {
        assert_eq!(set(None, None).places(&[bus(3), bus(1), bus(2)]), Some(vec![2, 0, 1]));
    }

    #[test]
    fn numbers_in_bus_order_are_places() {
        let ordered = |devices, buses: &[PciAddress]| set(Some(devices), Some("PCI_BUS_ID")).places(buses);
        assert_eq!(ordered("2,0", &[bus(9), bus(4)]), Some(vec![2, 0]));
        assert_eq!(ordered("1,-1,0", &[bus(4)]), Some(vec![1]));
        assert_eq!(ordered(" 1 ", &[bus(4)]), Some(vec![1]));
    }

    #[test]
    fn other_lists_say_nothing_of_places() {
        assert_eq!(set(Some("1"), None).places(&[bus(4)]), None);
        assert_eq!(set(Some("1"), Some("FASTEST_FIRST")).places(&[bus(4)]), None);
        for devices in ["GPU-8f4c", "", "+1", "0x1", "1;2", "0", "2,1"] {
            let two = [bus(4), bus(9)];
            assert_eq!(set(Some(devices), Some("PCI_BUS_ID")).places(&two), None, "{devices}");
        }
    }

    #[test]
    fn the_kernel_shows_the_cards_and_the_device_files_those_of_the_container() {
        let dir = tempfile::tempdir().unwrap();
        let (gpus, dev) = (dir.path().join("gpus"), dir.path().join("dev"));
        fs::create_dir(&dev).unwrap();
        for (minor, name) in ["0000:01:00.0", "0000:02:00.0", "0000:81:00.0"].into_iter().enumerate() {
            fs::create_dir_all(gpus.join(name)).unwrap();
            fs::write(
                gpus.join(name).join("information"),
                format!("Model: \t\t A\nDevice Minor: \t {minor}\n"),
            )
            .unwrap();
        }
        fs::write(dev.join("nvidia1"), "").unwrap();
        fs::write(dev.join("nvidia2"), "").unwrap();
        let cards = cards_of_kernel(&gpus, &dev);
        assert_eq!(among(&cards, &bus(0x81), &[bus(0x81)]), Some(1));
        assert_eq!(among(&cards, &bus(1), &[bus(1)]), None, "not a card of this container");
        fs::write(dev.join("nvidia0"), "").unwrap();
        assert_eq!(among(&cards_of_kernel(&gpus, &dev), &bus(0x81), &[bus(0x81)]), Some(2));
        assert!(cards_of_kernel(&dir.path().join("missing"), &dev).is_empty());
    }
}
