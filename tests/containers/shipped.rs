//! The files in `docker/`: each is parsed, built or run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::base::{self, text};
use crate::common::{GIB, Run, cuquota, preload, python, temp_dir};
use crate::engine::{Engine, Host, IMAGE, LIMITS, docker_command, docker_host, podman_storage, variables};
use crate::{CLIENT, LIBRARY, host, skip};

/// The image that docker/Dockerfile makes.
const ARTEFACTS: &str = concat!("cuquota/cuquota:", env!("CARGO_PKG_VERSION"));

fn shipped(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docker").join(path)
}

fn read(path: &str) -> String {
    fs::read_to_string(shipped(path)).expect("a shipped file")
}

/// The documents of a YAML file. `None` where the tool for it is missing and that is allowed.
fn documents(path: &Path) -> Option<Vec<Value>> {
    let script = "import json, sys, yaml; print(json.dumps(list(yaml.safe_load_all(open(sys.argv[1])))))";
    let said = Run::new(tools()?).args(["-c", script]).arg(path).finish().success();
    Some(serde_json::from_str(&said.stdout).expect("JSON"))
}

/// A Python with the schema of Kubernetes.
fn tools() -> Option<PathBuf> {
    let requirements = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/containers/requirements.txt");
    python::environment("containers", &requirements).map_err(|missing| skip(&missing)).ok()
}

fn docker(args: &[&str]) -> Run {
    Run::new(docker_command()).args(docker_host()).args(args.to_vec()).limit(Duration::from_secs(180))
}

/// Has the name of an image that nobody here can fetch stand for the base.
fn stand_in(name: &str) {
    docker(&["tag", IMAGE, name]).finish().success();
}

/// An image of the built artefacts under the name that the shipped files use.
fn artefacts() {
    let context = temp_dir("context");
    fs::copy(preload(), context.path().join("libcuquota.so")).expect("the library");
    fs::copy(cuquota(), context.path().join("cuquota")).expect("the command");
    let file =
        format!("FROM {IMAGE}\nCOPY libcuquota.so /usr/local/lib/cuquota/\nCOPY cuquota /usr/local/bin/\n");
    fs::write(context.path().join("Dockerfile"), file).expect("a Dockerfile");
    docker(&["build", "--quiet", "--tag", ARTEFACTS]).arg(context.path()).finish().success();
}

/// What the client in a container of this image sees of the card.
fn total_seen(host: &Host, image: &str) -> Value {
    let run = docker(&["run", "--rm", "--interactive", "--network=none"]).args(host.simulated());
    let said = run.arg(image).args(CLIENT).input("devices\n").finish().success();
    serde_json::from_str::<Value>(&said.stdout).expect("JSON")["devices"][0]["total"].clone()
}

#[test]
fn the_quota_file_is_valid_and_so_is_what_it_has_in_comments() {
    let whole = read("quota.toml");
    let uncommented: String = whole
        .lines()
        .map(|line| match line.strip_prefix("# ") {
            Some(rest) if rest.starts_with('[') || rest.contains(" = ") => format!("{rest}\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    assert!(uncommented.contains("\n[when_full]\nwait = "), "{uncommented}");
    let dir = temp_dir("quota");
    for text in [whole, uncommented] {
        let file = dir.path().join("quota.toml");
        fs::write(&file, text).unwrap();
        Run::new(cuquota()).arg("check").arg(file).finish().success();
    }
}

#[test]
fn the_example_of_a_cdi_specification_is_what_generate_writes() {
    let files = temp_dir("files");
    let generate = Run::new(cuquota()).args(["cdi", "generate", "--files"]).arg(files.path());
    let devices = ["4GiB", "8GiB", "big=24GiB,reserve=16GiB,growth=lazy"];
    let said = generate.args(devices).finish().success().stdout;
    let installed = said
        .replace(&format!("\"{}\"", cuquota().display()), &format!("\"{}\"", CLIENT[0]))
        .replace(&preload().display().to_string(), LIBRARY)
        .replace(&files.path().display().to_string(), "/var/lib/cuquota/devices");
    assert_eq!(installed, read("cdi/cuquota.json"));
    let quota = fs::read_to_string(files.path().join("big/quota.toml")).unwrap();
    assert_eq!(quota, "limit = \"24GiB\"\nreserve = \"16GiB\"\ngrowth = \"lazy\"\n");
}

#[test]
fn the_kubernetes_files_are_valid() {
    let Some(python) = tools() else { return };
    let files = fs::read_dir(shipped("kubernetes")).unwrap().map(|entry| entry.unwrap().path());
    let files: Vec<PathBuf> = files.collect();
    assert!(files.len() >= 4, "{files:?}");
    let validate = python.with_file_name("kubernetes-validate");
    Run::new(&validate).args(["--strict", "--quiet"]).args(files).finish().success();
    // It would say so if something were wrong.
    let wrong = temp_dir("wrong");
    let file = wrong.path().join("pod.yaml");
    fs::write(&file, read("kubernetes/pod.yaml").replace("mountPath:", "mountpath:")).unwrap();
    assert_ne!(Run::new(&validate).args(["--strict", "--quiet"]).arg(file).finish().code(), 0);
}

#[test]
fn the_config_map_holds_a_valid_quota_and_the_pod_mounts_all_that_it_needs() {
    let Some(documents) = documents(&shipped("kubernetes/pod.yaml")) else { return };
    let data = &documents[0]["data"];
    let file = temp_dir("quota");
    fs::write(file.path().join("quota.toml"), data["quota.toml"].as_str().unwrap()).unwrap();
    Run::new(cuquota()).arg("check").arg(file.path().join("quota.toml")).finish().success();
    assert_eq!(data["ld.so.preload"], format!("{LIBRARY}\n"));
    let mounts = documents[1]["spec"]["containers"][0]["volumeMounts"].as_array().unwrap();
    let at: Vec<&str> = mounts.iter().filter_map(|mount| mount["mountPath"].as_str()).collect();
    assert_eq!(at, ["/etc/cuquota", "/etc/ld.so.preload", "/usr/local/lib/cuquota", "/run/cuquota"]);
}

#[test]
fn the_annotations_of_the_pods_are_understood() {
    let Some(pod) = documents(&shipped("kubernetes/pod-hook.yaml")) else { return };
    for (name, value) in pod[0]["metadata"]["annotations"].as_object().unwrap() {
        let key = name.strip_prefix("cuquota.dev/").expect("an annotation of ours");
        let file = temp_dir("quota");
        let limit = if key == "limit" { "" } else { "limit = \"8GiB\"\n" };
        fs::write(file.path().join("quota.toml"), format!("{limit}{key} = {value}\n")).unwrap();
        Run::new(cuquota()).arg("check").arg(file.path().join("quota.toml")).finish().success();
    }
    let pod = documents(&shipped("kubernetes/pod-cdi.yaml")).expect("the tool was there");
    let device = pod[0]["metadata"]["annotations"]["cdi.k8s.io/cuquota"].as_str().unwrap();
    assert!(
        read("cdi/cuquota.json")
            .contains(&format!("\"name\": \"{}\"", device.strip_prefix("cuquota.dev/quota=").unwrap()))
    );
}

#[test]
fn the_daemon_set_installs_library_command_devices_and_hooks() {
    let Some(host) = host(Engine::Docker) else { return };
    let Some(set) = documents(&shipped("kubernetes/install.yaml")) else { return };
    artefacts();
    let spec = &set[0]["spec"]["template"]["spec"];
    let install = &spec["initContainers"][0];
    assert_eq!(install["image"], ARTEFACTS);
    // The node's directories, by the names that the set gives to them.
    let node = temp_dir("node");
    let mut run = docker(&["run", "--rm", "--network=none"]);
    for mount in install["volumeMounts"].as_array().unwrap() {
        let volumes = spec["volumes"].as_array().unwrap();
        let volume = volumes.iter().find(|volume| volume["name"] == mount["name"]).expect("a volume");
        let at = node.path().join(volume["hostPath"]["path"].as_str().unwrap().trim_start_matches('/'));
        fs::create_dir_all(&at).unwrap();
        run = run.arg(format!("--volume={}:{}", at.display(), mount["mountPath"].as_str().unwrap()));
    }
    let words = |value: &Value| -> Vec<String> {
        value.as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_string()).collect()
    };
    let (command, args) = (words(&install["command"]), words(&install["args"]));
    run.arg("--entrypoint")
        .arg(&command[0])
        .arg(ARTEFACTS)
        .args(command[1..].to_vec())
        .args(args)
        .finish()
        .success();

    let at = |path: &str| node.path().join(path);
    assert_eq!(fs::read(at("usr/local/lib/cuquota/libcuquota.so")).unwrap(), fs::read(preload()).unwrap());
    assert_eq!(fs::read(at("usr/local/bin/cuquota")).unwrap(), fs::read(cuquota()).unwrap());
    let json = |path: PathBuf| -> Value { serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap() };
    for stage in ["createContainer", "poststop"] {
        let name = format!("cuquota-{stage}.json");
        let written = json(at("etc/containers/oci/hooks.d").join(&name));
        assert_eq!(written, json(shipped("hooks.d").join(name)));
    }
    let devices = json(at("etc/cdi/cuquota.json"));
    let mount = &devices["devices"][2]["containerEdits"]["mounts"][0];
    assert_eq!(mount["hostPath"], "/var/lib/cuquota/devices/4GiB");
    assert!(at("var/lib/cuquota/devices/4GiB/quota.toml").is_file());
    assert_eq!(devices["devices"][2]["containerEdits"]["hooks"][0]["path"], CLIENT[0]);
    drop(host);
}

#[test]
fn the_images_for_tensorflow_and_pytorch_hold_what_runs_in_them() {
    let Some(host) = host(Engine::Docker) else { return };
    artefacts();
    // The card has 16 GiB, a quarter of which is 4 GiB.
    for framework in ["tensorflow", "pytorch"] {
        let file = read(&format!("{framework}/Dockerfile"));
        let from = file.lines().find_map(|line| line.strip_prefix("FROM ")).expect("a base image");
        assert!(from.starts_with(framework), "{from}");
        stand_in(from);
        let image = format!("cuquota-test/{framework}");
        docker(&["build", "--quiet", "--network=none", "--tag", &image])
            .arg(shipped(framework))
            .finish()
            .success();
        assert_eq!(total_seen(&host, &image), 4 * GIB, "{framework}");
    }
}

#[test]
fn the_training_scripts_are_python() {
    let Some(python) = tools() else { return };
    for script in ["tensorflow/train.py", "pytorch/train.py"] {
        let compile = "import ast, sys; ast.parse(open(sys.argv[1]).read())";
        Run::new(&python).args(["-c", compile]).arg(shipped(script)).finish().success();
    }
}

#[test]
fn the_services_of_the_compose_file_share_one_card() {
    let Some(host) = host(Engine::Docker) else { return };
    if let Err(missing) = text(Command::new("docker-compose").arg("version")) {
        return skip(&format!("{missing} (Debian: docker-compose)"));
    }
    let dir = temp_dir("compose");
    let file = dir.path().join("compose.json");
    // What the tool itself makes of the file, which it checks against its schema.
    let config = text(Command::new("docker-compose").arg("-f").arg(shipped("compose.yaml")).arg("config"));
    fs::write(dir.path().join("config.yaml"), config.expect("a valid compose file")).unwrap();
    let Some(mut documents) = documents(&dir.path().join("config.yaml")) else { return };
    let compose = &mut documents[0];
    assert_eq!(compose["services"].as_object().unwrap().len(), 2);
    for service in compose["services"].as_object_mut().unwrap().values_mut() {
        let service = service.as_object_mut().unwrap();
        // The GPU is simulated, the image is the base, and the program asks for the size of the card.
        let gpu = service.remove("deploy").expect("a GPU");
        assert_eq!(gpu["resources"]["reservations"]["devices"][0]["capabilities"], json!(["gpu"]));
        service.insert("image".into(), IMAGE.into());
        service.insert("network_mode".into(), "none".into());
        service.insert("command".into(), json!(["sh", "-c", "echo devices | cuquota __gpu-client"]));
        service.insert(
            "environment".into(),
            json!(variables().into_iter().collect::<std::collections::BTreeMap<_, _>>()),
        );
        let volumes = service["volumes"].as_array_mut().unwrap();
        for volume in volumes.iter_mut() {
            // What would be installed on the machine is where it was built.
            let (from, to) = volume.as_str().unwrap().split_once(':').expect("FROM:TO:ro");
            let from = match from {
                LIBRARY => preload(),
                command if command == CLIENT[0] => cuquota(),
                other => PathBuf::from(other),
            };
            *volume = format!("{}:{to}", from.display()).into();
        }
        let simulated = host.simulated();
        volumes.extend(simulated.iter().filter_map(|flag| flag.strip_prefix("--volume=")).map(Value::from));
    }
    fs::write(&file, compose.to_string()).unwrap();
    let compose = |args: &[&str]| {
        let run = Run::new("docker-compose").args(docker_host()).arg("-f").arg(&file);
        run.args(["-p", "cuquotatest"]).args(args.to_vec()).limit(Duration::from_secs(120)).finish()
    };
    let said = compose(&["up", "--no-color"]);
    let down = compose(&["down"]);
    let said = said.success();
    down.success();
    for (service, total) in [("trainer", 4 * GIB), ("server", 8 * GIB)] {
        let line = said.stdout.lines().find(|line| line.starts_with(service) && line.contains('{'));
        let line = line.unwrap_or_else(|| panic!("{service} says nothing: {said}"));
        let answer: Value = serde_json::from_str(&line[line.find('{').unwrap()..]).expect("JSON");
        assert_eq!(answer["devices"][0]["total"], total, "{line}");
    }
}

#[test]
fn the_dockerfile_builds_the_artefacts_without_a_network() {
    let Some(host) = host(Engine::Podman) else { return };
    let podman = |args: &[&str]| Run::new("podman").args(podman_storage()).args(args.to_vec());
    let file = read("Dockerfile");
    let bases: Vec<&str> = file.lines().filter_map(|line| line.strip_prefix("FROM ")).collect();
    let [build, run] = bases.as_slice() else { panic!("two stages: {bases:?}") };
    let build = build.strip_suffix(" AS build").expect("the stage that builds");
    podman(&["tag", IMAGE, &format!("docker.io/library/{run}")]).finish().success();
    // The toolchain that builds these tests, in place of the one in the image.
    let root = match base::with_compiler() {
        Ok(root) => root,
        Err(missing) => {
            return skip(&format!("the image needs a C compiler (Debian: gcc, libc6-dev): {missing}"));
        }
    };
    let toolchain = text(Command::new("rustc").args(["--print", "sysroot"])).expect("rustc beside cargo");
    let cargo_home = std::env::var("CARGO_HOME")
        .unwrap_or_else(|_| format!("{}/.cargo", std::env::var("HOME").expect("a home")));
    let env = [
        "PATH=/usr/local/rust/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "CARGO_HOME=/cargo",
        "CARGO_NET_OFFLINE=true",
        // An image that is made in a test need not be small or fast.
        "CARGO_PROFILE_RELEASE_LTO=off",
        "CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16",
        "CARGO_PROFILE_RELEASE_OPT_LEVEL=1",
    ];
    let import = Run::new("sh").args(["-ec", "root=$0; tar -C \"$root\" -c . | podman \"$@\""]).arg(root);
    let import = import.args(podman_storage()).args(["import", "--quiet"]);
    let import = import.args(env.iter().flat_map(|set| ["--change".to_string(), format!("ENV {set}")]));
    import
        .arg("-")
        .arg(format!("docker.io/library/{build}"))
        .limit(Duration::from_secs(300))
        .finish()
        .success();

    let image = "cuquota-test/artefacts";
    let built = podman(&["build", "--network=none", "--layers=false", "--tag", image])
        .args(LIMITS)
        .arg("--file")
        .arg(shipped("Dockerfile"));
    let built = built.arg(format!("--volume={}:/usr/local/rust:ro", toolchain.trim()));
    let built = built
        .arg(format!("--volume={cargo_home}/registry:/cargo/registry:O"))
        .arg(env!("CARGO_MANIFEST_DIR"));
    built.limit(Duration::from_secs(900)).finish().success();

    let run = podman(&["run", "--rm", "--interactive", "--network=none"]).args(LIMITS).arg(image);
    let run = run.args(["run", "--sim", "16GiB", "--limit", "4GiB", "--"]).args(CLIENT);
    let said = run.input("devices\n").finish().success();
    assert_eq!(serde_json::from_str::<Value>(&said.stdout).expect("JSON")["devices"][0]["total"], 4 * GIB);
    podman(&["rmi", image]).finish().success();
    podman(&["image", "prune", "--force"]).finish().success();
    drop(host);
}
