//! Phases: who releases decides who comes next; who comes may claim what is open.

use super::words::{
    ASLEEP, OPEN, READER, WOKEN, WRITE, WRITERS, has_writers, is_open, is_writing, readers, waiting,
};
use super::{Parts, Prefer};
use lockwright_platform::Ordering::{AcqRel, Acquire, Relaxed, Release};
use lockwright_platform::{Platform, Word};

impl<P: Platform> Parts<'_, P> {
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

    /// Takes an open write phase as a passer-by; `true` if we own it now.
    #[cold]
    pub(super) fn claim(&self) -> bool {
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

    /// Turns our write phase into a read phase; we are counted among its readers.
    pub(super) fn downgrade(&self) {
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
