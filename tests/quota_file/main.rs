//! The quota file, as everyone who writes one meets it: every value is taken exactly or refused with its place.

mod meant;
mod place;
mod refused;
mod watch;

use std::path::Path;

use cuquota::config::{GpuIdentity, Limit, PciAddress, Quota, QuotaError};

const GI: u64 = 1 << 30;

fn parse(text: &str) -> Result<Quota, QuotaError> {
    Quota::parse(text, Path::new("quota.toml"))
}

/// The top-level limit that `limit = value` sets.
fn limit(value: &str) -> Result<Limit, QuotaError> {
    parse(&format!("# c\nlimit = {value}\n")).map(|quota| quota.default.expect("a default rule").limit)
}

fn gpu(first: u8, index: u32) -> GpuIdentity {
    let pci = PciAddress { domain: 0, bus: index as u8 + 1, device: 0 };
    let mut uuid = [0; 16];
    uuid[0] = first;
    GpuIdentity { uuid, mig: false, pci: Some(pci), pci_index: Some(index) }
}
