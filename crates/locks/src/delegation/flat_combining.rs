//! flat-combining: waiters leave their requests in mailboxes; whoever gets the lock runs all of them.
//!
//! D. Hendler, I. Incze, N. Shavit, M. Tzafrir, *Flat Combining and the Synchronization-Parallelism Tradeoff*, SPAA 2010,
//! section 3. Our deviations: a thread's record is the mailbox of its CPU, and stays, where the paper's list of records
//! drops those that were long unused.
//!
//! ```text
//!     lock: FREE, TAKEN          mailbox: IDLE ──asker──► ASKED ──combiner──► IDLE
//! ```
//!
//! State: (lock, the mailboxes). ask: (_, IDLE) -> (_, ASKED), then wait for IDLE, or take the lock: (FREE, _) -> (TAKEN, _).
//! combine: (TAKEN, ASKED) -> run -> (TAKEN, IDLE), for each mailbox, PASSES times at most; (TAKEN, _) -> (FREE, _).
//!
//! 1. Only the thread that took the lock runs requests.
//! 2. A combiner looks at its own mailbox in its first pass.
//!
//! Facts: no order, but a waiter is overtaken by two sections of each other client at most while one thread combines; 272 B per
//! lock, 256 B per CPU that asks and 128 B per 7 of them, from a pool; nobody sleeps; a combiner is delayed by PASSES times the clients.

use super::carried;
use super::mailbox::Mailboxes;
use super::waiting::{Patience, Spins, Yields};
use crate::entry::{Entry, Kind, Promise};
use core::marker::PhantomData;
use lockwright_platform::Ordering::{Acquire, Relaxed, Release};
use lockwright_platform::{Delegated, Platform, Sections, Word};

/// What the catalogue says.
pub const ENTRY: Entry = Entry {
    id: "flat-combining",
    kind: Kind::Delegated,
    preset_of: None,
    idea: "waiters leave their sections in mailboxes; whoever gets the lock runs them all",
    source: "D. Hendler, I. Incze, N. Shavit, M. Tzafrir, Flat Combining and the Synchronization-Parallelism Tradeoff, SPAA 2010, section 3",
    order: "none; in each pass of a combiner by the mailboxes",
    promise: Promise::Nothing,
    stands_by: false,
    space: "272 B per lock, 256 B per CPU that asks and 128 B per 7 of them, from a pool",
    wakes: "none: waiters spin and never sleep",
    delay: "the thread that runs the others' sections, by 8 passes over all mailboxes; all, by its preemption",
    advice: "to compare with combiner",
    options: &[],
};

/// The name that the catalogue uses.
pub type Lock<P> = FlatCombining<P, Spins>;
/// Its variant that yields.
pub type Yielding<P> = FlatCombining<P, Yields>;

const FREE: u32 = 0;
const TAKEN: u32 = 1;

const IDLE: u32 = 0;
const ASKED: u32 = 1;

/// How often a combiner looks through the mailboxes, while it finds requests.
const PASSES: u32 = 8;

/// How long a waiter looks at its mailbox before it looks at the lock.
const LOOK_NS: u32 = 200;

/// A lock with flat combining, whose waiters wait as `W` says.
pub struct FlatCombining<P: Platform, W> {
    lock: P::Word,
    mailboxes: Mailboxes<P>,
    waiting: PhantomData<fn(W)>,
}

impl<P: Platform, W: Patience<P>> FlatCombining<P, W> {
    /// Runs the requests of all.
    ///
    /// # Safety
    /// The caller took the lock.
    unsafe fn combine(&self) {
        for _ in 0..PASSES {
            let mut ran = false;
            self.mailboxes.each(|mailbox| {
                // ORDERING: Acquire, pairs with [ask]: the job is there.
                if mailbox.state.load(Acquire) == ASKED {
                    // SAFETY: its asker waits; it is answered once. By invariant 1 nobody else runs it.
                    unsafe { mailbox.job.get().run() };
                    // ORDERING: Release [answer]: the section, and its result, come before the asker goes on.
                    mailbox.state.store(IDLE, Release);
                    ran = true;
                }
            });
            if !ran {
                break;
            }
        }
    }
}

impl<P: Platform, W: Patience<P>> Sections<P> for FlatCombining<P, W> {
    type Node = ();

    fn new() -> Self {
        Self { lock: P::Word::new(FREE), mailboxes: Mailboxes::new(), waiting: PhantomData }
    }

    unsafe fn with<R: Send>(&self, _: *mut (), section: impl FnOnce() -> R + Send) -> R {
        let ask = |job| {
            let taken = self.mailboxes.take();
            let mailbox = taken.mailbox;
            mailbox.job.set(job);
            // STATE: (_, IDLE) -> (_, ASKED).
            // ORDERING: Release [ask]: the job is there before it is found.
            mailbox.state.store(ASKED, Release);
            loop {
                // Relaxed: a hint that saves a cache line's way.
                let is_free = self.lock.load(Relaxed) == FREE;
                // STATE: (FREE, _) -> (TAKEN, _).
                // ORDERING: Acquire, pairs with [free]: earlier sections are over. Relaxed on failure: nothing was gained.
                if is_free && self.lock.compare_exchange(FREE, TAKEN, Acquire, Relaxed).is_ok() {
                    // SAFETY: we took it.
                    unsafe { self.combine() };
                    // STATE: (TAKEN, _) -> (FREE, _).
                    // ORDERING: Release [free]: the sections come before those of the next combiner.
                    self.lock.store(FREE, Release);
                }
                // ORDERING: Acquire, pairs with [answer].
                let now = P::spin_for(&mailbox.state, Acquire, LOOK_NS, |now| now == IDLE);
                if now == IDLE {
                    break;
                }
                W::between();
                P::pause(0);
            }
            taken.leave();
        };
        // SAFETY: `ask` returns after a combiner has run it, and answered [answer].
        unsafe { carried::<P, R>(section, ask) }
    }
}

impl<P: Platform, W: Patience<P>> Delegated<P> for FlatCombining<P, W> {}
