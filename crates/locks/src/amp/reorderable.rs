//! Reorderable: any first-come-first-served lock, with a second way to acquire it.
//!
//! LibASL (*Asymmetry-aware Scalable Locking*, PPoPP 2022), section 3.2, algorithm 1: `lock_immediately` joins the base
//! lock's queue. `lock_reorder(window)` first stands by (amp/standby.rs) for up to `window` ns, in which threads that
//! come later may go first, and then joins. Unlock is the base lock's own.
//!
//! ```text
//!   big cores     lock_immediately ─────────────────┐
//!                                                   ▼
//!                                        base lock: tail ◄─ ... ◄─ holder
//!                                                   ▲
//!   little cores  lock_reorder ── standby, window ──┘     (no queue of its own: windows differ)
//! ```
//!
//! Our deviation: the paper's standby checks whether the lock is free, and joins the queue if it is. Ours tries to take
//! the lock, and goes on standing by if somebody was faster. So it does not wait in the queue, with others behind it, for a
//! lock that was free a moment ago. And when it succeeds, the cache line travels once, not twice. Simulated on an M1
//! (LibASL, Fig 8g): at least 0.97 of MCS on all cores at every load, compared with 0.86 for the paper's way. Classes slower
//! than the second look first, as published.
//!
//! Invariants:
//! 1. The base lock alone decides who holds the lock; standby only looks and tries.
//! 2. A window ends after 100 ms at the latest, and then the thread is in the base lock's queue. So it gets the
//!    lock if the base lock starves nobody.
//! 3. The window is a hint: others may arrive after its end, before the thread joins.

use super::standby::{Waiting, at_once, stand_by};
use crate::entry::Entry;
use lockwright_platform::{InPlace, Platform, Probe, RawLock, Sections, TryLock};

pub use super::standby::WINDOW_MAX_NS;

/// The catalogue's entry for the reorderable lock over `base`.
pub(crate) const fn over(base: Entry, id: &'static str) -> Entry {
    Entry {
        id,
        preset_of: Some(base.id),
        idea: "its base lock, but little cores stand by for their window before they join the line",
        source: "LibASL: Nian Liu et al., Asymmetry-aware Scalable Locking, PPoPP 2022, algorithms 1 and 3",
        order: "arrival among threads in line; little cores join the line after their window",
        stands_by: true,
        space: "as its base lock",
        delay: "a thread on a little core, by its window (the epoch's; 100 ms outside epochs); then as its base lock",
        advice: "to compare with the paper; in programs, use asl",
        ..base
    }
}

/// A lock of type `F`, with reordering. Adds no memory to it.
#[derive(Debug)]
#[repr(transparent)]
pub struct Reorderable<F> {
    base: F,
}

impl<F> Reorderable<F> {
    /// Joins the base lock's queue.
    ///
    /// # Safety
    /// As [`RawLock::lock`].
    #[inline]
    unsafe fn lock_immediately<P: Platform>(&self, node: *mut <F as Sections<P>>::Node)
    where
        F: RawLock<P>,
    {
        // SAFETY: the caller's promise.
        unsafe { self.base.lock(node) }
    }

    /// Lets others go first for up to `window_ns` nanoseconds (at most 100 ms), or until the lock is free (`is_free`
    /// must agree); then joins the base lock's queue. 0: as `lock_immediately`.
    ///
    /// # Safety
    /// As [`RawLock::lock`].
    unsafe fn lock_reorder<P: Platform>(
        &self,
        node: *mut <F as Sections<P>>::Node,
        window_ns: u32,
        is_free: impl Fn() -> bool,
    ) where
        F: Probe<P> + TryLock<P>,
    {
        if window_ns > 0 {
            let looks_first = P::place().class.0 > 1;
            let take = || {
                let may_be_free = is_free() && (!looks_first || self.base.is_free());
                // SAFETY: the caller's promise; an attempt that fails leaves the node free.
                may_be_free && unsafe { self.base.try_lock(node) }
            };
            if take() || stand_by::<P>(window_ns, Waiting::Awake, at_once, take, || false, || true)
            {
                return;
            }
        }
        // SAFETY: the caller's promise.
        unsafe { self.base.lock(node) }
    }
}

impl<P: Platform, F: Probe<P> + TryLock<P>> Sections<P> for Reorderable<F> {
    type Node = F::Node;

    fn new() -> Self {
        Self { base: F::new() }
    }

    lockwright_platform::held_sections!(P);
}

impl<P: Platform, F: Probe<P> + TryLock<P>> RawLock<P> for Reorderable<F> {
    #[inline]
    unsafe fn lock(&self, node: *mut F::Node) {
        // SAFETY: the caller's promise.
        unsafe { self.lock_in_front(node, WINDOW_MAX_NS, || true) }
    }

    /// Algorithm 3: the class of the core that runs us now decides.
    #[inline]
    unsafe fn lock_in_front(&self, node: *mut F::Node, window_ns: u32, is_free: impl Fn() -> bool) {
        if P::place().class.is_big() {
            // SAFETY: the caller's promise.
            unsafe { self.lock_immediately(node) }
        } else {
            // SAFETY: the caller's promise.
            unsafe { self.lock_reorder(node, window_ns, is_free) }
        }
    }

    #[inline]
    unsafe fn unlock(&self, node: *mut F::Node) {
        // SAFETY: the caller's promise.
        unsafe { self.base.unlock(node) }
    }
}

impl<P: Platform, F: Probe<P> + TryLock<P>> TryLock<P> for Reorderable<F> {
    #[inline]
    unsafe fn try_lock(&self, node: *mut F::Node) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.base.try_lock(node) }
    }
}

// SAFETY: it consists of the base lock alone.
unsafe impl<F: InPlace> InPlace for Reorderable<F> {}
