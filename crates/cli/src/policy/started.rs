//! Programs that start with policies: they run as children of this command, which loads the policies as soon as our library is there.

use super::loading::{Compiled, LATER, PolicyLoad, There};
use crate::cmd::run;
use crate::hints::{Failure, cause, warn};
use crate::output::say;
use crate::{launch, library, signals};
use lockwright_observer::process::Process;
use lockwright_observer::{elf, find, mailbox};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// How long a program may take until our library is there.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a program gets when it has begun.
pub(crate) enum Start {
    /// Into this slot; the rules that the program begins with ask it.
    Slot(u32, Compiled),
    /// A policy, and rules.
    Load(Box<PolicyLoad>),
}

/// Runs a program under our library, with this policy.
pub(crate) fn run(words: &[OsString], load: PolicyLoad) -> Result<ExitCode, Failure> {
    let (name, arguments) = words.split_first().expect("clap asks for a program");
    let path = find::program(name)?;
    run::refuse(&elf::inspect(&path)?)?;
    let library = library::find(None)?;
    let mut command = Command::new(&path);
    command.arg0(name).args(arguments).envs(run::under(&library));
    to_end(&mut command, &path, vec![Start::Load(Box::new(load))]).map(signals::end_as)
}

/// Runs a command to its end, whose process gets these policies at its beginning.
pub(crate) fn to_end(
    command: &mut Command,
    path: &Path,
    starts: Vec<Start>,
) -> Result<ExitStatus, Failure> {
    let watch = signals::Watch::for_program();
    let mut child = watch.spawn(command).map_err(|error| launch::unstartable(path, &error))?;
    let pid = child.id() as libc::pid_t;
    if starts.is_empty() {
        let status = watch.wait_and(&mut child, None, || ());
        return status.map_err(|error| launch::lost(path, &error));
    }
    let has_ended = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&has_ended);
    let titles: Vec<_> = starts.iter().map(|start| start.policy().title.clone()).collect();
    let load = move || starts.iter().for_each(|start| when_ready(pid, start, &seen));
    let loader = thread::Builder::new().spawn(load);
    if let Err(error) = &loader {
        // The process has as many threads as it may have: the program keeps its own.
        warn(
            format!("{} isn't loaded: no thread for that: {}", titles.join(", "), cause(error)),
            format!("lockwright policy load POLICY --pid {pid}"),
        );
    }
    let status = watch.wait_and(&mut child, None, || ());
    has_ended.store(true, Relaxed); // the loader only looks whether it should stop
    if let Ok(loader) = loader {
        let _ = loader.join(); // it panicked: that has been said
    }
    status.map_err(|error| launch::lost(path, &error))
}

/// Hands a policy over when the process can take it. The program goes on, whatever becomes of that.
fn when_ready(pid: libc::pid_t, start: &Start, has_ended: &AtomicBool) {
    let begun = Instant::now();
    let policy = start.policy();
    loop {
        let failure = match Process::open(pid).and_then(|process| start.put(&process)) {
            Ok(is_in_force) => {
                let later = if is_in_force { "" } else { LATER };
                say(&format!("lockwright: {} is loaded{later}\n", policy.title));
                return;
            }
            Err(failure) => failure,
        };
        if has_ended.load(Relaxed) {
            say(&format!(
                "lockwright: {} did not come into force before the program ended\n",
                policy.title
            ));
            return;
        }
        // At first it is another program, or has no table of locks.
        if begun.elapsed() > PATIENCE {
            warn(
                format!("{} is not loaded: {}", policy.title, failure.message()),
                failure.hint_or(format!("lockwright policy list --pid {pid}")),
            );
            return;
        }
        thread::sleep(Duration::from_millis(2));
    }
}

impl Start {
    fn policy(&self) -> &Compiled {
        match self {
            Self::Slot(_, policy) => policy,
            Self::Load(load) => &load.policy,
        }
    }

    /// Returns whether it is in force already.
    fn put(&self, process: &Process) -> Result<bool, Failure> {
        match self {
            Self::Load(load) => load.put_into(process).map(|loaded| loaded.is_in_force),
            Self::Slot(slot, policy) => {
                let there = There::find(process)?;
                let table = mailbox::base(&there.mailbox.of(process))?;
                let narrowed = policy.for_rules(process, &table, *slot)?;
                let image = narrowed.as_ref().unwrap_or(&policy.prepared);
                there.programs.open(process)?.load(*slot, image, mailbox::PATIENCE)
            }
        }
    }
}
