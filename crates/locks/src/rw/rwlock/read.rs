//! Readers come.

use super::words::{ASLEEP, READER, READERS_MAX, has_writers, is_writing, readers, waiting};
use super::{Outcome, Parts, Prefer, Waiter};
use lockwright_platform::Ordering::{AcqRel, Acquire, Relaxed};
use lockwright_platform::{Platform, Woken, Word};

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
}
