//! Mutual exclusion locks for the worker. The interface runs critical sections instead of handing out guards. So the
//! same loop works for every lock, including those that run sections on another thread.

use lockwright_locks::catalog;
use lockwright_locks::catalog::{DelegatedVisitor, Visitor};
use lockwright_locks::entry::Entry;
use lockwright_native::Native;
use lockwright_platform::Ordering::Relaxed;
use lockwright_platform::{Delegated, Platform, TryLock, Word};
use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// What runs while a lock is held.
pub(super) trait Section<R>: FnOnce() -> R + Send {}
impl<R, F: FnOnce() -> R + Send> Section<R> for F {}

/// A mutual exclusion lock. Everything measured is inlined, except calls of the lock itself.
///
/// # Safety
/// No two sections run at the same time.
pub(super) unsafe trait Mutex: Send + Sync {
    /// What one section needs: a queue node, or nothing.
    type Node: Default;
    /// Does it support waiting with a deadline?
    const TIMED: bool = false;
    /// Does it support not waiting?
    const TRIES: bool = true;
    /// Does each lock have a thread of its own?
    const SERVED: bool = false;

    /// An unlocked one.
    fn new() -> Self;

    /// Runs `section`, possibly on another thread.
    ///
    /// # Safety
    /// `self` and `node` stay in place until this returns, and `node` isn't used for anything else.
    unsafe fn with<R: Send>(&self, node: *mut Self::Node, section: impl Section<R>) -> R;

    /// Runs `section` if it needn't wait; called only if [`TRIES`](Self::TRIES).
    ///
    /// # Safety
    /// As [`with`](Self::with).
    unsafe fn try_with<R: Send>(
        &self,
        node: *mut Self::Node,
        section: impl Section<R>,
    ) -> Option<R>;

    /// Runs `section`, or gives up after `time`, by this clock if the lock knows several; called only if
    /// [`TIMED`](Self::TIMED).
    ///
    /// # Safety
    /// As [`with`](Self::with).
    unsafe fn with_for<R: Send>(
        &self,
        node: *mut Self::Node,
        time: Duration,
        clock: libc::clockid_t,
        section: impl Section<R>,
    ) -> Option<R> {
        let _ = (time, clock);
        // SAFETY: the caller's promise is the same.
        unsafe { self.try_with(node, section) }
    }
}

/// A lock of the catalogue, compiled into the worker.
pub(super) struct InProcess<L>(L);

// SAFETY: locks of the catalogue exclude each other's sections; the models prove this.
unsafe impl<L: TryLock<Native>> Mutex for InProcess<L> {
    type Node = L::Node;

    fn new() -> Self {
        InProcess(L::new())
    }

    #[inline(always)]
    unsafe fn with<R: Send>(&self, node: *mut L::Node, section: impl Section<R>) -> R {
        // SAFETY: the caller's promise is the same.
        unsafe { self.0.with(node, section) }
    }

    #[inline(always)]
    unsafe fn try_with<R: Send>(&self, node: *mut L::Node, section: impl Section<R>) -> Option<R> {
        // SAFETY: the caller's promise is the same.
        unsafe { self.0.try_with(node, section) }
    }
}

/// A delegated lock of the catalogue, compiled into the worker, with the threads that serve it.
pub(super) struct Served<L: Delegated<Native> + 'static> {
    served: Arc<(L, <Native as Platform>::Word)>,
    servers: Vec<JoinHandle<()>>,
}

impl<L: Delegated<Native>> Drop for Served<L> {
    fn drop(&mut self) {
        self.served.1.store(1, Relaxed); // whatever was asked for is over
        for server in self.servers.drain(..) {
            server.join().expect("a server doesn't panic");
        }
    }
}

// SAFETY: locks of the catalogue exclude each other's sections; the models prove this.
unsafe impl<L: Delegated<Native>> Mutex for Served<L> {
    type Node = L::Node;
    const TRIES: bool = false;
    const SERVED: bool = L::SERVERS > 0;

    fn new() -> Self {
        let served = Arc::new((L::new(), Word::new(0)));
        let server = |_| {
            let served = served.clone();
            thread::spawn(move || served.0.serve(&served.1))
        };
        let servers = (0..L::SERVERS * L::POOL).map(server).collect();
        Self { served, servers }
    }

    #[inline(always)]
    unsafe fn with<R: Send>(&self, node: *mut L::Node, section: impl Section<R>) -> R {
        // SAFETY: the caller's promise is the same.
        unsafe { self.served.0.with(node, section) }
    }

    unsafe fn try_with<R: Send>(&self, _: *mut L::Node, _: impl Section<R>) -> Option<R> {
        unreachable!("nobody tries");
    }
}

/// `pthread_mutex_t` and its functions, through dynamic symbols: glibc's, or those of a preloaded library.
pub(super) struct Pthread(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: made to be shared.
unsafe impl Send for Pthread {}
// SAFETY: made to be shared.
unsafe impl Sync for Pthread {}

unsafe extern "C" {
    /// POSIX 2024; glibc has it since 2.30.
    fn pthread_mutex_clocklock(
        mutex: *mut libc::pthread_mutex_t,
        clock: libc::clockid_t,
        until: *const libc::timespec,
    ) -> libc::c_int;
}

/// The time `time` from now, by `clock`.
#[inline(always)]
fn after(time: Duration, clock: libc::clockid_t) -> libc::timespec {
    let mut at = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec.
    unsafe { libc::clock_gettime(clock, &mut at) };
    let ns = at.tv_nsec as u64 + time.as_nanos() as u64;
    at.tv_sec += (ns / 1_000_000_000) as libc::time_t;
    at.tv_nsec = (ns % 1_000_000_000) as libc::c_long;
    at
}

/// Unlocks when dropped, even if the section unwinds. Created by the thread that has just locked.
struct Held<'a>(&'a Pthread);

impl Drop for Held<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: this thread holds it.
        unsafe { libc::pthread_mutex_unlock(self.0.0.get()) };
    }
}

impl Pthread {
    /// Runs `section` and unlocks, if the lock call returned 0.
    #[inline(always)]
    fn section<R>(&self, answer: libc::c_int, section: impl FnOnce() -> R) -> Option<R> {
        if answer != 0 {
            return None;
        }
        let _held = Held(self);
        Some(section())
    }
}

// SAFETY: POSIX promises exclusion.
unsafe impl Mutex for Pthread {
    type Node = ();
    const TIMED: bool = true;

    fn new() -> Self {
        Pthread(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER))
    }

    #[inline(always)]
    unsafe fn with<R: Send>(&self, _: *mut (), section: impl Section<R>) -> R {
        // SAFETY: an initialised mutex that the caller keeps in place.
        unsafe { libc::pthread_mutex_lock(self.0.get()) };
        let _held = Held(self);
        section()
    }

    #[inline(always)]
    unsafe fn try_with<R: Send>(&self, _: *mut (), section: impl Section<R>) -> Option<R> {
        // SAFETY: an initialised mutex that the caller keeps in place.
        let answer = unsafe { libc::pthread_mutex_trylock(self.0.get()) };
        self.section(answer, section)
    }

    #[inline(always)]
    unsafe fn with_for<R: Send>(
        &self,
        _: *mut (),
        time: Duration,
        clock: libc::clockid_t,
        section: impl Section<R>,
    ) -> Option<R> {
        let until = after(time, clock);
        // SAFETY: an initialised mutex that the caller keeps in place.
        let answer = unsafe {
            match clock {
                libc::CLOCK_REALTIME => libc::pthread_mutex_timedlock(self.0.get(), &until),
                _ => pthread_mutex_clocklock(self.0.get(), clock, &until),
            }
        };
        self.section(answer, section)
    }
}

/// `parking_lot`'s mutex.
pub(super) struct ParkingLot(parking_lot::Mutex<()>);

// SAFETY: the crate promises exclusion.
unsafe impl Mutex for ParkingLot {
    type Node = ();
    const TIMED: bool = true;

    fn new() -> Self {
        ParkingLot(parking_lot::Mutex::new(()))
    }

    #[inline(always)]
    unsafe fn with<R: Send>(&self, _: *mut (), section: impl Section<R>) -> R {
        let _held = self.0.lock();
        section()
    }

    #[inline(always)]
    unsafe fn try_with<R: Send>(&self, _: *mut (), section: impl Section<R>) -> Option<R> {
        let _held = self.0.try_lock()?;
        Some(section())
    }

    #[inline(always)]
    unsafe fn with_for<R: Send>(
        &self,
        _: *mut (),
        time: Duration,
        _: libc::clockid_t,
        section: impl Section<R>,
    ) -> Option<R> {
        let _held = self.0.try_lock_for(time)?;
        Some(section())
    }
}

/// `std::sync::Mutex`.
pub(super) struct Std(std::sync::Mutex<()>);

// SAFETY: std promises exclusion.
unsafe impl Mutex for Std {
    type Node = ();

    fn new() -> Self {
        Std(std::sync::Mutex::new(()))
    }

    #[inline(always)]
    unsafe fn with<R: Send>(&self, _: *mut (), section: impl Section<R>) -> R {
        let _held = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        section()
    }

    #[inline(always)]
    unsafe fn try_with<R: Send>(&self, _: *mut (), section: impl Section<R>) -> Option<R> {
        let _held = self.0.try_lock().ok()?;
        Some(section())
    }
}

/// Code that runs with any mutex.
pub(super) trait WithMutex {
    /// The code's result.
    type Output;
    /// Runs it with `M`.
    fn run<M: Mutex>(&self) -> Self::Output;
}

/// Runs `code` with the catalogue's lock `id`, if there is such a lock.
pub(super) fn with_catalogue_lock<C: WithMutex>(id: &str, code: &C) -> Option<C::Output> {
    struct Find<'a, C: WithMutex> {
        id: &'a str,
        code: &'a C,
        output: Option<C::Output>,
        machine: PhantomData<Native>,
    }
    impl<C: WithMutex> Visitor<Native> for Find<'_, C> {
        fn visit<L: TryLock<Native>>(&mut self, entry: &'static Entry) {
            if entry.id == self.id {
                self.output = Some(self.code.run::<InProcess<L>>());
            }
        }
    }
    impl<C: WithMutex> DelegatedVisitor<Native> for Find<'_, C> {
        fn visit<L: Delegated<Native> + 'static>(&mut self, entry: &'static Entry) {
            if entry.id == self.id {
                self.output = Some(self.code.run::<Served<L>>());
            }
        }
    }
    let mut find = Find { id, code, output: None, machine: PhantomData };
    catalog::visit_all(&mut find);
    catalog::visit_delegated(&mut find);
    find.output
}
