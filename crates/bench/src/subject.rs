//! The locks as the worker sees them: one trait each for mutexes, monitors and reader-writer locks, so
//! that every lock runs in the very same loop.

use lockwright_locks::catalog;
use lockwright_locks::entry::{Entry, Visitor};
use lockwright_native::Native;
use lockwright_platform::TryLock;
use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::time::Duration;

/// A mutual exclusion lock.
///
/// # Safety
/// Between `lock` (or a successful `try_lock`, `lock_for`) and `unlock`, no other thread is in between.
pub(crate) unsafe trait Mutex: Send + Sync {
    /// What one acquisition needs: a queue node, or nothing.
    type Node: Default;
    /// Can it be waited for with a deadline?
    const TIMED: bool = false;

    /// An unlocked one.
    fn new() -> Self;

    /// Acquires.
    ///
    /// # Safety
    /// `self` and `node` stay where they are until the `unlock`, and `node` serves nothing else.
    unsafe fn lock(&self, node: *mut Self::Node);

    /// Acquires if that needs no waiting.
    ///
    /// # Safety
    /// As [`lock`](Self::lock).
    unsafe fn try_lock(&self, node: *mut Self::Node) -> bool;

    /// Acquires, or gives up after `time`; called only if [`TIMED`](Self::TIMED).
    ///
    /// # Safety
    /// As [`lock`](Self::lock).
    unsafe fn lock_for(&self, node: *mut Self::Node, time: Duration) -> bool {
        let _ = time;
        // SAFETY: the caller's promise is the same.
        unsafe { self.try_lock(node) }
    }

    /// Releases.
    ///
    /// # Safety
    /// The caller holds the lock with this `node`.
    unsafe fn unlock(&self, node: *mut Self::Node);
}

/// A lock of the catalogue, compiled into the worker.
pub(crate) struct InProcess<L>(L);

// SAFETY: a catalogue lock excludes; that is what the models prove.
unsafe impl<L: TryLock<Native>> Mutex for InProcess<L> {
    type Node = L::Node;

    fn new() -> Self {
        InProcess(L::new())
    }

    #[inline(always)]
    unsafe fn lock(&self, node: *mut L::Node) {
        // SAFETY: the caller's promise is the same.
        unsafe { self.0.lock(node) }
    }

    #[inline(always)]
    unsafe fn try_lock(&self, node: *mut L::Node) -> bool {
        // SAFETY: the caller's promise is the same.
        unsafe { self.0.try_lock(node) }
    }

    #[inline(always)]
    unsafe fn unlock(&self, node: *mut L::Node) {
        // SAFETY: the caller's promise is the same.
        unsafe { self.0.unlock(node) }
    }
}

/// `pthread_mutex_t` and its functions, through dynamic symbols: glibc's, or those of a preloaded library.
pub(crate) struct Pthread(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: made to be shared.
unsafe impl Send for Pthread {}
// SAFETY: made to be shared.
unsafe impl Sync for Pthread {}

// SAFETY: POSIX promises exclusion.
unsafe impl Mutex for Pthread {
    type Node = ();
    const TIMED: bool = true;

    fn new() -> Self {
        Pthread(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER))
    }

    #[inline(always)]
    unsafe fn lock(&self, _: *mut ()) {
        // SAFETY: an initialised mutex that the caller keeps in place.
        unsafe { libc::pthread_mutex_lock(self.0.get()) };
    }

    #[inline(always)]
    unsafe fn try_lock(&self, _: *mut ()) -> bool {
        // SAFETY: an initialised mutex that the caller keeps in place.
        unsafe { libc::pthread_mutex_trylock(self.0.get()) == 0 }
    }

    unsafe fn lock_for(&self, _: *mut (), time: Duration) -> bool {
        let mut at = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: writes one timespec; the mutex is initialised and kept in place.
        unsafe {
            libc::clock_gettime(libc::CLOCK_REALTIME, &mut at);
            let ns = at.tv_nsec as u64 + time.as_nanos() as u64;
            at.tv_sec += (ns / 1_000_000_000) as libc::time_t;
            at.tv_nsec = (ns % 1_000_000_000) as libc::c_long;
            libc::pthread_mutex_timedlock(self.0.get(), &at) == 0
        }
    }

    #[inline(always)]
    unsafe fn unlock(&self, _: *mut ()) {
        // SAFETY: the caller holds it.
        unsafe { libc::pthread_mutex_unlock(self.0.get()) };
    }
}

/// `parking_lot`'s raw mutex.
pub(crate) struct ParkingLot(parking_lot::RawMutex);

// SAFETY: the crate promises exclusion.
unsafe impl Mutex for ParkingLot {
    type Node = ();
    const TIMED: bool = true;

    fn new() -> Self {
        ParkingLot(<parking_lot::RawMutex as parking_lot::lock_api::RawMutex>::INIT)
    }

    #[inline(always)]
    unsafe fn lock(&self, _: *mut ()) {
        parking_lot::lock_api::RawMutex::lock(&self.0);
    }

    #[inline(always)]
    unsafe fn try_lock(&self, _: *mut ()) -> bool {
        parking_lot::lock_api::RawMutex::try_lock(&self.0)
    }

    unsafe fn lock_for(&self, _: *mut (), time: Duration) -> bool {
        parking_lot::lock_api::RawMutexTimed::try_lock_for(&self.0, time)
    }

    #[inline(always)]
    unsafe fn unlock(&self, _: *mut ()) {
        // SAFETY: the caller holds it.
        unsafe { parking_lot::lock_api::RawMutex::unlock(&self.0) }
    }
}

/// `std::sync::Mutex`.
pub(crate) struct Std(std::sync::Mutex<()>);

/// The guard that a holder of [`Std`] keeps: its node.
type StdNode = MaybeUninit<std::sync::MutexGuard<'static, ()>>;

/// Gives [`StdNode`] a `Default`.
pub(crate) struct StdGuard(StdNode);

impl Default for StdGuard {
    fn default() -> Self {
        StdGuard(MaybeUninit::uninit())
    }
}

impl Std {
    /// The mutex for as long as its guard claims to live.
    ///
    /// # Safety
    /// The lock stays in place until the guard is gone.
    #[inline(always)]
    unsafe fn forever(&self) -> &'static std::sync::Mutex<()> {
        let mutex = &raw const self.0;
        // SAFETY: the caller's promise.
        unsafe { &*mutex }
    }
}

// SAFETY: std promises exclusion; the guard lives in the node from lock to unlock.
unsafe impl Mutex for Std {
    type Node = StdGuard;

    fn new() -> Self {
        Std(std::sync::Mutex::new(()))
    }

    #[inline(always)]
    unsafe fn lock(&self, node: *mut StdGuard) {
        // SAFETY: the caller keeps lock and node in place until unlock, which drops the guard.
        unsafe {
            let guard = self.forever().lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            (*node).0.write(guard);
        }
    }

    #[inline(always)]
    unsafe fn try_lock(&self, node: *mut StdGuard) -> bool {
        // SAFETY: as in `lock`.
        unsafe {
            match self.forever().try_lock() {
                Ok(guard) => {
                    (*node).0.write(guard);
                    true
                }
                Err(_) => false,
            }
        }
    }

    #[inline(always)]
    unsafe fn unlock(&self, node: *mut StdGuard) {
        // SAFETY: the caller holds the lock, so the node has its guard.
        unsafe { (*node).0.assume_init_drop() }
    }
}

/// A mutex with two condition variables.
pub(crate) trait Monitor: Send + Sync + 'static {
    /// Proof of holding the mutex; dropping it unlocks.
    type Held<'a>;

    /// An unlocked one.
    fn new() -> Self;
    /// Acquires.
    fn lock(&self) -> Self::Held<'_>;
    /// Waits on condition `which`; may return spuriously.
    fn wait<'a>(&'a self, held: Self::Held<'a>, which: usize) -> Self::Held<'a>;
    /// Wakes one waiter of condition `which`.
    fn notify_one(&self, which: usize);
    /// Wakes all waiters of condition `which`.
    fn notify_all(&self, which: usize);
}

/// The pthread monitor.
pub(crate) struct PthreadMonitor {
    mutex: Pthread,
    conditions: [UnsafeCell<libc::pthread_cond_t>; 2],
}

// SAFETY: made to be shared.
unsafe impl Sync for PthreadMonitor {}

/// Holds a [`PthreadMonitor`].
pub(crate) struct PthreadHeld<'a>(&'a PthreadMonitor);

impl Drop for PthreadHeld<'_> {
    fn drop(&mut self) {
        // SAFETY: held, and in place as long as borrowed.
        unsafe { self.0.mutex.unlock(&mut ()) }
    }
}

impl Monitor for PthreadMonitor {
    type Held<'a> = PthreadHeld<'a>;

    fn new() -> Self {
        let condition = || UnsafeCell::new(libc::PTHREAD_COND_INITIALIZER);
        PthreadMonitor { mutex: Pthread::new(), conditions: [condition(), condition()] }
    }

    fn lock(&self) -> PthreadHeld<'_> {
        // SAFETY: the borrow keeps it in place.
        unsafe { self.mutex.lock(&mut ()) };
        PthreadHeld(self)
    }

    fn wait<'a>(&'a self, held: PthreadHeld<'a>, which: usize) -> PthreadHeld<'a> {
        // SAFETY: `held` says that we hold the mutex; both objects are initialised.
        unsafe { libc::pthread_cond_wait(self.conditions[which].get(), self.mutex.0.get()) };
        held
    }

    fn notify_one(&self, which: usize) {
        // SAFETY: an initialised condition variable.
        unsafe { libc::pthread_cond_signal(self.conditions[which].get()) };
    }

    fn notify_all(&self, which: usize) {
        // SAFETY: an initialised condition variable.
        unsafe { libc::pthread_cond_broadcast(self.conditions[which].get()) };
    }
}

/// std's monitor.
pub(crate) struct StdMonitor(std::sync::Mutex<()>, [std::sync::Condvar; 2]);

impl Monitor for StdMonitor {
    type Held<'a> = std::sync::MutexGuard<'a, ()>;

    fn new() -> Self {
        StdMonitor(std::sync::Mutex::new(()), Default::default())
    }

    fn lock(&self) -> Self::Held<'_> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn wait<'a>(&'a self, held: Self::Held<'a>, which: usize) -> Self::Held<'a> {
        self.1[which].wait(held).unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn notify_one(&self, which: usize) {
        self.1[which].notify_one();
    }

    fn notify_all(&self, which: usize) {
        self.1[which].notify_all();
    }
}

/// parking_lot's monitor.
pub(crate) struct ParkingLotMonitor(parking_lot::Mutex<()>, [parking_lot::Condvar; 2]);

impl Monitor for ParkingLotMonitor {
    type Held<'a> = parking_lot::MutexGuard<'a, ()>;

    fn new() -> Self {
        ParkingLotMonitor(parking_lot::Mutex::new(()), Default::default())
    }

    fn lock(&self) -> Self::Held<'_> {
        self.0.lock()
    }

    fn wait<'a>(&'a self, mut held: Self::Held<'a>, which: usize) -> Self::Held<'a> {
        self.1[which].wait(&mut held);
        held
    }

    fn notify_one(&self, which: usize) {
        self.1[which].notify_one();
    }

    fn notify_all(&self, which: usize) {
        self.1[which].notify_all();
    }
}

/// A reader-writer lock.
pub(crate) trait Rw: Send + Sync + 'static {
    /// An unlocked one.
    fn new() -> Self;
    /// Runs `body` as a reader.
    fn read(&self, body: impl FnOnce());
    /// Runs `body` as the only writer.
    fn write(&self, body: impl FnOnce());
}

/// `pthread_rwlock_t`.
pub(crate) struct PthreadRw(UnsafeCell<libc::pthread_rwlock_t>);

// SAFETY: made to be shared.
unsafe impl Send for PthreadRw {}
// SAFETY: made to be shared.
unsafe impl Sync for PthreadRw {}

impl Rw for PthreadRw {
    fn new() -> Self {
        PthreadRw(UnsafeCell::new(libc::PTHREAD_RWLOCK_INITIALIZER))
    }

    #[inline(always)]
    fn read(&self, body: impl FnOnce()) {
        // SAFETY: initialised, and in place as long as borrowed.
        unsafe { libc::pthread_rwlock_rdlock(self.0.get()) };
        body();
        // SAFETY: held for reading.
        unsafe { libc::pthread_rwlock_unlock(self.0.get()) };
    }

    #[inline(always)]
    fn write(&self, body: impl FnOnce()) {
        // SAFETY: initialised, and in place as long as borrowed.
        unsafe { libc::pthread_rwlock_wrlock(self.0.get()) };
        body();
        // SAFETY: held for writing.
        unsafe { libc::pthread_rwlock_unlock(self.0.get()) };
    }
}

impl Rw for std::sync::RwLock<()> {
    fn new() -> Self {
        std::sync::RwLock::new(())
    }

    #[inline(always)]
    fn read(&self, body: impl FnOnce()) {
        let _held = self.read().unwrap_or_else(|poisoned| poisoned.into_inner());
        body();
    }

    #[inline(always)]
    fn write(&self, body: impl FnOnce()) {
        let _held = self.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        body();
    }
}

impl Rw for parking_lot::RwLock<()> {
    fn new() -> Self {
        parking_lot::RwLock::new(())
    }

    #[inline(always)]
    fn read(&self, body: impl FnOnce()) {
        let _held = self.read();
        body();
    }

    #[inline(always)]
    fn write(&self, body: impl FnOnce()) {
        let _held = self.write();
        body();
    }
}

/// Code that runs with any mutex.
pub(crate) trait WithMutex {
    /// What it yields.
    type Output;
    /// Runs it with `M`.
    fn run<M: Mutex>(&self) -> Self::Output;
}

/// Runs `code` with the catalogue's lock `id`, if there is such a lock.
pub(crate) fn with_catalogue_lock<C: WithMutex>(id: &str, code: &C) -> Option<C::Output> {
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
    let mut find = Find { id, code, output: None, machine: PhantomData };
    catalog::visit_all(&mut find);
    find.output
}
