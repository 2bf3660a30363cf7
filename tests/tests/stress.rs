//! The stress program (`stress/stress.c`), 8 threads, under glibc and under every lock of the catalogue; and
//! the order in which `fifo` serves.

use anyhow::Result;
use libtest_mimic::{Arguments, Failed, Trial};
use lockwright_locks::catalog::{CATALOG, front_rules};
use lockwright_locks::entry::Kind;
use lockwright_tests::{Child, End, compile, library, preload_list, scratch, source_dir};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds under glibc and each front lock, unless `LOCKWRIGHT_STRESS_MS` says otherwise.
const MS: u64 = 2500;

/// Under each whole lock, likewise: in a program, all of them stand in front of the word in the same way.
const WHOLE_MS: u64 = 1000;

fn main() {
    let mut arguments = Arguments::from_args();
    // Eight threads on few CPUs are stress enough; two programs at once would only slow each other.
    arguments.test_threads = Some(1);
    match trials() {
        Ok(trials) => libtest_mimic::run(&arguments, trials).exit(),
        Err(error) => {
            eprintln!("error: {error:#}");
            std::process::exit(2);
        }
    }
}

struct Stress {
    program: PathBuf,
    preload: OsString,
    seed: u64,
    /// What `LOCKWRIGHT_STRESS_MS` says.
    ms: Option<u64>,
}

impl Stress {
    fn run(&self, lock: Option<&str>, usual_ms: u64) -> Result<(), Failed> {
        let (seed, ms) = (self.seed, self.ms.unwrap_or(usual_ms));
        let outcome = Child::new(&self.program)
            .args(["--seed", &seed.to_string(), "--ms", &ms.to_string()])
            .lock(lock, &self.preload)
            .limit(ms / 1000 + 60)
            .run_fairly()?;
        if outcome.end == End::Code(0) && outcome.stdout.is_empty() && outcome.stderr.is_empty() {
            return Ok(());
        }
        let lock = lock.unwrap_or("glibc");
        Err(format!(
            "stress under {lock}: {}\nreplay: LOCKWRIGHT_STRESS_SEED={seed} LOCKWRIGHT_STRESS_MS={ms} \
             cargo test -p lockwright-tests --test stress -- {lock}",
            outcome.describe()
        )
        .into())
    }

    /// With two threads on two CPUs, `fifo` never lets the one that gave the lock back pass the other.
    fn order(&self) -> Result<(), Failed> {
        let outcome = Child::new(&self.program)
            .args(["--order", "--ms", "3000"])
            .lock(Some("fifo"), &self.preload)
            .run()?;
        let text = outcome.text();
        let count = |words: &str| -> Option<u64> {
            let part = text.trim().split(", ").find_map(|part| {
                let (state, rest) = words.split_once(' ')?;
                part.strip_prefix(state)?.strip_suffix(rest)
            })?;
            part.trim().parse().ok()
        };
        let counts = ["awake kept", "awake passed", "asleep kept", "asleep passed"].map(count);
        let [Some(kept), Some(passed), Some(asleep_kept), Some(asleep_passed)] = counts else {
            return Err(format!("stress --order: {}", outcome.describe()).into());
        };
        // Now and then the hypervisor takes a CPU away from a thread that has said that it asks, before it does.
        let stalls = 5 + (kept + asleep_kept) / 1000;
        if kept + asleep_kept < 100 || asleep_passed > 0 || passed > stalls {
            return Err(format!("the order was not kept under fifo: {text}").into());
        }
        Ok(())
    }
}

fn trials() -> Result<Vec<Trial>> {
    let program = scratch("stress")?.join("stress");
    compile(&source_dir().join("stress/stress.c"), &program, &[])?;
    let number = |name: &str| std::env::var(name).ok()?.parse().ok();
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.subsec_nanos();
    let stress = Arc::new(Stress {
        program,
        preload: preload_list(&[&library()?]),
        seed: number("LOCKWRIGHT_STRESS_SEED").unwrap_or(u64::from(now)),
        ms: number("LOCKWRIGHT_STRESS_MS"),
    });
    let plain = stress.clone();
    let mut trials = vec![Trial::test("stress::glibc", move || plain.run(None, MS))];
    let whole = CATALOG.iter().copied().filter(|entry| entry.kind == Kind::Whole);
    let whole = whole.map(|entry| (entry, WHOLE_MS));
    for (entry, ms) in front_rules().map(|entry| (entry, MS)).chain(whole) {
        let stress = stress.clone();
        let name = format!("stress::{}", entry.id);
        trials.push(Trial::test(name, move || stress.run(Some(entry.id), ms)));
    }
    trials.push(Trial::test("order::fifo", move || stress.order()));
    Ok(trials)
}
