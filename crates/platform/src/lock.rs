//! What a lock offers.

use crate::Platform;

/// A lock without data: mutual exclusion between [`lock`](Self::lock) and [`unlock`](Self::unlock).
pub trait RawLock<P: Platform>: Sized + Send + Sync {
    /// What one acquisition needs beside the lock: a queue node, or nothing (`()`).
    ///
    /// It lives at the caller, from before `lock` until after `unlock`, and does not move in between.
    type Node: Default;

    /// An unlocked lock.
    fn new() -> Self;

    /// Acquires; returns with the lock held.
    ///
    /// # Safety
    /// `node` is valid, pinned and used for nothing else until the `unlock` that gets it returns.
    unsafe fn lock(&self, node: *mut Self::Node);

    /// As [`lock`](Self::lock), for a lock that stands in front of a word that is the lock proper, and is
    /// released as soon as its holder has that word (how textbook locks run under the preload).
    ///
    /// `is_free` says whether the word is free, and `window_ns` how long, in nanoseconds, the caller can afford to
    /// be overtaken; only locks that reorder their waiters ask for either.
    ///
    /// # Safety
    /// As [`lock`](Self::lock).
    unsafe fn lock_in_front(
        &self,
        node: *mut Self::Node,
        window_ns: u32,
        is_free: impl Fn() -> bool,
    ) {
        let _ = (window_ns, is_free);
        // SAFETY: the caller's promise.
        unsafe { self.lock(node) }
    }

    /// Releases.
    ///
    /// # Safety
    /// The caller holds the lock, by a `lock` or successful `try_lock` with this very `node`.
    unsafe fn unlock(&self, node: *mut Self::Node);
}

/// A first-come-first-served lock that can be looked at: a base for the reorderable lock.
pub trait Probe<P: Platform>: RawLock<P> {
    /// Is it free, and nobody in its queue? A hint, stale as soon as it is given; costs one load or two.
    fn is_free(&self) -> bool;
}

/// A lock that can be tried.
pub trait TryLock<P: Platform>: RawLock<P> {
    /// Acquires if that needs no waiting; `true` if the lock is now held.
    ///
    /// # Safety
    /// As [`RawLock::lock`]; if it returns `false` the node is free again.
    unsafe fn try_lock(&self, node: *mut Self::Node) -> bool;
}

/// A lock that can be waited for until a deadline.
pub trait TimedLock<P: Platform>: RawLock<P> {
    /// Acquires, or gives up at `deadline`; `true` if the lock is now held.
    ///
    /// # Safety
    /// As [`RawLock::lock`]; if it returns `false` the node is free again.
    unsafe fn lock_until(&self, node: *mut Self::Node, deadline: P::Deadline) -> bool;
}

/// A lock that can live in memory that somebody else zeroed (a static `pthread_mutex_t`).
///
/// # Safety
/// All-zero bytes are an unlocked lock, the type is at most 16 bytes, its alignment at most 8, and it
/// needs no destructor: dropping the memory of an unlocked lock leaks nothing.
pub unsafe trait InPlace {}
