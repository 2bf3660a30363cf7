//! Cal-textbook: a queue for each class of cores over a ticket lock. Of the two heads, the one that has waited longest in proportion to
//! its own section draws the next ticket. Shorter sections are moved ahead.
//!
//! *CAL: Core-Aware Lock for the big.LITTLE Multicore Architecture*, Applied Sciences 14(15), 6449, 2024, section 3, algorithm 1 (rows
//! C04 to C13). `cal` is our own lock with this idea, for programs.
//!
//! ```text
//!   free, no_steal = 0 ─────────────────────────────────────────► ticket lock: holder ◄─ next
//!   big     head ◄─ w ◄─ R ◄─ a ◄─ b ◄─ c ◄─ tail ─┐                                       ▲
//!                        └ rearranges a, b ...     ├─ larger (waited + other's T_alone) / own T_alone
//!   little  head ◄─ w ◄─ tail ─────────────────────┘
//! ```
//!
//! State: (ticket, turn, queues). lock: the ticket lock's, if that is free and no_steal is 0; otherwise join the queue of the core's
//! class, and wait to be head. Head: if fewer than two hold or wait at the ticket lock, (t, OPEN, q) -> (t, LEAVING, q); if the other
//! head's proportional wait is larger, (t, LEAVING, q) -> (t, that class, q). With the turn: draw a ticket, make the next one head, and
//! (t, _, q) -> (t, OPEN, q). unlock: the ticket lock's.
//!
//! 1. The ticket lock alone decides who holds the lock.
//! 2. The thread that has made the turn LEAVING is head of its queue. If the turn names a class, that class has a head. Nobody else
//!    leaves a queue until the turn is OPEN again.
//! 3. A queue has one rearranger. It alone changes the links of the nodes behind its own, which can't leave before it; never the link of
//!    the last node. It passes its role to the last node that it has placed. So each node is moved in one window only, and back by three
//!    places at most.
//! 4. Others touch a node only while it is in the queue. The data about a head that the other head needs lie in the lock.
//!
//! Our deviations. In the paper's text a head leaves when the ticket lock is free. In the authors' released code it leaves when fewer
//! than two hold or wait there, which takes the choice off the critical path; so do we. One turn replaces the paper's two `pop_flag`s,
//! so that two heads can't both set theirs, or both wait for each other. The other head's times are read from the lock, not from its
//! node, which may be gone. For how T_alone is measured, see amp/lengths.rs (a machine that can't tell sections apart,
//! `Learning::site`, counts them as one). No memory is allocated.
//!
//! Facts: by proportional wait between classes; by arrival within each, up to three places; four lines of 128 B per lock, one node of
//! 128 B per waiter; nobody sleeps; each waiter is delayed by those before it, and by each of them that is not running.

use super::lengths::{Lengths, Section};
use super::rearranger::{Node, is_next};
use crate::entry::{Entry, Kind, Promise};
use crate::spin::ticket::Ticket;
use crate::wide::Apart;
use core::array;
use core::ptr::null_mut;
use lockwright_platform::Ordering::{AcqRel, Acquire, Relaxed, Release};
use lockwright_platform::{Learning, Probe, Ptr, RawLock, Sections, TryLock, Word};

/// What the catalogue says.
pub const ENTRY: Entry = Entry {
    id: "cal-textbook",
    kind: Kind::Whole,
    preset_of: None,
    idea: "a queue per core class; of the heads, the one that has waited longest relative to its critical section goes next",
    source: "CAL: Core-Aware Lock for the big.LITTLE Multicore Architecture, Applied Sciences 2024, section 3, algorithm 1",
    order: "by relative wait between core classes; within a class by arrival, give or take three places",
    promise: Promise::Nothing,
    stands_by: false,
    space: "0.6 KB per lock (under the preload, only while in use), 128 B per waiter, on its stack",
    wakes: "none: waiters spin and never sleep",
    delay: "each waiter, by those ahead of it and those of the other class that are slowed down more; a preempted one stalls all",
    advice: "to compare with the paper; in programs, use cal",
    options: &[],
};

/// The name that the catalogue uses.
pub type Lock<P> = Cal<P>;

/// A head waits until fewer threads than this hold or wait at the ticket lock, as in the released code.
const IN_TICKET: u32 = 2;
// The turn. From CHOSEN on: CHOSEN + the class whose head has it.
const OPEN: u32 = 0;
const LEAVING: u32 = 1;
const CHOSEN: u32 = 2;

/// A class's queue.
struct Queue<P: Learning> {
    /// The last in the queue. Written by arriving threads, and by a head that finds itself last.
    tail: P::Ptr<Node<P>>,
    /// The head's times, see [`Node`]; 0: the queue is empty. Written by the first to arrive, and by a head that leaves.
    asked: P::Word,
    alone: P::Word,
}

/// What arrivals look at, and threads that leave their queues.
struct Gate<P: Learning> {
    ticket: Ticket<P>,
    turn: P::Word,
    /// For each class: does somebody queue? Written by the first to arrive, and by the last to leave.
    no_steal: [P::Word; 2],
}

/// A core-aware lock.
pub struct Cal<P: Learning> {
    gate: Apart<P, Gate<P>>,
    queues: [Apart<P, Queue<P>>; 2],
    lengths: Lengths<P>,
}

/// The clock as nodes store it: never 0.
fn clock<P: Learning>() -> u32 {
    (P::now() as u32).max(1)
}

impl<P: Learning> Cal<P> {
    fn may_steal(&self) -> bool {
        let Gate { ticket, no_steal, .. } = &*self.gate;
        no_steal.iter().all(|queue| queue.load(Relaxed) == 0) && ticket.is_free() // hints
    }

    fn has_room(&self) -> bool {
        self.gate.ticket.users() < IN_TICKET // a hint
    }

    /// Acquires through the queue of the core's class.
    #[cold]
    fn lock_slow(&self, me: &Node<P>, node: *mut Node<P>) {
        let section = Section::here::<P>();
        let class = usize::from(!section.class.is_big());
        let (alone, measures) = self.lengths.of(section);
        me.reset(section, alone, clock::<P>());
        let queue = &self.queues[class];
        // ORDERING: AcqRel [join], pairs with itself: our node is made before the successor writes to it, and prev's before we do.
        // Acquire also pairs with [empty]: what we write to the queue comes after what its last head wrote.
        let prev = queue.tail.swap(node, AcqRel);
        let mut rearranges = true;
        if prev.is_null() {
            self.gate.no_steal[class].store(1, Relaxed); // a hint
            self.announce(class, me);
        } else {
            // ORDERING: Release, pairs with [see]: publishes our node.
            // SAFETY: a node with a successor stays until it has made that one head.
            unsafe { (*prev).next.store(node, Release) };
            rearranges = me.wait();
        }
        self.wait_as_head(me, class, &mut rearranges);
        let number = self.gate.ticket.draw();
        self.leave(me, node, class, rearranges);
        // STATE: (t, _, q) -> (t, OPEN, q).
        // ORDERING: Release, pairs with [turn]: what we wrote about the queue comes before the next look at it.
        self.gate.turn.store(OPEN, Release);
        self.gate.ticket.wait(number);
        me.since.store(if measures { clock::<P>() } else { 0 }, Relaxed); // ours
    }

    /// The caller has the turn, or came first to an empty queue: records who is head.
    fn announce(&self, class: usize, head: &Node<P>) {
        let queue = &self.queues[class];
        // Relaxed, both: hints. (An empty queue is no hint, but the turn publishes that.)
        queue.alone.store(head.alone.load(Relaxed), Relaxed);
        queue.asked.store(head.asked.load(Relaxed), Relaxed);
    }

    /// The head waits until it has the turn.
    fn wait_as_head(&self, me: &Node<P>, class: usize, rearranges: &mut bool) {
        let (gate, other) = (&*self.gate, &*self.queues[1 - class]);
        let ours = CHOSEN + class as u32;
        loop {
            if *rearranges && !self.has_room() {
                *rearranges = !me.rearrange();
            }
            gate.ticket.wait_for_room(IN_TICKET);
            // Relaxed: the exchange below looks again.
            let turn = P::spin_until(&gate.turn, Relaxed, |turn| turn == OPEN || turn == ours);
            // STATE: (t, OPEN or our class, q) -> (t, LEAVING, q). The turn that was read may be old: the head before us was chosen.
            // ORDERING: Acquire [turn]: the queues are as the last thread that left one of them has left them.
            let is_ours = (turn == ours || self.has_room())
                && gate.turn.compare_exchange(turn, LEAVING, Acquire, Relaxed).is_ok();
            if !is_ours {
                continue;
            }
            if turn == ours {
                return;
            }
            let asked = other.asked.load(Relaxed);
            if asked == 0 {
                return;
            }
            let now = clock::<P>();
            let waits = |asked: u32| u64::from(now.wrapping_sub(asked));
            let (own, its) = (me.alone.load(Relaxed), other.alone.load(Relaxed));
            if is_next((waits(me.asked.load(Relaxed)), own), (waits(asked), its)) {
                return;
            }
            // STATE: (t, LEAVING, q) -> (t, the other class, q).
            // Relaxed: the other head knows its own queue, and ours stays as it is until we leave.
            gate.turn.store(CHOSEN + 1 - class as u32, Relaxed);
        }
    }

    /// The caller, head with the turn, leaves its queue.
    fn leave(&self, me: &Node<P>, node: *mut Node<P>, class: usize, rearranges: bool) {
        let (queue, no_steal) = (&self.queues[class], &self.gate.no_steal[class]);
        // ORDERING: Acquire [see]: the successor's node was made before we look at it.
        let mut next = me.next.load(Acquire);
        if next.is_null() {
            // Relaxed, both: [empty] and the turn publish the first; the second is a hint.
            queue.asked.store(0, Relaxed);
            no_steal.store(0, Relaxed);
            // ORDERING: Release [empty]: the next thread to come first writes after us. Relaxed on failure: the successor is read below.
            // SURVIVES: what it records about its head is a hint, too.
            if queue.tail.compare_exchange(node, null_mut(), Release, Relaxed).is_ok() {
                return;
            }
            no_steal.store(1, Relaxed);
            // ORDERING: Acquire [see]: the successor's node was made before we look at it.
            next = P::spin_until_ptr(&me.next, Acquire, |next| !next.is_null());
        }
        // SAFETY: it waits for our word.
        let next = unsafe { &*next };
        self.announce(class, next);
        next.make_head(rearranges);
    }
}

impl<P: Learning> Sections<P> for Cal<P> {
    type Node = Node<P>;

    fn new() -> Self {
        let word = || P::Word::new(0);
        let queue = || Queue { tail: P::Ptr::new(null_mut()), asked: word(), alone: word() };
        let no_steal = [word(), word()];
        Self {
            gate: Apart::new(Gate { ticket: Ticket::new(), turn: P::Word::new(OPEN), no_steal }),
            queues: array::from_fn(|_| Apart::new(queue())),
            lengths: Lengths::new(),
        }
    }

    lockwright_platform::held_sections!(P);
}

impl<P: Learning> RawLock<P> for Cal<P> {
    #[inline]
    unsafe fn lock(&self, node: *mut Node<P>) {
        // SAFETY: the caller's duty; others, too, only ever share it.
        let me = unsafe { &*node };
        if self.may_steal() {
            me.since.store(0, Relaxed); // ours
            // SAFETY: a ticket lock uses no node.
            unsafe { self.gate.ticket.lock(null_mut()) };
        } else {
            self.lock_slow(me, node);
        }
    }

    #[inline]
    unsafe fn unlock(&self, node: *mut Node<P>) {
        // SAFETY: the caller's duty; others, too, only ever share it.
        let me = unsafe { &*node };
        let since = me.since.load(Relaxed);
        if since != 0 {
            self.lengths.note(me.section.get(), clock::<P>().wrapping_sub(since));
        }
        // SAFETY: we hold it; a ticket lock uses no node.
        unsafe { self.gate.ticket.unlock(null_mut()) };
    }
}

impl<P: Learning> TryLock<P> for Cal<P> {
    #[inline]
    unsafe fn try_lock(&self, node: *mut Node<P>) -> bool {
        // SAFETY: the caller's duty; a ticket lock uses no node.
        unsafe {
            (*node).since.store(0, Relaxed); // ours
            self.may_steal() && self.gate.ticket.try_lock(null_mut())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Cal;
    use crate::testing::{Threads, counts_right};

    #[test]
    fn no_increment_is_lost() {
        counts_right::<Cal<Threads>>();
    }
}
