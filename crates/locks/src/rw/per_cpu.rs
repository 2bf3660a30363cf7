//! per-cpu: a reader counts itself on its CPU's cache line; a writer closes a gate, and waits until every line is empty.
//!
//! The idea is that of distributed readers-writer locks: W. C. Hsieh, W. E. Weihl, *Scalable Reader-Writer Locks for Parallel
//! Systems*, IPPS 1992 (a mutex for each processor; a writer takes all of them). Ours counts, since a thread may leave on a
//! different CPU from the one it came on. And it has an inner readers-writer lock, where readers that find the gate closed wait.
//!
//! ```text
//!            ┌──────┬───────┐     CPU 0  ┌ 2 ┐
//!   the lock │ gate │ inner │     CPU 1  ├ 0 ┤   readers, a line each
//!            └──────┴───────┘     CPU 2  ├ 1 ┤
//!
//!   reader      its line += 1 ──► gate open? ──► in           otherwise undoes that, and takes inner for reading
//!   its leave   the same line -= 1
//!   writer      inner for writing ──► closes the gate ──► until each line has been 0 ──► in
//!   its leave   opens the gate, releases inner
//! ```
//!
//! 1. Only a thread that holds inner for writing writes the gate, and the gate is open when inner is released.
//! 2. A reader that has counted itself and then sees the gate open is in until it counts itself out. A reader that finds the gate
//!    closed counts itself out at once: it may delay the writer, and nothing else.
//! 3. A writer is in when it has inner, the gate is closed, and since then it has seen each line empty once.
//! 4. A writer's release lets readers in before its last access. So the lock may be destroyed only when every release has returned.
//!
//! Facts: as inner, on which readers wait; 128 B per CPU (of 64 at most; more CPUs share lines) and 1 KB per lock. It has no bias: a
//! reader costs the same whenever no writer is there, and a writer always looks at all lines. A reader that reads again may wait for
//! a writer that waits for its line. A writer that waits for lines stays awake, and yields now and then.

use super::{PREFER, ReadWrite, SPIN, Tuning};
use crate::entry::{Entry, Kind, Promise};
use crate::wide::Apart;
use core::array;
use lockwright_platform::Ordering::{Release, SeqCst};
use lockwright_platform::{Platform, Word};

/// What the catalogue says.
pub const ENTRY: Entry = Entry {
    id: "per-cpu",
    kind: Kind::ReadWrite,
    preset_of: None,
    idea: "a reader counts itself in its CPU's own cache line; a writer closes a gate and checks every line",
    source: "W. C. Hsieh, W. E. Weihl, Scalable Reader-Writer Locks for Parallel Systems, IPPS 1992, with counters, over rwlock",
    order: "as rwlock for threads that meet a writer",
    promise: Promise::Nothing,
    stands_by: false,
    space: "128 B per CPU (64 at most), and 1 KB per lock",
    wakes: "as rwlock, but a writer spins while it waits for counters to drain",
    delay: "a writer, every time, by one cache line of each CPU; a recursive read lock may deadlock",
    advice: "a few locks that are nearly always locked for reading. Not for unmodified programs: it doesn't fit a pthread_rwlock_t, and they may lock for reading recursively",
    options: &[PREFER, SPIN],
};

/// The name that the catalogue uses.
pub type Lock<P> = PerCpu<P, super::rwlock::Lock<P>>;

/// The most lines.
const CPUS: usize = 64;

const OPEN: u32 = 0;
const CLOSED: u32 = 1;

/// A distributed readers-writer lock.
pub struct PerCpu<P: Platform, L> {
    /// Closed while a writer comes or is in. Written under `inner`.
    gate: P::Word,
    inner: L,
    /// The readers' counts, written by readers: as many as the program had CPUs when the lock was made.
    lines: [Option<Apart<P, P::Word>>; CPUS],
    count: usize,
}

/// How a reader got in.
#[derive(Clone, Copy, Debug)]
pub enum Pass<I> {
    /// By this line.
    Counted(usize),
    /// By the inner lock.
    Inner(I),
}

impl<P: Platform, L: ReadWrite<P>> PerCpu<P, L> {
    fn line(&self, number: usize) -> Option<&P::Word> {
        self.lines.get(number)?.as_deref()
    }

    /// Lets a reader in without `inner`, if the gate is open; returns its line.
    #[inline]
    fn count_in(&self) -> Option<usize> {
        let number = P::place().cpu as usize % self.count;
        // ORDERING: SeqCst [count], with [open?], [close] and [empty?]: reader and writer must not both miss each other.
        self.line(number)?.fetch_add(1, SeqCst);
        // ORDERING: SeqCst [open?], as at [count]. Acquire, pairs with [open]: we see what the last writer wrote.
        if self.gate.load(SeqCst) == OPEN {
            return Some(number);
        }
        self.count_out(number);
        None
    }

    fn count_out(&self, number: usize) {
        if let Some(line) = self.line(number) {
            // ORDERING: Release [out]: our reads are done before a writer that sees this writes.
            line.fetch_sub(1, Release);
        }
    }
}

impl<P: Platform, L: ReadWrite<P>> ReadWrite<P> for PerCpu<P, L> {
    type Pass = Pass<L::Pass>;

    fn new(tuning: &Tuning) -> Self {
        let count = (P::cpus() as usize).clamp(1, CPUS);
        let line = |number| (number < count).then(|| Apart::new(P::Word::new(0)));
        Self { gate: P::Word::new(OPEN), inner: L::new(tuning), lines: array::from_fn(line), count }
    }

    fn nests(_: &Tuning) -> bool {
        false
    }

    #[inline]
    fn read(&self, me: u32) -> Pass<L::Pass> {
        match self.count_in() {
            Some(number) => Pass::Counted(number),
            None => Pass::Inner(self.inner.read(me)),
        }
    }

    #[inline]
    fn try_read(&self, me: u32) -> Option<Pass<L::Pass>> {
        match self.count_in() {
            Some(number) => Some(Pass::Counted(number)),
            None => self.inner.try_read(me).map(Pass::Inner),
        }
    }

    #[inline]
    fn leave_read(&self, pass: Pass<L::Pass>) {
        match pass {
            Pass::Counted(number) => self.count_out(number),
            Pass::Inner(pass) => self.inner.leave_read(pass),
        }
    }

    #[inline]
    fn write(&self, me: u32) {
        self.inner.write(me);
        // ORDERING: SeqCst [close], as at [count].
        self.gate.store(CLOSED, SeqCst);
        for line in self.lines.iter().flatten() {
            // ORDERING: SeqCst [empty?], as at [count]. Acquire, pairs with [out].
            P::spin_until(line, SeqCst, |readers| readers == 0);
        }
    }

    fn try_write(&self, me: u32) -> bool {
        if !self.inner.try_write(me) {
            return false;
        }
        // ORDERING: SeqCst [close], as at [count].
        self.gate.store(CLOSED, SeqCst);
        // ORDERING: SeqCst [empty?], as at [count]. Acquire, pairs with [out].
        let free = self.lines.iter().flatten().all(|line| line.load(SeqCst) == 0);
        if !free {
            self.leave_write();
        }
        free
    }

    #[inline]
    fn leave_write(&self) {
        // ORDERING: Release [open]: every reader sees what we wrote.
        // SURVIVES no-store: readers that find the gate closed use inner.
        self.gate.store(OPEN, Release);
        self.inner.leave_write();
    }
}
