//! Cycles in the order of locks: each of several threads may hold the lock that the next one requests.
//!
//! This is the search of Goodlock (Havelund, 2000) and its successors. A cycle is a possible deadlock under two
//! conditions. No lock is held at two of its edges, because such a lock would admit only one thread at a time. And each
//! edge can be executed by a different thread.

use super::reader::Edge;
use petgraph::algo::tarjan_scc;
use petgraph::graph::{DiGraph, NodeIndex};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum length of a cycle: programs seldom hold more locks.
const LONGEST: usize = 8;
/// Maximum number of search steps: the number of cycles can be exponential.
const STEPS: usize = 1_000_000;
/// Maximum number of cycles that are kept.
const MOST: usize = 10_000;

/// Whether a cycle's threads can deadlock.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CycleVerdict {
    /// They can wait for each other forever.
    Deadlock,
    /// They could, but only one thread was seen there, and it can't block itself.
    OneThread,
    /// They can't, because these locks admit only one of them at a time.
    Guarded(BTreeSet<u32>),
}

/// A cycle of edges. Each edge starts at the lock to which the previous edge leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Circle {
    /// Indices of the edges.
    pub edges: Vec<usize>,
    pub verdict: CycleVerdict,
}

/// All cycles, the most important first, and whether some may be missing.
pub(super) fn circles(edges: &[Edge]) -> (Vec<Circle>, bool) {
    let mut search = Search::new(edges);
    for group in groups(&search.out) {
        for &start in &group {
            let mut path = Vec::new();
            search.walk(start, start, &group, &mut path);
        }
    }
    let mut found = search.found;
    found.sort_by(|a, b| (&a.verdict, a.edges.len()).cmp(&(&b.verdict, b.edges.len())));
    (found, search.is_cut)
}

/// The parallel edges between two locks. They differ in the other locks that were held.
type Parallel = Vec<usize>;
type Out = BTreeMap<u32, BTreeMap<u32, Parallel>>;

/// Groups of locks that can reach each other.
fn groups(out: &Out) -> Vec<BTreeSet<u32>> {
    let mut graph = DiGraph::<u32, ()>::new();
    let mut nodes: BTreeMap<u32, NodeIndex> = BTreeMap::new();
    for (&from, all) in out {
        for &to in all.keys() {
            let [from, to] =
                [from, to].map(|id| *nodes.entry(id).or_insert_with(|| graph.add_node(id)));
            graph.add_edge(from, to, ());
        }
    }
    let groups = tarjan_scc(&graph).into_iter().filter(|group| group.len() > 1);
    groups.map(|group| group.into_iter().map(|node| graph[node]).collect()).collect()
}

struct Search<'a> {
    edges: &'a [Edge],
    out: Out,
    found: Vec<Circle>,
    steps: usize,
    is_cut: bool,
}

impl<'a> Search<'a> {
    fn new(edges: &'a [Edge]) -> Self {
        let mut out = Out::new();
        for (at, edge) in edges.iter().enumerate().filter(|(_, e)| e.from.id != e.to.id) {
            out.entry(edge.from.id).or_default().entry(edge.to.id).or_default().push(at);
        }
        Self { edges, out, found: Vec::new(), steps: 0, is_cut: false }
    }

    /// Extends the path from `at`, until it returns to `start`. Each cycle is found once: from its lock with the lowest
    /// number.
    fn walk(&mut self, start: u32, at: u32, group: &BTreeSet<u32>, path: &mut Vec<(u32, u32)>) {
        let nexts: Vec<u32> =
            self.out.get(&at).into_iter().flat_map(|to| to.keys()).copied().collect();
        for next in nexts {
            self.steps += 1;
            if self.steps > STEPS || self.found.len() >= MOST {
                self.is_cut = true;
                return;
            }
            if next == start {
                path.push((at, next));
                self.judge(path);
                path.pop();
            } else if next > start && group.contains(&next) && path.iter().all(|p| p.0 != next) {
                if path.len() + 2 > LONGEST {
                    self.is_cut = true;
                    continue;
                }
                path.push((at, next));
                self.walk(start, next, group, path);
                path.pop();
            }
        }
    }

    /// Judges a cycle by the worst choice among parallel edges.
    fn judge(&mut self, path: &[(u32, u32)]) {
        let ways: Vec<&Parallel> = path.iter().map(|(from, to)| &self.out[from][to]).collect();
        type Check = fn(&[Edge], &[usize]) -> bool;
        let checks: [Check; 3] = [
            |edges, chosen| is_unguarded(edges, chosen) && has_threads(edges, chosen),
            is_unguarded,
            |_, _| true,
        ];
        for (at, check) in checks.into_iter().enumerate() {
            let mut chosen = Vec::new();
            if !choose(self.edges, &ways, check, &mut chosen) {
                continue;
            }
            let verdict = match at {
                0 => CycleVerdict::Deadlock,
                1 => CycleVerdict::OneThread,
                _ => CycleVerdict::Guarded(guards(self.edges, &chosen)),
            };
            self.found.push(Circle { edges: chosen, verdict });
            return;
        }
    }
}

/// Chooses one edge of each set of parallel edges, such that the cycle can block and `check` holds.
fn choose(
    edges: &[Edge],
    ways: &[&Parallel],
    check: fn(&[Edge], &[usize]) -> bool,
    chosen: &mut Vec<usize>,
) -> bool {
    let Some((first, rest)) = ways.split_first() else { return blocks(edges, chosen) };
    first.iter().any(|&edge| {
        chosen.push(edge);
        let is_found = check(edges, chosen) && choose(edges, rest, check, chosen);
        if !is_found {
            chosen.pop();
        }
        is_found
    })
}

/// Does each thread keep the next one out? Readers don't keep out readers.
fn blocks(edges: &[Edge], chosen: &[usize]) -> bool {
    let next = chosen.iter().cycle().skip(1);
    chosen.iter().zip(next).all(|(&edge, &next)| !(edges[edge].to.reads && edges[next].from.reads))
}

/// The locks that are held at an edge.
fn held(edge: &Edge) -> impl Iterator<Item = u32> {
    edge.gates.iter().copied().chain([edge.from.id])
}

/// The locks that are held at two or more of these edges.
fn guards(edges: &[Edge], chosen: &[usize]) -> BTreeSet<u32> {
    let (mut once, mut twice) = (BTreeSet::new(), BTreeSet::new());
    for lock in chosen.iter().flat_map(|&edge| held(&edges[edge])) {
        if !once.insert(lock) {
            twice.insert(lock);
        }
    }
    twice
}

fn is_unguarded(edges: &[Edge], chosen: &[usize]) -> bool {
    guards(edges, chosen).is_empty()
}

/// Can each edge be executed by a different thread?
fn has_threads(edges: &[Edge], chosen: &[usize]) -> bool {
    fn take(edges: &[Edge], chosen: &[usize], taken: &mut Vec<u32>) -> bool {
        let Some((&first, rest)) = chosen.split_first() else { return true };
        let edge = &edges[first];
        if edge.more || edge.threads.is_empty() {
            return take(edges, rest, taken); // with three or more threads, one of them is usually free
        }
        edge.threads.iter().any(|&thread| {
            if taken.contains(&thread) {
                return false;
            }
            taken.push(thread);
            let is_found = take(edges, rest, taken);
            taken.pop();
            is_found
        })
    }
    take(edges, chosen, &mut Vec::new())
}

#[cfg(test)]
mod tests {
    use super::super::reader::End;
    use super::*;

    fn edge(from: u32, to: u32, threads: &[u32], gates: &[u32]) -> Edge {
        let end = |id| End { id, address: u64::from(id), ..End::default() };
        Edge {
            from: end(from),
            to: end(to),
            count: 1,
            tid: threads[0],
            threads: threads.to_vec(),
            more: false,
            gates: gates.iter().copied().collect(),
        }
    }

    fn verdicts(edges: &[Edge]) -> Vec<CycleVerdict> {
        let (found, is_cut) = circles(edges);
        assert!(!is_cut);
        found.into_iter().map(|circle| circle.verdict).collect()
    }

    #[test]
    fn an_inversion_is_found_and_a_hierarchy_is_none() {
        assert_eq!(
            verdicts(&[edge(1, 2, &[1], &[]), edge(2, 1, &[2], &[])]),
            [CycleVerdict::Deadlock]
        );
        let tree = [edge(1, 2, &[1], &[]), edge(1, 3, &[2], &[]), edge(2, 3, &[1, 2], &[])];
        assert_eq!(verdicts(&tree), []);
        let round = [edge(1, 2, &[1], &[]), edge(2, 3, &[2], &[]), edge(3, 1, &[3], &[])];
        assert_eq!(verdicts(&round), [CycleVerdict::Deadlock]);
    }

    #[test]
    fn a_lock_that_both_hold_guards_them() {
        let guarded = [edge(1, 2, &[1], &[9]), edge(2, 1, &[2], &[9])];
        assert_eq!(verdicts(&guarded), [CycleVerdict::Guarded(BTreeSet::from([9]))]);
        let half = [edge(1, 2, &[1], &[9]), edge(2, 1, &[2], &[8])];
        assert_eq!(verdicts(&half), [CycleVerdict::Deadlock]);
        // One occurrence without the guard is enough.
        let once = [edge(1, 2, &[1], &[9]), edge(2, 1, &[2], &[9]), edge(2, 1, &[2], &[])];
        assert_eq!(verdicts(&once), [CycleVerdict::Deadlock]);
    }

    #[test]
    fn a_thread_does_not_block_itself() {
        let alone = [edge(1, 2, &[1], &[]), edge(2, 1, &[1], &[])];
        assert_eq!(verdicts(&alone), [CycleVerdict::OneThread]);
        let two = [edge(1, 2, &[1, 2], &[]), edge(2, 1, &[1], &[])];
        assert_eq!(verdicts(&two), [CycleVerdict::Deadlock]);
        // Three edges need three threads.
        let three = [edge(1, 2, &[1, 2], &[]), edge(2, 3, &[1, 2], &[]), edge(3, 1, &[1, 2], &[])];
        assert_eq!(verdicts(&three), [CycleVerdict::OneThread]);
    }

    #[test]
    fn readers_keep_no_readers_out() {
        let reads = |mut edge: Edge, from: bool, to: bool| {
            (edge.from.reads, edge.to.reads) = (from, to);
            edge
        };
        let (there, back) = (edge(1, 2, &[1], &[]), edge(2, 1, &[2], &[]));
        let both = [reads(there.clone(), true, true), reads(back.clone(), true, true)];
        assert_eq!(verdicts(&both), []);
        let writes = [reads(there, true, false), reads(back, true, false)];
        assert_eq!(verdicts(&writes), [CycleVerdict::Deadlock]);
    }

    #[test]
    fn a_search_that_would_not_end_says_so() {
        let all = (1..40).flat_map(|from| (1..40).map(move |to| (from, to)));
        let edges: Vec<_> = all.map(|(from, to)| edge(from, to, &[from], &[])).collect();
        let (found, is_cut) = circles(&edges);
        assert!(is_cut && found.len() >= 100, "{}", found.len());
    }
}
