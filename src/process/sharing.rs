//! Memory at addresses that other processes have opened, or may, and memory of theirs that this one has.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use crate::ledger::{Closing, Key, Shared};

use super::Process;
use super::contexts::ContextId;
use super::gpus::Gpu;
use super::locks::lock;

/// Who pays for memory that came from elsewhere.
#[derive(Clone, Copy)]
pub enum Holding {
    /// The container does, once for all that hold it.
    Together(Shared),
    /// This process does, since nobody in the container says that it has it.
    Alone(&'static Gpu, u64),
}

impl Holding {
    /// The process holds it no more.
    #[cold]
    pub fn end(self, process: &Process) {
        match self {
            Holding::Together(shared) => drop(process.ledger().close_shared(shared)),
            Holding::Alone(gpu, bytes) => process.give_back(gpu, bytes),
        }
    }
}

/// Something of ours at an address that others may open.
struct Export {
    shared: Shared,
    key: Key,
    /// `None` is memory of a pool.
    context: Option<ContextId>,
}

/// Something of others at an address.
struct Import {
    holding: Holding,
    times: u32,
    context: ContextId,
}

type Imports<'imports> = MutexGuard<'imports, HashMap<u64, Import>>;

/// See the module. Thread-safe.
#[derive(Default)]
pub struct Sharing {
    any: AtomicBool,
    exports: Mutex<HashMap<u64, Export>>,
    imports: Mutex<HashMap<u64, Import>>,
}

/// What was at an address that the driver is asked to free or close.
#[must_use]
pub struct Taken {
    address: u64,
    export: Option<Export>,
    import: Option<Import>,
}

impl Sharing {
    /// Whether anything was ever shared.
    #[inline]
    pub fn is_any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// Others find what lies at `address` as `key`: on `gpu`, so many `bytes`, of a context or a pool.
    #[cold]
    #[inline(never)]
    pub fn export(
        &self,
        process: &Process,
        address: u64,
        key: Key,
        gpu: &'static Gpu,
        bytes: u64,
        context: Option<ContextId>,
    ) {
        let Some(index) = gpu.ledger else { return };
        self.any.store(true, Ordering::Relaxed);
        let mut exports = lock(&self.exports);
        if exports.get(&address).is_some_and(|known| known.key == key) {
            return;
        }
        let shared = process.ledger().share(index, key, bytes, 0);
        let older = exports.insert(address, Export { shared, key, context });
        if let Some(older) = older {
            drop(process.ledger().close_shared(older.shared));
        }
    }

    /// Memory of others was opened at `address`; whether it was before and is counted already.
    #[cold]
    #[inline(never)]
    pub fn opened_again(&self, address: u64) -> bool {
        self.any.store(true, Ordering::Relaxed);
        let mut imports = lock(&self.imports);
        let known = imports.get_mut(&address);
        known.is_some_and(|known| {
            known.times += 1;
            true
        })
    }

    /// It was not, and this is who pays for it.
    #[cold]
    #[inline(never)]
    pub fn opened(&self, process: &Process, address: u64, context: ContextId, holding: Holding) {
        let mut imports = lock(&self.imports);
        if let Some(known) = imports.get_mut(&address) {
            // Another thread came first.
            known.times += 1;
            drop(imports);
            return holding.end(process);
        }
        self.keep(process, imports, address, Import { holding, times: 1, context });
    }

    fn keep(&self, process: &Process, mut imports: Imports, address: u64, import: Import) {
        let context = import.context;
        imports.insert(address, import);
        drop(imports);
        if !process.contexts.is_alive(context) {
            // With its context it was not forgotten, as it was not there yet.
            self.drop_imports(process, context);
        }
    }

    fn drop_imports(&self, process: &Process, context: ContextId) {
        let of = |_: &u64, import: &mut Import| import.context == context;
        let gone: Vec<Import> = lock(&self.imports).extract_if(of).map(|(_, import)| import).collect();
        for import in gone {
            import.holding.end(process);
        }
    }

    /// Takes what is at `address` out, once, before the driver is asked; to be [gone](Self::gone) or [put
    /// back](Self::put_back).
    #[cold]
    pub fn take(&self, address: u64) -> Option<Taken> {
        if let Some(export) = lock(&self.exports).remove(&address) {
            return Some(Taken { address, export: Some(export), import: None });
        }
        let mut imports = lock(&self.imports);
        let known = imports.get_mut(&address)?;
        known.times = known.times.saturating_sub(1);
        let import = Import { holding: known.holding, times: known.times, context: known.context };
        if import.times == 0 {
            imports.remove(&address);
        }
        Some(Taken { address, export: None, import: Some(import) })
    }

    /// The driver has done it. What was paid for it is given back while the answer lives.
    #[cold]
    pub fn gone<'process>(&self, process: &'process Process, taken: Taken) -> Option<Closing<'process>> {
        if let Some(import) = taken.import.filter(|import| import.times == 0) {
            import.holding.end(process);
        }
        taken.export.map(|export| process.ledger().close_shared(export.shared))
    }

    /// The driver has refused.
    #[cold]
    pub fn put_back(&self, process: &Process, taken: Taken) {
        if let Some(export) = taken.export
            && let Some(newer) = lock(&self.exports).insert(taken.address, export)
        {
            drop(process.ledger().close_shared(newer.shared));
        }
        if let Some(import) = taken.import {
            let mut imports = lock(&self.imports);
            match imports.get_mut(&taken.address) {
                Some(known) => {
                    known.times += 1;
                    drop(imports);
                    if import.times == 0 {
                        // Another thread has opened and paid for it meanwhile.
                        import.holding.end(process);
                    }
                }
                None if import.times == 0 => {
                    self.keep(process, imports, taken.address, Import { times: 1, ..import });
                }
                // It went with its context.
                None => {}
            }
        }
    }

    /// A context is gone and what was opened in it; what was allocated in it is others' now, if they hold it. What is shared of
    /// pools counts for itself, whether or not they still hold it. What was paid is given back while the answer lives.
    #[cold]
    #[inline(never)]
    pub fn drop_context<'process>(
        &self,
        process: &'process Process,
        context: ContextId,
    ) -> Vec<Closing<'process>> {
        if !self.is_any() {
            return Vec::new();
        }
        self.drop_imports(process, context);
        let gone = |_: &u64, export: &mut Export| export.context.is_none_or(|of| of == context);
        let exports: Vec<Export> = lock(&self.exports).extract_if(gone).map(|(_, export)| export).collect();
        exports.into_iter().map(|export| process.ledger().close_shared(export.shared)).collect()
    }
}

/// What a thing is called between processes, from what the driver hands out for it.
#[inline(never)]
pub fn key_of(kind: u8, bytes: &[u8]) -> Key {
    let mut key = [0xCBF2_9CE4_8422_2325u64, 0x9E37_79B9_7F4A_7C15];
    for byte in bytes.iter().chain([&kind]) {
        key[0] = (key[0] ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3);
        key[1] = (key[1].rotate_left(23) ^ u64::from(*byte)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    }
    [key[0], key[1] | 1]
}
