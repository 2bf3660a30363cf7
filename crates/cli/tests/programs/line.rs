//! What policies do to the threads of a program, natively, where no machine's speed decides: one moves a thread up in a line of waiters
//! (line.c), another one raises the holder's priority (boost.c).

use super::{LIBRARY, compiled, lockwright};
use anyhow::{Context, Result, ensure};
use lockwright_tests::End;
use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

/// How many threads come before the one with the tag.
const AHEAD: u32 = 12;
const ROUNDS: usize = 5;

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
        let program = compiled(name, source, &[]);
        let mut command = Command::new(program);
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

    fn policy(&self, words: &[&str]) -> Result<()> {
        let pid = self.child.id().to_string();
        let outcome = lockwright().args(["policy"]).args(words).args(["--pid", &pid]).run()?;
        ensure!(outcome.end == End::Code(0), "{words:?}: {}", outcome.describe());
        Ok(())
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
