//! Reserves between real containers, which see each other only by what the hook mounts.

use serde_json::json;

use crate::common::{GIB, MIB};
use crate::engine::{Engine, Host, Want};
use crate::{host, limited, started};

const CONTEXT: u64 = 300 * MIB;

fn promised(limit: &str, reserve: &str) -> Want {
    let reserve = ("cuquota.dev/reserve", reserve.to_string());
    Want { annotations: [limited(limit).annotations, vec![reserve]].concat(), ..Want::default() }
}

/// What one may take while the other uses nothing of what it is promised, and what the other has then.
fn keep_what_is_promised(host: &Host) {
    let (promised, burst) = (host.container(promised("8GiB", "6GiB")), host.container(limited("100%")));
    let (mut a, mut b) = (started(&promised), started(&burst));
    assert_eq!(b.ask("info")["free"], 10 * GIB - CONTEXT);
    assert_eq!(b.ask(&format!("allocate {}", 10 * GIB))["error"], "CUDA_ERROR_OUT_OF_MEMORY");
    let left = 10 * GIB - CONTEXT;
    assert_eq!(b.ask(&format!("allocate {left}"))["granted"], left);
    let kept = 6 * GIB - CONTEXT;
    assert_eq!(a.ask(&format!("allocate {kept}")), json!({ "granted": kept, "intact": true }));
    for client in [&mut a, &mut b] {
        assert_eq!(client.ask(&format!("allocate {}", 2 * MIB))["error"], "CUDA_ERROR_OUT_OF_MEMORY");
    }
    // What is given back beyond a reserve is anybody's, up to the limit.
    b.ask("free");
    assert_eq!(a.ask("info")["free"], 2 * GIB);
    assert_eq!(a.ask(&format!("allocate {}", 2 * GIB))["granted"], 2 * GIB);
    assert_eq!(b.ask("info")["free"], 8 * GIB - CONTEXT);
    // When the container is gone, so is its promise.
    assert_eq!(a.finish(), "");
    drop(promised);
    let since = std::time::Instant::now();
    while b.ask("info")["free"] != 16 * GIB - CONTEXT {
        assert!(since.elapsed() < std::time::Duration::from_secs(2), "{}", b.ask("info"));
    }
    assert_eq!(b.finish(), "");
}

#[test]
fn runc_keeps_what_is_promised() {
    let Some(host) = host(Engine::Runc) else { return };
    keep_what_is_promised(&host);
}

#[test]
fn podman_keeps_what_is_promised() {
    let Some(host) = host(Engine::Podman) else { return };
    keep_what_is_promised(&host);
}
