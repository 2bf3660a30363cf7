//! The machine's words and pointers: a checker's atomics, plus what waiting needs to know.

use super::world::{Reason, log, step, wait, world};
use crate::checker::{Atomic, Checker};
use lockwright_platform::{Ordering, Ptr, Word};
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// A checker's atomic, plus what waiting needs to know.
#[derive(Debug)]
pub struct Cell<C: Checker, V: Into64, A: Atomic<V>> {
    alive: AtomicBool,
    atomic: A,
    pub(super) newest: Arc<AtomicU64>,
    types: PhantomData<fn(C, V)>,
}

/// An integer that a cell may hold.
#[allow(missing_docs, reason = "two constants and a conversion")]
pub trait Into64: Copy + Eq + Default {
    fn into64(self) -> u64;
}
impl Into64 for u32 {
    fn into64(self) -> u64 {
        self.into()
    }
}
impl Into64 for usize {
    fn into64(self) -> u64 {
        self as u64
    }
}

impl<C: Checker, V: Into64, A: Atomic<V>> Cell<C, V, A> {
    fn make(value: V) -> Self {
        Self {
            alive: AtomicBool::new(true),
            atomic: A::new(value),
            newest: Arc::new(AtomicU64::new(value.into64())),
            types: PhantomData,
        }
    }

    pub(super) fn address(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }

    /// The atomic, for a step, if its memory still exists.
    fn live(&self) -> &A {
        step::<C>();
        assert!(self.alive.load(Relaxed), "touched a word whose memory was given up");
        &self.atomic
    }

    /// After an operation that wrote: rule 1.
    fn wrote(&self, value: V) {
        log::<C>("write", self.address(), value.into64());
        if self.newest.swap(value.into64(), Relaxed) != value.into64() {
            world(|w| w.changed(self.address()));
        }
    }

    fn is_newest(&self, value: V) -> bool {
        self.newest.load(Relaxed) == value.into64()
    }

    pub(super) fn read(&self, order: Ordering) -> V {
        let pausing = world(|w| !w.pausing.is_empty());
        if pausing && world(|w| w.pausing.entry(C::thread()).or_default().must_read_newest) {
            return self.read_newest(order);
        }
        let value = self.live().load(order);
        log::<C>("load", self.address(), value.into64());
        if !self.is_newest(value) {
            world(|w| w.pausing.entry(C::thread()).or_default().read_old_value = true);
        }
        value
    }

    pub(super) fn read_newest(&self, order: Ordering) -> V {
        let value = self.live().fetch_or(V::default(), order);
        log::<C>("look", self.address(), value.into64());
        value
    }

    /// Writes a hint, for which nobody waits: it is no news.
    pub(super) fn publish(&self, value: V) {
        self.live().store(value, Ordering::Relaxed);
        log::<C>("publish", self.address(), value.into64());
        self.newest.store(value.into64(), Relaxed);
    }

    fn write(&self, value: V, order: Ordering) {
        self.live().store(value, order);
        self.wrote(value);
    }

    fn exchange(&self, value: V, order: Ordering) -> V {
        let before = self.live().swap(value, order);
        self.wrote(value);
        before
    }

    fn exchange_if(&self, old: V, new: V, ok: Ordering, no: Ordering) -> Result<V, V> {
        let result = self.live().compare_exchange(old, new, ok, no);
        if result.is_ok() {
            self.wrote(new);
        }
        result
    }

    pub(super) fn spin(&self, order: Ordering, done: impl Fn(V) -> bool) -> V {
        loop {
            let mut value = self.live().load(order);
            log::<C>("spin", self.address(), value.into64());
            if !done(value) && !self.is_newest(value) {
                value = self.read_newest(order); // rule 2
            }
            if done(value) {
                return value;
            }
            wait::<C>(Reason::Spins, self.address(), None, false);
        }
    }
}

impl<C: Checker, V: Into64, A: Atomic<V>> Drop for Cell<C, V, A> {
    fn drop(&mut self) {
        if world(|w| w.running) && !std::thread::panicking() {
            self.alive.store(false, Relaxed);
            self.atomic.end();
        }
    }
}

/// A word of the machine.
pub type ModelWord<C> = Cell<C, u32, <C as Checker>::Word>;

impl<C: Checker> Word for ModelWord<C> {
    fn new(value: u32) -> Self {
        Self::make(value)
    }
    fn load(&self, order: Ordering) -> u32 {
        self.read(order)
    }
    fn store(&self, value: u32, order: Ordering) {
        self.write(value, order);
    }
    fn swap(&self, value: u32, order: Ordering) -> u32 {
        self.exchange(value, order)
    }
    fn compare_exchange(&self, old: u32, new: u32, ok: Ordering, no: Ordering) -> Result<u32, u32> {
        self.exchange_if(old, new, ok, no)
    }
    fn fetch_add(&self, value: u32, order: Ordering) -> u32 {
        let before = self.live().fetch_add(value, order);
        self.wrote(before.wrapping_add(value));
        before
    }
    fn fetch_sub(&self, value: u32, order: Ordering) -> u32 {
        let before = self.live().fetch_sub(value, order);
        self.wrote(before.wrapping_sub(value));
        before
    }
    fn fetch_or(&self, bits: u32, order: Ordering) -> u32 {
        let before = self.live().fetch_or(bits, order);
        self.wrote(before | bits);
        before
    }
    fn fetch_and(&self, bits: u32, order: Ordering) -> u32 {
        let before = self.live().fetch_and(bits, order);
        self.wrote(before & bits);
        before
    }
}

/// A pointer of the machine.
#[derive(Debug)]
pub struct ModelPtr<C: Checker, T> {
    pub(super) cell: Cell<C, usize, C::Address>,
    to: PhantomData<core::sync::atomic::AtomicPtr<T>>,
}

pub(super) fn from_address<T>(address: usize) -> *mut T {
    core::ptr::with_exposed_provenance_mut(address)
}

impl<C: Checker, T> Ptr<T> for ModelPtr<C, T> {
    fn new(value: *mut T) -> Self {
        Self { cell: Cell::make(value.expose_provenance()), to: PhantomData }
    }
    fn load(&self, order: Ordering) -> *mut T {
        from_address(self.cell.read(order))
    }
    fn store(&self, value: *mut T, order: Ordering) {
        self.cell.write(value.expose_provenance(), order);
    }
    fn swap(&self, value: *mut T, order: Ordering) -> *mut T {
        from_address(self.cell.exchange(value.expose_provenance(), order))
    }
    fn compare_exchange(
        &self,
        old: *mut T,
        new: *mut T,
        ok: Ordering,
        no: Ordering,
    ) -> Result<*mut T, *mut T> {
        self.cell
            .exchange_if(old.addr(), new.expose_provenance(), ok, no)
            .map(from_address)
            .map_err(from_address)
    }
}
