//! What each shipped policy does to the threads of a program, natively, where no machine's speed decides: most change who goes first in a
//! line of waiters (line.c, effects.c); one raises the holder's priority (boost.c), one changes how readers read, one counts.
//!
//! Not here, but on the virtual machine (crates/policy/tests/effects.rs): `parking` and `vcpu`, since which waiters are awake is the
//! machine's business; and `numa` and `numa-turns` on a machine with one NUMA node.

use super::{LIBRARY, compiled, lockwright};
use anyhow::{Context, Result, ensure};
use lockwright_policy::shipped::shipped;
use lockwright_tests::End;
use serde_json::Value;
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};
use std::{fs, thread};

/// How many threads come before the one with the tag.
const AHEAD: u32 = 12;
const ROUNDS: usize = 5;
/// Nothing here takes that long.
const PATIENCE: Duration = Duration::from_secs(120);

/// It ends with its input.
struct Line {
    child: Child,
    output: Lines<BufReader<ChildStdout>>,
}

impl Line {
    fn start() -> Result<Self> {
        Self::start_as("line", "line.c")
    }

    fn start_as(name: &str, source: &str) -> Result<Self> {
        Self::start_with(&compiled(name, source, &[]), &[])
    }

    fn start_with(program: &Path, words: &[&str]) -> Result<Self> {
        let mut command = Command::new(program);
        command.args(words);
        if let Some(classes) = one_big_core() {
            command.env("LOCKWRIGHT_TOPOLOGY", classes);
        }
        command.env("LD_PRELOAD", &*LIBRARY).env("LOCKWRIGHT_LOCK", "fifo");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut output = BufReader::new(child.stdout.take().context("its output")?).lines();
        output.next().context("it has ended")??; // it is ready
        Ok(Self { child, output })
    }

    /// What it prints for a byte of input.
    fn round(&mut self) -> Result<String> {
        self.child.stdin.as_mut().context("its input")?.write_all(b"x")?;
        Ok(self.output.next().context("it has ended")??)
    }

    /// How many had the mutex before the thread with the tag, in a few rounds; sorted.
    fn before(&mut self) -> Result<Vec<u32>> {
        let round = |_| {
            let said = self.round()?;
            said.parse::<u32>().with_context(|| format!("'{said}' instead of a number"))
        };
        let mut all = (0..ROUNDS).map(round).collect::<Result<Vec<u32>>>()?;
        all.sort_unstable();
        Ok(all)
    }

    fn number(&mut self) -> Result<u64> {
        let said = self.round()?;
        said.parse().with_context(|| format!("'{said}' instead of a number"))
    }

    /// What it prints is like that some time, as it must be.
    fn comes_to(&mut self, what: &str, is_so: impl Fn(u64) -> bool) -> Result<()> {
        let begun = Instant::now();
        loop {
            let said = self.number()?;
            if is_so(said) {
                return Ok(());
            }
            ensure!(begun.elapsed() < PATIENCE, "{what}: it still says {said}");
        }
    }

    fn policy(&self, words: &[&str]) -> Result<String> {
        let pid = self.child.id().to_string();
        let outcome = lockwright().args(["policy"]).args(words).args(["--pid", &pid]).run()?;
        ensure!(outcome.end == End::Code(0), "{words:?}: {}", outcome.describe());
        Ok(outcome.text())
    }
}

/// CPU 0 is big, and all others are little; `None`: there are no others.
fn one_big_core() -> Option<String> {
    let online = fs::read_to_string("/sys/devices/system/cpu/online").ok()?;
    match online.trim().strip_prefix("0-")? {
        "1" => Some("big:0,little:1".into()),
        last => Some(format!("big:0,little:1-{}", last.parse::<u32>().ok()?)),
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_policy_priority_moves_a_thread_with_a_tag_up_the_line() -> Result<()> {
    let mut line = Line::start()?;
    let in_order = [AHEAD; ROUNDS];
    ensure!(line.before()? == in_order, "fifo keeps the order");
    line.policy(&["load", "priority", "--quiet"])?;
    let with = line.before()?;
    // Those at the front choose early or late; most often early.
    ensure!(with[ROUNDS / 2] < AHEAD && with[ROUNDS - 1] <= AHEAD, "it stays behind: {with:?}");
    line.policy(&["unload"])?;
    // It is still posted: a round may be over before it is taken up.
    line.before()?;
    let without = line.before()?;
    ensure!(without == in_order, "without the policy: {without:?}");
    Ok(())
}

/// The waiter is alone in line (boost.c).
#[test]
fn the_policy_pi_gives_the_holder_the_waiters_priority() -> Result<()> {
    let mut line = Line::start_as("boost", "boost.c")?;
    line.policy(&["load", "pi", "--quiet"])?;
    for _ in 0..2 {
        let said = line.round()?;
        if said == "refused" {
            eprintln!("skipped: the kernel gives no real-time priority");
            return Ok(());
        }
        ensure!(
            said == "7 0",
            "the holder's priority, while it is waited for and afterwards: {said}"
        );
    }
    Ok(())
}

static EFFECTS: LazyLock<PathBuf> = LazyLock::new(|| compiled("effects", "effects.c", &[]));

/// A policy; the role of a thread in effects.c, and what that prints without it; and what it prints, sooner or later, with it.
struct Effect {
    policy: &'static str,
    options: &'static [&'static str],
    role: &'static str,
    without: u64,
    with: fn(u64) -> bool,
    /// Cores of two classes, on two CPUs.
    needs_classes: bool,
}

impl Effect {
    fn check(&self) -> Result<()> {
        let Effect { policy, role, without, .. } = *self;
        let cpus = thread::available_parallelism()?.get();
        if self.needs_classes && (cpus < 2 || one_big_core().is_none()) {
            eprintln!("skipped: {policy} needs two CPUs");
            return Ok(());
        }
        let mut line = Line::start_with(&EFFECTS, &[role])?;
        for _ in 0..2 {
            let said = line.number()?;
            ensure!(said == without, "{role}, without a policy: {said}");
        }
        line.policy(&[&["load", policy, "--quiet"], self.options].concat())?;
        line.comes_to(&format!("{role} with {policy}"), self.with)?;
        line.policy(&["unload"])?;
        line.comes_to(&format!("{role} after {policy}"), |said| said == without)
    }
}

const PLAIN: Effect = Effect {
    policy: "",
    options: &[],
    role: "",
    without: 8,
    with: |had| had < 8,
    needs_classes: false,
};
/// A machine may take long until all are in line.
const LONG: &[&str] = &["--set", "most_ns=100000000", "--set", "period_ns=100000000000"];
const EFFECT: &[Effect] = &[
    Effect {
        policy: "big-first",
        options: &["--set", "most_ns=100000000000"],
        role: "big",
        needs_classes: true,
        ..PLAIN
    },
    Effect { policy: "cal", role: "short", needs_classes: true, ..PLAIN },
    Effect { policy: "call-path", role: "epoch", ..PLAIN },
    Effect { policy: "inheritance", role: "holds", ..PLAIN },
    Effect { policy: "scl", options: LONG, role: "long", ..LATER },
    Effect { policy: "scl-amp", options: LONG, role: "long", ..LATER },
    Effect { policy: "tenants", options: LONG, role: "long", ..LATER },
    Effect { policy: "slo-order", role: "little", needs_classes: true, ..LATER },
    Effect {
        policy: "proportional",
        role: "littles",
        without: 1,
        with: |had| had > 1,
        needs_classes: true,
        ..PLAIN
    },
    Effect { policy: "bravo", role: "reader", without: 0, with: |is| is == 1, ..PLAIN },
];
const LATER: Effect = Effect { without: 0, with: |had| had > 0, ..PLAIN };

#[test]
fn shipped_policies_do_what_their_pages_say() -> Result<()> {
    EFFECT.iter().try_for_each(Effect::check)
}

#[test]
fn the_policy_histogram_counts_each_wait() -> Result<()> {
    let mut line = Line::start_with(&EFFECTS, &["long"])?;
    line.policy(&["load", "histogram", "--quiet"])?;
    line.round()?; // it is taken up
    let waits = |line: &Line| -> Result<u64> {
        let stats: Value = serde_json::from_str(&line.policy(&["stats", "--format=json"])?)?;
        let maps = stats["policies"][0]["maps"].as_array().context("maps")?;
        let waits = maps.iter().find(|map| map["name"] == "waits").context("waits")?;
        let shown = waits["shown"].as_array().context("what is shown")?;
        Ok(shown.iter().filter_map(|one| one["value"][0].as_u64()).sum())
    };
    let before = waits(&line)?;
    line.round()?;
    let now = waits(&line)?;
    ensure!(now >= before + 15, "16 threads waited: {before}, then {now}");
    Ok(())
}

/// Who adds a policy says what it does, here or on the virtual machine.
#[test]
fn each_shipped_policy_has_a_test_of_its_effect() {
    let elsewhere = ["histogram", "numa", "numa-turns", "parking", "pi", "priority", "vcpu"];
    for policy in shipped() {
        let is_here = EFFECT.iter().any(|effect| effect.policy == policy.name);
        assert!(is_here != elsewhere.contains(&policy.name), "{}", policy.name);
    }
}
