//! What a region's file says of one GPU.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::Region;
use crate::ledger::account::{GpuIndex, claim};
use crate::ledger::layout::{GPUS, Gpu, gpu_offset};
use crate::ledger::protocol::{self, Board};

impl Region {
    /// Finds the file's entry of one of our GPUs, or makes it. False where the file has no room for it.
    pub fn know(&self, gpu: GpuIndex, uuid: [u8; 16]) -> bool {
        if self.column(gpu).is_some() {
            return true;
        }
        let entries = (0..GPUS).map(|column| {
            let entry = self.gpu_at(column);
            (&entry.key, &entry.uuid)
        });
        match (claim(entries, uuid), self.columns.get(gpu.at())) {
            (Some(column), Some(place)) => {
                place.store(column as u8 + 1, Ordering::Release);
                true
            }
            _ => false,
        }
    }

    /// The file's number of one of our GPUs.
    pub fn column(&self, gpu: GpuIndex) -> Option<usize> {
        let column = self.columns.get(gpu.at())?.load(Ordering::Acquire);
        usize::from(column).checked_sub(1)
    }

    /// Our word of a GPU.
    pub fn own_word(&self, gpu: GpuIndex) -> Option<&AtomicU64> {
        self.own().words.get(self.column(gpu)?)
    }

    /// The shared entry of a GPU.
    pub fn gpu(&self, gpu: GpuIndex) -> Option<&Gpu> {
        self.column(gpu).map(|column| self.gpu_at(column))
    }

    /// All words of a GPU.
    pub fn board(&self, gpu: GpuIndex) -> Option<Column<'_>> {
        self.column(gpu).map(|column| Column { region: self, column })
    }
}

/// All words of one GPU.
pub(in crate::ledger) struct Column<'a> {
    region: &'a Region,
    column: usize,
}

impl Board for Column<'_> {
    fn slots(&self) -> usize {
        self.region.slots()
    }

    fn word(&self, slot: usize) -> &AtomicU64 {
        let words = &self.region.slot_at(slot).words;
        words.get(self.column).unwrap_or(&words[0])
    }

    fn in_flight(&self, slot: usize) -> &AtomicU32 {
        &self.region.slot_at(slot).in_flight
    }

    fn arbitrating(&self) -> &AtomicU32 {
        &self.region.gpu_at(self.column).arbitrating
    }

    fn objects(&self) -> u64 {
        self.region.objects_charged(self.column)
    }
}

impl Column<'_> {
    /// The lock of this GPU's arbiter.
    pub fn arbiter(&self) -> u64 {
        gpu_offset(self.column) as u64
    }

    /// Whether a slot counts for anything here.
    pub fn holds(&self, slot: usize) -> bool {
        protocol::held(self.word(slot).load(Ordering::Acquire)) != 0
    }
}
