//! What the running thread does: it spends time, waits, or reports what went wrong.
//!
//! A processor predicts where a function returns to from the calls before. After another stack has run, that is wrong
//! for every function in which the thread waited. So the functions here are inlined.

use super::engine;
use super::thread::{State, Then};
use crate::agenda::What;
use crate::check::Violation;
use crate::timeline::Activity;
use crate::units::Ps;

/// The calling thread waits until it can go on. It handles the next events itself: if it is the first to go on, no
/// stacks are switched.
#[inline(always)]
pub(crate) fn suspend() {
    let e = engine();
    let me = e.running.take();
    e.next = e.go_on();
    e.running = me;
    if e.next == me {
        e.next = None;
    } else {
        switch();
    }
}

/// The calling thread leaves its stack for the machine's loop, until it is resumed.
#[inline(always)]
pub(crate) fn switch() {
    let e = engine();
    let yielder = e.threads[e.me() as usize].yielder;
    // SAFETY: the yielder lives as long as its coroutine, which is running.
    unsafe { (*yielder).suspend(()) };
}

/// The calling thread spends `cost` on `activity`.
#[inline(always)]
pub(crate) fn advance(cost: Ps, activity: Activity) {
    let e = engine();
    let me = e.me();
    let thread = &mut e.threads[me as usize];
    thread.acted = e.now;
    let cost = cost + std::mem::take(&mut thread.debt);
    let cpu = thread.cpu;
    if thread.evict && !thread.unpreempted {
        e.evict(me, Then::Finish(cost));
        return suspend();
    }
    e.is_doing(cpu, activity);
    let end = e.now + cost;
    if end < e.agenda.next && end <= e.limit {
        e.now = end;
        e.ran_on += 1;
        return;
    }
    let thread = &mut e.threads[me as usize];
    thread.state = State::Busy;
    thread.busy_until = end;
    let turn = thread.turn;
    e.post(end, What::Resume { thread: me, turn });
    suspend();
}

/// The calling thread's own work, as its workload says.
pub(crate) fn on_its_own(body: impl FnOnce()) {
    let set = |is| {
        let e = engine();
        let me = e.me() as usize;
        e.threads[me].on_its_own = is;
    };
    set(true);
    body();
    set(false);
}

/// The calling thread reports a violation; the run ends here.
pub(crate) fn fail(violation: Violation) -> ! {
    engine().violation.get_or_insert(violation);
    loop {
        switch();
    }
}
