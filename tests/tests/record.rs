//! Traces of real programs: what they say is what the programs did, however they end.

use anyhow::{Context, Result, ensure};
use lockwright_stats::trace::{Step, Trace};
use lockwright_tests::{Child, End, Outcome, compile, library, scratch, source_dir};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

fn program(name: &str, test: &str) -> Result<PathBuf> {
    let binary = scratch(&format!("record/{test}"))?.join(name);
    compile(&source_dir().join("record").join(format!("{name}.c")), &binary, &[])?;
    Ok(binary)
}

fn recorded(binary: &Path, dir: &TempDir) -> Result<Child> {
    Ok(Child::new(binary)
        .lock(Some("fifo"), library()?.as_os_str())
        .env("LOCKWRIGHT_TRACE", dir.path()))
}

/// How a program ended, and what it recorded.
fn trace(
    binary: &Path,
    args: &[&str],
    change: impl FnOnce(Child) -> Child,
) -> Result<(Outcome, Trace)> {
    let dir = tempfile::tempdir()?;
    let outcome = change(recorded(binary, &dir)?.args(args)).run()?;
    ensure!(outcome.errors().is_empty(), "{}", outcome.describe());
    Ok((outcome, Trace::collect(dir.path())?))
}

/// The thread's steps in the program's own words. Computing for less than 1 ms, and idling for less, says nothing.
fn words(steps: &[Step], names: &BTreeMap<u64, String>, trace: &Trace) -> Vec<String> {
    let name = |lock: u32| {
        let address = trace.locks[lock as usize].address;
        names.get(&address).cloned().unwrap_or_else(|| format!("{address:#x}"))
    };
    let word = |step: &Step| match *step {
        Step::Acquire { lock, .. } => Some(format!("{}+", name(lock))),
        Step::Release(lock) => Some(format!("{}-", name(lock))),
        Step::Compute(ns) => (ns >= 1_500_000).then(|| "work".to_owned()),
        Step::Idle(ns) => (ns >= 2_500_000).then(|| "sleep".to_owned()),
    };
    steps.iter().filter_map(word).collect()
}

#[test]
fn every_operation_of_every_kind_is_a_step() -> Result<()> {
    let binary = program("steps", "steps")?;
    let mut differ = String::new();
    // A machine that stands still looks like work, or like sleep, that nobody did: then there is another run.
    for _ in 0..5 {
        let (outcome, trace) = trace(&binary, &[], |child| child)?;
        ensure!(outcome.end == End::Code(0), "{}", outcome.describe());
        let text = outcome.text();
        let mut names = BTreeMap::new();
        for line in text.lines().filter(|line| !line.starts_with('[')) {
            let (name, address) = line.split_once(" 0x").context("a lock and its address")?;
            names.insert(u64::from_str_radix(address, 16)?, name.to_owned());
        }
        assert_eq!((trace.threads.len(), trace.meta.dropped), (1, 0));
        assert_eq!(trace.meta.lock, "fifo");
        assert!(trace.meta.processes[0].ends_with("/steps"), "{:?}", trace.meta.processes);
        // Locks that glibc takes for itself, as of its streams, are none of ours.
        assert_eq!(trace.locks.len(), names.len());
        let expected = text.lines().last().context("what is expected")?;
        let found = format!("[{}]", words(&trace.threads[0].steps, &names, &trace).join(" "));
        if found == expected {
            return Ok(());
        }
        let plain = |words: &str| words.replace("work ", "").replace("sleep ", "");
        assert_eq!(plain(&found), plain(expected));
        differ = format!("{found}, not {expected}");
    }
    panic!("{differ}");
}

#[test]
fn counts_are_exact_however_the_program_ends() -> Result<()> {
    let binary = program("rounds", "ends")?;
    for (how, end) in
        [("return", End::Code(7)), ("_exit", End::Code(7)), ("kill", End::Signal(libc::SIGKILL))]
    {
        let (outcome, trace) = trace(&binary, &[how, "4", "3000"], |child| child)?;
        assert_eq!(outcome.end, end, "{}", outcome.describe());
        assert_eq!((trace.threads.len(), trace.locks.len(), trace.meta.dropped), (4, 2, 0));
        for thread in &trace.threads {
            let locks: Vec<_> = operations(&thread.steps).collect();
            assert_eq!(locks.len(), 4 * 3000, "{how}");
            assert!(locks.chunks(4).all(|round| round == [(0, 1), (1, 1), (1, 0), (0, 0)]));
        }
        let summary = trace.summary();
        assert_eq!(summary.locks[0].acquisitions(), 12_000);
        assert_eq!((summary.locks[1].acquisitions(), summary.locks[1].threads), (12_000, 4));
        // `two` is held within `one`: whatever the machine does, not for longer.
        let hold = |lock: usize| summary.locks[lock].hold.total();
        assert!(hold(0) > hold(1), "{how}: {} and {}", hold(0), hold(1));
    }
    Ok(())
}

/// Locks, with 1 where they are acquired and 0 where they are released.
fn operations(steps: &[Step]) -> impl Iterator<Item = (u32, u32)> {
    steps.iter().filter_map(|step| match *step {
        Step::Acquire { lock, .. } => Some((lock, 1)),
        Step::Release(lock) => Some((lock, 0)),
        _ => None,
    })
}

#[test]
fn what_has_no_room_is_counted() -> Result<()> {
    let binary = program("rounds", "full")?;
    let limited = |child: Child| child.env("LOCKWRIGHT_TRACE_LIMIT", "6000");
    let (outcome, trace) = trace(&binary, &["return", "3", "20000"], limited)?;
    assert_eq!(outcome.end, End::Code(7), "{}", outcome.describe());
    let recorded = trace.acquisitions();
    assert_eq!(recorded + trace.meta.dropped, 2 * 3 * 20_000);
    assert!(!trace.meta.is_disk_full);
    // Pieces of 680 records, two an acquisition; of them some are pauses, twice as many if each operation took long.
    assert!((2_000..=6_400).contains(&recorded), "{recorded}");
    Ok(())
}

#[test]
fn a_child_of_fork_is_not_recorded_and_its_parent_still_is() -> Result<()> {
    let binary = program("rounds", "fork")?;
    let (outcome, trace) = trace(&binary, &["fork", "2", "500"], |child| child)?;
    assert_eq!(outcome.end, End::Code(7), "{}", outcome.describe());
    assert_eq!((trace.threads.len(), trace.meta.processes.len()), (3, 1));
    assert_eq!(trace.acquisitions(), 2 * 3 * 500);
    Ok(())
}

#[test]
fn every_program_that_is_executed_has_its_own_locks() -> Result<()> {
    let binary = program("rounds", "exec")?;
    let rounds = format!("{0} return 1 10; exec {0} return 1 20", binary.display());
    let (outcome, trace) = trace(Path::new("sh"), &["-c", &rounds], |child| child)?;
    assert_eq!(outcome.end, End::Code(7), "{}", outcome.describe());
    let owners: Vec<_> = trace.locks.iter().map(|lock| lock.process).collect();
    let counts: Vec<_> = trace.summary().locks.iter().map(|lock| lock.acquisitions()).collect();
    assert_eq!((owners, counts), (vec![1, 1, 2, 2], vec![10, 10, 20, 20]));
    Ok(())
}

#[test]
fn emulated_time_is_said_and_recorded() -> Result<()> {
    let binary = program("rounds", "emulated")?;
    let cpus = std::fs::read_to_string("/sys/devices/system/cpu/online")?;
    let machine = format!("slow:{}x3", cpus.trim());
    let (outcome, trace) =
        trace(&binary, &["fork", "2", "300"], |child| child.env("LOCKWRIGHT_EMULATE", &machine))?;
    assert_eq!(outcome.end, End::Code(7), "{}", outcome.describe());
    assert_eq!(trace.meta.emulated.as_deref(), Some(machine.as_str()));
    assert_eq!(trace.acquisitions(), 2 * 3 * 300);
    Ok(())
}

#[test]
fn a_folder_that_is_not_there_is_said_and_the_program_runs() -> Result<()> {
    let binary = program("rounds", "nowhere")?;
    let outcome = Child::new(&binary)
        .lock(Some("fifo"), library()?.as_os_str())
        .env("LOCKWRIGHT_TRACE", "/nonexistent")
        .env("LOCKWRIGHT_TRACE_LIMIT", "0")
        .args(["return", "1", "10"])
        .run()?;
    assert_eq!(outcome.end, End::Code(7), "{}", outcome.describe());
    assert_eq!(
        outcome.errors(),
        "lockwright: bad LOCKWRIGHT_TRACE_LIMIT '0', it is 2000000: not a number from 1 on\n\
         lockwright: nothing is recorded in LOCKWRIGHT_TRACE '/nonexistent': No such file or directory\n"
    );
    Ok(())
}
