//! What a lock protects in a schedule: data that are read, modified and written.

use super::explorer::{Wait, block, explorer, point};
use crate::check::Violation;
use crate::engine::{engine, fail};
use crate::order::Stamp;
use std::cell::Cell;
use std::panic::Location;

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
