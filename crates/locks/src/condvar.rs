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
//! A gate goes WAIT -> SIGNALLED | MOVED | CANCELLED, once. (gate, in the list):
//!
//! | who | from | to |
//! |---|---|---|
//! | waiter, before it releases the mutex | - | (WAIT, listed) |
//! | signal, broadcast, under `lock` | (WAIT, listed) | (SIGNALLED or MOVED, unlisted) |
//! | canceller, without `lock` | (WAIT, listed) | (CANCELLED, listed), and wakes the waiter |
//! | signal that meets it, under `lock` | (CANCELLED, listed) | (CANCELLED, unlisted), tries the next |
//! | waiter that timed out or was cancelled, under `lock` | (WAIT or CANCELLED, listed) | unlisted |
//!
//! Invariants:
//! 1. The list and `listed` are touched under `lock` only. A listed waiter stays where it is.
//! 2. Once its gate is SIGNALLED or MOVED a waiter never touches the condvar again, so that it may
//!    destroy it; and the signaller never touches the waiter again, except for futex calls by address.
//! 3. MOVED only while the signaller holds the mutex: so the waiter can't return, and free the mutex,
//!    before the signaller is done with it.
//! 4. Whoever slept on `lock` takes it as 2: somebody else may still sleep there.

use crate::front::{self, Parts, side};
use lockwright_platform::Ordering::{Acquire, Relaxed, Release};
use lockwright_platform::{Platform, Ptr, Woken, Word};

/// Also the gate of a thread that waits for nothing: zeroed memory.
const SIGNALLED: u32 = 0;
const WAIT: u32 = 1;
const MOVED: u32 = 2;
const CANCELLED: u32 = 3;

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
    /// Signalled, and moved to the mutex's word: acquire by [`front::sleep_on_word`].
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
        me.gate.store(WAIT, Relaxed); // published by the list's lock
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

    /// Sleeps until signalled, cancelled, or the deadline; the caller has released the mutex.
    pub fn sleep(&self, me: &Sleeper<P>, deadline: Option<P::Deadline>) -> Outcome {
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
        match me.gate.load(Acquire) {
            WAIT => Outcome::TimedOut,
            SIGNALLED => Outcome::Signalled,
            MOVED => Outcome::Moved,
            _ => Outcome::Cancelled,
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
            match held {
                Some(parts) if claim_moved(parts, waiter) => {
                    P::requeue(gate, MOVED, parts.word, 1);
                    break None;
                }
                None if claim(waiter, SIGNALLED) => break Some(gate),
                _ => {} // cancelled: the signal is for the next
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
        let mut moved = 0;
        loop {
            let first = self.first.load(Relaxed);
            if first.is_null() {
                break;
            }
            // SAFETY: listed, so it is there (invariant 1).
            let waiter = unsafe { &*first };
            self.unlist(waiter);
            let gate: *const P::Word = &raw const waiter.gate;
            match held {
                Some(parts) => {
                    if claim_moved(parts, waiter) {
                        P::requeue(gate, MOVED, parts.word, 1);
                        moved += 1;
                    }
                }
                None => {
                    if claim(waiter, SIGNALLED) {
                        // All to one address, so that one call wakes them all.
                        P::requeue(gate, SIGNALLED, self.lock, 1);
                        moved += 1;
                    }
                }
            }
        }
        let list_lock: *const P::Word = self.lock;
        self.unlock_list();
        match held {
            // Relaxed: read by our own unlock.
            Some(parts) if moved > 1 => {
                parts.side.fetch_or(side::HERD, Relaxed);
            }
            None if moved > 0 => P::unpark(list_lock, u32::MAX),
            _ => {}
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

/// Gives a waiter its signal; `false` if it was cancelled first.
fn claim<P: Platform>(waiter: &Sleeper<P>, how: u32) -> bool {
    // [claim] ORDERING: Release, pairs with the Acquire loads in `sleep`: we are done with the node.
    waiter.gate.compare_exchange(WAIT, how, Release, Relaxed).is_ok()
}

fn claim_moved<P: Platform>(parts: Parts<'_, P>, waiter: &Sleeper<P>) -> bool {
    front::adopt(parts, || claim(waiter, MOVED))
}

/// Cancels a wait, if one goes on: from another thread, without the list's lock.
///
/// # Safety
/// `sleeper` is the memory of a thread that exists, or existed and has not been joined yet.
pub unsafe fn cancel<P: Platform>(sleeper: *const Sleeper<P>) {
    // SAFETY: the caller's promise; the node is never unmapped before its thread is joined.
    let gate = unsafe { &(*sleeper).gate };
    // ORDERING: Release/Acquire are not needed: the waiter looks at the list under its lock.
    if gate.compare_exchange(WAIT, CANCELLED, Relaxed, Relaxed).is_ok() {
        P::unpark(gate, 1);
    }
}
