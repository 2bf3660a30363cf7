//! Locks that send the section to the data. A hand-over moves the lock's data to the next holder; here the data stays with
//! one thread, which runs the sections of the others.
//!
//! ```text
//!     who runs them             how they are asked
//!     a server      rcl         a mailbox for each CPU, answered one by one; a server has any number of locks (server.rs)
//!                   ffwd        the same, answered in batches
//!     a waiter      flat-combining     the same; whoever gets the lock empties all mailboxes
//!                   dsm-synch   a queue of nodes on the waiters' stacks
//!                   cc-synch    a queue of cells that change hands
//!                   combiner    the same; elected by core, for a bounded time; waiters sleep
//!                   combiner-numa      one of these for each cluster of near cores
//!     as it pays    dynamic     an ordinary lock, or combiner, whichever runs more sections; a server by hand
//! ```
//!
//! What all share: a section is a [`Job`], which lies on the stack of the thread that asked. That thread waits until the job
//! has run, so the job may refer to its stack. A job runs once, and its result is written before the answer.
//!
//! Sections must not unwind: the thread that runs them has others to serve. Whoever offers these locks to programs catches
//! panics and exceptions inside of the section, and resumes them in the caller.

pub mod cc_synch;
pub mod combiner;
pub mod combiner_numa;
pub mod dsm_synch;
pub mod dynamic;
pub mod ffwd;
pub mod flat_combining;
mod mailbox;
pub mod rcl;
pub mod server;
pub mod waiting;

use crate::entry::Entry;
use core::ptr::null_mut;
use lockwright_platform::{Platform, Word};

/// What a thread holds while it runs sections: a lock of its own, below the one that sends sections around.
pub trait Gate {
    /// May its memory end when nobody waits for it, without a word to the thread that runs the sections?
    const MAY_END: bool = false;

    /// What the holder keeps while it is inside.
    type Key: Default;

    /// Waits until the caller alone is inside.
    fn enter(&self, key: &mut Self::Key);

    /// As [`enter`](Self::enter), for a combiner: in its queue are those who ask.
    fn enter_to_combine(&self, key: &mut Self::Key) {
        self.enter(key);
    }

    /// Enters if that needs no waiting.
    fn try_enter(&self, key: &mut Self::Key) -> bool;

    /// Leaves. The caller has run `ran` sections since it entered.
    fn leave(&self, key: &mut Self::Key, ran: u32);

    /// The caller has run a section: did that take the caller's right to be inside with it, to another thread? Then the caller doesn't
    /// [`leave`](Self::leave). Asked once after each section.
    fn is_left(&self) -> bool {
        false
    }

    /// The caller, a server, is inside, and has too much to do: this server, of the same type, has less.
    fn move_to(&self, server: *const ()) {
        let _ = server;
    }
}

/// How a thread sleeps that waits for a combiner inside of this gate.
pub trait Naps<P: Platform> {
    /// As [`Platform::park`], for this long at most.
    fn nap(&self, word: &P::Word, while_it_is: u32, ns: u32) {
        // SURVIVES: it ends by the clock, and its callers look again.
        P::park(word, while_it_is, Some(P::after(ns)));
    }
}

impl<P: Platform> Naps<P> for () {}

/// No gate: whoever is the combiner is alone anyway.
impl Gate for () {
    type Key = ();

    #[inline]
    fn enter(&self, (): &mut ()) {}

    #[inline]
    fn try_enter(&self, (): &mut ()) -> bool {
        true
    }

    #[inline]
    fn leave(&self, (): &mut (), _: u32) {}
}

/// A section, to be run by any thread.
#[derive(Clone, Copy)]
pub(crate) struct Job {
    run: unsafe fn(*mut ()) -> bool,
    at: *mut (),
}

impl Job {
    /// No section.
    pub(crate) const NONE: Self = Self { run: |_| false, at: null_mut() };

    /// Runs the section. `false`: somebody has begun to run it before, and may still be in it.
    ///
    /// # Safety
    /// The thread that asked waits meanwhile, and its writes come before this.
    pub(crate) unsafe fn run(self) -> bool {
        // SAFETY: `run` was made for what is at `at`, which waits there.
        unsafe { (self.run)(self.at) }
    }
}

/// A section before it runs, and its result afterwards.
struct Errand<F, R> {
    section: Option<F>,
    result: Option<R>,
}

impl<R, F: FnOnce() -> R> Errand<F, R> {
    /// # Safety
    /// `at` is such an errand. Whoever uses it holds the lock; a section that waits for a condition lets go of the lock meanwhile.
    unsafe fn run(at: *mut ()) -> bool {
        let errand = at.cast::<Self>();
        // SAFETY: the caller's promise. No reference stays while the section runs.
        let Some(section) = (unsafe { (*errand).section.take() }) else { return false };
        let result = section();
        // SAFETY: as above: the section has taken the lock again.
        unsafe { (*errand).result = Some(result) };
        true
    }
}

/// Has `ask` see to it that `section` runs, on whichever thread; returns what the section returns.
///
/// # Safety
/// `ask` returns after the job has run once, and sees what it wrote.
pub(crate) unsafe fn carried<P: Platform, R: Send>(
    section: impl FnOnce() -> R + Send,
    ask: impl FnOnce(Job),
) -> R {
    fn of<F: FnOnce() -> R, R>(errand: *mut Errand<F, R>) -> Job {
        Job { run: Errand::<F, R>::run, at: errand.cast() }
    }
    let mut errand = Errand { section: Some(section), result: None };
    ask(of(&raw mut errand));
    match errand.result {
        Some(result) => result,
        None => without_result::<P>(),
    }
}

/// Puts `value` into a line of the machine's pool.
fn lay<P: Platform, T>(value: T) -> *mut T {
    const { assert!(size_of::<T>() <= P::LINE && align_of::<T>() <= 128) }
    let line: *mut T = P::take_line().cast();
    // SAFETY: a line is large enough, and nobody else's.
    unsafe { line.write(value) };
    line
}

/// Gives the line of [`lay`] back.
///
/// # Safety
/// It belongs to the caller, and nobody else looks at it any more.
unsafe fn give<P: Platform, T>(line: *mut T) {
    // SAFETY: the caller's own.
    unsafe {
        line.drop_in_place();
        P::give_line(line.cast());
    }
}

/// A section that has not run has no result, so its caller can't go on. `explore` reports that the thread is stuck.
#[cold]
fn without_result<P: Platform>() -> ! {
    let nobody_wakes = P::Word::new(0);
    loop {
        P::park(&nobody_wakes, 0, None);
    }
}

/// The same lock with waiters that yield their CPU now and then.
pub(crate) const fn yielding(of: Entry, id: &'static str, idea: &'static str) -> Entry {
    Entry {
        id,
        preset_of: Some(of.id),
        idea,
        advice: "to compare, with more threads than CPUs",
        ..of
    }
}
