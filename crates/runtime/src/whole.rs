//! The textbook locks under the preload. The lock lies in 8 bytes of the mutex that nothing else uses, and its holder
//! may compete for word 0. So trylock, timed locks and condvars need to know only word 0.

use crate::layout::Mutex;
use lockwright_locks::catalog::{WholeVisitor, visit_whole};
use lockwright_locks::entry::Entry;
use lockwright_locks::front::Tuning;
use lockwright_locks::posix::queue_in_front;
use lockwright_native::Native;
use lockwright_platform::{InPlace, TryLock};

/// Acquires word 0, queueing in a textbook lock.
pub(crate) type Acquire = fn(&Mutex, &Tuning);

struct Find {
    id: &'static str,
    found: Option<Acquire>,
}

impl WholeVisitor<Native> for Find {
    fn visit<L: TryLock<Native> + InPlace>(&mut self, entry: &'static Entry) {
        if entry.id == self.id {
            self.found = Some(acquire::<L>);
        }
    }
}

/// The textbook lock called `id`.
pub(crate) fn find(id: &'static str) -> Option<Acquire> {
    let mut find = Find { id, found: None };
    visit_whole::<Native>(&mut find);
    find.found
}

fn acquire<L: TryLock<Native> + InPlace>(mutex: &Mutex, tuning: &Tuning) {
    const { assert!(size_of::<L>() <= 8 && align_of::<L>() <= 8 && !core::mem::needs_drop::<L>()) };
    // SAFETY: 8 aligned bytes that begin zeroed (an unlocked L, by InPlace). They are an L forever, since a mutex's
    // textbook lock is chosen once.
    let lock = unsafe { &*mutex.room.0.get().cast::<L>() };
    queue_in_front(mutex, lock, tuning);
}
