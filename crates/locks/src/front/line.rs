//! The line of waiters in front of word 0: every edit of it, whatever the rule.
//!
//! Mellor-Crummey & Scott, *Algorithms for Scalable Synchronization on Shared-Memory Multiprocessors*,
//! TOCS 1991. A waiter that acquired hands the headship on before `lock` returns (K42; Linux' qspinlock), so nodes
//! live on stacks, and thread exit needs no clean-up. Unlock does not know the line: the head, when it sleeps, sleeps
//! on word 0 itself, where glibc's unlock finds it, too.
//!
//! ```text
//!   gate    WAITING ─► OPEN            awake until it is head
//!              └► ASLEEP ─► OPEN       asleep at its gate, then moved to word 0
//!              └────┴─► MOVING, LEFT   leaving.rs
//! ```

use super::leaving::{Seat, settle};
use super::rule::{Arrived, Note, Rule, View};
use super::{FREE, HELD, Parts, Tuning, WAITED};
use super::{batch, mark, mood, owe_wake, pass_on, side, take_as};
use lockwright_platform::Ordering::{AcqRel, Acquire, Relaxed, Release};
use lockwright_platform::{Platform, Ptr, Stage, Word};

/// Awake, and not head.
pub(crate) const WAITING: u32 = 0;
/// About to sleep at its gate, or asleep there.
pub(crate) const ASLEEP: u32 = 1;
/// Head.
pub(super) const OPEN: u32 = 2;

/// Low bits of a node's address, free for the era: nodes are aligned to 64.
const ERAS: usize = 63;

/// Waiters that a rule may choose from, and the head's successor itself, at most.
const CHOICE: usize = 16;

/// One waiter's place in the line; on its stack.
#[repr(align(64))]
pub struct Waiter<P: Platform> {
    pub(crate) gate: P::Word,
    pub(super) next: P::Ptr<Waiter<P>>,
    /// Who is before it. Its own until it is linked; then written under LEAVING (leaving.rs).
    pub(super) before: P::Ptr<Waiter<P>>,
    /// How often others of the line were let past it. Written by heads that leave.
    passed: P::Word,
    note: Note,
    /// Is it about to look who is behind it? Apart from the node, on a line that nobody else uses: so it costs nothing
    /// to say, and is asked by those who leave (leaving.rs).
    passes: *const P::Word,
}

impl<P: Platform> Waiter<P> {
    /// `passes` holds 0, and stays as long as the node.
    pub(crate) fn new(gate: u32, note: Note, passes: &P::Word) -> Self {
        Self {
            gate: P::Word::new(gate),
            next: P::Ptr::new(core::ptr::null_mut()),
            before: P::Ptr::new(core::ptr::null_mut()),
            passed: P::Word::new(0),
            note,
            passes,
        }
    }

    /// Says that the caller, the line's head, is about to look who is behind this node; `counted`: waiters that are fewer.
    pub(super) fn pass(&self, mood: &P::Word, counted: u32) -> u32 {
        // SAFETY: it stays as long as we do.
        unsafe { (*self.passes).store(1, Relaxed) }; // published below
        // [pass] ORDERING: AcqRel, pairs with itself and with [replaced]: who leaves sees that we pass, or we see its stand-in.
        mood.fetch_sub(counted, AcqRel)
    }

    /// Has a head said so? After [replaced].
    pub(super) fn is_passed(&self) -> bool {
        // SAFETY: as above.
        unsafe { (*self.passes).load(Relaxed) != 0 }
    }
}

pub(super) fn tag<P: Platform>(node: *mut Waiter<P>, era: usize) -> *mut Waiter<P> {
    node.map_addr(|address| address | era)
}

/// The node that a tagged pointer means; null if it is from before a fork (that thread does not exist).
fn untag<P: Platform>(tagged: *mut Waiter<P>, era: usize) -> *mut Waiter<P> {
    if tagged.addr() & ERAS == era {
        tagged.map_addr(|address| address & !ERAS)
    } else {
        core::ptr::null_mut()
    }
}

/// Is nobody in the line? As seen by a thread that holds nothing.
pub(super) fn is_empty<P: Platform>(parts: &Parts<'_, P>, era: usize) -> bool {
    let tail = parts.tail.load(Relaxed); // a hint: decides whether to queue, not whether to hold
    if tail.is_null() {
        return true;
    }
    if !untag(tail, era).is_null() {
        return false;
    }
    // Left over from before a fork. Relaxed: there is nobody to synchronize with.
    let cleared =
        parts.tail.compare_exchange(tail, core::ptr::null_mut(), Relaxed, Relaxed).is_ok();
    if cleared {
        forget(parts);
    }
    cleared
}

/// What the line of a fork's parent left behind must not bind the child.
fn forget<P: Platform>(parts: &Parts<'_, P>) {
    parts.side.fetch_and(!side::LEAVING, Relaxed); // whoever was leaving does not exist
    parts.mood.fetch_and(!(mood::NAPPING | mood::LENGTH), Relaxed); // hints
}

/// Acquires by the rule `R`, for a thread that found the word taken, or somebody in line.
#[cold]
pub fn acquire<P: Platform, R: Rule<P>>(
    parts: Parts<'_, P>,
    tuning: &Tuning,
    seat: Option<&dyn Seat<P>>,
) {
    let lock = View { seat, ..View::new(parts, tuning) };
    let mut note = match R::arrive(&lock) {
        Arrived::Took(_) => return,
        Arrived::Joins(note) => note,
    };
    if note.asked_ns == 0 && lock.is_saturated() {
        note.asked_ns = P::now();
    }
    let passes = P::Word::new(0);
    let node = Waiter::<P>::new(WAITING, note, &passes);
    seat.inspect(|seat| seat.joins());
    let behind = join(&parts, &node, tuning);
    seat.inspect(|seat| seat.sits(&raw const node));
    let slept = behind && wait_for_headship::<P, R>(&lock, &node);
    P::reached(Stage::Head);
    if R::HOLDS_BACK {
        if slept {
            pass_on::<P>(parts.word); // woken there, maybe, where others sleep
        }
        R::hold_back(&lock, &node.note);
    }
    let slept = wait_as_head::<P, R>(&lock, &node, slept);
    seat.inspect(|seat| seat.sits(core::ptr::null())); // who dies from here on dies with the lock held
    batch::runs(&lock);
    R::acquired(&lock, &node.note, slept);
    leave::<P, R>(&lock, &node);
}

/// Joins the line; `true`: behind somebody.
pub(crate) fn join<P: Platform>(parts: &Parts<'_, P>, node: &Waiter<P>, tuning: &Tuning) -> bool {
    let me = core::ptr::from_ref(node).cast_mut();
    // [join] ORDERING: AcqRel: Release publishes our node to the next [join]; Acquire, pairs with it:
    // our predecessor's node is fully made before we write its `next`.
    let tail = parts.tail.swap(tag(me, tuning.era), AcqRel);
    P::reached(Stage::Joined);
    let last = untag(tail, tuning.era);
    if last.is_null() {
        if !tail.is_null() {
            forget(parts);
        }
        node.gate.store(OPEN, Relaxed); // read by ourselves alone, in leaving.rs
        parts.mood.fetch_add(mood::WAITER, Relaxed); // a hint, as below
        return false;
    }
    node.before.store(last, Relaxed); // published by [link]
    // SAFETY: it can't leave before it has seen its `next`, which only we write.
    let last = unsafe { &*last };
    // [link] ORDERING: Release, pairs with the Acquires that read a `next`: our gate is there before we are.
    last.next.store(me, Release);
    // A hint, and the mutex's own line is ours at the moment. Before anybody can wait for us to be counted.
    parts.mood.fetch_add(mood::WAITER, Relaxed);
    true
}

/// Not head yet: everything concerns our own gate. `true`: it slept.
fn wait_for_headship<P: Platform, R: Rule<P>>(lock: &View<'_, P>, node: &Waiter<P>) -> bool {
    let awake_ns = R::awake_ns(lock);
    // ORDERING: Acquire, all three, pairs with [open]: our node may end, also if whoever opened it does not hold the lock.
    if P::spin_for(&node.gate, Acquire, awake_ns, |gate| gate == OPEN) == OPEN {
        return false;
    }
    // Relaxed on success: who opens it does so by an RMW, which sees the newest value, and then moves us to the word.
    if node.gate.compare_exchange(WAITING, ASLEEP, Relaxed, Acquire).is_err() {
        return false;
    }
    while node.gate.load(Acquire) == ASLEEP {
        P::park(&node.gate, ASLEEP, None);
    }
    true
}

/// Head: competes for the word, awake first, then asleep on the word. `true`: it slept, here or at its gate.
fn wait_as_head<P: Platform, R: Rule<P>>(
    lock: &View<'_, P>,
    node: &Waiter<P>,
    mut slept: bool,
) -> bool {
    let View { parts, .. } = lock;
    debug_assert!(node.gate.load(Relaxed) == OPEN, "only the head competes");
    // By invariant 1.
    let take = |slept| take_as::<P>(parts.word, if slept { WAITED } else { HELD });
    if lock.is_saturated() {
        if slept {
            pass_on::<P>(parts.word); // woken there, maybe, where others sleep
        }
        if batch::nap(lock, node.note.asked_ns, || take(slept)) {
            return slept;
        }
    }
    loop {
        if parts.mood.load(Relaxed) & mood::NAPPING != 0 {
            parts.mood.fetch_and(!mood::NAPPING, Relaxed); // glibc's code said so, see `mood`
        }
        if R::spin(lock, slept, || take(slept)) || mark::<P>(parts.word) {
            return slept;
        }
        P::park(parts.word, WAITED, None);
        slept = true;
    }
}

/// Holding the lock, hands the headship on.
fn leave<P: Platform, R: Rule<P>>(lock: &View<'_, P>, node: &Waiter<P>) {
    let (parts, era) = (&lock.parts, lock.tuning.era);
    debug_assert!(parts.word.load(Relaxed) != FREE, "only the holder leaves this way");
    note_length(lock, node);
    let Some(mut next) = successor(parts, node, era) else {
        if parts.mood.load(Relaxed) & mood::LENGTH != 0 && parts.tail.load(Relaxed).is_null() {
            parts.mood.fetch_and(!mood::LENGTH, Relaxed);
        }
        return;
    };
    if R::AHEAD > 0 {
        next = choose::<P, R>(lock, node, next);
    }
    // SAFETY: in the line, until it is open and we release.
    if let Some((gate, ASLEEP)) = unsafe { settle(parts, node, next, era) } {
        // An acquirer must not spend its critical section on waking: our unlock will, or glibc's. Where it finds the
        // sleeper is the word (invariant 2); one that isn't asleep yet sees OPEN.
        P::requeue(gate, OPEN, parts.word, 1);
        owe_wake(parts);
    }
}

/// Who is behind `node`, a head that [passes](Waiter::pass) or its stand-in; none: the line is empty now.
pub(super) fn successor<P: Platform>(
    parts: &Parts<'_, P>,
    node: &Waiter<P>,
    era: usize,
) -> Option<*mut Waiter<P>> {
    let me = core::ptr::from_ref(node).cast_mut();
    // ORDERING: Acquire, pairs with [link] and [stand-in].
    let next = node.next.load(Acquire);
    if !next.is_null() {
        return Some(next);
    }
    // Relaxed: whoever joins next finds nobody, and needs nothing that we wrote but by the word.
    let (mine, none) = (tag(me, era), core::ptr::null_mut());
    if parts.tail.compare_exchange(mine, none, Relaxed, Relaxed).is_ok() {
        return None;
    }
    // Somebody joined behind us and will link in a moment. ORDERING: Acquire, pairs with [link].
    Some(P::spin_until_ptr(&node.next, Acquire, |next| !next.is_null()))
}

/// Lets the rule choose among `first` and those behind it, and moves its choice to the front of the line.
fn choose<P: Platform, R: Rule<P>>(
    lock: &View<'_, P>,
    node: &Waiter<P>,
    first: *mut Waiter<P>,
) -> *mut Waiter<P> {
    let parts = &lock.parts;
    // Relaxed: whoever leaves from the middle meanwhile is older than our view, or waits for us; see leaving.rs.
    // ORDERING: Acquire, pairs with [unleave].
    if parts.side.fetch_or(side::LEAVING, Acquire) & side::LEAVING != 0 {
        return first; // busy: the order stays
    }
    let mut waiters = [core::ptr::null_mut::<Waiter<P>>(); CHOICE];
    let mut notes = [Note::default(); CHOICE];
    let (mut count, mut at) = (0, first);
    while count < CHOICE.min(1 + R::AHEAD) {
        // SAFETY: linked, and behind the head, which is us: it stays (invariant 3).
        let waiter = unsafe { &*at };
        // ORDERING: Acquire, pairs with [link].
        let behind = waiter.next.load(Acquire);
        if count > 0 && behind.is_null() {
            break; // the last may be about to be followed, and stays last
        }
        (waiters[count], notes[count]) = (at, waiter.note);
        count += 1;
        if behind.is_null() || waiter.passed.load(Relaxed) >= lock.tuning.bypass {
            break; // nobody goes past that one any more
        }
        at = behind;
    }
    let chosen = R::next(lock, &notes[..count]);
    let next = if chosen < count { waiters[chosen] } else { first };
    if next != first {
        // SAFETY: as above; `LEAVING` is ours, so that nobody else writes these links.
        unsafe {
            for passed in &waiters[..chosen] {
                (**passed).passed.fetch_add(1, Relaxed); // a count
            }
            let behind = (*next).next.load(Relaxed); // not null, seen above with Acquire
            (*waiters[chosen - 1]).next.store(behind, Relaxed); // read by heads, after us in the word's order
            (*behind).before.store(waiters[chosen - 1], Relaxed); // read under LEAVING
            (*next).next.store(first, Relaxed);
            (*first).before.store(next, Relaxed);
            (*next).before.store(core::ptr::from_ref(node).cast_mut(), Relaxed);
            node.next.store(next, Relaxed); // ours to read, in `settle`
        }
    }
    // [unleave] ORDERING: Release, pairs with the Acquire of the next who takes LEAVING.
    // SURVIVES: it takes four in line, one of them torn, and the models have three.
    parts.side.fetch_and(!side::LEAVING, Release);
    next
}

/// Records whether the line that the caller leaves is crowded, and that its new head has not been overtaken yet.
fn note_length<P: Platform>(lock: &View<'_, P>, node: &Waiter<P>) {
    let Parts { side, mood, .. } = lock.parts;
    let left = node.pass(mood, mood::WAITER) / mood::WAITER; // a hint; the field is the word's highest
    let now = side.load(Relaxed);
    if now & side::BYPASSES != 0 {
        side.fetch_and(!side::BYPASSES, Relaxed); // the holder's, by invariant 5
    }
    // Those beside the line wait too.
    let behind = if left < mood::MOST { left.saturating_sub(1) } else { 0 };
    let waiters = behind + lock.beside_in(now);
    let crowded = waiters >= lock.tuning.cpus; // with the holder, more than the CPUs
    if crowded && now & side::CROWDED == 0 {
        side.fetch_or(side::CROWDED, Relaxed);
    } else if !crowded && now & side::CROWDED != 0 {
        side.fetch_and(!side::CROWDED, Relaxed);
    }
}
