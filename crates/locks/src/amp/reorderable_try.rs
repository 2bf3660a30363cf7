//! Reorderable-try: a reorderable lock whose standby tries to take the lock, instead of joining its queue after a look.
//!
//! Our own change to LibASL's algorithm 1 (*Asymmetry-aware Scalable Locking*, PPoPP 2022; amp/reorderable.rs), over MCS: `asl-mcs-try`.
//! As published, a thread that finds the lock free joins the queue. If somebody was faster, it waits in the queue, with others behind it,
//! for a lock that was free a moment ago. Ours goes on standing by. And when it succeeds, the cache line travels once, not twice.
//!
//! ```text
//!   little core   try ── failed ── pause ── try ── failed ── pause ── ... ── window over: join the queue
//!                  └ held           └ moved to a big core: join the queue
//! ```
//!
//! How it waits is amp/standby.rs's: intervals stop doubling at 20 us, so that a lock that falls idle does not stay idle for half a
//! window, and a thread that finds itself on a big core joins the queue. Classes slower than the second look before they try.
//!
//! What it gains and loses (LibASL, Fig 8g: 8 threads, 2 lines, 0 to 120,000 NOPs between sections; simulated M1, 2026-12-01, median of 5
//! seeds). Where the lock is seldom contended, at 50,000 NOPs and more, `asl-mcs` has 0.98 to 0.99 of MCS's throughput, and this lock 1.00 to
//! 1.01; at no load is it slower than MCS. Where big cores saturate the lock, both are equal within 1.3 %. In between, little cores get the
//! lock more often, which may help or not: 1.05 of `asl-mcs` at 13,000 NOPs, 1.04 at 20,000, but 0.85 at 10,000 and 0.94 at 35,000.
//!
//! Invariants: those of amp/reorderable.rs, and
//! 1. An attempt that fails leaves no trace: the node is free, and nobody waits for the thread.

use super::reorderable::Standby;
use super::standby::{Waiting, at_once, stand_by};
use lockwright_platform::{Platform, Probe, TryLock};

/// A standby that tries.
#[derive(Debug)]
pub struct Tries;

impl Standby for Tries {
    unsafe fn stand_by<P: Platform, F: Probe<P> + TryLock<P>>(
        base: &F,
        node: *mut F::Node,
        window_ns: u32,
        is_free: impl Fn() -> bool,
    ) -> bool {
        if window_ns == 0 {
            return false;
        }
        let looks_first = P::place().class.0 > 1;
        let take = || {
            let may_be_free = is_free() && (!looks_first || base.is_free());
            // SAFETY: the caller's promise; an attempt that fails leaves the node free.
            may_be_free && unsafe { base.try_lock(node) }
        };
        take() || stand_by::<P>(window_ns, Waiting::Awake, at_once, take, || false, || true)
    }
}
