//! Green contexts: shares of a device that are named in the place of its primary context. Each retains that, and what is made
//! in one is the primary context's, so whatever is charged there is charged to the primary context.

use std::sync::Mutex;

use crate::abi::{CUcontext, CUdevice, CUgreenCtx};
use crate::driver::Driver;

use super::{Contexts, Place, Process, forget_last, lock};

/// The green contexts of this process, which are few.
#[derive(Default)]
pub(super) struct Greens(Mutex<Vec<Green>>);

/// One of them.
pub struct Green {
    driver: usize,
    handle: usize,
    /// Its device, as the driver calls it.
    pub device: CUdevice,
    /// The context that stands for it, once somebody has asked for that.
    stand_in: Option<usize>,
}

impl Green {
    fn stood_for_by(&self, driver: usize, context: usize) -> bool {
        self.stand_in == Some(context) && self.driver == driver
    }
}

impl Contexts {
    /// The driver has just made `green` on `device`, which keeps the primary context there, and may have made it.
    pub fn green_made(&self, process: &Process, driver: usize, green: CUgreenCtx, device: CUdevice) {
        let new = Green { driver, handle: green as usize, device, stand_in: None };
        lock(&self.greens.0).push(new);
        self.primary(process, driver, device);
    }

    /// `context` stands for `green`.
    pub fn green_stands(&self, driver: usize, green: CUgreenCtx, context: CUcontext) {
        let mut greens = lock(&self.greens.0);
        let found = greens.iter_mut().find(|known| known.handle == green as usize && known.driver == driver);
        if let Some(known) = found {
            known.stand_in = Some(context as usize);
        }
    }

    /// `green` is about to be destroyed. It is taken out before the driver is asked, which may give its handles anew.
    pub fn green_leaving(&self, driver: usize, green: CUgreenCtx) -> Option<Green> {
        let mut greens = lock(&self.greens.0);
        let at = greens.iter().position(|known| known.handle == green as usize && known.driver == driver)?;
        let leaving = greens.swap_remove(at);
        drop(greens);
        forget_last();
        Some(leaving)
    }

    /// The driver refused to destroy it.
    pub fn green_stays(&self, green: Green) {
        lock(&self.greens.0).push(green);
    }

    /// Where a request lands whose context stands for a green one: in the primary context.
    #[cold]
    pub(super) fn of_green(&self, process: &Process, driver: usize, context: usize) -> Option<Place> {
        let device = {
            let greens = lock(&self.greens.0);
            greens.iter().find(|green| green.stood_for_by(driver, context))?.device
        };
        self.primary(process, driver, device)
    }

    /// The context that is there whatever becomes of `context`: the primary one, where that stands for a green context.
    pub fn lasting(&self, process: &Process, driver: usize, context: CUcontext) -> CUcontext {
        let place = self.of_green(process, driver, context as usize);
        let primary = place.and_then(|place| self.name_of(place.context));
        primary.map_or(context, |name| name as CUcontext)
    }

    /// Whether there is a context of this name, or a green one that it stands for.
    pub fn is_named(&self, driver: usize, context: usize) -> bool {
        self.is_met(driver, context)
            || lock(&self.greens.0).iter().any(|green| green.stood_for_by(driver, context))
    }

    /// The primary context of `device`, met here if it was not before; `None` where it is not up.
    fn primary(&self, process: &Process, driver: usize, device: CUdevice) -> Option<Place> {
        let api = Driver::get(driver)?;
        let gpu = process.gpus.by_device(process, driver, device)?;
        let find = || {
            let entries = self.lock();
            let is_it = |entry: &&super::Entry| entry.is_primary(driver, gpu) && entry.is_there();
            entries.iter().find(is_it).map(|entry| Place { gpu, context: entry.id })
        };
        if let Some(known) = find() {
            return Some(known);
        }
        let mut context: CUcontext = core::ptr::null_mut();
        // It is up, so retaining it makes none; only so does it tell its handle.
        // SAFETY: the output is a live local of the type that the driver fills.
        if !self.is_primary_up(driver, device) || unsafe { api.primary_retain(&mut context, device) }.is_err()
        {
            return None;
        }
        self.made(process, driver, context, false);
        // SAFETY: undoes the above.
        let _ = unsafe { api.primary_release(device) };
        find()
    }
}
