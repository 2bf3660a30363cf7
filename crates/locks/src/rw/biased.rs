//! `rwlock`, whose readers show themselves in a table instead whenever a policy says so.
//!
//! The idea and the table are [`bravo`](super::bravo)'s: D. Dice, A. Kogan, *BRAVO: Biased Locking for Reader-Writer Locks*, USENIX ATC
//! 2019. That a policy switches between the two kinds of readers: S. Park et al., *Contextual Concurrency Control*, HotOS 2021, section 5.
//! This serves `pthread_rwlock_t`, and `programmed_rw.rs` by itself. So it deviates from BRAVO in three points:
//! * A writer that holds the lock waits for readers in the table only briefly. Then it gives the lock back until they have left, so that
//!   they may read again. (In BRAVO, a reader's second read waits for a writer that waits for its first one.)
//! * A writer that waits for readers in the table sleeps. A reader that leaves looks at one word of the machine, not at the lock, which
//!   the writer may have destroyed by then.
//! * A release needs no pass: it looks at its thread's row.
//!
//! ```text
//!   bias   ┌── writers that revoke ──┬─ USED ─┬─ BIASED ─┐
//!          └         31 … 2          ┴   1    ┴    0     ┘
//!
//!   reader   open (BIASED, nobody revokes)? ──► shows itself ──► still open? ──► in
//!            else the lock ──► in; asks the policy, and may set BIASED if nobody revokes
//!   writer   the lock ──► BIASED? counts itself, waits briefly until no slot shows this lock, clears BIASED, counts itself out ──► in
//!            if a slot still shows it: gives the lock back, waits, clears BIASED; the lock ──► counts itself out ──► in
//! ```
//!
//! 1. BIASED is set only by a reader that holds the lock itself, and only while nobody revokes. It is cleared only by a writer that has seen
//!    each slot once without this lock since it has counted itself.
//! 2. A reader that shows the lock, and then sees it open, is in until a slot of its row that shows the lock is cleared.
//! 3. A writer is in when it holds the lock itself, and then sees BIASED clear.
//! 4. Threads with the same row stand in for each other: as many of its slots show the lock as they hold it by the table, and each release
//!    clears one, any one. A reader whose slot was cleared before it could take it back has what the other thread held.
//! 5. USED is set with BIASED, and stays. While it is clear, nobody looks for slots.
//!
//! A policy decides when readers may show themselves, and nothing else: whatever it answers, these rules hold. A torn writer may stay
//! counted; then the lock keeps its readers out of the table.

use super::rwlock::{Counted, Outcome, Parts, Waiter};
use super::waiting::{is_writing, readers, waiting};
use core::ops::Range;
use core::ptr::null_mut;
use lockwright_platform::Ordering::{Acquire, Relaxed, Release, SeqCst};
use lockwright_platform::hooks::{Context, Hook, Node, READER};
use lockwright_platform::{Programmable, Ptr, ReaderTable, Woken, Word};

/// Readers may show themselves in the table, unless a writer revokes.
const BIASED: u32 = 1;
/// They have done so before.
const USED: u32 = 1 << 1;
/// One writer that revokes.
const REVOKER: u32 = 1 << 2;
/// What a reader must see.
const OPEN: u32 = BIASED | USED;

/// In the machine's word for those who wait for the table: somebody looks at it, awake.
const LOOKS: u32 = 1;
/// Somebody sleeps there.
const SLEEPS: u32 = 1 << 1;
/// What a reader adds that leaves when either is set.
const DEPARTURE: u32 = 1 << 2;

/// The answer for readers in the table.
const DISTRIBUTED: u64 = 1;

/// The words of one lock, wherever they lie; all zeroes is an unlocked lock without bias.
pub struct Biased<'a, P: Programmable + ReaderTable> {
    /// The lock itself. Its address is the lock's.
    pub parts: Parts<'a, P>,
    /// See the module.
    pub bias: &'a P::Word,
    /// The slot of the policy that decides; 0: none does, and new readers use the lock itself.
    pub policy: u32,
    /// Chooses the calling thread's row of the table, always the same. Best if no other thread has it.
    pub row: usize,
}

impl<P: Programmable + ReaderTable> Biased<'_, P> {
    /// As [`Parts::read`].
    #[inline]
    pub fn read<'w>(&self, waiter: impl FnOnce(Counted) -> Waiter<'w, P>) -> Outcome {
        match self.begin_read() {
            Ok(()) => Outcome::Acquired,
            Err(seen) => self.finish_read(seen, waiter),
        }
    }

    /// As [`Parts::begin_read`].
    #[inline]
    pub fn begin_read(&self) -> Result<(), u32> {
        if self.policy == 0 {
            return self.parts.begin_read();
        }
        if !self.show() {
            self.parts.begin_read()?;
            self.in_by_lock(Outcome::Acquired);
        }
        Ok(())
    }

    /// As [`Parts::finish_read`].
    #[inline]
    pub fn finish_read<'w>(
        &self,
        seen: u32,
        waiter: impl FnOnce(Counted) -> Waiter<'w, P>,
    ) -> Outcome {
        let outcome = self.parts.finish_read(seen, waiter);
        if self.policy == 0 { outcome } else { self.in_by_lock(outcome) }
    }

    /// As [`Parts::try_read`].
    #[inline]
    pub fn try_read(&self) -> Outcome {
        if self.policy == 0 {
            return self.parts.try_read();
        }
        if self.show() { Outcome::Acquired } else { self.in_by_lock(self.parts.try_read()) }
    }

    /// As [`Parts::write`]. `waiter` may be called several times.
    #[inline]
    pub fn write<'w>(&self, me: u32, waiter: impl Fn(Counted) -> Waiter<'w, P>) -> Outcome {
        match self.begin_write(me) {
            Ok(()) => Outcome::Acquired,
            Err(seen) => self.finish_write(me, seen, waiter),
        }
    }

    /// As [`Parts::begin_write`]. If the state is 0, the caller holds the lock itself, and readers may be in by the table.
    #[inline]
    pub fn begin_write(&self, me: u32) -> Result<(), u32> {
        self.parts.begin_write(me)?;
        if !self.is_ours() {
            return Err(0);
        }
        self.ask(0, 0);
        Ok(())
    }

    /// As [`Parts::finish_write`]; `seen` is what [`begin_write`](Self::begin_write) returned.
    #[inline]
    pub fn finish_write<'w>(
        &self,
        me: u32,
        seen: u32,
        waiter: impl Fn(Counted) -> Waiter<'w, P>,
    ) -> Outcome {
        if seen != 0 {
            let outcome = self.parts.finish_write(me, &waiter);
            if outcome != Outcome::Acquired || self.is_ours() {
                if outcome == Outcome::Acquired {
                    self.ask(0, 0);
                }
                return outcome;
            }
        }
        self.revoke(me, waiter)
    }

    /// As [`Parts::try_write`]. It may say busy while no reader is in, but one of them just asks.
    #[inline]
    pub fn try_write(&self, me: u32) -> Outcome {
        let outcome = self.parts.try_write(me);
        if outcome != Outcome::Acquired || self.is_ours() || self.close(|_| false) {
            return outcome;
        }
        self.open();
        self.parts.unlock();
        Outcome::Busy
    }

    /// Releases what the thread `me` holds, for reading or for writing.
    #[inline]
    pub fn unlock(&self, me: u32) {
        if !self.begin_unlock(me) {
            self.parts.finish_unlock();
        }
    }

    /// As [`Parts::begin_unlock`].
    #[inline]
    pub fn begin_unlock(&self, me: u32) -> bool {
        if self.policy == 0 {
            P::load_to_write(self.parts.state); // the line is ours before we read the next word in it
        }
        // Relaxed, both: who is in by the table has seen USED, and only our own id matters.
        if self.bias.load(Relaxed) & USED != 0
            && self.parts.owner.load(Relaxed) != me
            && self.leave_table()
        {
            return true;
        }
        self.parts.begin_unlock()
    }

    /// Does a slot of the thread's row show this lock? For tests.
    pub fn has_shown(&self) -> bool {
        slots::<P>(self.row).any(|slot| self.is_shown(slot))
    }

    fn address(&self) -> *mut u8 {
        core::ptr::from_ref(self.parts.state).cast_mut().cast()
    }

    /// We hold the lock itself for writing: is nobody in by the table?
    #[inline]
    fn is_ours(&self) -> bool {
        // ORDERING: Acquire, pairs with [drained]: the readers in the table were done before we write.
        self.bias.load(Acquire) & BIASED == 0
    }

    /// Lets a reader in by the table, if that is possible.
    #[inline]
    fn show(&self) -> bool {
        // Relaxed: looked at again below.
        if self.bias.load(Relaxed) != OPEN {
            return false;
        }
        let take = |slot: &P::Ptr<u8>| {
            slot.load(Relaxed).is_null() // verified by the exchange
                // ORDERING: SeqCst [show], with [still], [revoke] and [look]: reader and writer must not both miss each other.
                // Acquire, pairs with [take back]: a writer that waits for us then comes after the slot's earlier readers, too.
                && slot.compare_exchange(null_mut(), self.address(), SeqCst, Relaxed).is_ok()
        };
        let Some(slot) = slots::<P>(self.row).find(|&slot| P::shown(slot, take) == Some(true))
        else {
            return false;
        };
        // ORDERING: SeqCst [still]: either we see the revocation, or its writer sees us. Acquire, pairs with [bias]: we see
        // what the last writer wrote.
        // If it isn't open, and our slot has been cleared, we have what the thread held that cleared it (rule 4).
        self.bias.load(SeqCst) == OPEN || !self.take_back(slot)
    }

    /// Clears a slot that shows this lock; `false`: it doesn't.
    fn take_back(&self, slot: usize) -> bool {
        let clear = |slot: &P::Ptr<u8>| {
            // ORDERING: SeqCst [gone], with [announce]: a writer that waits sees it, or we see the writer. Release [take back]: our
            // reads are done before a writer that sees it writes. Acquire if it fails, pairs with [take back]: rule 4.
            // SURVIVES: it fails only if two threads of one row leave at the same time, which few schedules do.
            slot.compare_exchange(self.address(), null_mut(), SeqCst, Acquire).is_ok()
        };
        let is_cleared = P::shown(slot, clear) == Some(true);
        if is_cleared {
            P::departures(|word| {
                // ORDERING: SeqCst, as at [gone].
                let mut seen = word.load(SeqCst);
                // Again if it has changed: a writer that begins to look must not keep us from waking one that sleeps.
                while seen & (LOOKS | SLEEPS) != 0 {
                    let told = (seen & !(LOOKS | SLEEPS)).wrapping_add(DEPARTURE);
                    // ORDERING: Relaxed: a sleep compares the word, and who has not gone to sleep looks at the slot again.
                    match word.compare_exchange(seen, told, Relaxed, Relaxed) {
                        Ok(_) if seen & SLEEPS != 0 => return P::unpark(word, u32::MAX),
                        Ok(_) => return,
                        Err(now) => seen = now,
                    }
                }
            });
        }
        is_cleared
    }

    /// Releases what a thread of this row holds by the table; `false`: nothing.
    #[cold]
    fn leave_table(&self) -> bool {
        // If another thread has cleared our slot, we see that it is counted (rule 4).
        let leave = |slot| self.is_shown(slot) && self.take_back(slot);
        if slots::<P>(self.row).any(leave) {
            return true;
        }
        // Programs that unlock for another thread get away with it elsewhere. Nobody holds the lock itself: then it is in the table.
        let state = self.parts.state.load(Relaxed); // only such programs need it to be fresh
        readers(state) == 0 && !is_writing(state) && (0..P::ROWS * P::ROW).any(leave)
    }

    /// We hold the lock itself for writing, and readers may be in by the table: ends that.
    #[cold]
    fn revoke<'w>(&self, me: u32, waiter: impl Fn(Counted) -> Waiter<'w, P>) -> Outcome {
        let start = P::now();
        let awake = waiter(Counted::AsOwner);
        let end = start + u64::from(awake.spin_ns);
        let mut outcome = Outcome::Acquired;
        let is_clear = self.close(|slot| self.await_reader(slot, end, None));
        awake.is(Counted::Nowhere);
        if !is_clear {
            // A reader stays long. It may want to read again: until it has left, others get in by the lock itself.
            self.parts.unlock();
            let has_left = |slot| !self.is_shown(slot) || self.await_reader(slot, 0, Some(&awake));
            if (0..P::ROWS * P::ROW).all(has_left) {
                self.clear();
                outcome = self.parts.write(me, &waiter);
            } else {
                outcome = Outcome::TimedOut;
            }
            self.open();
        }
        if outcome == Outcome::Acquired {
            self.ask(0, P::now() - start);
        }
        outcome
    }

    /// Counts the caller as one that revokes, and waits by `wait` for each slot that shows this lock. `true`: the bias is clear, and the
    /// caller, which holds the lock itself, is counted out again.
    fn close(&self, wait: impl Fn(usize) -> bool) -> bool {
        // ORDERING: SeqCst [revoke], as at [show].
        self.bias.fetch_add(REVOKER, SeqCst);
        let is_clear = (0..P::ROWS * P::ROW).all(|slot| !self.is_shown(slot) || wait(slot));
        if is_clear {
            self.clear();
            self.open();
        }
        is_clear
    }

    /// The caller is counted as one that revokes, and has seen each slot without this lock.
    fn clear(&self) {
        // ORDERING: Release [drained]: readers in the table were done before a writer that finds no bias writes.
        self.bias.fetch_and(!BIASED, Release);
    }

    /// The caller is no longer counted as one that revokes.
    fn open(&self) {
        // ORDERING: Relaxed: if the bias stays, those who see it open see what its setter saw: [bias] and all that follow it are
        // exchanges.
        self.bias.fetch_sub(REVOKER, Relaxed);
    }

    fn is_shown(&self, slot: usize) -> bool {
        // ORDERING: SeqCst [look], as at [show]. Acquire, pairs with [take back].
        P::shown(slot, |slot| slot.load(SeqCst) == self.address()) == Some(true)
    }

    /// Waits until a slot doesn't show this lock: awake until `end`, and then asleep, if it is given who may sleep. `false`: it still does.
    fn await_reader(&self, slot: usize, end: u64, sleeper: Option<&Waiter<'_, P>>) -> bool {
        let waited = P::departures(|word| {
            loop {
                let left = end.saturating_sub(P::now()).min(u32::MAX.into()) as u32;
                let seen = word.load(Relaxed); // verified by the exchange
                let announced = match sleeper {
                    _ if left > 0 => seen | LOOKS,
                    Some(_) => seen | SLEEPS,
                    None => return !self.is_shown(slot),
                };
                // ORDERING: SeqCst [announce], as at [gone].
                // SURVIVES no-store: then no sleep begins, and it goes on looking.
                if word.compare_exchange(seen, announced, SeqCst, Relaxed).is_err() {
                    continue;
                }
                if !self.is_shown(slot) {
                    return true;
                }
                if left > 0 {
                    let is_over = |now| now != announced || !self.is_shown(slot);
                    P::spin_for(word, Relaxed, left, is_over); // the slot is looked at again
                } else if let Some(waiter) = sleeper
                    && P::park(word, announced, waiter.deadline) == Woken::TimedOut
                {
                    return !self.is_shown(slot);
                }
            }
        });
        waited.unwrap_or_else(|| {
            if sleeper.is_some() {
                P::shown(slot, |slot| {
                    // ORDERING: SeqCst, as at [look].
                    P::spin_until_ptr(slot, SeqCst, |shown| shown != self.address());
                });
            }
            sleeper.is_some()
        })
    }

    /// We may be in by the lock itself, for reading. Then the policy may send the next readers to the table.
    fn in_by_lock(&self, outcome: Outcome) -> Outcome {
        // Relaxed: verified by the exchange.
        let seen = self.bias.load(Relaxed);
        if outcome == Outcome::Acquired && seen & !USED == 0 && self.ask(READER, 0) == DISTRIBUTED {
            // ORDERING: Release [bias]: every reader sees what the writers before us wrote.
            // SURVIVES no-store: then the lock stays without bias.
            let _ = self.bias.compare_exchange(seen, OPEN, Release, Relaxed);
        }
        outcome
    }

    /// Asks the policy, for a thread that has just got in by the lock itself. Only readers' answers count.
    fn ask(&self, flags: u32, wait_ns: u64) -> u64 {
        if self.policy == 0 || P::hooks(self.policy) & Hook::RwBias.bit() == 0 {
            return 0;
        }
        let context = Context {
            lock_id: self.address().addr() as u64,
            lock_kind: 3,                                        // a readers-writer lock
            nwaiters: waiting(self.parts.writers.load(Relaxed)), // a hint
            now_ns: P::now(),
            own: Node { flags, wait_ns, ..P::describe() },
            ..Context::default()
        };
        P::ask(self.policy, Hook::RwBias, &context)
    }
}

/// Clears all slots but those of this row: the other threads don't exist any more, as in the child of a fork.
pub fn forget_all_but<P: Programmable + ReaderTable>(row: usize) {
    let mine = slots::<P>(row);
    for slot in (0..P::ROWS * P::ROW).filter(|slot| !mine.contains(slot)) {
        P::shown(slot, |slot| slot.store(null_mut(), Relaxed)); // nobody else is there
    }
}

/// The slots of a row.
fn slots<P: Programmable + ReaderTable>(row: usize) -> Range<usize> {
    let first = row % P::ROWS.max(1) * P::ROW;
    first..first + P::ROW
}
