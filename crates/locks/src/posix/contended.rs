//! Which lock a mutex runs on. This is decided when the mutex is first contended, and kept in five bits of its counts word, as
//! a place in the process's table. 0 means "not decided yet". Two more bits tell to which generation of tables the place
//! belongs: in a new generation, the next thread that has to wait decides again. The bits wrap: if nobody waits for a mutex
//! during four changes, or eight, its place looks new. So from the fourth change on, one wait in 64 decides again, too. (A mutex that callers with
//! different rules share may then change between their locks.)
//!
//! ```text
//!   acquire ─► decide ─► what is at the place now ─► front lock, textbook lock, or glibc's own algorithm
//!   hand_on ─► held by a node? front::hand_on, which looks at no mutex; then, if need be, as release
//!   release ─► what is at the place now: its release hook ─► View::release
//! ```

use super::hooks;
use super::mutex::{
    ADAPTIVE, Environment, GENERATIONS, How, MARKED, Me, Mutex, Policy, RECURSIVE, Releasing, TYPE,
    UNDECIDED,
};
use crate::front::{self, FREE, Left, PROMISED, Parts, Seat, Tuning, View, WAITED, Waiter, counts};
use core::ptr::null;
use lockwright_platform::Ordering::Relaxed;
use lockwright_platform::{Platform, TryLock, Word};

/// Records the calling thread, which has this id, as holder.
#[inline(always)]
pub(super) fn own<E: Environment>(mutex: &Mutex<E>, kind: u32, id: u32) {
    mutex.owner.store(id, Relaxed); // others read it only to show it in gdb
    if kind & TYPE == RECURSIVE {
        mutex.count.store(1, Relaxed); // the holder's
    } else if kind & MARKED != 0 {
        note(mutex);
    }
}

/// The calling thread, its holder, has taken a marked mutex that isn't recursive.
fn note<E: Environment>(mutex: &Mutex<E>) {
    if E::counts() {
        mutex.count.store(mutex.count.load(Relaxed).wrapping_add(1), Relaxed); // the holder's
    }
}

/// How often the mutex, which the calling thread holds, has been taken since this was asked last; from the first time on, all
/// operations on it come by the slow functions, and are counted. `None`: this was the first time, or its kind needs the field.
pub fn acquisitions<E: Environment>(mutex: &Mutex<E>) -> Option<u32> {
    let kind = mutex.kind.load(Relaxed);
    if kind & TYPE == RECURSIVE {
        return None;
    }
    let count = mutex.count.load(Relaxed); // the holder's, here and below
    mutex.count.store(0, Relaxed);
    if kind & MARKED == 0 {
        mutex.kind.fetch_or(MARKED, Relaxed); // a thread that doesn't see it yet isn't counted
        return None; // what is in there is older than this
    }
    Some(count)
}

/// Under glibc's algorithm, a thread spins this long for an adaptive mutex before it sleeps, ns: about as long as the 100 looks that glibc
/// allows (`glibc.pthread.mutex_spin_count`). glibc learns from earlier waits to look less often; that field is ours.
const ADAPTIVE_NS: u32 = 2_000;

/// From the first table on whose generation is used again, one wait in this many decides again.
const DOUBTS_EACH: u64 = 64;

/// The mutex's place; decides it if nobody has. `caller` is the address of the call that found the mutex contended.
fn decide<E: Environment>(mutex: &Mutex<E>, caller: usize) -> u32 {
    // Read this before the choice: if the table changes meanwhile, the next thread decides again.
    let changes = E::generation();
    let generation = changes % GENERATIONS * counts::GENERATION;
    let decided = |counts: u32| {
        let place = counts & counts::LOCK;
        (place != UNDECIDED && counts & counts::GENERATIONS == generation).then_some(place)
    };
    let mut now = mutex.counts.load(Relaxed);
    // The clock's low bits serve as a die.
    let doubts = caller != 0
        && changes >= GENERATIONS
        && (E::Platform::now() / 64).is_multiple_of(DOUBTS_EACH);
    if let Some(place) = decided(now).filter(|_| !doubts) {
        return place;
    }
    let chosen = E::choose(mutex, caller);
    loop {
        let next = now & !(counts::LOCK | counts::GENERATIONS) | chosen | generation;
        // Relaxed: as in `policy`.
        match mutex.counts.compare_exchange(now, next, Relaxed, Relaxed) {
            Ok(_) => return chosen,
            Err(seen) => match decided(seen) {
                Some(place) if !doubts => return place,
                _ => now = seen,
            },
        }
    }
}

/// Acquires a mutex of this kind, by its lock, and records the holder. The thread holds it by its word; or by a node, which the thread
/// remembers.
#[cold]
#[inline(never)]
pub fn acquire<E: Environment>(mutex: &Mutex<E>, kind: u32, caller: usize) {
    // A thread comes this way each time during its turn, so this is the shortest path.
    if front::is_left::<E::Platform>(&mutex.users) && E::try_take(mutex) {
        mutex.owner.store(E::thread(), Relaxed); // at once, as in `got`
        if front::has_passed::<E::Platform>(&mutex.users, &mutex.counts) {
            return pass(mutex, kind);
        }
        // Meanwhile it has become the head's turn. Nothing was done under the lock.
        mutex.owner.store(0, Relaxed); // as in unlock
        if !E::give(mutex) {
            release(mutex, kind);
        }
    }
    E::before_wait();
    let (me, Policy { how, tuning }) = E::policy(decide(mutex, caller));
    let tells = me.tells && E::waits(mutex, caller);
    // The place where a section begins identifies it.
    let site = caller as u32;
    let has_it = |node: *const Waiter<E::Platform>| {
        acquired(mutex, kind, me, node, tuning.era);
        if tells {
            E::has_waited(mutex, true);
        }
        if tuning.policy != 0 {
            hooks::Slot::of(&tuning).acquired(mutex, kind);
        }
    };
    match how {
        How::Front(front) => {
            if tuning.policy != 0 {
                hooks::mark(mutex, kind, &tuning);
            }
            let parts = Parts { site, ..mutex.parts_of(kind, me) };
            E::guarded(mutex, parts, &tuning, |parts| has_it((front.acquire)(parts, &tuning)));
        }
        // A textbook lock's queue does not survive a fork. After one, its mutexes use glibc's algorithm.
        How::Whole(acquire)
            if tuning.era == 0 && acquire_whole(mutex, kind, &tuning, acquire, has_it) => {}
        How::Whole(_) | How::Glibc => acquire_as_glibc(mutex, kind, me, &tuning, has_it),
    }
}

/// The calling thread has the mutex: by this node, or, if null, by its word.
fn acquired<E: Environment>(
    mutex: &Mutex<E>,
    kind: u32,
    me: Me,
    node: *const Waiter<E::Platform>,
    era: usize,
) {
    if node.is_null() {
        return own(mutex, kind, me.id);
    }
    if kind & MARKED != 0 {
        note(mutex); // only other kinds than recursive are held by nodes
    }
    E::grants();
    E::with_held(|held| held.note(&mutex.word, node, era));
}

/// The calling thread has taken the mutex past a head that naps. (Here and below: a function of its own, so that a thread that sleeps doesn't
/// keep what this needs on its stack.)
#[inline(never)]
fn pass<E: Environment>(mutex: &Mutex<E>, kind: u32) {
    let tuning = Tuning { era: E::era(), ..Tuning::for_any() };
    let me = Me::of::<E>();
    View::new(&mutex.parts_of(kind, me), &tuning).clear_left_behind();
    if kind & MARKED != 0 {
        hooks::slot(mutex).acquired(mutex, kind);
    }
    own(mutex, kind, me.id);
}

/// Acquires by glibc's algorithm, and then `has_it`.
#[inline(never)]
fn acquire_as_glibc<E: Environment>(
    mutex: &Mutex<E>,
    kind: u32,
    me: Me,
    tuning: &Tuning,
    has_it: impl Fn(*const Waiter<E::Platform>),
) {
    let spin_ns = if kind & TYPE == ADAPTIVE { ADAPTIVE_NS } else { 0 };
    E::guarded(mutex, mutex.parts_of(kind, me), tuning, |parts| {
        front::lock_as_glibc(parts, spin_ns);
        has_it(null());
    });
}

/// Acquires by a textbook lock, and then `has_it`. `false`: textbook locks' queues have been given up.
#[inline(never)]
fn acquire_whole<E: Environment>(
    mutex: &Mutex<E>,
    kind: u32,
    tuning: &Tuning,
    acquire: fn(&Mutex<E>, &Tuning, &Seat<E::Platform>),
    has_it: impl Fn(*const Waiter<E::Platform>),
) -> bool {
    if kind & MARKED == 0 {
        // From now on every arrival comes here, and queues. Relaxed: a thread that doesn't see it yet overtakes.
        mutex.kind.fetch_or(MARKED, Relaxed);
    }
    E::in_queue(mutex, tuning, |seat| acquire(mutex, tuning, seat), || has_it(null()))
}

/// Code that knows nothing of nodes is about to unlock the mutex for the calling thread: forgets that it holds it by a node.
pub fn forget<E: Environment>(mutex: &Mutex<E>) {
    E::with_held(|held| held.take(&mutex.word, E::era()));
}

/// Unlocks, if the calling thread holds the mutex by a node; otherwise `false`. If it can grant the lock to the next waiter, it uses
/// only the mutex's address.
#[inline]
pub fn hand_on<E: Environment>(mutex: &Mutex<E>) -> bool {
    let node = E::with_held(|held| {
        if held.is_any() { held.take(&mutex.word, E::era()) } else { core::ptr::null() }
    });
    if node.is_null() {
        return false;
    }
    // SAFETY: nodes stay readable.
    let node = unsafe { &*node };
    let (address, tells) = (core::ptr::from_ref(mutex).addr(), node.tells());
    if tells != 0 {
        hooks::releases_by_node::<E::Platform>(address, tells);
    }
    // SAFETY: the thread acquired the mutex by this node, and still seems to hold it, as `take` has just checked.
    if unsafe { front::hand_on(node) } {
        E::released(address, Releasing::default());
    } else {
        // SAFETY: likewise, since no grant has succeeded.
        unsafe { leave(mutex, node) };
    }
    true
}

/// Releases word 0 for a thread that holds it by this node, which can't grant the lock to the next waiter.
///
/// # Safety
/// As [`front::hand_on`], which has answered `false`.
#[cold]
unsafe fn leave<E: Environment>(mutex: &Mutex<E>, node: &Waiter<E::Platform>) {
    E::Platform::load_to_write(&mutex.counts); // whatever comes next, it writes to this line
    let (me, Policy { tuning, .. }) = mutex.policy();
    let parts = mutex.parts_of(0, me);
    let view = View::new(&parts, &tuning);
    // SAFETY: the caller's promise.
    match unsafe { front::leave_or_hand_on(&view, node) } {
        Left::Passed => E::released(core::ptr::from_ref(mutex).addr(), Releasing::default()),
        Left::Empty => by_word(mutex, 0, front::unlock_alone),
        Left::Stale => by_word(mutex, 0, front::unlock_stale),
        // SAFETY: the caller's promise.
        Left::Not => by_word(mutex, 0, |view| unsafe { front::release(view, node) }),
    }
}

/// Releases word 0 of a mutex of this kind, if [`Environment::give`] did not, for a thread that holds it by no node ([`hand_on`] comes first).
#[cold]
#[inline(never)]
pub fn release<E: Environment>(mutex: &Mutex<E>, kind: u32) {
    by_word(mutex, kind, |line| line.release());
}

/// Releases word 0, which is not 1. Which thread gets the wake does not depend on the mutex's lock, which another thread may be
/// deciding right now.
#[inline(always)]
fn by_word<E: Environment>(
    mutex: &Mutex<E>,
    kind: u32,
    unlock: impl FnOnce(&View<'_, E::Platform>),
) {
    let address = core::ptr::from_ref(mutex).addr();
    let (me, Policy { how, tuning }) = mutex.policy();
    let release = if me.tells { E::releases(mutex) } else { Releasing::default() };
    let parts = mutex.parts_of(kind, me);
    let view = View::new(&parts, &tuning);
    if let How::Front(front) = how {
        (front.release)(&view);
    }
    unlock(&view);
    if me.tells {
        E::released(address, release);
    }
}

/// Asks the mutex's holder to release it by the slow path, which calls [`Environment::releases`]. It costs the holder
/// no wake: with [`PROMISED`] in the word, unlock wakes nobody.
pub fn ask<E: Environment>(mutex: &Mutex<E>) {
    mutex.word.divert();
}

/// Will the mutex's holder release it by the slow path, and say so? A hint. (A holder that grants the lock to the next waiter doesn't.)
pub fn is_asked<E: Environment>(mutex: &Mutex<E>) -> bool {
    [WAITED, PROMISED].contains(&mutex.word.now())
}

/// Acquires word 0, queueing in `lock`, which stands in front of it: the holder of `lock` may compete for the word.
/// So trylock, timed locks and condvars need to know only the word.
///
/// # Safety
/// The node is new, and stays until this returns.
pub unsafe fn queue_in_front<E: Environment, L: TryLock<E::Platform>>(
    mutex: &Mutex<E>,
    lock: &L,
    tuning: &Tuning,
    seat: &Seat<E::Platform>,
    node: *mut L::Node,
) {
    // SAFETY: the caller's promise.
    unsafe {
        // A hint, for locks that reorder: the lock is free if the word is free.
        let is_free = || mutex.word.is_free();
        lock.lock_in_front(node, tuning.window_ns, is_free);
    }
    let parts = Parts { seat: Some(seat), ..mutex.parts() };
    let line = View::new(&parts, tuning);
    mutex.word.spin_until(|value| value == FREE && line.take_word(false));
    line.clear_left_behind();
    // SAFETY: held since above, with this node.
    unsafe { lock.unlock(node) };
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::super::{Held, Mutex, operations};
    use super::*;
    use crate::testing::{Threads, torn};
    use core::cell::Cell;

    std::thread_local! {
        static CHANGES: Cell<u32> = const { Cell::new(0) };
    }

    /// A process in which each table puts all mutexes at a place of its own.
    struct Switching;

    impl Environment for Switching {
        type Platform = Threads;
        type Room = u64;
        fn thread() -> u32 {
            1
        }
        fn with_held<R>(run: impl FnOnce(&Held<Threads>) -> R) -> R {
            run(&Held::default())
        }
        fn choose(_: &Mutex<Self>, _: usize) -> u32 {
            1 + Self::generation()
        }
        fn policy(_: u32) -> (Me, Policy<Self>) {
            (Me::of::<Self>(), Policy { how: How::Glibc, tuning: Tuning::for_any() })
        }
        fn generation() -> u32 {
            CHANGES.get()
        }
    }

    /// How many waits it takes until the mutex is at the place of the table in force.
    fn waits_until_new(mutex: &Mutex<Switching>) -> u64 {
        let new = |_: &u64| {
            Threads::pause(64);
            decide(mutex, 1) == 1 + CHANGES.get()
        };
        (1..).find(new).expect("in the end")
    }

    /// A thread that takes a free mutex is noted as its holder, even if it is torn away: before each step, one after the other.
    fn is_holder_at_once(kind: u32, hints: u32, take: fn(&Mutex<Switching>)) {
        let mut lost = 0;
        for at in 1.. {
            let mutex = Mutex::<Switching>::of_kind(kind, 0);
            mutex.users.store(hints, Relaxed);
            let is_done = torn(at, || take(&mutex)).is_some();
            lost += u32::from(!mutex.word.is_free() && mutex.owner.load(Relaxed) != 1);
            if is_done {
                assert!(at > 3 && !mutex.word.is_free(), "{at} steps: it did not take the mutex");
                break;
            }
        }
        assert!(lost <= 1, "{lost} steps between taking it and saying so");
    }

    #[test]
    fn who_takes_a_mutex_past_its_lock_is_the_holder_at_once() {
        is_holder_at_once(0, front::hints::NAPPING, |mutex| acquire(mutex, 0, 0));
        is_holder_at_once(MARKED, 0, |mutex| assert!(operations::lock(mutex, 0).is_ok()));
        is_holder_at_once(MARKED, 0, |mutex| assert!(operations::try_lock(mutex).is_ok()));
    }

    #[test]
    fn no_number_of_tables_makes_a_mutex_keep_its_place() {
        let mutex = Mutex::<Switching>::of_kind(0, 0);
        for changes in [1, 2, 3, GENERATIONS, 2 * GENERATIONS, 5, 3 * GENERATIONS] {
            CHANGES.set(0);
            mutex.counts.store(0, Relaxed);
            assert_eq!(decide(&mutex, 0), 1);
            CHANGES.set(changes);
            let waits = waits_until_new(&mutex);
            let most = if changes % GENERATIONS == 0 { DOUBTS_EACH } else { 1 };
            assert!(waits <= most, "{changes} changes: {waits} waits");
            assert_eq!(decide(&mutex, 0), 1 + changes, "and stays");
        }
    }
}
