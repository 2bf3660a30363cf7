//! One thread of a server looks after the active one: takes over from it when a section blocks, and finds another server for locks when it
//! has too much to do.
//!
//! What it does are hints: gates exclude, whoever is active, and a lock may change its server at any time.

use super::{ASLEEP, GONE, Gate, SLEEP_NS, SectionServer};
use core::ptr::{self, null_mut};
use lockwright_platform::Ordering::{Acquire, Relaxed, Release};
use lockwright_platform::{Platform, Ptr, Word};

/// How often a thread that stands by looks whether the active one moves, ns.
const WATCH_NS: u32 = 1_000_000;
/// How many looks at what the active thread does make a load.
const SAMPLES: u32 = 64;
/// Of these, what is much, and what is little.
const MUCH: u32 = SAMPLES * 3 / 4;
const LITTLE: u32 = SAMPLES / 4;
/// What makes a lock worth a move.
const WORTH: u32 = SAMPLES / 8;
/// How many locks a look tells apart.
const LOCKS: usize = 8;

/// What a thread that stands by has seen of the active one.
struct Looks<L> {
    locks: [(*const L, u32); LOCKS],
    looks: u32,
}

impl<L> Looks<L> {
    /// The active thread is in a section of this lock; null: of none. `true`: that were enough looks.
    fn look(&mut self, lock: *const L) -> bool {
        let own = |(seen, _): &&mut (*const L, u32)| seen.is_null() || ptr::eq(*seen, lock);
        if !lock.is_null()
            && let Some(place) = self.locks.iter_mut().find(own)
        {
            *place = (lock, place.1 + 1);
        }
        self.looks += 1;
        self.looks == SAMPLES
    }
}

impl<P: Platform, L: Gate> SectionServer<P, L> {
    /// Waits until the active thread's section takes longer than [`WATCH_NS`], and takes over; or until another one may have to be looked after.
    pub(super) fn stand_by(&self, me: u32, stop: &P::Word) {
        let (role, rest) = (self.role(), self.rest());
        // Relaxed, all: hints.
        if rest.watched.compare_exchange(0, 1, Relaxed, Relaxed).is_err() {
            // One looks after the active thread; the others sleep until that one takes over.
            // SURVIVES: the sleep ends by the clock.
            P::park(&rest.watched, 1, Some(P::after(SLEEP_NS)));
            return;
        }
        let mut seen = Looks { locks: [(ptr::null(), 0); LOCKS], looks: 0 };
        while stop.load(Relaxed) == 0 {
            let (active, before) = (role.active.load(Relaxed), role.beat.load(Relaxed));
            if rest.awake.load(Relaxed) == ASLEEP {
                rest.load.store(0, Relaxed);
                // SURVIVES: as above.
                P::park(&rest.awake, ASLEEP, Some(P::after(SLEEP_NS)));
                continue;
            }
            // SURVIVES: as above.
            P::park(&rest.watched, 1, Some(P::after(WATCH_NS)));
            if seen.look(self.shown()) {
                self.balance(&mut seen);
            }
            let is_stuck = !before.is_multiple_of(2) && role.beat.load(Relaxed) == before;
            if is_stuck && role.active.compare_exchange(active, me, Relaxed, Relaxed).is_ok() {
                break;
            }
        }
        rest.watched.store(0, Relaxed);
        // SURVIVES: as above.
        P::unpark(&raw const rest.watched, 1);
    }

    /// The active thread is inside of this lock's gate: moves it, if it has to go.
    pub(super) fn pass_on(&self, lock: *mut L) {
        let rest = self.rest();
        // ORDERING: Acquire, pairs with [move].
        // SURVIVES: explorations have one server for a lock.
        if rest.moves.load(Acquire).cast() == lock {
            rest.moves.store(null_mut(), Relaxed); // only we take it
            // Requests that come here until its clients know find the gate, and run.
            // SAFETY: the caller is inside, and shows it.
            unsafe { &*lock }.move_to(rest.to.load(Relaxed).cast_const());
        }
    }

    /// Locks may move from this server to `other`, and on from there.
    ///
    /// # Safety
    /// `other` stays as long as this server.
    pub unsafe fn beside(&self, other: *const Self) {
        // ORDERING: Release [beside]: it was made before.
        self.next.store(other.cast_mut(), Release);
    }

    /// How busy it was lately, in percent. Servers with one thread, which nobody watches, say 0; one without threads says 100.
    pub fn load(&self) -> u32 {
        match self.rest().awake.load(Relaxed) {
            GONE => 100,
            _ => 100 * self.rest().load.load(Relaxed) / SAMPLES,
        }
    }

    /// Too much to do, with several locks, while another server has little: moves the lock that needs the second most time there.
    fn balance(&self, seen: &mut Looks<L>) {
        let rest = self.rest();
        let load = seen.locks.iter().map(|(_, looks)| looks).sum();
        rest.load.store(load, Relaxed); // a hint, as all below
        seen.locks.sort_unstable_by_key(|(_, looks)| core::cmp::Reverse(*looks));
        let second = seen.locks[1];
        *seen = Looks { locks: [(ptr::null(), 0); LOCKS], looks: 0 };
        if load < MUCH || second.1 < WORTH || !rest.moves.load(Relaxed).is_null() {
            return;
        }
        // ORDERING: Acquire, here and below, pairs with [beside].
        let mut at = self.next.load(Acquire);
        for _ in 0..LOCKS {
            // SAFETY: null, or a server, which stays.
            let Some(other) = (unsafe { at.as_ref() }) else { return };
            let is_there = other.rest().awake.load(Relaxed) != GONE && !ptr::eq(other, self);
            if is_there && other.rest().load.load(Relaxed) <= LITTLE {
                rest.to.store(at.cast(), Relaxed);
                // ORDERING: Release [move]: where to is there before.
                rest.moves.store(second.0.cast_mut().cast(), Release);
                return;
            }
            at = other.next.load(Acquire);
        }
    }

    /// The lock whose section the active thread runs now, or ran last; null: none. For samples of where a server spends its time.
    pub fn shown(&self) -> *const L {
        match self.role().active.load(Relaxed) {
            0 => ptr::null(),
            active => self.slot(active as usize - 1).shows.load(Relaxed),
        }
    }
}
