//! The machine that serves platform calls on this operating-system thread, and how its running thread spends time.

use super::{Engine, Ps, State, Then, What};
use crate::timeline::Activity;
use std::cell::Cell;

thread_local! {
    // One operating-system thread runs one machine at a time; coroutines never leave it.
    static CURRENT: Cell<*mut Engine> = const { Cell::new(std::ptr::null_mut()) };
}

/// Makes `engine` the machine for platform calls on this thread, while `body` runs.
pub(crate) fn with_engine<R>(engine: &mut Engine, body: impl FnOnce(*mut Engine) -> R) -> R {
    struct Restore(*mut Engine);
    impl Drop for Restore {
        fn drop(&mut self) {
            CURRENT.set(self.0);
        }
    }
    let engine: *mut Engine = engine;
    let _restore = Restore(CURRENT.replace(engine));
    body(engine)
}

/// The machine, if a platform call comes from inside of one of its threads.
pub(crate) fn inside() -> Option<&'static mut Engine> {
    // SAFETY: `with_engine` outlives every coroutine. A reference is dropped before the coroutine suspends, and
    // nothing else runs until then.
    let engine = unsafe { CURRENT.get().as_mut()? };
    engine.running.is_some().then_some(engine)
}

/// The machine, inside or outside of a thread.
pub(crate) fn current() -> Option<&'static mut Engine> {
    // SAFETY: as in `inside`.
    unsafe { CURRENT.get().as_mut() }
}

/// As [`inside`], for calls that can't come from elsewhere.
pub(crate) fn engine() -> &'static mut Engine {
    inside().expect("called by a simulated thread")
}

/// The calling thread waits until it is resumed.
pub(crate) fn suspend() {
    let e = engine();
    let yielder = e.threads[e.me() as usize].yielder;
    // SAFETY: the yielder lives as long as its coroutine, which is running.
    unsafe { (*yielder).suspend(()) };
}

/// The calling thread spends `cost` on `activity`.
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
