//! Reader-writer locks for the worker.

use crate::spec::{Answer, Spec};
use lockwright_locks::catalog::{ReadWriteVisitor, visit_read_write};
use lockwright_locks::entry::Entry;
use lockwright_locks::rw::{ReadWrite, Tuning};
use lockwright_native::Native;
use std::cell::{Cell, UnsafeCell};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// A reader-writer lock.
pub(super) trait Rw: Send + Sync + 'static {
    /// An unlocked one.
    fn new() -> Self;
    /// Runs `body` as a reader.
    fn read(&self, body: impl FnOnce());
    /// Runs `body` as the only writer.
    fn write(&self, body: impl FnOnce());
}

/// `pthread_rwlock_t`.
pub(super) struct PthreadRw(UnsafeCell<libc::pthread_rwlock_t>);

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

/// A readers-writer lock of the catalogue, compiled into the worker.
struct InProcess<L>(L);

/// The calling thread's id, not 0.
#[inline(always)]
fn me() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    thread_local! {
        static ME: Cell<u32> = const { Cell::new(0) };
    }
    match ME.get() {
        0 => {
            ME.set(NEXT.fetch_add(1, Relaxed));
            ME.get()
        }
        me => me,
    }
}

impl<L: ReadWrite<Native> + 'static> Rw for InProcess<L> {
    fn new() -> Self {
        InProcess(L::new(&Tuning::default()))
    }

    #[inline(always)]
    fn read(&self, body: impl FnOnce()) {
        let pass = self.0.read(me());
        body();
        self.0.leave_read(pass);
    }

    #[inline(always)]
    fn write(&self, body: impl FnOnce()) {
        self.0.write(me());
        body();
        self.0.leave_write();
    }
}

/// Measures the catalogue's readers-writer lock `id`, if there is such a lock.
pub(super) fn with_catalogue_lock(id: &str, spec: &Spec, reads: f64) -> Option<Answer> {
    struct FindReadWrite<'a>(&'a str, &'a Spec, f64, Option<Answer>);
    impl ReadWriteVisitor<Native> for FindReadWrite<'_> {
        fn visit<L: ReadWrite<Native> + 'static>(&mut self, entry: &'static Entry) {
            if entry.id == self.0 {
                self.3 = Some(super::workload::rwlock::readers_and_writers::<InProcess<L>>(
                    self.1, self.2,
                ));
            }
        }
    }
    let mut find = FindReadWrite(id, spec, reads, None);
    visit_read_write(&mut find);
    find.3
}
