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

/// How a thread requests the lock. It is a type parameter, so that each loop is specialised and the section is inlined.
pub(super) trait Ask<M: Mutex>: Copy + Sync {
    /// Runs `section` under `lock`; `None`: it didn't run.
    ///
    /// # Safety
    /// As [`Mutex::with`].
    unsafe fn ask<R: Send>(
        self,
        lock: &M,
        node: *mut M::Node,
        section: impl FnOnce() -> R + Send,
    ) -> Option<R>;
}

/// Waits as long as it takes.
#[derive(Clone, Copy)]
pub(super) struct Wait;

impl<M: Mutex> Ask<M> for Wait {
    #[inline(always)]
    unsafe fn ask<R: Send>(
        self,
        lock: &M,
        node: *mut M::Node,
        section: impl FnOnce() -> R + Send,
    ) -> Option<R> {
        // SAFETY: the caller's promise is the same.
        Some(unsafe { lock.with(node, section) })
    }
}

/// Doesn't wait.
#[derive(Clone, Copy)]
pub(super) struct Try;

impl<M: Mutex> Ask<M> for Try {
    #[inline(always)]
    unsafe fn ask<R: Send>(
        self,
        lock: &M,
        node: *mut M::Node,
        section: impl FnOnce() -> R + Send,
    ) -> Option<R> {
        // SAFETY: the caller's promise is the same.
        unsafe { lock.try_with(node, section) }
    }
}

/// Waits for this long.
#[derive(Clone, Copy)]
pub(super) struct WaitFor(pub(super) Duration);

impl<M: Mutex> Ask<M> for WaitFor {
    #[inline(always)]
    unsafe fn ask<R: Send>(
        self,
        lock: &M,
        node: *mut M::Node,
        section: impl FnOnce() -> R + Send,
    ) -> Option<R> {
        // SAFETY: the caller's promise is the same.
        unsafe { lock.with_for(node, self.0, section) }
    }
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
    how: impl Ask<M>,
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
    let Some((had, stopped)) = (unsafe { how.ask(lock, node, section) }) else {
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
