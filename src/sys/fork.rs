//! State of one process that its forked children do not have.
//!
//! A child gets a copy of its parent's memory, locks held by threads that it does not have included. State that
//! speaks for the parent (a lock on a file, a share of a budget) must not be used by the child, and must not be dropped
//! by it either. The kernel marks the difference itself: a page with `MADV_WIPEONFORK` reads as zeros in a child, also
//! in that of a raw `clone`.

use core::marker::PhantomData;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

/// A value that belongs to the process which made it: made once at its first use, absent in a forked child, which
/// makes its own at *its* first use. What the parent made is leaked in the child, never dropped.
///
/// Reading costs two loads. Any number of threads may use it at once. Nothing is ever freed, so that references live on.
/// A child that shares its parent's memory (`vfork`, threads) shares the value.
pub struct ForkLocal<T: 'static> {
    /// The cell that a fork wipes, in a page of its own; null until first used.
    cell: AtomicPtr<AtomicPtr<T>>,
    /// Stands in for the page where the kernel gives none.
    stand_in: AtomicPtr<T>,
    /// All values that were made, those of the processes this one was forked from included: a leak checker looks for
    /// pointers here, not in the page.
    kept: AtomicPtr<Kept<T>>,
    owns: PhantomData<T>,
}

/// A value, and the one that was made before it.
struct Kept<T> {
    value: T,
    earlier: *mut Kept<T>,
}

// SAFETY: the cells are atomics, and what they point at is handed out only as `&T` (which needs `T: Sync`) after having
// been made on one thread and used on others (which needs `T: Send`).
unsafe impl<T: Send + Sync> Sync for ForkLocal<T> {}

impl<T: Send + Sync> ForkLocal<T> {
    /// Nothing yet.
    pub const fn new() -> ForkLocal<T> {
        ForkLocal {
            cell: AtomicPtr::new(ptr::null_mut()),
            stand_in: AtomicPtr::new(ptr::null_mut()),
            kept: AtomicPtr::new(ptr::null_mut()),
            owns: PhantomData,
        }
    }

    /// This process's value, if it has been made.
    #[inline]
    pub fn get(&'static self) -> Option<&'static T> {
        let cell = self.cell.load(Ordering::Acquire);
        if cell.is_null() {
            return None;
        }
        // SAFETY: a cell that is not null is either `stand_in` of a static or lies in a page that is never unmapped.
        let value = unsafe { (*cell).load(Ordering::Acquire) };
        // SAFETY: the cell holds null or what `get_or_init` of this process leaked into it.
        unsafe { value.as_ref() }
    }

    /// This process's value, made by `init` if need be. Threads that get here at the same time may each call `init`; one
    /// value stays, the others are dropped.
    #[inline]
    pub fn get_or_init(&'static self, init: impl FnOnce() -> T) -> &'static T {
        match self.get() {
            Some(value) => value,
            None => self.make(init),
        }
    }

    #[cold]
    #[inline(never)]
    fn make(&'static self, init: impl FnOnce() -> T) -> &'static T {
        let cell = self.cell();
        let made = Box::into_raw(Box::new(Kept { value: init(), earlier: ptr::null_mut() }));
        // SAFETY: `made` was just leaked; the address of its field is taken, nothing is read.
        let value = unsafe { &raw mut (*made).value };
        match cell.compare_exchange(ptr::null_mut(), value, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {
                // SAFETY: one thread of the process gets here, and others know only the other field of it.
                unsafe { (*made).earlier = self.kept.load(Ordering::Relaxed) };
                self.kept.store(made, Ordering::Release);
                // SAFETY: just leaked, and nobody frees what the cell holds.
                unsafe { &*value }
            }
            Err(theirs) => {
                // SAFETY: `made` came from `Box::into_raw` above and was not published.
                drop(unsafe { Box::from_raw(made) });
                // SAFETY: what the cell holds was leaked by the thread that was first, and is never freed.
                unsafe { &*theirs }
            }
        }
    }

    fn cell(&'static self) -> &'static AtomicPtr<T> {
        let seen = self.cell.load(Ordering::Acquire);
        // SAFETY: see `get`.
        if let Some(cell) = unsafe { seen.as_ref() } {
            return cell;
        }
        let made = match wiped_page() {
            Some(page) => page.cast::<AtomicPtr<T>>(),
            None => {
                wipe_at_fork(self.stand_in.as_ptr_cell());
                ptr::from_ref(&self.stand_in).cast_mut()
            }
        };
        let chosen = match self.cell.compare_exchange(seen, made, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => made,
            // The page of a thread that was late stays mapped: 4 KiB at most once in a process.
            Err(theirs) => theirs,
        };
        // SAFETY: not null, and see `get`.
        unsafe { &*chosen }
    }
}

impl<T: Send + Sync> Default for ForkLocal<T> {
    fn default() -> ForkLocal<T> {
        ForkLocal::new()
    }
}

/// Cells as the fork handler sees them.
trait PtrCell {
    fn as_ptr_cell(&'static self) -> &'static AtomicPtr<libc::c_void>;
}

impl<T> PtrCell for AtomicPtr<T> {
    fn as_ptr_cell(&'static self) -> &'static AtomicPtr<libc::c_void> {
        // SAFETY: `AtomicPtr` of any sized type has the same layout; only null is ever stored through this view.
        unsafe { &*ptr::from_ref(self).cast() }
    }
}

/// A page that reads as zeros in a forked child, never unmapped. `None` where the kernel (before 4.14) cannot do it.
fn wiped_page() -> Option<*mut libc::c_void> {
    let len = page_size();
    // SAFETY: a new anonymous mapping at an address of the kernel's choice touches no memory of ours.
    let page = unsafe {
        libc::mmap(
            ptr::null_mut(),
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if page == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: exactly the page just mapped.
    if unsafe { libc::madvise(page, len, libc::MADV_WIPEONFORK) } != 0 {
        // SAFETY: exactly the page just mapped, and no pointer into it has left this function.
        unsafe { libc::munmap(page, len) };
        return None;
    }
    Some(page)
}

fn page_size() -> usize {
    // SAFETY: asks for a constant; no pointers.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// Cells that the handler below clears in a child.
static STAND_INS: [AtomicPtr<AtomicPtr<libc::c_void>>; 8] = [const { AtomicPtr::new(ptr::null_mut()) }; 8];
static STAND_IN_COUNT: AtomicUsize = AtomicUsize::new(0);
static CHILD_HANDLER: AtomicBool = AtomicBool::new(false);

/// Has a cell cleared in children made by `fork`. A raw `clone` goes unnoticed here.
fn wipe_at_fork(cell: &'static AtomicPtr<libc::c_void>) {
    let at = STAND_IN_COUNT.fetch_add(1, Ordering::Relaxed);
    if let Some(place) = STAND_INS.get(at) {
        place.store(ptr::from_ref(cell).cast_mut(), Ordering::Release);
    }
    if !CHILD_HANDLER.swap(true, Ordering::AcqRel) {
        at_fork_in_child(clear_stand_ins);
    }
}

extern "C" fn clear_stand_ins() {
    for place in &STAND_INS {
        // SAFETY: null or a cell inside a static.
        if let Some(cell) = unsafe { place.load(Ordering::Acquire).as_ref() } {
            cell.store(ptr::null_mut(), Ordering::Release);
        }
    }
}

/// Has `handler` called in every child made by `fork`, before `fork` returns there. It may do only what a signal
/// handler may. False where there was no memory for it.
pub fn at_fork_in_child(handler: extern "C" fn()) -> bool {
    // SAFETY: the handler is a function of this library, which is never unloaded.
    unsafe { libc::pthread_atfork(None, None, Some(handler)) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `in_child` in a forked child and returns its answer as the exit status.
    fn fork_and_ask(in_child: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child only reads memory, makes a `Box` (glibc keeps malloc usable after fork) and leaves by `_exit`.
        match unsafe { libc::fork() } {
            0 => {
                let status = if in_child() { 0 } else { 1 };
                // SAFETY: ends the child at once, without running the test harness's exit handlers.
                unsafe { libc::_exit(status) }
            }
            child => {
                let mut status = -1;
                // SAFETY: waits for the child just made; `status` outlives the call.
                assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
                status == 0
            }
        }
    }

    #[test]
    fn a_forked_child_starts_with_nothing_and_makes_its_own() {
        static VALUE: ForkLocal<u32> = ForkLocal::new();
        assert!(VALUE.get().is_none());
        assert_eq!(*VALUE.get_or_init(|| 1), 1);
        assert_eq!(*VALUE.get_or_init(|| 2), 1);
        assert!(fork_and_ask(|| VALUE.get().is_none() && *VALUE.get_or_init(|| 3) == 3));
        assert_eq!(VALUE.get(), Some(&1));
    }

    #[test]
    fn a_child_of_a_raw_clone_starts_with_nothing() {
        static VALUE: ForkLocal<u32> = ForkLocal::new();
        VALUE.get_or_init(|| 1);
        // SAFETY: `clone` with no flags but the exit signal is `fork` without libc's handlers; the child only reads memory.
        match unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) } {
            0 => {
                let status = if VALUE.get().is_none() { 0 } else { 1 };
                // SAFETY: ends the child at once.
                unsafe { libc::_exit(status) }
            }
            child => {
                let mut status = -1;
                // SAFETY: waits for the child just made; `status` outlives the call.
                unsafe { libc::waitpid(child as i32, &mut status, 0) };
                assert_eq!(status, 0);
            }
        }
    }

    #[test]
    fn without_the_kernels_help_the_handler_wipes() {
        static CELL: AtomicPtr<u32> = AtomicPtr::new(ptr::null_mut());
        static mut TARGET: u32 = 7;
        CELL.store(&raw mut TARGET, Ordering::Release);
        wipe_at_fork(CELL.as_ptr_cell());
        assert!(fork_and_ask(|| CELL.load(Ordering::Acquire).is_null()));
        assert!(!CELL.load(Ordering::Acquire).is_null());
    }

    #[test]
    fn racing_threads_agree_on_one_value() {
        static VALUE: ForkLocal<usize> = ForkLocal::new();
        let seen: Vec<usize> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|i| scope.spawn(move || *VALUE.get_or_init(|| i))).collect();
            threads.into_iter().map(|t| t.join().expect("no panic")).collect()
        });
        assert!(seen.iter().all(|v| *v == seen[0]));
    }
}
