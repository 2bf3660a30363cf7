//! What policies are told about the calling thread, and what their helpers ask of the machine.

use super::boost;
use super::cells;
use super::mailbox::{PID, lockwright_programs};
use crate::thread;
use core::mem::transmute;
use core::ptr::null_mut;
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use lockwright_contract::programs::calls::{self, MachineHelpers};
use lockwright_contract::programs::env::{Env, HelperFn};
use lockwright_contract::programs::helpers;
use lockwright_contract::programs::mailbox::{Tag, tag_places};
use lockwright_native::futex::{self, Clock};
use lockwright_native::place;
use lockwright_platform::hooks::{IN_EPOCH, Node};

/// The SLO of the calling thread's innermost epoch, ns; 0: not known. `None`: it is in no epoch.
pub(super) type SloNow = fn() -> Option<u64>;

#[unsafe(link_section = ".lockwright.start")]
static SLO_NOW: AtomicPtr<()> = AtomicPtr::new(null_mut());

/// Epochs are known by this.
pub(super) fn knows_epochs(slo_now: SloNow) {
    // ORDERING: Release, pairs with the Acquire in `slo_now`.
    SLO_NOW.store(slo_now as *mut (), Release);
}

fn slo_now() -> Option<u64> {
    // ORDERING: Acquire, pairs with the Release in `knows_epochs`.
    let known = SLO_NOW.load(Acquire);
    // SAFETY: `knows_epochs` got it as a function of this type.
    (!known.is_null()).then(|| unsafe { transmute::<*mut (), SloNow>(known)() })?
}

/// Completes the description of the calling thread.
pub(super) fn describe(node: &mut Node) {
    node.tid = thread::id();
    node.window_ns = thread::window_ns();
    if let Some(slo_ns) = slo_now() {
        node.flags |= IN_EPOCH;
        node.slo_ns = slo_ns;
    }
    node.tag = tag(node.tid);
    if let Some(cell) = cells::own() {
        node.prio = boost::own_prio(cell);
        node.held_locks = cell.held.load(Relaxed); // own thread only, as the next
        node.cs_total_ns = cell.held_ns.load(Relaxed);
    }
}

/// What a thread has been tagged with; 0: nothing.
fn tag(tid: u32) -> u64 {
    let mailbox = &lockwright_programs;
    // Tags are hints: one that is just being set may not be seen yet.
    if mailbox.tagged.load(Relaxed) == 0 {
        return 0;
    }
    let places = tag_places(tid).filter_map(|at| mailbox.tags.0.get(at));
    let mut own = places.filter(|place| place.tid.load(Relaxed) == tid);
    own.next().map_or(0, |place| place.tag.load(Relaxed))
}

/// The calling thread tags itself; 0: not any more. `false`: too many threads have tags.
pub(super) fn set_tag(tag: u64) -> bool {
    let (mailbox, tid) = (&lockwright_programs, thread::id());
    let places = || tag_places(tid).filter_map(|at| mailbox.tags.0.get(at));
    // Hints, all of it.
    let take = |place: &Tag, from| place.tid.compare_exchange(from, tid, Relaxed, Relaxed).is_ok();
    let is_left = |place: &Tag| {
        let owner = place.tid.load(Relaxed);
        cells::is_gone(owner) && take(place, owner)
    };
    let known = places().find(|place| place.tid.load(Relaxed) == tid);
    if known.is_none() && tag == 0 {
        return true;
    }
    let place = known
        .or_else(|| places().find(|place| take(place, 0)))
        .or_else(|| places().find(|place| is_left(place)));
    let Some(place) = place else { return false };
    place.tag.store(tag, Relaxed);
    mailbox.tagged.store(1, Relaxed);
    true
}

/// The priority of a thread, as it was last read; 0 if it has not asked a policy.
fn prio(tid: u32) -> i32 {
    cells::of(tid).map_or(0, |cell| cell.prio.load(Relaxed)) // a hint
}

/// All helpers.
pub(super) const HELPERS: [HelperFn; helpers::HELPERS] = {
    // The names of what the helpers get: nothing, but for two.
    unsafe extern "C" fn now(_: u64, _: u64, _: u64, _: u64, _: u64, _: &Env) -> u64 {
        futex::now(Clock::Monotonic)
    }
    unsafe extern "C" fn cpu(_: u64, _: u64, _: u64, _: u64, _: u64, _: &Env) -> u64 {
        place::cpu().into()
    }
    unsafe extern "C" fn pid_tgid(_: u64, _: u64, _: u64, _: u64, _: u64, _: &Env) -> u64 {
        u64::from(PID.load(Relaxed)) << 32 | u64::from(thread::id()) // changes only in a child, which has one thread
    }
    unsafe extern "C" fn numa(_: u64, _: u64, _: u64, _: u64, _: u64, _: &Env) -> u64 {
        place::here().domain.into()
    }
    unsafe extern "C" fn class(_: u64, _: u64, _: u64, _: u64, _: u64, _: &Env) -> u64 {
        place::among_usable().class.0.into()
    }
    unsafe extern "C" fn tag_of(tid: u64, _: u64, _: u64, _: u64, _: u64, _: &Env) -> u64 {
        tag(tid as u32)
    }
    unsafe extern "C" fn prio_of(tid: u64, _: u64, _: u64, _: u64, _: u64, _: &Env) -> u64 {
        i64::from(prio(tid as u32)) as u64
    }
    calls::helpers(MachineHelpers { now, cpu, pid_tgid, numa, tag: tag_of, prio: prio_of, class })
};
