//! What the catalogue says of a lock, and what it lets others do with all of them.

use crate::front::Rule;
use crate::rw::ReadWrite;
use lockwright_platform::{InPlace, Platform, TryLock};

/// How a lock gets into a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Word 0 of `pthread_mutex_t` *is* the lock (glibc's own protocol); the algorithm is who waits and
    /// how. We recommend these for programs.
    Front,
    /// The textbook algorithm, as published. Under the preload it stands in front of word 0: its
    /// holder may compete for the word.
    Whole,
    /// A readers-writer lock, listed apart: it serves no mutex.
    ReadWrite,
}

/// What a lock promises about the order of its waiters: `sim` and `explore` check it at every acquisition. On
/// every lock, it does not cover threads that don't queue (trylock, timed locks, signalled condvar waiters).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// None: any waiter may be overtaken any number of times.
    Nothing,
    /// First come, first served: once a waiter could be seen waiting, nobody that comes later is served
    /// before it.
    Arrival,
    /// While a waiter is head of the line, at most `bypass` (the tuning's) threads that came after it joined
    /// take the lock; not counted while it naps or watches, for a bounded time.
    Bypass,
    /// `Arrival` unless threads outnumber the CPUs; always `Bypass`.
    ArrivalOrBypass,
}

/// One option of a lock, as in `fifo:bypass=64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionSpec {
    /// The word before `=`.
    pub key: &'static str,
    /// What it means, with its unit.
    pub meaning: &'static str,
    /// Smallest legal value.
    pub min: u32,
    /// Largest legal value.
    pub max: u32,
    /// Value when not given; `None`: the machine decides (CPUs, affinity, quota).
    pub default: Option<u32>,
}

impl OptionSpec {
    /// Is it a time, in ns?
    pub fn is_time(&self) -> bool {
        self.meaning.starts_with("ns ")
    }

    /// The same, with a lock's own default.
    pub const fn or(self, default: u32) -> Self {
        Self { default: Some(default), ..self }
    }
}

/// What the catalogue says of a lock. Each lock's file exports its own as `ENTRY`; the catalogue has those of presets.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The name, everywhere: file name, command line, environment.
    pub id: &'static str,
    /// Front, whole, or a readers-writer lock.
    pub kind: Kind,
    /// The lock whose rule or algorithm it shares, with other defaults; none: it has a file of its own.
    pub preset_of: Option<&'static str>,
    /// One line: the idea.
    pub idea: &'static str,
    /// Authors, title, venue, year, figure; or where the protocol comes from.
    pub source: &'static str,
    /// In which order waiters get the lock, in words.
    pub order: &'static str,
    /// The same, as it is checked.
    pub promise: Promise,
    /// Do waiters on slower cores stand by for a window of time before they ask?
    pub stands_by: bool,
    /// Bytes per lock and per waiter.
    pub space: &'static str,
    /// Who sleeps, who wakes whom, and when.
    pub wakes: &'static str,
    /// Who may be delayed, by what, and the bound if there is one.
    pub delay: &'static str,
    /// When to use it, and when not.
    pub advice: &'static str,
    /// Its options.
    pub options: &'static [OptionSpec],
}

/// Does something with the type of every lock: the way to run generic code over the catalogue.
pub trait Visitor<P: Platform> {
    /// Called once a lock, in the catalogue's order.
    fn visit<L: TryLock<P> + 'static>(&mut self, entry: &'static Entry);
}

/// As [`Visitor`], for the whole locks, which can live in place.
pub trait WholeVisitor<P: Platform> {
    /// Called once a whole lock, in the catalogue's order.
    fn visit<L: TryLock<P> + InPlace + 'static>(&mut self, entry: &'static Entry);
}

/// As [`Visitor`], for the front locks' rules.
pub trait FrontVisitor<P: Platform> {
    /// Called once a front lock, in the catalogue's order.
    fn visit<R: Rule<P>>(&mut self, entry: &'static Entry);
}

/// As [`Visitor`], for the readers-writer locks.
pub trait ReadWriteVisitor<P: Platform> {
    /// Called once a readers-writer lock, in their order.
    fn visit<L: ReadWrite<P> + 'static>(&mut self, entry: &'static Entry);
}
