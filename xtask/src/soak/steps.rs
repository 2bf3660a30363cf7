//! The steps of a soak.

use crate::aarch64::{COMPILER, EMULATOR, LIBRARIES, TARGET};
use crate::test::Runner;
use lockwright_locks::catalog::{self, CATALOG};

/// A step.
pub(super) struct SoakStep {
    pub(super) name: String,
    pub(super) shows: &'static str,
    pub(super) runner: Runner,
    pub(super) words: String,
    /// Additional variables, apart from the one that marks a soak.
    pub(super) variables: Vec<(&'static str, String)>,
}

impl SoakStep {
    /// Does `prefix` select this step?
    pub(super) fn is(&self, prefix: &str) -> bool {
        self.name.starts_with(prefix)
    }

    /// Identifies the step: if this changes, the step must pass again.
    pub(super) fn key(&self) -> String {
        let variables = self.variables.iter().map(|(name, value)| format!("{name}={value} "));
        variables.collect::<String>() + &self.words
    }
}

/// How long the steps search.
pub(super) struct Sizes {
    pub(super) explore_s: u32,
    pub(super) model_hours: f64,
}

/// Model tests that are not one per lock: `crates/model/tests/NAME.rs`.
const MODELS: &[&str] = &[
    "amp",
    "condvar",
    "delegation",
    "leaving",
    "posix",
    "programmed",
    "read_write",
    "rwlock",
    "timed",
    "wide",
];

/// Crates with tests on random inputs.
const FUZZED: &[&str] =
    &["bench", "calibrate", "locks", "numbers", "observer", "stats", "symbols", "text"];

/// Inputs for each of those tests; the gate uses 256.
const CASES: u32 = 50_000;

/// Drawn policies; the gate looks at 100,000.
const PROGRAMS: u32 = 10_000_000;

/// Milliseconds of stress under each lock; the gate uses 2500, and 1000 under whole locks.
const STRESS_MS: u32 = 60_000;

/// Drawn hooks that are compiled and interpreted; the gate uses 10,000.
const COMPILED: u32 = 1_000_000;

/// Hooks that the kernel's verifier is asked about, drawn and changed; the gate asks about 300.
const KERNEL_PROGRAMS: u32 = 50_000;

/// All steps.
pub(super) fn all(sizes: &Sizes) -> Vec<SoakStep> {
    let plan = |name: String, shows: &'static str, runner, words: String| SoakStep {
        name,
        shows,
        runner,
        words,
        variables: Vec::new(),
    };
    let test = |name: &str, shows: &'static str, words: &str| {
        plan(name.to_owned(), shows, Runner::Cargo, format!("test --no-fail-fast {words}"))
    };
    let mut steps = vec![
        plan(
            "build".into(),
            "the library and the command",
            Runner::Cargo,
            "build --release".into(),
        ),
        test(
            "posix",
            "POSIX under every lock",
            "-p lockwright-tests --test posix -- --test-threads 4",
        ),
        test("apps", "real programs under every lock", "-p lockwright-tests --test apps"),
        plan(
            "conformance".into(),
            "glibc's own tests under every front lock",
            Runner::Xtask,
            "conformance".into(),
        ),
    ];
    steps.push(plan(
        "aarch64".into(),
        "POSIX programs on 64-bit ARM, emulated",
        Runner::Xtask,
        "aarch64".into(),
    ));
    let mut stress =
        test("stress", "a minute under each lock", "-p lockwright-tests --test stress");
    stress.variables.push(("LOCKWRIGHT_STRESS_MS", STRESS_MS.to_string()));
    steps.push(stress);
    steps.push(plan(
        "planted".into(),
        "each row of the papers' figures notices its planted wrong model",
        Runner::Cargo,
        "run --release -p lockwright-cli -- reproduce all --planted --seeds 1 --quiet".into(),
    ));
    steps.push(test(
        "policies",
        "policies in a running program, a minute of loads and a thousand killed loaders",
        "-p lockwright-tests --test policies",
    ));
    steps.push(test(
        "killed",
        "a thousand commands that are killed while they change a running program",
        "-p lockwright-cli --test programs killed -- --show-output",
    ));
    let mut compiled = test(
        "compiled-aarch64",
        "the crate of policies on 64-bit ARM, emulated",
        &format!("--target {TARGET} --release -p lockwright-policy --lib"),
    );
    compiled.variables.extend([
        ("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", COMPILER.to_owned()),
        ("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", format!("{EMULATOR} -L {LIBRARIES}")),
        ("LOCKWRIGHT_PROGRAMS", COMPILED.to_string()),
    ]);
    steps.push(compiled);
    let mut compiled = test(
        "compiled",
        "compiled hooks do what the interpreter does, a million drawn",
        "--release -p lockwright-policy --lib jit",
    );
    compiled.variables.push(("LOCKWRIGHT_PROGRAMS", COMPILED.to_string()));
    steps.push(compiled);
    let mut kernel = test(
        "kernel",
        "the kernel's verifier accepts the hooks that ours accepts; only as root",
        "--release -p lockwright-policy --lib kernel -- --show-output",
    );
    kernel.variables.push(("LOCKWRIGHT_KERNEL_PROGRAMS", KERNEL_PROGRAMS.to_string()));
    steps.push(kernel);
    for name in FUZZED {
        let words = format!("-p lockwright-{name} --lib");
        let mut fuzz = test(&format!("fuzz-{name}"), "its parsers and sums, random inputs", &words);
        fuzz.variables.push(("PROPTEST_CASES", CASES.to_string()));
        steps.push(fuzz);
    }
    let words = "--release -p lockwright-policy --lib verify::tests::fuzz -- --show-output";
    let mut programs = test("fuzz-policy", "policies, verified and run", words);
    programs.variables.push(("LOCKWRIGHT_PROGRAMS", PROGRAMS.to_string()));
    steps.push(programs);
    let model = |name: String, shows: &'static str, file: &str, lock: Option<&str>| {
        let words = format!("-p lockwright-model --test {file} -- --show-output");
        let mut model = test(&name, shows, &words);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within bounds")]
        let ms = (sizes.model_hours * 3.6e6) as u64;
        model.variables.push(("LOCKWRIGHT_MODEL_MS", ms.to_string()));
        model.variables.extend(lock.map(|lock| ("LOCKWRIGHT_MODEL", lock.to_owned())));
        model
    };
    for file in MODELS {
        steps.push(model(format!("models-{file}"), "its models, to completion", file, None));
    }
    for entry in CATALOG {
        let name = format!("models-locks-{}", entry.id);
        steps.push(model(name, "its models, to completion", "locks", Some(entry.id)));
    }
    steps.push(plan(
        "weaken".into(),
        "every ordering and wake of every file",
        Runner::Xtask,
        "weaken --model 10s".into(),
    ));
    steps.push(plan(
        "dist".into(),
        "packages and crates, and `cargo install` of the command",
        Runner::Xtask,
        "dist --check --install".into(),
    ));
    for id in catalog::all().map(|entry| entry.id).chain(["runtime"]) {
        let run = format!("run --release -p lockwright-cli -- explore {id}");
        let long = format!("{run} --time {}", sizes.explore_s);
        steps.push(plan(format!("explore-{id}"), "schedules, drawn", Runner::Cargo, long));
        let each = format!("{run} --mutants --schedules 100000");
        steps.push(plan(format!("mutants-{id}"), "each fault is found", Runner::Cargo, each));
    }
    steps
}

/// How the names of those begin that draw inputs and policies.
const DRAWN: [&str; 3] = ["fuzz-", "compiled", "kernel"];

/// The steps that draw inputs and policies. How long the others search doesn't matter to them.
pub(super) fn fuzz() -> Vec<SoakStep> {
    let mut steps = all(&Sizes { explore_s: 1, model_hours: 1.0 });
    steps.retain(|step| DRAWN.iter().any(|prefix| step.is(prefix)));
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::fs;

    fn steps() -> Vec<SoakStep> {
        all(&Sizes { explore_s: 1, model_hours: 1.0 })
    }

    #[test]
    fn every_lock_is_explored_and_no_step_has_anothers_name() {
        let steps = steps();
        let names: BTreeSet<_> = steps.iter().map(|step| step.name.as_str()).collect();
        assert_eq!(names.len(), steps.len());
        for entry in catalog::all() {
            assert!(names.contains(format!("explore-{}", entry.id).as_str()), "{}", entry.id);
        }
    }

    #[test]
    fn every_file_of_models_and_every_crate_that_draws_inputs_is_there() {
        let root = crate::root::root();
        let files = fs::read_dir(root.join("crates/model/tests")).unwrap().flatten();
        let files = files.map(|file| file.path()).filter(|path| path.is_file());
        let files: BTreeSet<String> =
            files.map(|path| path.file_stem().unwrap().to_string_lossy().into_owned()).collect();
        let known = MODELS.iter().chain(&["locks"]).map(|name| (*name).to_owned()).collect();
        assert_eq!(files, known);
        let crates = fs::read_dir(root.join("crates")).unwrap().flatten();
        let drawn = crates.filter(|one| {
            let manifest = fs::read_to_string(one.path().join("Cargo.toml"));
            manifest.is_ok_and(|text| text.contains("proptest ="))
        });
        let drawn: BTreeSet<String> =
            drawn.map(|one| one.file_name().to_string_lossy().into_owned()).collect();
        assert_eq!(drawn, FUZZED.iter().map(|name| (*name).to_owned()).collect());
    }

    #[test]
    fn fuzz_has_every_step_that_draws_and_passes_it_for_the_soak() {
        let soak = all(&Sizes { explore_s: 9, model_hours: 9.0 });
        let keys = |steps: &[SoakStep], is_drawn: &dyn Fn(&SoakStep) -> bool| -> BTreeSet<_> {
            let drawn = steps.iter().filter(|step| is_drawn(step));
            drawn.map(|step| (step.name.clone(), step.key())).collect()
        };
        let counts = ["PROPTEST_CASES", "LOCKWRIGHT_PROGRAMS", "LOCKWRIGHT_KERNEL_PROGRAMS"];
        let draws = |step: &SoakStep| step.variables.iter().any(|(name, _)| counts.contains(name));
        assert_eq!(keys(&fuzz(), &|_| true), keys(&soak, &draws));
    }

    #[test]
    fn what_has_passed_depends_on_how_long_it_searched() {
        let key = |model_hours| {
            let steps = all(&Sizes { explore_s: 1, model_hours });
            steps.iter().find(|step| step.is("models-amp")).unwrap().key()
        };
        assert_ne!(key(1.0), key(2.0));
    }
}
