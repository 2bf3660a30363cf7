//! The words of `rwlock`, and how readers and writers wait, give up, and are torn away. The protocol is `rwlock.rs`'s.

use super::Prefer;
use core::cell::Cell;
use lockwright_platform::Ordering::{AcqRel, Acquire, Relaxed, Release};
use lockwright_platform::{Platform, Woken, Word};

/// A write phase. Two bits: glibc's debugger scripts read them as "phase" and "acquired".
pub(super) const WRITE: u32 = 0b11;
/// Readers may sleep on `state`.
pub(super) const ASLEEP: u32 = 1 << 2;
/// One reader.
pub(super) const READER: u32 = 1 << 3;
/// Writers wait, or did so when somebody last looked: `writers` knows.
pub(super) const WRITERS: u32 = 1 << 31;
/// The most readers that we let in: far below the field's end, because arrivals count themselves first.
pub(super) const READERS_MAX: u32 = 1 << 27;
/// At least that many.
pub(super) const TOO_MANY: u32 = READERS_MAX * READER;
const _: () = assert!(TOO_MANY == WRITERS / 2, "one bit says it");

/// How long a patient reader waits uncounted for a writer, ns.
pub const PATIENCE_NS: u32 = 10_000_000;

/// A write phase without an owner, for the first thread that claims it.
pub(super) const OPEN: u32 = 1;
/// A waiting writer has been woken and has not looked yet.
pub(super) const WOKEN: u32 = 1 << 1;
/// One waiting writer.
pub(super) const WAITING: u32 = 1 << 2;

pub(super) fn readers(state: u32) -> u32 {
    (state & !WRITERS) / READER
}

pub(super) fn is_writing(state: u32) -> bool {
    state & WRITE != 0
}

pub(super) fn has_writers(state: u32) -> bool {
    state & WRITERS != 0
}

pub(super) fn is_open(writers: u32) -> bool {
    writers & OPEN != 0
}

pub(super) fn waiting(writers: u32) -> u32 {
    writers / WAITING
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

/// The words of one lock, wherever they lie; all zeroes is an unlocked lock.
pub struct Parts<'a, P: Platform> {
    /// Readers and the phase: written by everybody, atomically.
    pub state: &'a P::Word,
    /// Waiting writers: written by them and by the owner of a write phase.
    pub writers: &'a P::Word,
    /// The writer's thread id: written by the writer while it holds the lock.
    pub owner: &'a P::Word,
    /// Who goes first: the number of a [`Prefer`], or of none, which counts as [`Prefer::Writers`]. It may be different in each call.
    pub prefer: u32,
}

/// Where a waiting thread is counted: this must be undone if it is torn out of its wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Counted {
    /// Nowhere, or it holds the lock, and goes on.
    #[default]
    Nowhere,
    /// Registered in `state`: it may hold the lock.
    AsReader,
    /// In `writers`.
    AsWriter,
    /// It holds the lock for writing, and waits for readers that are elsewhere (`biased.rs`).
    AsOwner,
}

/// Who waits, and how. Made only when a thread has to wait.
pub struct Waiter<'a, P: Platform> {
    /// The caller's thread id, not 0.
    pub me: u32,
    /// How long it may wait awake, if nobody sleeps yet.
    pub spin_ns: u32,
    /// When it gives up.
    pub deadline: Option<P::Deadline>,
    /// Records where the waiter is counted, for [`Parts::leave`].
    pub counted: Option<&'a Cell<Counted>>,
}

impl<P: Platform> Waiter<'_, P> {
    pub(super) fn is(&self, counted: Counted) {
        if let Some(cell) = self.counted {
            // SAFETY: a cell's memory. Volatile, so that it is written right here: a signal handler may interrupt us.
            unsafe { cell.as_ptr().write_volatile(counted) };
        }
    }

    /// How long to wait awake on `state`.
    fn spin_unless_asleep(&self, state: u32) -> u32 {
        if state & ASLEEP == 0 { self.spin_ns } else { 0 }
    }
}

impl<P: Platform> Parts<'_, P> {
    #[inline(always)]
    pub(super) fn prefers(&self, prefer: Prefer) -> bool {
        self.prefer == prefer as u32
    }

    /// Ends a wait that its own thread was torn out of: a signal handler interrupted it, and does not return. If we got
    /// the lock meanwhile, releases it.
    #[cold]
    pub fn leave(&self, counted: Counted) {
        match counted {
            Counted::Nowhere => {}
            Counted::AsReader if self.withdraw() => {}
            Counted::AsReader => self.unlock(),
            Counted::AsOwner => self.unlock(),
            Counted::AsWriter if self.give_up() != Outcome::Acquired => {}
            Counted::AsWriter => self.leave_write_phase(true),
        }
    }

    /// A wait that is torn as soon as it is counted, for explorations. (With strictly preferred writers, readers are not counted.)
    #[cold]
    pub(super) fn torn_wait(&self, writes: bool) {
        // Relaxed, both: it neither reads nor writes under the lock.
        if writes {
            self.writers.fetch_add(WAITING, Relaxed);
            self.leave(Counted::AsWriter);
        } else if !self.prefers(Prefer::WritersStrictly) {
            self.state.fetch_add(READER, Relaxed);
            self.leave(Counted::AsReader);
        }
    }

    /// We are registered: during a write phase, or as one reader too many, or, if we are patient, in a read phase with WRITERS.
    #[cold]
    pub(super) fn read_slow(&self, mut seen: u32, waiter: Waiter<'_, P>) -> Outcome {
        let is_in = |state| !is_writing(state) && readers(state) < READERS_MAX;
        if is_in(seen) {
            debug_assert!(self.prefers(Prefer::Patient) && has_writers(seen), "invariant 7");
            if self.is_awaited(seen) {
                seen = self.step_aside(seen, &waiter);
            }
            if is_in(seen) {
                waiter.is(Counted::Nowhere);
                return Outcome::Acquired;
            }
        }
        if readers(seen) >= READERS_MAX {
            waiter.is(Counted::Nowhere);
            if !self.withdraw() {
                self.unlock();
            }
            return Outcome::TooMany;
        }
        // If we are the owner, that can't change while we look.
        if self.owner.load(Relaxed) == waiter.me {
            waiter.is(Counted::Nowhere);
            self.withdraw();
            return Outcome::Deadlock;
        }
        let mut spin_ns = waiter.spin_unless_asleep(seen);
        loop {
            let mut claimed = false;
            // ORDERING: Acquire, pairs with [leave], [downgrade].
            seen = P::spin_for(self.state, Acquire, spin_ns, |state| {
                claimed = is_writing(state) && self.prefers(Prefer::Readers) && self.claim();
                claimed || !is_writing(state)
            });
            if claimed {
                self.downgrade();
            }
            if claimed || !is_writing(seen) {
                waiter.is(Counted::Nowhere);
                return Outcome::Acquired;
            }
            spin_ns = 0;
            let asleep = seen | ASLEEP;
            // ORDERING: Relaxed: the sleep itself compares the word.
            if self.state.compare_exchange(seen, asleep, Relaxed, Relaxed).is_ok()
                && P::park(self.state, asleep, waiter.deadline) == Woken::TimedOut
            {
                waiter.is(Counted::Nowhere);
                return if self.withdraw() { Outcome::TimedOut } else { Outcome::Acquired };
            }
        }
    }

    /// We are in, and a writer waits: lets it go first, for a bounded time (invariant 7). Returns the state in which we registered again.
    fn step_aside(&self, seen: u32, waiter: &Waiter<'_, P>) -> u32 {
        waiter.is(Counted::Nowhere);
        self.unlock();
        let patience = P::after(PATIENCE_NS);
        let end = waiter.deadline.map_or(patience, |own| P::sooner(own, patience));
        let is_over = |state| is_writing(state) || !has_writers(state);
        let mut seen = P::spin_for(self.state, Relaxed, waiter.spin_unless_asleep(seen), is_over); // we only look
        while !is_over(seen) && self.is_awaited(seen) {
            let asleep = seen | ASLEEP;
            // ORDERING: AcqRel, pairs with [give up]: either that writer sees ASLEEP, or we see its count.
            // SURVIVES: our patience ends.
            // SURVIVES no-store: the sleep compares the word and fails; then we try again.
            if let Err(now) = self.state.compare_exchange(seen, asleep, AcqRel, Relaxed) {
                seen = now;
                continue;
            }
            // SURVIVES: our patience ends.
            if !self.is_awaited(asleep) || P::park(self.state, asleep, Some(end)) == Woken::TimedOut
            {
                break;
            }
            seen = self.state.load(Relaxed); // verified by the exchange
            if seen & ASLEEP == 0 {
                break; // a write phase has begun since, or the last writer has given up
            }
        }
        // STATE: as in `read`.
        // ORDERING: Acquire, pairs with [leave], [downgrade].
        let seen = self.state.fetch_add(READER, Acquire);
        waiter.is(Counted::AsReader);
        seen
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

    /// Acquires for reading, after waiting writers, if that needs no waiting after all.
    #[cold]
    pub(super) fn join_strictly(&self, seen: u32) -> Result<(), u32> {
        if self.try_read() == Outcome::Acquired { Ok(()) } else { Err(seen) }
    }

    /// As [`join_strictly`](Self::join_strictly), which must have failed. Such readers are not registered: they try again when woken.
    #[cold]
    pub(super) fn read_strictly<'w>(
        &self,
        mut seen: u32,
        waiter: impl FnOnce(Counted) -> Waiter<'w, P>,
    ) -> Outcome {
        let waiter = waiter(Counted::Nowhere);
        if self.owner.load(Relaxed) == waiter.me {
            return Outcome::Deadlock; // if we are the owner, that can't change while we look
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
            // SURVIVES: the Release; we publish only the bit.
            // SURVIVES release: too rare for explorations; the model of readers that meet when a writer gives up finds it.
            // SURVIVES no-store: the sleep compares the word and fails; then we try again.
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
    pub(super) fn write_slow(&self, waiter: Waiter<'_, P>) -> Outcome {
        if self.owner.load(Relaxed) == waiter.me {
            return Outcome::Deadlock; // if we are the owner, that can't change while we look
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
        waiter.is(Counted::AsWriter);
        loop {
            let writers = self.writers.load(Relaxed); // verified by the exchange, or by the sleep
            if is_open(writers) {
                if self.claim_counted(writers) {
                    waiter.is(Counted::Nowhere);
                    return Outcome::Acquired;
                }
                continue;
            }
            // Invariant 5: from here on, a new WOKEN makes the sleep fail.
            let dozing = writers & !WOKEN;
            let cleared = || {
                // ORDERING: Acquire, pairs with [wake]: we see the state that the waker left.
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
                    waiter.is(Counted::Nowhere);
                    self.stop_waiting();
                    return Outcome::Acquired;
                }
                continue;
            }
            // Write it even if it is set already: a plain load might read a value from before it was cleared.
            // ORDERING: Release [announce]: a thread that sees the bit finds us counted.
            if self.state.compare_exchange(seen, seen | WRITERS, Release, Relaxed).is_err() {
                continue;
            }
            // Patient readers come out soon.
            if self.prefers(Prefer::Patient)
                && is_open(P::spin_for(self.writers, Relaxed, waiter.spin_ns, is_open))
            {
                continue; // and acquire it
            }
            if P::park(self.writers, dozing, waiter.deadline) == Woken::TimedOut {
                waiter.is(Counted::Nowhere);
                return self.give_up();
            }
            P::spin_for(self.writers, Relaxed, waiter.spin_ns, is_open); // the exchange above acquires
        }
    }

    /// Takes the open write phase `seen` as one of the writers counted in it.
    fn claim_counted(&self, seen: u32) -> bool {
        // STATE: OPEN, n waiting -> owned, n - 1 waiting.
        // ORDERING: Acquire, pairs with [wake].
        let owned = (seen - OPEN - WAITING) & !WOKEN;
        self.writers.compare_exchange(seen, owned, Acquire, Relaxed).is_ok()
    }

    /// We own the write phase, and are still counted among the waiting writers: counts us out.
    fn stop_waiting(&self) {
        let mut seen = self.writers.load(Relaxed); // verified by the exchange
        // ORDERING: Relaxed: a count; only the owner draws conclusions from it, and we are the owner.
        while let Err(now) =
            self.writers.compare_exchange(seen, (seen - WAITING) & !WOKEN, Relaxed, Relaxed)
        {
            seen = now;
        }
    }

    /// The deadline has passed: leaves, unless the lock can be taken now.
    fn give_up(&self) -> Outcome {
        let mut seen = self.writers.load(Relaxed); // verified by the exchange
        loop {
            if is_open(seen) {
                // Leaving an open phase would break invariant 3.
                if self.claim_counted(seen) {
                    return Outcome::Acquired;
                }
                seen = self.writers.load(Relaxed); // verified by the exchange
                continue;
            }
            let gone = (seen - WAITING) & !WOKEN;
            // ORDERING: Release, published by [give up].
            // SURVIVES: where it matters, [give up] releases it once more.
            match self.writers.compare_exchange(seen, gone, Release, Relaxed) {
                Ok(_) if waiting(gone) == 0 => break,
                Ok(_) => return Outcome::TimedOut,
                Err(now) => seen = now,
            }
        }
        // Strict and patient readers may be sleeping only because of us. (With other preferences they don't, but threads may differ.)
        // ORDERING: AcqRel [give up]: a reader that sets ASLEEP later finds that nobody waits.
        // SURVIVES: the Acquire; only an address is used after it.
        // SURVIVES acquire: as at the reader's exchange, too rare for explorations.
        // SURVIVES no-store: the next thread to leave wakes them, too.
        if self.state.fetch_and(!ASLEEP, AcqRel) & ASLEEP != 0 {
            P::unpark(self.state, u32::MAX);
        }
        Outcome::TimedOut
    }
}
