//! A child process with a time limit. It runs in a session of its own; when it ends, or when its time is
//! up, every process of that session is killed, so nothing of it is left behind. If we are killed ourselves, the kernel
//! kills the child.

use anyhow::{Context, Result};
use lockwright_numbers::patience::{Patience, Progress, Up};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{self, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// From here on we say that the machine stood still. Load alone keeps a sleeper waiting for some 10 ms.
const STOOD_STILL: Duration = Duration::from_secs(1);

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It exited with this code.
    Code(i32),
    /// This signal killed it.
    Signal(i32),
    /// It had this time, and we killed it while its threads slept.
    Hung(Duration),
    /// It had this time, and we killed it while its threads ran.
    TimedOut(Duration),
    /// We killed it after this time, in which the machine was too busy for it.
    Starved(Duration),
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Code(code) => write!(f, "exit code {code}"),
            End::Signal(signal) => write!(f, "killed by signal {signal}"),
            End::Hung(limit) => write!(f, "hung: killed after {} s", limit.as_secs()),
            End::TimedOut(limit) => {
                write!(f, "timed out, but went on: killed after {} s", limit.as_secs())
            }
            End::Starved(took) => {
                write!(f, "too busy a machine for it: killed after {} s", took.as_secs())
            }
        }
    }
}

/// What is left of a child.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// How it ended.
    pub end: End,
    /// Everything it wrote to its standard output.
    pub stdout: Vec<u8>,
    /// Everything it wrote to its standard error.
    pub stderr: Vec<u8>,
    /// How long it took.
    pub took: Duration,
    /// The longest time by which we, watching it, overslept.
    pub stall: Duration,
    /// If its time was up: what it did until then.
    pub seen: Option<Progress>,
}

impl End {
    /// Was its time up?
    pub fn is_killed(&self) -> bool {
        matches!(self, End::Hung(_) | End::TimedOut(_) | End::Starved(_))
    }
}

impl Outcome {
    /// How it ended, and, if its time was up, what it did until then.
    pub fn ended(&self) -> String {
        match &self.seen {
            Some(seen) => format!("{} ({seen})", self.end),
            None => self.end.to_string(),
        }
    }

    /// Standard output as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Standard error as text.
    pub fn errors(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// The end and the last lines of both streams, for a failure's message.
    pub fn describe(&self) -> String {
        let tail = |text: String| {
            let lines: Vec<_> = text.lines().collect();
            let last = lines[lines.len().saturating_sub(30)..].iter();
            last.map(|line| clipped(line)).collect::<Vec<_>>().join("\n")
        };
        format!(
            "{}\n--- stdout\n{}\n--- stderr\n{}",
            self.ended(),
            tail(self.text()),
            tail(self.errors())
        )
    }
}

/// A line, as far as somebody may want to read it.
fn clipped(line: &str) -> String {
    let mut clipped: String = line.chars().take(400).collect();
    if clipped.len() < line.len() {
        clipped.push_str(" ...");
    }
    clipped
}

/// A child to be run.
pub struct Child {
    command: Command,
    limit: Duration,
    input: Vec<u8>,
}

impl Child {
    /// A program, found as a shell would find it. It may take five minutes (a machine may be very busy) unless [`limit`](Self::limit) says
    /// otherwise.
    pub fn new(program: impl AsRef<OsStr>) -> Child {
        let mut command = Command::new(program);
        // The environment of the tests may have these set; a test sets what it wants itself.
        command.env_remove("LD_PRELOAD");
        for (name, _) in std::env::vars_os() {
            let is_ours = name.as_encoded_bytes().starts_with(b"LOCKWRIGHT_");
            if is_ours && name != "LOCKWRIGHT_LIBRARY" {
                command.env_remove(name);
            }
        }
        // SAFETY: plain system calls, legal between fork and exec.
        unsafe {
            command.pre_exec(|| {
                // A shell's background job ignores the first two, `nohup` the third, and every child would; theirs is
                // the default.
                for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP] {
                    libc::signal(signal, libc::SIG_DFL);
                }
                rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
                rustix::process::setsid().map(drop).map_err(Into::into)
            });
        }
        Child { command, limit: Duration::from_secs(300), input: Vec::new() }
    }

    /// Adds arguments.
    pub fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Child {
        self.command.args(args);
        self
    }

    /// Sets an environment variable.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Child {
        self.command.env(name, value);
        self
    }

    /// Preloads the library with `lock`, on a machine that counts as one big core and little ones; `None` leaves
    /// the program alone.
    pub fn lock(self, lock: Option<&str>, preload: &OsStr) -> Child {
        let Some(lock) = lock else { return self };
        let child = self.env("LOCKWRIGHT_LOCK", lock).env("LD_PRELOAD", preload);
        match one_big_core() {
            Some(classes) => child.env("LOCKWRIGHT_TOPOLOGY", classes),
            None => child,
        }
    }

    /// Runs it in this folder.
    pub fn dir(mut self, dir: &Path) -> Child {
        self.command.current_dir(dir);
        self
    }

    /// Seconds until its time is up. On a loaded machine these are seconds in which it has the CPUs that it wants (`patience`).
    pub fn limit(mut self, seconds: u64) -> Child {
        self.limit = Duration::from_secs(seconds);
        self
    }

    /// What it reads from its standard input (nothing, unless told).
    pub fn input(mut self, input: impl Into<Vec<u8>>) -> Child {
        self.input = input.into();
        self
    }

    /// Runs it to its end, with both streams kept.
    pub fn run(mut self) -> Result<Outcome> {
        self.run_once()
    }

    /// As [`run`](Self::run); a child that failed while the machine stood still runs once more, and we say so.
    ///
    /// Virtual machines are paused for seconds at times. A wait that had seconds to succeed times out then,
    /// which says nothing about the lock.
    pub fn run_fairly(mut self) -> Result<Outcome> {
        let outcome = self.run_once()?;
        if outcome.end == End::Code(0) || outcome.stall < STOOD_STILL {
            return Ok(outcome);
        }
        let program = self.command.get_program().display();
        eprintln!(
            "'{program}': {}, but the machine stood still for {:.1} s meanwhile: again",
            outcome.ended(),
            outcome.stall.as_secs_f64()
        );
        self.run_once()
    }

    fn run_once(&mut self) -> Result<Outcome> {
        // Files, not pipes: a process that is left behind must not keep us reading.
        let (mut out, mut err) = (tempfile::tempfile()?, tempfile::tempfile()?);
        let Ended { end, took, stall, seen } =
            self.run_to(out.try_clone()?.into(), err.try_clone()?.into())?;
        let (stdout, stderr) = (whole(&mut out)?, whole(&mut err)?);
        Ok(Outcome { end, stdout, stderr, took, stall, seen })
    }

    /// Runs it to its end, both streams to `log`.
    pub fn run_logged(mut self, log: &Path) -> Result<(End, Duration)> {
        let file =
            File::create(log).with_context(|| format!("cannot write '{}'", log.display()))?;
        let ended = self.run_to(file.try_clone()?.into(), file.into())?;
        Ok((ended.end, ended.took))
    }

    /// Runs it to its end, both streams shown as they come.
    pub fn run_shown(mut self) -> Result<(End, Duration)> {
        let ended = self.run_to(Stdio::inherit(), Stdio::inherit())?;
        Ok((ended.end, ended.took))
    }

    /// Starts it and goes on. The thread that does must outlive it, since the kernel kills it with that thread.
    pub fn start(mut self) -> Result<Running> {
        let (out, err) = (tempfile::tempfile()?, tempfile::tempfile()?);
        // Read first: on a busy machine the child runs for a while before we do again.
        let start = Instant::now();
        let session = self.spawn(out.try_clone()?.into(), err.try_clone()?.into())?;
        let patience = Patience::new(self.limit);
        Ok(Running { session, out, err, start, patience, up: None })
    }

    fn spawn(&mut self, out: Stdio, err: Stdio) -> Result<Session> {
        let stdin = if self.input.is_empty() {
            Stdio::null()
        } else {
            let mut file = tempfile::tempfile()?;
            file.write_all(&self.input)?;
            file.seek(SeekFrom::Start(0))?;
            file.into()
        };
        self.command.stdin(stdin).stdout(out).stderr(err);
        let child = self
            .command
            .spawn()
            .with_context(|| format!("cannot start '{}'", self.command.get_program().display()))?;
        Ok(Session(child))
    }

    fn run_to(&mut self, out: Stdio, err: Stdio) -> Result<Ended> {
        let start = Instant::now();
        let mut session = self.spawn(out, err)?;
        let mut stall = Duration::ZERO;
        // From the start to the first waking, and from each to the next: no standstill falls between measurements.
        let mut awake = start;
        let mut patience = Patience::new(self.limit);
        let end = loop {
            if let Some(end) = session.end()? {
                break end;
            }
            if let Some(end) = session.is_up(&mut patience) {
                break end;
            }
            let pause =
                (start.elapsed() / 20).clamp(Duration::from_millis(1), Duration::from_millis(20));
            thread::sleep(pause);
            let now = Instant::now();
            stall = stall.max((now - awake).saturating_sub(pause));
            awake = now;
        };
        let seen = end.is_killed().then(|| patience.seen().clone());
        Ok(Ended { end, took: start.elapsed(), stall: stall.max(awake.elapsed()), seen })
    }
}

/// A child that runs beside us. When this is dropped, it is killed, with all that it started.
pub struct Running {
    session: Session,
    out: File,
    err: File,
    start: Instant,
    patience: Patience,
    up: Option<End>,
}

impl Running {
    /// Its process.
    pub fn pid(&self) -> u32 {
        self.session.0.id()
    }

    /// Since its start.
    pub fn took(&self) -> Duration {
        self.start.elapsed()
    }

    /// How it ended, if it did; its time may be up.
    pub fn end(&mut self) -> Result<Option<End>> {
        if self.up.is_none() {
            self.up = match self.session.end()? {
                None => self.session.is_up(&mut self.patience),
                end => end,
            };
        }
        Ok(self.up)
    }

    /// Asks it to end (SIGTERM), and waits until it has.
    pub fn stop(mut self) -> Result<Outcome> {
        let pid = Pid::from_child(&self.session.0);
        while self.end()?.is_none() {
            // Again and again: it may not have been listening yet.
            kill_process(pid, Signal::TERM)?;
            for _ in 0..100 {
                thread::sleep(Duration::from_millis(2));
                if self.end()?.is_some() {
                    break;
                }
            }
        }
        self.outcome()
    }

    /// What is left of it, once it has ended.
    pub fn outcome(mut self) -> Result<Outcome> {
        let end = self.end()?.context("the child still runs")?;
        let took = self.took();
        drop(self.session);
        let (stdout, stderr) = (whole(&mut self.out)?, whole(&mut self.err)?);
        let seen = end.is_killed().then(|| self.patience.seen().clone());
        Ok(Outcome { end, stdout, stderr, took, stall: Duration::ZERO, seen })
    }
}

/// All that a file holds.
fn whole(file: &mut File) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A child that leads a session. Dropped, all of the session is killed.
struct Session(process::Child);

impl Session {
    fn end(&mut self) -> Result<Option<End>> {
        let status = self.0.try_wait()?;
        Ok(status.map(|status| match (status.code(), status.signal()) {
            (Some(code), _) => End::Code(code),
            (None, signal) => End::Signal(signal.unwrap_or(0)),
        }))
    }

    /// Looks, if it is time to. `Some`: its time is up.
    fn is_up(&self, patience: &mut Patience) -> Option<End> {
        if !patience.is_due() {
            return None;
        }
        let members = members(self.0.id()).into_iter();
        let pids = members.map(|pid| pid.as_raw_nonzero().get() as u32).collect::<Vec<_>>();
        let (up, limit) = (patience.look(&pids)?, patience.limit());
        Some(match up {
            Up::Hangs => End::Hung(limit),
            Up::Runs => End::TimedOut(limit),
            Up::Starved => End::Starved(patience.passed()),
        })
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        kill_session(self.0.id());
        // Killed or ended: it has only to be taken note of.
        let _ = self.0.wait();
    }
}

/// A child's end, without what it wrote.
struct Ended {
    end: End,
    took: Duration,
    stall: Duration,
    seen: Option<Progress>,
}

/// Kills every process of a session, again until none is left (they may be forking).
fn kill_session(session: u32) {
    // A killed process ends when it gets a CPU; one that the kernel holds back may never.
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(20) {
        let members = members(session);
        if members.is_empty() {
            return;
        }
        for pid in members {
            // It may be gone by now, which is what we want.
            let _ = kill_process(pid, Signal::KILL);
        }
        thread::sleep(Duration::from_millis(2));
    }
}

/// The living processes of a session.
fn members(session: u32) -> Vec<Pid> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            // A process's name may be any bytes.
            let stat = fs::read(entry.path().join("stat")).ok()?;
            let stat = String::from_utf8_lossy(&stat);
            // "pid (name) state ppid pgrp session ..."; the name may hold anything.
            let (_, rest) = stat.rsplit_once(") ")?;
            let mut fields = rest.split(' ');
            let state = fields.next()?;
            let theirs: u32 = fields.nth(2)?.parse().ok()?;
            (theirs == session && state != "Z").then(|| Pid::from_raw(pid)).flatten()
        })
        .collect()
}

/// Classes in which CPU 0 is big and all others little, so that locks that ask for classes have both; `None`: there is
/// but one CPU, or they are not numbered 0 to N.
fn one_big_core() -> Option<String> {
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").ok()?;
    let last: u32 = online.trim().strip_prefix("0-")?.parse().ok()?;
    Some(if last == 1 { "big:0,little:1".into() } else { format!("big:0,little:1-{last}") })
}

#[cfg(test)]
mod tests;
