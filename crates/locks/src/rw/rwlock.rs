//! rwlock: a reader registers with one `fetch_add`; a phase bit says whether that was an entry or a place
//! among the readers that the writer will let in together.
//!
//! Source: the phases are those of glibc 2.25's `pthread_rwlock_common.c` (Torvald Riegel); the "woken writer
//! on its way" bit is that of Go's `sync.Mutex`. Deviations, each with its reason:
//! * a write phase that waits for a woken writer may be taken by any writer that already runs, and with
//!   [`Prefer::Readers`] be turned into a read phase: the lock does not idle while somebody wakes up;
//! * writers sleep on a count of themselves, not on a flag: who releases knows exactly whether one is left.
//!
//! ```text
//! state    ┌─ WRITERS ─┬────── readers ──────┬─ ASLEEP ─┬─ WRITE ─┐    writers  ┌── waiting ──┬ WOKEN ┬ OPEN ┐
//!          └    31     ┴       30 … 3        ┴    2     ┴  1, 0   ┘             └   31 … 2    ┴   1   ┴  0   ┘
//!
//!             reader: +1                        last reader, WRITERS             release, writers wait
//!   free (0) ───────────► read phase (n, -) ─────────────────────► write phase ───────────────────────► OPEN
//!      │  ▲                   ▲                                      ▲    │ ▲                             │ │
//!      │  └───────────────────┼──────────────────────────────────────┼────┘ └─────────────────────────────┘ │
//!      │      release, nobody │ waits      release, readers wait     │          a writer claims OPEN        │
//!      └──────────────────────┼──────────────────────────────────────┘                                      │
//!        writer: 0 → WRITE    └─────────────────────────────────────────────────────────────────────────────┘
//!                                             a reader claims OPEN, and lets all readers in
//! ```
//!
//! Invariants
//! 1. `state == 0` exactly if the lock is free outside a write phase.
//! 2. A reader counted in `state` holds the lock if `WRITE` is clear. `WRITE` is set only when no reader is
//!    counted, or by the last one: a counted reader that has once seen it clear holds the lock until it leaves.
//! 3. `WRITE` and not `OPEN`: one thread owns the phase. `OPEN` implies `WRITE` and a counted waiting writer
//!    that is awake or being woken: whoever clears `OPEN` owns the phase.
//! 4. A writer sleeps only while it is counted in `writers` and `WRITERS` was set after it was counted. Only
//!    the owner of a write phase clears `WRITERS`, and it looks at `writers` again afterwards.
//! 5. `WOKEN` implies that a counted writer is awake; each clears it before it looks at `state` for the last
//!    time before sleeping, and when it stops waiting. So no more than one wake-up is under way.
//! 6. Whoever releases touches the lock's memory no more after the operation that releases; the wake-up that
//!    follows uses an address only.
//!
//! Facts: readers together, writers by arrival with overtaking; 12 bytes; one wake a hand-over; writers may
//! be delayed without bound by [`Prefer::Readers`], readers by [`Prefer::WritersStrictly`].
//!
//! More than a page because POSIX asks for three preferences, attempts and deadlines from one memory layout:
//!
//! ```text
//!   read: readers come      write: writers come
//!             └───────┬───────┘
//!          phase: whoever leaves decides who is next
//!                     │
//!          words: what the bits mean
//! ```

mod phase;
mod read;
mod words;
mod write;

use lockwright_platform::Platform;

/// Who goes first when both wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefer {
    /// Readers: they never wait for a waiting writer. A thread may read-lock again.
    Readers,
    /// A leaving writer prefers writers; readers still join readers. A thread may read-lock again.
    Writers,
    /// Readers wait for waiting writers. A thread that read-locks again may wait for ever.
    WritersStrictly,
}

/// How an attempt to acquire ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The lock is held.
    Acquired,
    /// It would have had to wait.
    Busy,
    /// The deadline passed.
    TimedOut,
    /// The caller holds it for writing.
    Deadlock,
    /// More readers than can be counted.
    TooMany,
}

/// Who waits, and how. Asked for only when there is something to wait for.
pub struct Waiter<P: Platform> {
    /// The caller's thread id, not 0.
    pub me: u32,
    /// How long it may wait awake, if nobody sleeps yet.
    pub spin_ns: u32,
    /// When it gives up.
    pub deadline: Option<P::Deadline>,
}

/// The words of one lock, wherever they live; all zero is an unlocked lock.
pub struct Parts<'a, P: Platform> {
    /// Readers and the phase: written by everybody, atomically.
    pub state: &'a P::Word,
    /// Waiting writers: written by them and by the owner of a write phase.
    pub writers: &'a P::Word,
    /// The writer's thread id: written by the writer while it holds the lock.
    pub owner: &'a P::Word,
    /// Who goes first. The same at every call.
    pub prefer: Prefer,
}
