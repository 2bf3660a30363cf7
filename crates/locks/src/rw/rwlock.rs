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
//! Longer than a page because POSIX asks for three preferences, attempts and deadlines from one memory layout.

use lockwright_platform::Ordering::{AcqRel, Acquire, Relaxed, Release};
use lockwright_platform::{Platform, Woken, Word};

/// A write phase. Two bits: glibc's debugger scripts read them as "phase" and "acquired".
const WRITE: u32 = 0b11;
/// Readers may sleep on `state`.
const ASLEEP: u32 = 1 << 2;
/// One reader.
const READER: u32 = 1 << 3;
/// Writers wait, or waited when somebody last looked: `writers` knows.
const WRITERS: u32 = 1 << 31;
/// As many readers as we let in. Far below the field's end, because arrivals count themselves first.
const READERS_MAX: u32 = 1 << 27;

/// A write phase without an owner, for the first writer to claim it.
const OPEN: u32 = 1;
/// A waiting writer has been woken and has not looked yet.
const WOKEN: u32 = 1 << 1;
/// One waiting writer.
const WAITING: u32 = 1 << 2;

fn readers(state: u32) -> u32 {
    (state & !WRITERS) / READER
}

fn is_writing(state: u32) -> bool {
    state & WRITE != 0
}

fn has_writers(state: u32) -> bool {
    state & WRITERS != 0
}

fn is_open(writers: u32) -> bool {
    writers & OPEN != 0
}

fn waiting(writers: u32) -> u32 {
    writers / WAITING
}

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

impl<P: Platform> Parts<'_, P> {
    /// Acquires for reading.
    #[inline]
    pub fn read(&self, waiter: impl FnOnce() -> Waiter<P>) -> Outcome {
        if self.prefer == Prefer::WritersStrictly {
            // A load first would fetch the line twice: guess that the lock is free.
            // ORDERING: Acquire, pairs with [leave]: what the last writer wrote is ours to read.
            return match self.state.compare_exchange(0, READER, Acquire, Relaxed) {
                Ok(_) => Outcome::Acquired,
                Err(seen) => self.read_strictly(seen, waiter),
            };
        }
        // STATE: readers n -> n + 1: inside if not WRITE, else registered (invariant 2).
        // ORDERING: Acquire, pairs with [leave], [downgrade].
        let old = self.state.fetch_add(READER, Acquire);
        if !is_writing(old) && readers(old) < READERS_MAX {
            return Outcome::Acquired;
        }
        self.read_slow(old, waiter())
    }

    /// Acquires for reading if that needs no waiting.
    #[inline]
    pub fn try_read(&self) -> Outcome {
        let mut seen = self.state.load(Relaxed); // verified by the exchange
        loop {
            if readers(seen) >= READERS_MAX {
                return Outcome::TooMany;
            }
            if is_writing(seen) {
                if self.prefer != Prefer::Readers || !self.claim() {
                    return Outcome::Busy;
                }
                // We own the write phase: WRITE stays set until `downgrade`.
                self.state.fetch_add(READER, Relaxed); // ours until `downgrade` publishes it
                self.downgrade();
                return Outcome::Acquired;
            }
            if !self.may_join(seen) {
                return Outcome::Busy;
            }
            // ORDERING: Acquire, pairs with [leave], [downgrade].
            match self.state.compare_exchange(seen, seen + READER, Acquire, Relaxed) {
                Ok(_) => return Outcome::Acquired,
                Err(now) => seen = now,
            }
        }
    }

    /// Acquires for writing.
    #[inline]
    pub fn write(&self, me: u32, waiter: impl FnOnce() -> Waiter<P>) -> Outcome {
        // STATE: free -> WRITE.
        // ORDERING: Acquire, pairs with [leave], [read leave].
        if self.state.compare_exchange(0, WRITE, Acquire, Relaxed).is_err() {
            match self.write_slow(waiter()) {
                Outcome::Acquired => {}
                failed => return failed,
            }
        }
        self.owner.store(me, Relaxed); // compared only with the reader's own id
        Outcome::Acquired
    }

    /// Acquires for writing if that needs no waiting.
    #[inline]
    pub fn try_write(&self, me: u32) -> Outcome {
        // ORDERING: as in `write`.
        if self.state.compare_exchange(0, WRITE, Acquire, Relaxed).is_err() && !self.claim() {
            return Outcome::Busy;
        }
        self.owner.store(me, Relaxed); // compared only with the reader's own id
        Outcome::Acquired
    }

    /// Releases what the caller holds, for reading or for writing.
    #[inline]
    pub fn unlock(&self) {
        let mut seen = self.state.load(Relaxed); // verified by the exchange
        if is_writing(seen) {
            self.owner.store(0, Relaxed); // only the owner's own comparison could match
            // STATE: WRITE -> free.
            // ORDERING: Release [leave]: pairs with every Acquire on `state`.
            if self.state.compare_exchange(WRITE, 0, Release, Relaxed).is_err() {
                self.leave_write_phase();
            }
            return;
        }
        loop {
            if readers(seen) == 1 && has_writers(seen) {
                // STATE: last reader, WRITERS -> write phase, ours. We only decide who comes next.
                // ORDERING: AcqRel, pairs with [read leave]: the other readers are done before we pass the
                // lock on through `writers`, where they never wrote.
                let write = (seen - READER) | WRITE;
                // SURVIVES: the Release; `leave_write_phase` releases what we have read.
                match self.state.compare_exchange(seen, write, AcqRel, Relaxed) {
                    Ok(_) => return self.leave_write_phase(),
                    Err(now) => seen = now,
                }
                continue;
            }
            // ORDERING: Release [read leave]: our reads are done before a writer writes.
            match self.state.compare_exchange(seen, seen - READER, Release, Relaxed) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    /// May a new reader join the read phase `state`?
    fn may_join(&self, state: u32) -> bool {
        !is_writing(state)
            && (self.prefer != Prefer::WritersStrictly
                || !has_writers(state)
                // The bit is a hint that outlives a writer that gave up.
                || waiting(self.writers.load(Relaxed)) == 0) // a stale count: see `read_strictly`
    }

    /// We are registered, in a write phase (or one too many).
    #[cold]
    fn read_slow(&self, mut seen: u32, waiter: Waiter<P>) -> Outcome {
        if readers(seen) >= READERS_MAX {
            if !self.withdraw() {
                self.unlock();
            }
            return Outcome::TooMany;
        }
        // An owner that is us cannot change while we look.
        if self.owner.load(Relaxed) == waiter.me {
            self.withdraw();
            return Outcome::Deadlock;
        }
        let mut spin_ns = if seen & ASLEEP == 0 { waiter.spin_ns } else { 0 };
        loop {
            let mut claimed = false;
            // ORDERING: Acquire, pairs with [leave], [downgrade].
            seen = P::spin_for(self.state, Acquire, spin_ns, |state| {
                claimed = is_writing(state) && self.prefer == Prefer::Readers && self.claim();
                claimed || !is_writing(state)
            });
            if claimed {
                self.downgrade();
            }
            if claimed || !is_writing(seen) {
                return Outcome::Acquired;
            }
            spin_ns = 0;
            let asleep = seen | ASLEEP;
            // ORDERING: Relaxed: the sleep itself compares the word.
            if self.state.compare_exchange(seen, asleep, Relaxed, Relaxed).is_ok()
                && P::park(self.state, asleep, waiter.deadline) == Woken::TimedOut
            {
                return if self.withdraw() { Outcome::TimedOut } else { Outcome::Acquired };
            }
        }
    }

    /// Takes our registration back; `false` if it has become an entry, so that we hold the lock.
    fn withdraw(&self) -> bool {
        loop {
            // ORDERING: Acquire, pairs with [leave], [downgrade]: we may hold the lock after all.
            let seen = self.state.load(Acquire);
            if !is_writing(seen) {
                return false;
            }
            // ORDERING: Relaxed: we have read and written nothing under the lock.
            if self.state.compare_exchange(seen, seen - READER, Relaxed, Relaxed).is_ok() {
                return true;
            }
        }
    }

    /// Readers that let waiting writers pass are not registered: they try again when woken.
    #[cold]
    fn read_strictly(&self, mut seen: u32, waiter: impl FnOnce() -> Waiter<P>) -> Outcome {
        if self.try_read() == Outcome::Acquired {
            return Outcome::Acquired;
        }
        let waiter = waiter();
        if self.owner.load(Relaxed) == waiter.me {
            return Outcome::Deadlock; // an owner that is us cannot change while we look
        }
        if seen & ASLEEP == 0 {
            let joinable = |state| !is_writing(state) && !has_writers(state);
            P::spin_for(self.state, Relaxed, waiter.spin_ns, joinable); // `try_read` acquires
        }
        loop {
            match self.try_read() {
                Outcome::Busy => {}
                done => return done,
            }
            seen = self.state.load(Relaxed); // verified by the exchange
            if self.may_join(seen) {
                continue;
            }
            let asleep = seen | ASLEEP;
            // ORDERING: AcqRel, pairs with [give up]: either that writer sees ASLEEP, or we see its count.
            // SURVIVES: the Release; the bit is all that we tell.
            if self.state.compare_exchange(seen, asleep, AcqRel, Relaxed).is_ok()
                && !self.may_join(asleep)
                && P::park(self.state, asleep, waiter.deadline) == Woken::TimedOut
            {
                return match self.try_read() {
                    Outcome::Busy => Outcome::TimedOut,
                    done => done,
                };
            }
        }
    }

    #[cold]
    fn write_slow(&self, waiter: Waiter<P>) -> Outcome {
        if self.owner.load(Relaxed) == waiter.me {
            return Outcome::Deadlock; // an owner that is us cannot change while we look
        }
        if waiting(self.writers.load(Relaxed)) == 0 {
            let over = |state| state == 0 || has_writers(state);
            P::spin_for(self.state, Relaxed, waiter.spin_ns, over); // the exchange below acquires
        }
        // ORDERING: as in `write`.
        if self.claim() || self.state.compare_exchange(0, WRITE, Acquire, Relaxed).is_ok() {
            return Outcome::Acquired;
        }
        // ORDERING: Relaxed: [announce] publishes it.
        self.writers.fetch_add(WAITING, Relaxed);
        loop {
            let writers = self.writers.load(Relaxed); // verified by the exchange, or by the sleep
            if is_open(writers) {
                if self.claim_counted(writers) {
                    return Outcome::Acquired;
                }
                continue;
            }
            // Invariant 5: from here on, a new WOKEN makes the sleep fail.
            let dozing = writers & !WOKEN;
            let cleared = || {
                // ORDERING: Acquire, pairs with [wake]: we see the state that its sender left.
                // SURVIVES: an older state fails the exchanges below, and we look again.
                self.writers.compare_exchange(writers, dozing, Acquire, Relaxed).is_ok()
            };
            if writers != dozing && !cleared() {
                continue;
            }
            let seen = self.state.load(Relaxed); // verified by the exchange
            if seen == 0 {
                // ORDERING: as in `write`.
                if self.state.compare_exchange(0, WRITE, Acquire, Relaxed).is_ok() {
                    self.stop_waiting();
                    return Outcome::Acquired;
                }
                continue;
            }
            // Written even if it is set: a plain load could be older than its clearing.
            // ORDERING: Release [announce]: whoever sees the bit finds us counted.
            if self.state.compare_exchange(seen, seen | WRITERS, Release, Relaxed).is_err() {
                continue;
            }
            if P::park(self.writers, dozing, waiter.deadline) == Woken::TimedOut {
                return self.give_up();
            }
            P::spin_for(self.writers, Relaxed, waiter.spin_ns, is_open); // the exchange above acquires
        }
    }

    /// Takes an open write phase as a passer-by; `true` if we own it now.
    #[cold]
    fn claim(&self) -> bool {
        let mut seen = self.writers.load(Relaxed); // verified by the exchange
        while is_open(seen) {
            // STATE: OPEN -> owned.
            // ORDERING: Acquire, pairs with [wake].
            match self.writers.compare_exchange(seen, seen - OPEN, Acquire, Relaxed) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    /// Takes the open write phase `seen` as one of the writers counted in it.
    fn claim_counted(&self, seen: u32) -> bool {
        // STATE: OPEN, n waiting -> owned, n - 1 waiting.
        // ORDERING: Acquire, pairs with [wake].
        let owned = (seen - OPEN - WAITING) & !WOKEN;
        self.writers.compare_exchange(seen, owned, Acquire, Relaxed).is_ok()
    }

    /// We own the write phase, and are still counted among those who wait for it.
    fn stop_waiting(&self) {
        let mut seen = self.writers.load(Relaxed); // verified by the exchange
        // ORDERING: Relaxed: a count; only an owner draws conclusions from it, and that is us.
        while let Err(now) =
            self.writers.compare_exchange(seen, (seen - WAITING) & !WOKEN, Relaxed, Relaxed)
        {
            seen = now;
        }
    }

    /// The deadline has passed: leaves, unless the lock is there to be taken.
    fn give_up(&self) -> Outcome {
        let mut seen = self.writers.load(Relaxed); // verified by the exchange
        loop {
            if is_open(seen) {
                // Who leaves an open phase breaks invariant 3.
                if self.claim_counted(seen) {
                    return Outcome::Acquired;
                }
                seen = self.writers.load(Relaxed); // verified by the exchange
                continue;
            }
            let gone = (seen - WAITING) & !WOKEN;
            // ORDERING: Release, published by [give up].
            // SURVIVES: [give up] releases it once more, where it matters.
            match self.writers.compare_exchange(seen, gone, Release, Relaxed) {
                Ok(_) if waiting(gone) == 0 && self.prefer == Prefer::WritersStrictly => break,
                Ok(_) => return Outcome::TimedOut,
                Err(now) => seen = now,
            }
        }
        // Readers may sleep because of us alone.
        // ORDERING: AcqRel [give up]: a reader that sets ASLEEP later finds that nobody waits.
        // SURVIVES: the Acquire; only an address is used after it.
        if self.state.fetch_and(!ASLEEP, AcqRel) & ASLEEP != 0 {
            P::unpark(self.state, u32::MAX);
        }
        Outcome::TimedOut
    }

    /// Turns our write phase into a read phase; we are counted among its readers.
    fn downgrade(&self) {
        // STATE: write phase -> read phase.
        // ORDERING: Release [downgrade]: what the last writer wrote is every reader's to read.
        if self.state.fetch_and(!(WRITE | ASLEEP), Release) & ASLEEP != 0 {
            P::unpark(self.state, u32::MAX);
        }
    }

    /// Ends our write phase: to the readers, to a writer, or to nobody.
    #[cold]
    fn leave_write_phase(&self) {
        loop {
            let seen = self.state.load(Relaxed); // verified by the exchange
            let writers = self.writers.load(Relaxed); // verified by the exchange, or looked at again
            let to_readers = self.prefer == Prefer::Readers && readers(seen) > 0;
            if !has_writers(seen) || (to_readers && waiting(writers) > 0) {
                // STATE: write phase -> read phase or free. With WRITERS, the last reader sees to them.
                // ORDERING: Release [leave]: pairs with every Acquire on `state`.
                let left = seen & !(WRITE | ASLEEP);
                if self.state.compare_exchange(seen, left, Release, Relaxed).is_ok() {
                    if seen & ASLEEP != 0 {
                        P::unpark(self.state, u32::MAX);
                    }
                    return;
                }
            } else if waiting(writers) > 0 {
                // STATE: owned -> OPEN.
                // ORDERING: Release [wake]: pairs with the Acquire of whoever claims it.
                let open = writers | OPEN | WOKEN;
                if self.writers.compare_exchange(writers, open, Release, Relaxed).is_ok() {
                    if writers & WOKEN == 0 {
                        P::unpark(self.writers, 1);
                    }
                    return;
                }
            } else {
                // ORDERING: Acquire, pairs with [announce]: who set the bit is counted (invariant 4).
                self.state.fetch_and(!WRITERS, Acquire);
                if waiting(self.writers.load(Relaxed)) > 0 {
                    self.state.fetch_or(WRITERS, Relaxed); // still our phase: who counts, announces
                }
            }
        }
    }
}
