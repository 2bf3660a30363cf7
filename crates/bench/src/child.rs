//! Runs one worker in its own process group, with a time limit, and reads its answer.

use crate::spec::{Answer, Spec};
use crate::subject::Subject;
use anyhow::{Context, Result};
use lockwright_numbers::patience::{Patience, Up};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Variables about the machine. They affect the locks, so workers inherit them.
pub(crate) const OF_MACHINE: [&str; 2] = ["LOCKWRIGHT_TOPOLOGY", "LOCKWRIGHT_PAUSE"];

/// How a worker ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// With an answer, and with its output on standard error.
    Answered(Box<Answer>, String),
    /// It exceeded its time limit, and was killed: after this time, s. The text describes the states of its threads.
    Hung(f64, String),
    /// It failed for this reason.
    Failed(String),
}

/// Measures `spec` with `subject`. Kills the worker after `limit`, or later on a loaded machine ([`Patience`]).
pub(crate) fn run(subject: &Subject, spec: &Spec, limit: Duration) -> Result<Outcome> {
    let program = std::env::current_exe().context("cannot find our own program file")?;
    let mut command = Command::new(program);
    command
        .args(["bench", "--worker", &serde_json::to_string(spec)?])
        .env_remove("LD_PRELOAD")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    // Remove variables that our caller set for its own programs, except those about the machine.
    for (name, _) in std::env::vars_os() {
        let mut of_machine = OF_MACHINE.iter().chain([&lockwright_energy::VARIABLE]);
        let is_machine = of_machine.any(|one| name == *one);
        if name.as_encoded_bytes().starts_with(b"LOCKWRIGHT_") && !is_machine {
            command.env_remove(name);
        }
    }
    if let Some(emulate) = &spec.point.emulate {
        command.env("LOCKWRIGHT_EMULATE", emulate);
    }
    if let Some(library) = &subject.preload {
        command.env("LD_PRELOAD", library);
    }
    if let Some(choice) = &subject.choice {
        command.env("LOCKWRIGHT_LOCK", choice);
    }
    let mut child = command.spawn().context("cannot start a worker")?;
    let group = child.id() as i32;
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut patience = Patience::new(limit);
    let (mut stdout, mut stderr) = (child.stdout.take(), child.stderr.take());
    let up = loop {
        // Blocked in poll, this process leaves the CPUs to the worker. It looks at the worker only when that is late.
        let pause = limit.checked_sub(patience.passed()).unwrap_or(patience.pause());
        let arrived = if stdout.is_some() {
            drain(&mut stdout, &mut out, pause)?
        } else if stderr.is_some() {
            drain(&mut stderr, &mut err, pause)?
        } else {
            break None;
        };
        let is_late = !arrived && patience.passed() >= limit;
        if let Some(up) = is_late.then(|| patience.look(&[child.id()])).flatten() {
            break Some(up);
        }
    };
    let mut state = String::new();
    if up.is_some() {
        state = threads_of(child.id());
        // SAFETY: a signal to our own process group, whose leader has not been reaped.
        unsafe { libc::kill(-group, libc::SIGKILL) };
    }
    let status = child.wait().context("cannot wait for a worker")?;
    let after = patience.passed().as_secs_f64();
    match up {
        Some(Up::Starved) => {
            let had = patience.had().as_secs_f64();
            return Ok(Outcome::Failed(format!(
                "killed after {after:.0} s, of which it had enough CPU time for {had:.1} s only"
            )));
        }
        Some(_) => return Ok(Outcome::Hung(after, state)),
        None => {}
    }
    let said = String::from_utf8_lossy(&err);
    match serde_json::from_slice::<Answer>(&out) {
        Ok(answer) if status.success() => {
            Ok(Outcome::Answered(Box::new(answer), said.trim().into()))
        }
        _ => Ok(Outcome::Failed(match said.trim().lines().last() {
            Some(line) => format!("{status}: {line}"),
            None => status.to_string(),
        })),
    }
}

/// Reads what arrives within this time; `false` if nothing does. Closes the pipe at its end.
fn drain<R: Read + AsRawFd>(
    from: &mut Option<R>,
    into: &mut Vec<u8>,
    within: Duration,
) -> Result<bool> {
    let Some(reader) = from else { return Ok(true) };
    let mut poll = libc::pollfd { fd: reader.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // Rounded up: else it would look in vain just before the time is up.
    let ms = (within.as_millis() + 1).min(i32::MAX as u128) as i32;
    // SAFETY: one valid entry.
    if unsafe { libc::poll(&mut poll, 1, ms) } <= 0 {
        return Ok(false); // or a signal came: the caller tries again
    }
    let mut buffer = [0; 4096];
    match reader.read(&mut buffer).context("cannot read a worker's answer")? {
        0 => *from = None,
        n => into.extend_from_slice(&buffer[..n]),
    }
    Ok(true)
}

/// Describes the threads of process `id`: their states (R runs, S sleeps) and the CPU time that each has used.
fn threads_of(id: u32) -> String {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{id}/task")) else { return "gone".into() };
    // SAFETY: no preconditions.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as f64;
    let mut threads = Vec::new();
    for task in tasks.flatten() {
        // A thread's name may be any bytes.
        let stat = std::fs::read(task.path().join("stat")).unwrap_or_default();
        let stat = String::from_utf8_lossy(&stat);
        // Fields follow the name in parentheses: state is field 3, user and system time are 14 and 15.
        let fields: Vec<&str> =
            stat.rsplit(") ").next().unwrap_or_default().split_whitespace().collect();
        if let [state, ..] = fields[..] {
            let spent =
                |at: usize| fields.get(at).and_then(|f| f.parse::<f64>().ok()).unwrap_or(0.0);
            threads.push(format!("{state} {:.1} s", (spent(11) + spent(12)) / ticks));
        }
    }
    threads.join(", ")
}

#[cfg(test)]
mod tests {
    use super::threads_of;

    #[test]
    fn a_running_thread_is_seen_running() {
        let all = threads_of(std::process::id());
        assert!(all.split(", ").any(|t| t.starts_with("R ") && t.ends_with(" s")), "{all}");
        assert_eq!(threads_of(u32::MAX), "gone");
    }
}
