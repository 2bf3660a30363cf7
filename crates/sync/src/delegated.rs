//! [`Delegated`].

use lockwright_runtime::delegated;
use std::cell::{Cell, UnsafeCell};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;

/// Data to which threads send their critical sections. While several threads ask at once, one of them, on a big core if possible, runs the
/// sections of all: so the data stays in that core's cache.
///
/// ```
/// use lockwright_sync::Delegated;
///
/// let total = Delegated::new(0_u64);
/// std::thread::scope(|scope| {
///     for part in 1..=4 {
///         let total = &total;
///         scope.spawn(move || total.with(|sum| *sum += part));
///     }
/// });
/// assert_eq!(total.into_inner(), 10);
/// ```
///
/// It pays for short sections under high contention, on many cores; `docs/delegation.md` says when. With one thread at a time it is an
/// ordinary lock.
///
/// * A section may run on another thread: it and its result are `Send`, and it may see that thread's thread-locals.
/// * A section that panics does so in its caller. Nothing is poisoned.
/// * A section must not ask for the same data again: that panics, in its caller. It may ask for other data.
/// * A section that blocks delays everybody who asks. It must not wait for what another thread does after that thread's own section:
///   that thread may be the one that runs it.
/// * It needs 128 bytes beside the data.
pub struct Delegated<T: ?Sized> {
    lock: delegated::Delegated,
    value: UnsafeCell<T>,
}

// SAFETY: sections exclude each other, and may run on any thread that asks.
unsafe impl<T: ?Sized + Send> Sync for Delegated<T> {}
// SAFETY: it owns the data; the lock is nobody's.
unsafe impl<T: ?Sized + Send> Send for Delegated<T> {}

/// A section that this thread runs, and the one in which that is nested.
struct Enclosing {
    lock: *const delegated::Delegated,
    outer: *const Enclosing,
}

thread_local! {
    static RUNNING: Cell<*const Enclosing> = const { Cell::new(ptr::null()) };
}

/// Ends a section, also if it unwinds.
struct Ends(*const Enclosing);

impl Drop for Ends {
    fn drop(&mut self) {
        RUNNING.set(self.0);
    }
}

/// A pointer that a section takes along.
struct Carried<T: ?Sized>(*mut T);
// SAFETY: the data is `Send`, and only the section uses it; the sections around it lie still, since their thread waits.
unsafe impl<T: ?Sized> Send for Carried<T> {}

impl<T: ?Sized> Carried<T> {
    // By a method, so that the closure captures the whole.
    fn get(&self) -> *mut T {
        self.0
    }
}

impl<T> Delegated<T> {
    /// Takes `value` into its care.
    pub fn new(value: T) -> Self {
        Self { lock: delegated::Delegated::new(), value: UnsafeCell::new(value) }
    }

    /// Ends it, and returns the data.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> Delegated<T> {
    /// The data, without asking: nobody else can.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

impl<T: ?Sized + Send> Delegated<T> {
    /// Runs `section` on the data while no other section does, on this thread or on another one that asks, too; returns its result.
    ///
    /// # Panics
    /// The section panics. Or it is run by a section on the same data, which would wait for itself.
    #[inline]
    pub fn with<R: Send>(&self, section: impl FnOnce(&mut T) -> R + Send) -> R {
        self.refuse_nested();
        let (value, lock) =
            (Carried(self.value.get()), Carried(ptr::from_ref(&self.lock).cast_mut()));
        // The sections around this one are the caller's, whichever thread runs it.
        let outer = Carried(RUNNING.get().cast_mut());
        let run = move || {
            let (value, lock) = (value.get(), lock.get().cast_const());
            let running = Enclosing { lock, outer: outer.get().cast_const() };
            let _ends = Ends(RUNNING.replace(&raw const running));
            // Whoever runs the section has others to serve.
            // SAFETY: no other section runs meanwhile, and `self` outlives the call.
            catch_unwind(AssertUnwindSafe(|| section(unsafe { &mut *value })))
        };
        self.lock.run(run).unwrap_or_else(|cause| resume_unwind(cause))
    }

    /// Panics if the calling thread runs a section on this data.
    #[inline]
    fn refuse_nested(&self) {
        let mut at = RUNNING.get();
        while !at.is_null() {
            // SAFETY: it is on this thread's stack, further up, until its section ends.
            let running = unsafe { &*at };
            assert!(
                !ptr::eq(running.lock, &raw const self.lock),
                "a section of a Delegated asks for the same Delegated again, and would wait for itself"
            );
            at = running.outer;
        }
    }
}

impl<T: Default> Default for Delegated<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: ?Sized> fmt::Debug for Delegated<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delegated").finish_non_exhaustive()
    }
}
