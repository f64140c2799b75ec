//! The GPUs of this machine, as the driver lists them to a program that no quota holds.

use cuquota::config::{GpuIdentity, PciAddress};
use serde_json::Value;

use super::client::{Answer, Client};
use super::demo_client::question;
use super::failure::Failure;
use super::session::Variables;

/// A GPU of this machine.
pub struct Card {
    /// How the quota file may name it.
    pub identity: GpuIdentity,
    /// Its name.
    pub name: String,
    /// Its memory in bytes.
    pub total: u64,
}

/// Why no GPUs can be listed.
pub enum NoCards {
    /// The loader finds no driver; its words.
    NoDriver(String),
    /// The driver refuses; the name of its code.
    Refused(String),
}

impl std::fmt::Display for NoCards {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NoCards::NoDriver(words) => write!(f, "no NVIDIA driver: {words}"),
            NoCards::Refused(name) => write!(f, "the NVIDIA driver answers {name}"),
        }
    }
}

/// The GPUs of this machine in PCI bus order, whatever `CUDA_VISIBLE_DEVICES` says; `variables` are set for the
/// program that asks.
pub fn list(variables: &Variables) -> Result<Result<Vec<Card>, NoCards>, Failure> {
    let mut variables = variables.clone();
    variables.push(("CUDA_DEVICE_ORDER", "PCI_BUS_ID".into()));
    let answer = Client::start_seeing_all(&variables)?.ask(question::DEVICES)?;
    Ok(match answer {
        Answer::NoDriver(words) => Err(NoCards::NoDriver(words)),
        Answer::Refused(name) => Err(NoCards::Refused(name)),
        Answer::Done(answer) => {
            let devices = answer.get("devices").and_then(Value::as_array).cloned().unwrap_or_default();
            Ok(devices.iter().zip(0..).filter_map(|(device, index)| card(device, index)).collect())
        }
    })
}

/// Why the loader finds no driver, if it finds none.
pub fn missing_driver() -> Result<Option<String>, Failure> {
    match Client::start(&Vec::new())?.ask(question::OPEN)? {
        Answer::NoDriver(words) => Ok(Some(words)),
        _ => Ok(None),
    }
}

fn card(device: &Value, index: u32) -> Option<Card> {
    let bytes = device.get("uuid")?.as_array()?;
    let bytes: Option<Vec<u8>> = bytes.iter().map(|byte| u8::try_from(byte.as_u64()?).ok()).collect();
    let identity = GpuIdentity {
        uuid: bytes?.try_into().ok()?,
        mig: device.get("name")?.as_str()?.contains(" MIG "),
        pci: device.get("pci").and_then(Value::as_str).and_then(PciAddress::parse),
        pci_index: Some(index),
    };
    Some(Card {
        identity,
        name: device.get("name")?.as_str()?.to_owned(),
        total: device.get("total")?.as_u64()?,
    })
}
