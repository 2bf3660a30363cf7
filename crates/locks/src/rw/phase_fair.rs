//! phase-fair: read phases and write phases take turns, so a reader waits for at most one writer.
//!
//! B. B. Brandenburg, J. H. Anderson, *Reader-Writer Synchronization for Shared-Memory Multiprocessor Real-Time Systems*,
//! ECRTS 2009: the ticket algorithm, PF-T. Our deviations: two bits below the readers' count where the paper has a byte; a
//! `try_read` and a `try_write`. And the phase changes whenever a writer leaves, where the paper uses the lowest bit of the writer's
//! ticket: a `try_write` may draw a ticket and give up, and then two writers in a row would have the same phase.
//!
//! ```text
//!   rin   ┌── readers that came ──┬ PRESENT ┬ PHASE ┐        win    next ticket of a writer
//!         └        31 … 2         ┴    1    ┴   0   ┘        wout   the ticket that is served
//!   rout  ┌── readers that left ──┬──── 0 ──────────┐
//!
//!   reader      rin += 1 reader ── PRESENT clear ──► in            otherwise waits until PRESENT or PHASE change
//!   writer      draws from win, waits for wout ──► sets PRESENT ──► until rout = the readers that had come
//!   its leave   clears PRESENT, changes PHASE: everybody that came meanwhile is in; then wout += 1
//! ```
//!
//! So a reader that waits for a writer sees when that writer has left, even if the next writer is already present. And the next
//! writer waits for that reader, so the phase can't change twice meanwhile.
//!
//! 1. Only the writer whose ticket is served writes PRESENT and PHASE, and it clears PRESENT before it calls the next writer.
//! 2. A reader is in from the moment when it sees PRESENT clear, or a different PHASE than when it came, until it is counted in rout.
//! 3. A writer is in when rout counts all readers that came before it set PRESENT; later readers wait for it.
//! 4. A writer's release lets readers in before its last access. So the lock may be destroyed only when every release has returned.
//!
//! Facts: writers first come first served; at most one write phase between a reader's arrival and its entry; 16 B per lock,
//! nothing per waiter; nobody sleeps; a reader that reads again may wait for a writer that waits for it.

use super::{ReadWrite, Tuning};
use crate::entry::{Entry, Kind, Promise};
use lockwright_platform::Ordering::{Acquire, Relaxed, Release};
use lockwright_platform::{Platform, Word};

/// What the catalogue says.
pub const ENTRY: Entry = Entry {
    id: "phase-fair",
    kind: Kind::ReadWrite,
    preset_of: None,
    idea: "read and write phases alternate: a reader waits for at most one writer, a writer for one read phase per turn",
    source: "B. B. Brandenburg, J. H. Anderson, Reader-Writer Synchronization for Shared-Memory Multiprocessor Real-Time Systems, ECRTS 2009, PF-T",
    order: "writers first come first served; readers together, after the write phase in which they arrived",
    promise: Promise::Nothing,
    stands_by: false,
    space: "16 B per lock, nothing per waiter",
    wakes: "none: waiters spin and never sleep",
    delay: "a reader, by one writer; a writer, by the writers ahead of it and one read phase before each; a recursive read lock may deadlock",
    advice: "bounded waits for both sides. Not for unmodified programs: they may lock for reading recursively, or destroy a lock right after its last unlock, and their timed waiters could not leave",
    options: &[],
};

/// The name that the catalogue uses.
pub type Lock<P> = PhaseFair<P>;

/// The writers' bits of `rin`.
const PHASE: u32 = 1;
const PRESENT: u32 = 1 << 1;
const WRITER: u32 = PRESENT | PHASE;
/// One reader.
const READER: u32 = 1 << 2;

/// A phase-fair readers-writer lock.
pub struct PhaseFair<P: Platform> {
    /// How many readers came, and the writers' bits. Written by arriving readers and by the writer that is served.
    rin: P::Word,
    /// How many readers left. Written by readers.
    rout: P::Word,
    /// The next ticket. Written by arriving writers.
    win: P::Word,
    /// The ticket that is served. Written by its writer.
    wout: P::Word,
}

impl<P: Platform> PhaseFair<P> {
    /// A free lock that has already served this many tickets and readers.
    fn after(tickets: u32, readers: u32) -> Self {
        let [rin, rout] = [readers.wrapping_mul(READER); 2].map(P::Word::new);
        let [win, wout] = [tickets; 2].map(P::Word::new);
        Self { rin, rout, win, wout }
    }

    /// Calls the next ticket after ours.
    fn call_next(&self) {
        let ticket = self.wout.load(Relaxed); // ours: nobody else writes
        // ORDERING: Release [call]: our critical section comes before the next writer's.
        self.wout.store(ticket.wrapping_add(1), Release);
    }
}

impl<P: Platform> ReadWrite<P> for PhaseFair<P> {
    type Pass = ();

    fn new(_: &Tuning) -> Self {
        Self::after(0, 0)
    }

    fn nests(_: &Tuning) -> bool {
        false
    }

    #[inline]
    fn read(&self, _: u32) {
        // STATE: one more reader came.
        // ORDERING: Acquire, pairs with [leave write]: we see what every writer before us wrote.
        let came = self.rin.fetch_add(READER, Acquire) & WRITER;
        if came & PRESENT != 0 {
            // ORDERING: Acquire, pairs with [leave write]: the writer has left, and maybe another one has come.
            P::spin_until(&self.rin, Acquire, |now| now & WRITER != came);
        }
    }

    #[inline]
    fn try_read(&self, _: u32) -> Option<()> {
        let mut seen = self.rin.load(Relaxed); // verified by the exchange
        while seen & PRESENT == 0 {
            // ORDERING: Acquire, pairs with [leave write].
            match self.rin.compare_exchange(seen, seen.wrapping_add(READER), Acquire, Relaxed) {
                Ok(_) => return Some(()),
                Err(now) => seen = now,
            }
        }
        None
    }

    #[inline]
    fn leave_read(&self, (): ()) {
        // STATE: one more reader left.
        // ORDERING: Release [leave read]: our reads are done before the writer that waits for us writes.
        self.rout.fetch_add(READER, Release);
    }

    #[inline]
    fn write(&self, _: u32) {
        // Relaxed: a ticket carries no message; wout does.
        let ticket = self.win.fetch_add(1, Relaxed);
        // ORDERING: Acquire, pairs with [call]: every writer before us is done.
        P::spin_until(&self.wout, Acquire, |served| served == ticket);
        // STATE: PRESENT is set: readers that come from here on wait for us.
        // Relaxed: readers that see it get no data from us; it tells us how many came before.
        let came = self.rin.fetch_add(PRESENT, Relaxed);
        debug_assert!(came & PRESENT == 0, "invariant 1");
        // ORDERING: Acquire, pairs with [leave read]: those readers are done before we write.
        P::spin_until(&self.rout, Acquire, |left| left == came & !WRITER);
    }

    #[inline]
    fn try_write(&self, _: u32) -> bool {
        // ORDERING: Acquire, pairs with [call]: every writer before this ticket is done.
        let ticket = self.wout.load(Acquire);
        // ORDERING: Acquire, pairs with [leave read]: these readers are done.
        let left = self.rout.load(Acquire);
        let came = self.rin.load(Relaxed); // verified by the exchange
        if came & PRESENT != 0 || came & !WRITER != left {
            return false;
        }
        // Relaxed: as in `write`. A ticket that nobody has drawn is served, so wout cannot move on before we draw it.
        if self.win.compare_exchange(ticket, ticket.wrapping_add(1), Relaxed, Relaxed).is_err() {
            return false;
        }
        // STATE: PRESENT is set, if no reader has come except those that had left.
        // Relaxed: as in `write`.
        if self.rin.compare_exchange(came, came | PRESENT, Relaxed, Relaxed).is_ok() {
            return true;
        }
        self.call_next();
        false
    }

    #[inline]
    fn leave_write(&self) {
        let rin = self.rin.load(Relaxed); // only we write the bits that we need (invariant 1)
        debug_assert!(rin & PRESENT != 0, "nobody writes");
        let change = ((rin ^ PHASE) & PHASE).wrapping_sub(rin & WRITER);
        // STATE: PRESENT is clear, and PHASE has changed: everybody that came meanwhile is in.
        // ORDERING: Release [leave write]: they see what we wrote.
        self.rin.fetch_add(change, Release);
        self.call_next();
    }
}

#[cfg(test)]
mod tests {
    use super::PhaseFair;
    use crate::rw::ReadWrite;
    use crate::testing::Threads;

    #[test]
    fn tickets_and_readers_wrap_around() {
        let lock = PhaseFair::<Threads>::after(u32::MAX - 2, u32::MAX / 4 - 2);
        for _ in 0..6 {
            lock.read(1);
            assert_eq!(lock.try_read(1), Some(()));
            assert!(!lock.try_write(2), "two read");
            lock.leave_read(());
            assert!(!lock.try_write(2), "one reads");
            lock.leave_read(());
            lock.write(2);
            assert!(lock.try_read(1).is_none() && !lock.try_write(1), "one writes");
            lock.leave_write();
            assert!(lock.try_write(2), "free");
            lock.leave_write();
        }
    }
}
