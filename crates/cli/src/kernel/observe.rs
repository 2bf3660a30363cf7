//! Observes while a program runs, for a given time, or until a signal arrives.

use super::names::Names;
use crate::hints::Failure;
use crate::launch;
use crate::signals::Watch;
use crate::supervise::is_interrupt;
use lockwright_kernel::Observer;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

/// How often we look for processes with futex waits. They may soon end.
const TICK: Duration = Duration::from_millis(50);

/// Runs a program to its end.
pub(crate) fn program(
    command: &mut Command,
    path: &Path,
    observer: &Observer,
    names: &mut Names,
) -> Result<ExitStatus, Failure> {
    let watch = Watch::for_program();
    let mut child = watch.spawn(command).map_err(|error| launch::unstartable(path, &error))?;
    let status = watch.wait_and(&mut child, Some(TICK), || look(observer, names));
    status.map_err(|error| launch::lost(path, &error))
}

/// Waits for this time, or until a signal arrives. Returns whether a signal arrived.
pub(crate) fn time(
    limit: Option<Duration>,
    quiet: bool,
    observer: &Observer,
    names: &mut Names,
) -> bool {
    // Block signals before a second thread exists.
    let (watch, began) = (Watch::new(), Instant::now());
    let bar = lockwright_bench::timed(limit.unwrap_or_default(), quiet || limit.is_none());
    loop {
        let left = limit.map(|limit| limit.saturating_sub(began.elapsed()));
        if left == Some(Duration::ZERO) {
            bar.finish_and_clear();
            return false;
        }
        if is_interrupt(watch.next(Some(left.unwrap_or(TICK).min(TICK)))) {
            return true;
        }
        look(observer, names);
    }
}

fn look(observer: &Observer, names: &mut Names) {
    for process in observer.futex_users() {
        names.processes.look(process);
    }
}
