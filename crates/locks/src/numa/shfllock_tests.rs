//! The orders of a queue whose waiters are written by hand, and the lock at work.

use super::{HEAD, Node, SHUFFLER, Shfl};
use crate::numa::shuffling::{BIG, Clusters, Policy, Proportion};
use crate::testing::{Threads, counts_right};
use core::ptr::null_mut;
use lockwright_platform::Ordering::Relaxed;
use lockwright_platform::{Ptr, Sections, Word};

#[test]
fn no_increment_is_lost() {
    counts_right::<Shfl<Threads, Clusters>>();
    counts_right::<Shfl<Threads, Proportion>>();
}

/// The order of a queue with these groups, after the first waiter and each later shuffler have shuffled it to the end.
fn shuffled<Y: Policy, const N: usize>(groups: [u32; N]) -> [usize; N] {
    let lock = Shfl::<Threads, Y>::new();
    let nodes: [Node<Threads>; N] = core::array::from_fn(|_| Node::default());
    let address = |n: usize| (&raw const nodes[n]).cast_mut();
    for (n, group) in groups.into_iter().enumerate() {
        nodes[n].group.store(group, Relaxed);
        nodes[n].next.store(if n + 1 < N { address(n + 1) } else { null_mut() }, Relaxed);
    }
    nodes[0].number.store(Y::first(0, groups[0]), Relaxed);
    nodes[0].gate.store(HEAD, Relaxed);
    let mut shuffler = 0;
    while lock.shuffle(&nodes[shuffler], || true) {
        let has_role = |n: &usize| nodes[*n].gate.load(Relaxed) == SHUFFLER;
        let next = (0..N).find(has_role).expect("handed on");
        nodes[next].gate.store(0, Relaxed);
        shuffler = next;
    }
    let mut order = [0; N];
    for n in 1..N {
        let next = nodes[order[n - 1]].next.load(Relaxed);
        order[n] = (0..N).find(|&one| address(one) == next).expect("nobody is lost");
    }
    order
}

#[test]
fn a_clusters_waiters_come_together_and_the_last_stays() {
    assert_eq!(shuffled::<Clusters, 7>([0, 1, 0, 1, 2, 0, 0]), [0, 2, 5, 1, 3, 4, 6]);
    assert_eq!(shuffled::<Clusters, 5>([1, 0, 0, 0, 1]), [0, 1, 2, 3, 4]);
    assert_eq!(shuffled::<Clusters, 4>([0, 0, 0, 0]), [0, 1, 2, 3]);
}

#[test]
fn after_ten_big_ones_a_little_one_is_brought_forward_and_after_it_big_ones() {
    // Big cores are group 0; waiters 1, 2 and 14 are on little cores; the last one stays.
    let mut groups = [0; 17];
    for little in [1, 2, 14] {
        groups[little] = 1;
    }
    let order = shuffled::<Proportion, 17>(groups);
    let bigs_before = |n: usize| {
        order.iter().take_while(|one| **one != n).filter(|one| groups[**one] == 0).count()
    };
    assert_eq!(bigs_before(1), BIG as usize);
    assert_eq!(order[..11], [0, 3, 4, 5, 6, 7, 8, 9, 10, 11, 1]);
    assert_eq!(order[11..14], [12, 13, 15], "big ones again");
}
