//! Asl-pthread: LibASL's blocking version; little cores sleep for a while beside an ordinary sleeping mutex, and then ask for it.
//!
//! LibASL, *Asymmetry-aware Scalable Locking*, PPoPP 2022, sections 3.2 and 4.1 (Bench-6), for threads that outnumber the CPUs (row
//! L09). The base lock is not a queue but `pthread_mutex_lock`, since a queue would pay for a wake at each hand-over. Threads that
//! stand by don't spin; they sleep by `nanosleep`, for times that double. The base lock is glibc's algorithm: the mutex of
//! U. Drepper, *Futexes Are Tricky*. A thread that finds the word taken makes it 2 and sleeps on it; the first thread that finds it
//! free takes it.
//!
//! ```text
//!   big core     ─────────────────────────────────────► free? take it ─ else make the word 2, sleep on it ─ woken: again
//!   little core  ─ sleep 50 us ─ look ─ 100 us ─ look ... ┘
//!                      until the lock is free, or the window is over
//! ```
//!
//! Our deviations: the published text doesn't say how long the first sleep is, or the longest; ours are 50 us and 1 ms (amp/standby.rs). A
//! thread that finds itself on a big core asks at once. `asl` is our own lock with this idea; its base is a line.
//!
//! Invariants: those of the front locks (word.rs, line.rs, grant.rs), and
//! 1. A thread that stands by holds nothing, and nobody waits for it.
//! 2. After its window, 100 ms at most, it asks like every other thread. From there on, glibc's algorithm promises nothing.
//! 3. Nobody joins the line, unless waiters under another rule stand in it and its head must not be overtaken any more.

use super::{Choose, Note, Observe, Rule, Taken, View};
use crate::amp::standby::{Waiting, at_once, stand_by};
use crate::entry::{Entry, Kind, Promise};
use crate::front::tuning::{Tuning, Window};
use lockwright_platform::Machine;

/// What the catalogue says.
pub const ENTRY: Entry = Entry {
    id: "asl-pthread",
    kind: Kind::Front,
    preset_of: None,
    idea: "glibc's algorithm, but little cores sleep for their window before they compete: the paper's blocking LibASL",
    source: "LibASL: Nian Liu et al., Asymmetry-aware Scalable Locking, PPoPP 2022, sections 3.2 and 4.1, Bench-6; below it U. Drepper, Futexes Are Tricky",
    order: "none: any thread that finds it free takes it; little cores compete after their window",
    promise: Promise::Nothing,
    stands_by: true,
    space: "0 bytes beyond the mutex; 24 bytes per thread and epoch",
    wakes: "a waiter sleeps at once, and unlock wakes one; a thread on standby wakes itself every 50 µs to 1 ms",
    delay: "a thread on a little core, by its window (the epoch's; 100 ms outside epochs); then any waiter, by all later arrivals",
    advice: "to compare with the paper when threads outnumber CPUs; in programs, use asl",
    options: &[],
};

/// The rule.
#[derive(Debug)]
pub struct Lock;

impl<P: Machine> Rule<P> for Lock {
    fn defaults(tuning: Tuning) -> Tuning {
        Tuning { window: Window::Epoch, waiting: Waiting::Asleep, budget_ns: 0, ..tuning }
    }

    fn arrive(lock: &View<'_, P>, _: &mut Note) -> Option<Taken> {
        let Tuning { window_ns, waiting, .. } = *lock.tuning;
        let mut taken = None;
        if window_ns > 0 && !P::place().class.is_big() {
            // This clears a line from before a fork, which belongs to nobody: a free lock must not look as if it were in use.
            lock.is_line_empty();
            if !lock.is_free() {
                stand_by::<P>(window_ns, waiting, at_once, || lock.is_free(), || true, || true);
            }
            taken = lock.take();
        }
        taken.or_else(|| lock.sleep_on_word())
    }
}

impl<P: Machine> Choose<P> for Lock {}
impl<P: Machine> Observe<P> for Lock {}
