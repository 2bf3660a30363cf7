//! What a front lock decides; the line (line.rs) does the rest.
//!
//! ```text
//!   arrive ─► Took, or Joins(note) ─► awake_ns ─► next ─────────► hold_back ─► spin ─► acquired ─► release
//!   arrival                            in line     first in line   head         head              holder      holder
//! ```
//!
//! A rule sees the lock through a [`View`], which looks, waits and tries. A rule reads only hints, and gives only
//! advice. It can't break exclusion or lose a waiter. Nor can it let arrivals overtake a head more often than the
//! tuning's `bypass` says, unless that head leaves the lock to others (batch.rs). The proof of an acquisition is a
//! [`Taken`], which only a view makes.

use super::choice::Waiters;
use super::line::{has_passed, is_empty, is_left, is_left_behind};
use super::pace::Pace;
use super::{
    FREE, HELD, Note, Parts, Seat, Tuning, Waiter, batch, line, mood, side, take_as, unlock_slow,
};
use lockwright_platform::Ordering::{Relaxed, Release};
use lockwright_platform::{Machine, Ptr, Word, hooks};

/// In a line of this many waiters, a waiter stays awake for twice as long as outside it.
const LONG_LINE: u32 = 8;

/// A front lock's decisions. The defaults are fifo's, except [`grants`](Self::grants) and [`defaults`](Self::defaults): fifo has its own.
pub trait Rule<P: Machine>: Send + Sync + 'static {
    /// How many waiters [`next`](Self::next) may choose from, in addition to the next in line; 0: it has no choice.
    const AHEAD: usize = 0;

    /// How many waiters at the front may choose who follows them: more than 2 if a choice takes longer than a hand-over (at most 8).
    const CHOOSERS: u32 = 2;

    /// May unlock grant the lock to the next in line, so that nobody else can take a free word (grant.rs)?
    fn grants(tuning: &Tuning) -> bool {
        let _ = tuning;
        false
    }

    /// The lock's own defaults, on top of what suits the machine.
    fn defaults(tuning: Tuning) -> Tuning {
        tuning
    }

    /// Which hooks the policy has that this lock asks ([`hooks::Hook::bit`]).
    fn hooks(tuning: &Tuning) -> u32 {
        let _ = tuning;
        0
    }

    /// A thread found the word taken, or somebody in line: it overtakes them and takes the lock, or joins the line.
    fn arrive(lock: &View<'_, P>) -> Arrived;

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

    /// How long a waiter that is not head stays awake, ns.
    fn awake_ns(lock: &View<'_, P>, note: &Note) -> u32 {
        let _ = note;
        // Behind others in a crowded line, nobody gains by staying awake.
        if lock.is_crowded() || lock.is_stalled() {
            return 0;
        }
        // A sleeper in a long line delays everybody behind it.
        let waiters = mood::waiters(lock.parts.mood.load(Relaxed)).min(lock.tuning.cpus);
        lock.tuning.spin_ns / LONG_LINE * (LONG_LINE + waiters)
    }

    /// Does the rule measure how long the lock is held (hold.rs)?
    fn measures(lock: &View<'_, P>) -> bool {
        let _ = lock;
        false
    }

    /// Does its head hold back? If so, a head that was woken at the word first passes that wake on.
    const HOLDS_BACK: bool = false;

    /// The caller has become head, and may let others go first, within the bound.
    fn hold_back(lock: &View<'_, P>, note: &Note) {
        let _ = (lock, note);
    }

    /// The head waits awake; `take` tries to take the word. Both return whether that worked. `slept`: the head has slept
    /// before.
    fn spin(lock: &View<'_, P>, slept: bool, take: impl FnMut() -> bool) -> bool {
        batch::spin(lock, Some(slept), take)
    }

    /// The head has the lock, and leaves the line; `slept`: it has slept before.
    fn acquired(lock: &View<'_, P>, note: &Note, slept: bool) {
        let _ = (lock, note, slept);
    }

    /// The holder is about to free a word that says 2.
    fn release(lock: &View<'_, P>) {
        let _ = lock;
    }

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
}

/// What an arrival does.
#[derive(Debug)]
pub enum Arrived {
    /// It has the lock.
    Took(Taken),
    /// It joins the line, with this note on its node.
    Joins(Note),
}

impl Arrived {
    /// It has the lock, or joins the line with nothing to note.
    pub fn or_joins(taken: Option<Taken>) -> Self {
        taken.map_or(Self::Joins(Note::default()), Self::Took)
    }
}

/// Proof that the caller has the lock. Only a [`View`] makes it.
#[derive(Debug)]
pub struct Taken(());

/// A lock, as a rule sees it.
pub struct View<'a, P: Machine> {
    pub(super) parts: Parts<'a, P>,
    pub(super) seat: Option<&'a dyn Seat<P>>,
    /// How long recent grants took. None: the lock isn't granted to anybody.
    pub(super) pace: Option<Pace>,
    /// Which hooks its policy has.
    pub(super) hooks: u32,
    /// What the policy learns about the caller, from when it is about to join the line.
    pub(super) own: Option<&'a hooks::Node>,
    /// The machine and the options.
    pub tuning: &'a Tuning,
}

impl<'a, P: Machine> View<'a, P> {
    /// The lock in these parts.
    pub fn new(parts: Parts<'a, P>, tuning: &'a Tuning) -> Self {
        Self { parts, seat: None, pace: None, hooks: 0, own: None, tuning }
    }

    /// The same lock with another tuning.
    pub fn with<'b>(&'b self, tuning: &'b Tuning) -> View<'b, P> {
        View { tuning, ..*self }
    }

    /// The way past the line: takes a free word. With somebody in line this is counted, and fails once the head has been
    /// overtaken `bypass` times. A head that naps leaves the lock to others for a bounded time; that isn't counted.
    #[inline]
    pub fn take(&self) -> Option<Taken> {
        self.take_as(HELD)
    }

    /// Is nobody in line, or may its head be overtaken?
    pub(super) fn may_overtake(&self) -> bool {
        is_empty(&self.parts, self.tuning.era)
            || self.parts.mood.load(Relaxed) & mood::NAPPING != 0
            || (self.overtaken() < self.tuning.bypass && !self.is_turn())
    }

    /// As [`take`](Self::take), but makes the word `value`, which must be 2 if the caller has slept on it.
    pub(super) fn take_as(&self, value: u32) -> Option<Taken> {
        let word = self.parts.word;
        if word.load(Relaxed) != FREE || !self.may_overtake() || !take_as::<P>(word, value) {
            return None;
        }
        self.overtakes(value)
    }

    /// The caller has made a free word `value`. If it overtook the line, counts that, or frees the word again.
    pub(super) fn overtakes(&self, value: u32) -> Option<Taken> {
        let Parts { word, side, mood, .. } = self.parts;
        // We have the word, so the headship stays where it is, and only we write the count (invariant 5).
        if self.parts.tail.load(Relaxed).is_null() {
            return Some(Taken(()));
        }
        line::meet_left_behind(&self.parts, self.tuning.era);
        if has_passed::<P>(mood, side) {
            return Some(Taken(()));
        }
        if is_left_behind(&self.parts, self.tuning.era) {
            return Some(Taken(()));
        }
        if self.overtaken() < self.tuning.bypass {
            side.fetch_add(side::BYPASS, Relaxed); // the field has room: `bypass` is at most its largest value
            return Some(Taken(()));
        }
        // Meanwhile it has become the head's turn. Nothing was done under the lock.
        // ORDERING: Release, pairs with every Acquire that takes the word.
        // SURVIVES: we did nothing; as an RMW it carries on what the last holder has released.
        if value != HELD || word.compare_exchange(HELD, FREE, Release, Relaxed).is_err() {
            unlock_slow(self.parts, self.tuning);
        }
        None
    }

    /// As [`take`](Self::take), if nobody is in line.
    pub fn take_if_free(&self) -> Option<Taken> {
        if self.is_free() { self.take() } else { None }
    }

    /// Is the word free?
    pub fn is_open(&self) -> bool {
        self.parts.word.load(Relaxed) == FREE
    }

    /// Is the word free, and nobody in line?
    pub fn is_free(&self) -> bool {
        self.is_open() && self.is_line_empty()
    }

    /// Is nobody in line? A line from before a fork is nobody's, and is cleared.
    pub fn is_line_empty(&self) -> bool {
        is_empty(&self.parts, self.tuning.era)
    }

    /// Does the line's head nap, and leave the lock to others?
    pub fn is_left(&self) -> bool {
        is_left::<P>(self.parts.mood)
    }

    /// Did waiters and holder outnumber the CPUs when a thread last left the line?
    pub fn is_crowded(&self) -> bool {
        self.parts.side.load(Relaxed) & side::CROWDED != 0
    }

    /// Is it the turn of the line's head?
    pub fn is_turn(&self) -> bool {
        self.parts.side.load(Relaxed) & side::TURN != 0
    }

    /// How often the current head has been overtaken.
    pub fn overtaken(&self) -> u32 {
        (self.parts.side.load(Relaxed) & side::BYPASSES) / side::BYPASS
    }

    /// Should waiters leave the lock to a thread that comes back for it?
    pub fn is_saturated(&self) -> bool {
        batch::is_saturated(&self.parts, self.tuning)
    }

    /// Does the holder seem to have lost its CPU?
    pub fn is_stalled(&self) -> bool {
        self.parts.mood.load(Relaxed) & mood::STALLED != 0
    }

    /// Waits awake for as long as a waiter should; `done` sees each new value of the word.
    pub fn spin_for(&self, done: impl FnMut(u32) -> bool) {
        batch::watch(&self.parts, self.tuning.awake_ns(&self.parts), done);
    }

    /// Waits awake, and takes the lock if that works.
    pub fn spin(&self) -> Option<Taken> {
        let mut taken = None;
        batch::spin(self, None, || {
            taken = self.take();
            taken.is_some()
        });
        taken
    }

    /// Sleeps for `ns`; nobody will wake it.
    pub fn sleep_aside(&self, ns: u32) {
        let nobody_wakes = P::Word::new(0);
        // SURVIVES: the word is our own, and never changes.
        P::park(&nobody_wakes, 0, Some(P::after(ns)));
    }

    /// The line's head waits awake.
    pub fn spin_as_head(&self, slept: bool, take: impl FnMut() -> bool) -> bool {
        batch::spin(self, Some(slept), take)
    }

    /// The head's turn has come: nobody overtakes it until it has the lock. A hint.
    pub fn begin_turn(&self) {
        if !self.is_turn() {
            self.parts.side.fetch_or(side::TURN, Relaxed);
        }
    }

    /// How long a waiter with this note has left until its `timeout`, ns; 0: it is over. None: the lock has no timeout.
    pub fn left_ns(&self, note: &Note) -> Option<u32> {
        let most = u64::from(self.tuning.timeout_ns);
        (most != 0).then(|| most.saturating_sub(P::now().saturating_sub(note.asked_ns)) as u32)
    }

    /// Do most hand-overs go to waiters that have slept, as [noted](Self::note_asleep)?
    pub fn is_asleep(&self) -> bool {
        self.parts.mood.load(Relaxed) & mood::SATURATED != 0
    }

    /// Notes a hand-over: 1 for a waiter that has slept, -1 for one that was awake.
    pub fn note_asleep(&self, by: i32) {
        batch::note(&self.parts, by);
    }
}
