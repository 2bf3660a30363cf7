//! What a lock protects in a schedule: data that are read, modified and written.

use super::explorer::{Wait, block, explorer, point};
use crate::check::Violation;
use crate::engine::{Engine, Tid, engine, fail};
use crate::order::Stamp;
use std::cell::Cell;
use std::panic::Location;
use std::rc::Rc;

/// The data.
#[derive(Default)]
pub(super) struct Protected {
    stamp: Cell<Option<Stamp>>,
    value: Cell<u64>,
    sections: Cell<u64>,
}

impl Protected {
    /// Reads, modifies and writes; `pace`, 0 to 7, says how fast.
    pub(super) fn section(&self, pace: u32) {
        let e = engine();
        let me = e.me();
        let last = self.stamp.get();
        let Some(stamp) = e.orders.write(me, last) else {
            let first = last.map_or_else(String::new, |last| e.name(last.thread()));
            fail(Violation::Race { at_ns: e.now / 1000, first, second: e.name(me) });
        };
        self.stamp.set(Some(stamp));
        self.sections.set(self.sections.get() + 1);
        let seen = self.value.get();
        explorer(e).record(me, "holds", 0, None, Location::caller());
        match pace {
            0 => pause(2_000),
            1..4 => drop(point(Location::caller())),
            _ => {}
        }
        self.value.set(seen + 1); // not += 1: an update in between must get lost, as on a real machine
    }

    /// All threads have ended: is everything there?
    pub(super) fn check(&self) {
        let (expected, updates) = (self.sections.get(), self.value.get());
        if updates != expected {
            fail(Violation::Lost { expected, missing: expected - updates });
        }
    }
}

/// Makes threads, each of which does `body` in the world, given its number.
pub(super) fn spawn<W: 'static>(
    e: &mut Engine,
    world: &Rc<W>,
    threads: u32,
    body: impl Fn(&W, u32) + Copy + 'static,
) {
    for number in 0..threads {
        let world = Rc::clone(world);
        e.spawn(format!("thread {number}"), None, Box::new(move || body(&world, number)));
    }
}

/// A thread has ended. If it is the last of `threads`, returns its id; what the others did then happened before it.
pub(super) fn is_last(finished: &Cell<u32>, threads: u32) -> Option<Tid> {
    finished.set(finished.get() + 1);
    (finished.get() == threads).then(|| {
        let e = engine();
        e.orders.join_all(e.me());
        e.me()
    })
}

/// Lets time pass.
pub(super) fn pause(ns: u64) {
    let end = engine().now + ns * 1000;
    block(Wait::Pauses, 0, Some(end), Location::caller());
}

/// All lines of the machine's pool have been returned.
pub(super) fn check_lines() {
    let lines = explorer(engine()).lines_out;
    if lines != 0 {
        fail(Violation::Leaked { lines });
    }
}
