//! Bits that nobody else has.

use core::sync::atomic::{AtomicU64, Ordering};

use super::clock::coarse_millis;

/// 64 bits from the kernel; where it has none yet, or no such call, mixed from what tells processes and moments apart.
pub fn bits() -> u64 {
    let mut bits = 0u64;
    // SAFETY: `bits` is valid for writes of its eight bytes.
    let got =
        unsafe { libc::syscall(libc::SYS_getrandom, &raw mut bits, size_of::<u64>(), libc::GRND_NONBLOCK) };
    if got == size_of::<u64>() as libc::c_long { bits } else { mixed() }
}

#[cold]
fn mixed() -> u64 {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let here = &raw const COUNT as u64;
    [u64::from(std::process::id()), count, coarse_millis(), here]
        .into_iter()
        .fold(0, |mixed, part| (mixed ^ part).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(31))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_are_the_same() {
        let both = [bits as fn() -> u64, mixed];
        for ask in both {
            let mut seen: Vec<u64> = (0..1000).map(|_| ask()).collect();
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen.len(), 1000);
        }
    }
}
