//! u-scl: each thread may use the lock for an equal share of the time, whatever the lengths of its sections: in slices, and with bans.
//!
//! Y. Patel, L. Yang, L. Arulraj, A. C. Arpaci-Dusseau, R. H. Arpaci-Dusseau and M. M. Swift, *Avoiding Scheduler Subversion using
//! Scheduler-Cooperative Locks*, EuroSys 2020, section 4.2 and figure 4 (u-SCL), and its released code (u-scl/fairlock.h).
//!
//! ```text
//!                                 ┌──────────┐ next ┌───────────┐ next ┌───────────┐
//!     held ◄─── competes for it ──┤ B   NEXT ├─────►│ C  ASLEEP ├─────►│ D  ASLEEP │◄─── tail
//!      ▲                          └──────────┘      └───────────┘      └───────────┘
//!      └── A again and again,       once A's slice is over               E is banned: until others have had as much,
//!          while its slice lasts                                         it doesn't even join
//! ```
//!
//! State: (held, owner of the slice, tail). lock by the owner, while its slice lasts: (FREE, me, _) -> (HELD, me, _). lock by others: wait
//! for the end of the own ban; (_, _, prev) -> (_, _, me); wait for NEXT; wait for the end of the slice, (_, owner, _) -> (_, NOBODY, _);
//! (FREE, _, _) -> (HELD, me, _), with a new slice; leave the queue, whose first node is NEXT then. unlock: (HELD, _, _) -> (FREE, _, _),
//! and (_, me, _) -> (_, NOBODY, _) if that makes the holder's account exceed its share.
//!
//! 1. held alone decides who holds the lock. Queue and slice decide who asks for it.
//! 2. A node is in the queue from its owner's swap until its owner has the lock. Its first node, and no other, is NEXT, or will be in a moment.
//! 3. A node with a successor stays valid until its owner has made that NEXT: only the owner ends its use, after it has seen next.
//! 4. Accounts, and their number, change while the lock is held only. A section costs its account its length times the number of accounts:
//!    so its owner is banned (now < until) if it has used more than its share since it came.
//! 5. A ban ends by the clock: it keeps its thread from asking for 4 s at most.
//!
//! Our deviations. In the released code a free lock is a mark in the next waiter's node, and a slice's owner takes the lock if that mark isn't
//! there (it holds the lock) or by removing it. An owner that loses its CPU after it has looked at the clock may find the next slice's
//! waiter, without a mark, and two threads hold the lock. So here the word `held` decides. Accounts lie in the lock: 14 for each CPU but the first, 84
//! at most. A thread that finds its line of seven full has none, and is never banned. Weights are equal (nice 0), as no thread here has another one. Bans are
//! bounded, see 5 (the account isn't: the rest is for the next time). Sleeps aren't ended early to spin for the last 8 µs. A `try_lock`,
//! which the paper doesn't have, takes a free lock for which nobody waits, also in another's slice or by a banned thread; its use counts.
//! As published, accounts are never closed, and a thread that used less than its share may use more later.
//!
//! Facts: by slices of 2 ms, in order of arrival; three lines of 128 B and more per lock, 32 B per waiter; all but the next waiter sleep; a thread
//! is delayed by a slice of each of those before it, by its ban, and by a holder that isn't running. A lock may be free while all are banned.
//! A section in one's own slice looks at the clock three times, one that went through the queue more often.

use crate::entry::{Entry, Kind, Promise};
use crate::wide::Apart;
use core::array;
use core::cell::Cell;
use core::ptr::{null_mut, without_provenance_mut};
use lockwright_platform::Ordering::{AcqRel, Acquire, Relaxed, Release};
use lockwright_platform::{Numbered, Ptr, RawLock, Sections, TryLock, Woken, Word};

/// What the catalogue says.
pub const ENTRY: Entry = Entry {
    id: "u-scl",
    kind: Kind::Whole,
    preset_of: None,
    idea: "threads own the lock for slices of time by turns; one that has used more than its share is banned until others have had theirs",
    source: "Y. Patel et al., Avoiding Scheduler Subversion using Scheduler-Cooperative Locks, EuroSys 2020, section 4.2 (u-SCL), and its released code",
    order: "by slices of 2 ms in order of arrival; a slice's owner passes everybody, and banned threads don't ask",
    promise: Promise::Nothing,
    stands_by: false,
    space: "0.4 to 1.8 KB per lock (under the preload, only while in use: then it knows no shares), 32 B per waiter, on its stack",
    wakes: "waiters sleep at once, the next one until the slice ends; who gets a slice wakes the one after it, who is banned ends its slice",
    delay: "each waiter, by a slice of 2 ms of each ahead of it; a thread that used the lock for t, by t times the number of its users, 4 s at most",
    advice: "where long sections of some threads take the lock from others; not for latency, and not for threads that need it seldom but at once",
    options: &[],
};

/// The name that the catalogue uses.
pub type Lock<P> = Scl<P>;

// The lock.
const FREE: u32 = 0;
const HELD: u32 = 1;
// A node's gate.
const ASLEEP: u32 = 0;
const NEXT: u32 = 1;
/// No thread.
const NOBODY: u32 = 0;

/// How long a slice is, ns (the paper's 2 ms).
const SLICE_NS: u32 = 2_000_000;
/// How long the next waiter looks at the lock before it yields its CPU, ns (the paper's 20 looks).
const LOOK_NS: u32 = 500;
/// A ban is a sleep if it is longer, ns.
const NAP_NS: u32 = 8_000;
/// The longest ban, ns.
const BAN_NS: u32 = 4_000_000_000;
/// The accounts of a line.
const ACCOUNTS: usize = 7;
/// The most lines of accounts.
const LINES: usize = 12;

/// A waiter's place in the queue, and what a holder remembers.
pub struct Node<P: Numbered> {
    /// The next node. Written by the owner before it arrives, then once by the successor.
    next: P::Ptr<Node<P>>,
    /// Written by the owner before it arrives, then once by the predecessor.
    gate: P::Word,
    /// When its owner got the lock, ns. Touched by the owner only.
    start: u64,
}

impl<P: Numbered> Default for Node<P> {
    fn default() -> Self {
        Self { next: P::Ptr::new(null_mut()), gate: P::Word::new(ASLEEP), start: 0 }
    }
}

/// What a thread has used.
struct Used<P: Numbered> {
    /// Its thread's number; null: nobody's. Written once, by a holder.
    who: P::Ptr<()>,
    /// Its thread is banned until then, ns. Touched by its thread only.
    until: Cell<u64>,
}

impl<P: Numbered> Used<P> {
    fn new() -> Self {
        Self { who: P::Ptr::new(null_mut()), until: Cell::new(0) }
    }
}

/// Some accounts.
struct Ledger<P: Numbered>([Used<P>; ACCOUNTS]);

// SAFETY: a thread touches `until` only where it has found its own number, which no other thread has, or where it puts that.
unsafe impl<P: Numbered> Sync for Ledger<P> {}

/// What arrivals and holders write to.
struct Gate<P: Numbered> {
    /// FREE or HELD.
    held: P::Word,
    /// The last in the queue. Written by arriving threads, and by a new holder that finds itself last.
    tail: P::Ptr<Node<P>>,
    /// Whose slice it is. Written by the first in the queue (NOBODY, itself), and by its owner (NOBODY).
    owner: P::Word,
    /// When the slice ends: the low half of the clock, ns. Written by its owner.
    end: P::Word,
    /// How many accounts there are. Written by holders.
    accounts: P::Word,
}

/// A thread's number in few bits, for what isn't harmed if two threads seem to be one: never NOBODY.
fn spread(number: usize) -> u32 {
    // Threads' descriptors are often as far apart as their stacks are long.
    let mixed = ((number >> 6 ^ number) as u32).wrapping_mul(0x9e37_79b1);
    mixed.swap_bytes() | 1 << 31
}

/// A u-SCL lock.
pub struct Scl<P: Numbered> {
    gate: Apart<P, Gate<P>>,
    /// As many as this machine needs.
    lines: [Option<Apart<P, Ledger<P>>>; LINES],
}

impl<P: Numbered> Scl<P> {
    /// The account with this number in the line where this thread's is, or would be; 0: one that is nobody's.
    fn account(&self, me: usize, number: usize) -> Option<&Used<P>> {
        let mut lines = self.lines.iter().flatten();
        let at = spread(me) as usize % lines.clone().count();
        // Relaxed: its own thread has written it, or it is nobody's to the holder.
        lines.nth(at)?.0.iter().find(|account| account.who.load(Relaxed).addr() == number)
    }

    /// The rest of the slice, ns. A slice that ended long ago may seem to last: at most as long as slices are.
    fn left(&self) -> u32 {
        let left = self.gate.end.load(Relaxed).wrapping_sub(P::now() as u32);
        if left <= SLICE_NS { left } else { 0 }
    }

    /// Takes the lock if it is free.
    fn takes(&self) -> bool {
        // STATE: (FREE, _, _) -> (HELD, _, _), else unchanged.
        // ORDERING: Acquire, pairs with [release]: the last holder's critical section is over. Relaxed on failure: nothing was gained.
        self.gate.held.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok()
    }

    /// Waits until the calling thread may ask.
    fn wait_for_end_of_ban(&self, me: usize, node: &Node<P>) {
        let Some(account) = self.account(me, me) else { return };
        let left = account.until.get().saturating_sub(P::now());
        if left > NAP_NS.into() {
            // The node's gate is a word on which nobody wakes anybody yet.
            let end = P::after(u32::try_from(left).unwrap_or(BAN_NS).min(BAN_NS));
            // SURVIVES: it ends by the clock.
            while P::park(&node.gate, ASLEEP, Some(end)) == Woken::Maybe {}
        } else if left > 0 {
            P::pause(left as u32);
        }
    }

    /// The first in the queue waits until the slice is over, or its owner ends it.
    fn wait_for_end_of_slice(&self) {
        let Gate { owner, .. } = &*self.gate;
        loop {
            // Relaxed, here and below: slices are hints. One that we haven't heard of yet is cut short.
            let whose = owner.load(Relaxed);
            if whose == NOBODY {
                return;
            }
            let left = self.left();
            // SURVIVES: it ends by the clock.
            if left == 0 || P::park(owner, whose, Some(P::after(left))) == Woken::TimedOut {
                // STATE: (_, whose, _) -> (_, NOBODY, _).
                let _ = owner.compare_exchange(whose, NOBODY, Relaxed, Relaxed);
                return;
            }
        }
    }

    /// Acquires through the queue; with the lock a slice begins.
    #[cold]
    fn lock_slow(&self, number: usize, me: &Node<P>, node: *mut Node<P>) {
        let Gate { held, tail, owner, end, .. } = &*self.gate;
        self.wait_for_end_of_ban(number, me);
        // STATE: (_, _, prev) -> (_, _, me).
        // ORDERING: AcqRel [join], pairs with itself: our node is reset before the successor writes to it, and prev's before we do.
        let prev = tail.swap(node, AcqRel);
        if !prev.is_null() {
            // ORDERING: Release, pairs with [see]: publishes our node, whose gate will be written.
            // SAFETY: by invariant 3, prev lives until its owner has seen this store.
            unsafe { (*prev).next.store(node, Release) };
            // Relaxed: before our node ends we have the lock, which the predecessor releases after its last access to the node.
            while me.gate.load(Relaxed) == ASLEEP {
                P::park(&me.gate, ASLEEP, None);
            }
        }
        self.wait_for_end_of_slice();
        while P::spin_for(held, Relaxed, LOOK_NS, |held| held == FREE) != FREE || !self.takes() {
            P::give_way();
            P::pause(0);
        }
        end.store((P::now() as u32).wrapping_add(SLICE_NS), Relaxed); // a hint
        owner.store(spread(number), Relaxed); // likewise
        self.leave(me, node);
    }

    /// The holder leaves the queue: its successor may ask next.
    fn leave(&self, me: &Node<P>, node: *mut Node<P>) {
        // ORDERING: Acquire [see]: the successor's node was made before we write to it.
        let mut next = me.next.load(Acquire);
        if next.is_null() {
            // STATE: (_, _, me) -> (_, _, null).
            // Relaxed: the queue protects nothing. On failure the successor is read below.
            if self.gate.tail.compare_exchange(node, null_mut(), Relaxed, Relaxed).is_ok() {
                return;
            }
            // ORDERING: Acquire [see]: the successor's node was made before we write to it.
            next = P::spin_until_ptr(&me.next, Acquire, |next| !next.is_null());
        }
        // SAFETY: by invariant 2, it is in the queue until after this store.
        let gate: *const P::Word = unsafe { &raw const (*next).gate };
        // Relaxed: it gets the lock, and knows what we did, by [release].
        // SAFETY: as above; this is our last access to the node.
        unsafe { (*gate).store(NEXT, Relaxed) };
        P::unpark(gate, 1);
    }

    /// The holder pays for its section; is it banned now?
    fn pay(&self, me: usize, start: u64) -> bool {
        let mut account = self.account(me, me);
        // Relaxed, below: only holders write to accounts (invariant 4).
        let accounts = &self.gate.accounts;
        if account.is_none() {
            account = self.account(me, 0);
            if let Some(new) = account {
                new.who.store(without_provenance_mut(me), Relaxed);
                new.until.set(start);
                accounts.store(accounts.load(Relaxed) + 1, Relaxed);
            }
        }
        let Some(Used { until, .. }) = account else { return false };
        let now = P::now();
        let used = now.saturating_sub(start); // the core that was asked later may have a clock that is behind
        let price = used.saturating_mul(accounts.load(Relaxed).into());
        until.set(until.get().saturating_add(price));
        now < until.get()
    }
}

impl<P: Numbered> Sections<P> for Scl<P> {
    type Node = Node<P>;

    fn new() -> Self {
        let gate = Gate {
            held: P::Word::new(FREE),
            tail: P::Ptr::new(null_mut()),
            owner: P::Word::new(NOBODY),
            end: P::Word::new(0),
            accounts: P::Word::new(0),
        };
        let lines = (2 * (P::cpus() as usize - 1)).clamp(1, LINES);
        let line = || Apart::new(Ledger(array::from_fn(|_| Used::new())));
        Self { gate: Apart::new(gate), lines: array::from_fn(|at| (at < lines).then(line)) }
    }

    lockwright_platform::held_sections!(P);
}

impl<P: Numbered> RawLock<P> for Scl<P> {
    #[inline]
    unsafe fn lock(&self, node: *mut Node<P>) {
        let number = P::number();
        // Relaxed: only we ourselves make us the owner. Who has lost the slice meanwhile asks once too often.
        let is_owner = self.gate.owner.load(Relaxed) == spread(number) && self.left() > 0;
        if !is_owner || !self.takes() {
            // SAFETY: the caller's duty; others, too, only ever share its words.
            let me = unsafe { &*node };
            // Relaxed, both: nobody else knows the node yet.
            me.next.store(null_mut(), Relaxed);
            me.gate.store(ASLEEP, Relaxed);
            self.lock_slow(number, me, node);
        }
        // SAFETY: no other thread looks at it, and the node is in no queue.
        unsafe { (*node).start = P::now() };
    }

    #[inline]
    unsafe fn unlock(&self, node: *mut Node<P>) {
        let Gate { held, owner, .. } = &*self.gate;
        let me = P::number();
        // SAFETY: the caller locked with this node.
        let is_banned = self.pay(me, unsafe { (*node).start });
        let ends = is_banned && owner.load(Relaxed) == spread(me);
        if ends {
            // STATE: (_, me, _) -> (_, NOBODY, _).
            owner.store(NOBODY, Relaxed); // a hint
        }
        let owner: *const P::Word = owner;
        // STATE: (HELD, _, _) -> (FREE, _, _).
        // ORDERING: Release [release]: the critical section comes before whatever the next holder does.
        held.store(FREE, Release);
        if ends {
            // SURVIVES: who sleeps there wakes at the end of the slice.
            P::unpark(owner, 1);
        }
    }
}

impl<P: Numbered> TryLock<P> for Scl<P> {
    #[inline]
    unsafe fn try_lock(&self, node: *mut Node<P>) -> bool {
        // Relaxed: only politeness.
        let got = self.gate.tail.load(Relaxed).is_null() && self.takes();
        if got {
            // SAFETY: the caller's, and no other thread looks at it.
            unsafe { (*node).start = P::now() };
        }
        got
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::{Lock, Node};
    use crate::testing::{Threads, counts_right};
    use lockwright_platform::{Numbered, Platform, RawLock, Sections};
    use std::thread;

    #[test]
    fn no_increment_is_lost() {
        counts_right::<Lock<Threads>>();
    }

    /// One section of this length; when it began at the earliest, and until when its thread is banned, ns.
    fn section(lock: &Lock<Threads>, ns: u32) -> (u64, u64) {
        let mut node = Node::default();
        let begin = Threads::now();
        // SAFETY: the node outlives its use.
        unsafe {
            lock.lock(&raw mut node);
            Threads::pause(ns);
            lock.unlock(&raw mut node);
        }
        let me = Threads::number();
        (begin, lock.account(me, me).unwrap().until.get())
    }

    #[test]
    fn who_has_used_more_than_its_share_is_banned() {
        let lock = Lock::<Threads>::new();
        let (_, until) = section(&lock, 50_000);
        assert!(until <= Threads::now(), "alone, all of the time is its share");
        let second = || section(&lock, 1_000_000);
        let (begin, until) = thread::scope(|scope| scope.spawn(second).join().unwrap());
        assert!(until >= begin + 2_000_000, "the section, and once more as long");
    }
}
