//! The words and pointers of an exploration: what was last written, by which thread, and which threads
//! have used them.

use super::super::explorer::{Ended, Wait, block, explorer, point};
use super::super::memory::{ExploreCell, Stored, Value};
use super::super::mutant::{At, Mutation, Op, short};
use super::super::setting::THREADS;
use crate::check::Violation;
use crate::engine::{Engine, Ps, engine, fail, inside};
use crate::order::{acquires, releases};
use lockwright_platform::{Ordering, Ptr, Word};
use std::cell::{Cell, RefCell};
use std::panic::Location;

const ALIVE: u32 = 0x600d_c311;
const DEAD: u32 = 0xdead_c311;
const NOBODY: u32 = u32::MAX;

/// Stores that a word remembers.
const MEMORY: usize = 6;

impl<V: Value> ExploreCell<V> {
    fn make(value: V) -> Self {
        let made = inside().map_or((NOBODY, 0), |e| (e.me(), e.orders.clock(e.me())));
        Self {
            value: Cell::new(value),
            alive: Cell::new(ALIVE),
            made,
            used: Cell::default(),
            seen: Cell::default(),
            last_seq_cst: Cell::default(),
            base: Cell::default(),
            stores: RefCell::default(),
        }
    }

    pub(super) fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// The calling thread is about to use the word.
    fn touch(&self, e: &mut Engine, at: At) {
        let me = e.me();
        // A mutant's wild pointer leads to the first page, or to a former word.
        if self.address() < 4096 || self.alive.get() != ALIVE {
            fail(Violation::Dangling { at_ns: e.now / 1000, who: e.name(me), site: shown(at) });
        }
        let (maker, clock) = self.made;
        if maker != me && maker != NOBODY && !e.orders.knows(me, maker, clock) {
            let (first, second) = (e.name(maker), e.name(me));
            let at_ns = e.now / 1000;
            fail(Violation::Unpublished { at_ns, first, second, site: shown(at) });
        }
        let mut used = self.used.get();
        used[me as usize] = e.orders.clock(me);
        self.used.set(used);
    }

    /// Waits for the thread's turn; returns what a mutant does here.
    pub(super) fn begin(
        &self,
        op: Op,
        yes: Ordering,
        no: Ordering,
        at: At,
    ) -> (&'static mut Engine, Option<Mutation>) {
        let e = point(at);
        self.touch(e, at);
        let x = explorer(e);
        x.note(at, op, yes, no);
        let mutation = x.mutation(at);
        (e, mutation)
    }

    /// The calling thread writes. `modifies`: in one step with a read of the newest value.
    fn set(&self, e: &mut Engine, value: V, order: Ordering, modifies: bool, at: At) {
        let me = e.me();
        let mut stores = self.stores.borrow_mut();
        if stores.is_empty() {
            let (by, clock) = self.made;
            stores.push(Stored { value: self.value.get(), by, clock, known: [0; THREADS] });
        }
        let last = stores.last().expect("the first value at least");
        let mut known = if modifies { last.known } else { [0; THREADS] };
        let clock = e.orders.clock(me);
        if releases(order) {
            e.orders.tell(me, &mut known);
        }
        if stores.len() == MEMORY {
            stores.remove(0);
            self.base.set(self.base.get() + 1);
        }
        stores.push(Stored { value, by: me, clock, known });
        let newest = self.newest(&stores);
        self.saw(me, newest);
        if order == Ordering::SeqCst {
            self.last_seq_cst.set(newest);
        }
        let x = explorer(e);
        let what = if modifies { "changes to" } else { "writes" };
        x.record(me, what, self.address(), Some(value.shown()), at);
        if self.value.replace(value) != value {
            x.changed(self.address());
        }
    }

    /// The number of the newest store.
    fn newest(&self, stores: &[Stored<V>]) -> u32 {
        self.base.get() + stores.len().saturating_sub(1) as u32
    }

    fn saw(&self, me: u32, store: u32) {
        let mut seen = self.seen.get();
        seen[me as usize] = store;
        self.seen.set(seen);
    }

    /// The calling thread reads the newest value, or, if `may_be_old`, an older one that it need not know
    /// to be outdated.
    fn get(&self, e: &mut Engine, order: Ordering, may_be_old: bool, at: At) -> V {
        let me = e.me();
        let stores = self.stores.borrow();
        let (newest, base) = (self.newest(&stores), self.base.get());
        let mut store = newest;
        if may_be_old && explorer(e).reads_old() {
            let mut end = base.max(self.seen.get()[me as usize]);
            if order == Ordering::SeqCst {
                end = end.max(self.last_seq_cst.get());
            }
            let hides = |number: u32| {
                let Stored { by, clock, .. } = stores[(number - base) as usize];
                by == NOBODY || e.orders.knows(me, by, clock)
            };
            let mut oldest = newest;
            while oldest > end && !hides(oldest) {
                oldest -= 1;
            }
            store = explorer(e).draw(oldest, newest);
        }
        let what = if store == newest { "reads" } else { "reads an old" };
        let value = match stores.get((store - base) as usize) {
            Some(stored) => {
                if acquires(order) {
                    e.orders.learn(me, &stored.known);
                }
                stored.value
            }
            None => self.value.get(),
        };
        self.saw(me, store);
        explorer(e).record(me, what, self.address(), Some(value.shown()), at);
        value
    }

    fn read(&self, order: Ordering, at: At) -> V {
        if inside().is_none() {
            return self.value.get();
        }
        let (e, mutation) = self.begin(Op::Load, order, order, at);
        self.get(e, Mutation::order(mutation, order), true, at)
    }

    fn write(&self, value: V, order: Ordering, at: At) {
        if inside().is_none() {
            return self.value.set(value);
        }
        let (e, mutation) = self.begin(Op::Store, order, order, at);
        if mutation != Some(Mutation::NoStore) {
            self.set(e, value, Mutation::order(mutation, order), false, at);
        }
    }

    /// Writes what `new` makes of the value. `Err`: doesn't write; the error is what a mutant would
    /// write.
    fn modify(
        &self,
        op: Op,
        new: impl FnOnce(V) -> Result<V, V>,
        yes: Ordering,
        no: Ordering,
        at: At,
    ) -> Result<V, V> {
        if inside().is_none() {
            let old = self.value.get();
            return new(old).inspect(|&new| self.value.set(new)).map(|_| old).map_err(|_| old);
        }
        let (e, mutation) = self.begin(op, yes, no, at);
        let old = self.value.get();
        let new = new(old);
        let yes = Mutation::order(mutation, yes);
        let no = Mutation::failure_order(mutation, no);
        self.get(e, if new.is_ok() { yes } else { no }, false, at);
        match (new, mutation) {
            (Ok(_), Some(Mutation::NoStore)) => {}
            (Ok(new), Some(Mutation::Split)) => {
                let e = point(at);
                self.touch(e, at);
                self.set(e, new, yes, false, at);
            }
            (Ok(new), _) | (Err(new), Some(Mutation::AlwaysWrites)) => {
                self.set(e, new, yes, true, at);
            }
            (Err(_), _) => {}
        }
        new.map(|_| old).map_err(|_| old)
    }

    fn swapped(&self, op: Op, new: impl FnOnce(V) -> V, order: Ordering, at: At) -> V {
        let (Ok(old) | Err(old)) = self.modify(op, |old| Ok(new(old)), order, order, at);
        old
    }

    fn exchanged(&self, old: V, new: V, yes: Ordering, no: Ordering, at: At) -> Result<V, V> {
        let decide = |now| if now == old { Ok(new) } else { Err(new) };
        self.modify(Op::CompareExchange, decide, yes, no, at)
    }

    /// Looks whenever the word has changed, until `done` or `end`; returns what it saw last.
    pub(super) fn wait(
        &self,
        order: Ordering,
        end: Option<Ps>,
        at: At,
        mut done: impl FnMut(V) -> bool,
    ) -> V {
        let (_, mutation) = self.begin(Op::Wait, order, order, at);
        let order = Mutation::order(mutation, order);
        let mut may_be_old = true;
        let mut last = false;
        loop {
            let value = self.get(engine(), order, may_be_old, at);
            if done(value) || last {
                return value;
            }
            may_be_old = false; // a waiter sees the newest value in the end
            // Even if `done` itself looks once more, or if the old value has come back since.
            let newest = self.newest(&self.stores.borrow());
            if self.seen.get()[engine().me() as usize] != newest {
                point(at); // it is another one by now, or has been all the time
            } else if end.is_some_and(|end| end <= engine().now)
                || block(Wait::Spins, self.address(), end, at) == Ended::TimedOut
            {
                last = true;
            }
            self.touch(engine(), at);
        }
    }
}

impl<V: Value> Drop for ExploreCell<V> {
    fn drop(&mut self) {
        let Some(e) = inside() else { return };
        if self.alive.replace(DEAD) != ALIVE {
            return;
        }
        let me = e.me();
        for (other, clock) in (0..).zip(self.used.get()) {
            if other != me && clock != 0 && !e.orders.knows(me, other, clock) {
                let (first, second) = (e.name(other), e.name(me));
                fail(Violation::Outlived { at_ns: e.now / 1000, first, second });
            }
        }
    }
}

fn shown(at: At) -> String {
    format!("{}:{}", short(at.file()), at.line())
}

impl Word for ExploreCell<u32> {
    fn new(value: u32) -> Self {
        Self::make(value)
    }
    #[track_caller]
    fn load(&self, order: Ordering) -> u32 {
        self.read(order, Location::caller())
    }
    #[track_caller]
    fn store(&self, value: u32, order: Ordering) {
        self.write(value, order, Location::caller());
    }
    #[track_caller]
    fn swap(&self, value: u32, order: Ordering) -> u32 {
        self.swapped(Op::Swap, |_| value, order, Location::caller())
    }
    #[track_caller]
    fn compare_exchange(
        &self,
        old: u32,
        new: u32,
        yes: Ordering,
        no: Ordering,
    ) -> Result<u32, u32> {
        self.exchanged(old, new, yes, no, Location::caller())
    }
    #[track_caller]
    fn fetch_add(&self, value: u32, order: Ordering) -> u32 {
        self.swapped(Op::Add, |old| old.wrapping_add(value), order, Location::caller())
    }
    #[track_caller]
    fn fetch_sub(&self, value: u32, order: Ordering) -> u32 {
        self.swapped(Op::Subtract, |old| old.wrapping_sub(value), order, Location::caller())
    }
    #[track_caller]
    fn fetch_or(&self, bits: u32, order: Ordering) -> u32 {
        self.swapped(Op::Or, |old| old | bits, order, Location::caller())
    }
    #[track_caller]
    fn fetch_and(&self, bits: u32, order: Ordering) -> u32 {
        self.swapped(Op::And, |old| old & bits, order, Location::caller())
    }
}

impl<T> Ptr<T> for ExploreCell<*mut T> {
    fn new(value: *mut T) -> Self {
        Self::make(value)
    }
    #[track_caller]
    fn load(&self, order: Ordering) -> *mut T {
        self.read(order, Location::caller())
    }
    #[track_caller]
    fn store(&self, value: *mut T, order: Ordering) {
        self.write(value, order, Location::caller());
    }
    #[track_caller]
    fn swap(&self, value: *mut T, order: Ordering) -> *mut T {
        self.swapped(Op::Swap, |_| value, order, Location::caller())
    }
    #[track_caller]
    fn compare_exchange(
        &self,
        old: *mut T,
        new: *mut T,
        yes: Ordering,
        no: Ordering,
    ) -> Result<*mut T, *mut T> {
        self.exchanged(old, new, yes, no, Location::caller())
    }
}
