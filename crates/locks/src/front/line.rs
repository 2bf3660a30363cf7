//! The line of waiters in front of word 0: who stands in it, who leaves it, and who may pass its head. It knows no rule.
//!
//! Mellor-Crummey & Scott, *Algorithms for Scalable Synchronization on Shared-Memory Multiprocessors*, TOCS 1991. A waiter that
//! acquired passes the headship on before `lock` returns (K42; Linux's qspinlock), or stays in the line to pass on the lock itself
//! (grant.rs). Nodes (waiter.rs) lie on nobody's stack, so thread exit needs no clean-up. When the head sleeps, it sleeps on word 0
//! itself, where glibc's unlock finds it, too.
//!
//! ```text
//!            ┌ contenders: outside the line, awake or standing by, for a bounded time
//!   arrivals ┤
//!            └► line:  head ─► waiter ─► waiter ◄─ tail     the head competes for word 0
//!
//!   counts  31   30 29      28        26 25       21 20        19 18        10 9         7 6       5      4      0
//!           │ fork │ by node│ preferences│ moved    │ generation │ overtakers │ contenders│ crowded│ turn │ place │
//!   hints   31         23 22        21          20       19     18      16 15                                  0
//!           │ length    │ stalled  │ saturated │ napping│ slow │ steps    │ condvar waiters (the runtime's)      │
//! ```
//!
//! `turn`, `crowded`, `overtakers`, `contenders`, `fork`, `by node`, `napping` and `length` are the line's; `moved` and `preferences` belong
//! to unlock by the word (`View::release`, `View::adopt`). The rest of `hints` is what the lock has learnt (learn/saturation.rs). `place` and
//! `generation` are posix's.
//!
//! Invariants:
//! 1. A waiter that sleeps at its gate is never the next to get the lock. The thread that makes it head while it sleeps there
//!    holds the lock, and moves it to the word. And a waiter does not fall asleep behind a thread that has the lock (grant.rs).
//!    A head that is torn out of its wait holds nothing, so it wakes the next waiter instead.
//! 2. Only the line's head, or a holder that stayed in the line, passes nodes. (Joining touches the tail; so does a leader that puts its
//!    followers behind itself as the last in line.) A line that consists of dead nodes alone, or that a fork's parent left, is cleared as a
//!    whole: by a thread that took the word, or by the first to see it.
//! 3. Only the holder writes the count of overtakers, and only after it took the word. So the count is exact.
//!
//! Bounds on overtakers, here and in the locks' own files, count *arrivals*: threads that lock, with or without a deadline. (One with
//! a deadline gives way to the head for a bounded time only: outside.rs.) Other threads that sleep on the word without being the
//! head (moved condvar waiters, those with a real-time policy, glibc's code) take the word whenever they find it free, and aren't counted.
//!
//! **Leaving from anywhere.** A thread may be torn out of its wait (`pthread_exit` in a signal handler). Its node outlives its stack. So
//! the node says LEFT, and a thread that reaches it steps over it and gives it back (after the abandoned nodes of Scott & Scherer,
//! *Scalable Queue-Based Spin Locks with Timeout*, PPoPP 2001, where the next in line cleans up). A waiter behind a LEFT
//! node, before it sleeps, asks the node before the LEFT one.

use super::seat::Seat;
use super::tuning::Tuning;
use super::waiter::{ASLEEP, BEHIND, ERAS, GRANTED, LEFT, OPEN, PROMOTED, SOMEBODY, WAITING};
use super::waiter::{Note, Pace, Waiter, give_back, state};
use super::word::{CHAINED, FREE, HELD, WAITED, Word0};
use core::ptr::{from_ref, null_mut};
use lockwright_platform::Ordering::{AcqRel, Acquire, Relaxed, Release};
use lockwright_platform::{Machine, Ptr, Stage, Word, hooks};

/// The counts word's fields. The lowest five bits and two more belong to the runtime (which lock this mutex runs on).
pub mod counts {
    /// Bits that the front locks leave alone: the runtime's.
    pub const LOCK: u32 = 0x1f;
    /// It is the turn of the line's head, which has napped: nobody overtakes it. While it naps: nobody has taken the lock since
    /// the head looked. A hint, on two CPUs.
    pub const TURN: u32 = 1 << 5;
    /// When a thread last left the line, waiters and holder outnumbered the CPUs.
    pub const CROWDED: u32 = 1 << 6;
    /// One contender (3 bits).
    pub const SPINNER: u32 = 1 << 7;
    /// The field of contenders.
    pub const SPINNERS: u32 = 7 << 7;
    /// One arrival that overtook the line since a thread last left it (9 bits). Only the holder writes it.
    pub const BYPASS: u32 = 1 << 10;
    /// The field of bypasses.
    pub const BYPASSES: u32 = 0x1ff << 10;
    /// One generation of the runtime's table (2 bits, which wrap): the runtime's, too.
    pub const GENERATION: u32 = 1 << 19;
    /// The field of generations.
    pub const GENERATIONS: u32 = 3 << 19;
    /// One thread that a signal moved to word 0 and no unlock has woken yet (5 bits). Only the holder writes it.
    pub const MOVED: u32 = 1 << 21;
    /// The field of moved threads.
    pub const MOVEDS: u32 = 31 << 21;
    /// One unlock that preferred moved threads to others asleep on word 0, since the last that did not (3 bits). Only the holder
    /// writes it.
    pub const PREFERENCE: u32 = 1 << 26;
    /// The field of preferences.
    pub const PREFERENCES: u32 = 7 << 26;
    /// Somebody has held the lock by a node, and maybe no unlock by a node has found the line empty since. Only the holder writes it.
    /// (If it stayed, a lock that is contended now and then would have one transfer less. But it makes a signaller unsure that it holds the
    /// mutex by the word: such a signaller wakes a waiter that it could have moved.)
    pub const BY_NODE: u32 = 1 << 29;
    /// The era in which the contenders counted themselves: one fork (2 bits, the highest: they wrap, and the count heals).
    pub const FORK: u32 = 1 << 30;
    /// The field of forks.
    pub const ERA: u32 = 3 << 30;
}

/// The hints word's fields, all hints. The lower half belongs to the runtime (condvar waiters). If glibc's own code works on the
/// mutex, it counts holders in the whole word, and not atomically. So it may undo our writes, or change our half by a carry.
///
/// That costs time, but never a wake: word 0, gates and `next` alone decide who sleeps and who is woken. And it heals:
/// NAPPING, which lets arrivals overtake uncounted, when the head looks at the word again; LENGTH, when the line
/// becomes empty; the others by what waiters observe.
pub mod hints {
    /// One step towards "saturated" (3 bits).
    pub const STEP: u32 = 1 << 16;
    /// The field of steps.
    pub const STEPS: u32 = 7 << 16;
    /// The thread whose turn it is runs on a core of a slower class.
    pub const SLOW: u32 = 1 << 19;
    /// The lock counts as saturated; under mutexee.rs, most hand-overs go to threads that have slept.
    pub const SATURATED: u32 = 1 << 21;
    /// Steps at which it begins to count as saturated.
    pub const SATURATED_AT: u32 = 6 << 16;
    /// Steps below which it no longer does.
    pub const IDLE_AT: u32 = 3 << 16;
    /// Holders seem to lose their CPUs: a thread has waited awake for as long as that can pay, and the holder did not release.
    pub const STALLED: u32 = 1 << 22;
    /// One waiter in the line (9 bits). A waiter is counted only while fewer than `most_counted` are, and only such waiters are counted out.
    pub const WAITER: u32 = 1 << 23;
    /// How many lengths the field can tell apart.
    pub const WAITERS: u32 = 1 << 9;
    /// The field of waiters.
    pub const LENGTH: u32 = (WAITERS - 1) << 23;
    /// How many waiters are in the line, by this hints word; from the tuning's `most_counted` on: at least so many.
    pub fn waiters(hints: u32) -> u32 {
        hints / WAITER // the word's highest field
    }

    /// This many waiters are a crowd on any machine. A holder that looks at the mutex can see so many: those that were granted the lock
    /// since the last look are still counted, and take part of the field.
    pub const MANY: u32 = WAITERS - 64;
    /// The line's head naps or watches (learn/saturation.rs), or isn't awake yet, and the lock is saturated or its heads come late in a crowd
    /// (learn/memos.rs). Any thread that finds the word free may take it, uncounted.
    pub const NAPPING: u32 = 1 << 20;
}

/// A walk along the line ends after this many nodes: it may have left the line.
const FARTHEST: u32 = 1 << 20;

/// How many eras the counts word can tell apart.
const FORKS: usize = (counts::ERA / counts::FORK + 1) as usize;

/// A front lock's memory: inside a `pthread_mutex_t`, or in an [`Alone`](super::Alone).
pub struct Parts<'a, P: Machine> {
    /// Word 0.
    pub word: &'a Word0<P>,
    /// Small fields, see [`counts`].
    pub counts: &'a P::Word,
    /// What the lock has learnt, see [`hints`]; the lower half belongs to the runtime.
    pub hints: &'a P::Word,
    /// Identifies the calling thread, while it holds a lock by a node (grant.rs). Null: it never does that.
    pub by: *const (),
    /// The calling thread's id, where the mutex has an owner field.
    pub thread: u32,
    /// The mutex's type, as policies count kinds: 1 recursive, 2 error-checking, otherwise 0.
    pub kind: u32,
    /// Identifies the critical section that the caller is about to enter: equal numbers mean the same section. 0: not known.
    pub site: u32,
    /// The last waiter of the line, with the era in its low bits; null: nobody queues.
    pub tail: &'a P::Ptr<Waiter<P>>,
    /// The holder's id, where the mutex has an owner field.
    pub owner: Option<&'a P::Word>,
    /// Where the calling thread, which waits, notes how far it has come, if it may be torn out of its wait.
    pub seat: Option<&'a Seat<P>>,
}

impl<P: Machine> Parts<'_, P> {
    /// The holder's id, a hint; 0: nobody, or not known.
    pub(super) fn holder(&self) -> u32 {
        self.owner.map_or(0, |owner| owner.load(Relaxed)) % SOMEBODY
    }
}

impl<P: Machine> Clone for Parts<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<P: Machine> Copy for Parts<'_, P> {}

/// A lock and its line, as the calling thread sees them.
pub struct View<'a, P: Machine> {
    pub(crate) parts: &'a Parts<'a, P>,
    /// The machine and the options.
    pub tuning: &'a Tuning,
    /// How long recent grants took. None: the lock isn't granted to anybody.
    pub(super) pace: Option<Pace>,
    /// Which hooks its policy has.
    pub(super) hooks: u32,
    /// What the policy learns about the caller, from when it is about to join the line.
    pub(super) own: Option<&'a hooks::Node>,
}

/// Proof that the caller has the lock. Only a [`View`] makes it.
#[derive(Debug)]
pub struct Taken(());

fn tag<P: Machine>(node: *mut Waiter<P>, era: usize) -> *mut Waiter<P> {
    node.map_addr(|address| address | (era % ERAS))
}

/// The node behind a tagged pointer; null if the pointer is from before a fork (that thread doesn't exist here). A hint: in a process
/// that is the child of very many others, a pointer that is [`ERAS`] eras old, or twice as old, looks new.
fn untag<P: Machine>(tagged: *mut Waiter<P>, era: usize) -> *mut Waiter<P> {
    if tagged.addr() % ERAS == era % ERAS {
        tagged.map_addr(|address| address / ERAS * ERAS)
    } else {
        null_mut()
    }
}

/// By these hints, does the line's head nap, and leave the lock to others?
#[inline]
pub(crate) fn is_left<P: Machine>(hints: &P::Word) -> bool {
    hints.load(Relaxed) & hints::NAPPING != 0
}

/// The caller has taken the word: did it pass a head that naps? Such overtaking is not counted.
#[inline]
pub(crate) fn has_passed<P: Machine>(hints: &P::Word, counts: &P::Word) -> bool {
    let passed = is_left::<P>(hints);
    if passed {
        P::reached(Stage::Passed);
        if counts.load(Relaxed) & counts::TURN != 0 {
            counts.fetch_and(!counts::TURN, Relaxed); // somebody came back for the lock
        }
    }
    passed
}

/// Who stands in the line.
impl<'a, P: Machine> View<'a, P> {
    /// The lock with this memory.
    pub fn new(parts: &'a Parts<'a, P>, tuning: &'a Tuning) -> Self {
        Self { parts, tuning, pace: None, hooks: 0, own: None }
    }

    /// The node behind the tail, which the caller has read with Acquire; null: nobody of this process is in line.
    fn last(&self, tail: *mut Waiter<P>) -> *mut Waiter<P> {
        let (node, era) = (untag(tail, self.tuning.era), self.tuning.era);
        if era < ERAS || node.is_null() || P::is_line_ours(node.cast()) { node } else { null_mut() }
    }

    /// Is nobody in line? As seen by a thread that holds nothing. A line from before a fork is nobody's, and is cleared.
    pub fn is_line_empty(&self) -> bool {
        let Parts { tail, word, .. } = self.parts;
        let now = tail.load(Relaxed); // a hint: decides whether to queue, not whether to hold
        if now.is_null() {
            return true;
        }
        if !untag(now, self.tuning.era).is_null() {
            // Left behind by code that knows nothing of the line? Then the word is free, and the next thread that takes the word clears
            // the line.
            return word.is_free() && self.is_left_behind();
        }
        // Left over from before a fork. Relaxed: there is nobody to synchronize with.
        let cleared = tail.compare_exchange(now, null_mut(), Relaxed, Relaxed).is_ok();
        if cleared {
            self.forget();
        }
        cleared
    }

    /// A forked child must not act on hints about its parent's line.
    fn forget(&self) {
        self.parts.hints.fetch_and(!(hints::NAPPING | hints::LENGTH), Relaxed); // hints
    }

    /// Does the line consist only of nodes that had the lock, or left? The word is free, or the caller holds it without being in
    /// the line.
    fn is_left_behind(&self) -> bool {
        // ORDERING: Acquire, pairs with [join]: the node is fully made.
        let last = self.last(self.parts.tail.load(Acquire));
        // SAFETY: a node, or memory that was one and stays readable.
        !last.is_null() && unsafe { (*last).had_the_lock() }
    }

    /// The caller has the word, and is not in the line. If all nodes in the line had the lock, or left, they belong to nobody:
    /// gives them back.
    pub(crate) fn clear_left_behind(&self) {
        let tail = self.parts.tail;
        // ORDERING: Acquire, pairs with [join]: the node is fully made.
        let now = tail.load(Acquire);
        let last = self.last(now);
        // SAFETY: a node of the line, which stays there: we have the lock.
        if last.is_null() || !unsafe { (*last).had_the_lock() } {
            return;
        }
        // Relaxed: as in `successor`. If somebody has joined, that thread takes care of it.
        if tail.compare_exchange(now, null_mut(), Relaxed, Relaxed).is_ok() {
            // SAFETY: the line has no other nodes, and nobody can reach these any more.
            unsafe { give_back((*last).first_of_the_dead(), null_mut()) };
            self.forget();
        }
    }

    /// Is this node, by which its thread seems to hold the lock, still in the line?
    pub(super) fn is_in_line(&self, node: &Waiter<P>) -> bool {
        let last = untag(self.parts.tail.load(Relaxed), self.tuning.era); // only compared, never followed
        node.is_still_in(self.parts.word, last)
    }

    /// Joins the line; returns `true` if somebody is before the caller.
    pub(crate) fn join(&self, node: &Waiter<P>) -> bool {
        let me = from_ref(node).cast_mut();
        // A hint. Before the exchange: between that and the link, each look at the mutex keeps a holder waiting that unlocks.
        let is_counted = self.waiters() < self.tuning.most_counted;
        if !is_counted {
            node.is_beyond_count();
        }
        let tail = self.append(node);
        let last = self.last(tail);
        if last.is_null() && !tail.is_null() {
            self.forget();
        }
        if !last.is_null() {
            // At once: a holder that unlocks now waits for this.
            // SAFETY: that node can't leave before it has seen its `next`, which only we write.
            unsafe { (*last).set_next(me) };
        }
        if is_counted {
            self.count_in_line();
        }
        if last.is_null() {
            node.open(); // the waiter behind us may already have told us that it sleeps
        }
        !last.is_null()
    }

    /// Makes the caller's node the line's last, and names its predecessor, so that it can be found wherever the caller is torn away
    /// (seat.rs). Returns the tail before.
    fn append(&self, node: &Waiter<P>) -> *mut Waiter<P> {
        let mine = tag(from_ref(node).cast_mut(), self.tuning.era);
        loop {
            self.parts.word.now_to_write(); // ours, before we read it
            // ORDERING: Acquire, pairs with [join], here and below: our predecessor's node is fully made before we write its `next`.
            let tail = self.parts.tail.load(Acquire);
            node.set_predecessor(self.last(tail));
            // [join] ORDERING: AcqRel: Release publishes our node to the next [join]; Acquire as above.
            if self.parts.tail.compare_exchange(tail, mine, AcqRel, Relaxed).is_ok() {
                P::reached(Stage::Joined);
                return tail;
            }
            // Others come at the same time. Of a crowd, all but one would fail at each move of the cache line.
            let swap = || {
                node.has_no_known_predecessor();
                // ORDERING: AcqRel, as [join], and for the same reasons.
                let tail = self.parts.tail.swap(mine, AcqRel);
                P::reached(Stage::Joined);
                node.set_predecessor(self.last(tail));
                tail
            };
            if let Some(tail) = P::undisturbed(swap) {
                return tail;
            }
        }
    }

    /// Walks from the line's end towards its head, until `is` says yes of a node and the one before it. Beyond a head, or a node that had
    /// the lock, nobody is in line.
    fn find(
        &self,
        is: impl Fn(*const Waiter<P>, *const Waiter<P>) -> bool,
    ) -> Option<*mut Waiter<P>> {
        // ORDERING: Acquire, pairs with [join].
        let mut at = self.last(self.parts.tail.load(Acquire));
        for _ in 0..FARTHEST {
            // SAFETY: a node of the line, or memory that was one and stays readable.
            let waiter = unsafe { at.as_ref() }?;
            let before = waiter.known_predecessor()?;
            if is(at, before) {
                return Some(at);
            }
            if [OPEN, GRANTED].contains(&state(waiter.gate.load(Relaxed))) {
                return None;
            }
            at = before;
        }
        None
    }

    /// Is the caller's node, which nobody has granted or opened anything yet, in the line?
    pub(super) fn contains(&self, node: &Waiter<P>) -> bool {
        self.find(|at, _| core::ptr::eq(at, node)).is_some()
    }

    /// The node that has joined behind the caller's, linked or not.
    pub(super) fn behind(&self, node: &Waiter<P>) -> Option<*mut Waiter<P>> {
        let is_node = |other| core::ptr::eq(other, node);
        self.find(|at, before| is_node(at) || is_node(before)).filter(|&at| !is_node(at))
    }

    /// The waiter behind `node`, which the caller may pass. `None`: the line is empty now.
    pub(super) fn successor(&self, node: &Waiter<P>) -> Option<*mut Waiter<P>> {
        // ORDERING: Acquire, pairs with [link].
        let next = node.next(Acquire);
        if !next.is_null() {
            return Some(next);
        }
        if self.leave_empty(node) {
            return None;
        }
        // Somebody has joined behind us and will link its node in a moment. ORDERING: Acquire, pairs with [link].
        P::spin_until_ptr(&node.next, Acquire, |next| !next.is_null());
        Some(node.next(Relaxed))
    }

    /// Is this node the last in line, as far as the caller can see?
    pub(super) fn ends_with(&self, node: &Waiter<P>) -> bool {
        let last = untag(self.parts.tail.load(Relaxed), self.tuning.era); // only compared, never followed
        core::ptr::eq(last, node)
    }

    /// The caller, whose node is last unless somebody has joined behind it, makes this node the last one. `false`: somebody has.
    pub(super) fn extend(&self, node: &Waiter<P>, last: *mut Waiter<P>) -> bool {
        let era = self.tuning.era;
        let mine = tag(from_ref(node).cast_mut(), era);
        // ORDERING: Release, pairs with [join]: the nodes in between are made. EXPLORED: the models' machine has no doors.
        self.parts.tail.compare_exchange(mine, tag(last, era), Release, Relaxed).is_ok()
    }

    /// Leaves an empty line, if the node, which the caller may pass, is the last one in it.
    pub(crate) fn leave_empty(&self, node: &Waiter<P>) -> bool {
        let Parts { tail, hints, .. } = self.parts;
        let mine = tag(from_ref(node).cast_mut(), self.tuning.era);
        // Those that the line still counts have left it. Whoever joins from now on counts itself after our exchange, and stays counted: a
        // whole convoy may join before we go on.
        let gone = hints::waiters(hints.load(Relaxed));
        // Relaxed: the next thread to join finds an empty line, and gets what we wrote by the word.
        let is_last = tail.compare_exchange(mine, null_mut(), Relaxed, Relaxed).is_ok();
        if is_last && gone != 0 {
            self.count_out_of_line(gone);
        }
        if is_last {
            self.recount_contenders();
        }
        is_last
    }

    /// The line has become empty. In a process that is the child of four others, or more, the count of contenders may date from
    /// before a fork, and look new: then it could stay too high forever. So it begins anew. (If it was right, it is too low for a while.)
    fn recount_contenders(&self) {
        let counts = self.parts.counts;
        if self.tuning.era >= FORKS && counts.load(Relaxed) & counts::SPINNERS != 0 {
            counts.fetch_and(!counts::SPINNERS, Relaxed); // a count: it publishes nothing
        }
    }

    /// A holder has left the line, which is empty now: nobody holds the lock by a node, and nobody has been overtaken.
    pub(super) fn has_emptied(&self) {
        let counts = self.parts.counts;
        let now = counts.load(Relaxed);
        let is_crowded = self.contenders_in(now) >= self.tuning.cpus.min(hints::MANY);
        let old = counts::BY_NODE | counts::BYPASSES | if is_crowded { 0 } else { counts::CROWDED };
        if now & old != 0 {
            counts.fetch_and(!old, Relaxed); // the holder's, and a hint
        }
    }

    /// Makes the first waiter behind `node` that has not left the head, and gives back the nodes from `first` up to it. Returns
    /// that waiter if it sleeps at its gate.
    pub(super) fn open_next<'n>(
        &self,
        first: *mut Waiter<P>,
        node: &'n Waiter<P>,
        pace: Pace,
    ) -> Option<&'n Waiter<P>> {
        let (head, was) = self.open_behind(first, node, pace)?;
        (was == ASLEEP).then_some(head)
    }

    /// As [`open_next`](Self::open_next), but returns the waiter, asleep or not, and its state before.
    pub(super) fn open_behind<'n>(
        &self,
        first: *mut Waiter<P>,
        mut node: &'n Waiter<P>,
        pace: Pace,
    ) -> Option<(&'n Waiter<P>, u32)> {
        let (until, opened) = loop {
            let Some(next) = self.successor(node) else {
                break (null_mut(), None);
            };
            // SAFETY: linked behind a node that is ours to pass.
            let waiter = unsafe { &*next };
            waiter.set_pace(pace);
            match waiter.open() {
                LEFT => node = waiter,
                was => {
                    if was == PROMOTED {
                        self.head_is_awake(); // it was head already, and has said so
                    }
                    break (next, Some((waiter, was)));
                }
            }
        };
        self.parts.seat.inspect(|seat| seat.has_left(until));
        // SAFETY: the new head is behind them, or the line is empty.
        unsafe { give_back(first, until) };
        opened
    }

    /// The head is about to sleep on the word. Behind a holder by a node it writes that holder into the mutex, for debuggers.
    pub(super) fn name_holder(&self, head: &Waiter<P>) {
        if let Some(owner) = self.parts.owner
            && state(head.gate.load(Relaxed)) == PROMOTED
            && owner.load(Relaxed) == SOMEBODY
        {
            head.name_holder(owner);
        }
    }

    /// The caller has joined the line, and is counted. (Threads that find the field full, since others joined at the same time, aren't.)
    pub(super) fn count_in_line(&self) {
        let hints = self.parts.hints;
        let mut now = hints.load(Relaxed); // the exchange checks it again
        if hints::waiters(now) < hints::WAITERS / 2 {
            // Relaxed: a hint. In one step: exchanges of many joiners make each other fail. It wraps if 256 threads come between the load
            // and this step, or if glibc's code changes our half there. It is the highest field, so nothing else changes, and it heals when
            // the line is empty.
            hints.fetch_add(hints::WAITER, Relaxed);
            return;
        }
        while hints::waiters(now) < hints::WAITERS - 1 {
            // Relaxed: a hint. Not a fetch_add: the field must not wrap.
            match hints.compare_exchange(now, now + hints::WAITER, Relaxed, Relaxed) {
                Ok(_) => return,
                Err(seen) => now = seen,
            }
        }
    }

    /// This many counted waiters have left the line, or are about to. Returns how many were counted before.
    pub(super) fn count_out_of_line(&self, count: u32) -> u32 {
        let hints = self.parts.hints;
        let mut now = hints.load(Relaxed); // as above
        loop {
            // Never below 0: glibc's code may have undone a count.
            let next = now - hints::waiters(now).min(count) * hints::WAITER;
            // Relaxed: a hint.
            match hints.compare_exchange(now, next, Relaxed, Relaxed) {
                Ok(_) => return hints::waiters(now),
                Err(seen) => now = seen,
            }
        }
    }

    /// Do so many waiters in line, with the holder, outnumber the CPUs? `counts`: the counts word. Contenders wait, too.
    fn is_crowd(&self, waiters: u32, counts: u32) -> bool {
        waiters + self.contenders_in(counts) >= self.tuning.cpus.min(hints::MANY)
    }

    /// Does the line seem crowded, or has it become a crowd since a thread last left it? Of those that it counts, `others` at most don't
    /// wait: the holder, and threads that were granted the lock since the last look.
    pub(super) fn is_crowded_now(&self, others: u32) -> bool {
        let counts = self.parts.counts.load(Relaxed);
        counts & counts::CROWDED != 0
            || self.is_crowd(self.waiters().saturating_sub(others), counts)
    }

    /// A waiter leaves the line with this node, or a holder that stayed looks at the mutex, as the last of `leaving` threads that the
    /// line still counts. Records whether the line is crowded, and that its new head has not been overtaken yet. Returns whether it is
    /// crowded.
    pub(super) fn note_length(&self, node: &Waiter<P>, leaving: u32) -> bool {
        let counts = self.parts.counts;
        let is_counted = node.is_counted();
        let before = if is_counted { self.count_out_of_line(leaving) } else { 0 };
        let left = before.saturating_sub(leaving - 1);
        let now = counts.load(Relaxed);
        if now & counts::BYPASSES != 0 {
            counts.fetch_and(!counts::BYPASSES, Relaxed); // the holder's, by invariant 3
        }
        let crowded = match left {
            // The caller joined a line that was too long to be counted, and those behind joined after it.
            _ if !is_counted => !node.next(Relaxed).is_null(),
            0 => now & counts::CROWDED != 0, // the count has been spoilt
            _ => self.is_crowd(left - 1, now),
        };
        if crowded && now & counts::CROWDED == 0 {
            counts.fetch_or(counts::CROWDED, Relaxed);
        } else if !crowded && now & counts::CROWDED != 0 {
            counts.fetch_and(!counts::CROWDED, Relaxed);
        }
        crowded
    }

    /// The calling thread is torn out of its wait with this node; it doesn't wait for the lock. `false`: it has just been granted
    /// the lock, and must release it. `end_leading`: it takes care of those that follow it, if it leads (near.rs).
    pub(super) fn leave(&self, node: &Waiter<P>, end_leading: impl Fn()) -> bool {
        let word = self.parts.word;
        let counted = u32::from(node.is_counted());
        loop {
            end_leading();
            // ORDERING: Acquire, pairs with [turn]: the last holder's section is over, if we are GRANTED.
            // EXPLORED: needs a waiter that is granted the lock when it is torn, and locks again.
            let now = state(node.gate.load(Acquire));
            if now == GRANTED {
                return false;
            }
            if now == OPEN {
                break;
            }
            // Read this now: after the turn the node may be another thread's.
            // ORDERING: Acquire, pairs with [link].
            let next = node.next(Acquire);
            if let Ok(gate) = node.turn(now, LEFT) {
                self.count_out_of_line(counted);
                self.head_is_awake();
                if gate & BEHIND != 0 {
                    // ORDERING: as above, pairs with [link].
                    wake(if next.is_null() { node.next(Acquire) } else { next });
                }
                word.pass_on(); // a wake there may have been meant for us
                // Did glibc's code leave the line behind, with nobody in it to notice? Then we clear it away.
                if word.try_take() {
                    self.clear_left_behind();
                    if !word.put_back() {
                        self.release();
                    }
                }
                return true;
            }
        }
        self.count_out_of_line(counted);
        self.head_is_awake();
        if let Some(head) = self.open_next(from_ref(node).cast_mut(), node, Pace::default()) {
            // We don't hold the lock, so we can't move the new head to the word: it has to wake and look.
            P::unpark(&raw const head.gate, 1);
        }
        word.pass_on(); // a wake there may have been meant for us
        true
    }
}

/// Wakes the waiter that sleeps behind a node that has left, so that the waiter tells the next node further on instead.
pub(super) fn wake<P: Machine>(mut next: *mut Waiter<P>) {
    while !next.is_null() {
        // SAFETY: linked once, and still readable. If it is another thread's by now, that thread wakes in vain.
        let waiter = unsafe { &*next };
        if waiter.turn(ASLEEP, WAITING).is_ok() {
            return P::unpark(&raw const waiter.gate, 1);
        }
        if state(waiter.gate.load(Relaxed)) != LEFT {
            return;
        }
        // ORDERING: Acquire, pairs with [link].
        next = waiter.next(Acquire);
    }
}

/// Who may pass the head.
impl<P: Machine> View<'_, P> {
    /// The way past the line: takes a free word. With somebody in line this is counted, and fails once the head has been
    /// overtaken `bypass` times. A head that naps leaves the lock to others for a bounded time, and
    /// one that isn't awake may have to, for as long as the scheduler takes (`leave_to_runner`); neither is counted.
    #[inline]
    pub fn take(&self) -> Option<Taken> {
        self.take_as(false)
    }

    /// Takes a free word, as [`Word0::take`]. Whoever waits notes that.
    #[inline(always)]
    pub(crate) fn take_word(&self, slept: bool) -> bool {
        self.note(self.parts.word.take(slept))
    }

    /// As [`Word0::mark`], likewise.
    #[inline(always)]
    pub(super) fn mark_word(&self) -> bool {
        self.note(self.parts.word.mark())
    }

    #[inline(always)]
    fn note(&self, has_it: bool) -> bool {
        if has_it && let Some(seat) = self.parts.seat {
            seat.holds();
        }
        has_it
    }

    /// As [`take`](Self::take). `slept`: the caller has slept on the word, so it makes the word 2.
    pub(super) fn take_as(&self, slept: bool) -> Option<Taken> {
        let word = self.parts.word;
        if !word.is_free() || !self.may_overtake() || !self.take_word(slept) {
            return None;
        }
        self.overtakes(slept)
    }

    /// Is nobody in line, or may its head be overtaken?
    pub(super) fn may_overtake(&self) -> bool {
        self.is_line_empty()
            || self.is_left()
            || (self.overtaken() < self.tuning.bypass && !self.is_turn())
    }

    /// The caller has taken a free word. If it overtook the line, counts that, or frees the word again. `slept`: it made the word 2.
    pub(super) fn overtakes(&self, slept: bool) -> Option<Taken> {
        let Parts { word, counts, hints, tail, .. } = self.parts;
        // We have the word, so the headship stays where it is, and only we write the count (invariant 3).
        if tail.load(Relaxed).is_null() {
            return Some(Taken(()));
        }
        self.clear_left_behind();
        if has_passed::<P>(hints, counts) || self.is_left_behind() {
            return Some(Taken(()));
        }
        if self.overtaken() < self.tuning.bypass {
            counts.fetch_add(counts::BYPASS, Relaxed); // the field has room: `bypass` is at most its largest value
            return Some(Taken(()));
        }
        // Meanwhile it has become the head's turn. Nothing was done under the lock.
        self.parts.seat.inspect(|seat| seat.gives());
        if slept || !word.put_back() {
            self.release();
        }
        None
    }

    /// As [`take`](Self::take), if nobody is in line.
    pub fn take_if_free(&self) -> Option<Taken> {
        if self.is_free() { self.take() } else { None }
    }

    /// Is the word free?
    pub fn is_open(&self) -> bool {
        self.parts.word.is_free()
    }

    /// Is the word free, and nobody in line?
    pub fn is_free(&self) -> bool {
        self.is_open() && self.is_line_empty()
    }

    /// Does the line's head nap, and leave the lock to others?
    pub fn is_left(&self) -> bool {
        is_left::<P>(self.parts.hints)
    }

    /// The head is awake: from now on nobody may pass it uncounted.
    pub(super) fn head_is_awake(&self) {
        if self.is_left() {
            self.parts.hints.fetch_and(!hints::NAPPING, Relaxed); // (glibc's code may have set it, too, see `hints`)
        }
    }

    /// Should waiters leave the lock to a thread that comes back for it? (learn/saturation.rs finds out.)
    pub fn is_saturated(&self) -> bool {
        self.tuning.budget_ns != 0 && self.parts.hints.load(Relaxed) & hints::SATURATED != 0
    }

    /// The caller has the lock, and is about to make another waiter head. The new head may be asleep, and waking up may take longer than
    /// many sections. Until the head is awake a saturated lock is left to its runner, as while the head naps. A crowded lock whose
    /// heads come late is left to any thread.
    /// `is_late` says whether they do.
    pub(super) fn leave_to_runner(&self, is_late: impl FnOnce() -> bool) {
        if self.is_saturated() || self.tuning.budget_ns != 0 && self.is_crowded() && is_late() {
            self.parts.hints.fetch_or(hints::NAPPING, Relaxed); // a hint: `head_is_awake` takes it back
        }
    }

    /// Did waiters and holder outnumber the CPUs when a thread last left the line?
    pub fn is_crowded(&self) -> bool {
        self.parts.counts.load(Relaxed) & counts::CROWDED != 0
    }

    /// How many threads are in line: a hint.
    pub fn waiters(&self) -> u32 {
        hints::waiters(self.parts.hints.load(Relaxed))
    }

    /// Is it the turn of the line's head?
    pub fn is_turn(&self) -> bool {
        self.parts.counts.load(Relaxed) & counts::TURN != 0
    }

    /// The head's turn has come: nobody overtakes it until it has the lock. A hint.
    pub fn begin_turn(&self) {
        if !self.is_turn() {
            self.parts.counts.fetch_or(counts::TURN, Relaxed);
        }
    }

    /// Ends the head's turn: it has the lock, or begins to nap.
    pub(super) fn end_turn(&self) {
        if self.is_turn() {
            self.parts.counts.fetch_and(!counts::TURN, Relaxed); // a hint
        }
    }

    /// How often the current head has been overtaken.
    pub fn overtaken(&self) -> u32 {
        (self.parts.counts.load(Relaxed) & counts::BYPASSES) / counts::BYPASS
    }

    /// How long a waiter with this note has left until its `timeout`, ns; 0: it is over. None: the lock has no timeout.
    pub fn left_ns(&self, note: &Note) -> Option<u32> {
        let most = u64::from(self.tuning.timeout_ns);
        (most != 0).then(|| most.saturating_sub(P::now().saturating_sub(note.asked_ns)) as u32)
    }

    /// The number of threads that wait outside the line and have [counted](Self::count_in) themselves.
    pub fn contenders(&self) -> u32 {
        self.contenders_in(self.parts.counts.load(Relaxed))
    }

    /// As [`contenders`](Self::contenders), by this value of the counts word. Threads from before a fork don't count.
    fn contenders_in(&self, counts: u32) -> u32 {
        if counts & counts::ERA == self.era() {
            (counts & counts::SPINNERS) / counts::SPINNER
        } else {
            0
        }
    }

    /// The era, as the counts word holds it.
    fn era(&self) -> u32 {
        (self.tuning.era as u32).wrapping_mul(counts::FORK)
    }

    /// Counts the calling thread as one that waits outside the line, if fewer than `most` do.
    pub fn count_in(&self, most: u32) -> bool {
        let counts = self.parts.counts;
        let mut now = counts.load(Relaxed); // the exchange checks it again
        loop {
            let contenders = self.contenders_in(now);
            if contenders >= most.min(counts::SPINNERS / counts::SPINNER) {
                return false;
            }
            let others = now & !(counts::SPINNERS | counts::ERA) | self.era();
            let counted = others | ((contenders + 1) * counts::SPINNER);
            // Relaxed: a count, it publishes nothing. Not a fetch_add: that could carry into the next field.
            match counts.compare_exchange(now, counted, Relaxed, Relaxed) {
                Ok(_) => break,
                Err(seen) => now = seen,
            }
        }
        self.parts.seat.inspect(|seat| seat.contends(true));
        true
    }

    /// The opposite of [`count_in`](Self::count_in).
    pub fn count_out(&self) {
        self.parts.seat.inspect(|seat| seat.contends(false));
        let counts = self.parts.counts;
        let mut now = counts.load(Relaxed); // the exchange checks it again
        while self.contenders_in(now) > 0 {
            // Relaxed: a count, it publishes nothing. Not a fetch_sub: `recount_contenders` may have cleared the field meanwhile.
            match counts.compare_exchange(now, now - counts::SPINNER, Relaxed, Relaxed) {
                Ok(_) => return,
                Err(seen) => now = seen,
            }
        }
    }

    /// Waits as glibc's own code does: makes the word 2, and sleeps on it whenever it isn't free. `None`: it is the turn of a head
    /// in line, behind which the caller should join.
    pub fn sleep_on_word(&self) -> Option<Taken> {
        let word = self.parts.word;
        let mut sleeps = word.now() == WAITED; // glibc, too, looks before it swaps
        loop {
            if !sleeps && self.mark_word() {
                return self.overtakes(true);
            }
            word.sleep(None);
            sleeps = false;
        }
    }

    /// A contender waits awake for `ns`, and takes the lock if that works. Meanwhile unlock wakes nobody, since the contender *promises* to
    /// take care of those who sleep on the word.
    ///
    /// A wake takes a system call, and the woken thread takes microseconds to arrive. If another thread is awake anyway, and
    /// takes the lock, all that was for nothing. MUTEXEE's unlock therefore watches the word for a moment before it wakes anybody
    /// (Falsafi et al., *Unlocking Energy*, USENIX ATC 2016, section 5). POSIX doesn't allow that: the next holder may free the
    /// mutex. So here the waiter announces itself beforehand:
    ///
    /// ```text
    ///   waiter   sees 2, makes it 4 ─┬─ takes the free word, as 2
    ///                                └─ gives up: makes it 2 again, or wakes a sleeper if it is free
    ///   unlock   word 4 ─► 0, and wakes nobody
    /// ```
    ///
    /// Invariants:
    /// 1. A thread that has made the word 4 takes it as 2, or passes a wake on when it gives up, whatever the word says by then. All
    ///    steps act on this one word. So an unlock comes either before the second step, which then finds the word free or held again,
    ///    or after it, and then the unlock finds 2.
    /// 2. A thread that falls asleep makes the word 2, so a promise covers only the threads that slept before it.
    /// 3. Nobody promises once it is the head's turn. So after at most `bypass` overtakers some unlock wakes a thread that sleeps on
    ///    the word, even if another one always waits awake. (Timed lockers and glibc's code may sleep there for long.)
    pub fn spin_and_promise(&self, ns: u32) -> Option<Taken> {
        let word = self.parts.word;
        let (mut taken, mut promised) = (None, false);
        word.spin_for(ns, |value| {
            match value {
                FREE => taken = self.take_as(promised),
                // With nobody in line, hardly anybody sleeps on the word: after one wake in vain it is 1 again. (And never at the head's turn: invariant 3 above.)
                WAITED if !self.is_line_empty() && self.may_overtake() => {
                    promised |= word.promise()
                }
                _ => {}
            }
            // Is it the head's turn? Then the head may be asleep, and we owe it a wake now.
            taken.is_some() || promised && value == FREE && !self.may_overtake()
        });
        if promised && taken.is_none() {
            word.pass_on();
        }
        taken
    }

    /// Sleeps for `ns`; nobody will wake it.
    pub fn sleep_aside(&self, ns: u32) {
        self.sleep_until(P::after(ns));
    }

    /// Sleeps until then; nobody will wake it.
    pub(super) fn sleep_until(&self, end: P::Deadline) {
        let nobody_wakes = P::Word::new(0);
        // SURVIVES: the word is our own, and never changes.
        P::park(&nobody_wakes, 0, Some(end));
    }
}

/// Unlock by the word.
impl<P: Machine> View<'_, P> {
    /// Releases a word that is not 1, by a thread that holds the lock by no node: somebody may need a wake.
    ///
    /// It works under any rule, and with or without a line: a thread that needs the wake sleeps on the word.
    #[cold]
    pub fn release(&self) {
        let Parts { word, counts, .. } = self.parts;
        match word.now() {
            FREE => return, // nobody held it: undefined in POSIX, and as harmless as with glibc
            HELD => {}
            // The holder does not hold it by a node, or has forgotten that node: then the node is in the way.
            now if now == CHAINED || counts.load(Relaxed) & counts::BY_NODE != 0 => {
                self.clear_left_behind()
            }
            _ => {}
        }
        // Signals moved these threads here. Only the holder writes the two fields. Moved threads come first, `herd` of them at
        // most: each has its signal, and passes the duty on. After seven such unlocks it is another sleeper's turn.
        let now = counts.load(Relaxed);
        let mut moved = ((now & counts::MOVEDS) / counts::MOVED).min(self.tuning.herd.max(1));
        if now & counts::PREFERENCES == counts::PREFERENCES || moved == 0 {
            moved = 0;
            if now & counts::PREFERENCES != 0 {
                counts.fetch_and(!counts::PREFERENCES, Relaxed);
            }
        } else {
            counts.fetch_add(counts::PREFERENCE.wrapping_sub(moved * counts::MOVED), Relaxed);
        }
        word.release(moved); // the mutex may be gone
    }

    /// Moves a head that sleeps at its gate to the word; the caller holds the lock.
    ///
    /// A thread that has just acquired must not spend its critical section on a wake: our unlock will wake the head, or glibc's. A
    /// head that isn't asleep yet sees OPEN.
    pub(super) fn move_to_word(&self, head: &Waiter<P>) {
        let (word, gate) = (self.parts.word, &raw const head.gate);
        if self.left_ns(&head.note) == Some(0) {
            return P::unpark(gate, 1); // it has waited for long enough: once it is awake, nobody overtakes it
        }
        // Meanwhile somebody may fall asleep behind it and set BEHIND, once.
        let open = head.gate.load(Relaxed) & !BEHIND; // only BEHIND may change
        if P::requeue(gate, open, word.address(), 1) == 0 {
            P::requeue(gate, open | BEHIND, word.address(), 1);
        }
        word.owe_wake();
    }

    /// The holder claims, by `claim`, a thread that sleeps elsewhere, and will move it to word 0. There an unlock wakes it, when
    /// it can get the lock. `false`: the claim failed.
    pub(super) fn adopt(&self, claim: impl FnOnce() -> bool) -> bool {
        if !claim() {
            return false;
        }
        let Parts { word, counts, .. } = self.parts;
        // Relaxed, both: we hold the lock, and our own unlock reads them. Threads beyond the field's range are woken one by one.
        if counts.load(Relaxed) & counts::MOVEDS != counts::MOVEDS {
            counts.fetch_add(counts::MOVED, Relaxed);
        }
        word.owe_wake();
        true
    }
}
