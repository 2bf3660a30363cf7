//! Commands that are killed at some moment or other: the program is back at its locks within seconds, and nothing half is listed.

use super::ctl::Program;
use super::lockwright;
use anyhow::{Context, Result, ensure};
use lockwright_tests::{End, is_soak};
use serde_json::Value;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Nothing here takes that long. (In a soak: the lease, and some time for a busy machine.)
const PATIENCE: Duration = Duration::from_secs(120);

/// What may be in the way of the next command, or makes no sense: a policy without a table that asks it, or the other way round.
#[derive(Debug)]
struct Seen {
    default: String,
    rules: String,
    posted: bool,
    policies: usize,
}

impl Seen {
    fn of(program: &Program) -> Result<Self> {
        let read = |words: &[&str]| -> Result<Value> {
            let outcome = lockwright().args(words).limit(300).run()?;
            ensure!(outcome.end == End::Code(0), "{words:?}: {}", outcome.describe());
            serde_json::from_str(&outcome.text()).context("JSON")
        };
        let pid = program.pid.to_string();
        let list = read(&["switch", &pid, "list", "-q", "--time=100ms", "--format=json"])?;
        let stats = read(&["policy", "stats", "--pid", &pid, "--format=json"])?;
        Ok(Self {
            default: list["default"].as_str().unwrap_or_default().to_owned(),
            rules: list["rules"].to_string(),
            posted: !list["posted"].is_null(),
            policies: stats["policies"].as_array().map_or(0, Vec::len),
        })
    }

    fn is_whole(&self) -> bool {
        let asks = self.default.contains("programmed") || self.rules.contains("programmed");
        !self.posted && asks == (self.policies > 0)
    }

    fn is_first(&self) -> bool {
        self.is_whole() && self.default == "auto" && self.rules == "[]"
    }
}

#[test]
fn wherever_a_command_is_when_it_is_killed() -> Result<()> {
    const GUARDED: [&[&str]; 4] = [
        &["switch", "PID", "all", "fifo", "--guard=60s", "-q"],
        &["switch", "PID", "g_lock", "cal", "--guard=60s", "-q"],
        &["policy", "load", "big-first", "--pid", "PID", "--guard=60s", "-q"],
        &["policy", "load", "numa", "--pid", "PID", "--lock", "g_lock", "--guard=60s", "-q"],
    ];
    const FOR_GOOD: [&[&str]; 6] = [
        &["switch", "PID", "all", "fifo"],
        &["switch", "PID", "set", "g_lock", "spin=9us"],
        &["switch", "PID", "level", "full", "--for=1s"],
        &["policy", "load", "big-first", "--pid", "PID"],
        &["policy", "load", "numa", "--pid", "PID", "--lock", "g_lock"],
        &["policy", "unload", "--pid", "PID"],
    ];
    let program = Program::start()?;
    let pid = program.pid.to_string();
    let mut random = fastrand::Rng::with_seed(39);
    let rounds = if is_soak() { 1000 } else { 2 };
    let (mut longest, mut late) = (Duration::ZERO, 0);
    for round in 0..rounds {
        let is_guarded = round % 2 == 0;
        let all: &[&[&str]] = if is_guarded { &GUARDED } else { &FOR_GOOD };
        let words = all[random.usize(..all.len())];
        let mut command = Command::new(env!("CARGO_BIN_EXE_lockwright"))
            .args(words.iter().map(|word| if *word == "PID" { &pid } else { *word }))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        sleep(Duration::from_micros(random.u64(..1_500_000)));
        command.kill()?;
        command.wait()?;
        let begun = Instant::now();
        loop {
            let seen = Seen::of(&program)?;
            if if is_guarded { seen.is_first() } else { seen.is_whole() } {
                break;
            }
            ensure!(begun.elapsed() < PATIENCE, "round {round}: {words:?} leaves {seen:?}");
        }
        longest = longest.max(begun.elapsed());
        late += u32::from(begun.elapsed() > Duration::from_secs(5));
        if !is_guarded {
            let unload = lockwright().args(["policy", "unload", "--pid", &pid]).limit(300).run()?;
            ensure!(matches!(unload.end, End::Code(0 | 2)), "{}", unload.describe());
            program.ok(&["all", "auto"])?;
        }
    }
    // How long that takes depends on the machine, so it is told, not judged. (With the looks themselves.)
    println!(
        "{rounds} commands were killed; the program was back after {longest:.1?} at most, {late} times after 5 s"
    );
    program.end().map(drop)
}
