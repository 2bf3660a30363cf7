//! Circles in the order of locks: where each of several threads may hold what the next one asks for.
//!
//! This is the search of Goodlock (Havelund, 2000) and its followers: a circle is a deadlock that can happen if no lock is held at
//! two of its edges (else that lock lets one thread in at a time), and if each edge has a thread of its own.

use super::reader::Edge;
use petgraph::algo::tarjan_scc;
use petgraph::graph::{DiGraph, NodeIndex};
use std::collections::{BTreeMap, BTreeSet};

/// Longer circles are not looked for: programs seldom hold that many locks.
const LONGEST: usize = 8;
/// Steps of the search: there may be more circles than atoms.
const STEPS: usize = 1_000_000;
/// Circles that are kept.
const MOST: usize = 10_000;

/// What becomes of the threads that go round.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verdict {
    /// They can wait for each other forever.
    Deadlock,
    /// The same, but one thread alone was seen there: it can't block itself.
    OneThread,
    /// They can't: these locks let one of them in at a time.
    Guarded(BTreeSet<u32>),
}

/// Edges, each from the lock to which the one before leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Circle {
    /// Indices.
    pub(super) edges: Vec<usize>,
    pub(super) verdict: Verdict,
}

/// All circles, those that matter first, and whether some may be missing.
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

/// The edges between two locks, which differ by what else was held.
type Parallel = Vec<usize>;
type Out = BTreeMap<u32, BTreeMap<u32, Parallel>>;

/// Locks that lead to each other.
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

    /// Goes on from `at`, back to `start` in the end. Each circle is found once: from the lock with its lowest number.
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

    /// Of several edges between two locks those count that make it worst.
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
                0 => Verdict::Deadlock,
                1 => Verdict::OneThread,
                _ => Verdict::Guarded(guards(self.edges, &chosen)),
            };
            self.found.push(Circle { edges: chosen, verdict });
            return;
        }
    }
}

/// Chooses one edge of each, so that the circle can block, and `check` holds.
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

/// Does each thread keep the next one out? Readers do not keep readers out.
fn blocks(edges: &[Edge], chosen: &[usize]) -> bool {
    let next = chosen.iter().cycle().skip(1);
    chosen.iter().zip(next).all(|(&edge, &next)| !(edges[edge].to.reads && edges[next].from.reads))
}

/// What is held at an edge.
fn held(edge: &Edge) -> impl Iterator<Item = u32> {
    edge.gates.iter().copied().chain([edge.from.id])
}

/// What is held at two of these edges, or at more.
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

/// Can each edge have a thread of its own?
fn has_threads(edges: &[Edge], chosen: &[usize]) -> bool {
    fn take(edges: &[Edge], chosen: &[usize], taken: &mut Vec<u32>) -> bool {
        let Some((&first, rest)) = chosen.split_first() else { return true };
        let edge = &edges[first];
        if edge.more || edge.threads.is_empty() {
            return take(edges, rest, taken); // three threads or more: one of them is free, as a rule
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

    fn verdicts(edges: &[Edge]) -> Vec<Verdict> {
        let (found, is_cut) = circles(edges);
        assert!(!is_cut);
        found.into_iter().map(|circle| circle.verdict).collect()
    }

    #[test]
    fn an_inversion_is_found_and_a_hierarchy_is_none() {
        assert_eq!(verdicts(&[edge(1, 2, &[1], &[]), edge(2, 1, &[2], &[])]), [Verdict::Deadlock]);
        let tree = [edge(1, 2, &[1], &[]), edge(1, 3, &[2], &[]), edge(2, 3, &[1, 2], &[])];
        assert_eq!(verdicts(&tree), []);
        let round = [edge(1, 2, &[1], &[]), edge(2, 3, &[2], &[]), edge(3, 1, &[3], &[])];
        assert_eq!(verdicts(&round), [Verdict::Deadlock]);
    }

    #[test]
    fn a_lock_that_both_hold_guards_them() {
        let guarded = [edge(1, 2, &[1], &[9]), edge(2, 1, &[2], &[9])];
        assert_eq!(verdicts(&guarded), [Verdict::Guarded(BTreeSet::from([9]))]);
        let half = [edge(1, 2, &[1], &[9]), edge(2, 1, &[2], &[8])];
        assert_eq!(verdicts(&half), [Verdict::Deadlock]);
        // Once without it is enough.
        let once = [edge(1, 2, &[1], &[9]), edge(2, 1, &[2], &[9]), edge(2, 1, &[2], &[])];
        assert_eq!(verdicts(&once), [Verdict::Deadlock]);
    }

    #[test]
    fn a_thread_does_not_block_itself() {
        let alone = [edge(1, 2, &[1], &[]), edge(2, 1, &[1], &[])];
        assert_eq!(verdicts(&alone), [Verdict::OneThread]);
        let two = [edge(1, 2, &[1, 2], &[]), edge(2, 1, &[1], &[])];
        assert_eq!(verdicts(&two), [Verdict::Deadlock]);
        // Three edges want three threads.
        let three = [edge(1, 2, &[1, 2], &[]), edge(2, 3, &[1, 2], &[]), edge(3, 1, &[1, 2], &[])];
        assert_eq!(verdicts(&three), [Verdict::OneThread]);
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
        assert_eq!(verdicts(&writes), [Verdict::Deadlock]);
    }

    #[test]
    fn a_search_that_would_not_end_says_so() {
        let all = (1..40).flat_map(|from| (1..40).map(move |to| (from, to)));
        let edges: Vec<_> = all.map(|(from, to)| edge(from, to, &[from], &[])).collect();
        let (found, is_cut) = circles(&edges);
        assert!(is_cut && found.len() >= 100, "{}", found.len());
    }
}
