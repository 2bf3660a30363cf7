//! `lockwright compare`: verdicts by figures that the programs tell, so that no machine's speed decides a test.

use super::{FOLDER, file, lockwright};
use anyhow::{Context, Result, ensure};
use lockwright_tests::{End, Outcome};
use serde_json::Value;
use std::fs;
use std::net::TcpListener;

/// Tells a rate by the lock that it is started with: a tenth more under `auto`, the same under others.
const TOLD: &str = r#"case "$LOCKWRIGHT_LOCK" in auto*) echo rate: 110;; *) echo rate: 100;; esac"#;

fn compare(arguments: &[&str]) -> Result<Outcome> {
    let all = lockwright().args(["compare", "--quiet"]).args(arguments);
    all.env("TMPDIR", FOLDER.path()).run()
}

/// What it says on its output, as one line.
fn said(outcome: &Outcome) -> String {
    outcome.text().split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_difference_is_found_and_none_is_not() -> Result<()> {
    let (json, html) = (file("compare.json", ""), file("compare.html", ""));
    let (to_json, to_html) = (format!("--json={json}"), format!("--html={html}"));
    let outcome = compare(&[
        "--lock",
        "glibc,auto,fifo:spin=5000",
        "--more=rate: (?<rate>[0-9.]+)",
        &to_json,
        &to_html,
        "--",
        "sh",
        "-c",
        TOLD,
    ])?;
    ensure!(outcome.end == End::Code(0), "{}", outcome.describe());
    let text = said(&outcome);
    for part in [
        "11 rounds of 3 settings, interleaved, after 1 run of each to warm up; then the result was clear",
        "rate, more is better; decides",
        "auto is better than glibc: 1.10 times the rate (surely 1.10 to 1.10)",
        "fifo:spin=5000 makes no difference: 1.00 times the rate",
        "take auto: lockwright run --lock auto -- sh -c",
    ] {
        ensure!(text.contains(part), "no '{part}' in {}", outcome.text());
    }
    ensure!(
        outcome.text().lines().all(|line| line.chars().count() <= 80 || line.contains("run --"))
    );
    let report: Value = serde_json::from_str(&fs::read_to_string(&json)?)?;
    ensure!(report["take"] == "auto" && report["clear"] == true, "{report}");
    ensure!(report["runs"].as_array().context("runs")?.len() == 33, "{report}");
    let first = &report["figures"][0];
    ensure!(first["figure"]["name"] == "rate", "{first}");
    ensure!(first["settings"][1]["finding"] == "better", "{first}");
    ensure!(first["settings"][2]["finding"] == "same", "{first}");
    let page = fs::read_to_string(&html)?;
    ensure!(page.contains("auto is better than glibc") && page.contains("<svg"), "{page}");
    Ok(())
}

#[test]
fn what_the_program_says_of_itself_is_what_it_ran_under() -> Result<()> {
    // Only the library, not the variable, tells this program apart.
    let maps = "grep -q liblockwright /proc/self/maps && echo rate: 1 || echo rate: 2";
    let outcome = compare(&["--rounds=8", "--more=rate: ([0-9]+)", "--", "sh", "-c", maps])?;
    ensure!(outcome.end == End::Code(0), "{}", outcome.describe());
    ensure!(said(&outcome).contains("auto is worse than glibc: 0.50 times"), "{}", outcome.text());
    let epochs = compare(&["--rounds=8", "--epochs", "--more=: ([0-9]+)", "--", "sh", "-c", maps])?;
    ensure!(said(&epochs).contains("auto makes no difference"), "{}", epochs.text());
    Ok(())
}

/// A server that is ready when a file is there, and its load, which reads the file.
#[test]
fn a_server_is_started_for_each_run_and_its_load_is_measured() -> Result<()> {
    let ready = FOLDER.path().join("ready").display().to_string();
    let server = format!(
        r#"rm -f {ready}; trap 'rm -f {ready}; exit 0' TERM; echo "${{LOCKWRIGHT_LOCK:-none}}" > {ready}; while :; do sleep 0.01; done"#
    );
    let is_ready = format!("test -s {ready}");
    let load = format!(
        "read lock < {ready}; case $lock in none) echo P99: 3 us;; *) echo P99: 2 us;; esac"
    );
    let arguments = ["--rounds=8", "--ready", &is_ready, "--load", &load];
    let less = "--less=P99: (?<P99>[0-9]+)";
    let outcome = compare(&[&arguments[..], &[less, "--", "sh", "-c", &server]].concat())?;
    ensure!(outcome.end == End::Code(0), "{}", outcome.describe());
    let text = said(&outcome);
    ensure!(text.contains("auto is better than glibc: 0.67 times the P99"), "{text}");
    ensure!(
        text.contains("server's CPU time") && text.contains("server's context switches"),
        "{text}"
    );

    let gone =
        compare(&[&arguments[..], &[less, "--", "sh", "-c", "echo no room; exit 3"]].concat())?;
    let errors = gone.errors();
    ensure!(gone.end == End::Code(2), "{errors}");
    ensure!(
        errors.contains("(exit code 3, before its load began) with glibc: no room"),
        "{errors}"
    );
    let bad = ["--rounds=8", "--ready", &is_ready, "--load", "echo refused; exit 1"];
    let bad = compare(&[&bad[..], &[less, "--", "sh", "-c", &server]].concat())?;
    let errors = bad.errors();
    ensure!(errors.contains("the load failed (exit code 1) with glibc: refused"), "{errors}");
    Ok(())
}

#[test]
fn what_can_not_be_compared_is_said() -> Result<()> {
    let fails = |arguments: &[&str], expected: &str| -> Result<()> {
        let outcome = compare(arguments)?;
        let errors = outcome.errors();
        ensure!(outcome.end == End::Code(2), "{arguments:?}: {}", outcome.describe());
        ensure!(errors.contains(expected), "{arguments:?}: {errors}");
        Ok(())
    };
    fails(&["--", "sh", "-c", "echo broken; exit 5"], "failed (exit code 5) with glibc: broken")?;
    fails(&["--more=rate: ([0-9]+)", "--", "true"], "wrote nothing that matches 'rate: ([0-9]+)'")?;
    fails(&["--more=rate: ([0-9]+)", "--", "echo", "rate: 0"], "not a number above 0")?;
    fails(
        &["--time=0.05", "--epochs", "--", "sleep", "9"],
        "had no epochs: nothing is left to compare",
    )?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port().to_string();
    let words = ["--load", "true", "--port", &port, "--", "sleep", "9"];
    fails(&words, &format!("something answers on port {port} already"))?;
    // It ends in a program that the library is not in.
    let away = ["--lock=auto,fifo", "--", "env", "-u", "LD_PRELOAD", "sleep", "3"];
    fails(&away, "runs without lockwright")?;
    let there = FOLDER.path().join("daemon").display().to_string();
    let daemon = format!(
        "setsid sh -c 'echo > {there}; exec sleep 99' & until [ -e {there} ]; do sleep 0.01; done"
    );
    fails(&["--", "sh", "-c", &daemon], "left 1 process behind, now ended")?;
    Ok(())
}
