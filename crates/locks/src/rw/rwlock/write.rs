//! Writers come.

use super::words::{ASLEEP, OPEN, WAITING, WOKEN, WRITE, WRITERS, has_writers, is_open, waiting};
use super::{Outcome, Parts, Prefer, Waiter};
use lockwright_platform::Ordering::{AcqRel, Acquire, Relaxed, Release};
use lockwright_platform::{Platform, Woken, Word};

impl<P: Platform> Parts<'_, P> {
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
}
