//! Processes that share a ledger, in one process: every [`Ledger`] has a slot and a lock of its own.

use std::path::Path;

use cuquota::config::StatePlace;
use cuquota::ledger::{Ledger, Snapshot, Want};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const GPU: [u8; 16] = *b"GPU-0123456789ab";

fn attach(dir: &Path) -> Ledger {
    let ledger = Ledger::attach(&StatePlace::Explicit(dir.to_owned()), Some("team-a/trainer"));
    ledger.sharing().expect("the directory is fine");
    ledger
}

#[test]
fn two_members_share_one_limit() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let (a, b) = (attach(dir.path()), attach(dir.path()));
    let (in_a, in_b) = (a.gpu(GPU).expect("room"), b.gpu(GPU).expect("room"));
    a.reserve(in_a, Want::exactly(3 * GIB), 4 * GIB).expect("fits");
    let refusal = b.reserve(in_b, Want::exactly(2 * GIB), 4 * GIB).expect_err("does not fit");
    assert_eq!((refusal.used, refusal.limit), (3 * GIB, 4 * GIB));
    b.reserve(in_b, Want::exactly(GIB), 4 * GIB).expect("exactly fits");
    assert_eq!((a.used(in_a), b.used(in_b), b.own_used(in_b)), (4 * GIB, 4 * GIB, GIB));
    a.give_back(in_a, 3 * GIB);
    b.reserve(in_b, Want::exactly(3 * GIB), 4 * GIB).expect("an idle lease is not in the way");
    assert_eq!(b.used(in_b), 4 * GIB);
}

#[test]
fn what_a_snapshot_shows() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let a = attach(dir.path());
    let gpu = a.gpu(GPU).expect("room");
    a.reserve(gpu, Want::exactly(3 * MIB), GIB).expect("fits");
    let _ = a.reserve(gpu, Want::exactly(2 * GIB), GIB).expect_err("does not fit");
    a.give_back(gpu, MIB);
    a.learn_context_cost(gpu, 300 * MIB);
    let seen = Snapshot::read(&dir.path().join("ledger")).expect("readable");
    assert_eq!(seen.label, "team-a/trainer");
    let [card] = &seen.gpus[..] else { panic!("{seen:?}") };
    assert_eq!(card.uuid, GPU);
    assert_eq!((card.limit, card.used, card.peak, card.refusals), (Some(GIB), 2 * MIB, 3 * MIB, 1));
    assert_eq!(card.context_cost, Some(300 * MIB));
    let [me] = &seen.processes[..] else { panic!("{seen:?}") };
    assert_eq!((me.pid, me.alive, &me.used[..]), (std::process::id(), true, &[2 * MIB][..]));
    drop(a);
    let seen = Snapshot::read(&dir.path().join("ledger")).expect("readable");
    assert_eq!((seen.processes.len(), seen.gpus[0].used), (0, 0));
}

#[test]
fn a_lowered_limit_holds_from_the_next_request_until_usage_has_drained() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let (a, b) = (attach(dir.path()), attach(dir.path()));
    let (in_a, in_b) = (a.gpu(GPU).expect("room"), b.gpu(GPU).expect("room"));
    a.reserve(in_a, Want::exactly(2 * GIB), 4 * GIB).expect("fits");
    b.reserve(in_b, Want::exactly(2 * GIB), 4 * GIB).expect("fits");
    let _ = a.reserve(in_a, Want::exactly(MIB), 3 * GIB).expect_err("above the new limit");
    // What is given back above the limit is gone.
    a.give_back(in_a, GIB);
    let _ = a.reserve(in_a, Want::exactly(GIB), 3 * GIB).expect_err("at the new limit");
    a.reserve(in_a, Want::exactly(0), 3 * GIB).expect("nothing always fits");
    a.give_back(in_a, GIB);
    a.reserve(in_a, Want::exactly(GIB), 3 * GIB).expect("below the new limit");
    // A raised one as well.
    a.reserve(in_a, Want::exactly(GIB), 4 * GIB).expect("below the next");
    assert_eq!(a.used(in_a), 4 * GIB);
}

#[test]
fn rounding_alone_refuses_nobody() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let a = attach(dir.path());
    let gpu = a.gpu(GPU).expect("room");
    let limit = 5 * MIB + 1;
    a.reserve(gpu, Want { bytes: 4 * MIB, at_least: 4 * MIB }, limit).expect("fits");
    let _ = a.reserve(gpu, Want { bytes: 2 * MIB, at_least: MIB + 2 }, limit).expect_err("one byte too much");
    a.reserve(gpu, Want { bytes: 2 * MIB, at_least: MIB + 1 }, limit).expect("exactly what is left");
    let _ = a.reserve(gpu, Want { bytes: 2 * MIB, at_least: 1 }, limit).expect_err("full");
    assert_eq!(a.used(gpu), 6 * MIB);
}

#[test]
fn no_size_wraps() {
    let dir = tempfile::tempdir().expect("temporary directory");
    for ledger in [attach(dir.path()), Ledger::attach(&StatePlace::Explicit("/proc/none".into()), None)] {
        let gpu = ledger.gpu(GPU).expect("room");
        for bytes in [u64::MAX, u64::MAX - 4095, 1 << 63, 1 << 45, (1 << 43) + 1] {
            let _ = ledger.reserve(gpu, Want::exactly(bytes), GIB).expect_err("too much");
            let _ = ledger.reserve(gpu, Want { bytes, at_least: 0 }, GIB).is_ok();
            ledger.give_back(gpu, bytes);
            assert_eq!(ledger.used(gpu), 0, "{bytes}");
        }
        let _ = ledger.reserve(gpu, Want::exactly(u64::MAX), u64::MAX).expect_err("more than can be counted");
        ledger.reserve(gpu, Want::exactly(1 << 43), u64::MAX).expect("no limit");
        let counted =
            (0..4).filter(|_| ledger.reserve(gpu, Want::exactly(1 << 42), u64::MAX).is_ok()).count();
        assert!(counted >= 1);
        ledger.give_back(gpu, u64::MAX);
        assert_eq!(ledger.used(gpu), 0);
        ledger.force(gpu, u64::MAX);
        let _ = ledger.reserve(gpu, Want::exactly(1), GIB).expect_err("far above the limit");
        ledger.give_back(gpu, u64::MAX);
        assert_eq!(ledger.used(gpu), 0);
        ledger.reserve(gpu, Want::exactly(GIB), GIB).expect("nothing sticks");
    }
}

#[test]
fn what_is_charged_without_asking_counts_for_all() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let (a, b) = (attach(dir.path()), attach(dir.path()));
    let (in_a, in_b) = (a.gpu(GPU).expect("room"), b.gpu(GPU).expect("room"));
    a.force(in_a, 300 * MIB);
    assert_eq!(b.used(in_b), 300 * MIB);
    let _ = b.reserve(in_b, Want::exactly(MIB), 256 * MIB).expect_err("above the limit already");
    b.reserve(in_b, Want::exactly(212 * MIB), 512 * MIB).expect("exactly what is left");
    a.give_back(in_a, 300 * MIB);
    b.reserve(in_b, Want::exactly(300 * MIB), 512 * MIB).expect("free again");
}

#[test]
fn gpus_do_not_share_a_limit_and_may_be_met_in_any_order() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let (a, b) = (attach(dir.path()), attach(dir.path()));
    let (a1, a2) = (a.gpu([1; 16]).expect("room"), a.gpu([2; 16]).expect("room"));
    let (b2, b1) = (b.gpu([2; 16]).expect("room"), b.gpu([1; 16]).expect("room"));
    a.reserve(a1, Want::exactly(GIB), GIB).expect("fits");
    b.reserve(b2, Want::exactly(GIB), GIB).expect("fits");
    assert_eq!((a.used(a2), b.used(b1)), (GIB, GIB));
    let _ = b.reserve(b1, Want::exactly(MIB), GIB).expect_err("full");
    let _ = a.reserve(a2, Want::exactly(MIB), GIB).expect_err("full");
}

#[test]
fn a_context_cost_is_learned_for_all_and_the_smallest_stays() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let (a, b) = (attach(dir.path()), attach(dir.path()));
    let (in_a, in_b) = (a.gpu(GPU).expect("room"), b.gpu(GPU).expect("room"));
    assert_eq!(a.context_cost(in_a), None);
    a.learn_context_cost(in_a, 300 * MIB);
    b.learn_context_cost(in_b, 400 * MIB);
    b.learn_context_cost(in_b, 0);
    assert_eq!((a.context_cost(in_a), b.context_cost(in_b)), (Some(300 * MIB), Some(300 * MIB)));
}

#[test]
fn the_path_is_known_while_it_is_shared() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let place = StatePlace::Explicit(dir.path().to_owned());
    assert_eq!(cuquota::ledger::find(&place), None);
    let a = attach(dir.path());
    assert_eq!(a.path(), Some(dir.path().join("ledger")));
    assert_eq!(cuquota::ledger::find(&place), a.path());
    assert_eq!(Ledger::attach(&StatePlace::Explicit("/proc/none".into()), None).path(), None);
}
