//! Containers that somebody runs who is not root: no hook can mount anything for them, the user's own mounts do.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use serde_json::{Value, json};

use crate::base::{self, text};
use crate::common::{Finished, GIB, Run, cuquota, temp_dir};
use crate::engine::{Engine, Host};
use crate::{CLIENT, LIBRARY, files, host, quota_dir};

/// A user with no rights at all.
const NOBODY: u32 = 65_534;
/// Where the container sees the simulated cards.
const CARDS: &str = "/cards";

/// Runs a shell script in a container of a user who is not root, with these mounts and variables and perhaps the hook.
fn rootless(
    host: &Host,
    mounts: &[(std::path::PathBuf, String)],
    env: &[String],
    hook: bool,
    script: &str,
) -> Finished {
    let dir = temp_dir("rootless");
    let (bundle, rootfs) = (dir.path().join("bundle"), dir.path().join("rootfs"));
    fs::create_dir(&bundle).expect("a directory");
    text(Command::new("cp").arg("-a").arg(base::rootfs().expect("made before")).arg(&rootfs))
        .expect("a root");
    text(Command::new("chown").arg("-R").arg(format!("{NOBODY}:{NOBODY}")).arg(dir.path())).expect("theirs");
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("ours");
    let mut spec = Command::new("runc");
    spec.args(["spec", "--rootless"]).current_dir(&bundle).uid(NOBODY).gid(NOBODY);
    text(&mut spec).expect("runc");
    let config = bundle.join("config.json");
    let mut spec: Value =
        serde_json::from_str(&fs::read_to_string(&config).expect("what runc wrote")).expect("JSON");
    spec["root"] = json!({ "path": rootfs, "readonly": false });
    let process = spec["process"].as_object_mut().expect("a process");
    process.remove("rlimits");
    process.insert("terminal".into(), false.into());
    process.insert("args".into(), json!(["/bin/sh", "-ec", script]));
    process.insert("env".into(), json!([env, &["PATH=/usr/local/bin:/usr/bin:/bin".to_string()]].concat()));
    let bind = |(from, to): &(std::path::PathBuf, String)| json!({ "destination": to, "source": from, "type": "bind", "options": ["bind", if to == CARDS { "rw" } else { "ro" }] });
    let list = spec["mounts"].as_array_mut().expect("mounts");
    list.extend(mounts.iter().map(bind));
    if hook {
        spec["annotations"] = json!({ "cuquota.dev/limit": "4GiB" });
        let args = host.hook_args("createContainer");
        spec["hooks"] = json!({ "createContainer": [{ "path": cuquota(), "args": args }] });
    }
    fs::write(&config, spec.to_string()).expect("a configuration");
    let user = [format!("--reuid={NOBODY}"), format!("--regid={NOBODY}"), "--clear-groups".to_owned()];
    let run = Run::new("setpriv").args(user);
    let run =
        run.args(["runc", "--root"]).arg(dir.path().join("runc")).arg("run").arg("--bundle").arg(&bundle);
    run.env("XDG_RUNTIME_DIR", dir.path()).arg("rootless").finish()
}

/// The simulated machine as mounts and variables.
fn simulated(host: &Host) -> (Vec<(std::path::PathBuf, String)>, Vec<String>) {
    let sim = crate::common::sim_dir();
    let cards = host.machine().cards_dir().to_owned();
    // Whoever else may enter the directory of the build.
    let mounts = vec![(sim, "/sim".to_string()), (cards, CARDS.to_string())];
    let env = ["SIMGPU_SPEC=16GiB", "SIMGPU_DIR=/cards", "LD_LIBRARY_PATH=/sim"].map(str::to_owned).to_vec();
    (mounts, env)
}

/// That so many programs saw a card of 4 GiB, and could not have 5.
#[track_caller]
fn all_are_held(said: &Finished, programs: usize) {
    let answers = crate::answers(said);
    assert_eq!(answers.len(), 3 * programs, "{said}");
    for of_one in answers.chunks(3) {
        assert_eq!(of_one[0]["devices"][0]["total"], 4 * GIB, "{said}");
        assert_eq!(
            (&of_one[1], &of_one[2]["error"]),
            (&json!({}), &json!("CUDA_ERROR_OUT_OF_MEMORY")),
            "{said}"
        );
    }
}

#[test]
fn a_container_of_a_user_takes_its_budget_by_mounts() {
    let Some(host) = host(Engine::Runc) else { return };
    let (machine, mut env) = simulated(&host);
    let quota = quota_dir(&host, "rootless", "limit = \"4GiB\"\n");
    let ask = format!("printf \"devices\\nstart\\nallocate {}\\n\" | {} __gpu-client", 5 * GIB, CLIENT[0]);
    // By the variable: programs without their environment are not held.
    let mounts = [machine.clone(), files(quota.clone())].concat();
    env.push(format!("LD_PRELOAD={LIBRARY}"));
    let said = rootless(&host, &mounts, &env, false, &ask).success();
    all_are_held(&said, 1);
    // By the list.
    env.pop();
    let list = quota.join("ld.so.preload");
    fs::write(&list, format!("{LIBRARY}\n")).expect("a list");
    let mounts = [mounts, vec![(list, "/etc/ld.so.preload".into())]].concat();
    let bare = format!("{ask}; env -i {} /bin/sh -c '{ask}'", env.join(" "));
    let said = rootless(&host, &mounts, &env, false, &bare).success();
    all_are_held(&said, 2);
    assert_eq!(said.stderr, "");
}

#[test]
fn the_hook_refuses_a_container_of_a_user_and_says_why() {
    let Some(host) = host(Engine::Runc) else { return };
    let (machine, env) = simulated(&host);
    let said = rootless(&host, &machine, &env, true, "true");
    assert_ne!(said.code(), 0);
    assert!(said.stderr.contains("the hook needs to be root on the machine itself"), "{said}");
}
