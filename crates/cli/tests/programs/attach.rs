//! `lockwright attach` and `detach`: programs that run already.

use super::{FOLDER, compiled, lockwright};
use anyhow::{Context, Result, ensure};
use lockwright_tests::{End, Outcome, executable};
use std::fs;
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::LazyLock;
use std::thread::sleep;
use std::time::Duration;

/// A program all of whose threads work all the time, and check what they do.
struct Program {
    child: Child,
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
}

impl Program {
    fn start(arguments: &[&str]) -> Result<Self> {
        static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| compiled("attach", "attach.c", &[]));
        let mut program = Self::begin(&PROGRAM, arguments)?;
        program.works()?;
        Ok(program)
    }

    fn begin(path: &Path, arguments: &[&str]) -> Result<Self> {
        // Built before all its threads need a CPU.
        LazyLock::force(&super::LIBRARY);
        let mut child = Command::new(path)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = BufReader::new(child.stdout.take().context("its output")?).lines();
        Ok(Self { input: child.stdin.take(), child, output })
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }

    /// Runs a command on it.
    fn run(&self, command: &str, arguments: &[&str]) -> Result<Outcome> {
        let words = if command == "profile" { "profile -p" } else { command };
        lockwright().args(words.split(' ')).args([&self.pid()]).args(arguments).run()
    }

    /// The same, which must go well.
    fn must(&self, command: &str, arguments: &[&str]) -> Result<String> {
        let outcome = self.run(command, arguments)?;
        ensure!(outcome.end == End::Code(0), "{command}: {}", outcome.describe());
        Ok(outcome.text())
    }

    /// The same, which must be refused for this reason.
    fn must_not(&self, command: &str, arguments: &[&str], why: &str) -> Result<()> {
        let outcome = self.run(command, arguments)?;
        ensure!(outcome.end == End::Code(2), "{command}: {}", outcome.describe());
        ensure!(outcome.errors().contains(why), "{command}: {}", outcome.describe());
        Ok(())
    }

    fn says(&mut self) -> Result<String> {
        self.output.next().context("it has ended")?.context("it says something")
    }

    /// What it answers.
    fn asked(&mut self) -> Result<String> {
        self.input.as_mut().context("its input")?.write_all(b"count\n")?;
        self.says()
    }

    /// Each of its threads does something.
    fn works(&mut self) -> Result<()> {
        let line = self.asked()?;
        ensure!(line.parse::<u64>().is_ok(), "{line}");
        Ok(())
    }

    /// Ends it; what it has counted adds up.
    fn end(mut self) -> Result<()> {
        self.input = None;
        let line = self.says()?;
        ensure!(line == "it adds up", "{line}");
        ensure!(self.child.wait()?.success());
        Ok(())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where we may not trace our own children, there is nothing to test.
fn can_trace() -> Result<bool> {
    let program = Program::start(&[])?;
    let outcome = program.run("attach", &[])?;
    let is_refused = ["may not stop", "may not reach", "seccomp"];
    let refusal = is_refused.iter().find(|why| outcome.errors().contains(**why));
    if let Some(refusal) = refusal {
        eprintln!("skipped: '{refusal}' in {}", outcome.errors());
    }
    program.end()?;
    Ok(refusal.is_none())
}

#[test]
fn locks_come_and_go_under_a_program_that_uses_them() -> Result<()> {
    if !can_trace()? {
        return Ok(());
    }
    let mut program = Program::start(&[])?;
    program.must_not("attach --undo", &[], "is not attached")?;
    for lock in ["auto", "fifo", "mcs"] {
        let said = program.must("attach", &["--lock", lock])?;
        ensure!(said.contains(&format!("attached, {lock};")), "{said}");
        program.works()?;
        let said = program.must("switch", &[])?;
        ensure!(said.contains(lock), "{said}");
        program.must_not("attach", &[], "is already attached")?;
        program.must("switch", &["barging"])?;
        program.works()?;
        program.must("attach --undo", &[])?;
        program.works()?;
        program.must_not("switch", &["fifo"], "has been detached")?;
    }
    program.must_not("attach --undo", &[], "is not attached")?;
    // The commands that watch say so, too, instead of seeing nothing. Old counts stay readable.
    for (command, arguments) in [
        ("switch", &[][..]),
        ("switch", &["level", "full"]),
        ("switch", &["reset"]),
        ("top", &["--batch", "--count", "1"]),
        ("profile", &["--time", "1"]),
    ] {
        program.must_not(
            command,
            arguments,
            &format!("has been detached\nhint: lockwright attach {}\n", program.pid()),
        )?;
    }
    program.must("attach", &[])?;
    program.works()?;
    program.end()
}

/// Mutexes that are held, and slept for, while the program's calls change; and a condition variable that is waited for.
#[test]
fn holders_and_sleepers_stay_what_they_are() -> Result<()> {
    if !can_trace()? {
        return Ok(());
    }
    let path = compiled("across", "across.c", &[]);
    for lock in ["auto", "fifo"] {
        let mut program = Program::begin(&path, &[])?;
        ensure!(program.says()? == "begun");
        for _ in 0..3 {
            program.must("attach", &["--lock", lock])?;
            for _ in 0..2 {
                let line = program.asked()?;
                ensure!(line == "0 errors, 5 of 5 woken", "{lock}, attached: {line}");
            }
            program.must("attach --undo", &[])?;
            let line = program.asked()?;
            ensure!(line == "0 errors, 5 of 5 woken", "{lock}, detached: {line}");
        }
        program.must("attach", &[])?;
        program.input = None;
        let line = program.says()?;
        ensure!(line == "0 errors", "{lock}: {line}");
    }
    Ok(())
}

/// Wherever the command is, when it is killed.
#[test]
fn a_command_that_is_killed_leaves_the_program_alone() -> Result<()> {
    if !can_trace()? {
        return Ok(());
    }
    for _ in 0..2 {
        let mut program = Program::start(&["may be cut short"])?;
        for step in 0..8 {
            let command = if step % 4 == 3 { &["attach", "--undo"][..] } else { &["attach"] };
            let mut child = Command::new(env!("CARGO_BIN_EXE_lockwright"))
                .args(command)
                .arg(program.pid())
                .env("LOCKWRIGHT_LIBRARY", &*super::LIBRARY)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()?;
            sleep(Duration::from_micros(2000 * step));
            child.kill()?;
            child.wait()?;
            program.works()?;
        }
        // The next one goes on from there.
        let outcome = program.run("attach", &[])?;
        let is_there = outcome.end == End::Code(0) || outcome.errors().contains("already");
        ensure!(is_there, "{}", outcome.describe());
        program.works()?;
        program.must("attach --undo", &[])?;
        program.works()?;
        program.end()?;
    }
    Ok(())
}

#[test]
fn what_can_not_be_attached_to_is_refused() -> Result<()> {
    let refused = |pid: u32, why: &str| {
        let outcome = lockwright().args(["attach", &pid.to_string()]).run()?;
        ensure!(outcome.end == End::Code(2), "{}", outcome.describe());
        ensure!(outcome.errors().contains(why), "{why}: {}", outcome.describe());
        Ok(())
    };
    let mut program = Program::start(&["may be cut short"])?;
    // Stopped.
    let pid = program.child.id();
    let signal = |signal: i32| {
        // SAFETY: our own child.
        unsafe { libc::kill(pid as libc::pid_t, signal) };
    };
    signal(libc::SIGSTOP);
    let state = || fs::read_to_string(format!("/proc/{pid}/stat"));
    while !state()?.contains(") T ") {
        sleep(Duration::from_millis(1));
    }
    refused(pid, "it is stopped")?;
    signal(libc::SIGCONT);
    program.works()?;
    // Preloaded.
    let mut child = Command::new("sleep").arg("100").env("LD_PRELOAD", &*super::LIBRARY).spawn()?;
    // Once it sleeps, it has been loaded.
    let sleeps = format!("{} ", libc::SYS_clock_nanosleep);
    while !fs::read_to_string(format!("/proc/{}/syscall", child.id()))?.starts_with(&sleeps) {
        sleep(Duration::from_millis(1));
    }
    let outcome = refused(child.id(), "was started with lockwright");
    child.kill()?;
    child.wait()?;
    outcome?;
    // A zombie.
    let mut child = Command::new("true").spawn()?;
    while !fs::read_to_string(format!("/proc/{}/stat", child.id()))?.contains(") Z ") {
        sleep(Duration::from_millis(1));
    }
    refused(child.id(), "has ended")?;
    child.wait()?;
    program.end()
}

/// A thread that is always busy can't load a library, and one that handles a signal may have interrupted `malloc`.
#[test]
fn a_thread_that_must_not_be_disturbed_is_not() -> Result<()> {
    if !can_trace()? {
        return Ok(());
    }
    LazyLock::force(&super::LIBRARY);
    let one = |name: &str, flags: &[&str], why: &str| {
        let path = compiled(name, "alone.c", flags);
        let mut child = Command::new(&path).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("its output")?).read_line(&mut line)?;
        let outcome = lockwright().args(["attach", &child.id().to_string()]).run();
        child.kill()?;
        child.wait()?;
        let outcome = outcome?;
        ensure!(outcome.end == End::Code(2), "{name}: {}", outcome.describe());
        ensure!(outcome.errors().contains(why), "{name}: {}", outcome.describe());
        Ok(())
    };
    // At once: each is looked at for seconds.
    std::thread::scope(|scope| {
        let all = [
            scope.spawn(|| one("busy", &["-DBUSY"], "within 3 s: 1 ran or waited for locks")),
            scope.spawn(|| one("handler", &["-DHANDLER"], "within 3 s: 1 handled a signal")),
            scope.spawn(|| {
                one("small", &["-DBUSY", "-DSMALL"], "locks, 1 had less than 64 KiB of stack left")
            }),
            scope.spawn(|| one("static", &["-static", "-DBUSY"], "statically linked")),
        ];
        all.into_iter().try_for_each(|thread| thread.join().expect("it does not panic"))
    })
}

/// The kernel no longer shows in which call a thread sleeps once that thread has been stopped.
#[test]
fn a_thread_that_was_stopped_before_sleeps_on() -> Result<()> {
    if !can_trace()? {
        return Ok(());
    }
    let mut child = Command::new("sleep").arg("600").spawn()?;
    let pid = child.id();
    let is_in = |call: libc::c_long| {
        let text = fs::read_to_string(format!("/proc/{pid}/syscall"))?;
        Ok::<_, anyhow::Error>(text.starts_with(&format!("{call} ")))
    };
    while !is_in(libc::SYS_clock_nanosleep)? {
        sleep(Duration::from_millis(1));
    }
    for signal in [libc::SIGSTOP, libc::SIGCONT] {
        // SAFETY: our own child.
        unsafe { libc::kill(pid as libc::pid_t, signal) };
        let stops = signal == libc::SIGSTOP;
        while fs::read_to_string(format!("/proc/{pid}/stat"))?.contains(") T ") != stops {
            sleep(Duration::from_millis(1));
        }
    }
    while !is_in(libc::SYS_restart_syscall)? {
        sleep(Duration::from_millis(1));
    }
    let outcome = lockwright().args(["attach", &pid.to_string()]).run()?;
    let sampled = || {
        lockwright().args(["profile", "--sample", "--time", "100ms", "-p", &pid.to_string()]).run()
    };
    let before = sampled()?;
    let detached = lockwright().args(["attach", "--undo", &pid.to_string()]).run()?;
    let after = sampled()?;
    let end = child.try_wait()?;
    child.kill()?;
    child.wait()?;
    ensure!(outcome.end == End::Code(0), "{}", outcome.describe());
    ensure!(end.is_none(), "it woke: {end:?}");
    // `profile --sample` knows whose locks it has.
    let note = "it runs under lockwright";
    ensure!(before.text().contains(note), "{}", before.describe());
    ensure!(detached.end == End::Code(0), "{}", detached.describe());
    ensure!(after.end == End::Code(0) && !after.text().contains(note), "{}", after.describe());
    Ok(())
}

/// A program for 32 bits can't have our library. It only sleeps.
#[test]
fn a_program_for_other_processors_runs_without_us() -> Result<()> {
    const BASE: u32 = 0x0804_8000;
    let code = [0xb8, 0x1d, 0, 0, 0, 0xcd, 0x80, 0xeb, 0xf7]; // pause(), over and over
    let half = |number: u16| number.to_le_bytes().to_vec();
    let word = |number: u32| number.to_le_bytes().to_vec();
    let mut file = b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    // An executable for the 80386, of version 1, that begins right after the headers: of 52 bytes, and one of 32.
    file.extend([half(2), half(3), word(1), word(BASE + 84), word(52), word(0), word(0)].concat());
    file.extend([half(52), half(32), half(1), half(40), half(0), half(0)].concat());
    // All of it is loaded, to be read and executed.
    let length = 84 + code.len() as u32;
    file.extend([1, 0, BASE, BASE, length, length, 5, 4096].map(u32::to_le_bytes).concat());
    file.extend(code);
    let path = FOLDER.path().join("pause32");
    executable(&path, file)?;
    let mut child = match Command::new(&path).spawn() {
        Ok(child) => child,
        Err(why) => {
            println!("skipped: no 32-bit programs here: {why}");
            return Ok(());
        }
    };
    let pid = child.id().to_string();
    let all = [&["attach", &pid][..], &["switch", &pid], &["top", &pid, "--batch", "--count=1"]];
    let said = all.map(|words| lockwright().args(words).run());
    child.kill()?;
    child.wait()?;
    for (outcome, why) in
        said.into_iter().zip(["32 bits", "without lockwright", "without lockwright"])
    {
        let outcome = outcome?;
        ensure!(outcome.end == End::Code(2), "{}", outcome.describe());
        ensure!(outcome.errors().contains(why), "{}", outcome.describe());
    }
    Ok(())
}
