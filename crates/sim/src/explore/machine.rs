//! [`Platform`] for explorations: an operation costs next to nothing, and anybody may go first.
//!
//! A word keeps its last values, and what each of them carries (C11's release sequences). A load may return an old
//! value, unless its thread must know a newer one; a SeqCst load never returns one older than the last SeqCst store.
//! The stores to one word are ordered as they ran.
//!
//! A word also knows which thread initialised it, and which have used it. Rules, as in the models of `crates/model`:
//! 1. A thread that uses a word must know of its initialisation: so a node that is published without a Release is
//!    noticed.
//! 2. A thread that ends a word must know of all its uses, and nobody uses it later.

mod cell;

use super::explorer::{Ended, Wait, block, explorer, point};
use super::memory::{ExploreCell, Explored, MemoryLine};
use super::mutant::{At, Mutation, Op};
use super::setting::THREADS;
use crate::engine::{Ps, current, engine, inside};
use crate::published::Monitored;
use lockwright_platform::hooks::{Context, Hook};
use lockwright_platform::{
    Class, Door, Doors, FULL_SPEED, Learning, Memo, Numbered, Ordering, Place, Platform,
    Priorities, Programmable, Publishing, ReaderTable, Requeue, Stage, Stages, Undisturbed, Unique,
    Woken, Word, numbered,
};
use std::panic::Location;

/// For how long a thread may lose its CPU after it has told others that it runs.
const SLICE: Ps = 20_000_000_000;

fn in_ns(ns: u32) -> Ps {
    engine().now + Ps::from(ns) * 1000
}

/// Sleeps while the word holds `seen`: comparing and falling asleep are one step.
fn sleep(word: &ExploreCell<u32>, seen: u32, end: Option<Ps>, movable: bool, at: At) -> Woken {
    let (e, mutation) = word.begin(Op::Park, Ordering::Relaxed, Ordering::Relaxed, at);
    if word.value.get() != seen && mutation != Some(Mutation::NoCompare) {
        return Woken::Maybe;
    }
    if end.is_some_and(|end| end <= e.now) {
        return Woken::TimedOut;
    }
    match block(Wait::Sleeps { movable }, word.address(), end, at) {
        Ended::Woken => Woken::Maybe,
        Ended::TimedOut => Woken::TimedOut,
    }
}

fn wake(word: usize, count: u32, moved: bool, at: At) -> u32 {
    let e = point(at);
    let me = e.me();
    let x = explorer(e);
    x.note(at, Op::Unpark, Ordering::Relaxed, Ordering::Relaxed);
    if x.mutation(at) == Some(Mutation::NoWake) {
        return 0;
    }
    x.record(me, "wakes", word, Some(count.into()), at);
    x.wake(word, count, moved)
}

impl Platform for Explored {
    type Word = ExploreCell<u32>;
    type Ptr<T> = ExploreCell<*mut T>;
    type Deadline = Ps;

    #[track_caller]
    fn spin_until(word: &Self::Word, order: Ordering, done: impl Fn(u32) -> bool) -> u32 {
        word.wait(order, None, Location::caller(), done)
    }

    #[track_caller]
    fn spin_until_ptr<T>(
        ptr: &Self::Ptr<T>,
        order: Ordering,
        done: impl Fn(*mut T) -> bool,
    ) -> *mut T {
        ptr.wait(order, None, Location::caller(), done)
    }

    #[track_caller]
    fn spin_for(word: &Self::Word, order: Ordering, ns: u32, done: impl FnMut(u32) -> bool) -> u32 {
        let end = in_ns(ns);
        word.wait(order, Some(end), Location::caller(), done)
    }

    #[track_caller]
    fn pause(ns: u32) {
        block(Wait::Pauses, 0, Some(in_ns(ns)), Location::caller());
    }

    #[track_caller]
    fn park(word: &Self::Word, seen: u32, deadline: Option<Ps>) -> Woken {
        sleep(word, seen, deadline, false, Location::caller())
    }

    #[track_caller]
    fn unpark(word: *const Self::Word, count: u32) {
        wake(word.addr(), count, false, Location::caller());
    }

    fn now() -> u64 {
        engine().now / 1000
    }

    fn after(ns: u32) -> Ps {
        in_ns(ns)
    }

    fn sooner(one: Ps, other: Ps) -> Ps {
        one.min(other)
    }

    fn place() -> Place {
        let e = engine();
        let me = e.me();
        let class = explorer(e).class(me);
        Place { cpu: me, class: Class(class), domain: class.into() }
    }

    fn cpus() -> u32 {
        current().map_or(1, |e| explorer(e).cpus)
    }

    const LINE: usize = size_of::<MemoryLine>();

    fn take_line() -> *mut u8 {
        let e = current().expect("locks live on a machine");
        explorer(e).lines_out += 1;
        explorer(e).memory()
    }

    unsafe fn give_line(_line: *mut u8) {
        let e = current().expect("locks live on a machine");
        explorer(e).lines_out -= 1;
    }
}

impl Requeue for Explored {
    #[track_caller]
    fn park_movable(word: &Self::Word, seen: u32, deadline: Option<Ps>) -> Woken {
        sleep(word, seen, deadline, true, Location::caller())
    }

    #[track_caller]
    fn unpark_moved(word: *const Self::Word, count: u32) -> u32 {
        wake(word.addr(), count, true, Location::caller())
    }

    #[track_caller]
    fn requeue(from: *const Self::Word, seen: u32, to: *const Self::Word, count: u32) -> u32 {
        let e = point(Location::caller());
        // SAFETY: callers pass a live word.
        if unsafe { (*from).value.get() } != seen {
            return 0;
        }
        explorer(e).requeue(from.addr(), to.addr(), count)
    }
}

impl Learning for Explored {
    fn site() -> u32 {
        engine().me()
    }

    fn speed(class: Class) -> u32 {
        FULL_SPEED >> class.0.min(8)
    }

    fn memo<R>(_: usize, look: impl FnOnce(&Memo<Self>) -> R) -> Option<R> {
        let e = current().filter(|_| inside().is_some())?;
        let memo = std::ptr::from_ref(&explorer(e).memo);
        // SAFETY: as above.
        Some(look(unsafe { &*memo }))
    }
}

impl Doors for Explored {
    fn door<R>(cluster: u16, _: usize, look: impl FnOnce(&Door<Self>) -> R) -> Option<R> {
        let e = current().filter(|_| inside().is_some())?;
        let door = std::ptr::from_ref(explorer(e).doors.get(usize::from(cluster))?);
        // SAFETY: the machine's doors stay where they are until it ends.
        Some(look(unsafe { &*door }))
    }
}

impl ReaderTable for Explored {
    const ROWS: usize = 2;
    const ROW: usize = 1;

    fn shown<R>(slot: usize, look: impl FnOnce(&ExploreCell<*mut u8>) -> R) -> Option<R> {
        let e = current().filter(|_| inside().is_some())?;
        let slot = std::ptr::from_ref(explorer(e).shown.get(slot)?);
        // SAFETY: the machine's table stays where it is until it ends.
        Some(look(unsafe { &*slot }))
    }

    fn departures<R>(look: impl FnOnce(&ExploreCell<u32>) -> R) -> Option<R> {
        let e = current().filter(|_| inside().is_some())?;
        let word = std::ptr::from_ref(&explorer(e).departures);
        // SAFETY: as above.
        Some(look(unsafe { &*word }))
    }
}

impl Programmable for Explored {
    fn hooks(_: u32) -> u32 {
        explorer(engine()).adversary.hooks()
    }

    fn ask(_: u32, hook: Hook, _: &Context) -> u64 {
        explorer(engine()).adversary.answer(hook)
    }
}

impl Priorities for Explored {
    fn is_urgent(_: u64) -> bool {
        let e = engine();
        let me = e.me();
        explorer(e).urgent & 1 << me != 0
    }

    #[track_caller]
    fn park_urgent(word: &Self::Word, seen: u32, deadline: Option<Ps>) -> Woken {
        sleep(word, seen, deadline, true, Location::caller())
    }

    fn urge(word: *const Self::Word) {
        explorer(engine()).urged = word.addr();
    }

    fn urged() -> *const Self::Word {
        std::ptr::without_provenance(explorer(engine()).urged)
    }

    fn has_looked(word: *const Self::Word) {
        let urged = &mut explorer(engine()).urged;
        *urged = if *urged == word.addr() { 0 } else { *urged };
    }
}

impl Publishing for Explored {
    #[track_caller]
    fn publish(word: &Self::Word, value: u32) {
        word.store(value, Ordering::Relaxed);
        let e = engine();
        if explorer(e).draw(0, 7) == 0 {
            // It loses its CPU for a time slice, and others may, too: now they seem to be preempted.
            e.now += SLICE;
        }
    }
}

impl Monitored for Explored {
    fn critical(_: bool) {}

    fn is_preempted() -> bool {
        explorer(engine()).draw(0, 2) == 0 // it changes at any time
    }
}

impl Unique for Explored {
    fn unique() -> usize {
        let e = engine();
        let (me, numbers) = (e.me() as usize, &mut explorer(e).numbers);
        *numbers += 1;
        numbered(me, THREADS, *numbers)
    }
}

// SAFETY: threads are counted, and the numbers aren't used again.
unsafe impl Numbered for Explored {
    fn number() -> usize {
        inside().map_or(1, |e| e.me() as usize + 2)
    }
}

impl Undisturbed for Explored {
    fn undisturbed<R>(run: impl FnOnce() -> R) -> Option<R> {
        Some(run()) // nothing is torn away here
    }
}

impl Stages for Explored {
    fn reached(stage: Stage) {
        engine().reached(stage);
    }
}
