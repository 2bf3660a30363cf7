//! Runs glibc's own thread tests with and without the preloaded library. No test that passes on plain glibc may fail
//! under one of our locks.
//!
//! The sources are Debian's, for the installed glibc. `apt-get source` fetches them with a private sources list, so the
//! machine's own lists stay unchanged. We run every test that compiles outside glibc's build, with the few headers in
//! `tests/conformance/shim`.

mod suite;

use crate::answer::No;
use crate::pool::parallel;
use anyhow::{Result, ensure};
use lockwright_bench::split;
use lockwright_locks::catalog::front_rules;
use lockwright_tests::{End, first_and_in_turn, library, preload_list};
use regex_lite::Regex;
use std::ffi::OsStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use suite::Suite;

/// With `--in-turn`, the number of locks that a test runs under in addition to the first.
const IN_TURN: usize = 3;

/// How often a test with a difference is repeated, alone, before the difference counts.
const RETRIES: usize = 5;

/// Flags.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Locks to run under, separated by commas (default: every front lock with a rule of its own).
    #[arg(long = "lock", value_name = "LOCKS")]
    locks: Vec<String>,
    /// Run only tests whose name matches.
    #[arg(long, value_name = "REGEX")]
    filter: Option<Regex>,
    /// Tests to run at a time; most of them sleep.
    #[arg(long, value_name = "N", default_value_t = 12)]
    jobs: usize,
    /// Run each test under glibc, the first lock and three of the others in rotation (as the gate does).
    #[arg(long)]
    in_turn: bool,
    /// Only fetch and build the tests.
    #[arg(long)]
    build_only: bool,
}

/// How a test ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Pass,
    Unsupported,
    Fail(End),
}

impl Verdict {
    fn same(self, other: Verdict) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Verdict::Pass => write!(f, "pass"),
            Verdict::Unsupported => write!(f, "unsupported"),
            Verdict::Fail(end) => write!(f, "fail ({end})"),
        }
    }
}

/// One side of the comparison: plain glibc, or one of our locks.
struct Side {
    lock: Option<String>,
    /// The verdict on each test; `None`: it was the turn of other locks.
    verdicts: Vec<Option<Verdict>>,
}

impl Side {
    fn name(&self) -> &str {
        self.lock.as_deref().unwrap_or("glibc")
    }
}

pub(crate) fn main(args: Args) -> Result<()> {
    let suite = Suite::prepare()?;
    let tests = suite.tests(args.filter.as_ref())?;
    ensure!(
        !tests.is_empty(),
        "no test matches '{}'\nhint: cargo xtask conformance --filter mutex",
        args.filter.as_ref().map_or("", Regex::as_str)
    );
    if args.build_only {
        return Ok(());
    }
    let preload = preload_list(&[&library()?]);
    let locks: Vec<String> = if args.locks.is_empty() {
        front_rules().map(|entry| entry.id.to_string()).collect()
    } else {
        args.locks.iter().flat_map(|locks| split(locks)).collect()
    };
    let mut sides: Vec<Side> = std::iter::once(None)
        .chain(locks.into_iter().map(Some))
        .map(|lock| Side { lock, verdicts: vec![None; tests.len()] })
        .collect();
    // The other locks take turns; glibc and the first lock always run.
    let count = sides.len();
    let has_turn = |test: usize, side: usize| {
        side == 0 || !args.in_turn || first_and_in_turn(test, IN_TURN, 1..count).contains(&side)
    };

    // Run one side after the other, without a pause. So a test never runs beside itself (some use fixed names of
    // semaphores and files).
    let start = Instant::now();
    let jobs: Vec<(usize, usize)> = (0..sides.len())
        .flat_map(|side| (0..tests.len()).map(move |test| (side, test)))
        .filter(|&(side, test)| has_turn(test, side))
        .collect();
    let done = AtomicUsize::new(0);
    let verdicts = parallel(args.jobs, &jobs, |&(side, test)| {
        let verdict = suite.run(&tests[test], sides[side].lock.as_deref(), &preload);
        let done = done.fetch_add(1, Ordering::Relaxed) + 1;
        if done.is_multiple_of(100) {
            eprintln!(
                "conformance: {done} of {} runs, {} s",
                jobs.len(),
                start.elapsed().as_secs()
            );
        }
        verdict
    });
    for (&(side, test), verdict) in jobs.iter().zip(verdicts) {
        sides[side].verdicts[test] = Some(verdict?);
    }
    settle(&suite, &tests, &mut sides, &preload)?;
    let regressions = report(&tests, &sides, start.elapsed().as_secs());
    if regressions > 0 {
        return Err(No(format!("{regressions} tests are worse than under glibc alone")).into());
    }
    Ok(())
}

/// Repeats the tests with differences, alone. On both sides, the best run counts.
fn settle(suite: &Suite, tests: &[String], sides: &mut [Side], preload: &OsStr) -> Result<()> {
    for (i, test) in tests.iter().enumerate() {
        let glibc = sides[0].verdicts[i].unwrap_or(Verdict::Unsupported);
        if sides.iter().all(|side| side.verdicts[i].is_none_or(|ours| ours.same(glibc))) {
            continue;
        }
        for side in sides.iter_mut() {
            for _ in 0..RETRIES {
                if side.verdicts[i].is_some_and(|verdict| verdict != Verdict::Pass) {
                    side.verdicts[i] = Some(suite.run(test, side.lock.as_deref(), preload)?);
                }
            }
        }
    }
    Ok(())
}

/// Prints the table and the differences; returns the number of regressions.
fn report(tests: &[String], sides: &[Side], seconds: u64) -> usize {
    println!("{:<10} {:>6} {:>12} {:>6} {:>12}", "", "pass", "unsupported", "fail", "regressions");
    let mut differences = Vec::new();
    let mut total = 0;
    for side in sides {
        let count =
            |f: fn(&Verdict) -> bool| side.verdicts.iter().flatten().filter(|v| f(v)).count();
        let mut regressions = 0;
        for ((test, &glibc), &ours) in tests.iter().zip(&sides[0].verdicts).zip(&side.verdicts) {
            let (Some(glibc), Some(ours)) = (glibc, ours) else { continue };
            if glibc == Verdict::Pass && ours != Verdict::Pass {
                regressions += 1;
            }
            if !glibc.same(ours) {
                differences.push(format!("{test}: glibc {glibc}, {} {ours}", side.name()));
            }
        }
        println!(
            "{:<10} {:>6} {:>12} {:>6} {:>12}",
            side.name(),
            count(|v| *v == Verdict::Pass),
            count(|v| *v == Verdict::Unsupported),
            count(|v| matches!(v, Verdict::Fail(_))),
            regressions
        );
        total += regressions;
    }
    for line in &differences {
        println!("{line}");
    }
    let runs: usize = sides.iter().map(|side| side.verdicts.iter().flatten().count()).sum();
    println!("{} tests, {runs} runs, {seconds} s; regressions: {total}", tests.len());
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_kind_of_verdict_is_the_same() {
        let (one, two) = (Verdict::Fail(End::Code(1)), Verdict::Fail(End::Signal(6)));
        assert!(one.same(two) && !one.same(Verdict::Pass));
    }
}
