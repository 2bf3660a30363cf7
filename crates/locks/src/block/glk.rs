//! glk: a ticket lock while few ask for it, an mcs queue while many do, and a mutex while threads outnumber CPUs.
//!
//! J. Antić, G. Chatzopoulos, R. Guerraoui and V. Trigonakis, *Locking Made Easy*, Middleware 2016 (GLK), and its released code (glk.c,
//! which we followed where it is more exact).
//!
//! ```text
//!                   3 hold or wait, on average
//!         ┌────────┐ ────────────────────────► ┌─────┐
//!     ───►│ TICKET │                           │ MCS │
//!         └──▲───┬─┘ ◄──────────────────────── └──┬──┘
//!            │   │       fewer than 2             │
//!     no     │   │ a waiter lost its CPU          │ a waiter lost its CPU
//!     longer │ ┌─▼─────┐                          │
//!            └─┤ MUTEX │ ◄────────────────────────┘
//!              └───────┘
//! ```
//!
//! State: (mode, the three locks below). lock: (m, _) -> (m, m's lock held) and held; or, if the mode has changed meanwhile, release that lock
//! and begin again. The holder of m's lock, before its section: (m, _) -> (n, _), then it releases m's lock and begins again. unlock: release
//! the lock that was acquired.
//!
//! 1. A thread holds the lock if it holds the lock below that mode names, and has seen mode after it got that.
//! 2. Only the holder changes mode, and it runs no section under the old one. So who gets the old lock next sees a newer mode.
//! 3. acquired, total, samples, period, stay, and until belong to the holder.
//!
//! Our deviations. A lock of the paper learns from a thread in the background, which counts the running threads of the whole machine in
//! /proc/loadavg each 100 µs. A lock here has no threads. A waiter that looked for 4 µs, and finds that 200 µs have passed, has lost its
//! CPU. A waiter that yields, and is back only after 4 µs or more, counts as one, too; an interrupt may look like that. Then threads
//! outnumber CPUs, as far as this lock can know, until a stay of 10 ms is over. (A stay that has to begin again soon is four times as
//! long, up to 0.6 s, like the paper's.) So the lock doesn't see that its holders lose their CPUs if its waiters never do. It decides
//! after 1, 2, 4, .. and then every 4096 acquisitions, and counts the queue in every 32nd part of that, so that a new lock learns early;
//! the paper's first decision comes after 4096. Its queue passes an eighth of what it has counted on to the next decision; ours starts
//! afresh. Spinning waiters yield when they have noticed, as the paper's MCS waiters do; ours of the ticket lock do so, too, and both do
//! after 64 µs: the next holder may need the CPU. The mutex has three states, not two bytes, and spins for 5 µs. A try_lock that finds
//! another mode than it saw gives up.
//!
//! Facts: by arrival, but for changes of the mode, and not in a mutex; a line of 128 B per lock, 24 B per waiter; waiters of the mutex
//! sleep; a waiter is delayed by those before it, and by each of them that isn't running, until one notices. The clock is read by
//! waiters, and by each holder of the mutex.

use crate::entry::{Entry, Kind, Promise};
use crate::wide::Apart;
use core::ptr::null_mut;
use lockwright_platform::Ordering::{AcqRel, Acquire, Relaxed, Release};
use lockwright_platform::{Platform, Ptr, RawLock, Sections, TryLock, Word};

/// What the catalogue says.
pub const ENTRY: Entry = Entry {
    id: "glk",
    kind: Kind::Whole,
    preset_of: None,
    idea: "a ticket lock while few ask for it, an mcs queue while many do, and a mutex while threads outnumber CPUs",
    source: "J. Antić, G. Chatzopoulos, R. Guerraoui, V. Trigonakis, Locking Made Easy, Middleware 2016 (GLK), and its released code",
    order: "by arrival, except when it changes its kind, and while it is a mutex",
    promise: Promise::Nothing,
    stands_by: false,
    space: "128 B per lock (under the preload, only while in use: then it learns little), 24 B per waiter, on its stack",
    wakes: "none while it is a ticket lock or a queue; as a mutex, waiters sleep after 5 µs, and unlock wakes one",
    delay: "each waiter, by those ahead of it; a preempted one stalls all behind it until a waiter notices; as a mutex, by any number of others",
    advice: "to compare with ticket, mcs and auto, where load comes and goes",
    options: &[],
};

/// The name that the catalogue uses.
pub type Lock<P> = Glk<P>;

// Modes.
const TICKET: u32 = 0;
const MCS: u32 = 1;
const MUTEX: u32 = 2;

// A node's gate.
const SHUT: u32 = 0;
const OPEN: u32 = 1;

// The mutex.
const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and somebody may sleep.
const SLEPT_ON: u32 = 2;

/// A ticket lock becomes a queue from this average length on (this and the next three: as in the released code).
const HIGH: u32 = 3;
/// A queue becomes a ticket lock below this average length.
const LOW: u32 = 2;
/// The longest time between decisions, in acquisitions.
const PERIOD: u32 = 4096;
/// Looks at the queue between two decisions, at most.
const LOOKS: u32 = 32;
/// How long it stays a mutex at first, and at most, ns.
const STAY_NS: u32 = 10_000_000;
const STAY_MAX_NS: u32 = 640_000_000;
/// How long a waiter looks before it asks for the time, ns.
const LOOK_NS: u32 = 4_000;
/// After so many looks it yields its CPU after each, as waiters of other textbook locks do (decision 14).
const PATIENCE: u32 = 16;
/// If a look took longer than this, ns, its thread had lost its CPU.
const LOST_NS: u64 = 200_000;
/// How long a waiter for the mutex stays awake, ns.
const SPIN_NS: u32 = 5_000;

/// A waiter's or holder's place in the queue, and what it acquired.
pub struct Node<P: Platform> {
    /// The next node. Written by the owner before it arrives, then once by the successor.
    next: P::Ptr<Node<P>>,
    /// Written by the owner before it arrives, then once by the predecessor.
    gate: P::Word,
    /// The lock that its owner has acquired. Touched by the owner only.
    mode: u32,
}

impl<P: Platform> Default for Node<P> {
    fn default() -> Self {
        Self { next: P::Ptr::new(null_mut()), gate: P::Word::new(SHUT), mode: TICKET }
    }
}

impl<P: Platform> Node<P> {
    /// Readies it for another arrival.
    fn reset(&self) {
        // Relaxed, both: nobody else knows the node yet.
        self.next.store(null_mut(), Relaxed);
        self.gate.store(SHUT, Relaxed);
    }
}

struct Words<P: Platform> {
    /// Which lock counts. Written by holders.
    mode: P::Word,
    /// The ticket lock: the next number to be drawn. Written by arriving threads.
    next: P::Word,
    /// The number that may hold the ticket lock. Written by its holder.
    serving: P::Word,
    /// The mutex. Written by threads that take it or fall asleep, and by its holder.
    mutex: P::Word,
    /// The queue's last node. Written by arriving threads, and by a holder that finds itself last.
    tail: P::Ptr<Node<P>>,
    /// 1: a waiter has lost its CPU. Written by waiters, and by holders that have read it.
    lost: P::Word,
    // The rest is the holder's.
    /// Acquisitions since the last decision.
    acquired: P::Word,
    /// The sum of the queue's lengths since then, and their number.
    total: P::Word,
    samples: P::Word,
    /// How many acquisitions there are until the next decision.
    period: P::Word,
    /// How long the next stay as a mutex is, ns.
    stay: P::Word,
    /// When this one ends: the low half of the clock, ns; or when the last one ended.
    until: P::Word,
}

/// A GLK lock.
pub struct Glk<P: Platform> {
    words: Apart<P, Words<P>>,
}

/// The low half of the clock, ns.
fn clock<P: Platform>() -> u32 {
    P::now() as u32
}

impl<P: Platform> Glk<P> {
    /// Waits until `word` is `value`, yields if that takes long or it has lost its CPU meanwhile, and says so in the second case.
    fn wait(&self, word: &P::Word, value: u32) {
        // ORDERING: Acquire, as below.
        if word.load(Acquire) == value {
            return;
        }
        let mut looks = 0_u32;
        loop {
            let start = P::now();
            // ORDERING: Acquire, pairs with [call] or [open]: the last holder of that lock has released it.
            if P::spin_for(word, Acquire, LOOK_NS, |now| now == value) == value {
                return;
            }
            let looked = P::now();
            let mut has_lost = looked.saturating_sub(start) > LOST_NS;
            looks = looks.saturating_add(1);
            if has_lost || looks >= PATIENCE {
                P::give_way();
                // It comes back late if another thread wanted the CPU.
                has_lost |= P::now().saturating_sub(looked) > LOOK_NS.into();
            }
            if has_lost {
                self.words.lost.store(1, Relaxed); // a hint
            }
            P::pause(0);
        }
    }

    fn lock_ticket(&self) {
        // Relaxed: a number carries no message; `serving` does.
        let me = self.words.next.fetch_add(1, Relaxed);
        self.wait(&self.words.serving, me);
    }

    fn unlock_ticket(&self) {
        let serving = &self.words.serving;
        // Relaxed: only the holder writes it.
        let me = serving.load(Relaxed);
        // ORDERING: Release [call]: the critical section comes before whatever the next holder does.
        serving.store(me.wrapping_add(1), Release);
    }

    fn lock_mcs(&self, me: &Node<P>, node: *mut Node<P>) {
        me.reset();
        // ORDERING: AcqRel [join], pairs with itself: our node is reset before the successor writes to it, and prev's before we
        // do. Acquire also pairs with [leave]: the last holder's critical section is over.
        // EXPLORED: the models have three threads that ask at once in few executions, and so few queues.
        let prev = self.words.tail.swap(node, AcqRel);
        if !prev.is_null() {
            // ORDERING: Release, pairs with [see]: publishes our node, whose gate will be written.
            // SAFETY: prev's owner ends its use in unlock only, after it has seen this store.
            // EXPLORED: as above, few queues.
            unsafe { (*prev).next.store(node, Release) };
            self.wait(&me.gate, OPEN);
        }
    }

    fn unlock_mcs(&self, me: &Node<P>, node: *mut Node<P>) {
        // ORDERING: Acquire [see]: the successor's node was made before we write to it.
        // EXPLORED: as above, few queues.
        let mut next = me.next.load(Acquire);
        if next.is_null() {
            // ORDERING: Release [leave]: the critical section comes before whatever the next holder does.
            // Relaxed on failure: the successor is read below.
            // EXPLORED: as above, few queues.
            if self.words.tail.compare_exchange(node, null_mut(), Release, Relaxed).is_ok() {
                return;
            }
            // ORDERING: Acquire [see]: the successor's node was made before we write to it.
            // EXPLORED: as above, few queues.
            next = P::spin_until_ptr(&me.next, Acquire, |next| !next.is_null());
        }
        // ORDERING: Release [open]: the critical section comes before whatever the next holder does.
        // SAFETY: its owner waits for this store.
        // EXPLORED: as above, few queues.
        unsafe { (*next).gate.store(OPEN, Release) };
    }

    /// Takes the mutex if it is free.
    fn take_mutex(&self) -> bool {
        // ORDERING: Acquire, pairs with [release]: the last holder's critical section is over. Relaxed on failure: nothing was gained.
        self.words.mutex.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok()
    }

    fn lock_mutex(&self) {
        let mutex = &self.words.mutex;
        while !self.take_mutex() {
            if P::spin_for(mutex, Relaxed, SPIN_NS, |now| now == FREE) == FREE {
                continue;
            }
            // ORDERING: Acquire, pairs with [release]: the last holder's critical section is over.
            while mutex.swap(SLEPT_ON, Acquire) != FREE {
                P::park(mutex, SLEPT_ON, None);
            }
            return;
        }
    }

    fn unlock_mutex(&self) {
        let mutex: *const P::Word = &raw const self.words.mutex;
        // ORDERING: Release [release]: the critical section comes before whatever the next holder does.
        // SAFETY: it lies in the lock, which we hold.
        if unsafe { (*mutex).swap(FREE, Release) } == SLEPT_ON {
            P::unpark(mutex, 1);
        }
    }

    /// Releases the lock below that the node's owner has.
    fn release(&self, me: &Node<P>, node: *mut Node<P>) {
        match me.mode {
            TICKET => self.unlock_ticket(),
            MCS => self.unlock_mcs(me, node),
            _ => self.unlock_mutex(),
        }
    }

    /// How many hold or wait, in this mode. Asked by the holder.
    fn length(&self, me: &Node<P>) -> u32 {
        if me.mode == TICKET {
            // Relaxed, both: only the holder writes `serving`, and the number is a hint.
            let Words { next, serving, .. } = &*self.words;
            return next.load(Relaxed).wrapping_sub(serving.load(Relaxed));
        }
        let (mut at, mut length) = (me, 1);
        loop {
            // ORDERING: Acquire [see]: the next node was made before we look at it.
            // EXPLORED: as above, few queues.
            let next = at.next.load(Acquire);
            if next.is_null() {
                return length;
            }
            // SAFETY: in the queue behind us, so it waits.
            at = unsafe { &*next };
            length += 1;
        }
    }

    /// The mode that the holder of a lock below thinks right.
    fn judge(&self, me: &Node<P>) -> u32 {
        let Words { acquired, total, samples, period, lost, .. } = &*self.words;
        // Relaxed, in all of this: the holder's (invariant 3), or hints.
        if me.mode == MUTEX {
            if self.stays() {
                return MUTEX;
            }
            lost.store(0, Relaxed); // by waiters from before
            return TICKET;
        }
        let of = period.load(Relaxed);
        let now = acquired.load(Relaxed) + 1;
        acquired.store(now, Relaxed);
        if now.is_multiple_of((of / LOOKS).max(1)) {
            total.store(total.load(Relaxed).saturating_add(self.length(me)), Relaxed);
            samples.store(samples.load(Relaxed) + 1, Relaxed);
        }
        if now < of {
            return me.mode;
        }
        let (sum, looks) = (total.load(Relaxed), samples.load(Relaxed));
        period.store((of * 2).min(PERIOD), Relaxed);
        for count in [acquired, total, samples] {
            count.store(0, Relaxed);
        }
        if lost.load(Relaxed) != 0 {
            lost.store(0, Relaxed);
            self.begin_stay();
            return MUTEX;
        }
        match me.mode {
            TICKET if sum >= HIGH * looks => MCS,
            MCS if sum < LOW * looks => TICKET,
            same => same,
        }
    }

    /// It becomes a mutex for a while: for longer if it was one a moment ago.
    fn begin_stay(&self) {
        let Words { stay, until, .. } = &*self.words;
        let (now, last) = (clock::<P>(), stay.load(Relaxed));
        let since = now.wrapping_sub(until.load(Relaxed));
        let next = if last != 0 && since < last { last * 4 } else { STAY_NS };
        let next = next.min(STAY_MAX_NS);
        stay.store(next, Relaxed);
        until.store(now.wrapping_add(next), Relaxed);
    }

    /// Does it stay a mutex?
    fn stays(&self) -> bool {
        let left = self.words.until.load(Relaxed).wrapping_sub(clock::<P>());
        left <= STAY_MAX_NS // otherwise it is over
    }
}

impl<P: Platform> Sections<P> for Glk<P> {
    type Node = Node<P>;

    fn new() -> Self {
        let word = || P::Word::new(0);
        let words = Words {
            mode: P::Word::new(TICKET),
            next: word(),
            serving: word(),
            mutex: P::Word::new(FREE),
            tail: P::Ptr::new(null_mut()),
            lost: word(),
            acquired: word(),
            total: word(),
            samples: word(),
            period: P::Word::new(1),
            stay: word(),
            until: word(),
        };
        Self { words: Apart::new(words) }
    }

    lockwright_platform::held_sections!(P);
}

impl<P: Platform> RawLock<P> for Glk<P> {
    #[inline]
    unsafe fn lock(&self, node: *mut Node<P>) {
        let mode = &self.words.mode;
        // Relaxed: a hint; it is read again below.
        let mut now = mode.load(Relaxed);
        loop {
            // SAFETY: the caller's, and in no queue: nobody else knows it.
            unsafe { (*node).mode = now };
            // SAFETY: the caller's duty; others, too, only ever share it.
            let me = unsafe { &*node };
            match now {
                TICKET => self.lock_ticket(),
                MCS => self.lock_mcs(me, node),
                _ => self.lock_mutex(),
            }
            // ORDERING: Acquire, pairs with [change]: the sections under other modes are over (invariant 2).
            let seen = mode.load(Acquire);
            let then = if seen == now { self.judge(me) } else { seen };
            if then == now {
                return;
            }
            if seen == now {
                // STATE: (now, _) -> (then, _).
                // ORDERING: Release [change]: all sections until now come before those under the new mode.
                // SURVIVES no-store: the mode stays, and we come back to it.
                mode.store(then, Release);
            }
            self.release(me, node);
            now = then;
        }
    }

    #[inline]
    unsafe fn unlock(&self, node: *mut Node<P>) {
        // SAFETY: the caller locked with this node.
        self.release(unsafe { &*node }, node);
    }
}

impl<P: Platform> TryLock<P> for Glk<P> {
    #[inline]
    unsafe fn try_lock(&self, node: *mut Node<P>) -> bool {
        let Words { mode, next, serving, tail, .. } = &*self.words;
        // Relaxed: a hint; it is read again below.
        let now = mode.load(Relaxed);
        // SAFETY: the caller's, and in no queue: nobody else knows it.
        unsafe { (*node).mode = now };
        // SAFETY: the caller's duty; others, too, only ever share it.
        let me = unsafe { &*node };
        let got = match now {
            TICKET => {
                // ORDERING: Acquire, pairs with [call]: every critical section before `at` is over.
                let at = serving.load(Acquire);
                // Relaxed: as in `lock_ticket`.
                next.compare_exchange(at, at.wrapping_add(1), Relaxed, Relaxed).is_ok()
            }
            MCS => {
                me.reset();
                // ORDERING: AcqRel, as [join]: Acquire pairs with [leave]. Relaxed on failure: nothing was gained.
                // EXPLORED: as above, few queues.
                tail.compare_exchange(null_mut(), node, AcqRel, Relaxed).is_ok()
            }
            _ => self.take_mutex(),
        };
        if !got {
            return false;
        }
        // ORDERING: Acquire, pairs with [change]: the sections under other modes are over (invariant 2).
        // EXPLORED: the mode has to change while a thread tries.
        let is_held = mode.load(Acquire) == now;
        if !is_held {
            self.release(me, node);
        }
        is_held
    }
}

#[cfg(test)]
mod tests {
    use super::{Glk, MCS, MUTEX, Node, STAY_NS, TICKET};
    use crate::testing::{Threads, counts_right};
    use lockwright_platform::Ordering::Relaxed;
    use lockwright_platform::{Platform, RawLock, Sections, Word};

    #[test]
    fn no_increment_is_lost() {
        counts_right::<Glk<Threads>>();
    }

    /// A section; returns the mode afterwards.
    fn section(lock: &Glk<Threads>) -> u32 {
        let mut node = Node::default();
        // SAFETY: the node outlives its use.
        unsafe {
            lock.lock(&raw mut node);
            lock.unlock(&raw mut node);
        }
        lock.words.mode.load(Relaxed)
    }

    #[test]
    fn it_is_a_queue_while_many_ask_and_a_mutex_while_a_cpu_was_lost() {
        let lock = Glk::<Threads>::new();
        let sections = |count| (0..count).fold(TICKET, |_, _| section(&lock));
        assert_eq!(sections(100), TICKET);
        lock.words.mode.store(MCS, Relaxed);
        assert_eq!(sections(200), TICKET, "nobody waits");
        lock.words.lost.store(1, Relaxed);
        assert_eq!(sections(600), MUTEX);
        Threads::pause(STAY_NS / 2);
        assert_eq!(sections(1), MUTEX);
        Threads::pause(STAY_NS);
        assert_eq!(sections(1), TICKET);
        lock.words.total.store(u32::MAX / 2, Relaxed); // as if many had waited
        assert!((0..5_000).any(|_| section(&lock) == MCS));
    }
}
