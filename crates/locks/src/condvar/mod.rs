//! Condition variable: a list of waiters, each asleep at its own gate. When a thread sends a signal, it decides
//! which waiter gets it, first come first served.
//!
//! Idea and order after Birrell, *Implementing Condition Variables with Semaphores*, 2003, and Mesa's
//! monitors (Lampson & Redell, CACM 1980). glibc's counters let a later waiter steal a signal (its bug
//! 25847). A list doesn't: a signal belongs to one waiter from the moment that the waiter leaves the list.
//!
//! ```text
//!   cond:   lock ── first ─► waiter ◄─► waiter ◄─► waiter ◄─ last        list.rs: the list, and its lock
//!                              │ gate                                    signal.rs: signals
//!      signal, holding the mutex:   gate := MOVED, the sleeper is moved to the mutex's word 0,
//!                                   and the holder's unlock wakes it, when it can get the mutex
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
//! | waiter that timed out, without `lock` | (WAIT, listed) | (CANCELLED, listed) |
//! | waiter that is torn out of its wait, without `lock` | (AWAKE or WAIT, -) | (CANCELLED, -) |
//! | signal that meets it, under `lock` | (CANCELLED, listed) | the same: steps over it |
//! | waiter that is CANCELLED, under `lock` | (CANCELLED, listed) | unlisted |
//!
//! A condvar's only waiter stays awake for a moment if that has paid lately. Then a producer and a
//! consumer in step never call the kernel. The waiter decides that before it releases the mutex, and the
//! signaller keeps the score, because of invariant 2.
//!
//! Invariants:
//! 1. The list, `listed` and `record` are written only under `lock`. A waiter in the list does not move.
//! 2. Once its gate is SIGNALLED or MOVED a waiter never touches the condvar again, so anybody may
//!    destroy it. And the signaller never touches the waiter again, except for futex calls by address. A
//!    waiter that was not signalled touches the condvar until it has left the list: `destroy` waits for that.
//!    The exception is a waiter that is torn out of its wait with a signal: it passes the signal on, if others
//!    waited for one when it got it.
//! 3. A gate becomes MOVED only while the signaller holds the mutex. So the waiter can't return, and free the
//!    mutex, before the signaller is done with it.
//! 4. A thread that slept on `lock` takes it with ASLEEP set: another thread may still sleep there.
//! 5. `lock` names the era of the process that last wrote it, and `list_era` that of the list. In another process (a forked child) the
//!    holder and the waiters in the list do not exist: the list is empty, and the lock is free.

mod list;
mod signal;

use crate::front::Parts;
#[allow(clippy::disallowed_types, reason = "an observer's note, on which no step depends")]
use core::sync::atomic::AtomicU64;
use lockwright_platform::Ordering::{Acquire, Relaxed};
use lockwright_platform::{Machine, Ptr, Woken, Word};

/// This is also the gate of a thread that waits for nothing.
const SIGNALLED: u32 = 0;
const AWAKE: u32 = 1;
const WAIT: u32 = 2;
const MOVED: u32 = 3;
const CANCELLED: u32 = 4;
/// With SIGNALLED or MOVED: others were waiting, too, and got no signal.
const AMONG_OTHERS: u32 = 8;

/// `listed`: in no list.
const UNLISTED: u32 = 0;
/// In a list.
const LISTED: u32 = 1;
/// In a list, and looks at its gate for a moment before it sleeps.
const LISTED_AWAKE: u32 = 2;

/// How long the only waiter stays awake at most, ns.
const AWAKE_NS: u32 = 10_000;

/// A condvar's memory, inside a `pthread_cond_t` or elsewhere, and the calling thread.
pub struct Cond<'a, P: Machine> {
    /// The list's lock, a futex word; see `list.rs`. 0: free, in era 0.
    pub lock: &'a P::Word,
    /// The waiter that came first.
    pub first: &'a P::Ptr<Sleeper<P>>,
    /// The waiter that came last.
    pub last: &'a P::Ptr<Sleeper<P>>,
    /// The era in which the list was begun. Under the list's lock.
    pub list_era: &'a P::Word,
    /// Whether staying awake has paid lately: a score of 0 to 15, and above it a count of waits.
    pub record: &'a P::Word,
    /// The calling thread's id: not 0, and below 2^22.
    pub me: u32,
    /// Forks between the program's start and this process.
    pub era: u32,
}

impl<P: Machine> Clone for Cond<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<P: Machine> Copy for Cond<'_, P> {}

/// One waiter; on its stack.
#[repr(C)]
pub struct Sleeper<P: Machine> {
    gate: P::Word,
    listed: P::Word,
    next: P::Ptr<Sleeper<P>>,
    previous: P::Ptr<Sleeper<P>>,
    /// When the wait began, ns; 0: nobody wants to know. Written by the waiter before it joins the list, and read by the thread that takes
    /// it out.
    #[allow(clippy::disallowed_types, reason = "as at the import")]
    pub since_ns: AtomicU64,
}

impl<P: Machine> Default for Sleeper<P> {
    fn default() -> Self {
        Self {
            gate: P::Word::new(SIGNALLED),
            listed: P::Word::new(UNLISTED),
            next: P::Ptr::new(core::ptr::null_mut()),
            previous: P::Ptr::new(core::ptr::null_mut()),
            #[allow(clippy::disallowed_types, reason = "as at the import")]
            since_ns: AtomicU64::new(0),
        }
    }
}

/// The waiters that a call gave a signal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Given {
    /// How many.
    pub threads: u32,
    /// Of how many it is known since when they had waited ([`Sleeper::since_ns`]).
    pub timed: u32,
    /// The sum of these times, ns; it may wrap.
    pub since_ns: u64,
    /// The earliest of them, ns.
    pub first_ns: u64,
}

impl Given {
    fn add(&mut self, since_ns: u64) {
        self.threads += 1;
        if since_ns != 0 {
            self.first_ns = if self.timed == 0 { since_ns } else { self.first_ns.min(since_ns) };
            self.timed += 1;
            self.since_ns = self.since_ns.wrapping_add(since_ns);
        }
    }
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Signalled: acquire the mutex as usual.
    Signalled,
    /// Signalled, and moved to the mutex's word: acquire by [`front::lock_moved`](crate::front::lock_moved).
    Moved,
    /// The deadline passed, and we got no signal.
    TimedOut,
    /// Torn out of its wait without a signal: only [`leave`](Cond::leave) returns this.
    Cancelled,
}

impl<P: Machine> Cond<'_, P> {
    /// Joins the list. The caller holds the mutex, and releases it next.
    ///
    /// # Safety
    /// `me` is not in any list, and stays where it is until [`sleep`](Self::sleep) or [`leave`](Self::leave) returns.
    pub unsafe fn enlist(&self, me: &Sleeper<P>) {
        // SAFETY: the caller's promise.
        unsafe { self.enlist_if(me, |_| true) };
    }

    /// As [`enlist`](Self::enlist), if `may` agrees. `may` is called under the list's lock, and told whether the list is
    /// empty.
    ///
    /// # Safety
    /// As [`enlist`](Self::enlist).
    pub unsafe fn enlist_if(&self, me: &Sleeper<P>, may: impl FnOnce(bool) -> bool) -> bool {
        me.gate.store(AWAKE, Relaxed); // published by the list's lock
        self.lock_list();
        let may = may(self.first.load(Relaxed).is_null());
        if may {
            // SAFETY: the caller's promise, and we hold the list's lock.
            unsafe { self.append(me) };
        }
        self.unlock_list();
        may
    }

    /// Waits until it is signalled, or until the deadline. The caller has released the mutex. `spin_ns` is as for
    /// [`rest`](Sleeper::rest).
    pub fn sleep(&self, me: &Sleeper<P>, spin_ns: u32, deadline: Option<P::Deadline>) -> Outcome {
        let outcome = me.rest(spin_ns, deadline);
        if outcome == Outcome::TimedOut {
            self.withdraw(me);
        }
        outcome
    }

    /// Takes a timed-out waiter out of the list: it got no signal, and will get none. The condvar must exist until
    /// this is done.
    pub fn withdraw(&self, me: &Sleeper<P>) {
        self.lock_list();
        self.score(me.listed.load(Relaxed), false);
        self.unlist(me);
        self.unlock_list();
    }

    /// Ends a wait that its own thread was torn out of, at any point between the start of [`enlist`](Self::enlist) and the
    /// end of [`sleep`](Self::sleep): a signal handler interrupted it, and does not return.
    ///
    /// If we got a signal, it goes to another waiter; `held` is as for [`signal`](Self::signal). Returns how to
    /// acquire the mutex, if it has been released.
    pub fn leave<'m>(
        &self,
        me: &Sleeper<P>,
        held: impl FnOnce() -> Option<Parts<'m, P>>,
    ) -> Outcome {
        if self.is_list_mine() {
            // Torn out of a change of the list: then we got no signal. Our neighbours may be half linked.
            self.mend_without(me);
            self.unlock_list();
            return Outcome::Cancelled;
        }
        if me.cancel() {
            self.lock_list_for_others();
            if me.listed.load(Relaxed) != UNLISTED {
                self.score(me.listed.load(Relaxed), false);
                self.unlist(me);
            }
            self.unlock_list();
            return Outcome::Cancelled;
        }
        // ORDERING: Acquire, pairs with [claim].
        // SURVIVES: no signaller touches us again, and the mutex orders what the program wrote.
        let gate = me.gate.load(Acquire);
        if gate & AMONG_OTHERS != 0 {
            self.signal(held);
        }
        if gate & !AMONG_OTHERS == MOVED { Outcome::Moved } else { Outcome::Signalled }
    }
}

impl<P: Machine> Sleeper<P> {
    /// The first part of [`Cond::sleep`], which does not touch the condvar. A waiter that has timed out goes on with
    /// [`Cond::withdraw`].
    ///
    /// `spin_ns` bounds how long it stays awake; 0 if the program has only one CPU.
    pub fn rest(&self, spin_ns: u32, deadline: Option<P::Deadline>) -> Outcome {
        // Relaxed: a thread that claims our gate may write UNLISTED; then we need not stay awake.
        if self.listed.load(Relaxed) == LISTED_AWAKE {
            P::spin_for(&self.gate, Relaxed, spin_ns.min(AWAKE_NS), |gate| gate != AWAKE);
        }
        self.shut();
        loop {
            // ORDERING: Acquire, pairs with [claim].
            match self.gate.load(Acquire) & !AMONG_OTHERS {
                SIGNALLED => return Outcome::Signalled,
                MOVED => return Outcome::Moved,
                _ => {
                    // Relaxed: if it fails, a signal came first, which is seen above.
                    if P::park_movable(&self.gate, WAIT, deadline) == Woken::TimedOut
                        && self.gate.compare_exchange(WAIT, CANCELLED, Relaxed, Relaxed).is_ok()
                    {
                        return Outcome::TimedOut;
                    }
                }
            }
        }
    }

    /// The waiter is about to sleep: the first step of [`rest`](Self::rest), which a model may take alone.
    pub fn shut(&self) {
        // Relaxed: if it fails, somebody has claimed the gate, which the waiter sees when it looks again.
        let _ = self.gate.compare_exchange(AWAKE, WAIT, Relaxed, Relaxed);
    }

    /// Makes the gate CANCELLED, unless it is already. `false`: it has been signalled.
    fn cancel(&self) -> bool {
        // Relaxed: the waiter looks at the list under its lock. AWAKE may become WAIT in between, but not the other way round.
        let cancels = |from| match self.gate.compare_exchange(from, CANCELLED, Relaxed, Relaxed) {
            Ok(_) => true,
            Err(gate) => gate == CANCELLED,
        };
        cancels(AWAKE) || cancels(WAIT)
    }
}

// This comes last: `xtask weaken` changes nothing that follows.
#[cfg(test)]
mod tests;
