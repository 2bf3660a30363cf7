//! Near first: waiters of one cluster of CPUs stand together, so that most hand-overs stay within it.
//!
//! A hand-over to another socket takes several times as long as one to a neighbour, and the data that the lock protects travels with it.
//! Cohort locks therefore keep a queue for each cluster (D. Dice, V. Marathe, N. Shavit, *Lock Cohorting*, PPoPP 2012; for queues, V.
//! Luchangco, D. Nussbaum, N. Shavit, *A Hierarchical CLH Queue Lock*, Euro-Par 2006). Here only the way into the line changes. Grants
//! and unlock stay as they are, and cost what they cost without this.
//!
//! A waiter that joins the line behind one of another cluster *leads*: it opens the *door* of its cluster for this lock ([`Door`]). Near
//! arrivals *follow* it. They write themselves into the door, one behind the other, and don't touch the line's tail. While the leader
//! waits awake, it moves its followers from the door into the line, behind itself, and the last of them leads from then on. A leader that
//! has the lock moves its followers, too, and then the *run* ends. Moving takes as long as two hand-overs, so most of it must come before.
//!
//! ```text
//!   line   H ─► L (leads) ─► a ─► b ◄─ tail        door of L's cluster:  L │ f │ g │ empty ...
//!          H ─► L ─► f ─► g (leads) ─► a ─► b                            g │ empty ...
//! ```
//!
//! Invariants:
//! 1. A door is open for one lock at a time. Its generation changes whenever it opens or closes, and each place in it says in which
//!    generation it is empty. So a follower that comes late, by whatever time, finds another value, and is refused.
//! 2. A follower publishes itself only behind one that is published. So those that are published are the first few, without a gap. The
//!    others are refused, and join the line.
//! 3. The leader closes the door before it may grant the lock, and before the waiter behind it can find out that the leader has the lock:
//!    the leader is granted the lock as CHOOSING, and makes that GRANTED itself. So no waiter behind it becomes head meanwhile.
//! 4. Each waiter is passed only by those that follow a leader before it. A run has at most a part ([`RUN_SHARE`]) of `bypass` followers,
//!    and a door has one leader at a time. The leader of a later run stands behind the waiter, unless it joined before the waiter. Each of
//!    those that did leads at most one such run.
//! 5. Only a node's own thread changes who is behind it, until that thread lets others choose. A choice (choice.rs) ends before a node whose
//!    thread may lead.
//!
//! A thread that is torn out of its wait within this file finishes what it has begun ([`finish`]). (Between the exchange that makes a door
//! CHANGING for a new leader and the note of that, it leaves a door that stays shut.) Doors that were open at a fork count as closed in the child, and doors that were changing stay shut there.

use super::line::{View, wake};
use super::waiter::{BEHIND, GRANTED, LEFT, WAITING, Waiter, state};
use core::ptr::{from_ref, without_provenance_mut};
use lockwright_platform::Ordering::{Acquire, Relaxed, Release};
use lockwright_platform::{Door, FOLLOWERS, Machine, Ptr, Stage, Word};

/// In a door's word: the number of threads that have asked to follow.
const ASKED: u32 = 15;
const _: () = assert!(FOLLOWERS <= ASKED as usize);

/// In a door's word: near waiters may follow.
const OPEN: u32 = 16;

/// In a door's word: somebody opens or closes it.
const CHANGING: u32 = 32;

/// In a seat's note of a door's word: the leader closes the door. Otherwise it has just become one.
const CLOSES: u32 = 1;

/// In a door's word: one generation (26 bits, which wrap: a follower would have to stand still for 2^26 of them, and not one more).
const GENERATION: u32 = 64;

/// A run has at most `bypass` divided by this followers.
const RUN_SHARE: u32 = 8;

/// A leader that waits awake looks at its door this often, ns.
const LOOK_NS: u32 = 250;

/// A follower looks this often whether the one before it is published, and then joins the line instead ...
const LOOKS: u32 = 8;

/// ... and waits for this long after each look, ns.
const PAUSE_NS: u32 = 100;

/// What an empty place says in this generation. Nodes are aligned, so it is none.
fn empty(word: u32) -> *mut () {
    without_provenance_mut((word / GENERATION) as usize * 4 + 1)
}

/// What a place says that was refused in this generation.
fn refused(word: u32) -> *mut () {
    without_provenance_mut((word / GENERATION) as usize * 4 + 3)
}

/// The node in a place. `None`: the place is empty, or was refused.
fn node<P: Machine>(place: *mut ()) -> Option<*mut Waiter<P>> {
    place.addr().is_multiple_of(2).then(|| place.cast())
}

/// A door's word in the next generation, closed.
fn next_generation(word: u32) -> u32 {
    (word & !(GENERATION - 1)).wrapping_add(GENERATION)
}

/// Looks at the door of this cluster for this lock, if the machine has doors.
fn at_door<P: Machine, R>(
    line: &View<'_, P>,
    cluster: u16,
    look: impl FnOnce(&Door<P>) -> R,
) -> Option<R> {
    P::door(cluster, line.parts.word.address().addr(), look)
}

/// The calling thread's cluster. `None`: the machine has one cluster only.
pub(crate) fn cluster<P: Machine>(line: &View<'_, P>) -> Option<u16> {
    at_door(line, 0, |_| P::place().domain)
}

/// Joins the line, in the caller's cluster or, for `None`, as if there were no clusters. `true`: somebody is before the caller.
pub(crate) fn join<P: Machine>(line: &View<'_, P>, me: &Waiter<P>, cluster: Option<u16>) -> bool {
    if follow(line, me, cluster) {
        return true;
    }
    let is_behind = line.join(me);
    if is_behind {
        lead(line, me, cluster);
    }
    is_behind
}

/// The caller, which is in no line, stands behind near waiters. `false`: nobody leads in its cluster, or it is refused.
fn follow<P: Machine>(line: &View<'_, P>, me: &Waiter<P>, cluster: Option<u16>) -> bool {
    let follows = |cluster| at_door(line, cluster, |door| ask(line, me, door)) == Some(true);
    let follows = cluster.is_some_and(follows);
    if follows {
        P::reached(Stage::Joined);
        line.count_in_line();
    }
    follows
}

/// The caller asks to follow, through this door.
fn ask<P: Machine>(line: &View<'_, P>, me: &Waiter<P>, door: &Door<P>) -> bool {
    // ORDERING: Acquire, pairs with [open]: the places are those of this generation.
    // EXPLORED: the models' machine has no doors.
    let word = door.word.load(Acquire);
    let place = (word & ASKED) as usize;
    // ORDERING: Acquire, pairs with [lock]. If it is of a later generation, then the exchange below finds that, too.
    // SURVIVES: it takes two locks that share a door, and three generations between two steps.
    let lock = door.lock.load(Acquire);
    let is_ours = lock.addr() == line.parts.word.address().addr()
        && door.era.load(Relaxed) == line.tuning.era as u32; // that of the door's word, or newer: then the exchange below fails
    if word & OPEN == 0
        || !is_ours
        || place >= FOLLOWERS
        || place as u32 >= door.left.load(Relaxed)
        || line.waiters() >= line.tuning.most_counted
        // Relaxed: what comes before is known by the load above.
        || door.word.compare_exchange(word, word + 1, Relaxed, Relaxed).is_err()
    {
        return false;
    }
    let own = &door.followers[place];
    let Some(before) = before::<P>(door, word, place) else {
        // Relaxed: it publishes nothing. Those that asked later are refused, too.
        let _ = own.compare_exchange(empty(word), refused(word), Relaxed, Relaxed);
        return false;
    };
    // If it is of a later generation, the exchange below fails.
    me.set_predecessor(before);
    // [publish] ORDERING: Release, pairs with the Acquires of places: the node is made, and so are those before it.
    // EXPLORED: as above, no doors.
    if own.compare_exchange(empty(word), from_ref(me).cast_mut().cast(), Release, Relaxed).is_err()
    {
        me.is_behind_nobody();
        return false;
    }
    if place > 0 {
        // SAFETY: it is published, and does not leave before it has seen this link.
        unsafe { (*before).set_next(from_ref(me).cast_mut()) };
    }
    true
}

/// Who is before this place of this generation. `None`: it was refused, or has lost its CPU.
fn before<P: Machine>(door: &Door<P>, word: u32, place: usize) -> Option<*mut Waiter<P>> {
    let Some(before) = place.checked_sub(1) else {
        return Some(door.leader.load(Relaxed).cast()); // known by the door's word
    };
    for _ in 0..LOOKS {
        // ORDERING: Acquire, pairs with [publish]. EXPLORED: as above, no doors.
        let seen = door.followers[before].load(Acquire);
        if seen != empty(word) {
            return node(seen);
        }
        P::pause(PAUSE_NS);
    }
    None
}

/// The caller has joined the line behind others. It leads, unless it is behind a near waiter, or somebody leads already.
fn lead<P: Machine>(line: &View<'_, P>, me: &Waiter<P>, cluster: Option<u16>) {
    let Some(cluster) = cluster.filter(|&cluster| !me.is_behind_near(cluster)) else { return };
    at_door(line, cluster, |door| {
        // ORDERING: Acquire, pairs with [open]: the era is that of this word. SURVIVES: it takes a fork, which explorations have not.
        let (word, era) = (door.word.load(Acquire), line.tuning.era as u32);
        if word & CHANGING != 0 || word & OPEN != 0 && door.era.load(Relaxed) == era {
            return;
        }
        let next = next_generation(word) | CHANGING;
        // [change] ORDERING: Acquire, pairs with [closed]: all of the last generation is over.
        // SURVIVES: what comes late from it finds other values in the places, and changes nothing.
        if door.word.compare_exchange(word, next, Acquire, Relaxed).is_ok() {
            line.parts.seat.inspect(|seat| seat.changes(next));
            door.era.store(era, Relaxed); // published by [open]
            begin(line, me, door, next);
            line.parts.seat.inspect(|seat| seat.changes(0));
        }
    });
}

/// The caller begins to lead, at a door whose word it has made CHANGING.
fn begin<P: Machine>(line: &View<'_, P>, me: &Waiter<P>, door: &Door<P>, word: u32) {
    match me.leads() || me.begin_to_lead() {
        true => open(line, me, door, word, line.tuning.bypass / RUN_SHARE),
        false => shut(door, word),
    }
}

/// Opens a door whose word the caller has made CHANGING, for a leader and at most `left` followers.
fn open<P: Machine>(
    line: &View<'_, P>,
    leader: *const Waiter<P>,
    door: &Door<P>,
    word: u32,
    left: u32,
) {
    // [lock] ORDERING: Release, pairs with the Acquire of a follower: whoever sees this lock sees that the door has been CHANGING.
    // SURVIVES: as there.
    // SURVIVES no-store: then nobody follows.
    door.lock.store(line.parts.word.address().cast_mut().cast(), Release);
    // Relaxed, all: published by [open].
    door.leader.store(leader.cast_mut().cast(), Relaxed);
    door.left.store(left, Relaxed);
    for place in &door.followers {
        place.store(empty(word), Relaxed);
    }
    // [open] ORDERING: Release, pairs with the Acquires of the door's word. EXPLORED: as above, no doors.
    door.word.store(word & !CHANGING | OPEN, Release);
}

/// Waits for a change of the caller's gate, for `ns` at most. Meanwhile, if it leads, it moves followers into the line.
pub(super) fn wait<P: Machine>(line: &View<'_, P>, me: &Waiter<P>, mut ns: u32) -> u32 {
    // Only those that asked for their cluster may lead, now or later.
    let cluster = if line.pace.is_some() { me.cluster() } else { None };
    loop {
        let part = if cluster.is_some() { ns.min(LOOK_NS) } else { ns };
        // ORDERING: Acquire, pairs with [turn]: the last holder's section is over, if we are GRANTED.
        let gate = P::spin_for(&me.gate, Acquire, part, |gate| state(gate) != WAITING);
        ns -= part;
        if state(gate) != WAITING || ns == 0 {
            return gate;
        }
        let has_followers = |cluster| {
            at_door(line, cluster, |door| door.word.load(Relaxed) & ASKED > 0) == Some(true) // a hint
        };
        // A thread that joins behind us, and has lost its CPU, would hold us up.
        let is_linked = || !me.next(Relaxed).is_null() || line.ends_with(me);
        if me.leads() && cluster.is_some_and(has_followers) && is_linked() {
            end(line, me, true);
        }
    }
}

/// If the caller leads, it moves its followers into the line, and leads no longer. It waits in the line, or has the lock and hasn't granted
/// it, or leaves. `waits`: it goes on waiting.
pub(super) fn end<P: Machine>(line: &View<'_, P>, me: &Waiter<P>, waits: bool) {
    let Some(cluster) = me.cluster().filter(|_| me.leads()) else { return };
    if at_door(line, cluster, |door| close(line, me, door, waits)) != Some(true) {
        me.end_leading();
    }
    line.parts.seat.inspect(|seat| seat.changes(0));
}

/// The caller, which was torn out of its wait, was changing its door so that its word says this (0: none). Finishes that: it may be a leader
/// then, but then of an open door.
pub(super) fn finish<P: Machine>(line: &View<'_, P>, me: &Waiter<P>, word: u32) {
    let Some(cluster) = me.cluster().filter(|_| word != 0) else { return };
    at_door(line, cluster, |door| {
        // ORDERING: Acquire, pairs with [open], if somebody else has changed it since.
        if door.word.load(Acquire) != word & !CLOSES {
            return;
        }
        if word & CLOSES == 0 {
            begin(line, me, door, word);
        } else if let leader = door.leader.load(Relaxed).cast::<Waiter<P>>()
            && !core::ptr::eq(leader, me)
        {
            open(line, leader, door, word & !CLOSES, door.left.load(Relaxed));
            me.end_leading();
        } else {
            move_followers(line, me, door, word & !CLOSES, FOLLOWERS as u32, false);
            me.end_leading();
        }
    });
}

/// The caller, which was torn away while it joined, and may have followed through a door: has it, and is it there still? Then it is linked.
pub(super) fn follows<P: Machine>(line: &View<'_, P>, me: &Waiter<P>) -> bool {
    let Some(cluster) = me.cluster() else { return false };
    at_door(line, cluster, |door| {
        let is_me = |place: &P::Ptr<()>| core::ptr::eq(place.load(Relaxed).cast(), me); // our own write
        let Some(place) = door.followers.iter().position(is_me) else { return false };
        // SAFETY: published before us, and stays readable.
        let before = unsafe { me.before(Relaxed).as_ref() }.filter(|_| place > 0);
        // ORDERING: Acquire, pairs with [link]. (Once we have been opened, or granted the lock, we have been linked.)
        if let Some(before) = before.filter(|before| before.next(Acquire).is_null())
            && state(me.gate.load(Acquire)) == WAITING
        // ORDERING: as above
        {
            before.set_next(from_ref(me).cast_mut());
        }
        true
    }) == Some(true)
}

/// The caller leads: it closes its door, moves the followers, and lets the last one lead if the run may go on. `true`: it still leads
/// itself, since it `waits` and nobody follows yet.
fn close<P: Machine>(line: &View<'_, P>, me: &Waiter<P>, door: &Door<P>, waits: bool) -> bool {
    // The one that made us its successor may still be opening the door.
    let is_open =
        |word| word & OPEN != 0 && door.leader.load(Relaxed).cast_const().cast() == from_ref(me);
    // ORDERING: Acquire, pairs with [open]. EXPLORED: as above, no doors.
    let word = P::spin_until(&door.word, Acquire, is_open);
    let next = next_generation(word) | CHANGING;
    line.parts.seat.inspect(|seat| seat.changes(next | CLOSES));
    // Relaxed: what followers have written is in their places.
    let asked = door.word.swap(next, Relaxed) & ASKED;
    move_followers(line, me, door, next, asked, waits)
}

/// The caller leads, and has made its door's word this, CHANGING: moves those followers that have asked, and goes on as [`close`] says. What
/// another call has done already, as far as it came, is done once.
fn move_followers<P: Machine>(
    line: &View<'_, P>,
    me: &Waiter<P>,
    door: &Door<P>,
    next: u32,
    asked: u32,
    waits: bool,
) -> bool {
    let word = next.wrapping_sub(GENERATION);
    let last = (0..asked).rev().find_map(|place| {
        // ORDERING: Acquire, pairs with [publish], of this one and those before it. Relaxed if it was empty: that publishes nothing.
        let place = &door.followers[place as usize];
        // EXPLORED: as above, no doors.
        let last = place.compare_exchange(empty(word), refused(word), Relaxed, Acquire).err();
        last.and_then(node::<P>)
    });
    let first = node::<P>(door.followers[0].load(Relaxed)); // known by the above
    debug_assert!(last.is_none() || first.is_some(), "published ones have no gap (invariant 2)");
    if let (Some(first), Some(last)) = (first, last)
        && me.next(Relaxed) != first
    {
        // SAFETY: they are published, and nobody but us moves them.
        unsafe { move_into_line(line, me, first, last) };
    }
    let left = door.left.load(Relaxed).saturating_sub(asked);
    let goes_on = left > 0 && state(me.gate.load(Relaxed)) == WAITING; // a hint
    match last {
        // SAFETY: in the line, behind us.
        Some(last) if unsafe { (*last).leads() || goes_on && (*last).begin_to_lead() } => {
            open(line, last, door, next, left);
        }
        // Those that asked have lost their CPUs.
        None if goes_on && waits => {
            open(line, me, door, next, left);
            return true;
        }
        _ => shut(door, next),
    }
    false
}

/// Shuts a door whose word the caller has made CHANGING.
fn shut<P: Machine>(door: &Door<P>, word: u32) {
    // [closed] ORDERING: Release, pairs with [change].
    // SURVIVES: as there.
    // SURVIVES no-store: then nobody leads in this cluster any more.
    door.word.store(word & !CHANGING, Release);
}

/// Puts these nodes, and those between them, behind the caller.
///
/// # Safety
/// They are linked, or about to be, and in no line. `me` is the caller's, and no waiter behind it can become head by itself.
unsafe fn move_into_line<P: Machine>(
    line: &View<'_, P>,
    me: &Waiter<P>,
    first: *mut Waiter<P>,
    last: *mut Waiter<P>,
) {
    debug_assert!(
        state(me.gate.load(Relaxed)) != GRANTED,
        "the next waiter could become head (invariant 3)"
    );
    // ORDERING: Acquire, pairs with [link]. EXPLORED: as above, no doors.
    let mut behind = me.next(Acquire);
    // (Torn away, it may have extended the line already.)
    let extends = |me| line.extend(me, last) || line.behind(me) == Some(first);
    if behind.is_null() && !extends(me) {
        // Somebody has joined behind us and will link its node in a moment. ORDERING: Acquire, pairs with [link].
        // EXPLORED: as above, no doors.
        P::spin_until_ptr(&me.next, Acquire, |next| !next.is_null());
        behind = me.next(Relaxed);
    }
    // SAFETY: they are in the line behind the caller, or will be; see above.
    unsafe {
        if !behind.is_null() {
            (*last).set_next(behind);
            (*behind).set_predecessor(last);
            // A sleeper may have told us instead of the last one.
            // [mark] ORDERING: Release, pairs with [turn], of a waiter that leaves: it sees who is behind it.
            // SURVIVES: it takes a follower that leaves in that moment, and a sleeper behind it.
            if (*behind).may_sleep() && state((*last).gate.fetch_or(BEHIND, Release)) == LEFT {
                wake(behind); // so that it tells those before the one that has left
            }
        }
    }
    me.set_next(first);
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use crate::front::choice::choose_behind;
    use crate::front::waiter::More;
    use crate::front::{CHAINED, Note, Tuning};
    use crate::front_tests::Memory;
    use crate::testing::Threads;
    use std::vec::Vec;

    fn node(line: &View<'_, Threads>, cluster: Option<u16>) -> &'static Waiter<Threads> {
        let more = if cluster.is_some() { More::Cluster } else { More::Nothing };
        let note = Note { more, ..Note::default() };
        Waiter::take(line.parts.word, line.parts.by, 0, note, None, cluster)
    }

    /// Joins the line under a rule that stays near, or, without a cluster, under another one.
    fn joins(line: &View<'_, Threads>, cluster: Option<u16>) -> &'static Waiter<Threads> {
        let node = node(line, cluster);
        join(line, node, cluster);
        node
    }

    /// Who stands in line, from this one on.
    fn line_from(mut at: *const Waiter<Threads>) -> Vec<*const Waiter<Threads>> {
        let mut seen = Vec::new();
        while !at.is_null() && seen.len() < 20 {
            seen.push(at);
            // SAFETY: in the line.
            at = unsafe { (*at).next(Relaxed) };
        }
        seen
    }

    #[test]
    fn followers_come_behind_their_leader_in_order_and_the_last_leads_on() {
        let (memory, tuning) = (Memory::new(CHAINED, 0), Tuning::for_cpus(8));
        let parts = memory.parts();
        let line = View::new(&parts, &tuning);
        let [head, leader, far] = [Some(0), Some(1), Some(0)].map(|cluster| joins(&line, cluster));
        let [first, second] = [Some(1), Some(1)].map(|cluster| joins(&line, cluster));
        assert!(leader.leads() && !first.leads());
        assert_eq!(line_from(head), [head, leader, far].map(from_ref));
        end(&line, leader, true);
        assert_eq!(line_from(head), [head, leader, first, second, far].map(from_ref));
        assert!(!leader.leads() && second.leads());
        let third = joins(&line, Some(1));
        end(&line, second, true);
        assert_eq!(line_from(second), [second, third, far].map(from_ref));
    }

    /// A choice under another rule doesn't know whom a leader is about to put behind itself.
    #[test]
    fn a_choice_ends_before_a_waiter_that_may_lead() {
        let (memory, tuning) = (Memory::new(CHAINED, 0), Tuning::for_cpus(8));
        let parts = memory.parts();
        let line = View::new(&parts, &tuning);
        let clusters = [None, None, None, Some(1), None, None, None];
        let nodes = clusters.map(|cluster| joins(&line, cluster));
        let (chooser, leader) = (nodes[1], nodes[3]);
        assert!(leader.leads());
        let follower = joins(&line, Some(1));
        choose_behind(&line, chooser, 3, |waiters| {
            while waiters.look() {}
            end(&line, leader, true); // meanwhile
            Some(0b100)
        });
        let seen = line_from(nodes[0]);
        assert!(seen.contains(&from_ref(follower)) && seen.len() == 8, "{seen:?}");
    }

    #[test]
    fn a_door_that_changes_is_nobody_elses_even_after_a_fork() {
        let memory = Memory::new(CHAINED, 0);
        let tuning = Tuning { era: 1, ..Tuning::for_cpus(8) };
        let parts = memory.parts();
        let line = View::new(&parts, &tuning);
        at_door(&line, 1, |door| {
            door.era.store(0, Relaxed);
            door.word.store(next_generation(0) | CHANGING, Relaxed); // another thread is about to open it
        });
        let [_, near, _] = [None, Some(1), None].map(|cluster| joins(&line, cluster));
        assert!(!near.leads());
        at_door(&line, 1, |door| door.word.store(next_generation(0) | OPEN, Relaxed)); // in the parent
        assert!(joins(&line, Some(1)).leads());
    }
}
