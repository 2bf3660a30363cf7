//! What an execution knows beside the checker: who waits for what, and what ends a wait.

use super::{Deadline, ModelPtr, ModelWord, SLOTS};
use crate::checker::{Atomic, Checker};
use lockwright_platform::{Ordering, Ptr, Woken, Word};
use std::any::Any;
use std::cell::RefCell;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// How often in a row, without a change of any word, the passing of time may let threads go on.
const PASSES: u32 = 8;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reason {
    Spins,
    Sleeps { timed: bool },
    Naps,
    Pauses,
}

pub(super) struct Waiting {
    id: u64,
    pub(super) reason: Reason,
    pub(super) address: usize,
    /// It can be moved, and told from other sleepers at its new place.
    pub(super) movable: bool,
    /// The word's newest value, while the word may be looked at.
    pub(super) newest: Option<Arc<AtomicU64>>,
}

#[derive(Default)]
pub(super) struct Pausing {
    pub(super) seen: u64,
    pub(super) read_old_value: bool,
    pub(super) must_read_newest: bool,
}

/// One operation of one thread.
struct TracedOperation {
    thread: u64,
    what: &'static str,
    address: usize,
    value: u64,
}

/// A thread that is to be torn out of an operation.
struct Torn {
    /// How many steps it still takes.
    left: u32,
    leave: *mut dyn FnMut(),
}

/// The payload with which a torn operation unwinds.
struct Unwinds;

/// What one execution knows beside the checker.
#[derive(Default)]
pub(super) struct World {
    pub(super) waiters: Vec<Waiting>,
    next_id: u64,
    /// How many threads have started and not ended.
    alive: usize,
    /// How many of them wait for another's end.
    joining: usize,
    /// How many changes of any word there were.
    pub(super) changes: u64,
    /// How long bounded spins have looked for nothing, ns.
    pub(super) looked_ns: u64,
    ticked: bool,
    /// How often time has let a thread go on since the last change.
    passes: u32,
    spawned: u32,
    /// How often policies were asked.
    pub(super) asked: u64,
    /// Each thread's number, in order of creation, and how often it has asked where it runs.
    pub(super) places: HashMap<u64, (u32, u32)>,
    pub(super) pausing: HashMap<u64, Pausing>,
    pub(super) lines_out: usize,
    may_be_lost: usize,
    /// How many unique numbers there were.
    pub(super) numbers: usize,
    /// The table of [`ReaderTable::shown`], made by [`lay_table`].
    pub(super) table: Option<usize>,
    /// The word of [`ReaderTable::departures`], likewise.
    pub(super) departures: Option<usize>,
    pub(super) running: bool,
    /// Was the last thread that asked to be left undisturbed promised that?
    pub(super) promises: bool,
    /// The threads that are torn out of what they do.
    torn: HashMap<u64, Torn>,
    /// What happened, for the report of a failure.
    log: Vec<TracedOperation>,
    /// An atomic that all calls of the kernel touch, so that the checker tries their orders.
    kernel: Option<Rc<dyn Any>>,
}

thread_local! {
    // The checkers run all threads of an execution on one operating-system thread.
    static WORLD: RefCell<World> = RefCell::default();
}

pub(super) fn world<R>(f: impl FnOnce(&mut World) -> R) -> R {
    WORLD.with_borrow_mut(f)
}

impl World {
    fn all_wait(&self) -> bool {
        let can_time_out = |w: &Waiting| {
            self.ticked && (w.reason == Reason::Sleeps { timed: true } || w.reason == Reason::Naps)
        };
        self.waiters.len() + self.joining == self.alive && !self.waiters.iter().any(can_time_out)
    }

    fn report(&self) -> String {
        let each: Vec<String> =
            self.waiters.iter().map(|w| format!("{:?} at {:#x}", w.reason, w.address)).collect();
        format!("deadlock: {} threads, {} join, {}", self.alive, self.joining, each.join(", "))
    }

    /// Ends the sleep of at most `count` threads at `address`, among those that are `meant`.
    pub(super) fn wake(
        &mut self,
        address: usize,
        count: u32,
        meant: impl Fn(&Waiting) -> bool,
    ) -> u32 {
        let mut left = count;
        self.waiters.retain(|waiter| {
            let sleeps = matches!(waiter.reason, Reason::Sleeps { .. } | Reason::Naps);
            let wakes = sleeps && waiter.address == address && left > 0 && meant(waiter);
            left -= u32::from(wakes);
            !wakes
        });
        count - left
    }

    pub(super) fn changed(&mut self, address: usize) {
        self.changes += 1;
        self.passes = 0;
        self.waiters.retain(|w| match w.reason {
            Reason::Spins => w.address != address,
            Reason::Pauses => false,
            Reason::Sleeps { .. } | Reason::Naps => true,
        });
    }
}

/// Adds a step to the report.
pub(super) fn log<C: Checker>(what: &'static str, address: usize, value: u64) {
    let thread = C::thread();
    world(|w| w.log.push(TracedOperation { thread, what, address, value }));
}

/// Prints what happened in the failing execution: threads, and addresses as `a0`, `a1`, ... in order of first use.
pub fn print_log() {
    let Ok(log) = WORLD.try_with(|w| w.try_borrow_mut().map(|mut w| std::mem::take(&mut w.log)))
    else {
        return;
    };
    let (mut threads, mut places) = (Vec::new(), Vec::new());
    let index = |known: &mut Vec<u64>, one: u64| match known.iter().position(|&k| k == one) {
        Some(index) => index,
        None => {
            known.push(one);
            known.len() - 1
        }
    };
    for step in log.unwrap_or_default() {
        let thread = index(&mut threads, step.thread);
        let place = index(&mut places, step.address as u64);
        eprintln!("  thread {thread}: {:<12} a{place} {:#x}", step.what, step.value);
    }
}

/// Starts the world of an execution. The caller is its first thread.
pub fn begin<C: Checker>() {
    let kernel: Rc<dyn Any> = Rc::new(C::Word::new(0));
    world(|w| *w = World { alive: 1, running: true, kernel: Some(kernel), ..World::default() });
}

/// Gives this execution the table in which readers show what they hold; without this call it has none.
pub fn lay_table<C: Checker>() {
    let table: Vec<ModelPtr<C, u8>> = (0..SLOTS).map(|_| Ptr::new(std::ptr::null_mut())).collect();
    // Never freed: it outlives the execution, and no slot ends.
    world(|w| w.table = Some(table.leak().as_ptr().expose_provenance()));
    let word: &ModelWord<C> = Box::leak(Box::new(Word::new(0))); // likewise
    world(|w| w.departures = Some(std::ptr::from_ref(word).expose_provenance()));
}

/// Ends the execution: checks that nothing is left.
pub fn end() {
    world(|w| {
        assert_eq!(w.alive, 1, "all threads have ended");
        let (out, may) = (w.lines_out, w.may_be_lost);
        assert!(out <= may, "{out} lines were taken and not given back, at most {may} may be");
        w.running = false;
    });
}

/// Runs `operation` until right before its `at`-th step, as if a signal handler interrupted it there and never returned: the handler
/// calls `leave`. `false`: it had fewer steps.
pub fn torn<C: Checker>(at: u32, mut leave: impl FnMut(), operation: impl FnOnce()) -> bool {
    let leave: *mut (dyn FnMut() + '_) = &raw mut leave;
    // SAFETY: only the lifetime changes; it is removed below, before `leave` ends.
    let leave = unsafe { std::mem::transmute::<*mut (dyn FnMut() + '_), *mut dyn FnMut()>(leave) };
    let me = C::thread();
    world(|w| w.torn.insert(me, Torn { left: at, leave }));
    let result = catch_unwind(AssertUnwindSafe(operation));
    world(|w| w.torn.remove(&me));
    let Err(payload) = result else { return false };
    if !payload.is::<Unwinds>() {
        resume_unwind(payload);
    }
    true
}

/// Runs `run`, whose steps don't count: the calling thread isn't torn there.
pub(super) fn untorn<C: Checker, R>(run: impl FnOnce() -> R) -> R {
    let me = C::thread();
    let torn = world(|w| w.torn.remove(&me));
    let result = run();
    if let Some(torn) = torn {
        world(|w| w.torn.insert(me, torn));
    }
    result
}

/// The calling thread is about to take a step.
pub(super) fn step<C: Checker>() {
    if world(|w| w.torn.is_empty()) {
        return;
    }
    let me = C::thread();
    let due = world(|w| {
        let torn = w.torn.get_mut(&me)?;
        torn.left = torn.left.checked_sub(1)?;
        (torn.left == 0).then_some(torn.leave)
    });
    if let Some(leave) = due {
        // SAFETY: `torn` set it, and has not returned; nothing else calls it, since `left` is 0 only once.
        unsafe { (*leave)() };
        resume_unwind(Box::new(Unwinds));
    }
}

/// The calling thread was torn away where nobody could find the lines of memory that it took, or gave back. At the end of this
/// execution this many lines may be missing.
pub fn may_lose_lines(lines: usize) {
    world(|w| w.may_be_lost += lines);
}

/// Enters the kernel: a step that the checker may order before or after any other such step, without a happens-before.
pub(super) fn enter_kernel<C: Checker>() {
    step::<C>();
    let kernel = world(|w| w.kernel.clone()).expect("an execution goes on");
    let kernel = kernel.downcast_ref::<C::Word>().expect("of this checker");
    kernel.fetch_or(0, Ordering::Relaxed);
}

/// Lets time pass: from now on every timed sleep may end.
pub fn tick<C: Checker>() {
    enter_kernel::<C>();
    log::<C>("tick", 0, 0);
    world(|w| w.ticked = true);
}

/// Starts a thread.
pub fn spawn<C: Checker>(body: impl FnOnce() + Send + 'static) -> C::Handle {
    let number = world(|w| {
        w.alive += 1;
        w.spawned += 1;
        w.spawned
    });
    C::spawn(move || {
        world(|w| w.places.insert(C::thread(), (number, 0)));
        body();
        world(|w| w.alive -= 1);
    })
}

/// The calling thread's number, in order of creation; the first is 0.
pub fn number<C: Checker>() -> u32 {
    world(|w| w.places.entry(C::thread()).or_default().0)
}

/// Waits for the end of `handles`.
pub fn join<C: Checker>(handles: Vec<C::Handle>) {
    world(|w| w.joining += 1);
    for handle in handles {
        C::join(handle);
    }
    world(|w| w.joining -= 1);
}

/// The calling thread has let some time pass: its next read is not older than what it could have read before.
pub(super) fn time_passed<C: Checker>() {
    let me = C::thread();
    world(|w| {
        let changes = w.changes;
        let me = w.pausing.entry(me).or_default();
        me.seen = changes;
        me.must_read_newest = me.read_old_value;
        me.read_old_value = false;
    });
}

/// Sleeps while `word` is `seen`.
pub(super) fn sleep<C: Checker>(
    word: &ModelWord<C>,
    seen: u32,
    deadline: Option<Deadline>,
    movable: bool,
) -> Woken {
    enter_kernel::<C>();
    if word.read_newest(Ordering::Relaxed) != seen {
        return Woken::Maybe;
    }
    let newest = Some(word.newest.clone());
    let reason = match deadline {
        Some(Deadline::Nap) => Reason::Naps,
        deadline => Reason::Sleeps { timed: deadline == Some(Deadline::Soon) },
    };
    let naps = reason == Reason::Naps;
    let woken = wait::<C>(reason, word.address(), newest, movable);
    if naps {
        time_passed::<C>();
        // After the tick a nap ends at once. Others must get their turn: otherwise a checker that goes by priorities would
        // keep running a thread that naps while it waits for them.
        C::yield_now();
    }
    if woken { Woken::Maybe } else { Woken::TimedOut }
}

/// Waits until somebody takes us off the list (`true`), or until time passes (`false`).
pub(super) fn wait<C: Checker>(
    reason: Reason,
    address: usize,
    newest: Option<Arc<AtomicU64>>,
    movable: bool,
) -> bool {
    let passes = matches!(reason, Reason::Naps | Reason::Pauses);
    let timed = reason == Reason::Naps || reason == Reason::Sleeps { timed: true };
    log::<C>(if reason == Reason::Spins { "spins" } else { "sleeps" }, address, 0);
    let id = world(|w| {
        w.next_id += 1;
        w.waiters.push(Waiting { id: w.next_id, reason, address, movable, newest });
        w.next_id
    });
    loop {
        let outcome = world(|w| {
            if !w.waiters.iter().any(|other| other.id == id) {
                return Some(Ok(true));
            }
            if timed && w.ticked {
                w.waiters.retain(|other| other.id != id);
                return Some(Ok(false));
            }
            if !w.all_wait() {
                return None;
            }
            // First come first served: or else one thread could use up the passes of all.
            let is_passing = |w: &Waiting| matches!(w.reason, Reason::Naps | Reason::Pauses);
            let is_first = !w.waiters.iter().any(|other| is_passing(other) && other.id < id);
            if passes && is_first && w.passes < PASSES {
                w.passes += 1;
                w.waiters.retain(|other| other.id != id);
                return Some(Ok(false));
            }
            let others_pass = w.waiters.iter().any(is_passing);
            (!others_pass || w.passes >= PASSES).then(|| Err(w.report()))
        });
        match outcome {
            Some(Ok(woken)) => {
                log::<C>(if woken { "goes on" } else { "timed out" }, address, 0);
                return woken;
            }
            Some(Err(deadlock)) => panic!("{deadlock}"),
            None => C::yield_now(),
        }
    }
}
