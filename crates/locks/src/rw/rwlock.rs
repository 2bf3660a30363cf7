//! rwlock: a reader registers with one `fetch_add`. A phase bit says whether that let it in, or gave it a place
//! among the readers that the writer will let in together.
//!
//! Source: the phases are those of glibc 2.25's `pthread_rwlock_common.c` (Torvald Riegel); the "woken writer
//! on its way" bit is that of Go's `sync.Mutex`. Deviations, each with its reason:
//! * Any running writer may take a write phase that waits for a woken writer, and with [`Prefer::Readers`] a
//!   reader may turn it into a read phase. So the lock does not stay idle while somebody wakes up.
//! * Writers sleep on a count of themselves, not on a flag. So a release knows exactly whether a writer is left.
//! * [`Prefer::Patient`]: phases take turns, as in B. Brandenburg, J. Anderson, *Reader-Writer Synchronization for Shared-Memory
//!   Multiprocessor Real-Time Systems*, ECRTS 2009, but a reader's turn to wait ends with its patience. So a thread may read again.
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
//!    counted, or by the last one. So a counted reader that has once seen it clear holds the lock until it leaves.
//! 3. `WRITE` and not `OPEN`: one thread owns the phase. `OPEN` implies `WRITE` and a counted waiting writer
//!    that is awake or being woken: the thread that clears `OPEN` owns the phase.
//! 4. A writer sleeps only while it is counted in `writers`, and only if `WRITERS` was set after it was counted.
//!    Only the owner of a write phase clears `WRITERS`, and it looks at `writers` again afterwards.
//! 5. `WOKEN` implies that a counted writer is awake. Each writer clears it before it looks at `state` for the
//!    last time before sleeping, and when it stops waiting. So at most one wake-up is under way.
//! 6. After the operation that releases, the releaser no longer touches the lock's memory; the wake-up that
//!    follows uses only an address.
//! 7. A patient reader leaves a read phase for which a writer waits, and waits uncounted: until it sees a write phase, or that no
//!    writer waits, or the end of its patience or its deadline. Then it registers as any reader, and does not leave again.
//!
//! Preferences may differ from thread to thread, and change at any time. A preference only chooses among steps that these invariants
//! allow to every thread: to join or not, which phase follows, to claim OPEN or not. Nobody relies on another thread's choice: registered
//! readers and counted writers are found in the words; strict and patient readers, which are not, are woken by whoever ends a write
//! phase without another one, and by the last writer that gives up, whatever these threads prefer; and patient ones wake by themselves.
//!
//! Facts: readers together, writers by arrival with overtaking; 12 bytes; one wake per hand-over, and one per patient reader that sleeps
//! when a write phase begins; delays without bound: of writers with [`Prefer::Readers`], of readers with [`Prefer::WritersStrictly`], of
//! either with [`Prefer::Writers`]. With [`Prefer::Patient`], readers wait for [`PATIENCE_NS`] and one writer at most; a writer waits for
//! the readers that are in, if their sections are shorter than that, and for other writers.
//!
//! This file decides who gets in, and who lets whom in; `waiting.rs` says how threads wait.

use super::waiting::{ASLEEP, OPEN, READER, READERS_MAX, TOO_MANY, WOKEN, WRITE, WRITERS};
use super::waiting::{has_writers, is_open, is_writing, readers, waiting};
use super::{PREFER, Prefer, ReadWrite, SPIN, Tuning};
use crate::entry::{Entry, Kind, Promise};
use lockwright_platform::Ordering::{AcqRel, Acquire, Relaxed, Release};
use lockwright_platform::{Platform, Word};

pub use super::waiting::{Counted, Outcome, PATIENCE_NS, Parts, Waiter};

/// What the catalogue says.
pub const ENTRY: Entry = Entry {
    id: "rwlock",
    kind: Kind::ReadWrite,
    preset_of: None,
    idea: "readers count themselves in one word; a phase bit says whether they hold the lock or wait for a writer",
    source: "glibc 2.25's pthread_rwlock_common.c (Torvald Riegel), with deviations that its file lists",
    order: "none: writers overtake each other; `prefer` says whether readers or writers go first",
    promise: Promise::Nothing,
    stands_by: false,
    space: "24 B per lock, nothing per waiter",
    wakes: "readers and writers spin, then sleep; a release wakes one writer, or all readers",
    delay: "without bound: writers by readers with `prefer=0`, readers by writers with `prefer=2`, either by the other with `prefer=1`; with `prefer=3`, readers by 10 ms and one writer, and writers by no new reader whose section takes less than 10 ms. With `prefer=2`, a recursive read lock may deadlock",
    advice: "what programs get from `lockwright run` and `lockwright-sync`: glibc's semantics, with all timed locks and preferences",
    options: &[PREFER, SPIN],
};

/// The name that the catalogue uses.
pub type Lock<P> = Single<P>;

#[expect(clippy::disallowed_types, reason = "no part of the protocol: any of its values will do")]
type Changing = core::sync::atomic::AtomicU8;

/// A readers-writer lock of three words.
pub struct Single<P: Platform> {
    state: P::Word,
    writers: P::Word,
    owner: P::Word,
    /// Who goes first: it may change at any time.
    prefer: Changing,
    spin_ns: u32,
}

impl<P: Platform> Single<P> {
    fn parts(&self) -> Parts<'_, P> {
        let Self { state, writers, owner, .. } = self;
        let prefer = self.prefer.load(Relaxed).into(); // any of its values will do
        Parts { state, writers, owner, prefer }
    }

    fn waiter(&self, me: u32, deadline: Option<P::Deadline>) -> Waiter<'static, P> {
        Waiter { me, spin_ns: self.spin_ns, deadline, counted: None }
    }
}

/// Is the lock held now?
///
/// Callers must not ask for a lock that they hold for writing, and there are fewer of them than can be counted.
fn acquired(outcome: Outcome) -> bool {
    debug_assert!(!matches!(outcome, Outcome::Deadlock | Outcome::TooMany), "{outcome:?}");
    outcome == Outcome::Acquired
}

impl<P: Platform> ReadWrite<P> for Single<P> {
    type Pass = ();
    const TIMED: bool = true;
    const LAST_MAY_END: bool = true;

    fn new(tuning: &Tuning) -> Self {
        let [state, writers, owner] = [(); 3].map(|()| P::Word::new(0));
        Self {
            state,
            writers,
            owner,
            prefer: Changing::new(tuning.prefer as u8),
            spin_ns: tuning.spin_ns,
        }
    }

    fn nests(tuning: &Tuning) -> bool {
        tuning.prefer != Prefer::WritersStrictly
    }

    #[inline]
    fn read(&self, me: u32) {
        acquired(self.parts().read(|_| self.waiter(me, None)));
    }

    #[inline]
    fn try_read(&self, _: u32) -> Option<()> {
        acquired(self.parts().try_read()).then_some(())
    }

    fn read_until(&self, me: u32, deadline: P::Deadline) -> Option<()> {
        acquired(self.parts().read(|_| self.waiter(me, Some(deadline)))).then_some(())
    }

    #[inline]
    fn leave_read(&self, (): ()) {
        self.parts().unlock();
    }

    #[inline]
    fn write(&self, me: u32) {
        acquired(self.parts().write(me, |_| self.waiter(me, None)));
    }

    #[inline]
    fn try_write(&self, me: u32) -> bool {
        acquired(self.parts().try_write(me))
    }

    fn write_until(&self, me: u32, deadline: P::Deadline) -> bool {
        acquired(self.parts().write(me, |_| self.waiter(me, Some(deadline))))
    }

    #[inline]
    fn leave_write(&self) {
        self.parts().unlock();
    }

    fn torn_wait(&self, writes: bool) -> bool {
        self.parts().torn_wait(writes);
        true
    }

    fn switch(&self, prefer: Prefer) -> bool {
        self.prefer.store(prefer as u8, Relaxed); // as in `parts`
        true
    }
}

impl<P: Platform> Parts<'_, P> {
    /// Acquires for reading. `waiter` learns where it is counted.
    #[inline]
    pub fn read<'w>(&self, waiter: impl FnOnce(Counted) -> Waiter<'w, P>) -> Outcome {
        match self.begin_read() {
            Ok(()) => Outcome::Acquired,
            Err(seen) => self.finish_read(seen, waiter),
        }
    }

    /// The first half of [`read`](Self::read). `Err`: the lock isn't held yet, and [`finish_read`](Self::finish_read) must follow, with this
    /// state and the same [`prefer`](Self::prefer), which says whether the caller is registered.
    #[inline]
    pub fn begin_read(&self) -> Result<(), u32> {
        if self.prefers(Prefer::WritersStrictly) {
            // Guess that the lock is free: a load before this would fetch the cache line twice.
            // ORDERING: Acquire, pairs with [leave]: we see what the last writer wrote.
            return match self.state.compare_exchange(0, READER, Acquire, Relaxed) {
                Ok(_) => Ok(()),
                Err(seen) => self.join_strictly(seen),
            };
        }
        // STATE: readers n -> n + 1: inside if not WRITE, else registered (invariant 2).
        // ORDERING: Acquire, pairs with [leave], [downgrade].
        let old = self.state.fetch_add(READER, Acquire);
        // One test for all that is rare. So readers that are not patient pay nothing for those that are.
        if old & (WRITE | TOO_MANY | WRITERS) == 0 {
            return Ok(());
        }
        if old & (WRITE | TOO_MANY) == 0 && !(self.prefers(Prefer::Patient) && self.is_awaited(old))
        {
            return Ok(());
        }
        Err(old)
    }

    /// The second half of [`read`](Self::read).
    #[inline]
    pub fn finish_read<'w>(
        &self,
        seen: u32,
        waiter: impl FnOnce(Counted) -> Waiter<'w, P>,
    ) -> Outcome {
        if self.prefers(Prefer::WritersStrictly) {
            return self.read_strictly(seen, waiter);
        }
        self.read_slow(seen, waiter(Counted::AsReader))
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
                if !self.prefers(Prefer::Readers) || !self.claim() {
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

    /// Acquires for writing. `waiter` is as for [`read`](Self::read).
    #[inline]
    pub fn write<'w>(&self, me: u32, waiter: impl FnOnce(Counted) -> Waiter<'w, P>) -> Outcome {
        match self.begin_write(me) {
            Ok(()) => Outcome::Acquired,
            Err(_) => self.finish_write(me, waiter),
        }
    }

    /// The first half of [`write`](Self::write). `Err`: the lock isn't free, but in this state, which is not 0;
    /// [`finish_write`](Self::finish_write) must follow.
    #[inline]
    pub fn begin_write(&self, me: u32) -> Result<(), u32> {
        // STATE: free -> WRITE.
        // ORDERING: Acquire, pairs with [leave], [read leave].
        self.state.compare_exchange(0, WRITE, Acquire, Relaxed)?;
        self.owner.store(me, Relaxed); // compared only with the reader's own id
        Ok(())
    }

    /// The second half of [`write`](Self::write).
    #[inline]
    pub fn finish_write<'w>(
        &self,
        me: u32,
        waiter: impl FnOnce(Counted) -> Waiter<'w, P>,
    ) -> Outcome {
        let outcome = self.write_slow(waiter(Counted::Nowhere));
        if outcome == Outcome::Acquired {
            self.owner.store(me, Relaxed); // compared only with the reader's own id
        }
        outcome
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
        if !self.begin_unlock() {
            self.finish_unlock();
        }
    }

    /// The first half of [`unlock`](Self::unlock). `false`: somebody waits, the caller still holds the lock, and
    /// [`finish_unlock`](Self::finish_unlock) must follow.
    #[inline]
    pub fn begin_unlock(&self) -> bool {
        let mut seen = P::load_to_write(self.state); // verified by the exchange
        if is_writing(seen) {
            self.owner.store(0, Relaxed); // only the owner's own comparison could match
            // STATE: WRITE -> free.
            // ORDERING: Release [leave]: pairs with every Acquire on `state`.
            return self.state.compare_exchange(WRITE, 0, Release, Relaxed).is_ok();
        }
        while !(readers(seen) == 1 && has_writers(seen)) {
            // ORDERING: Release [read leave]: our reads are done before a writer writes.
            match self.state.compare_exchange(seen, seen.wrapping_sub(READER), Release, Relaxed) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    /// The second half of [`unlock`](Self::unlock).
    #[cold]
    pub fn finish_unlock(&self) {
        loop {
            let seen = self.state.load(Relaxed); // verified by the exchange; nobody else ends a write phase of ours
            if is_writing(seen) {
                return self.leave_write_phase(true);
            }
            if readers(seen) == 1 && has_writers(seen) {
                // STATE: last reader, WRITERS -> write phase, ours. We only decide who is next.
                // ORDERING: AcqRel, pairs with [read leave]: the other readers are done before we pass the
                // lock on through `writers`, where they never wrote.
                let write = (seen - READER) | WRITE;
                // SURVIVES: the Release; `leave_write_phase` orders our reads, too.
                if self.state.compare_exchange(seen, write, AcqRel, Relaxed).is_ok() {
                    return self.leave_write_phase(false);
                }
            } else if self.begin_unlock() {
                return; // a reader has come meanwhile
            }
        }
    }

    /// Makes the writer that holds the lock, or the last of the readers, release it by [`finish_unlock`](Self::finish_unlock). It costs that
    /// thread no wake. `false`: nobody holds the lock, or its state has just changed.
    pub fn divert(&self) -> bool {
        let seen = self.state.load(Relaxed); // verified by the exchange
        // STATE: held -> held, WRITERS, as if a writer had waited and given up.
        // ORDERING: Relaxed: nobody is counted, and so there is nothing to find.
        let mark = || self.state.compare_exchange(seen, seen | WRITERS, Relaxed, Relaxed).is_ok();
        seen != 0 && (has_writers(seen) || mark())
    }

    /// Did a writer hold the lock in this state, which [`begin_read`](Self::begin_read) or [`begin_write`](Self::begin_write) returned?
    pub fn is_written(seen: u32) -> bool {
        is_writing(seen)
    }

    /// Does somebody wait for the lock, which the caller holds? Then its holder, or the last of the readers, releases it by
    /// [`finish_unlock`](Self::finish_unlock). A hint.
    pub fn has_waiters(&self) -> bool {
        let seen = self.state.load(Relaxed); // a hint
        has_writers(seen) && waiting(self.writers.load(Relaxed)) > 0 // as above
            || is_writing(seen) && (readers(seen) > 0 || seen & ASLEEP != 0)
    }

    /// May a new reader join the read phase `state`?
    pub(super) fn may_join(&self, state: u32) -> bool {
        !is_writing(state) && (!self.prefers(Prefer::WritersStrictly) || !self.is_awaited(state))
    }

    /// Does a writer wait for the end of the read phase `state`?
    pub(super) fn is_awaited(&self, state: u32) -> bool {
        // The bit is a hint: it stays set after a writer gives up.
        has_writers(state) && waiting(self.writers.load(Relaxed)) > 0 // a stale count: see `read_strictly`
    }

    /// Takes an open write phase without being counted as a waiting writer; `true` if we own it now.
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

    /// Turns our write phase into a read phase. We are already counted among its readers.
    pub(super) fn downgrade(&self) {
        // STATE: write phase -> read phase.
        // ORDERING: Release [downgrade]: every reader sees what the last writer wrote.
        if self.state.fetch_and(!(WRITE | ASLEEP), Release) & ASLEEP != 0 {
            P::unpark(self.state, u32::MAX);
        }
    }

    /// Ends our write phase, and passes the lock to the readers, to a writer, or to nobody. `was_ours`: a writer had its turn; if not,
    /// a read phase has just ended.
    #[cold]
    pub(super) fn leave_write_phase(&self, was_ours: bool) {
        let readers_first =
            self.prefers(Prefer::Readers) || self.prefers(Prefer::Patient) && was_ours;
        let mut asleep = 0;
        loop {
            let seen = self.state.load(Relaxed); // verified by the exchange
            let writers = self.writers.load(Relaxed); // verified by the exchange, or looked at again
            let to_readers = readers_first && readers(seen) > 0;
            if !has_writers(seen) || (to_readers && waiting(writers) > 0) {
                // STATE: write phase -> read phase or free. If WRITERS is set, the last reader lets a writer in.
                // ORDERING: Release [leave]: pairs with every Acquire on `state`.
                let left = seen & !(WRITE | ASLEEP);
                if self.state.compare_exchange(seen, left, Release, Relaxed).is_ok() {
                    if (seen | asleep) & ASLEEP != 0 {
                        P::unpark(self.state, u32::MAX);
                    }
                    return;
                }
            } else if waiting(writers) > 0 {
                if self.prefers(Prefer::Patient) && seen & ASLEEP != 0 {
                    // Patient readers sleep uncounted. They are to register, so that this writer lets them in.
                    // Relaxed: only readers set the bit, and they look again before they sleep.
                    asleep |= self.state.fetch_and(!ASLEEP, Relaxed);
                }
                // STATE: owned -> OPEN.
                // ORDERING: Release [wake]: pairs with the Acquire of the thread that claims it.
                let open = writers | OPEN | WOKEN;
                if self.writers.compare_exchange(writers, open, Release, Relaxed).is_ok() {
                    if writers & WOKEN == 0 {
                        P::unpark(self.writers, 1);
                    }
                    if asleep & ASLEEP != 0 {
                        // SURVIVES: then they sleep until the writer leaves, or their patience ends.
                        P::unpark(self.state, u32::MAX);
                    }
                    return;
                }
            } else {
                // ORDERING: Acquire, pairs with [announce]: the writer that set the bit is counted
                // (invariant 4).
                self.state.fetch_and(!WRITERS, Acquire);
                if waiting(self.writers.load(Relaxed)) > 0 {
                    self.state.fetch_or(WRITERS, Relaxed); // still our phase: a counted writer announces itself
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Threads;

    #[test]
    fn a_holder_that_is_diverted_releases_by_the_second_half_and_leaves_the_lock_free() {
        for number in 0..Prefer::NAMES.len() as u32 {
            let prefer = Prefer::of(number);
            let lock = Single::<Threads>::new(&Tuning { prefer, ..Tuning::default() });
            let parts = lock.parts();
            assert!(!parts.divert(), "nobody holds it");
            assert!(parts.begin_write(1).is_ok() && parts.begin_write(2) == Err(WRITE));
            assert!(parts.divert() && parts.divert() && !parts.has_waiters());
            assert!(!parts.begin_unlock());
            parts.finish_unlock();
            assert_eq!((parts.state.load(Relaxed), parts.owner.load(Relaxed)), (0, 0));
            // Of two readers, the last one.
            assert!(parts.begin_read().is_ok() && parts.divert());
            assert_eq!(parts.begin_read(), Ok(()), "no writer waits");
            assert!(parts.begin_unlock() && !parts.begin_unlock());
            parts.finish_unlock();
            assert_eq!(parts.state.load(Relaxed), 0);
            assert!(lock.try_write(3));
            lock.leave_write();
        }
    }
}
