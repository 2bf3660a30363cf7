//! Cohort locks: each cluster of near cores has a local lock, whose holder competes for the global lock. The cluster keeps the
//! global lock for a while.
//!
//! D. Dice, V. J. Marathe and N. Shavit, *Lock Cohorting: A General Technique for Designing NUMA Locks*, PPoPP 2012
//! (ACM TOPC 1(2), 2015). The global lock may be any whose node can be copied (*thread-oblivious*: one thread of the cluster
//! acquires it, and another releases it). The local lock may be any that can tell its holder whether others wait (*cohort
//! detection*). C-TKT-TKT is ticket over tickets, C-PTL-TKT a partitioned ticket lock over tickets.
//!
//! ```text
//!                           global lock
//!                   ┌───────────┴───────────┐
//!     cluster 0   turn ends at 67         cluster 1   no turn (0)
//!     local lock: A holds ◄─ B ◄─ C       local lock: D waits for the global lock ◄─ E
//!       unlock by A: B has both; if A is the 67th here, or without B: no turn, and D has the global lock
//! ```
//!
//! State of a cluster: (local lock, end). lock: the local lock; then the global one, if end = 0. unlock: if somebody waits here,
//! (_, 0) -> (_, served + 64), or (_, end) unchanged while served < end; then release the local lock, and the global lock goes with
//! it. Otherwise (_, end) -> (_, 0), then release the local lock, and then the global one.
//!
//! 1. A thread holds the lock if it holds a local lock, and its cluster's node holds the global lock.
//! 2. Only the holder of the local lock writes end. If end is not 0, the cluster's next holder has the global lock already.
//!    end is the local number at which the turn ends, so that a hand-over writes nothing but the local lock.
//! 3. end is set only while somebody waits for the local lock, which serves by arrival. So it reaches a waiter, and a
//!    try_lock never finds it set.
//!
//! Our deviations: a full release releases the local lock first, and then the global one. (The paper does it the other way round; then
//! an unlock touches the lock when another thread may already have destroyed it.) A cluster is what the machine calls a domain;
//! domains beyond the eighth share clusters. Hand-overs within a cluster are bounded by 64, as in the paper's evaluation.
//!
//! Facts: by arrival within a cluster, and between clusters; 64 hand-overs may overtake; a line of 128 B per cluster, plus those of the
//! global lock; nobody sleeps.

use crate::entry::{Entry, Promise};
use crate::wide::Apart;
use core::array;
use core::cell::UnsafeCell;
use lockwright_platform::Ordering::Relaxed;
use lockwright_platform::{Platform, Probe, RawLock, Sections, TryLock, Word};

/// The catalogue's entry for a cohort lock over `global`.
pub(crate) const fn over(global: Entry, id: &'static str, idea: &'static str) -> Entry {
    Entry {
        id,
        preset_of: Some(global.id),
        idea,
        source: "D. Dice, V. J. Marathe, N. Shavit, Lock Cohorting: A General Technique for Designing NUMA Locks, PPoPP 2012",
        order: "up to 64 hand-overs within a cluster of cores; clusters by arrival, and threads within each",
        promise: Promise::Nothing,
        space: "1.2 to 2.5 KB per lock (under the preload, only while in use), 8 B per waiter",
        delay: "each waiter, by those ahead of it, and by up to 64 of each other cluster; a preempted one stalls all behind it",
        advice: "machines with several sockets; with one cluster it is its local lock at a higher cost",
        ..global
    }
}

/// A local lock, which serves by arrival.
pub trait Local<P: Platform>: TryLock<P> {
    /// Does anybody wait? Asked by the holder. `true` is certain; `false` may be out of date.
    fn has_waiters(&self) -> bool;

    /// How many holders have released it, modulo 2^32. Asked by the holder.
    fn served(&self) -> u32;
}

/// The number of clusters: no machine that we know has more domains.
const CLUSTERS: usize = 8;

/// The most hand-overs within a cluster.
const TURN: u32 = 64;

struct Cluster<P: Platform, G: Sections<P>, L> {
    local: L,
    /// See invariant 2.
    end: P::Word,
    /// The global lock's node, while this cluster holds it. Only the holder of the local lock touches it.
    node: UnsafeCell<G::Node>,
}

// SAFETY: the node belongs to the holder of the local lock.
unsafe impl<P: Platform, G: Sections<P>, L: Sync> Sync for Cluster<P, G, L> where G::Node: Send {}

/// What an acquisition remembers: the local lock's node, and its cluster (the thread may move meanwhile).
#[derive(Default)]
pub struct Node<N> {
    cluster: usize,
    local: N,
}

/// A lock of type `G` over locks of type `L`.
pub struct Cohort<P: Platform, G: Sections<P>, L> {
    global: Apart<P, G>,
    clusters: [Apart<P, Cluster<P, G, L>>; CLUSTERS],
}

impl<P: Platform, G, L> Sections<P> for Cohort<P, G, L>
where
    G: TryLock<P, Node: Copy + Send>,
    L: Local<P>,
{
    type Node = Node<L::Node>;

    fn new() -> Self {
        let cluster = || Cluster {
            local: L::new(),
            end: P::Word::new(0),
            node: UnsafeCell::new(G::Node::default()),
        };
        Self { global: Apart::new(G::new()), clusters: array::from_fn(|_| Apart::new(cluster())) }
    }

    lockwright_platform::held_sections!(P);
}

impl<P: Platform, G, L> RawLock<P> for Cohort<P, G, L>
where
    G: TryLock<P, Node: Copy + Send>,
    L: Local<P>,
{
    #[inline]
    unsafe fn lock(&self, node: *mut Self::Node) {
        let number = usize::from(P::place().domain) % CLUSTERS;
        let cluster = &self.clusters[number];
        // SAFETY: the caller's node; the global lock's node belongs to the local lock's holder.
        unsafe {
            (*node).cluster = number;
            cluster.local.lock(&raw mut (*node).local);
            // Relaxed: the local lock orders it.
            if cluster.end.load(Relaxed) == 0 {
                self.global.lock(cluster.node.get());
            }
        }
    }

    #[inline]
    unsafe fn unlock(&self, node: *mut Self::Node) {
        // SAFETY: the caller locked with this node, so it holds the local lock, and its cluster holds the global lock.
        unsafe {
            let cluster = &self.clusters[(*node).cluster];
            let local = &raw mut (*node).local;
            let has_waiters = cluster.local.has_waiters();
            // Relaxed, all: the local lock orders them.
            let (end, served) = (cluster.end.load(Relaxed), cluster.local.served());
            if has_waiters && (end == 0 || end != served) {
                if end == 0 {
                    // STATE: (_, 0) -> (_, end): the global lock goes to the next waiter here.
                    cluster.end.store(served.wrapping_add(TURN).max(1), Relaxed);
                }
                cluster.local.unlock(local);
                return;
            }
            // A copy: the cluster's next holder will use the original while it waits for our release.
            let mut global = *cluster.node.get();
            // STATE: (_, end) -> (_, 0).
            if end != 0 {
                cluster.end.store(0, Relaxed);
            }
            cluster.local.unlock(local);
            self.global.unlock(&raw mut global);
        }
    }
}

impl<P: Platform, G, L> TryLock<P> for Cohort<P, G, L>
where
    G: TryLock<P, Node: Copy + Send>,
    L: Local<P>,
{
    #[inline]
    unsafe fn try_lock(&self, node: *mut Self::Node) -> bool {
        let number = usize::from(P::place().domain) % CLUSTERS;
        let cluster = &self.clusters[number];
        // SAFETY: as in `lock`.
        unsafe {
            (*node).cluster = number;
            let local = &raw mut (*node).local;
            if !cluster.local.try_lock(local) {
                return false;
            }
            // end = 0, by invariant 3.
            let got = self.global.try_lock(cluster.node.get());
            if !got {
                cluster.local.unlock(local);
            }
            got
        }
    }
}

impl<P: Platform, G, L> Probe<P> for Cohort<P, G, L>
where
    G: Probe<P> + TryLock<P, Node: Copy + Send>,
    L: Local<P>,
{
    /// A thread that has a local lock is about to ask for the global one, or holds it (invariant 1): so that one tells.
    #[inline]
    fn is_free(&self) -> bool {
        self.global.is_free()
    }
}

#[cfg(test)]
mod tests {
    use super::{Cohort, Local, TURN};
    use crate::spin::{ptkt::Ptkt, ticket::Ticket};
    use crate::testing::{Threads, counts_right};
    use lockwright_platform::Ordering::Relaxed;
    use lockwright_platform::{Platform, Probe, RawLock, Sections, TryLock, Word};

    #[test]
    fn no_increment_is_lost() {
        counts_right::<Cohort<Threads, Ticket<Threads>, Ticket<Threads>>>();
        counts_right::<Cohort<Threads, Ptkt<Threads>, Ticket<Threads>>>();
    }

    /// A local lock at which somebody always waits.
    struct Crowded(<Threads as Platform>::Word);

    impl Sections<Threads> for Crowded {
        type Node = ();

        fn new() -> Self {
            Self(Word::new(0))
        }

        lockwright_platform::held_sections!(Threads);
    }

    impl RawLock<Threads> for Crowded {
        unsafe fn lock(&self, _node: *mut ()) {}

        unsafe fn unlock(&self, _node: *mut ()) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    impl TryLock<Threads> for Crowded {
        unsafe fn try_lock(&self, _node: *mut ()) -> bool {
            true
        }
    }

    impl Local<Threads> for Crowded {
        fn has_waiters(&self) -> bool {
            true
        }

        fn served(&self) -> u32 {
            self.0.load(Relaxed)
        }
    }

    #[test]
    fn a_cluster_keeps_the_global_lock_for_a_bounded_number_of_hand_overs() {
        let lock = Cohort::<Threads, Ticket<Threads>, Crowded>::new();
        for _ in 0..3 {
            for hand_over in 0..=TURN {
                let mut node = Default::default();
                // SAFETY: the node outlives its use; one thread.
                unsafe {
                    lock.lock(&mut node);
                    assert!(!lock.is_free());
                    lock.unlock(&mut node);
                }
                assert_eq!(lock.is_free(), hand_over == TURN);
            }
        }
    }
}
