//! `lockwright profile --order`: deadlocks that can happen, in programs that run to their end.

use super::{FOLDER, compiled, lockwright};
use anyhow::{Context, Result, ensure};
use lockwright_tests::{Child, End, Outcome};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

static ORDER: LazyLock<PathBuf> = LazyLock::new(|| compiled("order", "order.c", &[]));

fn profile(options: &[&str], program: &[&str]) -> Result<Outcome> {
    let path = ORDER.to_str().context("a path in UTF-8")?;
    let program = if program.len() > 1 { program } else { &[path, program[0]] };
    lockwright().args(["profile", "--order"]).args(options).args(["--"]).args(program).run()
}

/// What the report has of one process's order; null: there is nothing.
fn order_of(name: &str, program: &[&str], end: &End) -> Result<Value> {
    let file = FOLDER.path().join(format!("order-{name}.json"));
    let path = file.to_str().context("a path in UTF-8")?;
    let outcome = profile(&["--format", "json", "--output", path], program)?;
    ensure!(outcome.end == *end, "{name}: {}", outcome.describe());
    let report: Value = serde_json::from_slice(&fs::read(file)?)?;
    Ok(report["order"][0].clone())
}

fn order(what: &str) -> Result<Value> {
    order_of(what, &[what], &End::Code(0))
}

/// The risks of its circles, and the locks in each.
fn circles(order: &Value) -> Vec<(String, Vec<String>)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let all = order["circles"].as_array().cloned().unwrap_or_default();
    let locks = |circle: &Value| {
        let locks = circle["locks"].as_array().cloned().unwrap_or_default();
        locks.iter().map(|lock| text(&lock["name"])).collect()
    };
    all.iter().map(|circle| (text(&circle["risk"]), locks(circle))).collect()
}

fn circle(risk: &str, locks: &[&str]) -> (String, Vec<String>) {
    (risk.to_owned(), locks.iter().map(|&lock| lock.to_owned()).collect())
}

fn line(mark: &str) -> String {
    let text = include_str!("order.c");
    let at = text.lines().position(|line| line.ends_with(&format!("/* {mark} */")));
    format!("order.c:{}", at.expect("a line with that mark") + 1)
}

fn assert_inversion(order: &Value) {
    assert_eq!(circles(order), [circle("deadlock", &["first", "second"])], "{order:#}");
    let steps = &order["circles"][0]["steps"];
    for (step, caller) in [(0, "forwards"), (1, "backwards")] {
        for (side, mark) in [("held", "outer"), ("asked", "inner")] {
            let stack = &steps[step][side]["stack"];
            assert_eq!(stack[0], format!("both ({})", line(mark)), "{order:#}");
            assert_eq!(stack[1], format!("{caller} ({})", line(caller)), "{order:#}");
        }
    }
    assert_ne!(steps[0]["thread"], steps[1]["thread"], "{order:#}");
}

/// The threads come one after the other: there is no deadlock. The stacks are known without frame pointers.
#[test]
fn an_inversion_is_seen_with_both_stacks_before_anybody_is_stuck() -> Result<()> {
    assert_inversion(&order("inversion")?);
    assert_inversion(&order("forked")?);
    assert_inversion(&order_of("killed", &["killed"], &End::Signal(libc::SIGKILL))?);
    Ok(())
}

#[test]
fn circles_of_three_and_of_a_condition_and_of_writers_are_seen() -> Result<()> {
    for (what, locks) in [
        ("three", &["first", "second", "third"][..]),
        ("condition", &["first", "second"]),
        ("writers", &["reader", "other"]),
        ("half-gate", &["first", "second"]),
    ] {
        let order = order(what)?;
        let all = circles(&order);
        assert_eq!(all.len(), 1, "{what}: {order:#}");
        assert_eq!((all[0].0.as_str(), all[0].1.len()), ("deadlock", locks.len()), "{order:#}");
        assert!(locks.iter().all(|&lock| all[0].1.iter().any(|l| l == lock)), "{order:#}");
    }
    let again = &order("condition")?["circles"][0];
    let asks_again = |step: usize| again["steps"][step]["asked"]["again"] == true;
    assert!(asks_again(0) || asks_again(1), "{again:#}");
    Ok(())
}

#[test]
fn what_cannot_block_is_no_deadlock() -> Result<()> {
    for what in ["try", "readers", "destroyed", "reused"] {
        let order = order(what)?;
        assert_eq!(circles(&order), [], "{what}: {order:#}");
        assert!(order["pairs"].as_u64() > Some(0), "{what} takes locks together: {order:#}");
    }
    let guarded = order("gate")?;
    assert_eq!(circles(&guarded), [circle("guarded", &["first", "second"])], "{guarded:#}");
    assert_eq!(guarded["circles"][0]["guards"], serde_json::json!(["gate"]), "{guarded:#}");
    let alone = order("alone")?;
    assert_eq!(circles(&alone), [circle("one-thread", &["first", "second"])], "{alone:#}");
    Ok(())
}

#[test]
fn threads_that_are_stuck_are_told() -> Result<()> {
    let order = order_of("stuck", &["stuck"], &End::Signal(libc::SIGKILL))?;
    let stuck = order["stuck"].as_array().context("threads")?;
    assert_eq!(stuck.len(), 2, "{order:#}");
    assert_eq!(stuck[0]["held_by"], stuck[1]["thread"], "{order:#}");
    assert_eq!(stuck[1]["held_by"], stuck[0]["thread"], "{order:#}");
    assert!(stuck[0]["at"].as_str().is_some_and(|at| at.starts_with("gets_stuck (order.c:")));
    Ok(())
}

/// `std::scoped_lock` takes one lock and tries the others. Two accounts that pay each other have no such help.
#[test]
fn cpp_programs_are_understood() -> Result<()> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/order.cpp");
    for level in ["-O0", "-O2"] {
        let program = FOLDER.path().join(format!("order-cpp{level}"));
        let flags = ["-std=c++17", level, "-g", "-Wall", "-Wextra", "-pthread", "-o"];
        let compiler = Child::new("c++").args(flags).args([&program]).args([&source]);
        let outcome = compiler.limit(120).run()?;
        ensure!(outcome.end == End::Code(0), "{}", outcome.describe());
        let path = program.to_str().context("a path in UTF-8")?;
        let scoped = order_of("scoped", &["env", path], &End::Code(0))?;
        assert_eq!(circles(&scoped), [], "{scoped:#}");
        let paid = order_of("pay", &[path, "pay"], &End::Code(0))?;
        let all = circles(&paid);
        assert_eq!(all.len(), 1, "{paid:#}");
        assert!(all[0].1.iter().all(|name| name.contains(", of pay")), "{paid:#}");
        let at = paid["circles"][0]["steps"][0]["asked"]["at"].as_str().context("a place")?;
        assert!(at.starts_with("pay(") || at.starts_with("pay ("), "{paid:#}");
        assert!(at.contains("order.cpp:"), "{paid:#}");
    }
    Ok(())
}

#[test]
fn the_exit_code_tells_if_asked() -> Result<()> {
    for (what, code) in [("inversion", 1), ("gate", 0), ("alone", 0), ("no such thing", 2)] {
        let outcome = profile(&["--fail-on-inversion"], &[what])?;
        ensure!(outcome.end == End::Code(code), "{what}: {}", outcome.describe());
    }
    let outcome = profile(&[], &["inversion"])?;
    ensure!(outcome.end == End::Code(0), "{}", outcome.describe());
    let report = outcome.errors();
    let sentence = "T1 takes first and then second, T2 takes second and then first: they can";
    assert!(report.contains(sentence), "{report}");
    ensure!(report.lines().all(|line| line.chars().count() <= 80), "{report}");
    // A program without threads, and one that starts others.
    let outcome = profile(&[], &["sh", "-c", "true; exit 7"])?;
    ensure!(outcome.end == End::Code(7), "{}", outcome.describe());
    assert!(outcome.errors().ends_with("no thread took a lock while it held another\n"));
    Ok(())
}
