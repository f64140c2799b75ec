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
