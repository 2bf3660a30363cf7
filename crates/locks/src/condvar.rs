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
//! | signal that meets it, under `lock` | (CANCELLED, listed) | (CANCELLED, unlisted), tries the next |
//! | waiter that timed out or was cancelled, under `lock` | (WAIT or CANCELLED, listed) | unlisted |
//!
//! The only waiter of a condvar stays awake for a moment if that has paid lately: a producer and a
//! consumer in step then never call the kernel.
//!
//! Invariants:
//! 1. The list and `listed` are touched under `lock` only. A listed waiter stays where it is.
//! 2. Once its gate is SIGNALLED or MOVED a waiter never touches the condvar again, so that it may
//!    destroy it; and the signaller never touches the waiter again, except for futex calls by address.
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
    /// Whether staying awake has paid lately: a score of 0 to 15, and above it a count of waits. A hint.
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
            listed: P::Word::new(0),
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
        me.gate.store(AWAKE, Relaxed); // published by the list's lock
        self.lock_list();
        let node = core::ptr::from_ref(me).cast_mut();
        let last = self.last.load(Relaxed); // under the list's lock, as all of the list
        me.previous.store(last, Relaxed);
        me.next.store(core::ptr::null_mut(), Relaxed);
        me.listed.store(1, Relaxed);
        if last.is_null() {
            self.first.store(node, Relaxed);
        } else {
            // SAFETY: listed, so it is there (invariant 1).
            unsafe { (*last).next.store(node, Relaxed) };
        }
        self.last.store(node, Relaxed);
        self.unlock_list();
    }

    /// Waits until signalled, cancelled, or the deadline; the caller has released the mutex.
    ///
    /// `spin_ns` bounds how long it stays awake; 0 where one CPU must do.
    pub fn sleep(&self, me: &Sleeper<P>, spin_ns: u32, deadline: Option<P::Deadline>) -> Outcome {
        self.stay_awake(me, spin_ns.min(AWAKE_NS));
        // Relaxed: if it fails, the gate has been claimed, which is seen below.
        let _ = me.gate.compare_exchange(AWAKE, WAIT, Relaxed, Relaxed);
        let mut timed_out = false;
        loop {
            // ORDERING: Acquire, pairs with [claim].
            match me.gate.load(Acquire) {
                WAIT if !timed_out => {
                    timed_out = P::park(&me.gate, WAIT, deadline) == Woken::TimedOut;
                }
                SIGNALLED => return Outcome::Signalled,
                MOVED => return Outcome::Moved,
                _ => break,
            }
        }
        // Timed out, or cancelled: unless a signal comes first, we leave the list ourselves.
        self.lock_list();
        let listed = me.listed.load(Relaxed) != 0;
        if listed {
            self.unlist(me);
        }
        self.unlock_list();
        // ORDERING: Acquire, pairs with [claim].
        match me.gate.load(Acquire) {
            WAIT => Outcome::TimedOut,
            SIGNALLED => Outcome::Signalled,
            MOVED => Outcome::Moved,
            _ => Outcome::Cancelled,
        }
    }

    /// Looks at the gate for a moment, if nobody else waits and it has paid lately.
    fn stay_awake(&self, me: &Sleeper<P>, ns: u32) {
        let record = self.record.load(Relaxed); // a hint, here and below
        let (score, waits) = (record & 15, record >> 4);
        let alone = me.previous.load(Relaxed).is_null(); // as we found it; a hint by now
        if ns == 0 || !alone || score < 4 && waits % 16 != 15 {
            self.record.store(waits.wrapping_add(1) << 4 | score, Relaxed);
            return;
        }
        let gate = P::spin_for(&me.gate, Relaxed, ns, |gate| gate != AWAKE);
        let score = if gate != AWAKE { (score + 2).min(15) } else { score.saturating_sub(3) };
        self.record.store(waits.wrapping_add(1) << 4 | score, Relaxed);
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
        let held = if self.first.load(Relaxed).is_null() { None } else { held() };
        let woken = loop {
            let first = self.first.load(Relaxed);
            if first.is_null() {
                break None;
            }
            // SAFETY: listed, so it is there (invariant 1).
            let waiter = unsafe { &*first };
            self.unlist(waiter);
            let gate: *const P::Word = &raw const waiter.gate;
            match claim(waiter, held) {
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
        let held = if self.first.load(Relaxed).is_null() { None } else { held() };
        let mut herd = 0;
        loop {
            let first = self.first.load(Relaxed);
            if first.is_null() {
                break;
            }
            // SAFETY: listed, so it is there (invariant 1).
            let waiter = unsafe { &*first };
            self.unlist(waiter);
            let gate: *const P::Word = &raw const waiter.gate;
            match claim(waiter, held) {
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

    fn unlist(&self, waiter: &Sleeper<P>) {
        // All Relaxed: under the list's lock (invariant 1).
        let (previous, next) = (waiter.previous.load(Relaxed), waiter.next.load(Relaxed));
        if previous.is_null() {
            self.first.store(next, Relaxed);
        } else {
            // SAFETY: a listed waiter's neighbours are listed.
            unsafe { (*previous).next.store(next, Relaxed) };
        }
        if next.is_null() {
            self.last.store(previous, Relaxed);
        } else {
            // SAFETY: a listed waiter's neighbours are listed.
            unsafe { (*next).previous.store(previous, Relaxed) };
        }
        waiter.listed.store(0, Relaxed);
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
