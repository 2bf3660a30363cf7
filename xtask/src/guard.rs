//! Keeps a command: when whoever asked for it ends, by whatever signal, all that the command has started ends, too. The kernel
//! would kill the command alone, and not a test's program that cargo has started.

use anyhow::{Context, Result, ensure};
use rustix::process::{
    Pid, Signal, WaitOptions, getpid, getppid, kill_process, set_child_subreaper,
    set_parent_process_death_signal, wait,
};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::ffi::OsString;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, exit};
use std::thread;
use std::time::Duration;

/// Flags.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The process that asks for it: our parent.
    parent: i32,
    /// The command.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// The words that run these so, for this process.
pub(crate) fn words(words: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let own = getpid().as_raw_pid().to_string();
    let guard = [OsString::from("guard"), own.into(), "--".into()];
    guard.into_iter().chain(words).collect()
}

/// Runs the command, and ends as it does.
pub(crate) fn main(args: &Args) -> Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP, SIGCHLD])?;
    // What a child leaves behind becomes our child, in whatever session it is.
    set_child_subreaper(Some(getpid()))?;
    set_parent_process_death_signal(Some(Signal::TERM))?;
    ensure!(Pid::as_raw(getppid()) == args.parent, "whoever asked for this has ended");
    let (program, rest) = args.words.split_first().context("no command")?;
    let mut command = Command::new(program);
    command.args(rest);
    // SAFETY: the closure makes a system call, legal between fork and exec.
    unsafe {
        command
            .pre_exec(|| set_parent_process_death_signal(Some(Signal::KILL)).map_err(Into::into));
    }
    let child = command.spawn().with_context(|| format!("cannot start '{}'", program.display()))?;
    let child = Pid::from_child(&child);
    for signal in signals.forever() {
        if signal != SIGCHLD {
            end_all();
            exit(128 + signal);
        }
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            if pid != child {
                continue;
            }
            end_all();
            if let Some(signal) = status.terminating_signal() {
                // As it did.
                let _ = signal_hook::low_level::emulate_default_handler(signal);
                exit(128 + signal);
            }
            exit(status.exit_status().unwrap_or(2));
        }
    }
    Ok(())
}

/// Kills all that we have started, and what that has started, until none is left.
fn end_all() {
    loop {
        for child in children() {
            // It may be gone by now, which is what we want.
            let _ = kill_process(child, Signal::KILL);
        }
        // The orphans of one that ends are our children from then on.
        match wait(WaitOptions::NOHANG) {
            Err(_) => return, // there is none
            Ok(None) => thread::sleep(Duration::from_millis(2)),
            Ok(Some(_)) => {}
        }
    }
}

/// Our children that live, or have ended and were not waited for.
fn children() -> Vec<Pid> {
    let own = getpid().as_raw_pid().to_string();
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let child = |entry: fs::DirEntry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        // "pid (name) state ppid ..."; the name may hold anything.
        let (_, rest) = stat.rsplit_once(") ")?;
        (rest.split(' ').nth(1)? == own).then(|| Pid::from_raw(pid)).flatten()
    };
    entries.flatten().filter_map(child).collect()
}
