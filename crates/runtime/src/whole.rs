//! The textbook locks under the preload: 16 bytes of the mutex are the lock, and who holds it may compete
//! for word 0. So trylock, timed locks and condvars need to know word 0 only.

use lockwright_locks::catalog::{Entry, WholeVisitor, visit_whole};
use lockwright_locks::front::{FREE, Parts, Tuning, WAITED, side, try_take};
use lockwright_native::{AtomicAddress, Native};
use lockwright_platform::Ordering::Relaxed;
use lockwright_platform::{InPlace, Platform, RawLock, Word};

/// Acquires word 0, queueing in a textbook lock.
pub(crate) type Acquire = fn(Parts<'_, Native>, &Tuning);

struct Find {
    id: &'static str,
    found: Option<Acquire>,
}

impl WholeVisitor<Native> for Find {
    fn visit<L: RawLock<Native> + InPlace>(&mut self, entry: &'static Entry) {
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

fn acquire<L: RawLock<Native> + InPlace>(parts: Parts<'_, Native>, tuning: &Tuning) {
    const { assert!(size_of::<L>() <= 16 && align_of::<L>() <= 8 && !core::mem::needs_drop::<L>()) };
    let memory: *const AtomicAddress<_> = parts.tail;
    // SAFETY: `tail` and `head` are 16 adjacent bytes that begin zeroed (an unlocked L, by InPlace) and
    // that nobody uses otherwise: this mutex has no line.
    let lock = unsafe { &*memory.cast::<L>() };
    let mut node = L::Node::default();
    // SAFETY: the node stays here until `unlock` returns.
    unsafe {
        // A hint, to those who reorder: the lock is free when the word is.
        let is_free = || parts.word.load(Relaxed) == FREE;
        lock.lock_in_front(&raw mut node, tuning.window_ns, is_free);
    }
    Native::spin_until(parts.word, Relaxed, |value| {
        value == FREE && try_take::<Native>(parts.word)
    });
    // As a front lock's head does (front/mod.rs, invariant 2): those who sleep on the word get their wake.
    if parts.side.load(Relaxed) & side::ON_WORD != 0 {
        // Relaxed: we hold it; an RMW, so that a sleeper's release sequence goes on.
        parts.word.swap(WAITED, Relaxed);
    }
    // SAFETY: held since above, with this node.
    unsafe { lock.unlock(&raw mut node) };
}
