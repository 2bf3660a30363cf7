//! The line of waiters in front of word 0, shared by the front locks.
//!
//! Mellor-Crummey & Scott, *Algorithms for Scalable Synchronization on Shared-Memory Multiprocessors*,
//! TOCS 1991, with the head kept in the lock (K42; Linux' qspinlock): a waiter that acquired hands the
//! headship on before `lock` returns, so nodes live on stacks, and thread exit needs no clean-up.
//!
//! A gate is WAITING (awake, not head), ASLEEP (about to sleep, or asleep) or OPEN (you are head, or:
//! the word is being released, look again).

use super::{FREE, Parts, Tuning, WAITED, batch, inherit_duty, mood, side};
use lockwright_platform::Ordering::{AcqRel, Acquire, Relaxed, Release};
use lockwright_platform::{Platform, Ptr, Word};

const WAITING: u32 = 0;
const ASLEEP: u32 = 1;
const OPEN: u32 = 2;

/// Low bits of a node's address, free for the era: nodes are aligned to 64.
const ERAS: usize = 63;

/// One waiter's place in the line; on its stack.
#[repr(align(64))]
pub struct Waiter<P: Platform> {
    gate: P::Word,
    /// Number in arrival order. A hint: only lengths are computed from it.
    ticket: P::Word,
    next: P::Ptr<Waiter<P>>,
}

fn tag<P: Platform>(node: *mut Waiter<P>, era: usize) -> *mut Waiter<P> {
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

/// The head of the line, as the holder sees it; null: nobody.
pub(super) fn head<P: Platform>(parts: &Parts<'_, P>, era: usize) -> *const Waiter<P> {
    // ORDERING: Acquire, pairs with [first]: a head that came without our doing is fully made.
    untag(parts.head.load(Acquire), era)
}

/// Opens a waiter's gate and returns its address, for a wake later on.
///
/// # Safety
/// The waiter is in the line, and the caller holds the lock.
pub(super) unsafe fn open<P: Platform>(waiter: *const Waiter<P>) -> *const P::Word {
    // SAFETY: the caller's promise: the node is there.
    let gate = unsafe { &(*waiter).gate };
    // Relaxed: only its owner's `park` looks, for a changed value; the word carries the happens-before.
    gate.store(OPEN, Relaxed);
    gate
}

/// Is anybody in the line? As seen by a thread that holds nothing.
pub(super) fn is_empty<P: Platform>(parts: &Parts<'_, P>, era: usize) -> bool {
    let tail = parts.tail.load(Relaxed); // a hint: decides whether to queue, not whether to hold
    if tail.is_null() {
        return true;
    }
    if untag(tail, era).is_null() {
        // Left over from before a fork. Relaxed: there is nobody to synchronize with.
        let _ = parts.tail.compare_exchange(tail, core::ptr::null_mut(), Relaxed, Relaxed);
    }
    false
}

/// Joins the line, waits, and returns with the lock held and the line left.
pub(super) fn wait<P: Platform>(parts: Parts<'_, P>, tuning: &Tuning) {
    wait_holding_back(parts, tuning, |_| ());
}

/// As [`wait`]; once it is head, and before it competes for the word, `hold_back` is called, which may let others
/// go first (within a bound).
pub(super) fn wait_holding_back<P: Platform>(
    parts: Parts<'_, P>,
    tuning: &Tuning,
    hold_back: impl FnOnce(&Parts<'_, P>),
) {
    let node = Waiter::<P> {
        gate: P::Word::new(WAITING),
        ticket: P::Word::new(0),
        next: P::Ptr::new(core::ptr::null_mut()),
    };
    let me = (&raw const node).cast_mut();
    // [join] ORDERING: AcqRel: Release publishes our node to the next [join]; Acquire, pairs with it:
    // our predecessor's node is fully made before we write its `next`.
    let last = untag(parts.tail.swap(tag(me, tuning.era), AcqRel), tuning.era);
    if last.is_null() {
        // [first] ORDERING: Release, pairs with `head`: the holder may see us before we make the word 2.
        parts.head.store(tag(me, tuning.era), Release);
    } else {
        // SAFETY: it can't leave before it has seen its `next`, which only we write.
        let last = unsafe { &*last };
        // Relaxed: a hint. 0, if its owner has not come that far: then we start counting anew, and nobody
        // knows the length until one of us is head.
        node.ticket.store(last.ticket.load(Relaxed).wrapping_add(1), Relaxed);
        // [link] ORDERING: Release, pairs with the Acquire in `leave`: our gate is there before we are.
        last.next.store(me, Release);
        wait_for_headship(&parts, &node, tuning);
    }
    hold_back(&parts);
    wait_as_head(&parts, &node, tuning);
    leave(&parts, &node, tuning);
}

/// Not head yet: everything concerns our own gate.
fn wait_for_headship<P: Platform>(parts: &Parts<'_, P>, node: &Waiter<P>, tuning: &Tuning) {
    // Behind others in a crowded line there is nothing to stay awake for.
    let crowded = parts.side.load(Relaxed) & side::CROWDED != 0; // a hint
    let awake_ns = if crowded { 0 } else { tuning.spin_ns };
    // Relaxed: headship carries no data; the word's Acquire does.
    if P::spin_for(&node.gate, Relaxed, awake_ns, |gate| gate == OPEN) == OPEN {
        return;
    }
    // Relaxed on failure: OPEN is all we need. On success too: `leave` reads it by an RMW, which sees the
    // newest value, and then itself makes the word 2.
    if node.gate.compare_exchange(WAITING, ASLEEP, Relaxed, Relaxed).is_ok() {
        while node.gate.load(Relaxed) == ASLEEP {
            P::park(&node.gate, ASLEEP, None);
        }
    }
}

/// Head: competes for the word, awake first, then asleep with the word at 2.
fn wait_as_head<P: Platform>(parts: &Parts<'_, P>, node: &Waiter<P>, tuning: &Tuning) {
    if batch::is_saturated(parts, tuning) && nap(parts, node, tuning) {
        return;
    }
    loop {
        if batch::spin(parts, tuning) {
            return;
        }
        node.gate.store(ASLEEP, Relaxed); // before the word says 2: the AcqRel below keeps the order
        // [asleep] ORDERING: Acquire, pairs with [release] if it was free. Release, pairs with [mark]:
        // the unlock that finds this 2 opens our gate after our store of ASLEEP, and sees `head`.
        // STATE: (0, h:q, s) -> (2, h:q, s) held by us, or (1|2, h:q, s) -> (2, h:q, s), invariant 1.
        if parts.word.swap(WAITED, AcqRel) == FREE {
            return;
        }
        // [foreign] ORDERING: AcqRel, an RMW that changes nothing: pairs with `make_foreign`.
        // SURVIVES: the Acquire; an RMW sees the newest value, and we count ourselves at the word.
        if parts.mood.fetch_or(0, AcqRel) & mood::FOREIGN_UNLOCK != 0 {
            super::sleep_on_word(*parts, 0, None);
            return;
        }
        P::park(&node.gate, ASLEEP, None);
    }
}

/// Head of a saturated lock: sleeps for a while without asking anybody to wake it. `true` if it found the
/// lock really free afterwards, and took it.
fn nap<P: Platform>(parts: &Parts<'_, P>, node: &Waiter<P>, tuning: &Tuning) -> bool {
    parts.mood.fetch_or(mood::NAPPING, Relaxed); // a hint, to arrivals
    node.gate.store(ASLEEP, Relaxed); // an unlock that finds a 2 may open it
    P::park(&node.gate, ASLEEP, Some(P::after(tuning.batch_ns)));
    parts.mood.fetch_and(!mood::NAPPING, Relaxed);
    batch::take_after_nap(parts)
}

/// Holding the lock, hands the headship on.
fn leave<P: Platform>(parts: &Parts<'_, P>, node: &Waiter<P>, tuning: &Tuning) {
    let me = core::ptr::from_ref(node).cast_mut();
    // ORDERING: Acquire, pairs with [link].
    let mut next = node.next.load(Acquire);
    if next.is_null() {
        parts.head.store(core::ptr::null_mut(), Relaxed); // invariant 6; under the lock
        let (mine, none) = (tag(me, tuning.era), core::ptr::null_mut());
        // ORDERING: Release, pairs with the Acquire of the next [join]: `head` is cleared before that
        // waiter writes it.
        // SURVIVES: the models' machine orders the stores to one word as they ran.
        if parts.tail.compare_exchange(mine, none, Release, Relaxed).is_ok() {
            note_length(parts, Some(0), tuning);
            inherit_duty(parts, false);
            return;
        }
        // Somebody joined behind us and will link in a moment. ORDERING: Acquire, pairs with [link].
        next = P::spin_until_ptr(&node.next, Acquire, |next| !next.is_null());
    }
    // Relaxed: read by holders only, who come after us in the word's order.
    parts.head.store(tag(next, tuning.era), Relaxed);
    // SAFETY: `next` is in the line, and we hold the lock (invariant 3).
    let next = unsafe { &*next };
    note_length(parts, length(parts, node, tuning), tuning);
    // Acquire/Release are not needed: only whether it sleeps matters, and an RMW sees the newest value.
    let asleep = next.gate.swap(OPEN, Relaxed) == ASLEEP;
    // An acquirer must not spend its critical section on waking: our unlock will.
    inherit_duty(parts, asleep);
}

/// Waiters behind `node`, about, if that can be told; the caller holds the lock, and is still in the line with
/// somebody behind it.
fn length<P: Platform>(parts: &Parts<'_, P>, node: &Waiter<P>, tuning: &Tuning) -> Option<u32> {
    // ORDERING: Acquire, pairs with [join]: the last node is fully made.
    // SURVIVES: loom does not check that a new word is known to who reads it.
    let last = untag(parts.tail.load(Acquire), tuning.era);
    if last.is_null() {
        return None;
    }
    // SAFETY: it is in the line, and we hold the lock (invariant 3).
    let (last, mine) = unsafe { ((*last).ticket.load(Relaxed), node.ticket.load(Relaxed)) };
    // Not positive: the last one has not drawn its ticket yet, or somebody between us had not.
    let waiters = last.wrapping_sub(mine).cast_signed();
    (waiters > 0).then(|| waiters.cast_unsigned())
}

/// Records whether the line is crowded, if that is known, and that its new head has not been overtaken yet.
fn note_length<P: Platform>(parts: &Parts<'_, P>, waiters: Option<u32>, tuning: &Tuning) {
    if parts.mood.load(Relaxed) & mood::NAPPING != 0 {
        // Left over: the head that napped was in the parent of a fork.
        parts.mood.fetch_and(!mood::NAPPING, Relaxed);
    }
    let now = parts.side.load(Relaxed);
    if now & side::BYPASSES != 0 {
        parts.side.fetch_and(!side::BYPASSES, Relaxed);
    }
    let Some(waiters) = waiters else { return };
    // Those beside the line wait too.
    let waiters = waiters + (now & side::SPINNERS) / side::SPINNER;
    let crowded = waiters >= tuning.cpus; // with the holder, more than the CPUs
    if crowded && now & side::CROWDED == 0 {
        parts.side.fetch_or(side::CROWDED, Relaxed);
    } else if !crowded && now & side::CROWDED != 0 {
        parts.side.fetch_and(!side::CROWDED, Relaxed);
    }
}
