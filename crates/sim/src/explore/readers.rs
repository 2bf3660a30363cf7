//! What threads do with a readers-writer lock in a schedule: few acquisitions, for reading and for writing, in all the ways
//! that the lock has, and what must hold.

use super::explorer::{explorer, point};
use super::memory::Explored;
use super::protected::{check_lines, is_last, pause, spawn};
use super::setting::{Cast, THREADS};
use crate::check::Violation;
use crate::engine::{Engine, engine, fail};
use crate::lock::LockSpec;
use crate::order::Stamp;
use crate::readers::{AnyReadWrite, make};
use lockwright_locks::rw::{PREFER, Prefer};
use std::cell::{Cell, RefCell};
use std::panic::Location;
use std::rc::Rc;

/// How a thread acquires.
#[derive(Clone, Copy, Debug)]
enum Way {
    Read,
    /// Reads, and reads again meanwhile, where the lock allows that.
    ReadTwice,
    TryRead,
    ReadFor(u32),
    Write,
    TryWrite,
    WriteFor(u32),
    /// Asks, to write or to read, and is torn out of its wait.
    Torn(bool),
}

/// What the lock protects: readers look twice, writers read, modify and write.
#[derive(Default)]
struct Protected {
    /// The last write.
    written: Cell<Option<Stamp>>,
    /// Each thread's last read.
    read: Cell<[Option<Stamp>; THREADS]>,
    value: Cell<u64>,
    writes: Cell<u64>,
    writer: Cell<Option<u32>>,
    readers: Cell<u32>,
}

impl Protected {
    fn race(first: Stamp) -> ! {
        let e = engine();
        let (first, second) = (e.name(first.thread()), e.name(e.me()));
        fail(Violation::Race { at_ns: e.now / 1000, first, second });
    }

    fn together(first: u32) -> ! {
        let e = engine();
        let (first, second) = (e.name(first), e.name(e.me()));
        fail(Violation::Exclusion { lock: 0, at_ns: e.now / 1000, first, second });
    }

    fn acquired(what: &'static str) {
        let e = engine();
        let me = e.me();
        let x = explorer(e);
        x.acquired_at = x.steps;
        x.record(me, what, 0, None, Location::caller());
    }

    fn reads(&self, pace: u32) {
        let e = engine();
        let me = e.me();
        Self::acquired("reads data");
        if let Some(writer) = self.writer.get() {
            Self::together(writer);
        }
        self.readers.set(self.readers.get() | 1 << me);
        let Some(stamp) = e.orders.write(me, self.written.get()) else {
            Self::race(self.written.get().expect("it has been written"));
        };
        let mut read = self.read.get();
        read[me as usize] = Some(stamp);
        self.read.set(read);
        dwell(pace);
    }

    /// The calling thread is about to release for reading.
    fn has_read(&self) {
        self.readers.set(self.readers.get() & !(1 << engine().me()));
    }

    fn writes(&self, pace: u32) {
        let e = engine();
        let me = e.me();
        Self::acquired("writes data");
        let readers = self.readers.get();
        if let Some(other) = self.writer.replace(Some(me)) {
            Self::together(other);
        }
        if readers != 0 {
            Self::together(readers.trailing_zeros());
        }
        for before in self.read.get().into_iter().chain([self.written.get()]).flatten() {
            if e.orders.write(me, Some(before)).is_none() {
                Self::race(before);
            }
        }
        self.written.set(e.orders.write(me, None));
        let seen = self.value.get();
        dwell(pace);
        self.value.set(seen + 1);
        self.writes.set(self.writes.get() + 1);
        self.writer.set(None);
    }
}

/// A section's length: `pace`, 0 to 7, says how fast.
fn dwell(pace: u32) {
    match pace {
        0 => pause(2_000),
        1..4 => drop(point(Location::caller())),
        _ => {}
    }
}

/// What all threads of a schedule share.
struct World {
    lock: Box<dyn AnyReadWrite>,
    data: Protected,
    finished: Cell<u32>,
    /// Each thread comes once; if the last one is a writer, it destroys the lock.
    left: Option<Cell<u32>>,
    ended: Cell<bool>,
    /// The preferences that threads change to as they go.
    mixed: &'static [u32],
    mixing: RefCell<fastrand::Rng>,
    rng: RefCell<fastrand::Rng>,
}

/// In some schedules threads change the preference, to one of these. In the last, no reader reads again.
const MIXED: [&[u32]; 4] = [&[], &[], &[0, 1, 3], &[0, 1, 2, 3]];

impl World {
    fn draw(&self, below: u32) -> u32 {
        self.rng.borrow_mut().u32(0..below)
    }

    fn way(&self) -> Way {
        let ns = [0, 500, 500, 100_000][self.draw(4) as usize];
        if self.left.is_some() {
            return [Way::Read, Way::Write][self.draw(2) as usize];
        }
        match self.draw(13) {
            0..3 => Way::Read,
            3 => Way::ReadTwice,
            4 => Way::TryRead,
            5 => Way::ReadFor(ns),
            6..9 => Way::Write,
            9 => Way::TryWrite,
            10 | 11 => Way::WriteFor(ns),
            _ => Way::Torn(self.draw(2) == 0),
        }
    }

    /// From now on, perhaps, another preference holds.
    fn mix(&self) {
        let mut rng = self.mixing.borrow_mut();
        if self.mixed.is_empty() || rng.u8(0..3) == 0 {
            return;
        }
        let prefer = self.mixed[rng.usize(0..self.mixed.len())];
        if self.lock.switch(prefer) {
            let e = engine();
            let me = e.me();
            let what =
                ["prefers readers", "prefers writers", "prefers writers strictly", "is patient"]
                    [prefer as usize];
            explorer(e).record(me, what, 0, None, Location::caller());
        }
    }

    fn nests(&self) -> bool {
        self.lock.nests() && !self.mixed.contains(&(Prefer::WritersStrictly as u32))
    }

    fn visit(&self, way: Way) {
        self.mix();
        let me = engine().me();
        let lock = &self.lock;
        let way = match way {
            Way::Torn(writes) if lock.torn_wait(writes) => return,
            Way::Torn(true) => Way::TryWrite,
            Way::Torn(false) => Way::TryRead,
            other => other,
        };
        let reads = match way {
            Way::Read | Way::ReadTwice => {
                lock.read(me);
                true
            }
            Way::TryRead => lock.try_read(me),
            Way::ReadFor(ns) => lock.read_for(me, ns).unwrap_or_else(|| lock.try_read(me)),
            _ => false,
        };
        if reads {
            self.data.reads(self.draw(8));
            if matches!(way, Way::ReadTwice) && self.nests() {
                self.mix();
                lock.read(me);
                self.data.reads(self.draw(8));
                lock.leave_read(me);
            }
            self.data.has_read();
            self.mix();
            self.one_less();
            return lock.leave_read(me);
        }
        let writes = match way {
            Way::Write => {
                lock.write(me);
                true
            }
            Way::TryWrite => lock.try_write(me),
            Way::WriteFor(ns) => lock.write_for(me, ns).unwrap_or_else(|| lock.try_write(me)),
            _ => false,
        };
        if writes {
            self.data.writes(self.draw(8));
            self.mix();
            let is_last = self.one_less();
            lock.leave_write();
            if is_last {
                self.ended.set(true);
                // SAFETY: every thread has come, and the others released before we came. The lock says that this is
                // enough; the machine notices any late use.
                unsafe { lock.end() };
            }
        }
    }

    /// One thread fewer needs the lock; `true`: none does any more.
    fn one_less(&self) -> bool {
        let Some(left) = &self.left else { return false };
        left.set(left.get() - 1);
        left.get() == 0
    }

    /// The last thread to end checks that all is well.
    fn finish(&self, threads: u32) {
        let Some(me) = is_last(&self.finished, threads) else { return };
        if self.ended.get() {
            return;
        }
        let (expected, updates) = (self.data.writes.get(), self.data.value.get());
        if updates != expected {
            fail(Violation::Lost { expected, missing: expected - updates });
        }
        let not_free = || -> ! { fail(Violation::NotFree { who: engine().name(me) }) };
        if !self.lock.try_write(me) {
            not_free();
        }
        self.lock.leave_write();
        if !self.lock.try_read(me) {
            not_free();
        }
        self.lock.leave_read(me);
        self.lock.write(me);
        self.lock.leave_write();
        check_lines();
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if !self.ended.get() {
            // SAFETY: its threads have ended.
            unsafe { self.lock.end() };
        }
    }
}

/// As [`scenario::set_up`](super::scenario::set_up).
pub(super) fn set_up(
    e: &mut Engine,
    spec: &LockSpec,
    setting: &Cast,
    mut rng: fastrand::Rng,
) -> impl Sized + use<> {
    let threads = setting.threads;
    // Without a policy it is another lock, whose own explorations suffice.
    let has_policy = spec.option("slot").is_some();
    let programmed = if has_policy { spec.with("slot", 1).ok() } else { None };
    let lock = make::<Explored>(programmed.as_ref().unwrap_or(spec), threads as usize);
    explorer(e).lock = lock.place();
    explorer(e).lines_out = 0; // the lock's own, which it keeps
    // A sequence of its own: the other draws are the same as without it.
    let mut mixing = rng.clone();
    let given = spec.option(PREFER.key).is_some();
    let mixed = MIXED[mixing.usize(0..if given { 1 } else { MIXED.len() })];
    let ends = rng.u8(0..6) == 0 && lock.last_may_end();
    let world = Rc::new(World {
        lock,
        data: Protected::default(),
        finished: Cell::default(),
        left: ends.then(|| Cell::new(threads)),
        ended: Cell::default(),
        mixed,
        mixing: RefCell::new(mixing),
        rng: RefCell::new(rng),
    });
    spawn(e, &world, threads, move |world: &World, _| {
        let visits = if ends { 0 } else { world.draw(3) };
        for _ in 0..=visits {
            if world.draw(4) == 0 {
                pause(1_000);
            }
            world.visit(world.way());
        }
        world.finish(threads);
    });
    world
}
