//! What a lock offers.
//!
//! ```text
//!   Sections   with(node, || section)    no two sections run at once; the lock decides where they run
//!     ▲
//!   RawLock    lock … unlock             the section runs in between, on the thread that asked
//!     ▲
//!   TryLock · TimedLock · Probe
//! ```
//!
//! Code that measures, simulates or models critical sections uses [`Sections`]. So a lock that carries sections to another
//! core fits as well (delegation: a server's core runs them, or the holder runs those of its waiters). [`RawLock`] is for
//! programs that lock here and unlock there: a `pthread_mutex_t`. For a `RawLock` the base is one line,
//! [`held_sections!`](crate::held_sections). (A blanket implementation would not do: with it, no crate could implement
//! the base for a lock of its own over every `P`, since others might make that lock a `RawLock` on a machine of theirs.)

use crate::Platform;
use core::marker::PhantomData;

/// Mutual exclusion of critical sections, on whichever thread they run.
///
/// A lock that runs sections elsewhere implements this trait alone: the caller waits in [`with`](Self::with) until its
/// section has run, so a node may lend what lies on the caller's stack.
pub trait Sections<P: Platform>: Sized + Send + Sync {
    /// What one section needs in addition to the lock: a queue node, a mailbox, or nothing (`()`).
    ///
    /// The caller keeps it from before it asks for the lock until after it has left, and does not move it in between.
    type Node: Default;

    /// An unlocked lock.
    fn new() -> Self;

    /// Runs `section` while no other section under this lock runs; returns what it returns.
    ///
    /// It sees what earlier sections wrote. `section` runs exactly once, on the calling thread or on another one.
    /// That is why it and its result are `Send`, and why it may see the other thread's place and thread-locals. It
    /// must not ask for this lock again.
    ///
    /// If `section` unwinds, `with` unwinds at its caller, and the lock is free: a lock that runs sections elsewhere
    /// carries the panic back, and serves the others.
    ///
    /// # Safety
    /// `node` is valid, pinned and used for nothing else until `with` returns or unwinds.
    unsafe fn with<R: Send>(&self, node: *mut Self::Node, section: impl FnOnce() -> R + Send) -> R;

    /// As [`with`](Self::with), for a caller that can afford to be overtaken for `window_ns` nanoseconds (its epoch's
    /// window). Only locks that reorder their waiters look at it.
    ///
    /// # Safety
    /// As [`with`](Self::with).
    #[inline(always)]
    unsafe fn with_window<R: Send>(
        &self,
        node: *mut Self::Node,
        window_ns: u32,
        section: impl FnOnce() -> R + Send,
    ) -> R {
        let _ = window_ns;
        // SAFETY: the caller's promise.
        unsafe { self.with(node, section) }
    }
}

/// The sections of a [`RawLock`] on machine `P`, inside of its `impl Sections<P>`: lock, run, unlock.
///
/// Everything is inlined: only a few instructions are measured, and none should be a call.
#[macro_export]
macro_rules! held_sections {
    ($machine:ty) => {
        #[inline(always)]
        unsafe fn with<Value: Send>(
            &self,
            node: *mut Self::Node,
            section: impl FnOnce() -> Value + Send,
        ) -> Value {
            // SAFETY: the caller's promise; the guard ends before we return or unwind.
            let _held = unsafe { $crate::Held::<$machine, Self>::lock(self, node) };
            section()
        }

        #[inline(always)]
        unsafe fn with_window<Value: Send>(
            &self,
            node: *mut Self::Node,
            window_ns: u32,
            section: impl FnOnce() -> Value + Send,
        ) -> Value {
            // SAFETY: as in `with`.
            let _held =
                unsafe { $crate::Held::<$machine, Self>::lock_window(self, node, window_ns) };
            section()
        }
    };
}

/// A [`RawLock`] that is held, until this ends: at the section's end, also if it unwinds.
pub struct Held<'a, P: Platform, L: RawLock<P>> {
    lock: &'a L,
    node: *mut L::Node,
    machine: PhantomData<fn(P)>,
}

impl<'a, P: Platform, L: RawLock<P>> Held<'a, P, L> {
    /// Acquires.
    ///
    /// # Safety
    /// As [`Sections::with`], until this ends.
    #[inline(always)]
    pub unsafe fn lock(lock: &'a L, node: *mut L::Node) -> Self {
        // SAFETY: the caller's promise.
        unsafe { lock.lock(node) };
        Self { lock, node, machine: PhantomData }
    }

    /// Acquires, and can afford to be overtaken for `window_ns` nanoseconds.
    ///
    /// # Safety
    /// As [`Sections::with`], until this ends.
    #[inline(always)]
    pub unsafe fn lock_window(lock: &'a L, node: *mut L::Node, window_ns: u32) -> Self {
        // SAFETY: the caller's promise.
        unsafe { lock.lock_in_front(node, window_ns, || true) };
        Self { lock, node, machine: PhantomData }
    }
}

impl<P: Platform, L: RawLock<P>> Drop for Held<'_, P, L> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: held, with this node: that is when a `Held` is made.
        unsafe { self.lock.unlock(self.node) }
    }
}

/// A lock without data: mutual exclusion between [`lock`](Self::lock) and [`unlock`](Self::unlock), on one thread.
pub trait RawLock<P: Platform>: Sections<P> {
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

    /// Runs `section` as [`Sections::with`] does, if that needs no waiting; `None`: it was not run.
    ///
    /// # Safety
    /// As [`Sections::with`].
    #[inline(always)]
    unsafe fn try_with<R: Send>(
        &self,
        node: *mut Self::Node,
        section: impl FnOnce() -> R + Send,
    ) -> Option<R> {
        // SAFETY: the caller's promise; released when `_held` ends.
        if !unsafe { self.try_lock(node) } {
            return None;
        }
        let _held = Held { lock: self, node, machine: PhantomData };
        Some(section())
    }
}

/// A lock that can be waited for until a deadline.
pub trait TimedLock<P: Platform>: RawLock<P> {
    /// Acquires, or gives up at `deadline`; `true` if the lock is now held.
    ///
    /// # Safety
    /// As [`RawLock::lock`]; if it returns `false` the node is free again.
    unsafe fn lock_until(&self, node: *mut Self::Node, deadline: P::Deadline) -> bool;

    /// Runs `section` as [`Sections::with`] does, or gives up at `deadline`; `None`: it was not run.
    ///
    /// # Safety
    /// As [`Sections::with`].
    #[inline(always)]
    unsafe fn with_until<R: Send>(
        &self,
        node: *mut Self::Node,
        deadline: P::Deadline,
        section: impl FnOnce() -> R + Send,
    ) -> Option<R> {
        // SAFETY: the caller's promise; released when `_held` ends.
        if !unsafe { self.lock_until(node, deadline) } {
            return None;
        }
        let _held = Held { lock: self, node, machine: PhantomData };
        Some(section())
    }
}

/// A lock that can live in memory zeroed by somebody else (a static `pthread_mutex_t`).
///
/// # Safety
/// All-zero bytes are an unlocked lock, the type is at most 16 bytes, its alignment at most 8, and it
/// needs no destructor: dropping the memory of an unlocked lock leaks nothing.
pub unsafe trait InPlace {}
