//! Where physical memory is bound that has no address: in the tiles of sparse arrays and at the offsets of multicast objects.
//!
//! Bindings are boxes in the parts of a holder: the elements of a level of an array, the bytes of an object on a device. What
//! takes the place of a part of a box leaves the rest of it bound, as the driver does.

use std::collections::BTreeMap;

/// A box: `from` where it begins and `to` behind its end, the slowest axis first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// An array or a multicast object, by a name that is given once.
    pub holder: u64,
    /// The level and layer, or the device.
    pub part: u64,
    /// The first element.
    pub from: [u64; 3],
    /// The first elements behind it.
    pub to: [u64; 3],
}

impl Region {
    /// Whether nothing lies in it.
    pub fn is_empty(&self) -> bool {
        (0..3).any(|axis| self.from[axis] >= self.to[axis])
    }
}

/// A box and what is bound there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    /// Where.
    pub region: Region,
    /// The piece of physical memory, by name.
    pub piece: u64,
    /// The call that bound it.
    pub call: u64,
}

/// See the module.
#[derive(Default)]
pub struct Bindings {
    /// By holder, part, beginning and a number: where it is in doubt what a call did, several lie in one place.
    boxes: BTreeMap<(u64, u64, [u64; 3], u64), Binding>,
    /// The longest side that any box ever had, by axis: how far before a region one that reaches into it can begin.
    longest: [u64; 3],
    next: u64,
}

impl Bindings {
    /// Whether nothing is bound anywhere.
    pub fn is_empty(&self) -> bool {
        self.boxes.is_empty()
    }

    /// Puts a binding in, whose region is not empty; those in the same place stay.
    #[inline(never)]
    pub fn insert(&mut self, binding: Binding) {
        let Region { holder, part, from, to } = binding.region;
        for axis in 0..3 {
            self.longest[axis] = self.longest[axis].max(to[axis] - from[axis]);
        }
        self.boxes.insert((holder, part, from, self.next), binding);
        self.next += 1;
    }

    /// Takes out what is bound in a region, of one call alone if `call` says so. Boxes are cut where they reach beyond it:
    /// `cut` is told the piece once for each box that this makes more.
    pub fn take(&mut self, region: &Region, call: Option<u64>, mut cut: impl FnMut(u64)) -> Vec<Binding> {
        let Region { holder, part, from, to } = *region;
        if region.is_empty() {
            return Vec::new();
        }
        let first = [0, 1, 2].map(|axis| from[axis].saturating_sub(self.longest[axis]));
        let last = to.map(|end| end - 1);
        let found: Vec<_> = self
            .boxes
            .range((holder, part, first, 0)..=(holder, part, last, u64::MAX))
            .filter(|(_, binding)| call.is_none_or(|call| call == binding.call))
            .filter(|(_, Binding { region, .. })| {
                (0..3).all(|axis| region.from[axis] < to[axis] && from[axis] < region.to[axis])
            })
            .map(|(key, _)| *key)
            .collect();
        let mut taken = Vec::new();
        for key in found {
            let Some(mut binding) = self.boxes.remove(&key) else { continue };
            for axis in 0..3 {
                let Region { from: begin, to: end, .. } = binding.region;
                if begin[axis] < from[axis] {
                    let mut rest = binding;
                    rest.region.to[axis] = from[axis];
                    self.insert(rest);
                    cut(binding.piece);
                    binding.region.from[axis] = from[axis];
                }
                if to[axis] < end[axis] {
                    let mut rest = binding;
                    rest.region.from[axis] = to[axis];
                    self.insert(rest);
                    cut(binding.piece);
                    binding.region.to[axis] = to[axis];
                }
            }
            taken.push(binding);
        }
        taken
    }

    /// Takes out all that is bound to a holder.
    #[inline(never)]
    pub fn take_all(&mut self, holder: u64) -> Vec<Binding> {
        if self.is_empty() {
            return Vec::new();
        }
        let all = (holder, 0, [0; 3], 0)..=(holder, u64::MAX, [u64::MAX; 3], u64::MAX);
        let found: Vec<_> = self.boxes.range(all).map(|(key, _)| *key).collect();
        found.into_iter().filter_map(|key| self.boxes.remove(&key)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn region(holder: u64, from: [u64; 3], to: [u64; 3]) -> Region {
        Region { holder, part: 0, from, to }
    }

    /// Random boxes in a small space, against a table of its elements.
    #[test]
    fn does_what_a_table_of_all_elements_does() {
        const SIDE: u64 = 6;
        let (mut bindings, mut model, mut count) = (Bindings::default(), HashMap::new(), HashMap::new());
        let mut random = 88_172_645_463_325_252_u64;
        let mut below = |n: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % n
        };
        for round in 0..4000 {
            let holder = below(3);
            let from = [below(SIDE), below(SIDE), below(SIDE)];
            let to = from.map(|begin| begin + 1 + below(SIDE - begin));
            let place = region(holder, from, to);
            let mut more = Vec::new();
            for gone in bindings.take(&place, None, |piece| more.push(piece)) {
                assert!((0..3).all(|a| from[a] <= gone.region.from[a] && gone.region.to[a] <= to[a]));
                *count.get_mut(&gone.piece).unwrap() -= 1;
            }
            more.iter().for_each(|piece| *count.get_mut(piece).unwrap() += 1);
            let bound = below(3) > 0;
            if bound {
                bindings.insert(Binding { region: place, piece: round, call: round });
                count.insert(round, 1);
            }
            for z in from[0]..to[0] {
                for y in from[1]..to[1] {
                    for x in from[2]..to[2] {
                        model.remove(&(holder, z, y, x));
                        if bound {
                            model.insert((holder, z, y, x), round);
                        }
                    }
                }
            }
            if below(50) == 0 {
                bindings.take_all(holder).iter().for_each(|gone| *count.get_mut(&gone.piece).unwrap() -= 1);
                model.retain(|key, _| key.0 != holder);
            }
            // Every element is bound to what the table says, and a piece counts as long as it is anywhere.
            let mut seen = HashMap::new();
            for Binding { region: Region { holder, from, to, .. }, piece, .. } in bindings.boxes.values() {
                for z in from[0]..to[0] {
                    for y in from[1]..to[1] {
                        for x in from[2]..to[2] {
                            assert_eq!(seen.insert((*holder, z, y, x), *piece), None);
                        }
                    }
                }
            }
            assert_eq!(seen, model);
            count.retain(|_, count| *count != 0);
            let mut boxes = HashMap::new();
            bindings.boxes.values().for_each(|binding| *boxes.entry(binding.piece).or_insert(0) += 1);
            assert_eq!(boxes, count);
        }
    }

    #[test]
    fn one_call_takes_back_what_it_bound_itself() {
        let mut bindings = Bindings::default();
        let place = region(1, [0; 3], [1, 1, 8]);
        bindings.insert(Binding { region: place, piece: 1, call: 1 });
        bindings.insert(Binding { region: place, piece: 2, call: 2 });
        let taken = bindings.take(&place, Some(2), |_| ());
        assert_eq!(taken, [Binding { region: place, piece: 2, call: 2 }]);
        assert_eq!(bindings.take(&place, None, |_| ()).len(), 1);
        assert!(bindings.is_empty());
    }
}
