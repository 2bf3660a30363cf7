//! The steps of a schedule: points at which any other thread may go first, and waits.

use super::{BOUND, Blocked, Explorer, Wait};
use crate::check::Violation;
use crate::engine::{Engine, engine, fail, switch};
use crate::explore::mutant::At;
use crate::units::{Ps, Tid};

/// What one step takes, ps.
const STEP: Ps = 10_000;

/// A schedule whose threads still get the lock after [`BOUND`] steps has this many: a policy may let hundreds pass a waiter.
const FARTHEST: u32 = 20 * BOUND;

/// The current exploration.
pub(crate) fn explorer(e: &mut Engine) -> &mut Explorer {
    e.explore.as_deref_mut().expect("words of an exploration are used in one")
}

/// Any other thread may go first. Returns when the calling one may go on.
pub(crate) fn point(at: At) -> &'static mut Engine {
    let e = engine();
    let me = e.me();
    step(e, me, at);
    let mut now = e.now;
    let next = explorer(e).choose(&mut now, Some(me)).expect("the calling thread can go on");
    e.now = now;
    if next == me {
        return e;
    }
    explorer(e).chosen = Some(next);
    switch();
    engine()
}

fn step(e: &mut Engine, me: Tid, at: At) {
    e.now += STEP;
    let at_ns = e.now / 1000;
    let x = explorer(e);
    x.steps += 1;
    x.waiters[me as usize].at = Some(at);
    let since = x.steps - x.acquired_at;
    if x.steps > BOUND && since > BOUND / 2 || x.steps > FARTHEST {
        let who = x.who();
        fail(Violation::Livelock { at_ns, steps: x.steps, since, who });
    }
}

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// A change of the word, or a wake.
    Woken,
    /// The time is up.
    TimedOut,
}

/// The calling thread waits.
pub(crate) fn block(wait: Wait, word: usize, end: Option<Ps>, at: At) -> Ended {
    let e = engine();
    let me = e.me();
    step(e, me, at);
    let now = e.now;
    let thread = &mut e.threads[me as usize];
    if wait == Wait::Spins || end.is_none() {
        thread.seen_waiting.get_or_insert(now);
    }
    let x = explorer(e);
    x.runnable &= !(1 << me);
    x.next_end = x.next_end.min(end.unwrap_or(Ps::MAX));
    x.waiters[me as usize] = Blocked { wait, word, end, at: Some(at), woken: false };
    let what = match wait {
        Wait::Spins => "spins on",
        Wait::Pauses => "pauses",
        _ => "sleeps on",
    };
    x.record(me, what, word, None, at);
    switch();
    let x = explorer(engine());
    let waiter = &mut x.waiters[me as usize];
    waiter.word = 0;
    if waiter.woken { Ended::Woken } else { Ended::TimedOut }
}

/// Runs until all threads have ended, or a check fails.
///
/// # Safety
/// As [`Engine::run`].
pub(crate) unsafe fn run(this: *mut Engine) {
    // SAFETY: the caller's promise; no reference is held while a coroutine runs.
    unsafe {
        while (*this).left > 0 && (*this).violation.is_none() {
            let e = &mut *this;
            let mut now = e.now;
            let x = explorer(e);
            let next = x.chosen.take().or_else(|| x.choose(&mut now, None));
            let Some(next) = next else {
                let who = explorer(e).who();
                let (why, at_ns) = ("nobody can go on".into(), e.now / 1000);
                e.violation = Some(Violation::Stuck { why, at_ns, who });
                return;
            };
            e.now = now;
            Engine::resume(this, next);
        }
    }
}
