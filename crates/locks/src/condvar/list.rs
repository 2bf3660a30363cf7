//! The condvar's list of waiters, and the lock in front of it.
//!
//! ```text
//!   lock       ┌── holder's thread id, 0: free ──┬─── era ───┬ ASLEEP ┐
//!              └            31 … 10              ┴   9 … 1   ┴   0    ┘
//!   list_era   the whole era in which the list was begun
//! ```
//!
//! The eras say in which process the words were last written. A forked child finds its parent's, and begins anew, whatever the
//! parent's threads held or listed (invariant 5). The lock's era wraps: in the 512th nested child, a lock that a thread of the first
//! process held at the fork looks held. By the holder's id, a thread that is torn out of its wait knows whether it was changing the
//! list.

use super::{Cond, LISTED, LISTED_AWAKE, Sleeper, UNLISTED};
use lockwright_platform::Ordering::{Acquire, Relaxed, Release};
use lockwright_platform::{Machine, Ptr, Word};

/// Somebody may sleep on `lock`.
const ASLEEP: u32 = 1;
const ERA: u32 = 511 << 1;
const HOLDER: u32 = !0 << 10;

/// How long to wait awake for the list's own lock, ns.
const LOCK_SPIN_NS: u32 = 5_000;

impl<P: Machine> Cond<'_, P> {
    /// The lock's word while it is free.
    fn free(&self) -> u32 {
        (self.era << 1) & ERA
    }

    /// The lock's word while we hold it.
    fn mine(&self) -> u32 {
        debug_assert!(self.me << 10 >> 10 == self.me && self.me != 0, "a thread's id has 22 bits");
        self.me << 10 | self.free()
    }

    /// Does somebody hold the lock, by this value of its word? Not if the value dates from before a fork.
    fn is_held(&self, lock: u32) -> bool {
        lock & HOLDER != 0 && lock & ERA == self.free()
    }

    /// Were we torn out of a change of the list?
    pub(super) fn is_list_mine(&self) -> bool {
        self.lock.load(Relaxed) & !ASLEEP == self.mine() // our own write, if any
    }

    pub(super) fn lock_list(&self) {
        // ORDERING: Acquire, pairs with [unlock list].
        if self.lock.compare_exchange(self.free(), self.mine(), Acquire, Relaxed).is_err() {
            self.lock_list_slow(0);
        }
        self.forget_parents();
    }

    /// As [`lock_list`](Self::lock_list), for a thread that may already have been woken at the lock, and must not
    /// swallow that wake.
    pub(super) fn lock_list_for_others(&self) {
        self.lock_list_slow(ASLEEP);
        self.forget_parents();
    }

    #[cold]
    fn lock_list_slow(&self, mut asleep: u32) {
        let mut now = self.lock.load(Relaxed); // verified by the exchanges
        if self.is_held(now) {
            now = P::spin_for(self.lock, Relaxed, LOCK_SPIN_NS, |now| !self.is_held(now));
        }
        loop {
            if !self.is_held(now) {
                // STATE: free, or of another era -> ours. With ASLEEP once we have slept, by invariant 4.
                // ORDERING: Acquire, pairs with [unlock list].
                match self.lock.compare_exchange(now, self.mine() | asleep, Acquire, Relaxed) {
                    Ok(_) => return,
                    Err(seen) => now = seen,
                }
                continue;
            }
            // Relaxed: unlock reads it by an RMW. The sleep compares the word.
            match self.lock.compare_exchange(now, now | ASLEEP, Relaxed, Relaxed) {
                Ok(_) => {
                    P::park(self.lock, now | ASLEEP, None);
                    asleep = ASLEEP;
                    now = self.lock.load(Relaxed); // verified by the exchanges
                }
                Err(seen) => now = seen,
            }
        }
    }

    pub(super) fn unlock_list(&self) {
        let word: *const P::Word = self.lock;
        // [unlock list] ORDERING: Release, pairs with the Acquires above. After it we use only the address.
        if self.lock.swap(self.free(), Release) & ASLEEP != 0 {
            P::unpark(word, 1);
        }
    }

    /// Empties a list that was begun in another era: its waiters are threads of a process that forked us, or of its parents.
    fn forget_parents(&self) {
        // All Relaxed: under the list's lock (invariant 1).
        if self.list_era.load(Relaxed) != self.era {
            self.first.store(core::ptr::null_mut(), Relaxed);
            self.last.store(core::ptr::null_mut(), Relaxed);
            self.list_era.store(self.era, Relaxed);
        }
    }

    /// Appends a waiter to the list.
    ///
    /// # Safety
    /// The caller holds the list's lock. The waiter is in no list, and stays until it is out of this one.
    pub(super) unsafe fn append(&self, me: &Sleeper<P>) {
        // All Relaxed: under the list's lock (invariant 1).
        let node = core::ptr::from_ref(me).cast_mut();
        let last = self.last.load(Relaxed);
        me.previous.store(last, Relaxed);
        me.next.store(core::ptr::null_mut(), Relaxed);
        let (score, waits) = self.record();
        let awake = last.is_null() && (score >= 4 || waits % 16 == 15);
        me.listed.store(if awake { LISTED_AWAKE } else { LISTED }, Relaxed);
        self.record.store(waits.wrapping_add(1) << 4 | score, Relaxed);
        if last.is_null() {
            self.first.store(node, Relaxed);
        } else {
            // SAFETY: it is in the list, so it exists (invariant 1).
            unsafe { (*last).next.store(node, Relaxed) };
        }
        self.last.store(node, Relaxed);
    }

    pub(super) fn unlist(&self, waiter: &Sleeper<P>) {
        self.link(waiter, waiter.next.load(Relaxed), waiter.previous.load(Relaxed));
        waiter.listed.store(UNLISTED, Relaxed);
    }

    /// Makes `next` follow the waiter's predecessor, and `previous` precede its successor.
    pub(super) fn link(
        &self,
        waiter: &Sleeper<P>,
        next: *mut Sleeper<P>,
        previous: *mut Sleeper<P>,
    ) {
        // All Relaxed: under the list's lock (invariant 1). First the pointers that `mend_without` follows.
        let (before, after) = (waiter.previous.load(Relaxed), waiter.next.load(Relaxed));
        if before.is_null() {
            self.first.store(next, Relaxed);
        } else {
            // SAFETY: a listed waiter's neighbours are listed.
            unsafe { (*before).next.store(next, Relaxed) };
        }
        if after.is_null() {
            self.last.store(previous, Relaxed);
        } else {
            // SAFETY: a listed waiter's neighbours are listed.
            unsafe { (*after).previous.store(previous, Relaxed) };
        }
    }

    /// Restores the list, without `me`, whose own change of it was torn at any point. The caller holds the lock.
    ///
    /// From `first` on, `next` leads to every waiter in the list, at each point of `append` and `link`.
    pub(super) fn mend_without(&self, me: &Sleeper<P>) {
        // All Relaxed: under the list's lock (invariant 1).
        let mut previous: *mut Sleeper<P> = core::ptr::null_mut();
        let mut now = self.first.load(Relaxed);
        while !now.is_null() {
            // SAFETY: it is in the list, so it exists (invariant 1).
            let waiter = unsafe { &*now };
            let next = waiter.next.load(Relaxed);
            if core::ptr::eq(now, me) {
                if previous.is_null() {
                    self.first.store(next, Relaxed);
                } else {
                    // SAFETY: as above.
                    unsafe { (*previous).next.store(next, Relaxed) };
                }
            } else {
                waiter.previous.store(previous, Relaxed);
                previous = now;
            }
            now = next;
        }
        self.last.store(previous, Relaxed);
        me.listed.store(UNLISTED, Relaxed);
    }

    /// The score, and the count of waits.
    fn record(&self) -> (u32, u32) {
        let record = self.record.load(Relaxed); // under the list's lock
        (record & 15, record >> 4)
    }

    /// Keeps the score, under the list's lock: if a waiter with this `listed` stayed awake, did that pay?
    pub(super) fn score(&self, listed: u32, paid: bool) {
        if listed == LISTED_AWAKE {
            let (score, waits) = self.record();
            let score = if paid { (score + 2).min(15) } else { score.saturating_sub(3) };
            self.record.store(waits << 4 | score, Relaxed); // under the list's lock
        }
    }
}
