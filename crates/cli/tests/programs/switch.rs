//! `lockwright switch`: other locks, while the program runs.

use super::{compiled, lockwright};
use anyhow::{Context, Result, ensure};
use lockwright_tests::{End, Outcome};
use std::fs;
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::LazyLock;

/// A program that contends for its locks when it is told to.
pub(super) struct Program {
    pub(super) child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Program {
    pub(super) fn start(lock: &str) -> Result<Self> {
        static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| compiled("switch", "switch.c", &[]));
        let mut child = Command::new(&*PROGRAM)
            .env("LD_PRELOAD", &*super::LIBRARY)
            .env("LOCKWRIGHT_LOCK", lock)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let output = BufReader::new(output.context("its output")?).lines();
        Ok(Self { child, input: input.context("its input")?, output })
    }

    /// On which kinds of locks it contends now.
    pub(super) fn round(&mut self) -> Result<String> {
        self.input.write_all(b"\n")?;
        let line = self.output.next().context("it has ended")??;
        let (kinds, count) = line.rsplit_once(", ").context("kinds and a count")?;
        ensure!(count == "12000", "it has counted {count}");
        Ok(kinds.to_owned())
    }

    /// Runs `lockwright switch` on it, while it contends again and again.
    fn switch(&mut self, arguments: &[&str]) -> Result<Outcome> {
        let pid = self.child.id().to_string();
        let arguments: Vec<String> = arguments.iter().map(|&a| a.to_owned()).collect();
        let command =
            std::thread::spawn(move || lockwright().args(["switch", &pid]).args(arguments).run());
        while !command.is_finished() {
            self.round()?;
        }
        command.join().expect("it does not panic")
    }

    fn switch_to(&mut self, arguments: &[&str]) -> Result<String> {
        let outcome = self.switch(arguments)?;
        ensure!(outcome.end == End::Code(0), "{}", outcome.describe());
        if outcome.text().contains("posted") {
            // On a machine where seconds pass between two waits. The next wait sees it.
            self.round()?;
        }
        self.round()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn locks_change_under_a_program_that_contends_for_them() -> Result<()> {
    let mut program = Program::start("auto")?;
    let has = |program: &mut Program, text: &str| {
        let outcome = program.switch(&[])?;
        ensure!(outcome.text().contains(text), "{}", outcome.describe());
        Ok(())
    };
    has(&mut program, "(switch): auto; counts: ")?;
    ensure!(program.round()? == "a line, a line");
    for (lock, kinds) in [
        ("fifo:spin=0", "a line, a line"),
        ("mcs", "a textbook lock, a textbook lock"),
        ("pb10", "a line, a line"),
        ("mcs", "a textbook lock, a textbook lock"),
        ("auto", "a line, a line"),
    ] {
        let seen = program.switch_to(&[lock])?;
        ensure!(seen == kinds, "{lock}: {seen}");
        has(&mut program, lock)?;
    }
    Ok(())
}

/// A mutex whose lock was decided long ago follows a rule that is new.
#[test]
fn a_rule_reaches_a_mutex_that_is_in_use() -> Result<()> {
    let mut program = Program::start("auto")?;
    ensure!(program.round()? == "a line, a line");
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("locks.toml");
    let write = |text: &str| fs::write(&file, text);
    let config = ["--config", file.to_str().context("a path in UTF-8")?];
    write("[[lock]]\nmutex = \"g_other\"\nuse = \"mcs\"\n")?;
    ensure!(program.switch_to(&config)? == "a line, a textbook lock");
    write("[[lock]]\nmutex = \"g_lock\"\nuse = \"mcs\"\n")?;
    ensure!(program.switch_to(&config)? == "a textbook lock, a line");
    write("default = \"mcs\"\n[[lock]]\nmutex = \"g_lock\"\nuse = \"fifo\"\n")?;
    ensure!(program.switch_to(&config)? == "a line, a textbook lock");
    Ok(())
}

#[test]
fn what_can_not_be_is_refused_and_nothing_changes() -> Result<()> {
    let mut program = Program::start("mcs")?;
    program.round()?;
    let outcome = program.switch(&["ticket"])?;
    ensure!(outcome.end == End::Code(2), "{}", outcome.describe());
    ensure!(
        outcome.errors().contains("one textbook lock in its life, 'mcs', and not 'ticket'"),
        "{}",
        outcome.describe()
    );
    ensure!(program.switch(&[])?.text().contains("(switch): mcs; counts: "));
    ensure!(program.switch_to(&["auto"])? == "a line, a line");
    Ok(())
}

#[test]
fn a_program_without_us_says_so() -> Result<()> {
    let own = std::process::id().to_string();
    let outcome = lockwright().args(["switch", &own, "fifo"]).run()?;
    ensure!(outcome.end == End::Code(2), "{}", outcome.describe());
    ensure!(outcome.errors().contains("runs without lockwright"), "{}", outcome.describe());
    // Nobody waits in this one.
    let mut idle = Program::start("auto")?;
    let pid = idle.child.id().to_string();
    let outcome = lockwright().args(["switch", &pid, "mcs"]).run()?;
    ensure!(outcome.text().contains("posted"), "{}", outcome.describe());
    let outcome = lockwright().args(["switch", &pid]).run()?;
    ensure!(outcome.text().contains(": auto; counts: "), "{}", outcome.describe());
    ensure!(outcome.text().contains("\nposted, not in effect yet: mcs"), "{}", outcome.describe());
    idle.round()?;
    ensure!(idle.round()? == "a textbook lock, a textbook lock");
    Ok(())
}
