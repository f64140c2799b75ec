//! Ledgers that are not what they should be, in hostile hands or places: processes go on sharing them, or each is held to the
//! whole limit on its own and says why.

#[path = "../common/mod.rs"]
mod common;
#[path = "../ledger_support/mod.rs"]
mod ledger_support;

mod lost;
mod noise;
mod refused;
mod still_shared;
mod strangers;

use std::path::Path;

use cuquota::config::StatePlace;
use cuquota::ledger::{Ledger, Want};
use ledger_support::{GIB, GPU, attach, stranger};

workers!(run);

const LIMIT: u64 = 4 * GIB;

fn run(role: &str, dir: &Path) {
    if stranger::run(role, dir) {
        return;
    }
    match role {
        "shares" => strangers::shares(dir),
        "cut-while-running" => lost::cut_while_running(dir),
        "beside-a-vandal" => noise::beside_a_vandal(dir),
        "as-nobody" => still_shared::as_nobody(dir),
        other => panic!("no such role: {other}"),
    }
}

fn explicit(dir: &Path) -> Ledger {
    Ledger::attach(&StatePlace::Explicit(dir.to_owned()), None)
}

/// Sharing is off for this reason, said once, and the limit holds all the same.
#[track_caller]
fn is_private(ledger: &Ledger, why: &str) {
    let lost = ledger.sharing().expect_err("this is not to be shared").to_string();
    assert!(lost.contains(why), "{lost}");
    assert_eq!(ledger.newly_lost().map(ToString::to_string), Some(lost));
    assert_eq!(ledger.newly_lost(), None);
    is_held(ledger);
}

#[track_caller]
fn is_held(ledger: &Ledger) {
    let gpu = ledger.gpu(GPU).expect("room");
    let before = ledger.own_used(gpu);
    ledger.reserve(gpu, Want::exactly(LIMIT - before), LIMIT).expect("fits");
    let _ = ledger.reserve(gpu, Want::exactly(1), LIMIT).expect_err("the limit holds");
    assert_eq!((ledger.used(gpu), ledger.own_used(gpu)), (LIMIT, LIMIT));
    ledger.give_back(gpu, LIMIT - before);
    assert_eq!(ledger.own_used(gpu), before);
}

fn with_ledger() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("temporary directory");
    drop(attach(dir.path()));
    dir
}
