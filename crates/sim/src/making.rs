//! Makes locks of the catalogue on the virtual machine. Front locks and glibc's run as in programs (product.rs).

use crate::any_lock::{AnyLock, Apart, Carried, Nodes, Sent};
use crate::engine::Tid;
use crate::lock::LockSpec;
use crate::memory::Sim;
use crate::readers::{self, SharedSections};
use crate::{product, published};
use lockwright_locks::catalog::{
    DelegatedVisitor, FrontVisitor, Visitor, visit_all, visit_delegated, visit_front,
};
use lockwright_locks::entry::{Entry, Kind};
use lockwright_locks::front::{Rule, Tuning};
use lockwright_platform::{Delegated, RawLock, TryLock};
use std::cell::Cell;

/// An unlocked lock for `threads` threads.
pub(crate) fn make(spec: &LockSpec, threads: usize) -> Box<dyn AnyLock> {
    let Some(entry) = spec.entry() else {
        return product::glibc();
    };
    if let Some(made) = published::make(entry, |key| spec.value(key), Boxing(threads)) {
        return made;
    }
    let mut making = Making { spec, entry, threads, made: None };
    match entry.kind {
        Kind::Front => visit_front::<Sim>(&mut making),
        Kind::Whole => visit_all::<Sim>(&mut making),
        Kind::Delegated => visit_delegated::<Sim>(&mut making),
        Kind::ReadWrite => {
            return Box::new(SharedSections(readers::make::<Sim>(spec, threads)));
        }
    }
    making.made.expect("every lock of the catalogue is visited")
}

struct Making<'a> {
    spec: &'a LockSpec,
    entry: &'static Entry,
    threads: usize,
    made: Option<Box<dyn AnyLock>>,
}

impl FrontVisitor<Sim> for Making<'_> {
    fn visit<R: Rule<Sim>>(&mut self, entry: &'static Entry, defaults: fn(Tuning) -> Tuning) {
        if std::ptr::eq(entry, self.entry) {
            self.made = Some(product::front::<R>(self.spec.tuned_for::<Sim>(defaults)));
        }
    }
}

impl Visitor<Sim> for Making<'_> {
    fn visit<L: TryLock<Sim> + 'static>(&mut self, entry: &'static Entry) {
        if std::ptr::eq(entry, self.entry) {
            self.made = Some(Typed::boxed(L::new(), self.threads));
        }
    }
}

impl DelegatedVisitor<Sim> for Making<'_> {
    fn visit<L: Delegated<Sim> + 'static>(&mut self, entry: &'static Entry) {
        if std::ptr::eq(entry, self.entry) {
            let nodes = OneEach::of(self.threads);
            self.made = Some(Box::new(Sent::<Sim, L, _>::new(nodes)));
        }
    }
}

/// Boxes a lock for this many threads.
struct Boxing(usize);

impl published::Visitor<Sim> for Boxing {
    type Made = Box<dyn AnyLock>;
    fn visit<L: TryLock<Sim> + 'static>(self, lock: L) -> Box<dyn AnyLock> {
        Typed::boxed(lock, self.0)
    }
}

/// A node for each thread.
struct OneEach<N>(Vec<Apart<Cell<N>>>);

impl<N: Default> OneEach<N> {
    fn of(threads: usize) -> Self {
        Self((0..threads).map(|_| Apart(Cell::new(N::default()))).collect())
    }
}

impl<N> OneEach<N> {
    fn of_thread(&self, thread: Tid) -> *mut N {
        self.0[thread as usize].0.as_ptr()
    }
}

impl<N> Nodes<N> for OneEach<N> {
    fn with(&self, thread: Tid, with: impl FnOnce(*mut N)) {
        with(self.of_thread(thread));
    }
}

struct Typed<L: RawLock<Sim>> {
    lock: Apart<L>,
    nodes: OneEach<L::Node>,
}

impl<L: TryLock<Sim> + 'static> Typed<L> {
    fn boxed(lock: L, threads: usize) -> Box<dyn AnyLock> {
        Box::new(Self { lock: Apart(lock), nodes: OneEach::of(threads) })
    }
}

impl<L: TryLock<Sim>> AnyLock for Typed<L> {
    fn lock(&self, thread: Tid, window_ns: u32) {
        // SAFETY: the node is this thread's, for one acquisition at a time, and the vector does not grow.
        unsafe { self.lock.0.lock_in_front(self.nodes.of_thread(thread), window_ns, || true) }
    }

    fn try_lock(&self, thread: Tid) -> bool {
        // SAFETY: as above.
        unsafe { self.lock.0.try_lock(self.nodes.of_thread(thread)) }
    }

    fn unlock(&self, thread: Tid) {
        // SAFETY: as above; the caller holds it.
        unsafe { self.lock.0.unlock(self.nodes.of_thread(thread)) }
    }

    fn with(&self, thread: Tid, window_ns: u32, section: Carried<'_>) {
        let node = self.nodes.of_thread(thread);
        // SAFETY: as above.
        unsafe { self.lock.0.with_window(node, window_ns, || section.run()) }
    }
}
