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
//! Code that measures, simulates or models critical sections uses [`Sections`]. So delegation locks fit, too: a server's core
//! runs the sections, or the holder runs those of its waiters. [`RawLock`] is for programs that lock here and unlock there,
//! as with a `pthread_mutex_t`. A `RawLock` gets its `Sections` by one line, [`held_sections!`](crate::held_sections).
//! (A blanket implementation would not do. With it, no crate could implement `Sections` for a lock of its own over every
//! `P`, since another crate might make that lock a `RawLock` on a machine of its own.)

use crate::Platform;
use core::marker::PhantomData;

/// Mutual exclusion of critical sections, on whichever thread they run.
///
/// A lock that runs sections elsewhere implements this trait alone. The caller waits in [`with`](Self::with) until its
/// section has run, so a node may refer to data on the caller's stack.
pub trait Sections<P: Platform>: Sized + Send + Sync {
    /// What one section needs in addition to the lock: a queue node, a mailbox, or nothing (`()`).
    ///
    /// It must stay alive, and must not move, from before the caller asks for the lock until after the section.
    type Node: Default;

    /// An unlocked lock.
    fn new() -> Self;

    /// Runs `section` while no other section under this lock runs; returns what it returns.
    ///
    /// `section` sees what earlier sections wrote. It runs exactly once, on the calling thread or on another one.
    /// That is why it and its result are `Send`, and why it may see another thread's place and thread-locals. It
    /// must not ask for this lock again.
    ///
    /// If `section` panics, `with` unwinds into its caller, and the lock is free. A lock that runs sections elsewhere
    /// carries the panic back to the caller, and goes on serving the others.
    ///
    /// # Safety
    /// `node` is valid, pinned and used for nothing else until `with` returns or unwinds.
    unsafe fn with<R: Send>(&self, node: *mut Self::Node, section: impl FnOnce() -> R + Send) -> R;

    /// As [`with`](Self::with), for a caller that can afford to be overtaken for `window_ns` nanoseconds (its epoch's
    /// window). Only locks that reorder their waiters use the window.
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

/// A lock that runs sections on threads other than those that asked: a server, or one of the waiters.
///
/// Sections must not unwind, because the thread that runs them has others to serve. Whoever offers such a lock to programs
/// catches what the section throws, inside of the section, and resumes it in the caller.
pub trait Delegated<P: Platform>: Sections<P> {
    /// How many threads have to [`serve`](Self::serve) while sections are asked for; 0: those who ask run them.
    const SERVERS: u32 = 0;

    /// How many threads each of them is, on one CPU: when one blocks, another goes on.
    const POOL: u32 = 1;

    /// Runs others' sections until `stop` is not 0. Nobody may be asking by then.
    fn serve(&self, stop: &P::Word) {
        let _ = stop;
    }

    /// Changes how it runs sections, if it can: for checkers, which may do so at any time.
    fn vary(&self, how: u32) {
        let _ = how;
    }

    /// From now on `with`'s server serves this lock, too. Locks without servers ignore it.
    ///
    /// # Safety
    /// `with` stays as long as this lock.
    unsafe fn share(&self, with: &Self) {
        let _ = with;
    }
}

/// The methods of `impl Sections<P>` for a [`RawLock`] on machine `P`: lock, run, unlock.
///
/// Everything is inlined: benchmarks measure only a few instructions here, and none should be a call.
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

/// A guard: the [`RawLock`] is held until this is dropped, at the section's end or when the section unwinds.
pub struct Held<'a, P: Platform, L: RawLock<P>> {
    lock: &'a L,
    node: *mut L::Node,
    machine: PhantomData<fn(P)>,
}

impl<'a, P: Platform, L: RawLock<P>> Held<'a, P, L> {
    /// Acquires.
    ///
    /// # Safety
    /// As [`Sections::with`], until the guard is dropped.
    #[inline(always)]
    pub unsafe fn lock(lock: &'a L, node: *mut L::Node) -> Self {
        // SAFETY: the caller's promise.
        unsafe { lock.lock(node) };
        Self { lock, node, machine: PhantomData }
    }

    /// Acquires, for a caller that can afford to be overtaken for `window_ns` nanoseconds.
    ///
    /// # Safety
    /// As [`Sections::with`], until the guard is dropped.
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
    /// May its memory end, without a word, as soon as nobody holds it or waits for it? (A program's mutex: C++'s are never destroyed, and
    /// the last user of an object frees it.)
    const MAY_END: bool = false;

    /// Sleeps, as [`Platform::park`] does, for a thread that waits until another one has run its section.
    fn nap(&self, word: &P::Word, while_it_is: u32, ns: u32) {
        // SURVIVES: it ends by the clock, and its callers look again.
        P::park(word, while_it_is, Some(P::after(ns)));
    }

    /// Asked once after each section, by the thread that locked and ran it: has the section handed the lock on to another thread? Then
    /// the caller doesn't unlock.
    fn is_handed_on(&self) -> bool {
        false
    }

    /// Acquires; returns with the lock held.
    ///
    /// # Safety
    /// `node` is valid, pinned and used for nothing else until `unlock(node)` returns.
    unsafe fn lock(&self, node: *mut Self::Node);

    /// As [`lock`](Self::lock), for a lock that stands in front of another word, which is the real lock. Its holder releases
    /// it as soon as it has that word. (Textbook locks run this way under the preload.)
    ///
    /// `is_free` says whether the word is free. `window_ns` says how long, in nanoseconds, the caller can afford to be
    /// overtaken. Only locks that reorder their waiters use either.
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
    /// The caller holds the lock, by `lock` or a successful `try_lock` with this very `node`.
    unsafe fn unlock(&self, node: *mut Self::Node);
}

/// A lock with a line of waiters that can say whether it is free: a base for the reorderable lock.
pub trait Probe<P: Platform>: RawLock<P> {
    /// Is it free, with nobody in its queue? A hint, stale as soon as it is given; costs one load or two.
    fn is_free(&self) -> bool;
}

/// A lock that can be acquired without waiting.
pub trait TryLock<P: Platform>: RawLock<P> {
    /// Acquires if that needs no waiting; returns `true` if the lock is now held.
    ///
    /// # Safety
    /// As [`RawLock::lock`]; if it returns `false` the node is free again.
    unsafe fn try_lock(&self, node: *mut Self::Node) -> bool;

    /// Runs `section` as [`Sections::with`] does, if that needs no waiting; `None`: it didn't run.
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
    /// Acquires, or gives up at `deadline`; returns `true` if the lock is now held.
    ///
    /// # Safety
    /// As [`RawLock::lock`]; if it returns `false` the node is free again.
    unsafe fn lock_until(&self, node: *mut Self::Node, deadline: P::Deadline) -> bool;

    /// Runs `section` as [`Sections::with`] does, or gives up at `deadline`; `None`: it didn't run.
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
/// All-zero bytes are an unlocked lock. The type has at most 8 bytes and an alignment of at most 8. It needs no
/// destructor: freeing the memory of an unlocked lock leaks nothing.
pub unsafe trait InPlace {}
