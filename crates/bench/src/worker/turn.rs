//! One turn of a thread: request a lock, work in the critical section, release, work outside.

use super::mutex::Mutex;
use super::pass::Pass;
use super::times::Times;
use crate::compute::{Step, compute};
use std::time::{Duration, Instant};

/// What one thread did.
pub(super) struct Tally {
    pub(super) ops: u64,
    pub(super) failures: u64,
    pub(super) times: Times,
}

impl Tally {
    pub(super) fn new() -> Self {
        Self { ops: 0, failures: 0, times: Times::new() }
    }
}

/// How a thread requests the lock.
#[derive(Clone, Copy)]
pub(super) enum Ask {
    /// Waits as long as it takes.
    Wait,
    /// Doesn't wait.
    Try,
    /// Waits for this long, by this clock if the lock supports several.
    For(Duration, libc::clockid_t),
}

/// One turn; `false`: the pass is over. `inside` runs first in the critical section, followed by computation. `STAMP`:
/// this is the latency pass, which takes three timestamps per operation.
///
/// # Safety
/// As [`Mutex::with`].
/// As [`Mutex::with`].
#[inline(always)]
pub(super) unsafe fn turn<M: Mutex, const STAMP: bool>(
    tally: &mut Tally,
    pass: &Pass<'_>,
    step: Step,
    ask: Ask,
    lock: &M,
    node: *mut M::Node,
    inside: impl FnOnce() + Send,
) -> bool {
    let asked = if STAMP { Some(Instant::now()) } else { None };
    let section = || {
        let had = if STAMP { Some(Instant::now()) } else { None };
        let stopped = pass.stopped();
        if !stopped {
            inside();
            compute(step.cs);
        }
        (had, stopped)
    };
    // SAFETY: the caller's promise is the same.
    let held = unsafe {
        match ask {
            Ask::Wait => Some(lock.with(node, section)),
            Ask::Try => lock.try_with(node, section),
            Ask::For(time, clock) => lock.with_for(node, time, clock, section),
        }
    };
    let Some((had, stopped)) = held else {
        tally.failures += 1;
        if pass.stopped() {
            return false;
        }
        compute(step.gap);
        return true;
    };
    if let (Some(asked), Some(had)) = (asked, had) {
        tally.times.add(had - asked, had.elapsed());
    }
    if stopped {
        return false;
    }
    tally.ops += 1;
    compute(step.gap);
    true
}
