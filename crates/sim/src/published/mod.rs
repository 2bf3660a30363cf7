//! Locks as published that only simulated machines have.

mod hooked;
mod mutexee;

use crate::lock::LockSpec;
use lockwright_locks::entry::Entry;
use lockwright_platform::{Machine, TryLock};

/// All of them.
pub(crate) static ENTRIES: [&Entry; 2] = [&mutexee::ENTRY, &hooked::ENTRY];

/// The entry called `id`.
pub(crate) fn find(id: &str) -> Option<&'static Entry> {
    ENTRIES.into_iter().find(|entry| entry.id == id)
}

/// Gets an unlocked lock.
pub(crate) trait Visitor<P: Machine> {
    /// What it makes of the lock.
    type Made;
    fn visit<L: TryLock<P> + 'static>(self, lock: L) -> Self::Made;
}

/// Shows an unlocked lock with these options to `visitor`; `None`: the catalogue has it.
pub(crate) fn make<P: Machine, V: Visitor<P>>(spec: &LockSpec, visitor: V) -> Option<V::Made> {
    let is = |entry: &'static Entry| spec.entry().is_some_and(|own| std::ptr::eq(own, entry));
    if is(&mutexee::ENTRY) {
        return Some(visitor.visit(mutexee::Mutexee::<P>::by(spec)));
    }
    is(&hooked::ENTRY)
        .then(|| visitor.visit(<hooked::Lock<P> as lockwright_platform::Sections<P>>::new()))
}
