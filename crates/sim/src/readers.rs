//! Readers-writer locks of the catalogue, by name, on the machines of this crate.

use crate::any_lock::AnyLock;
use crate::lock::LockSpec;
use crate::units::Tid;
use lockwright_locks::catalog::{ReadWriteVisitor, visit_read_write};
use lockwright_locks::entry::Entry;
use lockwright_locks::rw::{Prefer, ReadWrite, Tuning};
use lockwright_platform::Machine;
use std::cell::RefCell;
use std::mem::ManuallyDrop;

/// A readers-writer lock of any type.
pub(crate) trait AnyReadWrite {
    /// Acquires for reading.
    fn read(&self, thread: Tid);
    /// Tries to.
    fn try_read(&self, thread: Tid) -> bool;
    /// Acquires for reading, for at most the given ns; `None`: it can't.
    fn read_for(&self, thread: Tid, ns: u32) -> Option<bool>;
    /// Releases what the thread last acquired for reading.
    fn leave_read(&self, thread: Tid);
    /// Acquires for writing.
    fn write(&self, thread: Tid);
    /// Tries to.
    fn try_write(&self, thread: Tid) -> bool;
    /// Acquires for writing, for at most the given ns; `None`: it can't.
    fn write_for(&self, thread: Tid, ns: u32) -> Option<bool>;
    /// Releases what is held for writing.
    fn leave_write(&self);
    /// Asks, and is torn out of its wait; `false`: it can't.
    fn torn_wait(&self, writes: bool) -> bool;
    /// Changes who goes first, by the option's number; `false`: it can't.
    fn switch(&self, prefer: u32) -> bool;
    /// May a thread that reads read again?
    fn nests(&self) -> bool;
    /// May the last thread that needs it destroy it?
    fn last_may_end(&self) -> bool;
    /// Ends its words; its memory stays.
    ///
    /// # Safety
    /// It isn't used afterwards, except by late wakes, which need its address.
    unsafe fn end(&self);
    /// Where its words are.
    fn place(&self) -> (usize, usize);
}

/// Its memory, on cache lines of its own.
#[repr(align(128))]
struct Typed<P: Machine, L: ReadWrite<P>> {
    lock: ManuallyDrop<L>,
    tuning: Tuning,
    /// Each thread's passes, the latest at the end.
    passes: Vec<RefCell<Vec<L::Pass>>>,
    machine: std::marker::PhantomData<P>,
}

fn me(thread: Tid) -> u32 {
    thread + 1
}

impl<P: Machine, L: ReadWrite<P>> Typed<P, L> {
    fn keep(&self, thread: Tid, pass: L::Pass) {
        self.passes[thread as usize].borrow_mut().push(pass);
    }
}

impl<P: Machine, L: ReadWrite<P>> AnyReadWrite for Typed<P, L> {
    fn read(&self, thread: Tid) {
        let pass = self.lock.read(me(thread));
        self.keep(thread, pass);
    }

    fn try_read(&self, thread: Tid) -> bool {
        self.lock.try_read(me(thread)).map(|pass| self.keep(thread, pass)).is_some()
    }

    fn read_for(&self, thread: Tid, ns: u32) -> Option<bool> {
        L::TIMED.then(|| {
            let pass = self.lock.read_until(me(thread), P::after(ns));
            pass.map(|pass| self.keep(thread, pass)).is_some()
        })
    }

    fn leave_read(&self, thread: Tid) {
        let pass = self.passes[thread as usize].borrow_mut().pop().expect("it reads");
        self.lock.leave_read(pass);
    }

    fn write(&self, thread: Tid) {
        self.lock.write(me(thread));
    }

    fn try_write(&self, thread: Tid) -> bool {
        self.lock.try_write(me(thread))
    }

    fn write_for(&self, thread: Tid, ns: u32) -> Option<bool> {
        L::TIMED.then(|| self.lock.write_until(me(thread), P::after(ns)))
    }

    fn leave_write(&self) {
        self.lock.leave_write();
    }

    fn torn_wait(&self, writes: bool) -> bool {
        self.lock.torn_wait(writes)
    }

    fn switch(&self, prefer: u32) -> bool {
        self.lock.switch(Prefer::of(prefer))
    }

    fn nests(&self) -> bool {
        L::nests(&self.tuning)
    }

    fn last_may_end(&self) -> bool {
        L::LAST_MAY_END
    }

    unsafe fn end(&self) {
        let lock = std::ptr::from_ref(&*self.lock).cast_mut();
        // SAFETY: the caller's promise; `ManuallyDrop` doesn't drop it again.
        unsafe { lock.drop_in_place() };
    }

    fn place(&self) -> (usize, usize) {
        let start = std::ptr::from_ref(&self.lock).addr();
        (start, start + size_of::<L>())
    }
}

/// An unlocked lock for `threads` threads. It isn't dropped by itself.
pub(crate) fn make<P: Machine>(spec: &LockSpec, threads: usize) -> Box<dyn AnyReadWrite> {
    struct Making<'a>(&'a LockSpec, usize, Option<Box<dyn AnyReadWrite>>);
    impl<P: Machine> ReadWriteVisitor<P> for Making<'_> {
        fn visit<L: ReadWrite<P> + 'static>(&mut self, entry: &'static Entry) {
            if self.0.entry().is_some_and(|own| std::ptr::eq(own, entry)) {
                let tuning = self.0.read_write_tuning();
                let passes = (0..self.1).map(|_| RefCell::default()).collect();
                let lock = ManuallyDrop::new(L::new(&tuning));
                let machine = std::marker::PhantomData;
                self.2 = Some(Box::new(Typed::<P, L> { lock, tuning, passes, machine }));
            }
        }
    }
    let mut making = Making(spec, threads, None);
    visit_read_write::<P>(&mut making);
    making.2.expect("every readers-writer lock is visited")
}

/// A readers-writer lock as a lock of a run; sections that would use a mutex write.
pub(crate) struct SharedSections(pub(crate) Box<dyn AnyReadWrite>);

impl AnyLock for SharedSections {
    fn lock(&self, thread: Tid, _: u32) {
        self.0.write(thread);
    }

    fn try_lock(&self, thread: Tid) -> bool {
        self.0.try_write(thread)
    }

    fn unlock(&self, _: Tid) {
        self.0.leave_write();
    }

    fn read(&self, thread: Tid) -> bool {
        self.0.read(thread);
        true
    }

    fn leave_read(&self, thread: Tid) {
        self.0.leave_read(thread);
    }
}

impl Drop for SharedSections {
    fn drop(&mut self) {
        // SAFETY: its owner doesn't use it any more.
        unsafe { self.0.end() };
    }
}
