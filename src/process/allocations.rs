//! What lies at which address, for the frees.
//!
//! Small requests share the driver's 2 MiB blocks, and only the address that comes back tells which: a block is
//! charged with the first address in it and given back with the last. Records take 16 bytes and their share of free
//! slots; they lie in shards by block, each with a lock of its own, so that threads seldom meet.

use std::sync::{Mutex, MutexGuard};

use crate::policy::BLOCK;

use super::contexts::ContextId;
use super::locks::lock;
use super::pools::PoolId;
use super::table::Table;

/// Who pays for what lies at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Memory of a context, charged by the blocks it touches.
    Context(ContextId),
    /// Memory of a pool, charged by what the pool holds.
    Pool(PoolId),
    /// Memory of a pool that was destroyed, charged by the blocks it touches.
    Orphan(PoolId),
}

/// What lies at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its size in bytes, as asked for.
    pub bytes: u64,
    /// Who pays for it.
    pub owner: Owner,
    /// Whether the card may hold less of it than is charged: managed memory.
    pub estimated: bool,
}

/// A [`Record`] in one word: 47 bits of size, a bit for what is estimated, a bit for the kind of owner, 15 bits of owner.
#[derive(Clone, Copy)]
struct Packed(u64);

const SIZE: u64 = (1 << 47) - 1;
const ESTIMATED: u64 = 1 << 47;
const OWNER_SHIFT: u32 = 48;
const POOL: u64 = 1 << 63;
/// What is in a pool is never estimated.
const ORPHAN: u64 = POOL | ESTIMATED;

impl Packed {
    fn new(record: Record) -> Self {
        let owner = match record.owner {
            Owner::Context(ContextId(id)) => u64::from(id) << OWNER_SHIFT,
            Owner::Pool(PoolId(id)) => POOL | u64::from(id) << OWNER_SHIFT,
            Owner::Orphan(PoolId(id)) => ORPHAN | u64::from(id) << OWNER_SHIFT,
        };
        // No device has memory that needs more bits.
        Packed(owner | if record.estimated { ESTIMATED } else { 0 } | record.bytes & SIZE)
    }

    fn open(self) -> Record {
        let id = (self.0 >> OWNER_SHIFT) as u16 & ContextId::END;
        let estimated = self.0 & ESTIMATED != 0;
        let (owner, estimated) = match (self.0 & POOL != 0, estimated) {
            (false, _) => (Owner::Context(ContextId(id)), estimated),
            (true, false) => (Owner::Pool(PoolId(id)), false),
            (true, true) => (Owner::Orphan(PoolId(id)), false),
        };
        Record { bytes: self.0 & SIZE, owner, estimated }
    }
}

#[derive(Default)]
struct Shard {
    /// By address: a [`Packed`] record.
    records: Table,
    /// By [`shared_key`]: how many addresses touch a block without filling it.
    sharers: Table,
}

/// A block's key among those that are shared; 0 would be none.
fn shared_key(block: u64) -> u64 {
    block + 1
}

const SHARDS: usize = 64;

/// A shard to a cache line, so that two locks do not share one.
#[derive(Default)]
#[repr(align(64))]
struct Aligned(Mutex<Shard>);

/// See the module. Thread-safe.
pub struct Allocations {
    shards: [Aligned; SHARDS],
}

impl Default for Allocations {
    fn default() -> Self {
        Allocations { shards: core::array::from_fn(|_| Aligned::default()) }
    }
}

impl Allocations {
    /// Records what the driver has just given at `address`. Answers what that takes of the card beyond what was taken
    /// before, in bytes: whole blocks for a context, and nothing for a pool, which pays by itself.
    pub fn insert(&self, address: u64, record: Record) -> u64 {
        let edges = Edges::of(address, record);
        let mut taken = edges.whole;
        let mut shard = self.shard(address);
        shard.records.insert(address, Packed::new(record).0);
        if let Some(first) = edges.first {
            taken += shard.share(first);
        }
        drop(shard);
        if let Some(last) = edges.last {
            taken += self.shard(last * BLOCK).share(last);
        }
        taken
    }

    /// Takes the record of `address` out, before the driver is asked to free it: afterwards the same address may
    /// at once be somebody else's. What it gives back is the caller's once the driver said success; otherwise it is
    /// [put back](Self::put_back).
    pub fn take(&self, address: u64) -> Option<Taken> {
        let mut shard = self.shard(address);
        let record = Packed(shard.records.remove(address)?).open();
        Some(self.taken(shard, address, record))
    }

    /// What lies at `address`, and the bytes of all blocks that it touches.
    pub fn look(&self, address: u64) -> Option<(Record, u64)> {
        let record = Packed(*self.shard(address).records.get_mut(address)?).open();
        let edges = Edges::of_range(address, record.bytes);
        let parts = u64::from(edges.first.is_some()) + u64::from(edges.last.is_some());
        Some((record, edges.whole + parts * BLOCK))
    }

    fn take_if(&self, address: u64, wanted: impl FnOnce(Record) -> bool) -> Option<Taken> {
        let mut shard = self.shard(address);
        let record = Packed(*shard.records.get_mut(address)?).open();
        if !wanted(record) {
            return None;
        }
        shard.records.remove(address);
        Some(self.taken(shard, address, record))
    }

    /// What a record that was taken out of `shard` gives back.
    #[inline]
    fn taken(&self, mut shard: MutexGuard<'_, Shard>, address: u64, record: Record) -> Taken {
        let edges = Edges::of(address, record);
        let mut gives = edges.whole;
        if let Some(first) = edges.first {
            gives += shard.unshare(first);
        }
        drop(shard);
        if let Some(last) = edges.last {
            gives += self.shard(last * BLOCK).unshare(last);
        }
        Taken { record, gives }
    }

    /// The driver refused to free what was taken out. Answers what is to be given back nevertheless, in bytes: blocks
    /// that others have come to share and paid for meanwhile.
    pub fn put_back(&self, address: u64, taken: Taken) -> u64 {
        let again = self.insert(address, taken.record);
        taken.gives.saturating_sub(again)
    }

    /// A context is gone and everything in it: forgets all that, and answers what it gives back.
    pub fn drop_context(&self, context: ContextId) -> Given {
        self.drop_all(Owner::Context(context))
    }

    /// A pool was destroyed, and what is live in it was not: from now on that is charged by the blocks it touches. Answers
    /// what they are, in bytes.
    pub fn orphan(&self, pool: PoolId) -> u64 {
        let mut bytes = 0;
        for shard in &self.shards {
            let theirs = |(_, record): &(u64, u64)| Packed(*record).open().owner == Owner::Pool(pool);
            let live: Vec<(u64, u64)> = lock(&shard.0).records.iter().filter(theirs).collect();
            for (address, _) in live {
                if let Some(taken) = self.take_if(address, |record| record.owner == Owner::Pool(pool)) {
                    bytes += self.insert(address, Record { owner: Owner::Orphan(pool), ..taken.record });
                }
            }
        }
        bytes
    }

    /// Takes out what is at `address` if it is of `context`.
    pub fn take_of(&self, address: u64, context: ContextId) -> Option<Taken> {
        self.take_if(address, |record| record.owner == Owner::Context(context))
    }

    /// Takes out what is at `address` if it is still what `was` there, which is of a pool. That may have been destroyed
    /// meanwhile.
    pub fn take_pooled(&self, address: u64, was: Record) -> Option<Taken> {
        let pool = |record: Record| match record.owner {
            Owner::Pool(pool) | Owner::Orphan(pool) => Some(pool),
            Owner::Context(_) => None,
        };
        self.take_if(address, |is| is.bytes == was.bytes && pool(is).is_some() && pool(is) == pool(was))
    }

    /// What is of pools, alive or destroyed, as far as it is known to be there: by address.
    pub fn of_pools(&self) -> Vec<(u64, Record)> {
        let pooled = |(address, record): (u64, u64)| {
            let record = Packed(record).open();
            (!matches!(record.owner, Owner::Context(_))).then_some((address, record))
        };
        self.shards
            .iter()
            .flat_map(|shard| lock(&shard.0).records.iter().filter_map(pooled).collect::<Vec<_>>())
            .collect()
    }

    /// All that lived on of a pool that was destroyed is gone; answers what that gives back.
    pub fn drop_orphans(&self, pool: PoolId) -> Given {
        self.drop_all(Owner::Orphan(pool))
    }

    fn drop_all(&self, owner: Owner) -> Given {
        let mut given = Given::default();
        for shard in &self.shards {
            let theirs = |(_, record): &(u64, u64)| Packed(*record).open().owner == owner;
            let gone: Vec<(u64, u64)> = lock(&shard.0).records.iter().filter(theirs).collect();
            // The address may be somebody else's by now.
            let still = |record: Record| record.owner == owner;
            for taken in gone.iter().filter_map(|(address, _)| self.take_if(*address, still)) {
                given.bytes += taken.gives;
                given.estimated += if taken.record.estimated { taken.gives } else { 0 };
            }
        }
        given
    }

    #[inline(always)]
    fn shard(&self, address: u64) -> MutexGuard<'_, Shard> {
        let block = address / BLOCK;
        lock(&self.shards[(block ^ block >> 6) as usize % SHARDS].0)
    }
}

impl Shard {
    /// One more address in `block`; what that takes of the card.
    fn share(&mut self, block: u64) -> u64 {
        if let Some(sharers) = self.sharers.get_mut(shared_key(block)) {
            *sharers += 1;
            return 0;
        }
        self.sharers.insert(shared_key(block), 1);
        BLOCK
    }

    /// One address less in `block`; what that gives back.
    fn unshare(&mut self, block: u64) -> u64 {
        match self.sharers.get_mut(shared_key(block)) {
            Some(1) => {
                self.sharers.remove(shared_key(block));
                BLOCK
            }
            Some(sharers) => {
                *sharers -= 1;
                0
            }
            None => 0,
        }
    }
}

/// What was at an address that the driver is asked to free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Its record.
    pub record: Record,
    /// What its free gives back to the card, in bytes.
    pub gives: u64,
}

/// What goes back to the card, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Given {
    /// All of it.
    pub bytes: u64,
    /// The part that was charged by estimate.
    pub estimated: u64,
}

/// The blocks that a range of addresses touches.
struct Edges {
    /// Bytes of blocks it fills, which nobody else can be in.
    whole: u64,
    /// The block it starts in, if it does not fill it.
    first: Option<u64>,
    /// The block it ends in, if that is another one and it does not fill it.
    last: Option<u64>,
}

impl Edges {
    #[inline(always)]
    fn of(address: u64, record: Record) -> Edges {
        match record.owner {
            Owner::Context(_) | Owner::Orphan(_) => Edges::of_range(address, record.bytes),
            Owner::Pool(_) => Edges { whole: 0, first: None, last: None },
        }
    }

    #[inline(always)]
    fn of_range(address: u64, bytes: u64) -> Edges {
        let end = address.saturating_add(bytes.max(1));
        let (first, last) = (address / BLOCK, (end - 1) / BLOCK);
        let (starts_whole, ends_whole) = (address.is_multiple_of(BLOCK), end.is_multiple_of(BLOCK));
        if first == last {
            let fills = starts_whole && ends_whole;
            return Edges {
                whole: if fills { BLOCK } else { 0 },
                first: (!fills).then_some(first),
                last: None,
            };
        }
        let between = last - first - 1 + u64::from(starts_whole) + u64::from(ends_whole);
        Edges {
            whole: between * BLOCK,
            first: (!starts_whole).then_some(first),
            last: (!ends_whole).then_some(last),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: ContextId = ContextId(3);
    const BASE: u64 = 0x200_0000_0000;

    fn plain(bytes: u64, context: ContextId) -> Record {
        Record { bytes, owner: Owner::Context(context), estimated: false }
    }

    fn pooled(bytes: u64, pool: PoolId) -> Record {
        Record { bytes, owner: Owner::Pool(pool), estimated: false }
    }

    fn free(all: &Allocations, address: u64) -> u64 {
        all.take(address).unwrap().gives
    }

    #[test]
    fn small_requests_pay_for_the_block_they_share_once() {
        let all = Allocations::default();
        assert_eq!(all.insert(BASE, plain(512, HERE)), BLOCK);
        assert_eq!(all.insert(BASE + 512, plain(512, HERE)), 0);
        assert_eq!(free(&all, BASE), 0);
        assert_eq!(free(&all, BASE + 512), BLOCK);
    }

    #[test]
    fn large_requests_pay_for_every_block_they_touch() {
        let all = Allocations::default();
        assert_eq!(all.insert(BASE, plain(3 * BLOCK, HERE)), 3 * BLOCK);
        assert_eq!(all.insert(BASE + 4 * BLOCK, plain(2 * BLOCK + 1, HERE)), 3 * BLOCK);
        assert_eq!(all.insert(BASE + 9 * BLOCK - 512, plain(1024, HERE)), 2 * BLOCK);
        assert_eq!(free(&all, BASE), 3 * BLOCK);
        assert_eq!(free(&all, BASE + 4 * BLOCK), 3 * BLOCK);
        assert_eq!(free(&all, BASE + 9 * BLOCK - 512), 2 * BLOCK);
    }

    #[test]
    fn an_address_that_is_reused_while_it_is_freed_keeps_its_new_owner() {
        let all = Allocations::default();
        assert_eq!(all.insert(BASE, plain(BLOCK, HERE)), BLOCK);
        let old = all.take(BASE).unwrap();
        assert_eq!(all.insert(BASE, plain(2 * BLOCK, ContextId(4))), 2 * BLOCK);
        assert_eq!(old.gives, BLOCK);
        assert_eq!(all.take(BASE).unwrap().record, plain(2 * BLOCK, ContextId(4)));
    }

    #[test]
    fn a_free_that_the_driver_refuses_changes_nothing() {
        let all = Allocations::default();
        assert_eq!(all.insert(BASE, plain(BLOCK + 512, HERE)), 2 * BLOCK);
        let taken = all.take(BASE).unwrap();
        assert_eq!(all.put_back(BASE, taken), 0);
        // Somebody else moves into the block meanwhile, pays for it, and is paid back.
        let taken = all.take(BASE).unwrap();
        assert_eq!(all.insert(BASE + BLOCK + 512, plain(512, HERE)), BLOCK);
        assert_eq!(all.put_back(BASE, taken), BLOCK);
        assert_eq!(free(&all, BASE), BLOCK);
        assert_eq!(free(&all, BASE + BLOCK + 512), BLOCK);
    }

    #[test]
    fn a_context_takes_everything_in_it_along() {
        let all = Allocations::default();
        for at in 0..1000 {
            all.insert(BASE + at * 512, plain(512, HERE));
            all.insert(BASE + (at + 10) * 16 * BLOCK, plain(BLOCK, ContextId(4)));
        }
        assert_eq!(all.insert(BASE - BLOCK, pooled(512, PoolId(3))), 0);
        assert_eq!(all.drop_context(HERE).bytes, BLOCK);
        assert_eq!(all.drop_context(ContextId(4)).bytes, 1000 * BLOCK);
        let left = Taken { record: pooled(512, PoolId(3)), gives: 0 };
        assert_eq!(all.take(BASE - BLOCK), Some(left));
    }
}
