//! Locks as published that only simulated machines have.

mod flexguard;
mod hooked;
mod monitored;
mod mutexee;

use lockwright_locks::entry::Entry;
use lockwright_platform::{Machine, Sections, TryLock};
pub(crate) use monitored::Monitored;

/// All of them.
pub(crate) static ENTRIES: [&Entry; 3] = [&mutexee::ENTRY, &hooked::ENTRY, &flexguard::ENTRY];

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

/// Shows an unlocked lock of this entry to `visitor`; `value` is that of an option. `None`: the catalogue has it.
pub(crate) fn make<P: Monitored, V: Visitor<P>>(
    entry: &'static Entry,
    value: impl Fn(&str) -> Option<u32>,
    visitor: V,
) -> Option<V::Made> {
    if std::ptr::eq(entry, &raw const mutexee::ENTRY) {
        return Some(visitor.visit(mutexee::Mutexee::<P>::by(value)));
    }
    if std::ptr::eq(entry, &raw const flexguard::ENTRY) {
        return Some(visitor.visit(<flexguard::Lock<P> as Sections<P>>::new()));
    }
    let is_hooked = std::ptr::eq(entry, &raw const hooked::ENTRY);
    is_hooked.then(|| visitor.visit(<hooked::Lock<P> as Sections<P>>::new()))
}
