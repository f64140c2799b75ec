//! Numbers in the file that are not true, by accident or on purpose.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use cuquota::ledger::layout::{FILE_SIZE, GPU_TABLE, SLOT_TABLE, Slot, slot_offset};
use cuquota::ledger::{Snapshot, Want};

use crate::ledger_support::{GIB, GPU, MIB, Page, Worker, attach, within};
use crate::{LIMIT, explicit, with_ledger};

/// Numbers on the page.
const STOP: usize = 0;
const OVER: usize = 8;
const ROUNDS: usize = 16;

#[test]
fn a_word_made_too_small_or_too_large_is_put_right() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let ((a, in_a), (b, in_b)) = (attach(dir.path()), attach(dir.path()));
    a.reserve(in_a, Want::exactly(GIB), LIMIT).expect("fits");
    let words = SLOT_TABLE as u64 + 64;
    let file = OpenOptions::new().write(true).open(dir.path().join("ledger")).expect("writable");
    for damage in [0u64, u64::MAX, 0xFFFF_FFFF_0000_0000] {
        file.write_at(&damage.to_ne_bytes(), words).expect("writable");
        // By its own account it has 1 GiB already, whatever the file says.
        let _ = a.reserve(in_a, Want::exactly(LIMIT - GIB + 1), LIMIT).expect_err("does not fit");
        let right = || {
            a.housekeeping();
            b.used(in_b) == GIB
        };
        within(Duration::from_secs(2), right).expect("put right");
        b.reserve(in_b, Want::exactly(3 * GIB), LIMIT).expect("fits");
        b.give_back(in_b, 3 * GIB);
    }
}

#[test]
fn a_number_of_an_owner_that_was_overwritten_is_put_back() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let ((a, in_a), (b, in_b)) = (attach(dir.path()), attach(dir.path()));
    a.reserve(in_a, Want::exactly(3 * GIB), LIMIT).expect("fits");
    let file = OpenOptions::new().write(true).open(dir.path().join("ledger")).expect("writable");
    let owner = slot_offset(0) + std::mem::offset_of!(Slot, owner);
    for noise in [0_u64, 12, 1 << 63 | 12] {
        file.write_at(&noise.to_ne_bytes(), owner as u64).expect("writable");
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(a.housekeeping(), None);
        let _ = b.reserve(in_b, Want::exactly(2 * GIB), LIMIT).expect_err("the other has 3 GiB");
        let seen = Snapshot::read(&dir.path().join("ledger")).expect("readable");
        assert!(seen.processes.len() == 2 && seen.processes.iter().all(|process| process.alive), "{seen:?}");
    }
}

#[test]
fn a_request_that_seems_under_way_for_ever_does_not_slow_refusals_down_for_ever() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let ((a, in_a), (b, in_b)) = (attach(dir.path()), attach(dir.path()));
    a.reserve(in_a, Want::exactly(GIB), LIMIT).expect("fits");
    let file = OpenOptions::new().write(true).open(dir.path().join("ledger")).expect("writable");
    let in_flight = (slot_offset(0) + std::mem::offset_of!(Slot, in_flight)) as u64;
    file.write_at(&7u32.to_ne_bytes(), in_flight).expect("writable");
    let refused_in = || {
        let since = Instant::now();
        let _ = b.reserve(in_b, Want::exactly(LIMIT), LIMIT).expect_err("does not fit");
        since.elapsed()
    };
    assert!(refused_in() < Duration::from_secs(1));
    let fast = || {
        a.housekeeping();
        refused_in() < Duration::from_millis(50)
    };
    within(Duration::from_secs(5), fast).expect("put right");
}

pub fn beside_a_vandal(dir: &Path) {
    let ledger = explicit(dir);
    let gpu = ledger.gpu(GPU).expect("room in our own account");
    let page = Page::of(dir);
    let mut seed = u64::from(std::process::id());
    let mut held = 0;
    while page.number(STOP).load(Ordering::SeqCst) == 0 {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let bytes = (seed >> 33) % 512 * MIB;
        ledger.housekeeping();
        let since = Instant::now();
        if held < 3 * GIB && ledger.reserve(gpu, Want::exactly(bytes), LIMIT).is_ok() {
            held += bytes;
        } else {
            ledger.give_back(gpu, held);
            held = 0;
        }
        assert!(since.elapsed() < Duration::from_secs(1), "{:?}", since.elapsed());
        assert_eq!(ledger.own_used(gpu), held);
        if held > LIMIT {
            page.number(OVER).fetch_add(1, Ordering::SeqCst);
        }
        page.number(ROUNDS).fetch_add(1, Ordering::SeqCst);
    }
    // Afterwards as well.
    ledger.give_back(gpu, held);
    assert_eq!(ledger.own_used(gpu), 0);
}

#[test]
fn noise_written_over_a_ledger_in_use_harms_nobody() {
    // Over the slots, over the table of GPUs as well, over all of it.
    for from in [SLOT_TABLE, GPU_TABLE, 0] {
        let dir = with_ledger();
        let page = Page::of(dir.path());
        let workers: Vec<Worker> = (0..2).map(|_| Worker::start("beside-a-vandal", dir.path())).collect();
        let file = OpenOptions::new().write(true).open(dir.path().join("ledger")).expect("writable");
        let mut seed = from as u64 + 1;
        let since = Instant::now();
        while since.elapsed() < Duration::from_secs(2) {
            let noise: Vec<u8> = std::iter::repeat_with(|| {
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (seed >> 56) as u8
            })
            .take(4096)
            .collect();
            let at = from + (seed >> 8) as usize % (FILE_SIZE - from - noise.len());
            file.write_at(&noise, at as u64).expect("writable");
            // Now and then where it hurts most.
            let first = from.max(GPU_TABLE) + (seed >> 40) as usize % 2048;
            file.write_at(&noise[..64], first as u64).expect("writable");
            std::thread::sleep(Duration::from_millis(1));
        }
        page.number(STOP).store(1, Ordering::SeqCst);
        workers.into_iter().for_each(Worker::succeeded);
        assert_eq!(page.number(OVER).load(Ordering::SeqCst), 0);
        assert!(page.number(ROUNDS).load(Ordering::SeqCst) > 20);
    }
}
