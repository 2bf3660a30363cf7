//! Cycles with names: the contents of a report.

use super::circles::{Circle, CycleVerdict, circles};
use super::reader::{Edge, End, LockKind, Lost, Noted, read};
use crate::counts::outcome::{is_of_a_lock, lock_name};
use crate::files::files;
use lockwright_contract::header::Layout;
use lockwright_contract::order::OrderHeader;
use lockwright_symbols::{Frame, Symboliser, Unwinder};
use lockwright_text::Failure;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The orders in which one process's threads took their locks.
#[derive(Debug, Serialize)]
pub struct Orders {
    /// Its id.
    pub pid: u32,
    /// Its command line.
    pub command: String,
    /// The lock algorithm in use.
    pub lock: String,
    /// Locks that a thread took or held together with others.
    pub locks: usize,
    /// Pairs of locks that were taken in order.
    pub pairs: usize,
    /// The most important first.
    pub circles: Vec<Named>,
    /// Could there be more?
    pub is_cut: bool,
    /// Threads that were waiting for each other when the process was last seen.
    pub stuck: Vec<Stuck>,
    /// What was not recorded.
    pub lost: Lost,
}

/// What a cycle can cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Risk {
    /// Its threads can wait for each other forever.
    Deadlock,
    /// They could, if several threads did what one thread was seen to do.
    OneThread,
    /// Nothing: other locks admit only one of them at a time.
    Guarded,
}

/// A cycle.
#[derive(Debug, Serialize)]
pub struct Named {
    /// What it can cause.
    pub risk: Risk,
    /// In the order of its edges.
    pub locks: Vec<NamedLock>,
    /// The locks that prevent the deadlock.
    pub guards: Vec<String>,
    /// Its edges.
    pub steps: Vec<Nesting>,
    /// Number of cycles of other locks at the same places.
    pub more: usize,
}

/// A lock of a cycle.
#[derive(Clone, Debug, Serialize)]
pub struct NamedLock {
    /// Its name, as in `profile`.
    pub name: String,
    /// Its address.
    pub address: u64,
    /// Mutex, readers-writer lock or spin lock.
    pub kind: LockKind,
    /// Has it been destroyed since?
    pub is_gone: bool,
}

/// A thread took one lock while it held another.
#[derive(Debug, Serialize)]
pub struct Nesting {
    /// The first thread that did so.
    pub thread: u32,
    /// Did other threads do so, too?
    pub has_more_threads: bool,
    /// How often.
    pub count: u64,
    /// Where it took the lock that it held.
    pub held: Place,
    /// Where it then took the other.
    pub asked: Place,
}

/// The first place where a thread was seen to take a lock.
#[derive(Debug, Serialize)]
pub struct Place {
    /// The lock's name.
    pub lock: String,
    /// Was it taken to read?
    pub reads: bool,
    /// The lock was retaken after a wait for a condition variable, which releases it. The place is where it was taken
    /// first.
    pub again: bool,
    /// Function, file and line.
    pub at: String,
    /// The callers, from there outwards.
    pub stack: Vec<String>,
}

/// A thread in a cycle of waits: it waits for a thread that waits, and so on, for the first one.
#[derive(Debug, Serialize)]
pub struct Stuck {
    /// Its id.
    pub thread: u32,
    /// The lock's name.
    pub waits_for: String,
    /// Where it waits: function, file and line.
    pub at: String,
    /// The thread that has the lock.
    pub held_by: u32,
}

impl Orders {
    /// Is there a cycle in which threads can block each other?
    pub fn has_inversion(&self) -> bool {
        self.circles.iter().any(|circle| circle.risk == Risk::Deadlock) || !self.stuck.is_empty()
    }
}

/// What the processes recorded in that folder, those with a cycle first.
pub fn all(folder: &Path, unread: impl FnMut(&Failure)) -> Result<Vec<Orders>, Failure> {
    let mut all =
        files(folder, OrderHeader::ENDING, |file, path| Ok(outcome(&read(file, path)?)), unread)?;
    all.retain(|outcome| outcome.pairs > 0);
    let worst = |outcome: &Orders| outcome.circles.first().map_or(Risk::Guarded, |c| c.risk);
    all.sort_by_key(|outcome| (worst(outcome), outcome.circles.is_empty(), outcome.pid));
    Ok(all)
}

fn outcome(noted: &Noted) -> Orders {
    let (found, is_cut) = circles(&noted.edges);
    let mut names = Names::new(noted);
    let ends = || noted.edges.iter().flat_map(|edge| [edge.from, edge.to]);
    let pairs: BTreeSet<_> = noted.edges.iter().map(|e| (e.from.id, e.to.id)).collect();
    Orders {
        pid: noted.pid,
        command: noted.command.clone(),
        lock: noted.lock.clone(),
        locks: ends().map(|end| end.id).collect::<BTreeSet<_>>().len(),
        pairs: pairs.len(),
        circles: together(&found, &noted.edges)
            .into_iter()
            .map(|(circle, more)| names.circle(circle, more))
            .collect(),
        is_cut,
        stuck: names.stuck(),
        lost: noted.lost,
    }
}

/// Merges cycles at the same places; the report shows the first. (A thousand objects have a thousand locks, but one
/// bug.)
fn together<'a>(circles: &'a [Circle], edges: &[Edge]) -> Vec<(&'a Circle, usize)> {
    let mut known: BTreeMap<_, usize> = BTreeMap::new();
    let mut all: Vec<(&Circle, usize)> = Vec::new();
    for circle in circles {
        let sites = |&at: &usize| (edges[at].from.site, edges[at].to.site);
        let mut places: Vec<_> = circle.edges.iter().map(sites).collect();
        places.sort_unstable();
        let key = (std::mem::discriminant(&circle.verdict), places);
        let at = *known.entry((format!("{:?}", key.0), key.1)).or_insert(all.len());
        match all.get_mut(at) {
            Some((_, more)) => *more += 1,
            None => all.push((circle, 0)),
        }
    }
    all
}

/// Names locks and functions of the process.
struct Names<'a> {
    noted: &'a Noted,
    symbols: Symboliser,
    unwinder: Option<Unwinder>,
    /// By stack number and call site.
    stacks: BTreeMap<(u32, u64), Vec<Frame>>,
}

impl<'a> Names<'a> {
    fn new(noted: &'a Noted) -> Self {
        let symbols = Symboliser::new(noted.space.clone());
        Self { noted, symbols, unwinder: None, stacks: BTreeMap::new() }
    }

    fn circle(&mut self, circle: &Circle, more: usize) -> Named {
        let edges: Vec<&Edge> = circle.edges.iter().map(|&at| &self.noted.edges[at]).collect();
        let risk = match circle.verdict {
            CycleVerdict::Deadlock => Risk::Deadlock,
            CycleVerdict::OneThread => Risk::OneThread,
            CycleVerdict::Guarded(_) => Risk::Guarded,
        };
        let guards = match &circle.verdict {
            CycleVerdict::Guarded(guards) => guards.iter().map(|&id| self.name(id)).collect(),
            _ => Vec::new(),
        };
        let locks = edges.iter().map(|edge| self.lock(edge.from)).collect();
        let steps = edges.iter().map(|edge| Nesting {
            thread: edge.tid,
            has_more_threads: edge.more || edge.threads.len() > 1,
            count: edge.count,
            held: self.place(edge.from),
            asked: self.place(edge.to),
        });
        Named { risk, locks, guards, steps: steps.collect(), more }
    }

    fn lock(&mut self, end: End) -> NamedLock {
        NamedLock {
            name: self.name(end.id),
            address: end.address,
            kind: end.kind,
            is_gone: self.noted.gone.contains(&end.id),
        }
    }

    /// A lock's name. A lock that isn't a variable is named after the function that took it first.
    fn name(&mut self, id: u32) -> String {
        let mut ends = self.noted.edges.iter().flat_map(|edge| [edge.from, edge.to]);
        let Some(end) = ends.find(|end| end.id == id) else { return "another lock".to_owned() };
        let function = self.frames(end.site, end.stack).first().map(Frame::name);
        lock_name(end.address, function, &mut self.symbols)
    }

    fn place(&mut self, end: End) -> Place {
        let lock = self.name(end.id);
        let stack: Vec<String> =
            self.frames(end.site, end.stack).iter().map(Frame::to_string).collect();
        let at = stack.first().cloned().unwrap_or_else(|| "(not known)".to_owned());
        Place { lock, reads: end.reads, again: end.again, at, stack }
    }

    /// The program's functions from a call outwards. Without a stack, only the calling function.
    fn frames(&mut self, site: u64, stack: u32) -> Vec<Frame> {
        if let Some(known) = self.stacks.get(&(stack, site)) {
            return known.clone();
        }
        let mut addresses = Vec::new();
        if let Some(piece) = self.noted.stack(stack) {
            let unwinder = self.unwinder.get_or_insert_with(|| Unwinder::new(&mut self.symbols));
            addresses = piece.calls(unwinder, &self.noted.space).to_vec();
        }
        if addresses.is_empty() && site != 0 {
            addresses.push(site.wrapping_sub(1));
        }
        let all: Vec<Frame> =
            addresses.iter().flat_map(|&at| self.symbols.code(at).to_vec()).collect();
        // The methods of lock guards are not critical sections.
        let first = all.iter().position(|frame| !is_of_a_lock(frame)).unwrap_or(0);
        let frames = all[first..].to_vec();
        self.stacks.insert((stack, site), frames.clone());
        frames
    }

    /// Threads that wait for each other in a cycle.
    fn stuck(&mut self) -> Vec<Stuck> {
        let noted = self.noted;
        let holder = |lock: u64| {
            let holds = |held: &(u64, u64)| held.0 == lock;
            noted.threads.iter().position(|thread| thread.held.iter().any(holds))
        };
        let next = |thread: usize| match noted.threads[thread].waits_for.0 {
            0 => None,
            lock => holder(lock),
        };
        let comes_back = |&start: &usize| {
            let mut at = next(start);
            for _ in 0..noted.threads.len() {
                match at {
                    Some(here) if here == start => return true,
                    Some(here) => at = next(here),
                    None => return false,
                }
            }
            false
        };
        let stuck: Vec<usize> = (0..noted.threads.len()).filter(comes_back).collect();
        let mut named = Vec::new();
        for at in stuck {
            let (lock, site) = noted.threads[at].waits_for;
            let holder = next(at).expect("it comes back");
            let held = noted.threads[holder].held.iter().find(|held| held.0 == lock);
            let by = self.frames(held.map_or(0, |held| held.1), 0).first().map(Frame::name);
            let at_site = self.frames(site, 0).first().map(Frame::to_string);
            named.push(Stuck {
                thread: noted.threads[at].tid,
                waits_for: lock_name(lock, by, &mut self.symbols),
                at: at_site.unwrap_or_else(|| "(not known)".to_owned()),
                held_by: noted.threads[holder].tid,
            });
        }
        named
    }
}
