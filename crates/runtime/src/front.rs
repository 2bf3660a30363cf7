//! The front locks by name: their rule for arrivals, and their defaults.

use lockwright_locks::catalog::{Entry, FrontVisitor, visit_front};
use lockwright_locks::front::{Arrival, Front, Parts, Tuning};
use lockwright_native::Native;

/// Acquires word 0, waiting by the lock's rule.
pub(crate) type LockSlow = fn(Parts<'_, Native>, &Tuning);

/// A lock's own defaults, on top of what suits the machine.
pub(crate) type Defaults = fn(Tuning) -> Tuning;

struct Find {
    id: &'static str,
    found: Option<(LockSlow, Defaults)>,
}

impl FrontVisitor<Native> for Find {
    fn visit<L: Front<Native>>(&mut self, entry: &'static Entry) {
        if entry.id == self.id {
            self.found = Some((L::Rule::lock_slow, L::Rule::defaults));
        }
    }
}

/// The front lock called `id`.
pub(crate) fn find(id: &'static str) -> Option<(LockSlow, Defaults)> {
    let mut find = Find { id, found: None };
    visit_front::<Native>(&mut find);
    find.found
}
