//! Threads that sleep for something that another thread has to do.

use super::awaited::{self, Awaited};
use super::looker::{Observer, ids};
use lockwright_symbols::{Blocked, blocked, proc_text};

/// A thread that sleeps for something that another thread has to do.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sleeper {
    pub(super) tid: libc::pid_t,
    pub(super) blocked: Blocked,
    pub(super) awaited: Awaited,
    /// Its stack, the innermost function first.
    pub(super) stack: Vec<u64>,
    /// How often it has given up a CPU so far: as long as that stays, this is one wait.
    switches: u64,
}

/// All of them, by their ids.
pub(super) fn look(observer: &mut Observer) -> Vec<Sleeper> {
    observer.ids = ids(observer.pid);
    let mut tids: Vec<libc::pid_t> = observer.ids.values().copied().collect();
    tids.sort_unstable();
    tids.into_iter().filter_map(|tid| sleeper(observer, tid)).collect()
}

fn sleeper(observer: &mut Observer, tid: libc::pid_t) -> Option<Sleeper> {
    let pid = observer.pid;
    let state = blocked(pid, tid).ok()??;
    if state.call != Some(libc::SYS_futex) {
        return None;
    }
    let stack = observer.stack(&state);
    let awaited = awaited::of(observer, &state, &stack)?;
    // Did it go on in the meantime? Then these are of two moments.
    let switches = switches(pid, tid)?;
    let is_still = blocked(pid, tid).ok().flatten() == Some(state);
    is_still.then_some(Sleeper { tid, blocked: state, awaited, stack, switches })
}

/// How often a thread has given up a CPU, to sleep or for another thread.
fn switches(pid: libc::pid_t, tid: libc::pid_t) -> Option<u64> {
    let status = proc_text(format!("/proc/{pid}/task/{tid}/status")).ok()?;
    let counts = status.lines().filter_map(|line| line.split_once("voluntary_ctxt_switches:"));
    Some(counts.filter_map(|(_, count)| count.trim().parse::<u64>().ok()).sum())
}
