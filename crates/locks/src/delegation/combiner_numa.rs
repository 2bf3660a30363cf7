//! combiner-numa: a combiner for each cluster of near cores; the combiners compete for one lock.
//!
//! Our own over H-Synch: P. Fatourou and N. D. Kallimanis, *Revisiting the Combining Synchronization Technique*, PPoPP 2012,
//! section 5. J.-P. Lozi et al., *Remote Core Locking*, USENIX ATC 2012, section 7, name servers in a hierarchy (R16).
//!
//! ```text
//!                         the global lock, held for a turn
//!                   ┌───────────┴───────────┐
//!     cluster 0                           cluster 1
//!     combiner: runs A's, B's and C's     combiner: waits for the global lock
//!     queue:    A ─► B ─► C               queue:    D ─► E
//! ```
//!
//! A request, and its answer, move between cores of one cluster, which takes a third to a half of the time between packages. The data moves
//! once a turn. It pays where a cluster has several requests at a time; with one the global lock is an extra. It wants a CPU for each thread:
//! a combiner that loses its CPU in the global lock's line delays all others.
//!
//! State: (cluster, global lock). as combiner.rs; run: a section runs only while its cluster's combiner holds the global lock.
//!
//! 1. Whoever runs a section holds the global lock.
//! 2. A turn ends when nobody waits in the cluster, or after 5 µs or 32 sections, whichever is longer; if the others sleep, or run on
//!    slower cores, after four times that.
//!
//! Our deviations from H-Synch: the queues are those of [`combiner`](super::combiner); the global lock is our mcs, where the paper
//! has CLH; a turn is bounded by time, not by a count.
//!
//! Facts: first come first served within a cluster, and between clusters; a cluster's turn may overtake; a line of 128 B for each cluster
//! and for the global lock, 128 B per holder or waiter, from a pool; waiters sleep as in combiner, combiners that wait for the global lock don't.

use super::combiner::{self, Combiner};
use super::{Gate, Naps};
use crate::entry::{Entry, Promise};
use crate::queue::mcs;
use crate::wide::Apart;
use core::array;
use lockwright_platform::{Delegated, Platform, Sections, TryLock};

/// What the catalogue says.
pub const ENTRY: Entry = Entry {
    id: "combiner-numa",
    preset_of: Some("combiner"),
    idea: "a combiner for each cluster of near cores; the combiners compete for an mcs lock",
    source: "our own, after H-Synch: P. Fatourou, N. D. Kallimanis, Revisiting the Combining Synchronization Technique, PPoPP 2012, section 5",
    order: "first come first served within a cluster of cores, and between clusters; a turn of 5 µs or 32 sections may overtake",
    promise: Promise::Nothing,
    space: "1.2 KB per lock, 128 B per holder or waiter, from a pool",
    delay: "as combiner, and by a turn of each other cluster, or by a combiner in the global lock's line that lost its CPU",
    advice: "as combiner, on machines with several sockets and a CPU for each thread",
    ..combiner::ENTRY
};

/// The name that the catalogue uses.
pub type Lock<P> = CombinerNuma<P, mcs::Lock<P>>;

/// The number of clusters: no machine that we know has more domains.
const CLUSTERS: usize = 8;

/// How long a cluster keeps the global lock, ns: with eight clusters and short sections, waiters are served before they would sleep.
const TURN_NS: u32 = 5_000;

/// The global lock.
struct Global<P: Platform, G>(Apart<P, G>);

impl<P: Platform, G: TryLock<P>> Naps<P> for Global<P, G> {}

impl<P: Platform, G: TryLock<P>> Gate for Global<P, G> {
    type Key = G::Node;

    fn enter(&self, key: &mut G::Node) {
        // SAFETY: the caller keeps the key until it leaves.
        unsafe { self.0.lock(key) };
    }

    fn try_enter(&self, key: &mut G::Node) -> bool {
        // SAFETY: the caller keeps the key until it leaves.
        unsafe { self.0.try_lock(key) }
    }

    fn leave(&self, key: &mut G::Node, _: u32) {
        // SAFETY: the caller has entered with it.
        unsafe { self.0.unlock(key) };
    }
}

/// A global lock of type `G` over a combiner for each cluster.
pub struct CombinerNuma<P: Platform, G> {
    global: Global<P, G>,
    clusters: [Apart<P, Combiner<P>>; CLUSTERS],
}

impl<P: Platform, G: TryLock<P>> Sections<P> for CombinerNuma<P, G> {
    type Node = ();

    fn new() -> Self {
        Self {
            global: Global(Apart::new(G::new())),
            clusters: array::from_fn(|_| Apart::new(Combiner::new())),
        }
    }

    #[inline]
    unsafe fn with<R: Send>(&self, node: *mut (), section: impl FnOnce() -> R + Send) -> R {
        // SAFETY: the caller's promise.
        unsafe { self.with_window(node, u32::MAX, section) }
    }

    #[inline]
    unsafe fn with_window<R: Send>(
        &self,
        _: *mut (),
        window_ns: u32,
        section: impl FnOnce() -> R + Send,
    ) -> R {
        let cluster = &self.clusters[usize::from(P::place().domain) % CLUSTERS];
        cluster.with_gate(&self.global, window_ns.min(TURN_NS), section)
    }
}

impl<P: Platform, G: TryLock<P>> Delegated<P> for CombinerNuma<P, G> {}
