//! The catalogue: the only list of locks. The command, the docs, the tests, the models and the runtime
//! iterate it; a new lock is its own file and one line below.

use crate::{amp, block, front, queue, spin};
use lockwright_platform::{InPlace, Platform, RawLock, TryLock};

/// How a lock comes to stand in a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Word 0 of `pthread_mutex_t` *is* the lock (glibc's own protocol); the algorithm is who waits and
    /// how. What we recommend to programs.
    Front,
    /// The textbook algorithm, as published. Under the preload it stands in front of word 0: whoever
    /// holds it may compete for the word.
    Whole,
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

/// What the catalogue says of a lock. Each lock's file exports its own as `ENTRY`.
#[derive(Debug)]
pub struct Entry {
    /// The name, everywhere: file name, command line, environment.
    pub id: &'static str,
    /// Front or whole.
    pub kind: Kind,
    /// One line: the idea.
    pub idea: &'static str,
    /// Authors, title, venue, year, figure; or where the protocol comes from.
    pub source: &'static str,
    /// In which order waiters get the lock.
    pub order: &'static str,
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
    fn visit<L: RawLock<P> + InPlace>(&mut self, entry: &'static Entry);
}

/// As [`Visitor`], for the front locks.
pub trait FrontVisitor<P: Platform> {
    /// Called once a front lock, in the catalogue's order.
    fn visit<L: front::Front<P>>(&mut self, entry: &'static Entry);
}

macro_rules! catalog {
    (front { $($front:path),* $(,)? } whole { $($whole:path),* $(,)? }) => {
        /// Every lock.
        pub static CATALOG: &[&Entry] = &[
            $({ use $front as lock; &lock::ENTRY },)*
            $({ use $whole as lock; &lock::ENTRY },)*
        ];

        /// Shows every lock's type to `visitor`.
        pub fn visit_all<P: Platform>(visitor: &mut impl Visitor<P>) {
            $({ use $front as lock; visitor.visit::<lock::Lock<P>>(&lock::ENTRY); })*
            $({ use $whole as lock; visitor.visit::<lock::Lock<P>>(&lock::ENTRY); })*
        }

        /// Shows every front lock's type to `visitor`.
        pub fn visit_front<P: Platform>(visitor: &mut impl FrontVisitor<P>) {
            $({ use $front as lock; visitor.visit::<lock::Lock<P>>(&lock::ENTRY); })*
        }

        /// Shows every whole lock's type to `visitor`.
        pub fn visit_whole<P: Platform>(visitor: &mut impl WholeVisitor<P>) {
            $({ use $whole as lock; visitor.visit::<lock::Lock<P>>(&lock::ENTRY); })*
        }
    };
}

catalog! {
    front {
        front::auto, front::barging, front::fifo,
        front::asl, front::asl_max, front::asl_opt, front::pb10,
    }
    whole {
        spin::tas, spin::ttas, spin::ticket, queue::mcs, queue::clh, block::mcs_stp,
        amp::asl_mcs, amp::asl_ticket, amp::asl_clh,
    }
}

/// The front locks, without those that are another one with a fixed option (`asl-max` and `asl-opt` are `asl` with a
/// window of their own): what whole-system tests run under.
pub fn front_rules() -> impl Iterator<Item = &'static Entry> {
    let is_rule =
        |entry: &&Entry| entry.kind == Kind::Front && !["asl-max", "asl-opt"].contains(&entry.id);
    CATALOG.iter().copied().filter(is_rule)
}

/// The entry called `id`.
pub fn find(id: &str) -> Option<&'static Entry> {
    CATALOG.iter().copied().find(|entry| entry.id == id)
}
