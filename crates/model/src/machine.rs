//! The machine that a lock runs on inside a model checker.
//!
//! The checker provides threads, atomics, and the values that reads may return. We add waiting: a thread that waits is taken
//! out of the exploration until something happens that may end its wait. So a wait is a few steps, not a loop:
//!
//! | a thread that | waits until |
//! |---|---|
//! | spins on a word | somebody changes the word |
//! | pauses without having seen anything new since its last pause | somebody changes any word |
//! | sleeps on a word | somebody wakes or requeues it by address; if it has a deadline, [`tick`] |
//!
//! A pause, or a nap with a length of its own, also ends when no other thread can go on: time passes. But it does so only a few
//! times: if a thread only waits for time, and never sees what it waits for, that is still a deadlock.
//!
//! Rules that keep this sound:
//! 1. Looking, finding nothing and starting to wait is one step; changing a word and ending waits is one step. The
//!    atomic operation comes first in each, so the checker orders them as it orders any two operations on a word.
//! 2. A read may return an old value. Before a thread waits because of an old value, it reads the newest one, by an
//!    operation that writes the same value again.
//! 3. Waiting and waking add no happens-before (so we use neither loom's `park` nor its mutexes): a lock that needs
//!    one has to get it by its orderings.
//! 4. A word ends with its owner. Later accesses panic, and so do unordered ones (if the checker tracks order).
//! 5. If all threads wait, that is a deadlock, and the report names what each of them waits for.

mod cell;
mod world;

pub use cell::{Cell, Into64, ModelPtr, ModelWord};
pub use world::{
    begin, end, join, lay_table, may_lose_lines, number, print_log, spawn, tick, torn,
};

use crate::checker::Checker;
use cell::from_address;
use lockwright_platform::hooks::{Context, Hook};
use lockwright_platform::{
    Class, Doors, Learning, Numbered, Ordering, Place, Platform, Priorities, Programmable,
    Publishing, ReaderTable, Requeue, Stages, Undisturbed, Unique, Woken, numbered,
};
use std::marker::PhantomData;
use std::sync::atomic::Ordering::Relaxed;
use world::{Reason, enter_kernel, log, sleep, time_passed, wait, world};

/// A bounded spin that finds nothing takes this many times as long as asked, as if its thread had been preempted. So a wait by the
/// clock takes only a few looks.
const LOOK_TAKES: u64 = 64;

/// A machine: `C` explores; a bounded spin looks `SPINS` times more than once.
#[derive(Debug)]
pub struct Machine<C, const SPINS: usize>(PhantomData<fn(C)>);

/// When a timed wait ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deadline {
    /// Not in this model.
    Never,
    /// At the [`tick`], which may come at any moment.
    Soon,
    /// After a while: at the tick, or when no thread can go on.
    Nap,
}

/// What the policy in each slot answers; slot 0 has none.
pub const ADVERSARIES: [&str; 4] = ["nothing", "0", "the largest", "all by turns"];

/// Slots of the table in which readers show what they hold.
const SLOTS: usize = 2;

/// The model machine has big and little cores. Of every three threads, one runs on a big core, one on a little core, and one
/// moves from a little core to a big one after it has asked twice.
fn class_of(thread: u32, asked: u32) -> Class {
    match thread % 3 {
        1 => Class(1),
        2 if asked <= 2 => Class(1),
        _ => Class::BIG,
    }
}

/// A line of memory, larger than a real one, because the checkers' words are.
#[repr(C, align(128))]
struct MemoryLine([u8; 2048]);

impl<C: Checker, const SPINS: usize> Platform for Machine<C, SPINS> {
    type Word = ModelWord<C>;
    type Ptr<T> = ModelPtr<C, T>;
    type Deadline = Deadline;

    fn spin_until(word: &Self::Word, order: Ordering, done: impl Fn(u32) -> bool) -> u32 {
        word.spin(order, done)
    }

    fn spin_until_ptr<T>(
        ptr: &Self::Ptr<T>,
        order: Ordering,
        done: impl Fn(*mut T) -> bool,
    ) -> *mut T {
        from_address(ptr.cell.spin(order, |address| done(from_address(address))))
    }

    fn spin_for(
        word: &Self::Word,
        order: Ordering,
        ns: u32,
        mut done: impl FnMut(u32) -> bool,
    ) -> u32 {
        let mut value = word.read(order);
        for _ in 0..SPINS {
            if done(value) {
                return value;
            }
            value = word.read(order);
        }
        if !done(value) {
            world(|w| w.looked_ns += LOOK_TAKES * u64::from(ns));
        }
        value
    }

    fn pause(_ns: u32) {
        let me = C::thread();
        let nothing_new = world(|w| {
            let changes = w.changes;
            let me = w.pausing.entry(me).or_default();
            !me.read_old_value && me.seen == changes
        });
        if nothing_new {
            // It would do the same again, and see the same.
            wait::<C>(Reason::Pauses, 0, None, false);
        }
        time_passed::<C>();
    }

    fn park(word: &Self::Word, seen: u32, deadline: Option<Deadline>) -> Woken {
        sleep::<C>(word, seen, deadline, false)
    }

    fn unpark(word: *const Self::Word, count: u32) {
        enter_kernel::<C>();
        log::<C>("unpark", word.addr(), count.into());
        world(|w| w.wake(word.addr(), count, |_| true));
    }

    fn now() -> u64 {
        world(|w| w.changes + w.looked_ns)
    }

    fn after(_: u32) -> Deadline {
        Deadline::Nap
    }

    fn sooner(one: Deadline, other: Deadline) -> Deadline {
        // In this order: a nap ends whenever the others do, and besides.
        let all = [Deadline::Nap, Deadline::Soon, Deadline::Never];
        all.into_iter().find(|deadline| [one, other].contains(deadline)).unwrap_or(one)
    }

    fn place() -> Place {
        let me = C::thread();
        let class = world(|w| {
            let (number, asked) = w.places.entry(me).or_default(); // the first thread is number 0
            *asked += 1;
            class_of(*number, *asked)
        });
        Place { cpu: 0, class, domain: class.0.into() }
    }

    fn cpus() -> u32 {
        2
    }

    const LINE: usize = 2048;

    fn take_line() -> *mut u8 {
        world(|w| w.lines_out += 1);
        // Never freed: lines must stay readable.
        Box::into_raw(Box::new(MemoryLine([0; 2048]))).cast()
    }

    unsafe fn give_line(_line: *mut u8) {
        world(|w| w.lines_out -= 1);
    }
}

impl<C: Checker, const SPINS: usize> Requeue for Machine<C, SPINS> {
    fn park_movable(word: &Self::Word, seen: u32, deadline: Option<Deadline>) -> Woken {
        sleep::<C>(word, seen, deadline, true)
    }

    fn unpark_moved(word: *const Self::Word, count: u32) -> u32 {
        enter_kernel::<C>();
        log::<C>("unpark moved", word.addr(), count.into());
        world(|w| w.wake(word.addr(), count, |waiter| waiter.movable))
    }

    fn requeue(from: *const Self::Word, seen: u32, to: *const Self::Word, count: u32) -> u32 {
        enter_kernel::<C>();
        log::<C>("requeue from", from.addr(), seen.into());
        log::<C>("requeue to", to.addr(), count.into());
        world(|w| {
            let mut moved = 0;
            for waiter in &mut w.waiters {
                // Sleepers with a deadline move, too, and keep it.
                let sleeps = matches!(waiter.reason, Reason::Sleeps { .. } | Reason::Naps);
                if !sleeps || waiter.address != from.addr() || moved == count {
                    continue;
                }
                if waiter.newest.as_ref().is_some_and(|v| v.load(Relaxed) != u64::from(seen)) {
                    return moved;
                }
                waiter.address = to.addr();
                waiter.newest = None; // now it sleeps on another word, which may no longer exist
                moved += 1;
            }
            moved
        })
    }
}

impl<C: Checker, const SPINS: usize> Learning for Machine<C, SPINS> {}

impl<C: Checker, const SPINS: usize> Doors for Machine<C, SPINS> {}

impl<C: Checker, const SPINS: usize> ReaderTable for Machine<C, SPINS> {
    const ROWS: usize = 1;
    const ROW: usize = SLOTS;

    fn shown<R>(slot: usize, look: impl FnOnce(&Self::Ptr<u8>) -> R) -> Option<R> {
        let table = world(|w| w.table).filter(|_| slot < SLOTS)?;
        // SAFETY: `lay_table` has put it there in this execution, so for this checker.
        Some(look(unsafe { &*std::ptr::with_exposed_provenance::<Self::Ptr<u8>>(table).add(slot) }))
    }

    fn departures<R>(look: impl FnOnce(&Self::Word) -> R) -> Option<R> {
        let word = world(|w| w.departures)?;
        // SAFETY: as above.
        Some(look(unsafe { &*std::ptr::with_exposed_provenance::<Self::Word>(word) }))
    }
}

impl<C: Checker, const SPINS: usize> Programmable for Machine<C, SPINS> {
    fn hooks(policy: u32) -> u32 {
        if policy == 0 { 0 } else { u32::MAX }
    }

    fn ask(policy: u32, hook: Hook, _: &Context) -> u64 {
        let asked = world(|w| {
            w.asked += 1;
            w.asked
        });
        match policy {
            1 => 0,
            _ if hook == Hook::RwBias => 1, // readers use the table as soon as they may
            2 => hook.largest(),
            _ => asked % (hook.largest().min(100) + 1),
        }
    }
}

impl<C: Checker, const SPINS: usize> Publishing for Machine<C, SPINS> {
    fn publish(word: &ModelWord<C>, value: u32) {
        word.publish(value);
    }
}

// SAFETY: threads are counted, and the numbers aren't used again.
unsafe impl<C: Checker, const SPINS: usize> Numbered for Machine<C, SPINS> {
    fn number() -> usize {
        number::<C>() as usize + 1
    }
}

impl<C: Checker, const SPINS: usize> Priorities for Machine<C, SPINS> {}

impl<C: Checker, const SPINS: usize> Stages for Machine<C, SPINS> {}

impl<C: Checker, const SPINS: usize> Unique for Machine<C, SPINS> {
    fn unique() -> usize {
        world(|w| {
            w.numbers += 1;
            numbered(0, 1, w.numbers)
        })
    }
}

impl<C: Checker, const SPINS: usize> Undisturbed for Machine<C, SPINS> {
    fn undisturbed<R>(run: impl FnOnce() -> R) -> Option<R> {
        // Each second time the machine can't promise it.
        let may = world(|w| {
            w.promises = !w.promises;
            w.promises
        });
        may.then(|| world::untorn::<C, R>(run))
    }
}
