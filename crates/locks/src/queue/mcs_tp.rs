//! mcs-tp: an mcs queue whose waiters publish the time; a releaser passes over those that have not done so lately.
//!
//! B. He, W. N. Scherer III and M. L. Scott, *Preemption Adaptivity in Time-Published Queue-Based Spin Locks*, HiPC 2005,
//! MCS-TP. The times below are those of RCL's authors (LiTL, `include/mcstp.h`). Our deviations: nobody times out; a waiter publishes
//! once in a microsecond, not at each look; waiters that were passed over learn it when the releaser has found its successor, not
//! one by one (so it meets each waiter once, where the paper's has to stop chasing those that rejoin); and where the paper's
//! waiters yield to a preempted holder, ours sleep for a moment: else a real-time thread would never let it run.
//!
//! ```text
//!     tail ──────────────────────────────────────────────┐        a waiter's status:
//!                                                        ▼
//!     ┌──────────┐ next ┌────────────┐ next ┌────────────┐                 grant
//!     │ A  (held)├─────►│ B  WAITING ├─────►│ C  WAITING │        WAITING ───────► GRANTED
//!     └──────────┘      │ 9 ms ago   │      │ 1 µs ago   │           ▲ └──────────► PASSED
//!                       └────────────┘      └────────────┘           └── rejoins ──┘
//!       unlock by A: C is GRANTED; then B is PASSED, and rejoins behind C
//! ```
//!
//! State: (tail, my status). lock: (null, _) -> (me, _) and held; (prev, _) -> (me, WAITING), then wait for GRANTED; after PASSED
//! from the start. unlock: (the last, _) -> (null, _), or next.status = GRANTED; then PASSED for each in between.
//!
//! 1. Free exactly while tail = null.
//! 2. A node is in the queue from its owner's swap until it is GRANTED and released, or PASSED. Only the holder changes the status of a
//!    node in the queue.
//! 3. Whoever swaps a node out of tail links its own node to it. Until then the node stays valid: its owner unlocks, or is PASSED,
//!    only after somebody has seen the link, or has made tail null.
//! 4. GRANTED, or PASSED, is the last access to a node by anybody but its owner.
//!
//! Facts: first come first served, but for those that were passed over; 16 B per lock, 16 B per waiter, on its stack; waiters
//! sleep for 50 µs at a time once the lock is held for 10 ms; a waiter is delayed by those before it, by a holder that is not
//! running, and by waiters that lost their CPU so lately that they seem to run.

use crate::delegation::waiting::{Patience, Spins, Yields};
use crate::entry::{Entry, Kind, Promise};
use core::marker::PhantomData;
use core::ptr::null_mut;
use lockwright_platform::Ordering::{AcqRel, Acquire, Relaxed, Release};
use lockwright_platform::{Platform, Ptr, Publishing, RawLock, Sections, TryLock, Word};

/// What the catalogue says.
pub const ENTRY: Entry = Entry {
    id: "mcs-tp",
    kind: Kind::Whole,
    preset_of: None,
    idea: "an mcs queue whose waiters publish the time: a releaser passes over those that seem to be preempted",
    source: "B. He, W. N. Scherer III, M. L. Scott, Preemption Adaptivity in Time-Published Queue-Based Spin Locks, HiPC 2005, MCS-TP",
    order: "by arrival among waiters that are running; one that was passed over rejoins at the end",
    promise: Promise::Nothing,
    stands_by: false,
    space: "16 B per lock (under the preload, 128 B while in use), 16 B per waiter, on its stack",
    wakes: "none: waiters spin; if the lock is held for more than 10 ms, they sleep for 50 µs at a time",
    delay: "each waiter, by those ahead of it, and by a preempted holder; by preempted waiters only if they lost their CPU within 10 µs",
    advice: "to compare with mcs when threads outnumber CPUs",
    options: &[],
};

/// The name that the catalogue uses.
pub type Lock<P> = McsTp<P, Spins>;
/// Its variant that yields.
pub type Yielding<P> = McsTp<P, Yields>;

/// Its owner waits.
const WAITING: u32 = 0;
/// Its owner holds the lock.
const GRANTED: u32 = 1;
/// Its owner was passed over, and rejoins.
const PASSED: u32 = 2;

/// A tick is 2^TICK_BITS ns.
const TICK_BITS: u32 = 10;
/// How long a waiter looks before it publishes the time again, ns.
const LOOK_NS: u32 = 1_000;
/// A waiter that has not published for longer, in ticks, counts as preempted (the paper's UPDATE_DELAY).
const RECENT: i32 = 10;
/// A holder that has held for longer, in ticks, counts as preempted (the paper's MAX_CS_TIME).
const LONG: i32 = 10_000;
/// How often a waiter looks whether that is so, in ticks (the time-out of RCL's authors).
const PATIENCE: i32 = 50;
/// How long it sleeps then, ns: about as long as a sleep takes anyway.
const NAP_NS: u32 = 50_000;

/// Ticks since some moment; they wrap after an hour. By then somebody who was preempted seems to run, and delays others.
fn tick<P: Platform>() -> u32 {
    (P::now() >> TICK_BITS) as u32
}

/// Ticks between two moments; below 0 if the core that was asked first has a clock that is ahead.
fn ticks(from: u32, to: u32) -> i32 {
    to.wrapping_sub(from).cast_signed()
}

/// A waiter's or holder's place in the queue.
pub struct Node<P: Platform> {
    /// The next node. Written by the owner before it arrives, then once by the successor.
    next: P::Ptr<Node<P>>,
    /// Written by the owner before it arrives, then once by a holder.
    status: P::Word,
    /// When its owner last published the time. Written by the owner.
    time: P::Word,
}

impl<P: Platform> Default for Node<P> {
    fn default() -> Self {
        Self { next: P::Ptr::new(null_mut()), status: P::Word::new(WAITING), time: P::Word::new(0) }
    }
}

impl<P: Platform> Node<P> {
    /// Readies it for another arrival.
    fn reset(&self) {
        // Relaxed, all: nobody else knows the node yet, or any more.
        self.next.store(null_mut(), Relaxed);
        self.status.store(WAITING, Relaxed);
        self.time.store(tick::<P>(), Relaxed);
    }
}

/// An MCS-TP lock, whose waiters give up their CPU now and then if `W` does.
pub struct McsTp<P: Platform, W> {
    /// The last in line. Written by arriving threads, and by a holder that finds nobody to hand over to.
    tail: P::Ptr<Node<P>>,
    /// When the holder got the lock, in ticks. Written by holders; a hint.
    since: P::Word,
    waiting: PhantomData<fn(W)>,
}

impl<P: Publishing, W: Patience<P>> McsTp<P, W> {
    /// Waits until the node is GRANTED or PASSED, and publishes the time meanwhile.
    fn wait(&self, me: &Node<P>) -> u32 {
        let mut looked = tick::<P>();
        loop {
            // ORDERING: Acquire, pairs with [grant]: the predecessor's critical section is over; and with [pass]: the node is ours
            // again.
            let status = P::spin_for(&me.status, Acquire, LOOK_NS, |status| status != WAITING);
            if status != WAITING {
                return status;
            }
            let now = tick::<P>();
            P::publish(&me.time, now);
            if ticks(looked, now) > PATIENCE {
                looked = now;
                self.let_holder_run(me, WAITING);
            }
            W::between();
            P::pause(0);
        }
    }

    /// Sleeps for a moment, if the holder seems to be preempted: it may be waiting for this CPU. `status`: the node's own.
    fn let_holder_run(&self, me: &Node<P>, status: u32) {
        if ticks(self.since.load(Relaxed), tick::<P>()) > LONG {
            // SURVIVES: it ends by the clock.
            P::park(&me.status, status, Some(P::after(NAP_NS)));
        }
    }

    /// Joins the queue behind `prev`; `true`: with the lock; `false`: it was passed over, and isn't in the queue any more.
    #[cold]
    fn queue(&self, me: &Node<P>, node: *mut Node<P>, prev: *mut Node<P>) -> bool {
        // ORDERING: Release, pairs with [see]: publishes our node, whose status will be written.
        // SAFETY: by invariant 3, prev is valid until somebody has seen this store.
        unsafe { (*prev).next.store(node, Release) };
        self.wait(me) == GRANTED
    }

    /// Hands the lock to the first waiter that has published the time lately, if there is one.
    #[cold]
    fn hand_over(&self, node: *mut Node<P>) {
        let heir = self.heir(node);
        if !heir.is_null() {
            // STATE: (_, WAITING) -> (_, GRANTED).
            // ORDERING: Release [grant]: the critical section comes before whatever the next holder does.
            // SAFETY: in the queue (invariant 2), so it waits for us; afterwards we use its address alone.
            unsafe { (*heir).status.store(GRANTED, Release) };
        }
        // Relaxed, here and below: `heir` has seen these links.
        // SAFETY: our own node.
        let mut at = unsafe { (*node).next.load(Relaxed) };
        while at != heir {
            // SAFETY: before the heir in the queue, so it waits until it is PASSED.
            let next = unsafe { (*at).next.load(Relaxed) };
            // STATE: (_, WAITING) -> (_, PASSED).
            // ORDERING: Release [pass]: we have read its link before its owner uses the node again.
            // SAFETY: as above; this is our last access to it (invariant 4).
            unsafe { (*at).status.store(PASSED, Release) };
            at = next;
        }
    }

    /// The first waiter behind the holder's node that has published the time lately; null: there is none, and the lock is free.
    fn heir(&self, node: *mut Node<P>) -> *mut Node<P> {
        let mut at = node;
        loop {
            // SAFETY: our own, or in the queue, where only we change its status (invariant 2).
            let link = unsafe { &(*at).next };
            // ORDERING: Acquire [see], here and below: the next node was made before we look at it.
            let mut next = link.load(Acquire);
            if next.is_null() {
                // STATE: (at, _) -> (null, _).
                // ORDERING: Release [leave]: the critical section comes before whatever the next holder does.
                // Relaxed on failure: the next node is read below.
                if self.tail.compare_exchange(at, null_mut(), Release, Relaxed).is_ok() {
                    return null_mut();
                }
                // Somebody has joined, and will link its node in a moment.
                next = P::spin_until_ptr(link, Acquire, |next| !next.is_null());
            }
            // Relaxed: a hint.
            // SAFETY: as for `at`.
            if ticks(unsafe { (*next).time.load(Relaxed) }, tick::<P>()) <= RECENT {
                return next;
            }
            at = next;
        }
    }
}

impl<P: Publishing, W: Patience<P>> Sections<P> for McsTp<P, W> {
    type Node = Node<P>;

    fn new() -> Self {
        Self { tail: P::Ptr::new(null_mut()), since: P::Word::new(0), waiting: PhantomData }
    }

    lockwright_platform::held_sections!(P);
}

impl<P: Publishing, W: Patience<P>> RawLock<P> for McsTp<P, W> {
    #[inline]
    unsafe fn lock(&self, node: *mut Node<P>) {
        // SAFETY: the caller's duty; others, too, only ever share it.
        let me = unsafe { &*node };
        loop {
            me.reset();
            // STATE: (null, _) -> (me, _): held; or (prev, _) -> (me, WAITING).
            // ORDERING: AcqRel [join], pairs with itself: our node is reset before the successor writes to it, and prev's
            // before we do. Acquire also pairs with [leave]: the last holder's critical section is over.
            let prev = self.tail.swap(node, AcqRel);
            if prev.is_null() || self.queue(me, node, prev) {
                break;
            }
            self.let_holder_run(me, PASSED);
        }
        self.since.store(tick::<P>(), Relaxed); // a hint
    }

    #[inline]
    unsafe fn unlock(&self, node: *mut Node<P>) {
        // STATE: (me, _) -> (null, _), unless somebody has joined.
        // ORDERING: Release, as [leave]. Relaxed on failure: the next node is read later.
        if self.tail.compare_exchange(node, null_mut(), Release, Relaxed).is_err() {
            self.hand_over(node);
        }
    }
}

impl<P: Publishing, W: Patience<P>> TryLock<P> for McsTp<P, W> {
    #[inline]
    unsafe fn try_lock(&self, node: *mut Node<P>) -> bool {
        // SAFETY: the caller's duty; others, too, only ever share it.
        unsafe { &*node }.reset();
        // STATE: (null, _) -> (me, _), else unchanged.
        // ORDERING: AcqRel, as [join]: Acquire pairs with [leave]. Relaxed on failure: nothing was gained.
        let got = self.tail.compare_exchange(null_mut(), node, AcqRel, Relaxed).is_ok();
        if got {
            self.since.store(tick::<P>(), Relaxed); // a hint
        }
        got
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::{Lock, Node};
    use crate::testing::{Threads, counts_right};
    use lockwright_platform::Ordering::Relaxed;
    use lockwright_platform::{Platform, Ptr, RawLock, Sections};
    use std::sync::Mutex;
    use std::thread;
    use std::vec::Vec;

    #[test]
    fn no_increment_is_lost() {
        counts_right::<Lock<Threads>>();
    }

    /// Two threads wait, the first one of which stopped publishing `since_ns` ago; in which order do they get the lock?
    fn order(since_ns: u32) -> Vec<&'static str> {
        let (lock, order) = (Lock::<Threads>::new(), Mutex::new(Vec::new()));
        let mut node = Node::default();
        // Each thread of this machine has a clock of its own, which stands still while it waits.
        let asks = |name, ahead_ns| {
            Threads::pause(ahead_ns);
            let mut node = Node::default();
            // SAFETY: the node outlives its use.
            unsafe {
                lock.lock(&raw mut node);
                order.lock().unwrap().push(name);
                lock.unlock(&raw mut node);
            }
        };
        let joined = |behind: *mut Node<Threads>| {
            while lock.tail.load(Relaxed) == behind {
                thread::yield_now();
            }
            lock.tail.load(Relaxed)
        };
        // SAFETY: as above.
        unsafe { lock.lock(&raw mut node) };
        let asks = &asks;
        thread::scope(|scope| {
            scope.spawn(move || asks("first", 0));
            let first = joined(&raw mut node);
            scope.spawn(move || asks("second", since_ns));
            joined(first);
            Threads::pause(since_ns);
            // SAFETY: as above.
            unsafe { lock.unlock(&raw mut node) };
        });
        order.into_inner().unwrap()
    }

    #[test]
    fn a_waiter_that_does_not_publish_is_passed_over() {
        assert_eq!(order(5_000), ["first", "second"]);
        assert_eq!(order(50_000), ["second", "first"]);
    }
}
