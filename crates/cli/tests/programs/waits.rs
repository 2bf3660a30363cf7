//! `lockwright profile` of waits that are for neither mutexes nor semaphores, and of trylocks that fail.

use super::{FOLDER, compiled, lockwright};
use anyhow::{Context, Result, ensure};
use lockwright_tests::End;
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

static WAITS: LazyLock<PathBuf> = LazyLock::new(|| compiled("waits", "waits.c", &[]));

/// The report on that part of the program at this level, as JSON; all it printed was `output`.
fn profile(part: &str, level: &str, output: &str) -> Result<Value> {
    let file = FOLDER.path().join(format!("waits-{part}-{level}.json"));
    let outcome = lockwright()
        .args(["profile", "--format", "json", "--level", level, "--output"])
        .args([&file])
        .args(["--"])
        .args([&*WAITS])
        .args([part])
        .run()?;
    ensure!(outcome.end == End::Code(0), "{}", outcome.describe());
    ensure!(outcome.text() == output, "{}", outcome.describe());
    let mut report: Value = serde_json::from_slice(&fs::read(file)?)?;
    Ok(report["processes"][0].take())
}

const LEVELS: [&str; 2] = ["counters", "full"];

/// The lock, or condition variable, with this name.
fn named<'a>(report: &'a Value, list: &str, name: &str) -> Result<&'a Value> {
    let all = report[list].as_array().with_context(|| format!("no {list}: {report:#}"))?;
    let found = all.iter().find(|one| one["name"] == name);
    found.with_context(|| format!("no {name}: {report:#}"))
}

/// Each place with its count, in alphabetical order.
fn places<'a>(lock: &'a Value, list: &str) -> Vec<(&'a str, u64)> {
    let sites = lock[list].as_array().into_iter().flatten();
    let mut all: Vec<_> = sites
        .map(|site| {
            (site["function"].as_str().unwrap_or_default(), site["count"].as_u64().unwrap_or(0))
        })
        .collect();
    all.sort_unstable();
    all
}

fn numbers<const N: usize>(value: &Value, names: [&str; N]) -> [u64; N] {
    names.map(|name| value[name].as_u64().unwrap_or(u64::MAX))
}

/// Robust, with priorities, shared: of each kind, one thread waits, and another gives up.
#[test]
fn waits_for_mutexes_that_glibc_serves_are_counted() -> Result<()> {
    for level in LEVELS {
        let report = profile("glibcs", level, &("Connection timed out\n".repeat(3) + "done\n"))?;
        let lock = named(&report, "locks", "theirs")?;
        assert_eq!(lock["kind"], "mutex", "{lock:#}");
        assert_eq!(numbers(lock, ["contended", "gave_up"]), [6, 3], "{lock:#}");
        assert_eq!(numbers(&lock["wait"], ["count"]), [6], "{lock:#}");
        assert_eq!(places(lock, "waiters"), [("gives_up_theirs", 3), ("wants", 3)], "{lock:#}");
        assert_eq!(places(lock, "holders")[0], ("gives", 3), "{lock:#}");
        assert!(report["own_locks"].as_array().is_none_or(Vec::is_empty), "told once: {report:#}");
    }
    Ok(())
}

/// A reader waits for a writer; a writer waits for a reader, and another gives up.
#[test]
fn readers_and_writers_of_an_rwlock_are_told_apart_and_who_lets_them_in_is_named() -> Result<()> {
    const SIDE: [&str; 3] = ["waits", "behind_readers", "behind_writer"];
    for (part, prefer) in [("rwlocks", "readers"), ("strictly", "strict")] {
        for level in LEVELS {
            let report = profile(part, level, "Connection timed out\ndone\n")?;
            let lock = named(&report, "locks", "table")?;
            assert_eq!(
                (&lock["kind"], &lock["sides"]["prefer"]),
                (&"rwlock".into(), &prefer.into())
            );
            assert_eq!(numbers(lock, ["contended", "gave_up"]), [3, 1], "{lock:#}");
            assert_eq!(numbers(&lock["wait"], ["count"]), [3], "{lock:#}");
            assert_eq!(numbers(&lock["sides"]["readers"], SIDE), [1, 0, 1], "{lock:#}");
            assert_eq!(numbers(&lock["sides"]["writers"], SIDE), [2, 2, 0], "{lock:#}");
            let [all, readers, writers] = [
                &lock["wait_ns"],
                &lock["sides"]["readers"]["wait_ns"],
                &lock["sides"]["writers"]["wait_ns"],
            ]
            .map(|ns| ns.as_u64().unwrap_or(0));
            assert!(readers > 0 && writers > 0 && all == readers + writers, "{lock:#}");
            let waiters = places(lock, "waiters");
            assert_eq!(waiters, [("gives_up_writing", 1), ("reads", 1), ("writes", 1)]);
            assert_eq!(places(lock, "holders"), [("stops_reading", 1), ("stops_writing", 1)]);
            let threads = lock["threads"].as_array().map_or(0, Vec::len);
            assert_eq!(threads, if level == "full" { 3 } else { 0 }, "{lock:#}");
            assert_eq!(lock["failed_tries"], Value::Null);
        }
    }
    Ok(())
}

#[test]
fn trylocks_that_fail_are_counted_apart_from_waits_and_their_holder_is_named() -> Result<()> {
    for level in LEVELS {
        let report = profile("tries", level, "done\n")?;
        let of = |name: &str| named(&report, "locks", name);
        let busy = of("busy")?;
        assert_eq!(numbers(busy, ["contended", "failed_tries"]), [0, 7], "{busy:#}");
        assert_eq!((&busy["kind"], places(busy, "triers")), (&"mutex".into(), vec![("tries", 7)]));
        let once = of("once")?;
        assert_eq!(numbers(once, ["contended", "wait_ns", "failed_tries"]), [0, 0, 1], "{once:#}");
        assert_eq!(places(once, "tried_holders"), [("stops_holding", 1)]);
        let table = of("busy_table")?;
        assert_eq!(numbers(table, ["contended", "failed_tries"]), [0, 2], "{table:#}");
        let triers = [("tries_to_read", 1), ("tries_to_write", 1)];
        assert_eq!((&table["kind"], places(table, "triers")), (&"rwlock".into(), triers.to_vec()));
        assert_eq!(places(table, "tried_holders"), [("leaves", 2)]);
        let spin = of("busy_spin")?;
        assert_eq!(numbers(spin, ["contended", "failed_tries"]), [0, 5], "{spin:#}");
        assert_eq!(
            (&spin["kind"], places(spin, "triers")),
            (&"spin".into(), vec![("tries_to_spin", 5)])
        );
        assert_eq!(spin["tried_holders"], Value::Null, "nobody knows");
    }
    Ok(())
}

/// From the first wait on: a thousand times, and by each of two threads for the second wait.
#[test]
fn acquisitions_between_waits_are_counted() -> Result<()> {
    for level in LEVELS {
        let report = profile("taken", level, "done\n")?;
        assert_eq!(report["lock"], "glibc", "the program as it is");
        let lock = named(&report, "locks", "busy_twice")?;
        assert_eq!(numbers(lock, ["acquired", "contended"]), [1002, 2], "{lock:#}");
    }
    Ok(())
}

#[test]
fn waits_for_a_spin_lock_are_counted() -> Result<()> {
    for level in LEVELS {
        let report = profile("spins", level, "done\n")?;
        let lock = named(&report, "locks", "spin")?;
        assert_eq!(lock["kind"], "spin");
        assert_eq!(numbers(lock, ["contended", "blamed_ns"]), [1, 0], "{lock:#}");
        // Whether it has napped meanwhile depends on the machine.
        assert!(lock["slept"].as_u64() <= Some(1), "{lock:#}");
        assert_eq!(
            (places(lock, "waiters"), places(lock, "holders")),
            (vec![("spins", 1)], vec![])
        );
        assert!(lock["wait_ns"].as_u64() > Some(0), "{lock:#}");
    }
    Ok(())
}

/// Three threads wait for one item and are all woken, so two of them for nothing; then for two items. Two threads pass a turn to each other.
#[test]
fn wake_ups_that_were_of_no_use_are_counted_and_who_wakes_is_named() -> Result<()> {
    const WAKES: [&str; 6] = ["signals", "broadcasts", "woken", "got_on", "wasted", "by_waiters"];
    let output = "3 taken in 5 waits\nConnection timed out\ndone\n";
    for level in LEVELS {
        let report = profile("conditions", level, output)?;
        let of = |name: &str| named(&report, "conditions", name);
        let filled = of("filled")?;
        assert_eq!(filled["kind"], "condition");
        assert_eq!(numbers(filled, ["contended", "gave_up"]), [5, 0], "{filled:#}");
        assert_eq!(numbers(&filled["wakes"], WAKES), [0, 2, 5, 3, 2, 0], "{filled:#}");
        assert_eq!(places(filled, "waiters"), [("takes", 5)]);
        assert_eq!(places(filled, "holders"), [("fills", 2)]);
        assert!(filled["holders"][0]["ns"].as_u64() > Some(0), "{filled:#}");
        let turn = of("turn")?;
        assert_eq!(numbers(turn, ["contended", "gave_up"]), [3, 1], "{turn:#}");
        assert_eq!(numbers(&turn["wakes"], WAKES), [2, 0, 2, 2, 0, 1], "{turn:#}");
        assert_eq!(places(turn, "waiters"), [("gives_up_waiting", 1), ("waits_for", 2)]);
        assert_eq!(places(turn, "holders"), [("passes_to", 2)]);
        assert_eq!(filled["wakes"]["mutex"], turn["wakes"]["mutex"]);
        let called = of("called")?;
        assert_eq!(numbers(&called["wakes"], WAKES), [1, 0, 1, 1, 0, 0], "{called:#}");
        assert_eq!(
            (places(called, "waiters"), places(called, "holders")),
            (vec![("is_called", 1)], vec![("calls_it", 1)])
        );
        for lock in report["locks"].as_array().context("locks")? {
            assert_eq!(
                (&lock["kind"], &lock["wakes"]),
                (&"mutex".into(), &Value::Null),
                "{lock:#}"
            );
        }
        let threads = filled["threads"].as_array().map_or(0, Vec::len);
        assert_eq!(threads, if level == "full" { 3 } else { 0 }, "{filled:#}");
    }
    Ok(())
}

/// `strace` holds up the thread that makes the memory, for a tenth of a second. No signal reaches that thread before the memory is there.
#[test]
fn a_wait_that_begins_while_the_memory_for_the_counts_is_made_is_counted() -> Result<()> {
    let file = FOLDER.path().join("waits-at-once.json");
    let outcome = lockwright()
        .args(["profile", "--format", "json", "--output"])
        .args([&file])
        .args(["--", "strace", "-f", "-o", "/dev/null", "-e", "trace=ftruncate"])
        .args(["-e", "inject=ftruncate:delay_enter=100000"])
        .args([&*WAITS])
        .args(["at-once"])
        .run()?;
    ensure!(outcome.end == End::Code(0), "{}", outcome.describe());
    ensure!(outcome.text() == "Connection timed out\ndone\n", "{}", outcome.describe());
    let report: Value = serde_json::from_slice(&fs::read(file)?)?;
    let processes = report["processes"].as_array().context("processes")?;
    let waits = processes.iter().find(|process| process["conditions"].is_array());
    let turn = named(waits.with_context(|| format!("{report:#}"))?, "conditions", "turn")?;
    assert_eq!(numbers(turn, ["contended", "gave_up"]), [1, 1], "{turn:#}");
    Ok(())
}

#[test]
fn a_process_that_waits_for_a_condition_alone_is_reported() -> Result<()> {
    let report = profile("alone", "counters", "Connection timed out\ndone\n")?;
    let turn = named(&report, "conditions", "turn")?;
    assert_eq!(numbers(turn, ["contended", "gave_up"]), [1, 1], "{turn:#}");
    assert_eq!(numbers(&turn["wakes"], ["woken", "got_on", "wasted"]), [0; 3], "{turn:#}");
    assert_eq!((&report["locks"], places(turn, "holders")), (&Value::Array(vec![]), vec![]));
    Ok(())
}
