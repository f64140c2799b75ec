//! Time since boot, cheap enough for every call.

use core::mem::MaybeUninit;
use core::ptr;
use core::time::Duration;

/// Milliseconds since boot, as of the kernel's last tick (1 to 10 ms old). Costs a few nanoseconds and no system call.
pub fn coarse_millis() -> u64 {
    let mut now = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: `now` has room for the answer. The clock exists since Linux 2.6.32; if not, the zeros stay.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, now.as_mut_ptr()) };
    // SAFETY: all zeros is a valid `timespec`, and so is what the kernel wrote.
    let now = unsafe { now.assume_init() };
    (now.tv_sec as u64).wrapping_mul(1000).wrapping_add(now.tv_nsec as u64 / 1_000_000)
}

/// Sleeps for about `time`, less if a signal arrives. Not a cancellation point, unlike the C library's.
pub fn nap(time: Duration) {
    let time = libc::timespec {
        tv_sec: time.as_secs() as libc::time_t,
        tv_nsec: time.subsec_nanos() as libc::c_long,
    };
    // SAFETY: `time` outlives the call; the remaining time is not asked for.
    unsafe { libc::syscall(libc::SYS_nanosleep, &raw const time, ptr::null_mut::<libc::timespec>()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_coarse_clock_moves_with_naps() {
        let before = coarse_millis();
        nap(Duration::from_millis(30));
        let passed = coarse_millis() - before;
        assert!((15..5_000).contains(&passed), "{passed} ms");
    }
}
