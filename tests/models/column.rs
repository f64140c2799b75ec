//! A container's words of one card, as its file has them: what both models are about.

use crate::protocol::Board;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// One word an owner.
pub struct Column {
    pub words: Vec<AtomicU64>,
    pub in_flight: Vec<AtomicU32>,
    pub arbitrating: AtomicU32,
    /// Units that are in nobody's word.
    pub objects: AtomicU64,
}

impl Column {
    pub fn new(words: &[u64]) -> Column {
        Column {
            words: words.iter().map(|word| AtomicU64::new(*word)).collect(),
            in_flight: words.iter().map(|_| AtomicU32::new(0)).collect(),
            arbitrating: AtomicU32::new(0),
            objects: AtomicU64::new(0),
        }
    }
}

impl Board for Column {
    fn slots(&self) -> usize {
        self.words.len()
    }
    fn word(&self, slot: usize) -> &AtomicU64 {
        &self.words[slot]
    }
    fn in_flight(&self, slot: usize) -> &AtomicU32 {
        &self.in_flight[slot]
    }
    fn arbitrating(&self) -> &AtomicU32 {
        &self.arbitrating
    }
    fn objects(&self) -> u64 {
        self.objects.load(Ordering::Acquire)
    }
}
