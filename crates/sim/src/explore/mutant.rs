//! Mutants: one operation of a lock, by its place in the source, does less than it says.
//!
//! Nothing is rebuilt: the machine knows which line calls it (`#[track_caller]`), and acts differently there. So a
//! mutant is the lock's own machine code, on a machine with one fault.

use lockwright_platform::Ordering::{self, AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::fmt;
use std::panic::Location;
use thiserror::Error;

/// Where in a lock's source something happens.
pub(crate) type At = &'static Location<'static>;

/// What a place in the source asks of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// `load`.
    Load,
    /// `store`.
    Store,
    /// `swap`.
    Swap,
    /// `compare_exchange`.
    CompareExchange,
    /// `fetch_add`.
    Add,
    /// `fetch_sub`.
    Subtract,
    /// `fetch_or`.
    Or,
    /// `fetch_and`.
    And,
    /// `spin_until`, `spin_until_ptr`, `spin_for`.
    Wait,
    /// `park`, `park_movable`.
    Park,
    /// `unpark`, `unpark_moved`.
    Unpark,
}

impl Op {
    /// Its name in the source.
    pub fn name(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Store => "store",
            Self::Swap => "swap",
            Self::CompareExchange => "compare_exchange",
            Self::Add => "fetch_add",
            Self::Subtract => "fetch_sub",
            Self::Or => "fetch_or",
            Self::And => "fetch_and",
            Self::Wait => "spin",
            Self::Park => "park",
            Self::Unpark => "unpark",
        }
    }
}

/// A place in a lock's source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourcePlace {
    /// The file's name, from below `crates/locks/src`.
    pub file: &'static str,
    /// Its line.
    pub line: u32,
    /// And column.
    pub column: u32,
}

impl SourcePlace {
    pub(crate) fn is(&self, at: At) -> bool {
        self.line == at.line() && self.column == at.column() && self.file == short(at.file())
    }
}

impl fmt::Display for SourcePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}:{}:{}", SOURCES, self.file, self.line, self.column)
    }
}

/// Where the locks' sources are, in the workspace.
const SOURCES: &str = "crates/locks/src/";

/// A file's name, relative to the locks' sources.
pub(crate) fn short(file: &'static str) -> &'static str {
    file.find(SOURCES).map_or(file, |at| &file[at + SOURCES.len()..])
}

/// What a lock asks of the machine, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// Where.
    pub place: SourcePlace,
    /// What.
    pub op: Op,
    /// Its ordering.
    pub order: Ordering,
    /// The ordering if it fails.
    pub failure: Ordering,
}

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// Another ordering.
    Order(Ordering),
    /// Another ordering of a `compare_exchange` that fails.
    Failure(Ordering),
    /// It claims to have written, but hasn't.
    NoStore,
    /// It reads and writes in two steps.
    Split,
    /// A `compare_exchange` that fails writes anyway.
    AlwaysWrites,
    /// It wakes nobody.
    NoWake,
    /// It sleeps whatever the word holds.
    NoCompare,
}

impl Mutation {
    pub(crate) fn order(this: Option<Self>, stated: Ordering) -> Ordering {
        if let Some(Self::Order(order)) = this { order } else { stated }
    }

    pub(crate) fn failure_order(this: Option<Self>, stated: Ordering) -> Ordering {
        if let Some(Self::Failure(order)) = this { order } else { stated }
    }
}

const NAMES: [(Mutation, &str); 10] = [
    (Mutation::Order(Relaxed), "relaxed"),
    (Mutation::Order(Acquire), "acquire"),
    (Mutation::Order(Release), "release"),
    (Mutation::Order(AcqRel), "acqrel"),
    (Mutation::Failure(Relaxed), "failure-relaxed"),
    (Mutation::NoStore, "no-store"),
    (Mutation::Split, "split"),
    (Mutation::AlwaysWrites, "always-writes"),
    (Mutation::NoWake, "no-wake"),
    (Mutation::NoCompare, "no-compare"),
];

impl fmt::Display for Mutation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NAMES.iter().find(|(mutation, _)| mutation == self);
        f.pad(name.map_or("failure-other", |(_, name)| name))
    }
}

/// Why a text names no mutant.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MutantError {
    /// It is not `FILE:LINE:COLUMN:MUTATION`.
    #[error("mutant '{0}' is not FILE:LINE:COLUMN:MUTATION")]
    Form(String),
    /// No mutation has that name.
    #[error("mutant '{0}': no mutation '{1}'; there are {names}", names = mutation_names())]
    Mutation(String, String),
    /// The lock's schedules don't reach that place.
    #[error(
        "mutant '{0}': this lock's schedules come to no such place, or there is no such mutation of it"
    )]
    Place(String),
}

fn mutation_names() -> String {
    NAMES.map(|(_, name)| name).join(", ")
}

impl Mutant {
    /// The one of `sites` that `text` names, as [`Mutant`]'s own text does.
    pub fn find(text: &str, sites: &[Site]) -> Result<Self, MutantError> {
        let (place, mutation) =
            text.rsplit_once(':').ok_or_else(|| MutantError::Form(text.into()))?;
        let name = NAMES.iter().find(|(_, name)| *name == mutation);
        if place.rsplit(':').take(2).any(|number| number.parse::<u32>().is_err()) {
            return Err(MutantError::Form(text.into()));
        }
        let (mutation, _) =
            name.ok_or_else(|| MutantError::Mutation(text.into(), mutation.into()))?;
        let is_meant = |mutant: &Mutant| {
            let shown = mutant.site.to_string();
            mutant.mutation == *mutation
                && (shown == place || shown.strip_prefix(SOURCES) == Some(place))
        };
        let mut all = sites.iter().flat_map(Site::mutants);
        all.find(is_meant).ok_or_else(|| MutantError::Place(text.into()))
    }
}

/// One fault at one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mutant {
    /// Where.
    pub site: SourcePlace,
    /// What.
    pub mutation: Mutation,
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.site, self.mutation)
    }
}

impl Site {
    fn weaker(order: Ordering) -> &'static [Ordering] {
        match order {
            Acquire | Release => &[Relaxed],
            AcqRel => &[Acquire, Release],
            SeqCst => &[AcqRel],
            _ => &[],
        }
    }

    /// All faults that are possible here.
    pub fn mutants(&self) -> Vec<Mutant> {
        let modifies = !matches!(self.op, Op::Load | Op::Store | Op::Wait | Op::Park | Op::Unpark);
        let mut all: Vec<Mutation> =
            Self::weaker(self.order).iter().copied().map(Mutation::Order).collect();
        if self.op == Op::CompareExchange {
            all.extend(Self::weaker(self.failure).iter().copied().map(Mutation::Failure));
            all.push(Mutation::AlwaysWrites);
        }
        if modifies {
            all.push(Mutation::Split);
        }
        if modifies || self.op == Op::Store {
            all.push(Mutation::NoStore);
        }
        match self.op {
            Op::Park => all.push(Mutation::NoCompare),
            Op::Unpark => all.push(Mutation::NoWake),
            _ => {}
        }
        all.into_iter().map(|mutation| Mutant { site: self.place, mutation }).collect()
    }

    /// Is it part of a hand-over: an ordering, a wake, a sleep that must not miss one, or a store that releases?
    pub fn hands_over(&self, mutation: Mutation) -> bool {
        match mutation {
            Mutation::Order(_) | Mutation::Failure(_) | Mutation::NoWake | Mutation::NoCompare => {
                true
            }
            Mutation::NoStore => matches!(self.order, Release | AcqRel | SeqCst),
            Mutation::Split | Mutation::AlwaysWrites => false,
        }
    }
}

/// The sites that schedules have reached.
#[derive(Debug, Default)]
pub(crate) struct Sites(Vec<Site>);

impl Sites {
    pub(crate) fn note(&mut self, at: At, op: Op, order: Ordering, failure: Ordering) {
        // The explorer's own steps belong to no lock.
        if at.file().contains(SOURCES) && !self.0.iter().any(|site| site.place.is(at)) {
            let (file, line, column) = (short(at.file()), at.line(), at.column());
            self.0.push(Site { place: SourcePlace { file, line, column }, op, order, failure });
        }
    }

    /// In the order of the sources.
    pub(crate) fn sorted(mut self) -> Vec<Site> {
        self.0.sort_by_key(|site| (site.place.file, site.place.line, site.place.column));
        self.0
    }
}
