//! [`Platform`] on the virtual machine: what a lock does costs simulated time.
//!
//! Words have their real size, so that words that share a line on the real machine share one here. Outside of a
//! simulated thread (during setup and teardown of a run) operations cost nothing.

use crate::engine::{Engine, Ps, advance, current, engine, inside, ps};
use crate::futex;
use crate::lines::{Access, Change, fetch, reach, spin, writes};
use crate::memory::{DOORS, LINE, Sim, SimCell, SimPtr, SimWord};
use crate::policies::Person;
use crate::profile::ClassProfile;
use crate::programs;
use crate::published::Monitored;
use crate::timeline::Activity;
use lockwright_platform::hooks::{Context, Hook, IN_EPOCH, Node};
use lockwright_platform::{
    Class, Door, Doors, FULL_SPEED, Learning, Memo, Numbered, Ordering, Place, Platform,
    Priorities, Programmable, Ptr, Publishing, ReaderTable, Requeue, Stage, Stages, Undisturbed,
    Unique, Woken, Word, numbered,
};
use std::cell::Cell;

impl<V: Copy + Eq> SimCell<V> {
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    fn read(&self, order: Ordering) -> V {
        if inside().is_none() {
            return self.0.get();
        }
        let cost = reach(self.address(), Access::Load);
        let value = self.0.get();
        let e = engine();
        e.orders.load(e.me(), self.address(), order);
        advance(cost, Activity::Work);
        value
    }

    fn write(&self, value: V, order: Ordering) {
        if inside().is_none() {
            return self.0.set(value);
        }
        let cost = reach(self.address(), Access::Store);
        let e = engine();
        e.orders.store(e.me(), self.address(), order);
        if self.0.replace(value) != value {
            e.changed(self.address());
        }
        advance(cost, Activity::Work);
    }

    /// Reads, and writes what `new` makes of the value. `Err`: nothing was written; then `no` is the ordering of
    /// the read.
    fn modify(
        &self,
        new: impl FnOnce(V) -> Option<V>,
        yes: Ordering,
        no: Ordering,
    ) -> Result<V, V> {
        if inside().is_none() {
            let old = self.0.get();
            return new(old).inspect(|&new| self.0.set(new)).map(|_| old).ok_or(old);
        }
        let cost = reach(self.address(), Access::Modify);
        let old = self.0.get();
        let new = new(old);
        let e = engine();
        let me = e.me();
        match new {
            Some(new) => {
                e.orders.modify(me, self.address(), yes);
                self.0.set(new);
                if new != old {
                    e.changed(self.address());
                }
            }
            None => e.orders.load(me, self.address(), no),
        }
        advance(cost, Activity::Work);
        new.map(|_| old).ok_or(old)
    }

    fn swapped(&self, value: V, order: Ordering) -> V {
        let (Ok(old) | Err(old)) = self.modify(|_| Some(value), order, Ordering::Relaxed);
        old
    }

    /// Looks whenever the line has been written to, until `done` or `end`; returns what it saw last.
    fn wait(&self, order: Ordering, end: Option<Ps>, mut done: impl FnMut(V) -> bool) -> V {
        let address = self.address();
        let mut back = reach(address, Access::Load);
        let value = loop {
            let seen = writes(address);
            let value = self.0.get();
            if done(value) {
                break value;
            }
            match spin(address, seen, end) {
                Change::Maybe(granted) => back = granted,
                Change::TimedOut => {
                    let value = self.0.get();
                    done(value);
                    break value;
                }
            }
        };
        let e = engine();
        // A value that the thread doesn't act upon need not carry knowledge.
        e.orders.load(e.me(), address, order);
        advance(back, Activity::Work);
        value
    }
}

impl Word for SimWord {
    fn new(value: u32) -> Self {
        Self(Cell::new(value))
    }
    fn load(&self, order: Ordering) -> u32 {
        self.read(order)
    }
    fn store(&self, value: u32, order: Ordering) {
        self.write(value, order);
    }
    fn swap(&self, value: u32, order: Ordering) -> u32 {
        self.swapped(value, order)
    }
    fn compare_exchange(
        &self,
        current: u32,
        new: u32,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u32, u32> {
        self.modify(|old| (old == current).then_some(new), success, failure)
    }
    fn fetch_add(&self, value: u32, order: Ordering) -> u32 {
        let (Ok(old) | Err(old)) = self.modify(|old| Some(old.wrapping_add(value)), order, order);
        old
    }
    fn fetch_sub(&self, value: u32, order: Ordering) -> u32 {
        let (Ok(old) | Err(old)) = self.modify(|old| Some(old.wrapping_sub(value)), order, order);
        old
    }
    fn fetch_or(&self, bits: u32, order: Ordering) -> u32 {
        let (Ok(old) | Err(old)) = self.modify(|old| Some(old | bits), order, order);
        old
    }
    fn fetch_and(&self, bits: u32, order: Ordering) -> u32 {
        let (Ok(old) | Err(old)) = self.modify(|old| Some(old & bits), order, order);
        old
    }
}

impl<T> Ptr<T> for SimPtr<T> {
    fn new(value: *mut T) -> Self {
        Self(Cell::new(value))
    }
    fn load(&self, order: Ordering) -> *mut T {
        self.read(order)
    }
    fn store(&self, value: *mut T, order: Ordering) {
        self.write(value, order);
    }
    fn swap(&self, value: *mut T, order: Ordering) -> *mut T {
        self.swapped(value, order)
    }
    fn compare_exchange(
        &self,
        current: *mut T,
        new: *mut T,
        success: Ordering,
        failure: Ordering,
    ) -> Result<*mut T, *mut T> {
        self.modify(|old| (old == current).then_some(new), success, failure)
    }
}

/// A moment, ps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(u64);

/// Taking or returning a line writes to it.
fn write_line(line: *mut u8) {
    let cost = reach(line.addr(), Access::Store);
    advance(cost, Activity::Work);
}

fn in_ns(e: &Engine, ns: u32) -> Ps {
    e.now + Ps::from(ns) * 1000
}

impl Platform for Sim {
    type Word = SimWord;
    type Ptr<T> = SimPtr<T>;
    type Deadline = Moment;

    fn spin_until(word: &SimWord, order: Ordering, done: impl Fn(u32) -> bool) -> u32 {
        word.wait(order, None, done)
    }

    fn spin_until_ptr<T>(
        ptr: &SimPtr<T>,
        order: Ordering,
        done: impl Fn(*mut T) -> bool,
    ) -> *mut T {
        ptr.wait(order, None, done)
    }

    fn spin_for(
        word: &SimWord,
        order: Ordering,
        ns: u32,
        mut done: impl FnMut(u32) -> bool,
    ) -> u32 {
        if ns == 0 {
            let value = word.read(order);
            done(value);
            return value;
        }
        let end = in_ns(engine(), ns);
        word.wait(order, Some(end), done)
    }

    fn load_to_write(word: &SimWord) -> u32 {
        if inside().is_some() {
            let cost = fetch(word.address());
            let e = engine();
            e.orders.load(e.me(), word.address(), Ordering::Relaxed);
            advance(cost, Activity::Work);
        }
        word.0.get()
    }

    fn pause(ns: u32) {
        let e = engine();
        // The last of the pause instructions ends a little late.
        let pause = e.cpus[e.my_cpu() as usize].pause;
        let late = e.rng.u64(0..=pause);
        advance(Ps::from(ns) * 1000 + late, Activity::SpinLocal);
    }

    fn give_way() {
        let e = engine();
        let cost = ps(e.profile.kernel.bucket_ns); // the cost of a short system call
        e.gives_way();
        advance(cost, Activity::Kernel);
    }

    fn park(word: &SimWord, seen: u32, deadline: Option<Moment>) -> Woken {
        // SAFETY: it is a word, and we have a reference.
        unsafe { futex::wait(word.0.as_ptr(), seen, deadline.map(|end| end.0), false) }
    }

    fn unpark(word: *const SimWord, count: u32) {
        futex::wake(word.addr(), count, false);
    }

    fn now() -> u64 {
        let e = engine();
        let clock = e.cpus[e.my_cpu() as usize].clock;
        advance(clock, Activity::Work);
        engine().now / 1000
    }

    fn after(ns: u32) -> Moment {
        Moment(in_ns(engine(), ns))
    }

    fn sooner(one: Moment, other: Moment) -> Moment {
        Moment(one.0.min(other.0))
    }

    fn place() -> Place {
        let e = engine();
        let number = e.my_cpu();
        let cpu = &e.cpus[number as usize];
        // What it costs: two loads of the thread's own memory.
        let cost = 2 * cpu.load;
        let class = Class(u8::try_from(cpu.class).unwrap_or(u8::MAX));
        let place = Place { cpu: number, class, domain: cpu.domain };
        advance(cost, Activity::Work);
        place
    }

    fn cpus() -> u32 {
        current().map_or(1, |e| u32::try_from(e.cpus.len()).unwrap_or(u32::MAX))
    }

    // Each CPU keeps a few spare lines, as on the native platform: taking one is an atomic step on a line of its
    // own.
    fn take_line() -> *mut u8 {
        if let Some(e) = inside() {
            let cost = e.cpus[e.my_cpu() as usize].atomic;
            advance(cost, Activity::Work);
        }
        let e = current().expect("locks live on a machine");
        let cpu = if e.running.is_some() { e.my_cpu() as usize } else { 0 };
        let line = match e.cpus[cpu].free_lines.pop() {
            Some(line) => {
                // SAFETY: it is one of our lines, and nobody writes to it any more.
                unsafe { line.write_bytes(0, LINE.size()) };
                line
            }
            None => {
                // SAFETY: the layout is not empty.
                let line = unsafe { std::alloc::alloc_zeroed(LINE) };
                e.arena.push(line); // freed with the machine: a line stays readable
                line
            }
        };
        if inside().is_some() {
            write_line(line);
        }
        line
    }

    unsafe fn give_line(line: *mut u8) {
        if let Some(e) = inside() {
            let cost = e.cpus[e.my_cpu() as usize].atomic;
            advance(cost, Activity::Work);
        }
        let e = current().expect("locks live on a machine");
        let cpu = if e.running.is_some() { e.my_cpu() as usize } else { 0 };
        e.cpus[cpu].free_lines.push(line);
    }
}

impl Requeue for Sim {
    fn park_movable(word: &SimWord, seen: u32, deadline: Option<Moment>) -> Woken {
        // SAFETY: it is a word, and we have a reference.
        unsafe { futex::wait(word.0.as_ptr(), seen, deadline.map(|end| end.0), true) }
    }

    fn unpark_moved(word: *const SimWord, count: u32) -> u32 {
        futex::wake(word.addr(), count, true)
    }

    fn requeue(from: *const SimWord, seen: u32, to: *const SimWord, count: u32) -> u32 {
        // SAFETY: callers pass a live word.
        unsafe { futex::requeue(from.cast(), seen, to.addr(), count) }
    }
}

impl Learning for Sim {
    fn memo<R>(index: usize, look: impl FnOnce(&Memo<Self>) -> R) -> Option<R> {
        inside()?;
        let memo = std::ptr::from_ref(&engine().memos[index]);
        // SAFETY: the machine's memos stay where they are until it ends.
        Some(look(unsafe { &*memo }))
    }

    fn site() -> u32 {
        let e = engine();
        e.threads[e.me() as usize].site
    }

    fn speed(class: Class) -> u32 {
        let classes = &engine().profile.class;
        let compute = |class: &ClassProfile| class.compute;
        let slower = classes.get(usize::from(class.0)).map_or(1.0, compute);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1 to 1024")]
        let speed = (f64::from(FULL_SPEED) / slower) as u32;
        speed.clamp(1, FULL_SPEED)
    }
}

impl ReaderTable for Sim {
    const ROWS: usize = 512;

    fn shown<R>(slot: usize, look: impl FnOnce(&SimCell<*mut u8>) -> R) -> Option<R> {
        inside()?;
        let row = std::ptr::from_ref(engine().shown().get(slot / Self::ROW)?);
        // SAFETY: the machine's table stays where it is until it ends.
        Some(look(unsafe { &(&(*row).0)[slot % Self::ROW] }))
    }

    fn departures<R>(look: impl FnOnce(&SimWord) -> R) -> Option<R> {
        inside()?;
        let word = std::ptr::from_ref(&engine().departures.0);
        // SAFETY: the machine's word stays where it is until it ends.
        Some(look(unsafe { &*word }))
    }
}

impl Doors for Sim {
    fn door<R>(domain: u16, lock: usize, look: impl FnOnce(&Door<Self>) -> R) -> Option<R> {
        inside()?;
        let e = engine();
        // By the line's number, not by the address: that differs from process to process.
        let at = usize::from(domain) * DOORS + e.lines.at(lock) as usize % DOORS;
        let doors = &e.doors;
        let at = at.min(doors.len().checked_sub(1)?);
        let door = std::ptr::from_ref(&doors[at]);
        // SAFETY: the machine's doors stay where they are until it ends.
        Some(look(unsafe { &*door }))
    }
}

impl Programmable for Sim {
    fn hooks(policy: u32) -> u32 {
        programs::hooks(policy)
    }

    fn ask(policy: u32, hook: Hook, context: &Context) -> u64 {
        programs::ask(policy, hook, context)
    }

    fn describe() -> Node {
        let place = Self::place(); // this takes its time
        let e = engine();
        let me = e.me();
        let thread = &e.threads[me as usize];
        let Person { slo_ns, in_epoch, tag, prio, held, since, total } = thread.person;
        let now = e.now / 1000;
        Node {
            tid: me + 1,
            cpu: place.cpu,
            numa: place.domain.into(),
            core_class: place.class.0.into(),
            prio,
            flags: if in_epoch { IN_EPOCH } else { 0 },
            speed: Self::speed(place.class),
            cs_total_ns: total + if held > 0 { now - since } else { 0 },
            held_locks: held,
            window_ns: thread.window_ns,
            slo_ns,
            tag,
            ..Node::default()
        }
    }
}

impl Publishing for Sim {}

impl Monitored for Sim {
    fn critical(is: bool) {
        let e = engine();
        let me = e.me();
        let critical = &mut e.threads[me as usize].critical;
        *critical = if is { *critical + 1 } else { *critical - 1 };
    }

    fn is_preempted() -> bool {
        engine().preempted > 0
    }
}

// SAFETY: threads are counted, and the numbers aren't used again.
unsafe impl Numbered for Sim {
    fn number() -> usize {
        inside().map_or(1, |e| e.me() as usize + 2)
    }
}

impl Priorities for Sim {}

impl Unique for Sim {
    /// Made of the thread and the nanosecond, which is never the same: each call takes one, as the next number of a thread's own
    /// block does. Each thread's numbers stay in one row of the table: it has a power of two.
    fn unique() -> usize {
        const THREADS: usize = 1 << 16;
        const NANOSECOND: Ps = 1000;
        advance(NANOSECOND, Activity::Work);
        let e = engine();
        numbered(e.me() as usize % THREADS, THREADS, (e.now / NANOSECOND) as usize)
    }
}

impl Undisturbed for Sim {
    fn undisturbed<R>(run: impl FnOnce() -> R) -> Option<R> {
        let call = ps(engine().profile.kernel.bucket_ns); // the cost of a short system call
        advance(2 * call, Activity::Kernel); // two calls: may it ask, and block
        let result = run();
        advance(call, Activity::Kernel);
        Some(result)
    }
}

impl Stages for Sim {
    fn reached(stage: Stage) {
        engine().reached(stage);
    }
}
