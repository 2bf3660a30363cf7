//! A policy moves a thread up in a line of waiters (line.c), natively: in an order that no machine's speed decides.

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
        let program = compiled("line", "line.c", &[]);
        let mut command = Command::new(program);
        command.env("LD_PRELOAD", &*LIBRARY).env("LOCKWRIGHT_LOCK", "fifo");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut output = BufReader::new(child.stdout.take().context("its output")?).lines();
        output.next().context("it has ended")??; // it is ready
        Ok(Self { child, output })
    }

    /// How many had the mutex before the thread with the tag, in a few rounds; sorted.
    fn before(&mut self) -> Result<Vec<u32>> {
        let round = |_| {
            self.child.stdin.as_mut().context("its input")?.write_all(b"x")?;
            let said = self.output.next().context("it has ended")??;
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
