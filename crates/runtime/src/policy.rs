//! The table of locks: what a mutex's place means in this process.
//!
//! Places 1 to 30 are filled by our constructor from LOCKWRIGHT_LOCK (place 1) and LOCKWRIGHT_RULES; 31 is what runs
//! before that: the front lock `auto`, as for two CPUs. (How a mutex gets its place: `posix::places` of the locks.)

use crate::layout::Here;
use core::cell::UnsafeCell;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{Acquire, Release};
use lockwright_locks::amp::standby::{WINDOW_MAX_NS, Waiting};
use lockwright_locks::front::{self, Tuning, Window};
use lockwright_locks::posix::{self, PLACE_MAX, UNDECIDED};
use lockwright_native::Native;

/// A front lock's rule, on this machine.
pub(crate) type Front = posix::Front<Native>;
/// What a mutex does with a thread that has to wait.
pub(crate) type How = posix::How<Here>;
/// A lock and its tuning.
pub(crate) type Policy = posix::Policy<Here>;

/// Place 31.
static EARLY: Policy = Policy::new(
    How::Front(Front::of::<front::barging::Lock>()),
    Tuning {
        spin_ns: 5_000,
        spinners: 1,
        bypass: 63,
        batch_ns: 0,
        cpus: 2,
        herd: 8,
        window_ns: WINDOW_MAX_NS,
        window: Window::Fixed,
        waiting: Waiting::Auto,
        era: 0,
    },
);
const EARLY_PLACE: u32 = PLACE_MAX;
const DEFAULT_PLACE: u32 = 1;
/// Places that rules may use, 1 to 30.
pub(crate) const PLACES: usize = 31;

struct Table(UnsafeCell<[Policy; PLACES]>);
// SAFETY: written by the constructor, once, before READY; read after it.
unsafe impl Sync for Table {}
static TABLE: Table = Table(UnsafeCell::new([EARLY; PLACES]));
static READY: AtomicBool = AtomicBool::new(false);

/// Fills the table; place 1 is the default.
///
/// # Safety
/// Called once, by the constructor.
pub(crate) unsafe fn publish(policies: &[Policy]) {
    // SAFETY: nobody reads before READY.
    let table = unsafe { &mut *TABLE.0.get() };
    for (place, policy) in table[1..].iter_mut().zip(policies) {
        *place = *policy;
    }
    // ORDERING: Release, pairs with the Acquire in `at`: the table is filled.
    READY.store(true, Release);
}

/// What is at a place.
pub(crate) fn at(place: u32) -> &'static Policy {
    // ORDERING: Acquire, pairs with `publish`.
    if place == EARLY_PLACE || !READY.load(Acquire) {
        return &EARLY;
    }
    // SAFETY: READY: nobody writes any more. `place` is below 31: five bits, and not 31.
    let table = unsafe { &*TABLE.0.get() };
    &table[if place == UNDECIDED { DEFAULT_PLACE } else { place } as usize]
}

/// The place for a mutex that is contended for the first time; `rule`: which one its rules say, if any does.
pub(crate) fn choose(rule: impl FnOnce() -> Option<u32>) -> u32 {
    // ORDERING: Acquire, pairs with `publish`.
    if READY.load(Acquire) { rule().unwrap_or(DEFAULT_PLACE) } else { EARLY_PLACE }
}
