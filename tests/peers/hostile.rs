//! A neighbour that is not honest. It costs the others what it is promised, or what it may hold, and nothing else.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cuquota::ledger::layout::{FILE_SIZE, SLOT_TABLE, Slot, slot_offset};

use crate::common::{GIB, MIB};
use crate::ledger_support::stranger::{self, Stranger};
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
            // Not over who has the slot: that one lives.
            let from = std::mem::offset_of!(Slot, comm);
            let ones = vec![0xFF; size_of::<Slot>() - from];
            while !stop.load(Ordering::Relaxed) {
                (0..64).for_each(|slot| overwrite(&ledger, (slot_offset(slot) + from) as u64, &ones));
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
fn read_locks_of_a_neighbour_hold_nobody_up_and_let_no_dead_seem_alive() {
    if needs_the_simulator() {
        return;
    }
    for role in [stranger::LOCKS_ALL, stranger::LOCKS_PIECES] {
        let place = Neighbourhood::new();
        let mut other = place.other.start();
        // One that runs already, and one that is started when all is locked.
        let mut victim = place.victim.start();
        let _strangers = [&place.victim, &place.other].map(|of| Stranger::start(role, &of.state()));
        let mut sibling = place.victim.start();
        assert_eq!(most(&mut victim), 11 * GIB - 2 * CONTEXT, "{role}");
        // They share one budget, which the others see as one. Pieces are of 512 MiB.
        assert!(sibling.take(4 * GIB), "{role}");
        assert_eq!(most(&mut victim), 7 * GIB - 2 * CONTEXT, "{role}");
        assert_eq!(most(&mut other), 10 * GIB - 4 * CONTEXT, "{role}");
        sibling.kill();
        let since = Instant::now();
        while most(&mut other) != 16 * GIB - 6 * GIB - 512 * MIB {
            assert!(since.elapsed() < Duration::from_secs(1), "{role}: the dead holds on");
        }
        // At the container's own limit, too.
        place.victim.write_quota("limit = \"4GiB\"\nreserve = \"4GiB\"\n");
        std::thread::sleep(Duration::from_millis(600));
        assert!(victim.take(4 * GIB - CONTEXT), "{role}");
        let since = Instant::now();
        assert!(!victim.take(2 * MIB), "{role}");
        assert!(since.elapsed() < Duration::from_millis(300), "{role}: {:?}", since.elapsed());
        victim.give_back();
        // All of it again with two that were both started under locks.
        let mut again = place.victim.start();
        assert!(again.take(4 * GIB - 2 * CONTEXT) && !victim.take(2 * MIB), "{role}");
    }
}

/// Ends a thread also where the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
