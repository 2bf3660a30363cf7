//! What a front lock decides. The floors below do the rest: word 0 (word.rs), the line (line.rs, grant.rs, choice.rs), and what a lock
//! learns (learn/).
//!
//! ```text
//!   arrive ─► taken, or a note ─► awake_ns ─► next ─────────► hold_back ─► spin_ns ─► acquired ─► release
//!   arrival                        in line     first in line   head         head       holder      holder
//!
//!   Rule      arrive, awake_ns, spin_ns, defaults       what each lock decides
//!   Choose    next, hold_back, ...                      for locks that choose who goes first
//!   Observe   acquired, release, ...                    for locks that learn from what happens, or tell a policy
//! ```
//!
//! A rule sees the lock through a [`View`], which looks, waits and tries. A rule reads only hints, and gives only
//! advice. It can't break exclusion or lose a waiter. Nor can it let arrivals overtake a head more often than the
//! tuning's `bypass` says, unless that head leaves the lock to others (learn/saturation.rs), or isn't
//! awake yet at a lock that is saturated or whose heads come late (learn/memos.rs). The proof of an acquisition is a
//! [`Taken`], which only the line makes.
//!
//! [`acquire`] is the one way through the line, for any rule.

pub mod asl;
pub mod asl_pthread;
pub mod auto;
pub mod barging;
pub mod cal;
pub mod fifo;
pub mod malthusian;
pub mod mutexee;
pub mod pb10;
pub mod programmed;
pub mod slo;

use super::choice::{Waiters, choose_behind};
use super::grant::{LOOKS_EACH, settle, wake_behind};
use super::learn::{memos, saturation};
pub(super) use super::line::View;
use super::line::{Parts, Taken};
use super::near;
use super::outside::wait_urgently;
use super::tuning::Tuning;
use super::waiter::{
    ASLEEP, BEHIND, CHOOSING, GRANTED, MOST_CHOOSERS, Note, OPEN, PROMOTED, Pace, WAITING,
};
use super::waiter::{More, Waiter, grants, state};
use lockwright_platform::Ordering::Relaxed;
use lockwright_platform::{Machine, Stage, Word, hooks};

/// In a line of this many waiters, a waiter stays awake for twice as long as outside it.
const LONG_LINE: u32 = 8;

/// A waiter waits awake for this long, ns, before it checks whether it is first in a line to which nobody grants the lock any
/// more. The time doubles after each check.
const LOOK_NS: u32 = 4_000;

/// A waiter that was woken too early stays awake four times as long the next time, and so on, this many times.
const LONGER: u32 = 3;

/// It looks after this part of the time for which it stays awake, if that is longer.
const LOOKS: u32 = 8;

/// How often they check whether they may, ns.
const FIRST_NS: u32 = 50;

/// Where many may choose: how often a waiter that nobody has let choose asks the one before it whether it is first, ns. That moves the
/// cache line on which that one waits to be granted the lock.
const ASK_NS: u64 = 400;

/// A front lock's decisions. The defaults are fifo's, except [`defaults`](Self::defaults): fifo has its own.
pub trait Rule<P: Machine>: Choose<P> + Observe<P> + Send + Sync + 'static {
    /// The lock's own defaults, on top of what suits the machine.
    fn defaults(tuning: Tuning) -> Tuning {
        tuning
    }

    /// A thread found the word taken, or somebody in line: it overtakes them and takes the lock, or (`None`) joins the line, with this note
    /// on its node. The note begins as the default; if the thread has the lock, it is dropped.
    fn arrive(lock: &View<'_, P>, note: &mut Note) -> Option<Taken>;

    /// How long a waiter that is not head stays awake, ns.
    fn awake_ns(lock: &View<'_, P>, note: &Note) -> u32 {
        let _ = note;
        // Behind others in a crowded line, nobody gains by staying awake.
        if lock.is_crowded() || saturation::is_stalled(lock) {
            return 0;
        }
        // A sleeper in a long line delays everybody behind it.
        let waiters = lock.waiters().min(lock.tuning.cpus);
        lock.tuning.spin_ns / LONG_LINE * (LONG_LINE + waiters)
    }

    /// May waiters of one cluster of CPUs stand together, ahead of others (near.rs)?
    const NEAR: bool = false;

    /// Does a thread with a real-time policy stay outside the line, and wait on the word, whose sleepers the kernel wakes by priority?
    const BY_PRIORITY: bool = false;

    /// How long the head stays awake at a time, ns.
    fn spin_ns(lock: &View<'_, P>) -> u32 {
        lock.tuning.spin_ns
    }
}

/// Who goes first, for rules that have a say in that.
pub trait Choose<P: Machine> {
    /// How many waiters [`next`](Self::next) may choose from, in addition to the next in line; 0: it has no choice.
    const AHEAD: usize = 0;

    /// How many waiters at the front may choose who follows them: more than 2 if a choice takes longer than a hand-over (at most 8).
    const CHOOSERS: u32 = 2;

    /// Does a rule that can choose ([`AHEAD`](Self::AHEAD)) do so at this lock, now?
    fn chooses(lock: &View<'_, P>) -> bool {
        let _ = lock;
        true
    }

    /// The caller, with this node, may choose who follows it: is the choice worth its time?
    fn is_worth(lock: &View<'_, P>, node: &Waiter<P>) -> bool {
        let _ = (lock, node);
        true
    }

    /// Are these waiters, the next in line and some behind it, enough to choose from?
    fn is_enough(waiters: &[Note]) -> bool {
        let _ = waiters;
        false
    }

    /// Which of these waiters follow the caller, who is first in line: the set of their places (bit 0: the one behind it; none: they
    /// stay, and looking again soon would be in vain), of up to
    /// [`AHEAD`](Self::AHEAD) more. They keep their order, and the others theirs. A waiter that has been passed over `bypass` times
    /// is next, whatever a rule says.
    fn next(lock: &View<'_, P>, waiters: &mut Waiters<'_, P>) -> u32 {
        let _ = (lock, waiters);
        0
    }

    /// Does its head hold back? If so, a head that was woken at the word first passes that wake on.
    const HOLDS_BACK: bool = false;

    /// The caller has become head, and may let others go first, within the bound.
    fn hold_back(lock: &View<'_, P>, note: &Note) {
        let _ = (lock, note);
    }
}

/// What happens at the lock, for rules that learn from it or tell a policy.
pub trait Observe<P: Machine> {
    /// Which hooks the policy has that this lock asks ([`hooks::Hook::bit`]).
    fn hooks(tuning: &Tuning) -> u32 {
        let _ = tuning;
        0
    }

    /// The caller is about to join the line with this note. What do policies learn about it? `None`: the rule has no policy.
    fn describe(lock: &View<'_, P>, note: &mut Note) -> Option<hooks::Node> {
        let _ = (lock, note);
        None
    }

    /// The caller waits from now on: it has joined the line behind others, or is head, or has been woken as head in vain. So each time
    /// another thread may have the lock.
    fn begins_to_wait(lock: &View<'_, P>, node: &Waiter<P>) {
        let _ = (lock, node);
    }

    /// Does the rule measure how long the lock is held (learn/memos.rs)?
    fn measures(lock: &View<'_, P>) -> bool {
        let _ = lock;
        false
    }

    /// A waiter has the lock, as head or by a grant; `slept`: it has slept before.
    fn acquired(lock: &View<'_, P>, note: &Note, slept: bool) {
        let _ = (lock, note, slept);
    }

    /// The holder is about to free the word by the slow path (it isn't 1).
    fn release(lock: &View<'_, P>) {
        let _ = lock;
    }
}

/// Acquires by the rule `R`, for a thread that found the word taken, or somebody in line. Returns null if the caller holds the
/// lock by the word, or else the node by which it holds it and with which it unlocks ([`release`](super::release)).
///
/// What a thread does on its way to sleep lies in functions of their own (`inline(never)`), here and in learn/: a thread that waits may have
/// a small stack, and should not keep all of their frames at once.
#[cold]
pub fn acquire<P: Machine, R: Rule<P>>(parts: &Parts<'_, P>, tuning: &Tuning) -> *const Waiter<P> {
    let mut lock = View { hooks: R::hooks(tuning), ..View::new(parts, tuning) };
    // Where no pace is asked for, each look at the mutex that comes before the join only lets others in between.
    let asks = || tuning.budget_ns == 0 || !lock.is_crowded();
    let may_grant = tuning.grants() && !parts.by.is_null() && asks();
    lock.pace = may_grant.then(Pace::default);
    let mut note = Note::default();
    if R::arrive(&lock, &mut note).is_some() {
        return core::ptr::null();
    }
    if note.asked_ns == 0 && tuning.budget_ns != 0 {
        note.asked_ns = P::now();
    }
    if R::BY_PRIORITY && P::is_urgent(note.asked_ns) {
        wait_urgently(&lock);
        return core::ptr::null();
    }
    let described = R::describe(&lock, &mut note);
    lock.own = described.as_ref();
    let awake_ns = R::awake_ns(&lock, &note); // now, while the mutex's cache line is ours
    // Only a lock that is granted stays near. (A crowd isn't granted to anybody.)
    let stays_near = R::NEAR && lock.pace.is_some() && !lock.is_saturated();
    let cluster = if stays_near { near::cluster(&lock) } else { None };
    if cluster.is_some() {
        note.more = More::Cluster;
    }
    let node = Waiter::<P>::take(parts.word, parts.by, parts.thread, note, lock.own, cluster);
    parts.seat.inspect(|seat| seat.joins(node));
    let behind = near::join(&lock, node, cluster);
    parts.seat.inspect(|seat| seat.waits());
    let (mut gate, mut slept, mut granted) = (OPEN, false, false);
    if behind {
        R::begins_to_wait(&lock, node);
        (gate, slept) = wait_in_line::<P, R>(&lock, node, awake_ns);
        granted = [GRANTED, CHOOSING].contains(&state(gate));
        if state(gate) == CHOOSING {
            near::end(&lock, node, false);
            gate = node.gate.load(Relaxed); // maybe BEHIND
        }
    }
    if !granted {
        if tuning.budget_ns != 0 || R::HOLDS_BACK {
            lock.head_is_awake();
        }
        P::reached(Stage::Head);
        if R::HOLDS_BACK {
            if slept {
                parts.word.pass_on(); // maybe we were woken there, and others still sleep
            }
            R::hold_back(&lock, &node.note);
        }
        lock.pace = lock.pace.map(|_| node.pace());
        slept = wait_as_head::<P, R>(&lock, node, slept);
        near::end(&lock, node, false);
        gate = node.gate.load(Relaxed); // only BEHIND, and OPEN for PROMOTED, come from others: see `settle`
    }
    if R::AHEAD > 0 {
        P::reached(Stage::Chosen);
    }
    parts.seat.inspect(|seat| seat.holds());
    if !granted {
        saturation::runs(&lock);
        if tuning.budget_ns != 0 && lock.is_crowded() {
            memos::head_has_come(&lock, slept);
        }
    }
    R::acquired(&lock, &node.note, slept);
    let measures = R::measures(&lock);
    // A head that is measured doesn't stay: its unlock must take the slow path.
    let is_due = measures && !granted && memos::is_due(&lock, P::now());
    let stays = settle(&lock, node, gate, !is_due, || {
        if chooses::<P, R>(&lock) && R::is_worth(&lock, node) {
            choose::<P, R>(&lock, node);
        }
    });
    // Will the unlock look at the mutex anyway?
    if measures && (!stays || grants(gate) >= LOOKS_EACH) {
        memos::may_measure_hold(&lock, P::now(), stays || is_due);
    }
    if stays { node } else { core::ptr::null() }
}

/// Waits until we are head, or have the lock. Only our own gate matters, and the gate of the waiter before us. Returns what our
/// gate says in the end, and whether we slept.
#[inline(never)] // see `acquire`
fn wait_in_line<P: Machine, R: Rule<P>>(
    lock: &View<'_, P>,
    node: &Waiter<P>,
    mut left: u32,
) -> (u32, bool) {
    // The wait grows with the line. Only the first in line has to notice, and a look that comes just when the lock is granted is dear.
    let (mut look, mut slept) = ((left / LOOKS).max(LOOK_NS).min(left), false);
    let mut chooser = Chooser::of::<P, R>(lock, left);
    let mut woken_early = 0;
    loop {
        if let Some(chooser) = chooser.as_mut().filter(|_| left > 0) {
            look = chooser.step::<P, R>(lock, node).min(left);
        }
        let gate = near::wait(lock, node, look);
        if state(gate) != WAITING {
            return (gate, slept);
        }
        let is_due;
        (left, is_due) =
            chooser.as_mut().map_or((left - look, true), |chooser| chooser.left(lock, node));
        look = left.min(2 * look.max(LOOK_NS / 2));
        if chooser.is_none() && left > 0 {
            chooser = Chooser::of::<P, R>(lock, left); // the lock may no longer back off
        }
        if left > 0 {
            // Released by code that knows nothing of us? This is a hint; if so, we compete for the word, as anybody may.
            if is_due && lock.is_open() && node.is_first() && node.turn(WAITING, PROMOTED).is_ok() {
                return (PROMOTED, slept);
            }
        } else if node.turn(WAITING, ASLEEP).is_ok() {
            if node.tell_predecessor() {
                if node.turn(ASLEEP, PROMOTED).is_ok() {
                    return (PROMOTED, slept);
                }
            } else {
                slept = sleep_at_gate(lock, node) || slept;
                // Woken early, so that we are awake when our turn comes? Then wake those behind us, too. If our turn doesn't come
                // soon, that was too early; the next time we stay awake for longer.
                left = lock.tuning.spin_ns.saturating_mul(1 << (2 * woken_early));
                woken_early = (woken_early + 1).min(LONGER);
                look = LOOK_NS.min(left);
                if let Some(chooser) = &mut chooser {
                    chooser.begin::<P>(left);
                }
                let gate = node.gate.load(Relaxed);
                if state(gate) == WAITING
                    && gate & BEHIND != 0
                    && !lock.is_crowded_now(1 + LOOKS_EACH)
                {
                    wake_behind(node);
                }
            }
        }
    }
}

/// Sleeps until the gate no longer says ASLEEP; returns whether it slept. It also wakes at its `timeout`: it may be the head by
/// then, moved to the word (`move_to_word`).
fn sleep_at_gate<P: Machine>(lock: &View<'_, P>, node: &Waiter<P>) -> bool {
    let mut slept = false;
    loop {
        let gate = node.gate.load(Relaxed); // our caller looks again, with Acquire
        if state(gate) != ASLEEP {
            return slept;
        }
        slept = true;
        let left = lock.left_ns(&node.note).filter(|&ns| ns > 0);
        P::park(&node.gate, gate, left.map(P::after));
    }
}

/// The head competes for the word: first awake, then asleep on the word. Returns whether it slept, here or at its gate.
#[inline(never)] // see `acquire`
fn wait_as_head<P: Machine, R: Rule<P>>(
    lock: &View<'_, P>,
    node: &Waiter<P>,
    mut slept: bool,
) -> bool {
    let word = lock.parts.word;
    debug_assert!(
        [OPEN, PROMOTED].contains(&state(node.gate.load(Relaxed))),
        "only the head competes"
    );
    // While somebody holds the lock, choosing delays nobody. (Behind a chain the next waiter may make itself head at any moment.)
    let may_choose = chooses::<P, R>(lock) && R::is_worth(lock, node);
    if may_choose && !lock.is_open() && state(node.gate.load(Relaxed)) == OPEN {
        choose::<P, R>(lock, node);
    }
    // By invariant 1 of word.rs.
    let take = |slept| lock.take_word(slept);
    if lock.is_saturated() {
        if slept {
            word.pass_on(); // maybe we were woken there, and others still sleep
        }
        if saturation::nap(lock, node.note.asked_ns, || take(slept)) {
            return slept;
        }
    }
    loop {
        R::begins_to_wait(lock, node); // if it has slept, another thread may have taken the lock since
        lock.head_is_awake();
        let left = lock.left_ns(&node.note);
        if left == Some(0) {
            lock.begin_turn(); // if it sleeps, the next unlock wakes it, and nobody overtakes it until then
        }
        let spin_ns = R::spin_ns(lock);
        if saturation::spin(lock, spin_ns, Some(slept), || take(slept)) || lock.mark_word() {
            return slept;
        }
        lock.name_holder(node);
        word.sleep(left.filter(|&ns| ns > 0).map(P::after));
        slept = true;
    }
}

/// Does the rule choose who is next at this lock?
fn chooses<P: Machine, R: Rule<P>>(lock: &View<'_, P>) -> bool {
    R::AHEAD > 0 && R::chooses(lock)
}

/// The caller may choose who follows it: lets the rule choose. See [`choose_behind`].
fn choose<P: Machine, R: Rule<P>>(lock: &View<'_, P>, node: &Waiter<P>) -> Option<bool> {
    if node.next(Relaxed).is_null() {
        return None;
    }
    choose_behind(lock, node, 1 + R::AHEAD, |waiters| {
        let few = !waiters.look() || R::is_enough(waiters.notes()) || !waiters.look();
        (!few).then(|| R::next(lock, waiters))
    })
}

/// What a waiter that is not head has done about those behind it.
struct Chooser {
    /// 0: it has not chosen yet. N: it has chosen, and has let N - 1 waiters behind it choose.
    chose: u32,
    /// Until when it stays awake. Looking takes longer than the looks' nominal time, so the clock says how long it has waited.
    end: u64,
    /// When it looks at the mutex.
    due: u64,
    /// What the clock said last.
    now: u64,
    /// When it asks the one before it whether it is first, or tries again to choose.
    ask: u64,
}

impl Chooser {
    /// It stays awake for `left` ns. None: the rule does not choose.
    fn of<P: Machine, R: Rule<P>>(lock: &View<'_, P>, left: u32) -> Option<Self> {
        let mut new = Self { chose: 0, end: 0, due: 0, now: 0, ask: 0 };
        chooses::<P, R>(lock).then(|| new.begin::<P>(left)).map(|()| new)
    }

    /// It stays awake for `left` ns from now on.
    fn begin<P: Machine>(&mut self, left: u32) {
        self.now = P::now();
        (self.end, self.due) = (self.now + u64::from(left), self.now + u64::from(LOOK_NS));
    }

    /// Chooses if it may, and then lets the next one choose; returns how long it may look at its gate alone, ns.
    fn step<P: Machine, R: Rule<P>>(&mut self, lock: &View<'_, P>, node: &Waiter<P>) -> u32 {
        if self.chose > 1 {
            return LOOK_NS;
        }
        let is_due = self.now >= self.ask;
        if is_due && self.chose == 0 && !chooses::<P, R>(lock) {
            return LOOK_NS; // the lock has begun to back off
        }
        let mut may = node.may_choose();
        if may <= self.chose && (is_due || self.chose == 1) && node.is_first() {
            may = R::CHOOSERS.min(MOST_CHOOSERS);
        }
        if is_due {
            self.ask = self.now + if R::CHOOSERS > 2 { ASK_NS } else { 0 };
        }
        if may > 0 && self.chose == 0 && !R::is_worth(lock, node) {
            self.chose = MOST_CHOOSERS; // it doesn't let others choose either
            return LOOK_NS;
        }
        if may > 0 && self.chose == 0 {
            match choose::<P, R>(lock, node) {
                None => {}
                Some(true) => self.chose = 1,
                // All looks were for nothing. The next choice comes when somebody finds that it is first.
                Some(false) => self.chose = MOST_CHOOSERS,
            }
        }
        if self.chose > 0 && may > self.chose && node.pass_the_choice(may - 1) {
            self.chose = may;
        }
        FIRST_NS
    }

    /// How long it stays awake now, ns; and is a look at the mutex due?
    fn left<P: Machine>(&mut self, lock: &View<'_, P>, node: &Waiter<P>) -> (u32, bool) {
        let now = P::now();
        self.now = now;
        if lock.own.is_some() {
            node.beat(now);
        }
        let is_due = now >= self.due;
        if is_due {
            self.due = now + u64::from(LOOK_NS);
        }
        (self.end.saturating_sub(now) as u32, is_due)
    }
}
