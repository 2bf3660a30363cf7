//! bravo: while no writer has come for some time, readers don't touch the lock; they show in a table which lock they hold.
//!
//! D. Dice, A. Kogan, *BRAVO: Biased Locking for Reader-Writer Locks*, USENIX ATC 2019. Our deviation: a thread has a row
//! of slots, one cache line, and takes the first free slot of its row. (The paper hashes thread and lock to a slot.) So threads
//! share cache lines only if they outnumber the rows. If its row is full, a thread reads as if the lock had no bias.
//!
//! ```text
//!   the lock            the table, of all locks
//!   ┌──────┬───────┐    thread 1  ┌ this lock ┬ -         ┬ ...
//!   │ bias │ inner │    thread 2  ├ -         ┬ -         ┬ ...
//!   └──────┴───────┘    thread 3  ├ another   ┬ this lock ┬ ...     two readers
//!
//!   reader, fast    bias set? ──► shows itself ──► bias still set? ──► in
//!   reader, slow    inner for reading ──► in; may set the bias, unless it is inhibited
//!   writer          inner for writing ──► bias set? clears it, waits until no slot shows this lock ──► in
//! ```
//!
//! A revocation is expensive: it looks at the whole table. So readers set the bias again only after `inhibit` times its length.
//!
//! 1. Only holders of inner write the bias: holders for reading set it, holders for writing clear it. While it is clear, and nobody
//!    holds inner for writing, no reader is in by the table.
//! 2. A reader that shows the lock and then sees the bias set is in until it clears its slot. A reader that doesn't see the bias
//!    set clears its slot at once: it may delay a writer, and nothing else.
//! 3. A writer is in when it has inner, the bias is clear, and since then it has seen each slot once without this lock.
//! 4. A slot that shows a lock is written only by the thread that showed it.
//!
//! Facts: as inner; with the bias set, a reader writes only to its own cache line; 12 B more than inner per lock, 32 KB for the table.
//! A reader that reads again may wait for a writer that waits for its first slot. Readers that don't write to the lock can't wake
//! its writer, so a writer that revokes stays awake, and yields now and then.

use super::{INHIBIT, PREFER, ReadWrite, SPIN, Tuning};
use crate::entry::{Entry, Kind, Promise};
use core::ptr::null_mut;
use lockwright_platform::Ordering::{Relaxed, Release, SeqCst};
use lockwright_platform::{Ptr, ReaderTable, Word};

/// What the catalogue says.
pub const ENTRY: Entry = Entry {
    id: "bravo",
    kind: Kind::ReadWrite,
    preset_of: None,
    idea: "readers announce themselves in a table instead of writing to the lock, until a writer arrives",
    source: "D. Dice, A. Kogan, BRAVO: Biased Locking for Reader-Writer Locks, USENIX ATC 2019; over rwlock",
    order: "as rwlock",
    promise: Promise::Nothing,
    stands_by: false,
    space: "8 B more per lock than rwlock; one table of 32 KB for all locks",
    wakes: "as rwlock, but a writer spins while it waits for readers in the table",
    delay: "a writer, by a scan of the whole table if none came for a while; a recursive read lock may deadlock",
    advice: "many readers on many cores, few writers. Not for unmodified programs: they may lock for reading recursively",
    options: &[PREFER, SPIN, INHIBIT],
};

/// The name that the catalogue uses.
pub type Lock<P> = Bravo<P, super::rwlock::Lock<P>>;

const BIASED: u32 = 1;

/// No inhibition lasts longer, ns: the clock is kept in 32 bits.
const INHIBITED_MAX_NS: u64 = 1_000_000_000;

/// A readers-writer lock with a bias for readers.
pub struct Bravo<P: ReaderTable, L> {
    /// Readers may show themselves. Written under `inner`.
    bias: P::Word,
    /// When readers may set the bias again, by the lower bits of the clock in ns; 0: at once. A hint.
    until: P::Word,
    /// Never changes.
    inhibit: u32,
    inner: L,
}

/// How a reader got in.
#[derive(Clone, Copy, Debug)]
pub enum Pass<I> {
    /// By this slot of the table.
    Shown(usize),
    /// By the inner lock.
    Inner(I),
}

impl<P: ReaderTable, L: ReadWrite<P>> Bravo<P, L> {
    fn address(&self) -> *mut u8 {
        core::ptr::from_ref(self).cast_mut().cast()
    }

    /// Lets a reader in without `inner`, if that is possible; returns the slot.
    #[inline]
    fn show(&self, me: u32) -> Option<usize> {
        // Relaxed: looked at again below.
        if self.bias.load(Relaxed) != BIASED {
            return None;
        }
        let row = me as usize % P::ROWS.max(1) * P::ROW;
        let take = |slot: &P::Ptr<u8>| {
            slot.load(Relaxed).is_null() // verified by the exchange
                // ORDERING: SeqCst [show], with [still], [revoke] and [look]: reader and writer must not both miss each other.
                // Acquire, pairs with [take back]: a writer that waits for us then comes after the slot's earlier readers, too.
                && slot.compare_exchange(null_mut(), self.address(), SeqCst, Relaxed).is_ok()
        };
        let slot = (row..row + P::ROW).find(|&slot| P::shown(slot, take) == Some(true))?;
        // ORDERING: SeqCst [still]: either we see the revocation, or its writer sees us. Acquire, pairs with [bias]: we see
        // what the last writer wrote.
        if self.bias.load(SeqCst) == BIASED {
            return Some(slot);
        }
        Self::take_back(slot);
        None
    }

    fn take_back(slot: usize) {
        // ORDERING: Release [take back]: our reads are done before a writer that sees it writes.
        P::shown(slot, |slot| slot.store(null_mut(), Release));
    }

    /// We hold `inner` for reading: sets the bias, unless it is too early.
    fn rebias(&self) {
        if self.bias.load(Relaxed) == BIASED {
            return; // already
        }
        let until = self.until.load(Relaxed); // a hint
        if until != 0 && until.wrapping_sub(P::now() as u32) <= INHIBITED_MAX_NS as u32 {
            return;
        }
        // ORDERING: Release [bias]: every reader sees what the writers before us wrote.
        // SURVIVES no-store: then the lock stays without bias.
        self.bias.store(BIASED, Release);
    }

    /// We hold `inner` for writing: clears the bias, and waits for readers in the table.
    fn revoke(&self) {
        // Relaxed: the bias was set under `inner`.
        if self.bias.load(Relaxed) != BIASED {
            return;
        }
        let start = P::now();
        // ORDERING: SeqCst [revoke], as at [show].
        self.bias.store(0, SeqCst);
        for slot in 0..P::ROWS * P::ROW {
            P::shown(slot, |slot| {
                // ORDERING: SeqCst [look], as at [show]. Acquire, pairs with [take back].
                P::spin_until_ptr(slot, SeqCst, |shown| shown != self.address());
            });
        }
        self.inhibit_since(start);
    }

    /// Keeps readers from setting the bias, for `inhibit` times the time since `start`.
    fn inhibit_since(&self, start: u64) {
        let end = P::now();
        let inhibited = (end - start).saturating_mul(self.inhibit.into()).min(INHIBITED_MAX_NS);
        let until = if inhibited == 0 { 0 } else { (end + inhibited) as u32 | 1 };
        self.until.store(until, Relaxed); // a hint
    }
}

impl<P: ReaderTable, L: ReadWrite<P>> ReadWrite<P> for Bravo<P, L> {
    type Pass = Pass<L::Pass>;
    const LAST_MAY_END: bool = L::LAST_MAY_END;

    fn new(tuning: &Tuning) -> Self {
        let [bias, until] = [(); 2].map(|()| P::Word::new(0));
        Self { bias, until, inhibit: tuning.inhibit, inner: L::new(tuning) }
    }

    fn nests(_: &Tuning) -> bool {
        false
    }

    #[inline]
    fn read(&self, me: u32) -> Pass<L::Pass> {
        if let Some(slot) = self.show(me) {
            return Pass::Shown(slot);
        }
        let pass = self.inner.read(me);
        self.rebias();
        Pass::Inner(pass)
    }

    #[inline]
    fn try_read(&self, me: u32) -> Option<Pass<L::Pass>> {
        if let Some(slot) = self.show(me) {
            return Some(Pass::Shown(slot));
        }
        let pass = self.inner.try_read(me)?;
        self.rebias();
        Some(Pass::Inner(pass))
    }

    #[inline]
    fn leave_read(&self, pass: Pass<L::Pass>) {
        match pass {
            Pass::Shown(slot) => Self::take_back(slot),
            Pass::Inner(pass) => self.inner.leave_read(pass),
        }
    }

    #[inline]
    fn write(&self, me: u32) {
        self.inner.write(me);
        self.revoke();
    }

    fn try_write(&self, me: u32) -> bool {
        if !self.inner.try_write(me) {
            return false;
        }
        // Relaxed: as in `revoke`.
        if self.bias.load(Relaxed) != BIASED {
            return true;
        }
        let start = P::now();
        // ORDERING: SeqCst [revoke], as at [show].
        self.bias.store(0, SeqCst);
        // ORDERING: SeqCst [look], as at [show]. Acquire, pairs with [take back].
        let is_mine = |slot: &P::Ptr<u8>| slot.load(SeqCst) == self.address();
        let read = (0..P::ROWS * P::ROW).any(|slot| P::shown(slot, is_mine) == Some(true));
        if read {
            // Set the bias again: without it, the next writer would not look for these readers.
            // ORDERING: Release, as at [bias].
            self.bias.store(BIASED, Release);
            self.inner.leave_write();
        } else {
            self.inhibit_since(start);
        }
        !read
    }

    #[inline]
    fn leave_write(&self) {
        self.inner.leave_write();
    }
}
