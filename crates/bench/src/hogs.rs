//! Hogs: other processes that compute all the time, because users' machines are seldom idle. They stand for programs that
//! are not measured: not pinned, with the same priority as what is measured, and each in a session of its own, because Linux
//! may share out the CPUs among sessions first (`sched_autogroup`). So Ctrl-C doesn't reach them, either.

use crate::compute::compute;
use crate::system;
use anyhow::{Context, Result, bail};
use std::hint::black_box;
use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, parent_id};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Running hogs. They end with this value, and if this process ends.
#[derive(Debug)]
pub struct Hogs {
    hogs: Vec<Child>,
    start: Instant,
    /// The CPU time that they had used by `start`.
    before: Duration,
}

/// What hogs used while they were wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Used {
    /// CPU time, all hogs together.
    pub cpu: Duration,
    /// The time from start to end.
    pub elapsed: Duration,
}

impl Used {
    /// The number of CPUs that they used on average, all together.
    pub fn cpus(self) -> f64 {
        self.cpu.as_secs_f64() / self.elapsed.as_secs_f64().max(1e-9)
    }
}

impl Hogs {
    /// Starts this many, and waits until all of them compute. This program, called with `words` and the number of this
    /// process, must call [`hog`].
    ///
    /// # Errors
    /// One of them could not be started.
    pub fn start(count: u32, words: &[&str]) -> Result<Hogs> {
        let program = std::env::current_exe().context("cannot find our own program file")?;
        let mut hogs = Hogs { hogs: Vec::new(), start: Instant::now(), before: Duration::ZERO };
        for _ in 0..count {
            let mut command = Command::new(&program);
            command.args(words).arg(std::process::id().to_string()).env_remove("LD_PRELOAD");
            command.stdin(Stdio::null()).stdout(Stdio::piped());
            // SAFETY: the closure makes a system call, legal between fork and exec.
            unsafe { command.pre_exec(system::new_session) };
            hogs.hogs.push(command.spawn().context("cannot start a hog")?);
        }
        for hog in &mut hogs.hogs {
            let from = hog.stdout.as_mut().context("a hog says nothing")?;
            from.read_exact(&mut [0]).context("a hog ended before it computed")?;
        }
        (hogs.start, hogs.before) = (Instant::now(), hogs.cpu_time()?);
        Ok(hogs)
    }

    /// Ends them.
    ///
    /// # Errors
    /// One of them had ended already: what was measured was not measured beside it.
    pub fn end(mut self) -> Result<Used> {
        for hog in &mut self.hogs {
            if let Some(status) = hog.try_wait()? {
                bail!("a hog had ended: {status}");
            }
        }
        let cpu = self.cpu_time()?.saturating_sub(self.before);
        Ok(Used { cpu, elapsed: self.start.elapsed() })
    }

    fn cpu_time(&self) -> Result<Duration> {
        let of = |hog: &Child| system::cpu_time_of(hog.id()).context("a hog's CPU time is unknown");
        self.hogs.iter().map(of).sum()
    }
}

impl Drop for Hogs {
    fn drop(&mut self) {
        for hog in &mut self.hogs {
            // An error means that it has ended, which is what we want.
            let _ = hog.kill();
            // Once waited for, it counts as ours in the account of what other programs used.
            let _ = hog.wait();
        }
    }
}

/// Is a hog, until the process `parent` ends.
pub fn hog(parent: u32) {
    compute(black_box(100_000));
    // Fails if nobody reads it: then nobody waits for it.
    let _ = std::io::stdout().write_all(b".").and_then(|()| std::io::stdout().flush());
    // Asking again and again needs no signal that could come too early, and costs nothing beside a million turns.
    while parent_id() == parent {
        compute(black_box(1_000_000));
    }
}
