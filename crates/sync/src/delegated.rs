//! [`Delegated`].

use crate::guard::Guard;
use crate::guard::sealed::OverMutex;
use crate::{CLOCK, after};
use lockwright_runtime::delegated;
use lockwright_runtime::{layout, sync};
use std::cell::{Cell, UnsafeCell};
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;
use std::time::Duration;

/// Data to which threads send their critical sections. While several threads ask at once, and if that is faster, one of them, on a big
/// core if possible, runs the sections of all: so the data stays in that core's cache.
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
/// That pays for short sections under high contention, on many cores; `docs/delegation.md` says when. The lock finds out by itself; with
/// [`delegate`](Self::delegate) you decide. Otherwise it is an ordinary lock.
///
/// * A section may run on another thread: it and its result are `Send`, and it may see that thread's thread-locals.
/// * A section that panics does so in its caller. Nothing is poisoned.
/// * A section must not ask for the same data again: that panics, in its caller. It may ask for other data.
/// * What must run on this thread, or wait for a [`Condvar`](crate::Condvar), holds the data by [`lock`](Self::lock).
/// * A section that blocks delays everybody who asks. It must not wait for what another thread does after that thread's own section:
///   that thread may be the one that runs it.
/// * It needs 136 bytes beside the data, 128 of them on the heap.
pub struct Delegated<T: ?Sized> {
    /// In a place of its own: when a call returns, a server may still be about to leave the lock, and then the data may be moved.
    lock: Box<delegated::Delegated>,
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
        Self { lock: Box::new(delegated::Delegated::new()), value: UnsafeCell::new(value) }
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
            (Carried(self.value.get()), Carried(ptr::from_ref(&*self.lock).cast_mut()));
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
        match self.lock.try_run(run) {
            Some(result) => result.unwrap_or_else(|cause| resume_unwind(cause)),
            None => {
                panic!("this thread holds the Delegated that it asks, and would wait for itself")
            }
        }
    }

    /// Holds the data: no section runs meanwhile.
    ///
    /// # Panics
    /// The calling thread runs a section on this data.
    pub fn lock(&self) -> DelegatedGuard<'_, T> {
        self.refuse_nested();
        // SAFETY: it exists as long as `self`.
        unsafe { sync::mutex_lock(self.lock.mutex()) };
        DelegatedGuard { data: self, here: PhantomData }
    }

    /// Holds the data, unless that takes longer than `timeout`.
    ///
    /// # Panics
    /// As [`lock`](Self::lock).
    pub fn try_lock_for(&self, timeout: Duration) -> Option<DelegatedGuard<'_, T>> {
        self.refuse_nested();
        let mutex = self.lock.mutex();
        let Some(until) = after(timeout) else { return Some(self.lock()) };
        // SAFETY: as in `lock`; the time is valid, and the clock exists.
        let answer = unsafe { sync::mutex_lock_until(mutex, CLOCK, &until) };
        (answer == 0).then(|| DelegatedGuard { data: self, here: PhantomData })
    }

    /// Decides who runs the sections of threads that have to wait. May be called at any time.
    pub fn delegate(&self, how: Delegate<'_>) {
        match how {
            Delegate::IfFaster => self.lock.combine(None),
            Delegate::Never => self.lock.combine(Some(false)),
            Delegate::Always => self.lock.combine(Some(true)),
            Delegate::To(server) => drop(self.lock.serve_by(Some(server.0))),
            Delegate::ToAny => drop(self.lock.serve_by(None)),
        }
    }

    /// Panics if the calling thread runs a section on this data.
    #[inline]
    fn refuse_nested(&self) {
        let mut at = RUNNING.get();
        while !at.is_null() {
            // SAFETY: it is on this thread's stack, further up, until its section ends.
            let running = unsafe { &*at };
            assert!(
                !ptr::eq(running.lock, &raw const *self.lock),
                "a section of a Delegated asks for the same Delegated again, and would wait for itself"
            );
            at = running.outer;
        }
    }
}

/// Who runs the sections of threads that have to wait.
#[derive(Clone, Copy, Debug)]
pub enum Delegate<'a> {
    /// The lock finds out whether a combiner runs more of them than the threads themselves. The default.
    IfFaster,
    /// Each thread waits, and runs its own.
    Never,
    /// A combiner: the thread that runs a section goes on with those of the others.
    Always,
    /// This server.
    To(&'a Server),
    /// Any server; the lock moves to another one when that has less to do. Without servers nothing changes.
    ToAny,
}

/// Holds a [`Delegated`]'s data; lets go when dropped.
pub struct DelegatedGuard<'a, T: ?Sized> {
    data: &'a Delegated<T>,
    /// The mutex remembers the thread that holds it.
    here: PhantomData<*const ()>,
}

// SAFETY: it lends the data out as `&T`.
unsafe impl<T: ?Sized + Sync> Sync for DelegatedGuard<'_, T> {}

impl<T: ?Sized> Deref for DelegatedGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: this thread holds the mutex, so no section runs.
        unsafe { &*self.data.value.get() }
    }
}

impl<T: ?Sized> DerefMut for DelegatedGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`, and the guard is borrowed mutably.
        unsafe { &mut *self.data.value.get() }
    }
}

impl<T: ?Sized> Guard for DelegatedGuard<'_, T> {}

impl<T: ?Sized> OverMutex for DelegatedGuard<'_, T> {
    fn mutex(&self) -> *mut layout::Mutex {
        self.data.lock.mutex()
    }
}

impl<T: ?Sized> Drop for DelegatedGuard<'_, T> {
    fn drop(&mut self) {
        // SAFETY: this thread has locked it, and still holds it.
        unsafe { sync::mutex_unlock(self.data.lock.mutex()) };
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for DelegatedGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

/// Threads that run the sections of any number of [`Delegated`] data, on one CPU.
///
/// One of them is active. Another one takes over if a section blocks the active one for 1 ms. They block all signals, and sleep while nobody
/// asks. If the server doesn't run, those who ask run their own sections. Its memory is never freed.
///
/// ```
/// use lockwright_sync::{Delegate, Delegated, Server};
///
/// let server = Server::start(2, None)?;
/// let data = Delegated::new(vec![0; 4]);
/// data.delegate(Delegate::To(&server));
/// data.with(|all| all[2] += 1);
/// server.stop();
/// assert_eq!(data.into_inner(), [0, 0, 1, 0]);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy)]
pub struct Server(&'static delegated::ServerThreads);

impl Server {
    /// Starts a server of `threads` threads (1 to 8), on this CPU, or on any.
    ///
    /// # Errors
    /// Too many threads, or none; no such CPU; no memory, or no thread.
    pub fn start(threads: u32, cpu: Option<u32>) -> io::Result<Self> {
        let cpu = cpu.map_or(-1, |cpu| i32::try_from(cpu).unwrap_or(i32::MAX));
        let server = delegated::ServerThreads::start(threads, cpu);
        server.map(Self).map_err(io::Error::from_raw_os_error)
    }

    /// Ends its threads. From now on those who ask run their own sections.
    pub fn stop(self) {
        self.0.stop();
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
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
