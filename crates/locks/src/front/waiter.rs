//! A waiter's place in the line: a node, and what its gate says.
//!
//! ```text
//!   WAITING ◄─► ASLEEP      not head                         │ BEHIND: the next waiter sleeps, or is about to
//!      │  ▲
//!      ▼  └───► CHOOSING    not head; changes who follows it, and then is WAITING again (choice.rs)
//!      ├──────► OPEN        head: competes for the word; opened by its predecessor, which has left (from any of the three)
//!      ├──────► PROMOTED    head: competes for the word by itself, since its predecessor had the lock; then maybe OPEN
//!      ├──────► GRANTED     has the lock, and is still in the line (grant.rs): from WAITING, or a head that stays
//!      └──────► LEFT        was torn out of its wait ([`View::leave`](super::View))
//!      ├──► CHOOSING ─► GRANTED   as GRANTED, of a waiter that leads: first it puts its followers behind itself (near.rs)
//!   any of them ─► ENDED    its node has been given back
//!
//!   a gate:  31           10 9      5   4    3   2   0          a node's line of 128 bytes:
//!            │ tick         │ grants │ sliced │behind│ state │    Waiter (64 bytes) │ Description (56 bytes) │ 8 bytes of the pool's
//! ```
//!
//! Nodes lie in memory that stays readable (`Platform::take_line`), so a late look at a node that has ended does no harm. At worst it
//! sets BEHIND where nobody sleeps, which slows down one hand-over. A waiter that looks at its predecessor, to act on what it sees,
//! then changes its own gate, from WAITING or ASLEEP. That succeeds only while the predecessor is still there.
//!
//! The description is for policies; waiters under other rules touch only their cluster there (near.rs). It is written before the waiter
//! joins, as its note is.
//! Afterwards the waiter's own thread writes nothing but the *beat*: the time, now and then, while the thread waits awake. A beat that
//! stays behind shows a thread that has lost its CPU.

use super::tuning::BYPASS_MAX;
use super::word::Word0;
use core::cmp::min;
use core::ptr::from_ref;
use lockwright_platform::Ordering::{AcqRel, Acquire, Relaxed, Release};
use lockwright_platform::hooks::{self, OFF_CPU};
use lockwright_platform::{Class, Machine, Ordering, Ptr, Word};

/// The number of eras that a tagged address can tell apart; nodes are aligned to this. From this era on, the pool is asked, too.
pub(super) const ERAS: usize = 64;

/// Awake, and not head.
pub(crate) const WAITING: u32 = 0;

/// About to sleep at its gate, or asleep there.
pub(crate) const ASLEEP: u32 = 1;

/// Head: nobody is before it.
pub(super) const OPEN: u32 = 2;

/// Head: those before it are still in the line, and have had the lock.
pub(crate) const PROMOTED: u32 = 3;

/// It has the lock, or had it until the lock was released by code that knows nothing of the line.
pub(crate) const GRANTED: u32 = 4;

/// It is no longer a waiter; a thread that passes it gives its node back.
pub(super) const LEFT: u32 = 5;

/// Awake, not head, and about to change who follows it. By a choice: nobody grants it the lock meanwhile, and it may be made head. As a
/// leader: it has just been granted the lock, and is GRANTED once its followers are in the line (near.rs).
pub(super) const CHOOSING: u32 = 7;

/// It has left the line, and the node has no owner.
pub(super) const ENDED: u32 = 6;

/// In a gate that isn't GRANTED: the line's length does not contain this waiter. Such a waiter is never granted the lock, so the bit can
/// be [`SLICED`]'s.
const UNCOUNTED: u32 = 16;

/// In a gate: the one behind sleeps, or is about to.
pub(super) const BEHIND: u32 = 8;

/// In a gate that isn't GRANTED: the waiter leads, and is granted the lock as CHOOSING (near.rs). The bit is the lowest of the grants'.
const LEADS: u32 = GRANT;

/// What a gate keeps when its state changes, unless the waiter is granted the lock.
const KEPT: u32 = BEHIND | UNCOUNTED | LEADS;

/// In a GRANTED gate: one grant since a holder last looked at the mutex (5 bits).
pub(super) const GRANT: u32 = 32;

/// In a GRANTED gate: the lock's rule leaves the lock to others for a slice of each millisecond (learn/saturation.rs).
const SLICED: u32 = 16;

/// In a GRANTED gate: one tick of the time at which the mutex was last looked at (22 bits, which wrap).
pub(super) const TICK: u32 = 1 << 10;

/// The length of a tick, ns.
const TICK_NS: u64 = 16;

/// A thread that has joined behind another links the two nodes within this time, or has lost its CPU, ns.
const LINK_NS: u32 = 1_000_000;

/// A thread that waits for this looks again after this long, ns, and then a little later each time.
const FIRST_LINK_NS: u32 = 16;

/// In `passed`, a value between this and [`PASSED`]: the waiter before it chooses no more, and lets it choose who follows it. The
/// difference is the number of waiters, from this one on, that may choose.
const MAY: u32 = PASSED - 16;

/// In `passed`: it has let the one behind it choose.
const PASSED: u32 = u32::MAX;

/// At most this many waiters at the front may choose who follows them.
pub(super) const MOST_CHOOSERS: u32 = 8;

/// A waiter looks for the holder among this many before it.
const FARTHEST: u32 = 64;

/// A holder's owner field: some thread that was GRANTED the lock. Not a thread's id.
pub const SOMEBODY: u32 = 1 << 30;

/// The waiter's state, by its gate.
pub(crate) fn state(gate: u32) -> u32 {
    gate & (BEHIND - 1)
}

/// Grants since a holder last looked at the mutex.
pub(super) fn grants(gate: u32) -> u32 {
    gate % TICK / GRANT
}

/// A GRANTED gate written at `now`, for a lock whose rule leaves it to others now and then.
pub(super) fn sliced(now: u64) -> u32 {
    GRANTED | SLICED | ((now / TICK_NS) as u32).wrapping_mul(TICK)
}

/// Is [`SLICED`] set in this gate?
pub(super) fn is_sliced(gate: u32) -> bool {
    gate & SLICED != 0
}

/// What the second part of a waiter's line says about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum More {
    /// Nothing.
    Nothing,
    /// Its cluster: it may put others behind itself (near.rs).
    Cluster,
    /// What policies learn about it.
    Description,
}

/// What a waiter's node says about it, for rules that choose among waiters. Written before it joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note {
    /// The class of the core on which it asked.
    pub class: Class,
    /// When it asked, in nanoseconds of the machine's clock; 0: its rule did not look.
    pub asked_ns: u64,
    /// For the rule's own use.
    pub own: u32,
    /// The policy that must learn of a release by this node; 0: none.
    pub tells: u8,
    /// What else its line says.
    pub more: More,
    /// It stays asleep until it is head.
    pub parks: bool,
}

impl Default for Note {
    fn default() -> Self {
        Self { class: Class::BIG, asked_ns: 0, own: 0, tells: 0, more: More::Nothing, parks: false }
    }
}

/// How fast a lock changes hands: how long recent grants took. Told to the head that comes after them.
///
/// Under rules that leave the lock to others now and then (learn/saturation.rs), a holder that looks at the mutex notes the time in the
/// gate that it grants. From that time the next holder that looks knows how long the grants in between took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pace {
    /// The time of one grant with its section, ns.
    pub ns: u32,
    /// The number of grants, less than [`PACE_GRANTS`]; 0: the pace isn't known.
    pub grants: u32,
}

impl Pace {
    /// Reads it from a [`sliced`] gate.
    pub(super) fn of(gate: u32, now: u64) -> Self {
        let ticks = (sliced(now) / TICK).wrapping_sub(gate / TICK) % (u32::MAX / TICK + 1);
        let grants = if is_sliced(gate) { grants(gate) } else { 0 };
        // Plus one: the section of the holder that looked at the mutex counts, too.
        let ns = ticks * TICK_NS as u32 / (grants + 1);
        Self { ns: ns.min(PACE_MAX_NS), grants: grants.min(PACE_GRANTS - 1) }
    }

    /// Is the pace known?
    pub(super) fn is_known(&self) -> bool {
        self.grants > 0
    }

    pub(super) fn from_word(word: u32) -> Self {
        Self { ns: word / PACE_GRANTS, grants: word % PACE_GRANTS }
    }

    pub(super) fn to_word(self) -> u32 {
        self.ns * PACE_GRANTS + self.grants
    }
}

/// A pace counts fewer grants than this.
const PACE_GRANTS: u32 = 8;

/// A slower pace counts as this one, ns.
const PACE_MAX_NS: u32 = 1_000_000;

/// One waiter's place in the line.
#[repr(align(64))]
pub struct Waiter<P: Machine> {
    pub(crate) gate: P::Word,
    /// How often a choice let others past it; or a value above [`MAY`], or [`PASSED`]. Written by threads that choose who follows them.
    pub(super) passed: P::Word,
    /// A [`Pace`], written before its gate is.
    pace: P::Word,
    /// The next waiter; null: none.
    pub(super) next: P::Ptr<Waiter<P>>,
    /// The waiter's predecessor; itself: not known yet. Written by its own thread before it is linked, and by threads that choose a successor, or lead.
    pub(super) predecessor: P::Ptr<Waiter<P>>,
    /// The lock that it waits for: the address of its word.
    pub(super) of: P::Ptr<P::Word>,
    /// The thread that waits, see [`Parts::by`](super::Parts::by).
    by: P::Ptr<()>,
    /// That thread's id.
    thread: P::Word,
    pub(super) note: Note,
}

impl<P: Machine> Waiter<P> {
    /// A node, for the thread with this id that waits for the lock with this word. `by`: see [`Parts::by`](super::Parts::by).
    pub(crate) fn take<'a>(
        word: &Word0<P>,
        by: *const (),
        thread: u32,
        note: Note,
        own: Option<&hooks::Node>,
        cluster: Option<u16>,
    ) -> &'a Self {
        const { assert!(size_of::<Self>() <= P::LINE) }
        const { assert!(BYPASS_MAX < MAY && MAY + MOST_CHOOSERS < PASSED) } // counts and permits share `passed`
        let line = P::take_line();
        let (new, none) = (P::Word::new, core::ptr::null_mut());
        let node: *mut Self = line.cast();
        // SAFETY: a fresh line, large and aligned enough, and ours alone. It stays readable.
        unsafe {
            node.write(Self {
                gate: new(WAITING),
                passed: new(0),
                pace: new(0),
                next: P::Ptr::new(none),
                predecessor: P::Ptr::new(none),
                of: P::Ptr::new(word.address().cast_mut()),
                by: P::Ptr::new(by.cast_mut()),
                thread: new(thread),
                note,
            });
            let near = P::Word::new(cluster.map_or(0, |cluster| u32::from(cluster) + 1));
            let description = Description::of(node);
            match own {
                Some(own) => description.write(Description::new(own, near)),
                None => (&raw mut (*description).near).write(near),
            }
            &*node
        }
    }

    /// The id of the thread that waits.
    pub(super) fn thread(&self) -> u32 {
        self.thread.load(Relaxed) // read by debuggers
    }

    /// Does the line's length contain it? If not, the line was as long as the length can say when it joined. (It is in the gate, so that
    /// a holder that grants the lock touches nothing else.)
    pub(super) fn is_counted(&self) -> bool {
        let gate = self.gate.load(Relaxed); // written before the node was linked
        state(gate) == GRANTED || gate & UNCOUNTED == 0
    }

    /// The caller's node, which hasn't joined yet: the line's length does not contain it.
    pub(super) fn is_beyond_count(&self) {
        self.gate.store(WAITING | UNCOUNTED, Relaxed); // published by [join]
    }

    /// Grants it the lock, if it is awake, and counted. `Err`: it isn't; this is its gate. (A leader's gate says CHOOSING until its followers
    /// are in the line.)
    pub(super) fn grant(&self, granted: u32) -> Result<u32, u32> {
        let mut now = WAITING;
        loop {
            let granted = if now & LEADS == 0 { granted } else { granted - GRANTED + CHOOSING };
            // ORDERING: as [turn]: Release publishes the section that is over; Acquire, pairs with [tell]. Relaxed on failure: the gate is
            // looked at again.
            // SURVIVES: Acquire, as there.
            match self.gate.compare_exchange(now, (now & BEHIND) | granted, AcqRel, Relaxed) {
                Err(other) if other != now && other & !(BEHIND | LEADS) == WAITING => now = other,
                result => return result,
            }
        }
    }

    /// From now on it leads, and near waiters may follow it. `false`: it doesn't wait in the line any more.
    pub(super) fn begin_to_lead(&self) -> bool {
        let mut now = self.gate.load(Relaxed); // the exchange checks it again
        while [WAITING, ASLEEP].contains(&state(now)) {
            // [begin] ORDERING: Release, pairs with the Acquire of `leads`: the door is no longer as the leader before it left it.
            // SURVIVES: few schedules read a door's word that old.
            match self.gate.compare_exchange(now, now | LEADS, Release, Relaxed) {
                Ok(_) => return true,
                Err(other) => now = other,
            }
        }
        false
    }

    /// Does it lead? Asked of a waiter that isn't choosing by a rule.
    pub(super) fn leads(&self) -> bool {
        // ORDERING: Acquire, pairs with [begin], or with the grants since, which carry it on. SURVIVES: as there.
        match self.gate.load(Acquire) {
            gate if state(gate) == GRANTED => false,
            gate => state(gate) == CHOOSING || gate & LEADS != 0,
        }
    }

    /// It no longer leads. If it has been granted the lock meanwhile, its gate says so now.
    pub(super) fn end_leading(&self) {
        let mut now = self.gate.load(Relaxed); // the exchange checks it again
        loop {
            let next = if state(now) == CHOOSING { now - CHOOSING + GRANTED } else { now & !LEADS };
            // [lead] ORDERING: Release, pairs with `ask_predecessor`: those that follow are before the one that was behind it until now.
            // SURVIVES: few schedules ask in that moment, and by an old predecessor.
            match self.gate.compare_exchange(now, next, Release, Relaxed) {
                Ok(_) => return,
                Err(other) => now = other,
            }
        }
    }

    /// Its cluster, as its thread saw it when it joined. A hint. `None`: its rule did not look.
    pub(super) fn cluster(&self) -> Option<u16> {
        // SAFETY: every node has this part, and it stays readable.
        let near = unsafe { &(*Description::of(from_ref(self).cast_mut())).near };
        // Relaxed: written before the node joined.
        (near.load(Relaxed) as u16).checked_sub(1)
    }

    /// By a hint: is the one before it known to be of this cluster?
    pub(super) fn is_behind_near(&self, cluster: u16) -> bool {
        // ORDERING: Acquire, pairs with [predecessor]: a leader may have put somebody else before it. EXPLORED: the models' machine has no
        // doors.
        let before = self.predecessor.load(Acquire);
        // SAFETY: it was in the line when this one joined, and stays readable.
        unsafe { before.as_ref() }.is_some_and(|before| before.cluster() == Some(cluster))
    }

    /// It has been refused, and is behind nobody.
    pub(super) fn is_behind_nobody(&self) {
        self.predecessor.store(core::ptr::null_mut(), Relaxed); // its own, published by [join]
    }

    /// The policy that must learn of a release by this node; 0: none.
    pub(crate) fn tells(&self) -> u8 {
        self.note.tells
    }

    /// How many waiters have been moved past it; 0 if it may choose by now.
    pub(super) fn passes(&self) -> u32 {
        match self.passed.load(Relaxed) {
            now if now <= MAY => now,
            _ => 0,
        }
    }

    /// How long the grants before it took, if it became head after some.
    pub(super) fn pace(&self) -> Pace {
        Pace::from_word(self.pace.load(Relaxed)) // a hint
    }

    /// Tells it that.
    pub(super) fn set_pace(&self, pace: Pace) {
        self.pace.store(pace.to_word(), Relaxed);
    }

    /// How many waiters, from this one on, may choose who follows them, as far as the waiter before it has said.
    pub(super) fn may_choose(&self) -> u32 {
        // ORDERING: Acquire, pairs with [pass]: every edit of the line before this is known.
        // SURVIVES: it takes six threads, and more schedules than are drawn.
        match self.passed.load(Acquire) {
            PASSED => 0,
            now => now.saturating_sub(MAY),
        }
    }

    /// Has it let the one behind it choose?
    pub(super) fn has_passed_the_choice(&self) -> bool {
        self.passed.load(Relaxed) == PASSED // its own
    }

    /// Called by the node's own thread. From now on the next waiter, and `count - 1` behind that one, may choose, and the caller no
    /// longer may. `false`: nobody is behind it.
    pub(super) fn pass_the_choice(&self, count: u32) -> bool {
        // ORDERING: Acquire, pairs with [link].
        let Some(next) = core::ptr::NonNull::new(self.next(Acquire)) else { return false };
        self.passed.store(PASSED, Relaxed); // its own
        // SAFETY: linked behind the caller, which stays.
        let theirs = unsafe { &next.as_ref().passed };
        let now = theirs.load(Relaxed); // the exchange checks it again
        if now != PASSED {
            // [pass] ORDERING: Release, pairs with the Acquire of `may_choose`. It fails if that one is first by now, and has passed the choice on.
            // SURVIVES: as there.
            // SURVIVES no-store: then that one chooses once it is first.
            let _ = theirs.compare_exchange(now, MAY + count, Release, Relaxed);
        }
        true
    }

    /// The waiter behind it; null: none, or none linked yet.
    pub(super) fn next(&self, order: Ordering) -> *mut Self {
        self.next.load(order)
    }

    /// Does `by` hold the lock with this word, by this node? No, if the node belongs to another thread by now.
    pub(crate) fn is_held(&self, word: &Word0<P>, by: *const ()) -> bool {
        self.is_by(by) && core::ptr::eq(self.of.load(Relaxed), word.address())
    }

    /// Does `by` hold some lock by this node?
    pub(crate) fn is_by(&self, by: *const ()) -> bool {
        // ORDERING: Acquire, pairs with [turn] and [stay]: if it is another thread's by now, we see whose.
        // SURVIVES: needs a node that is used again, and explorations use each once.
        state(self.gate.load(Acquire)) == GRANTED && core::ptr::eq(self.by.load(Relaxed), by)
    }

    /// Records which node is before it; null: none.
    pub(super) fn set_predecessor(&self, before: *const Self) {
        // [predecessor] ORDERING: Release, pairs with the Acquires of `ask_predecessor`: after a choice that node may be new to it.
        // SURVIVES: where no rule chooses, waiters know the node by [join].
        self.predecessor.store(before.cast_mut(), Release);
    }

    /// Its thread is about to exchange the line's end for this node, and learns from that which node is before it.
    pub(super) fn has_no_known_predecessor(&self) {
        self.predecessor.store(from_ref(self).cast_mut(), Relaxed); // published by [join]
    }

    /// As [`before`](Self::before), of a node that may just have joined: waits until its own thread knows, which nothing tears away
    /// meanwhile. `None`: a fork has left that thread behind.
    pub(super) fn known_predecessor(&self) -> Option<*mut Self> {
        let is_known = |before: *mut Self| !core::ptr::eq(before, self);
        if !is_known(self.predecessor.load(Relaxed)) && !P::is_line_ours(from_ref(self).cast()) {
            return None;
        }
        // ORDERING: Acquire, pairs with [predecessor].
        Some(P::spin_until_ptr(&self.predecessor, Acquire, is_known))
    }

    /// The node before it, or, of a head, one that was; null: none.
    pub(super) fn before(&self, order: Ordering) -> *mut Self {
        self.predecessor.load(order)
    }

    /// Has anybody found it in line, or has its own thread gone on since it joined?
    pub(super) fn is_known(&self) -> bool {
        self.gate.load(Relaxed) & !UNCOUNTED != WAITING // a "no" is checked
    }

    /// Records which node is behind it.
    pub(super) fn set_next(&self, next: *mut Self) {
        // [link] ORDERING: Release, pairs with the Acquires that read a `next`: a node's gate is initialized before it is linked.
        self.next.store(next, Release);
    }

    /// Its gate says GRANTED: is it still in the line that ends with `last`? The program may have reused the memory for another
    /// mutex without releasing this one. Then the caller holds the new mutex by the word. If in doubt the answer is no: releasing
    /// by the word is right, too.
    pub(super) fn is_still_in(&self, word: &Word0<P>, last: *mut Self) -> bool {
        if last.is_null() || !Word0::<P>::may_be_by_node(word.now()) {
            return false;
        }
        if core::ptr::eq(last, self) {
            return true;
        }
        // Somebody has joined, and will link its node in a moment: as a rule within the time of one transfer of a line.
        let (mut waited, mut pause) = (0, FIRST_LINK_NS);
        while self.next.load(Relaxed).is_null() {
            if waited > LINK_NS {
                return false;
            }
            P::pause(pause);
            waited += pause;
            pause += pause / 4;
        }
        true
    }

    /// It is about to sleep on the word, behind one that is GRANTED the lock. Writes the holder into the mutex, so that one can debug
    /// a program that hangs. (Nobody can be granted the lock past it. Unlock writes 0 after this, or finds what this wrote.)
    pub(super) fn name_holder(&self, owner: &P::Word) {
        if owner.load(Relaxed) == SOMEBODY {
            // SAFETY: in the line, before us: it stays until we are OPEN, and readable.
            let holder = unsafe { &*self.first_of_the_dead() };
            // Relaxed: read by debuggers.
            let _ = owner.compare_exchange(SOMEBODY, holder.thread(), Relaxed, Relaxed);
        }
    }

    /// Changes the gate's state from `from` to `to`, and keeps the rest. `Ok`: the gate as it was. `Err`: the gate as it is. A waiter that
    /// leads does not leave.
    pub(crate) fn turn(&self, from: u32, to: u32) -> Result<u32, u32> {
        let mut now = from;
        loop {
            // [turn] ORDERING: Release pairs with the Acquires of gates: it publishes what the last holder wrote, if this
            // says GRANTED. Acquire, pairs with [tell]: a thread that leaves must not find an old gate behind it. Relaxed on
            // failure: the gate is looked at again.
            // SURVIVES: Acquire, on paper only: what is explored here never fails on an old gate.
            match self.gate.compare_exchange(now, (now & KEPT) | to, AcqRel, Relaxed) {
                Err(other) if to == LEFT && other & LEADS != 0 => return Err(other),
                Err(other) if other != now && state(other) == from => now = other,
                result => return result,
            }
        }
    }

    /// Makes it head, if it has not left; returns its state before that.
    pub(super) fn open(&self) -> u32 {
        let mut now = WAITING;
        loop {
            match state(now) {
                LEFT | OPEN => return state(now),
                from => match self.turn(from, OPEN) {
                    Ok(_) => return from,
                    Err(other) => now = other,
                },
            }
        }
    }

    /// The id of the thread that holds the lock with this word by a node before this one; 0: none, too far away, or not known yet. A hint: lines move on,
    /// and nodes are used again.
    pub(super) fn holder_among_predecessors(&self, word: &Word0<P>) -> u32 {
        let mut at = self;
        for _ in 0..FARTHEST {
            // ORDERING: Acquire, pairs with [predecessor].
            // SURVIVES: the answer is a hint, and few schedules ask this.
            let before = at.predecessor.load(Acquire);
            // SAFETY: it was in a line, and is still readable.
            let Some(before) = (unsafe { before.as_ref() }) else { return 0 };
            if !core::ptr::eq(before.of.load(Relaxed), word.address()) {
                return 0;
            }
            if core::ptr::eq(before, at) {
                P::pause(FIRST_LINK_NS); // its thread learns in a moment whom it follows
                continue;
            }
            // Relaxed: as above.
            if state(before.gate.load(Relaxed)) == GRANTED {
                return before.thread();
            }
            at = before;
        }
        0
    }

    /// The first of the nodes, up to this one, that are in the line and wait for nothing: they had the lock, or left behind a node
    /// that had it.
    pub(super) fn first_of_the_dead(&self) -> *mut Self {
        let mut first = from_ref(self).cast_mut();
        loop {
            // SAFETY: in the line, as this one; or it has ended, and is still readable.
            // Relaxed: the caller has already looked with Acquire.
            let (now, before) =
                unsafe { ((*first).gate.load(Relaxed), (*first).predecessor.load(Relaxed)) };
            if state(now) == GRANTED || before.is_null() {
                return first;
            }
            // SAFETY: as above.
            match state(unsafe { (*before).gate.load(Relaxed) }) {
                LEFT | GRANTED => first = before,
                _ => return first,
            }
        }
    }

    /// Has the one before it got the lock, now or earlier? Then this one is first.
    pub(super) fn is_first(&self) -> bool {
        // ORDERING: Acquire, pairs with [turn] and [stay]: a choice that came before them is visible.
        // SURVIVES: as in `had_the_lock`, or needs a node that is used again, and explorations use each once.
        self.ask_predecessor(|gate| gate.load(Acquire))
    }

    /// Has it had the lock, and is it still in the line? If it has left, the question goes to those before it.
    pub(super) fn had_the_lock(&self) -> bool {
        // ORDERING: Acquire, as above: if it has left, its `predecessor` is visible.
        // SURVIVES: few schedules read a link that old, of one torn out of a line that glibc's code left behind.
        match state(self.gate.load(Acquire)) {
            LEFT => self.is_first(),
            now => now == GRANTED,
        }
    }

    /// Tells the one before it that it sleeps (its own gate says so already). `true`: it need not sleep, since it is first.
    pub(crate) fn tell_predecessor(&self) -> bool {
        // [tell] ORDERING: AcqRel: Release pairs with [turn], of a waiter that leaves: it sees that we are ASLEEP. Acquire, as above.
        // SURVIVES: as above, both.
        self.ask_predecessor(|gate| gate.fetch_or(BEHIND, AcqRel))
    }

    fn ask_predecessor(&self, ask: impl Fn(&P::Word) -> u32) -> bool {
        // ORDERING: Acquire, pairs with [predecessor]. SURVIVES: as [predecessor].
        let mut before = self.predecessor.load(Acquire);
        while !before.is_null() {
            // SAFETY: it is in the line as long as our own gate does not change, and after that it is still readable.
            let waiter = unsafe { &*before };
            match state(ask(&waiter.gate)) {
                // ORDERING: Acquire, pairs with [predecessor]. SURVIVES: as [predecessor].
                LEFT => before = waiter.predecessor.load(Acquire),
                // Meanwhile a choice may have put somebody else before us, or before one that left. So we check again.
                now => return now == GRANTED && self.is_behind(waiter),
            }
        }
        false // the one before us has ended, and our gate has changed
    }

    /// Does `first`, whose gate the caller has read with Acquire, still come right before this one, not counting nodes that left?
    fn is_behind(&self, first: &Self) -> bool {
        // Relaxed, all: a holder's choices were written before its gate said GRANTED, and a thread that chooses later isn't before us.
        let mut before = self.predecessor.load(Relaxed);
        while !before.is_null() && !core::ptr::eq(before, first) {
            // SAFETY: as in `ask_predecessor`.
            let waiter = unsafe { &*before };
            if state(waiter.gate.load(Relaxed)) != LEFT {
                return false;
            }
            before = waiter.predecessor.load(Relaxed);
        }
        !before.is_null()
    }

    /// Its `predecessor` has just been changed. May it be asleep, and have told the old predecessor?
    pub(super) fn may_sleep(&self) -> bool {
        // ORDERING: AcqRel. Acquire pairs with [turn], of a waiter that fell asleep: it has told the one that was before it. Release with its
        // Acquire: a waiter that falls asleep after this tells the one that is before it now.
        // SURVIVES: it matters only if code that knows nothing of chains unlocks for a waiter that was moved before a sleeper: five threads.
        // SURVIVES no-store: likewise.
        state(self.gate.fetch_or(0, AcqRel)) != WAITING
    }

    /// The calling thread waits awake, at `now`, with this node, which describes it.
    pub(super) fn beat(&self, now: u64) {
        // SAFETY: in the line behind the waiter, written before it joined.
        let word = unsafe { &(*Description::of(from_ref(self).cast_mut())).beat };
        let beat = ((now / BEAT_NS) as u32).max(1);
        if word.load(Relaxed) != beat {
            word.store(beat, Relaxed); // a hint; only its own thread writes it
        }
    }

    /// What policies learn about this waiter, at `now`.
    pub(super) fn described(&self, now: u64) -> hooks::Node {
        let note = self.note;
        let wait_ns = if note.asked_ns == 0 { 0 } else { now.saturating_sub(note.asked_ns) };
        let asleep = state(self.gate.load(Relaxed)) == ASLEEP; // a hint
        let known = hooks::Node {
            core_class: note.class.0.into(),
            flags: if asleep { hooks::ASLEEP } else { 0 },
            speed: P::speed(note.class),
            passed: self.passes(),
            wait_ns,
            ..hooks::Node::default()
        };
        if note.more != More::Description {
            return known; // it joined under another rule
        }
        // SAFETY: in the line behind the waiter, which is readable; written before it was linked.
        let its = unsafe { &*Description::of(from_ref(self).cast_mut()) };
        let lost = self.is_lost(its.beat.load(Relaxed), now);
        hooks::Node {
            tid: its.tid,
            cpu: its.cpu,
            numa: its.numa.into(),
            prio: its.prio.into(),
            flags: known.flags | u32::from(its.flags) | if lost { OFF_CPU } else { 0 },
            speed: its.speed.into(),
            cs_ns: its.cs_ns.into(),
            cs_total_ns: its.cs_total_ns,
            held_locks: its.held_locks.into(),
            window_ns: its.window_ns,
            slo_ns: its.slo_ns,
            tag: its.tag,
            ..known
        }
    }

    /// With this beat: does the waiter wait awake, and seem to have lost its CPU?
    fn is_lost(&self, beat: u32, now: u64) -> bool {
        let late = ((now / BEAT_NS) as u32).wrapping_sub(beat);
        // The highest ages are beats from just after `now`.
        beat != 0
            && state(self.gate.load(Relaxed)) == WAITING
            && (LOST..u32::MAX / 2).contains(&late)
    }
}

/// Gives nodes back, from `first` up to, but without, `until`.
///
/// # Safety
/// Nobody can reach them through the line any more.
pub(super) unsafe fn give_back<P: Machine>(mut first: *mut Waiter<P>, until: *mut Waiter<P>) {
    while first != until {
        // SAFETY: the caller's promise. The nodes' other fields stay as they are, for late looks.
        unsafe {
            // ORDERING: Acquire, pairs with [link].
            let next = (*first).next(Acquire);
            // So a thread that no longer holds the lock by this node, and doesn't know that, finds out. (See `is_held`.)
            (*first).gate.store(ENDED, Relaxed);
            P::give_line(first.cast());
            first = next;
        }
    }
}

/// A beat counts these units of the clock, ns.
const BEAT_NS: u64 = 4_096;

/// A thread whose beat is this many units old seems to have lost its CPU. (It looks once in 4 us, and its clock read may be late.)
const LOST: u32 = 16;

/// The second part of a waiter's line.
#[repr(C)]
struct Description<P: Machine> {
    slo_ns: u64,
    tag: u64,
    cs_total_ns: u64,
    tid: u32,
    cpu: u32,
    window_ns: u32,
    cs_ns: u32,
    numa: u16,
    held_locks: u16,
    speed: u16,
    prio: i8,
    flags: u8,
    /// The waiter's cluster, plus one; 0: its rule doesn't ask. Every node has this, even without the rest of its description.
    near: P::Word,
    /// The clock's [`BEAT_NS`]; 0: it has not waited awake yet.
    beat: P::Word,
}

impl<P: Machine> Description<P> {
    /// Where a node's description is.
    fn of(node: *mut Waiter<P>) -> *mut Self {
        const { assert!(size_of::<Waiter<P>>() + size_of::<Self>() <= P::LINE) }
        const { assert!(align_of::<Waiter<P>>() >= align_of::<Self>()) }
        node.wrapping_add(1).cast()
    }

    /// The description of a thread that has not joined yet.
    fn new(own: &hooks::Node, near: P::Word) -> Self {
        let small = |value: u32| min(value, u16::MAX.into()) as u16;
        Self {
            slo_ns: own.slo_ns,
            tag: own.tag,
            cs_total_ns: own.cs_total_ns,
            tid: own.tid,
            cpu: own.cpu,
            window_ns: own.window_ns,
            cs_ns: min(own.cs_ns, u32::MAX.into()) as u32,
            numa: small(own.numa),
            held_locks: small(own.held_locks),
            speed: small(own.speed),
            prio: own.prio.clamp(i8::MIN.into(), i8::MAX.into()) as i8,
            flags: own.flags as u8,
            near,
            beat: P::Word::new(0),
        }
    }
}
