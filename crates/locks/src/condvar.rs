//! Condition variable: a list of waiters, each asleep at its own gate; who is signalled is decided when
//! the signal is sent, first come first served.
//!
//! Idea and order after Birrell, *Implementing Condition Variables with Semaphores*, 2003, and Mesa's
//! monitors (Lampson & Redell, CACM 1980). glibc's counters let a later waiter steal a signal (its bug
//! 25847); a list can't: a signal belongs to one waiter from the moment it leaves the list.
//!
//! ```text
//!   cond:   lock ── first ─► waiter ◄─► waiter ◄─► waiter ◄─ last
//!                              │ gate
//!      signal, holding the mutex:   gate := MOVED, the sleeper is moved to the mutex's word 0,
//!                                   and the holder's unlock wakes it, when it can run on
//!      signal, not holding it:      gate := SIGNALLED, woken at once
//! ```
//!
//! A gate goes AWAKE -> WAIT -> SIGNALLED | MOVED | CANCELLED, each once. (gate, in the list):
//!
//! | who | from | to |
//! |---|---|---|
//! | waiter, before it releases the mutex | - | (AWAKE, listed) |
//! | waiter, before it sleeps | (AWAKE, -) | (WAIT, -) |
//! | signal, broadcast, under `lock` | (AWAKE, listed) | (SIGNALLED, unlisted): needs no wake |
//! | signal, broadcast, under `lock` | (WAIT, listed) | (SIGNALLED or MOVED, unlisted) |
//! | canceller, without `lock` | (AWAKE or WAIT, listed) | (CANCELLED, listed), and wakes the waiter |
//! | waiter that timed out, without `lock` | (WAIT, listed) | (CANCELLED, listed) |
//! | signal that meets it, under `lock` | (CANCELLED, listed) | the same: steps over it |
//! | waiter that timed out or was cancelled, under `lock` | (CANCELLED, listed) | unlisted |
//!
//! The only waiter of a condvar stays awake for a moment if that has paid lately: a producer and a
//! consumer in step then never call the kernel. It decides so before it releases the mutex, and whoever
//! signals it keeps the score, because of invariant 2.
//!
//! Invariants:
//! 1. The list, `listed` and `record` are written under `lock` only. A listed waiter stays where it is.
//! 2. Once its gate is SIGNALLED or MOVED a waiter never touches the condvar again, so that anybody may
//!    destroy it; and the signaller never touches the waiter again, except for futex calls by address. A
//!    waiter that was not signalled touches it until it has left the list: `destroy` waits for that.
//! 3. MOVED only while the signaller holds the mutex: so the waiter can't return, and free the mutex,
//!    before the signaller is done with it.
//! 4. Whoever slept on `lock` takes it as 2: somebody else may still sleep there.

use crate::front::{self, Parts};
use lockwright_platform::Ordering::{Acquire, Relaxed, Release};
use lockwright_platform::{Platform, Ptr, Woken, Word};

/// Also the gate of a thread that waits for nothing: zeroed memory.
const SIGNALLED: u32 = 0;
const AWAKE: u32 = 1;
const WAIT: u32 = 2;
const MOVED: u32 = 3;
const CANCELLED: u32 = 4;

/// `listed`: in no list.
const UNLISTED: u32 = 0;
/// In a list.
const LISTED: u32 = 1;
/// In a list, and looks at its gate for a moment before it sleeps.
const LISTED_AWAKE: u32 = 2;

/// How long the only waiter stays awake at most, ns.
const AWAKE_NS: u32 = 10_000;

/// How long the list's own lock is waited for awake, ns.
const LOCK_SPIN_NS: u32 = 5_000;

/// A condvar's memory: inside a `pthread_cond_t`, or wherever.
pub struct Cond<'a, P: Platform> {
    /// The list's lock: a futex word, 0, 1 or 2 as glibc's mutex.
    pub lock: &'a P::Word,
    /// The waiter that came first.
    pub first: &'a P::Ptr<Sleeper<P>>,
    /// The waiter that came last.
    pub last: &'a P::Ptr<Sleeper<P>>,
    /// Whether staying awake has paid lately: a score of 0 to 15, and above it a count of waits.
    pub record: &'a P::Word,
}

impl<P: Platform> Clone for Cond<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<P: Platform> Copy for Cond<'_, P> {}

/// One waiter. In its thread's own memory, where a canceller can reach it: a thread waits for one condvar
/// at a time.
#[repr(C)]
pub struct Sleeper<P: Platform> {
    gate: P::Word,
    listed: P::Word,
    next: P::Ptr<Sleeper<P>>,
    previous: P::Ptr<Sleeper<P>>,
}

impl<P: Platform> Default for Sleeper<P> {
    fn default() -> Self {
        Self {
            gate: P::Word::new(SIGNALLED),
            listed: P::Word::new(UNLISTED),
            next: P::Ptr::new(core::ptr::null_mut()),
            previous: P::Ptr::new(core::ptr::null_mut()),
        }
    }
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Signalled: acquire the mutex as ever.
    Signalled,
    /// Signalled, and moved to the mutex's word: acquire by [`front::lock_moved`].
    Moved,
    /// The deadline passed, and no signal was for us.
    TimedOut,
    /// Cancelled, and no signal was for us.
    Cancelled,
}

impl<P: Platform> Cond<'_, P> {
    /// Joins the list. The caller holds the mutex, and releases it next.
    ///
    /// # Safety
    /// `me` is not in any list, and stays where it is until [`sleep`](Self::sleep) returns.
    pub unsafe fn enlist(&self, me: &Sleeper<P>) {
        // SAFETY: the caller's promise.
        unsafe { self.enlist_if(me, |_| true) };
    }

    /// As [`enlist`](Self::enlist), if `may` agrees: asked under the list's lock, with "is the list empty?".
    ///
    /// # Safety
    /// As [`enlist`](Self::enlist).
    pub unsafe fn enlist_if(&self, me: &Sleeper<P>, may: impl FnOnce(bool) -> bool) -> bool {
        me.gate.store(AWAKE, Relaxed); // published by the list's lock
        self.lock_list();
        if !may(self.first.load(Relaxed).is_null()) {
            self.unlock_list();
            return false;
        }
        let node = core::ptr::from_ref(me).cast_mut();
        let last = self.last.load(Relaxed); // under the list's lock, as all of the list
        me.previous.store(last, Relaxed);
        me.next.store(core::ptr::null_mut(), Relaxed);
        let (score, waits) = self.record();
        let awake = last.is_null() && (score >= 4 || waits % 16 == 15);
        me.listed.store(if awake { LISTED_AWAKE } else { LISTED }, Relaxed);
        self.record.store(waits.wrapping_add(1) << 4 | score, Relaxed);
        if last.is_null() {
            self.first.store(node, Relaxed);
        } else {
            // SAFETY: listed, so it is there (invariant 1).
            unsafe { (*last).next.store(node, Relaxed) };
        }
        self.last.store(node, Relaxed);
        self.unlock_list();
        true
    }

    /// Waits until signalled, cancelled, or the deadline; the caller has released the mutex.
    ///
    /// `spin_ns` bounds how long it stays awake; 0 where one CPU must do.
    pub fn sleep(&self, me: &Sleeper<P>, spin_ns: u32, deadline: Option<P::Deadline>) -> Outcome {
        // Relaxed: whoever claims our gate may write UNLISTED; then there is nothing to stay awake for.
        if me.listed.load(Relaxed) == LISTED_AWAKE {
            P::spin_for(&me.gate, Relaxed, spin_ns.min(AWAKE_NS), |gate| gate != AWAKE);
        }
        // Relaxed: if it fails, the gate has been claimed, which is seen below.
        let _ = me.gate.compare_exchange(AWAKE, WAIT, Relaxed, Relaxed);
        let outcome = loop {
            // ORDERING: Acquire, pairs with [claim].
            match me.gate.load(Acquire) {
                WAIT => {
                    // Relaxed: if it fails, a signal or a canceller came first, which is seen above.
                    if P::park_movable(&me.gate, WAIT, deadline) == Woken::TimedOut
                        && me.gate.compare_exchange(WAIT, CANCELLED, Relaxed, Relaxed).is_ok()
                    {
                        break Outcome::TimedOut;
                    }
                }
                SIGNALLED => return Outcome::Signalled,
                MOVED => return Outcome::Moved,
                _ => break Outcome::Cancelled,
            }
        };
        // No signal was for us, and none will be: we leave the list ourselves, and the condvar is there.
        self.lock_list();
        self.score(me.listed.load(Relaxed), false);
        self.unlist(me);
        self.unlock_list();
        outcome
    }

    /// The score, and the count of waits.
    fn record(&self) -> (u32, u32) {
        let record = self.record.load(Relaxed); // under the list's lock
        (record & 15, record >> 4)
    }

    /// Keeps the score, under the list's lock: did a waiter that was so `listed` stay awake, and did it pay?
    fn score(&self, listed: u32, paid: bool) {
        if listed == LISTED_AWAKE {
            let (score, waits) = self.record();
            let score = if paid { (score + 2).min(15) } else { score.saturating_sub(3) };
            self.record.store(waits << 4 | score, Relaxed); // under the list's lock
        }
    }

    /// Wakes the waiter that came first.
    ///
    /// `held` is asked, while a waiter is in the list, for its mutex if the caller holds it.
    pub fn signal<'m>(&self, held: impl FnOnce() -> Option<Parts<'m, P>>) {
        if self.first.load(Relaxed).is_null() {
            // Whoever joined before us in the program's own order (under the mutex) is visible.
            return;
        }
        self.lock_list();
        let mut next = self.first.load(Relaxed);
        let held = if next.is_null() { None } else { held() };
        let woken = loop {
            if next.is_null() {
                break None;
            }
            // SAFETY: listed, so it is there (invariant 1).
            let waiter = unsafe { &*next };
            next = waiter.next.load(Relaxed); // under the list's lock
            let gate: *const P::Word = &raw const waiter.gate;
            match self.give(waiter, held) {
                Claim::Cancelled => {} // the signal is for the next
                Claim::Awake => break None,
                Claim::Asleep => break Some(gate),
                Claim::Moved(word) => {
                    P::requeue(gate, MOVED, word, 1);
                    break None;
                }
            }
        };
        self.unlock_list();
        if let Some(gate) = woken {
            P::unpark(gate, 1);
        }
    }

    /// Wakes all waiters. `held` as for [`signal`](Self::signal).
    pub fn broadcast<'m>(&self, held: impl FnOnce() -> Option<Parts<'m, P>>) {
        if self.first.load(Relaxed).is_null() {
            return; // as in `signal`
        }
        self.lock_list();
        let mut next = self.first.load(Relaxed);
        let held = if next.is_null() { None } else { held() };
        let mut herd = 0;
        while !next.is_null() {
            // SAFETY: listed, so it is there (invariant 1).
            let waiter = unsafe { &*next };
            next = waiter.next.load(Relaxed); // under the list's lock
            let gate: *const P::Word = &raw const waiter.gate;
            match self.give(waiter, held) {
                Claim::Cancelled | Claim::Awake => {}
                Claim::Asleep => {
                    // All to one address, so that one call wakes them all.
                    P::requeue(gate, SIGNALLED, self.lock, 1);
                    herd += 1;
                }
                Claim::Moved(word) => {
                    P::requeue(gate, MOVED, word, 1);
                }
            }
        }
        let list_lock: *const P::Word = self.lock;
        self.unlock_list();
        if herd > 0 {
            P::unpark(list_lock, u32::MAX);
        }
    }

    /// Are there waiters in the list? (For `destroy`.)
    pub fn has_waiters(&self) -> bool {
        self.lock_list();
        let waiters = !self.first.load(Relaxed).is_null();
        self.unlock_list();
        waiters
    }

    /// Takes a waiter out of the list and gives it its signal; one that was cancelled stays in the list.
    fn give(&self, waiter: &Sleeper<P>, held: Option<Parts<'_, P>>) -> Claim<P> {
        let listed = waiter.listed.load(Relaxed); // under the list's lock
        self.unlist(waiter); // first: by invariant 2
        let claim = claim(waiter, held);
        if matches!(claim, Claim::Cancelled) {
            // It still has to take itself out, so it is there, and its links are as they were.
            let me = core::ptr::from_ref(waiter).cast_mut();
            self.link(waiter, me, me);
            waiter.listed.store(listed, Relaxed);
        } else {
            self.score(listed, matches!(claim, Claim::Awake));
        }
        claim
    }

    fn unlist(&self, waiter: &Sleeper<P>) {
        self.link(waiter, waiter.next.load(Relaxed), waiter.previous.load(Relaxed));
        waiter.listed.store(UNLISTED, Relaxed);
    }

    /// Makes `next` follow the waiter's predecessor, and `previous` precede its successor.
    fn link(&self, waiter: &Sleeper<P>, next: *mut Sleeper<P>, previous: *mut Sleeper<P>) {
        // All Relaxed: under the list's lock (invariant 1).
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

    fn lock_list(&self) {
        // ORDERING: Acquire, pairs with [unlist].
        if self.lock.compare_exchange(0, 1, Acquire, Relaxed).is_ok() {
            return;
        }
        let mut got = false;
        P::spin_for(self.lock, Relaxed, LOCK_SPIN_NS, |value| {
            // ORDERING: Acquire, pairs with [unlist].
            got = value == 0 && self.lock.compare_exchange(0, 1, Acquire, Relaxed).is_ok();
            got
        });
        // ORDERING: Acquire, pairs with [unlist]. Taken as 2 from here on, by invariant 4.
        while !got && self.lock.swap(2, Acquire) != 0 {
            P::park(self.lock, 2, None);
        }
    }

    fn unlock_list(&self) {
        let word: *const P::Word = self.lock;
        // [unlist] ORDERING: Release, pairs with the Acquires of `lock_list`. After it only the address.
        if self.lock.swap(0, Release) == 2 {
            P::unpark(word, 1);
        }
    }
}

/// What came of giving a waiter its signal.
enum Claim<P: Platform> {
    /// It was cancelled first.
    Cancelled,
    /// It has it, and is awake.
    Awake,
    /// It has it, and needs a wake.
    Asleep,
    /// It has it, and is to be moved to this word.
    Moved(*const P::Word),
}

/// Gives a waiter its signal. Not after it: by invariant 2.
fn claim<P: Platform>(waiter: &Sleeper<P>, held: Option<Parts<'_, P>>) -> Claim<P> {
    // [claim] ORDERING: Release, pairs with the Acquire loads in `sleep`: we are done with the node.
    let give = |from, to| waiter.gate.compare_exchange(from, to, Release, Relaxed).is_ok();
    if give(AWAKE, SIGNALLED) {
        return Claim::Awake;
    }
    // From here on it is WAIT, or cancelled: an AWAKE never comes back.
    match held {
        Some(parts) if front::adopt(parts, || give(WAIT, MOVED)) => Claim::Moved(parts.word),
        None if give(WAIT, SIGNALLED) => Claim::Asleep,
        _ => Claim::Cancelled,
    }
}

/// Cancels a wait, if one goes on: from another thread, without the list's lock.
///
/// # Safety
/// `sleeper` is the memory of a thread that exists, or existed and has not been joined yet.
pub unsafe fn cancel<P: Platform>(sleeper: *const Sleeper<P>) {
    // SAFETY: the caller's promise; the node is never unmapped before its thread is joined.
    let gate = unsafe { &(*sleeper).gate };
    // Relaxed: the waiter looks at the list under its lock. An AWAKE may become WAIT in between, not back.
    let cancelled = [AWAKE, WAIT]
        .iter()
        .any(|&from| gate.compare_exchange(from, CANCELLED, Relaxed, Relaxed).is_ok());
    if cancelled {
        P::unpark(gate, 1);
    }
}
