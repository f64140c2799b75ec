//! A map from numbers to numbers in one array, so that a look-up touches one cache line as a rule: with millions of
//! records, what a look-up costs is the memory it waits for.
//!
//! Open addressing, linear probing, no tombstones. At most three quarters full, and made smaller again when
//! seven eighths are empty.

/// A key that is not 0, and its value; all zeros where free.
type Slot = [u64; 2];

const FREE: Slot = [0; 2];
const SMALLEST: usize = 16;

/// See the module. 0 is no key: it is never found, and putting it in does nothing.
#[derive(Default)]
pub struct Table {
    /// None, or a power of two of them.
    slots: Vec<Slot>,
    used: usize,
}

impl Table {
    /// Puts `value` under `key`, in place of what was there.
    pub fn insert(&mut self, key: u64, value: u64) {
        if key == 0 {
            return;
        }
        if (self.used + 1) * 4 > self.slots.len() * 3 {
            self.resize((self.slots.len() * 2).max(SMALLEST));
        }
        let at = self.place(key);
        let slot = &mut self.slots[at];
        self.used += usize::from(slot[0] == 0);
        *slot = [key, value];
    }

    /// The value under `key`, to be changed.
    pub fn get_mut(&mut self, key: u64) -> Option<&mut u64> {
        let at = self.find(key)?;
        Some(&mut self.slots[at][1])
    }

    /// Takes `key` out, and answers its value.
    pub fn remove(&mut self, key: u64) -> Option<u64> {
        let mut hole = self.find(key)?;
        let value = self.slots[hole][1];
        // Those behind that would not be found any more, with a free slot before them, move up.
        let mask = self.slots.len() - 1;
        let mut next = (hole + 1) & mask;
        while self.slots[next][0] != 0 {
            let from_home = next.wrapping_sub(self.home(self.slots[next][0])) & mask;
            if from_home >= next.wrapping_sub(hole) & mask {
                self.slots[hole] = self.slots[next];
                hole = next;
            }
            next = (next + 1) & mask;
        }
        self.slots[hole] = FREE;
        self.used -= 1;
        if self.used * 8 < self.slots.len() && self.slots.len() > SMALLEST {
            self.resize(self.slots.len() / 4);
        }
        Some(value)
    }

    /// All keys and values, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.slots.iter().filter(|slot| slot[0] != 0).map(|[key, value]| (*key, *value))
    }

    #[inline(always)]
    fn find(&self, key: u64) -> Option<usize> {
        if key == 0 || self.slots.is_empty() {
            return None;
        }
        let at = self.place(key);
        (self.slots[at][0] == key).then_some(at)
    }

    /// Where `key` is or would be put. There is a free slot, and the key is not 0.
    #[inline(always)]
    fn place(&self, key: u64) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = self.home(key);
        while self.slots[at][0] != key && self.slots[at][0] != 0 {
            at = (at + 1) & mask;
        }
        at
    }

    /// Where `key` is looked for first: the top bits of a product, which depend on all of the key.
    #[inline(always)]
    fn home(&self, key: u64) -> usize {
        let bits = self.slots.len().trailing_zeros();
        (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - bits)) as usize
    }

    #[cold]
    fn resize(&mut self, slots: usize) {
        let slots = slots.max(SMALLEST);
        let old = core::mem::replace(&mut self.slots, vec![FREE; slots]);
        for slot in old.into_iter().filter(|slot| slot[0] != 0) {
            let at = self.place(slot[0]);
            self.slots[at] = slot;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn does_what_a_hash_map_does() {
        let (mut table, mut model) = (Table::default(), HashMap::new());
        let mut random = 88_172_645_463_325_252_u64;
        for round in 0..200_000_u64 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            // Fills and empties by turns, with few enough keys that they are met again.
            let key = (random % 3000 + 1) << 9;
            if random >> 40 & 7 < if round / 20_000 % 2 == 0 { 5 } else { 2 } {
                table.insert(key, round);
                model.insert(key, round);
            } else {
                assert_eq!(table.remove(key), model.remove(&key));
            }
            assert_eq!(table.get_mut(random).copied(), model.get(&random).copied());
        }
        assert_eq!(table.iter().collect::<HashMap<_, _>>(), model);
    }

    #[test]
    fn gives_memory_back_when_it_empties() {
        let mut table = Table::default();
        (1..=10_000).for_each(|key| table.insert(key, key));
        assert!(table.slots.len() >= 10_000);
        (1..=10_000).for_each(|key| assert_eq!(table.remove(key), Some(key)));
        assert_eq!((table.slots.len(), table.used), (SMALLEST, 0));
    }

    #[test]
    fn nothing_is_no_key() {
        let mut table = Table::default();
        assert_eq!(table.remove(0), None);
        table.insert(0, 1);
        assert_eq!((table.remove(0), table.used), (None, 0));
        assert_eq!(table.get_mut(0), None);
        table.insert(1, 1);
        assert_eq!((table.remove(0), table.remove(1)), (None, Some(1)));
    }
}
