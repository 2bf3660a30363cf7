//! Reorderable: any lock with a line of waiters, with a second way to acquire it.
//!
//! LibASL: Nian Liu et al., *Asymmetry-aware Scalable Locking*, PPoPP 2022, section 3.2, algorithm 1. `lock_immediately` joins the
//! base lock's queue. `lock_reorder(window)` first looks whether the lock is free, and joins the queue if it is. If it isn't, it
//! stands by for up to `window` ns, in which threads that come later may go first. It looks now and then, at intervals that double.
//! When it finds the lock free, or when the window is over, it joins the base lock's queue. Unlock is the base lock's own.
//!
//! ```text
//!   big cores     lock_immediately ────────────────────────┐
//!                                                          ▼
//!                                               base lock: tail ◄─ ... ◄─ holder
//!                                                          ▲
//!   little cores  lock_reorder ──┬─┬──┬────┬──────── ... ──┘     (no queue of its own: windows differ)
//!                             look look look    free, or window over
//! ```
//!
//! As published, a thread that stands by never tries to take the lock, and one look that finds it free is enough. Only the window's end
//! limits the intervals, and a thread that moves to a big core goes on standing by. (`asl-mcs-try`, amp/reorderable_try.rs, differs in
//! these points.) This is the paper's non-blocking version; `asl-pthread` has the blocking one.
//!
//! Our deviations: the paper counts the turns of a loop that reads the clock, 45 cycles each, and looks after numbers of turns that double.
//! We pause for as long as these turns take. And in front of another word (under the preload), "free" means that both are free.
//!
//! Over a NUMA-aware lock (section 3.4: `asl-cna`, `asl-c-tkt-tkt`), the upper lock prefers big cores, and its base prefers near
//! waiters. Then the order in line is the base lock's.
//!
//! Invariants:
//! 1. The base lock alone decides who holds the lock; a thread that stands by as published only looks.
//! 2. A window ends after 100 ms at the latest, and then the thread is in the base lock's queue. So it gets the
//!    lock if the base lock starves nobody.
//! 3. The window is a hint: others may arrive after its end, before the thread joins.

use crate::entry::Entry;
use core::marker::PhantomData;
use lockwright_platform::{InPlace, Platform, Probe, RawLock, Sections, TryLock};

pub use super::standby::WINDOW_MAX_NS;

/// The time before the first look of a thread that stands by, ns: one turn of the paper's loop, 45 cycles.
const FIRST_NS: u32 = 20;

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

/// As [`over`], for a base lock that prefers near waiters: `order` is the base lock's name, and how long its waiters may be overtaken.
pub(crate) const fn over_near(base: Entry, id: &'static str, order: &'static str) -> Entry {
    Entry {
        source: "LibASL: Nian Liu et al., Asymmetry-aware Scalable Locking, PPoPP 2022, algorithms 1 and 3; section 3.4: over a NUMA-aware lock",
        order,
        advice: "machines with several sockets and unequal cores, to compare with the paper; in programs, use asl",
        ..over(base, id)
    }
}

/// What a thread does in its window.
pub trait Standby: Send + Sync + 'static {
    /// Lets others go first for up to `window_ns` nanoseconds (at most 100 ms), or until the lock is free (`is_free` must agree).
    /// Returns whether it took the lock; if not, the caller joins the queue.
    ///
    /// # Safety
    /// As [`RawLock::lock`].
    unsafe fn stand_by<P: Platform, F: Probe<P> + TryLock<P>>(
        base: &F,
        node: *mut F::Node,
        window_ns: u32,
        is_free: impl Fn() -> bool,
    ) -> bool;
}

/// Algorithm 1.
#[derive(Debug)]
pub struct Published;

impl Standby for Published {
    unsafe fn stand_by<P: Platform, F: Probe<P> + TryLock<P>>(
        base: &F,
        _node: *mut F::Node,
        window_ns: u32,
        is_free: impl Fn() -> bool,
    ) -> bool {
        let is_free = || is_free() && base.is_free();
        if is_free() {
            return false;
        }
        let start = P::now();
        let window = u64::from(window_ns.min(WINDOW_MAX_NS));
        let mut interval = FIRST_NS;
        let mut waited = 0;
        while waited < window {
            let left = u32::try_from(window - waited).unwrap_or(WINDOW_MAX_NS);
            P::pause(interval.min(left));
            if is_free() {
                break;
            }
            interval = interval.saturating_mul(2);
            waited = P::now().wrapping_sub(start);
        }
        false
    }
}

/// A lock of type `F`, with reordering. Adds no memory to it.
#[derive(Debug)]
#[repr(transparent)]
pub struct Reorderable<F, S = Published> {
    base: F,
    standby: PhantomData<S>,
}

impl<F, S: Standby> Reorderable<F, S> {
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

    /// Lets others go first, see [`Standby`]; then joins the base lock's queue.
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
        // SAFETY: the caller's promise; a standby that did not take the lock leaves the node free.
        unsafe {
            if !S::stand_by(&self.base, node, window_ns, is_free) {
                self.base.lock(node);
            }
        }
    }
}

impl<P: Platform, F: Probe<P> + TryLock<P>, S: Standby> Sections<P> for Reorderable<F, S> {
    type Node = F::Node;

    fn new() -> Self {
        Self { base: F::new(), standby: PhantomData }
    }

    lockwright_platform::held_sections!(P);
}

impl<P: Platform, F: Probe<P> + TryLock<P>, S: Standby> RawLock<P> for Reorderable<F, S> {
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

impl<P: Platform, F: Probe<P> + TryLock<P>, S: Standby> TryLock<P> for Reorderable<F, S> {
    #[inline]
    unsafe fn try_lock(&self, node: *mut F::Node) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.base.try_lock(node) }
    }
}

// SAFETY: it consists of the base lock alone.
unsafe impl<F: InPlace, S: Standby> InPlace for Reorderable<F, S> {}

#[cfg(test)]
mod tests {
    use super::{FIRST_NS, Reorderable, WINDOW_MAX_NS};
    use crate::testing::{Threads, run_on};
    use core::cell::Cell;
    use lockwright_platform::{Platform, Probe, RawLock, Sections, TryLock};

    /// A lock that is free from a moment on, and says when it was looked at and joined.
    #[derive(Default)]
    struct Script {
        free_at: Cell<u64>,
        looks: Cell<u32>,
        tries: Cell<u32>,
        joined: Cell<u64>,
    }

    // SAFETY: one thread.
    unsafe impl Sync for Script {}

    impl Sections<Threads> for Script {
        type Node = ();

        fn new() -> Self {
            Self::default()
        }

        lockwright_platform::held_sections!(Threads);
    }

    impl RawLock<Threads> for Script {
        unsafe fn lock(&self, _node: *mut ()) {
            self.joined.set(Threads::now());
        }

        unsafe fn unlock(&self, _node: *mut ()) {}
    }

    impl TryLock<Threads> for Script {
        unsafe fn try_lock(&self, _node: *mut ()) -> bool {
            self.tries.set(self.tries.get() + 1);
            false
        }
    }

    impl Probe<Threads> for Script {
        fn is_free(&self) -> bool {
            self.looks.set(self.looks.get() + 1);
            Threads::now() >= self.free_at.get()
        }
    }

    /// Locks it on a core of this class; returns the looks, and after which time the thread joined the queue.
    fn joins(class: u8, window_ns: u32, free_after: u64) -> (u32, u64) {
        run_on(class);
        let lock = Reorderable::<Script>::new();
        let start = Threads::now();
        lock.base.free_at.set(start.saturating_add(free_after));
        // SAFETY: it has no node.
        unsafe { lock.lock_in_front(&mut (), window_ns, || true) };
        assert_eq!(lock.base.tries.get(), 0, "as published, nobody tries");
        (lock.base.looks.get(), lock.base.joined.get() - start)
    }

    #[test]
    fn a_big_core_and_who_finds_the_lock_free_join_at_once() {
        assert_eq!(joins(0, 1_000_000, u64::MAX), (0, 0));
        assert_eq!(joins(1, 1_000_000, 0), (1, 0));
        assert_eq!(joins(1, 0, u64::MAX), (1, 0));
    }

    #[test]
    fn looks_double_their_distance_and_one_that_finds_it_free_is_enough() {
        let first = u64::from(FIRST_NS);
        // At 1, 3, 7, 15, ... times the first interval.
        assert_eq!(joins(1, 1_000_000, 2 * first), (3, 3 * first));
        assert_eq!(joins(1, 1_000_000, 8 * first), (5, 15 * first));
    }

    #[test]
    fn the_window_ends_after_100_ms_at_the_latest() {
        assert_eq!(joins(1, 1_000_000, u64::MAX).1, 1_000_000);
        let (looks, took) = joins(1, u32::MAX, u64::MAX);
        assert_eq!(took, u64::from(WINDOW_MAX_NS));
        assert!((20..30).contains(&looks), "{looks}: no interval is the longest");
    }
}
