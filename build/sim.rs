//! Builds the simulated driver: `tests/sim/*.c` become `$OUT_DIR/sim/libcuda.so.1` and `libnvidia-ml.so.1`.
//!
//! Everything that has one row per exported name is generated here from the tables of names beside the sources:
//! a weak stub for each (a definition in a source file wins over it), the table `cuGetProcAddress` looks in, the
//! jump thunks of `procaddr=inner`, and the linker's export lists.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

const SOURCES: &str = "tests/sim";

/// Sources of `libnvidia-ml.so.1`; every other `.c` file belongs to `libcuda.so.1` alone.
const NVML_PREFIX: &str = "nvml";
/// Sources that both libraries contain.
const SHARED: &[&str] = &["card.c", "card_open.c", "identity.c", "share.c", "spec.c"];

/// Builds both libraries and tells cargo where they are (`CUQUOTA_SIM_DIR`) and when to build them again.
pub fn build() {
    println!("cargo:rerun-if-changed=build/sim.rs");
    println!("cargo:rerun-if-changed={SOURCES}");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let sim = out.join("sim");
    let objects = out.join("sim-objects");
    for dir in [&sim, &objects] {
        fs::create_dir_all(dir).unwrap_or_else(|e| fail(format!("cannot create {}: {e}", dir.display())));
    }

    let cuda = Names::cuda(&Path::new(SOURCES).join("names.tsv"));
    let nvml = Names::nvml(&Path::new(SOURCES).join("nvml_names.txt"));
    write(&objects.join("stubs.c"), &cuda.stubs("int sim_stub(const char *name)", "sim_stub"));
    write(&objects.join("proctable.c"), &cuda.proc_table());
    write(&objects.join("nvml_stubs.c"), &nvml.stubs("int sim_nvml_stub(const char *name)", "sim_nvml_stub"));
    write(&objects.join("libcuda.map"), &cuda.version_script("simgpu_*;"));
    write(&objects.join("libnvidia-ml.map"), &nvml.version_script(""));

    let mut sources = c_files(Path::new(SOURCES));
    sources.extend(["stubs.c", "proctable.c", "nvml_stubs.c"].map(|f| objects.join(f)));
    let built = compile(&sources, &objects);
    let of = |keep: &dyn Fn(&str) -> bool| -> Vec<&Path> {
        let kept = sources.iter().zip(&built).filter(|(source, _)| keep(file_name(source)));
        kept.map(|(_, object)| object.as_path()).collect()
    };
    let nvml_only = |name: &str| name.starts_with(NVML_PREFIX);
    let cuda_objects = of(&|name| !nvml_only(name));
    let nvml_objects = of(&|name| nvml_only(name) || SHARED.contains(&name));
    link(&sim, "libcuda.so", &cuda_objects, &objects.join("libcuda.map"));
    link(&sim, "libnvidia-ml.so", &nvml_objects, &objects.join("libnvidia-ml.map"));
    println!("cargo:rustc-env=CUQUOTA_SIM_DIR={}", sim.display());
}

/// One exported name; of the CUDA driver also how `cuGetProcAddress` answers it.
struct Name {
    symbol: String,
    /// Base name, first version, and 2 for a per-thread-stream variant, else 0.
    asked: Option<(String, u32, u32)>,
}

struct Names(Vec<Name>);

impl Names {
    fn cuda(path: &Path) -> Names {
        let text = read(path);
        let rows = text.lines().enumerate().skip(1).map(|(at, line)| {
            let bad = |what: &str| -> ! { panic!("{}:{}: {what}: {line:?}", path.display(), at + 1) };
            let fields: Vec<&str> = line.split('\t').collect();
            let [symbol, base, since, per_thread] = fields[..] else {
                bad("want four columns split by tabs")
            };
            let number = |s: &str| s.parse().unwrap_or_else(|_| bad("not a number"));
            let asked = (base != "-").then(|| (base.to_string(), number(since), number(per_thread)));
            Name { symbol: symbol.to_string(), asked }
        });
        Names(rows.collect()).checked(path)
    }

    fn nvml(path: &Path) -> Names {
        let text = read(path);
        let rows = text.lines().map(|line| Name { symbol: line.to_string(), asked: None });
        Names(rows.collect()).checked(path)
    }

    /// A row that appears twice would only show as a puzzling error of the C compiler.
    fn checked(self, path: &Path) -> Names {
        let mut seen = BTreeSet::new();
        for name in &self.0 {
            let plain = name.symbol.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            assert!(plain && !name.symbol.is_empty(), "{}: {:?} is no symbol", path.display(), name.symbol);
            assert!(seen.insert(&name.symbol), "{}: {} appears twice", path.display(), name.symbol);
        }
        self
    }

    /// A function of its own for every name, so that no two names share an address.
    fn stubs(&self, declaration: &str, handler: &str) -> String {
        let mut c = format!("{declaration};\n");
        c.push_str("#define STUB(name) __attribute__((weak)) int name(void); \\\n");
        writeln!(c, "    __attribute__((weak)) int name(void) {{ return {handler}(#name); }}").unwrap();
        for name in &self.0 {
            writeln!(c, "STUB({})", name.symbol).unwrap();
        }
        c
    }

    /// Rows sorted by base name, then version, the per-thread variant last: the last row that fits wins.
    fn proc_table(&self) -> String {
        let mut rows: Vec<_> =
            self.0.iter().filter_map(|n| n.asked.as_ref().map(|a| (a, &n.symbol))).collect();
        rows.sort();
        let mut c = String::from("#include \"proctable.h\"\n#include \"thunk.h\"\n");
        for (at, (_, symbol)) in rows.iter().enumerate() {
            writeln!(c, "extern int {symbol}(void);\nextern int sim_inner_{at}(void);").unwrap();
        }
        for (at, (_, symbol)) in rows.iter().enumerate() {
            writeln!(c, "SIM_THUNK({at}, {symbol})").unwrap();
        }
        c.push_str("const struct proc_row sim_proc_table[] = {\n");
        for (at, ((base, since, per_thread), symbol)) in rows.iter().enumerate() {
            writeln!(
                c,
                "    {{\"{base}\", {since}, {per_thread}, (void *){symbol}, (void *)sim_inner_{at}}},"
            )
            .unwrap();
        }
        writeln!(c, "}};\nconst unsigned sim_proc_rows = {};", rows.len()).unwrap();
        c
    }

    fn version_script(&self, more: &str) -> String {
        let mut script = String::from("{\nglobal:\n");
        for name in &self.0 {
            writeln!(script, "    {};", name.symbol).unwrap();
        }
        write!(script, "    {more}\nlocal:\n    *;\n}};\n").unwrap();
        script
    }
}

fn compiler() -> Command {
    let mut build = cc::Build::new();
    // Optimised whatever the profile: a driver built for debugging would make the benchmarks lie.
    build.cargo_metadata(false).opt_level(2).pic(true);
    let compiler = build.try_get_compiler();
    compiler.unwrap_or_else(|e| fail(format!("the simulated driver needs a C compiler: {e}"))).to_command()
}

/// Compiles every source to an object under `objects`, as many at a time as there are processors.
fn compile(sources: &[PathBuf], objects: &Path) -> Vec<PathBuf> {
    let built: Vec<PathBuf> =
        sources.iter().map(|s| objects.join(file_name(s)).with_extension("o")).collect();
    let next = AtomicUsize::new(0);
    let workers = std::thread::available_parallelism().map_or(1, |n| n.get()).min(sources.len());
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(source) = sources.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let object = objects.join(file_name(source)).with_extension("o");
                    let mut cc = compiler();
                    cc.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-pthread"]);
                    cc.arg("-fno-semantic-interposition");
                    cc.arg(format!("-I{SOURCES}")).arg("-c").arg(source).arg("-o").arg(object);
                    run(cc);
                }
            });
        }
    });
    built
}

/// Links `NAME.1` with that soname, and the `NAME` that some programs open instead.
fn link(dir: &Path, name: &str, objects: &[&Path], exports: &Path) {
    let soname = format!("{name}.1");
    let mut cc = compiler();
    // -Bsymbolic: the driver's calls to itself are out of an interposer's reach, as in the real one.
    cc.args(["-shared", "-pthread", "-Wl,-Bsymbolic", "-Wl,-z,defs", "-Wl,--build-id=none"]);
    cc.arg(format!("-Wl,-soname,{soname}")).arg(format!("-Wl,--version-script={}", exports.display()));
    // Beside it and then over it: a running program keeps the library that it has mapped.
    let fresh = dir.join(format!("{soname}.new"));
    cc.arg("-o").arg(&fresh).args(objects).arg("-ldl");
    run(cc);
    fs::rename(&fresh, dir.join(&soname)).unwrap_or_else(|e| panic!("cannot put {soname} in place: {e}"));
    let short = dir.join(name);
    if fs::symlink_metadata(&short).is_err() {
        std::os::unix::fs::symlink(&soname, &short).unwrap_or_else(|e| panic!("cannot link {name}: {e}"));
    }
}

fn run(mut command: Command) {
    let tool = command.get_program().to_string_lossy().into_owned();
    let output = command.output().unwrap_or_else(|e| fail(format!("cannot run {tool}: {e}")));
    if !output.status.success() {
        let arguments: Vec<_> = command.get_args().map(|a| a.to_string_lossy()).collect();
        let said = String::from_utf8_lossy(&output.stderr);
        fail(format!("{tool} {}: {}\n{said}", arguments.join(" "), output.status));
    }
}

fn fail(what: String) -> ! {
    eprintln!("error: {what}");
    std::process::exit(1)
}

fn c_files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap_or_else(|e| panic!("cannot list {}: {e}", dir.display()));
    let paths = entries.map(|e| e.expect("a readable directory").path());
    let mut files: Vec<PathBuf> = paths.filter(|p| p.extension().is_some_and(|x| x == "c")).collect();
    files.sort();
    files
}

fn file_name(path: &Path) -> &str {
    path.file_name().and_then(|n| n.to_str()).expect("source names are plain text")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("cannot read {}: {e}", path.display()))
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap_or_else(|e| panic!("cannot write {}: {e}", path.display()));
}
