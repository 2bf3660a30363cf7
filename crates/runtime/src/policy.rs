//! The table of locks: what a mutex's place means in this process, and which rules give a mutex its place.
//!
//! Place 1 is for the default (LOCKWRIGHT_LOCK), and 2 to 30 are for rules. Place 31 is for mutexes that were contended before our
//! constructor ran: until then it means a barging lock tuned for two CPUs, and afterwards the default. (For how a mutex gets its
//! place, see `posix/contended.rs` of the locks.)
//!
//! A table never changes. While the program runs, `switch` may replace it as a whole, by writing one pointer. Readers may keep
//! a table for as long as they like, at no cost, because tables are never freed. Instead, the number of tables is
//! bounded ([`TABLES`]), and a table that was used before is used again. A grace period would cost a count in every contended
//! operation, and save only some kilobytes.

use crate::layout::Here;
use crate::rules::{DEFAULT_PLACE, Order, PLACES};
use core::sync::atomic::Ordering::{Acquire, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32};
use lockwright_contract::mailbox::TEXT;
use lockwright_locks::front::{self, Tuning};
use lockwright_locks::posix::{self, PLACE_MAX, UNDECIDED};
use lockwright_native::Native;

/// A front lock's rule, on this machine.
pub(crate) type Front = posix::Front<Native>;
/// What a mutex does with a thread that has to wait.
pub(crate) type How = posix::How<Here>;
/// A lock and its tuning.
pub(crate) type Policy = posix::Policy<Here>;

/// The lock that runs before the process has a table.
static EARLY: Policy = Policy {
    how: How::Front(Front::of::<front::barging::Lock>(|tuning| tuning)),
    tuning: Tuning { spin_ns: 5_000, spinners: 1, bypass: 63, budget_ns: 0, ..Tuning::for_any() },
};
const EARLY_PLACE: u32 = PLACE_MAX;
/// How many different tables a process can have.
pub(crate) const TABLES: usize = 512;

/// What each place means, and which rules lead there. What every program fills comes first, and takes two pages.
#[repr(C)]
pub(crate) struct Table {
    pub(crate) policies: [Policy; PLACES],
    /// Who goes first at the readers-writer locks with this place, and 1 more; 0: no rule for them leads there.
    pub(crate) preferences: [u8; PLACES],
    pub(crate) order: Order,
    pub(crate) len: usize,
    /// The table's text, see `mailbox`.
    pub(crate) text: [u8; TEXT],
}

impl Table {
    /// The table's text.
    pub(crate) fn words(&self) -> &[u8] {
        &self.text[..self.len]
    }
}

#[unsafe(link_section = ".lockwright.start")]
static CURRENT: AtomicPtr<Table> = AtomicPtr::new(core::ptr::null_mut());
/// Counts the changes after which mutexes choose anew.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// The table, once our constructor has filled one.
pub(crate) fn current() -> Option<&'static Table> {
    // ORDERING: Acquire, pairs with `publish`: the table is filled.
    let table = CURRENT.load(Acquire);
    // SAFETY: null, or a table that stays forever.
    unsafe { table.as_ref() }
}

/// From now on this is the table. Called by one thread at a time.
#[unsafe(link_section = ".lockwright.begin")]
pub(crate) fn publish(table: &'static Table) {
    let chooses_anew = current().is_some_and(|before| before.order != table.order);
    // ORDERING: Release, pairs with `current`: the table is filled.
    CURRENT.store(core::ptr::from_ref(table).cast_mut(), Release);
    if chooses_anew {
        self::choose_anew();
    }
}

/// As before our constructor ran: a test that takes locks makes a table.
#[cfg(test)]
pub(crate) fn forget() {
    // ORDERING: Release, pairs with `current`, like each store here; there is no table to see.
    CURRENT.store(core::ptr::null_mut(), Release);
}

/// Mutexes choose their places anew.
pub(crate) fn choose_anew() {
    // ORDERING: Release, pairs with `generation`: a thread that sees the number chooses by the current table.
    GENERATION.fetch_add(1, Release);
}

/// See `Environment::generation`.
pub(crate) fn generation() -> u32 {
    // ORDERING: Acquire, pairs with `publish`.
    GENERATION.load(Acquire)
}

/// The policy at a place.
pub(crate) fn at(place: u32) -> &'static Policy {
    let Some(table) = current() else { return &EARLY };
    let place = if matches!(place, UNDECIDED | EARLY_PLACE) { DEFAULT_PLACE } else { place };
    // The place is below 31: five bits, and not 31.
    &table.policies[place as usize]
}

/// Does a lock of the current table ask the policy in this slot? Before there is a table, all that are loaded count.
pub(crate) fn asks(slot: u32) -> bool {
    current().is_none_or(|table| {
        let mut places = table.order.places().chain([DEFAULT_PLACE]);
        places.any(|place| table.policies[place as usize].tuning.policy == slot)
    })
}

/// The place for a mutex that is contended for the first time. `rule`: the place that a table's rules give it, if one applies.
pub(crate) fn choose(rule: impl FnOnce(&'static Order) -> Option<u32>) -> u32 {
    match current() {
        Some(table) => rule(&table.order).unwrap_or(DEFAULT_PLACE),
        None => EARLY_PLACE,
    }
}
