//! A neighbour that is not honest. It costs the others what it is promised, or what it may hold, and nothing else.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cuquota::ledger::layout::{FILE_SIZE, SLOT_TABLE, SLOTS, Slot};

use crate::common::{GIB, MIB};
use crate::needs_the_simulator;
use crate::node::{Container, Layout, Node, Program, overwrite};

const CONTEXT: u64 = 256 * MIB;

struct Neighbourhood {
    _node: Node,
    victim: Container,
    other: Container,
    vandal: Container,
}

impl Neighbourhood {
    /// Three containers on 16 GiB: the vandal is promised 2 and may hold 4.
    fn new() -> Neighbourhood {
        let node = Node::new("16GiB,context=256MiB", Layout::Mounted);
        let victim = node.container("victim", "limit = \"100%\"\nreserve = \"4GiB\"\n");
        let other = node.container("other", "limit = \"100%\"\nreserve = \"3GiB\"\n");
        let vandal = node.container("vandal", "limit = \"4GiB\"\nreserve = \"2GiB\"\n");
        Neighbourhood { _node: node, victim, other, vandal }
    }
}

/// Takes pieces of 512 MiB; none of them may take long.
#[track_caller]
fn most(program: &mut Program) -> u64 {
    let mut sum = 0;
    loop {
        let since = Instant::now();
        let granted = program.take(512 * MIB);
        assert!(since.elapsed() < Duration::from_secs(1), "{:?}", since.elapsed());
        if !granted {
            break;
        }
        sum += 512 * MIB;
    }
    (0..sum / (512 * MIB)).for_each(|_| assert_eq!(program.give_back(), 512 * MIB));
    sum
}

/// Removes whatever is there.
fn clear(path: &Path) {
    let _ = fs::remove_file(path);
    let _ = fs::remove_dir_all(path);
}

#[test]
fn what_is_no_ledger_costs_the_neighbours_reserve_and_no_time() {
    if needs_the_simulator() {
        return;
    }
    let place = Neighbourhood::new();
    let (mut victim, mut other) = (place.victim.start(), place.other.start());
    let ledger = place.vandal.ledger();
    let noise: Vec<u8> =
        (0..FILE_SIZE as u64).map(|n| (n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect();
    let tricks: &[(&str, &dyn Fn())] = &[
        ("noise", &|| fs::write(&ledger, &noise).unwrap()),
        ("nothing in it", &|| fs::write(&ledger, "").unwrap()),
        ("too long", &|| fs::write(&ledger, vec![0xFF; FILE_SIZE + 1]).unwrap()),
        ("cut", &|| {
            fs::copy(place.other.ledger(), &ledger).unwrap();
            fs::File::options().write(true).open(&ledger).unwrap().set_len(5000).unwrap();
        }),
        ("a copy of another's", &|| {
            fs::copy(place.other.ledger(), &ledger).unwrap();
        }),
        ("a link to another's", &|| symlink(place.other.ledger(), &ledger).unwrap()),
        ("a link to a device", &|| symlink("/dev/zero", &ledger).unwrap()),
        ("a link to itself", &|| symlink("ledger", &ledger).unwrap()),
        ("a directory", &|| fs::create_dir(&ledger).unwrap()),
        ("a pipe", &|| {
            let made = std::process::Command::new("mkfifo").arg(&ledger).status().unwrap();
            assert!(made.success());
        }),
        ("many", &|| {
            for n in 0..300 {
                fs::write(ledger.with_file_name(format!("ledger-{n}")), &noise).unwrap();
            }
        }),
        ("no state at all", &|| fs::remove_dir_all(place.vandal.state()).unwrap()),
        ("a file for a state", &|| fs::write(place.vandal.state(), "no").unwrap()),
    ];
    for (what, trick) in tricks {
        clear(&ledger);
        trick();
        // The victim's context, the other's reserve and the vandal's are not to be had.
        assert_eq!(most(&mut victim), 16 * GIB - 5 * GIB - 512 * MIB, "{what}");
        assert_eq!(most(&mut other), 16 * GIB - 6 * GIB - 512 * MIB, "{what}");
    }
}

#[test]
fn lies_of_a_living_neighbour_cost_what_it_may_hold_and_no_time() {
    if needs_the_simulator() {
        return;
    }
    let place = Neighbourhood::new();
    let _vandal = place.vandal.start();
    let (mut victim, mut other) = (place.victim.start(), place.other.start());
    let ledger = place.vandal.ledger();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // All ones: words, threads that ask and never look, a request that has waited since the beginning.
        scope.spawn(|| {
            let ones = vec![0xFF; 64 * size_of::<Slot>()];
            while !stop.load(Ordering::Relaxed) {
                overwrite(&ledger, SLOT_TABLE as u64, &ones);
                std::thread::sleep(Duration::from_micros(50));
            }
        });
        let stops = Stop(&stop);
        std::thread::sleep(Duration::from_millis(50));
        assert!(most(&mut victim) >= 16 * GIB - 3 * GIB - 4 * GIB - 512 * MIB);
        assert!(most(&mut other) >= 16 * GIB - 4 * GIB - 4 * GIB - 512 * MIB);
        // The reserves are there all the time.
        for _ in 0..20 {
            assert!(victim.take(4 * GIB - CONTEXT) && other.take(3 * GIB - CONTEXT));
            victim.give_back();
            other.give_back();
        }
        drop(stops);
    });
}

#[test]
fn a_neighbour_that_hides_what_it_holds_is_found_out_by_the_card() {
    if needs_the_simulator() {
        return;
    }
    let place = Neighbourhood::new();
    let mut vandal = place.vandal.start();
    let (mut victim, mut other) = (place.victim.start(), place.other.start());
    assert!(vandal.take(4 * GIB - CONTEXT));
    let ledger = place.vandal.ledger();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let zeros = vec![0; 8 * size_of::<Slot>()];
            while !stop.load(Ordering::Relaxed) {
                overwrite(&ledger, SLOT_TABLE as u64, &zeros);
            }
        });
        let stops = Stop(&stop);
        std::thread::sleep(Duration::from_millis(20));
        // The victim takes all it can get; the other's reserve is still there.
        let got = victim.take_chunks(512 * MIB) * 512 * MIB;
        assert!(got >= 4 * GIB - 512 * MIB, "{got}");
        assert!(other.take(3 * GIB - CONTEXT), "the victim got {got}");
        drop(stops);
    });
}

#[test]
fn read_locks_of_a_neighbour_hold_nobody_up() {
    if needs_the_simulator() {
        return;
    }
    let place = Neighbourhood::new();
    let (mut victim, mut other) = (place.victim.start(), place.other.start());
    let file = fs::File::open(place.victim.ledger()).expect("readable");
    lock_for_reading(&file);
    assert_eq!(most(&mut victim), 16 * GIB - 5 * GIB - 512 * MIB);
    assert_eq!(most(&mut other), 16 * GIB - 6 * GIB - 512 * MIB);
    // At the container's own limit, too.
    place.victim.write_quota("limit = \"4GiB\"\nreserve = \"4GiB\"\n");
    std::thread::sleep(Duration::from_millis(600));
    assert!(victim.take(4 * GIB - CONTEXT));
    let since = Instant::now();
    assert!(!victim.take(2 * MIB));
    assert!(since.elapsed() < Duration::from_millis(300), "{:?}", since.elapsed());
}

/// Takes a read lock on all of a file, which is all that a neighbour with a read-only mount can do to it.
fn lock_for_reading(file: &fs::File) {
    use std::os::fd::AsRawFd;
    // SAFETY: all zeros is a valid `flock`: from the beginning to the end.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_RDLCK as i16;
    for (start, length) in [(0, 64), (64, SLOT_TABLE as i64 - 64)] {
        (lock.l_start, lock.l_len) = (start, length);
        // SAFETY: the descriptor is open and `lock` outlives the call.
        assert_eq!(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &lock) }, 0);
    }
    // The living have their slots locked against it; the free ones can be had.
    for slot in 0..SLOTS {
        lock.l_start = (SLOT_TABLE + slot * size_of::<Slot>()) as i64;
        lock.l_len = 1;
        // SAFETY: as above.
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &lock) };
    }
}

/// Ends a thread also where the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
