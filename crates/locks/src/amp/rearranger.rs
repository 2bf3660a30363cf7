//! A queue of `cal-textbook` (amp/cal_textbook.rs): its nodes, and the waiter that reorders those behind it.
//!
//! CAL (*Core-Aware Lock for the big.LITTLE Multicore Architecture*, Applied Sciences 2024, section 3.2, stage 2). A slowdown is the
//! time from a request to the release, divided by the time of the section alone (T_alone). Each new node goes to the place where the
//! slowdowns of a window of nodes are most alike.
//!
//! ```text
//!   before   head ─► w ─► R ─► a 400 ─► b 100 ─► c ...      c is the last, and stays
//!   after    head ─► w ─► R ─► b 100 ─► a 400 ─► c          a is rearranger now
//! ```

use super::lengths::Section;
use core::array;
use core::cell::Cell;
use core::ptr::null_mut;
use lockwright_platform::Ordering::{Acquire, Relaxed, Release};
use lockwright_platform::{Platform, Ptr, Word};

/// How many nodes are rearranged at a time, as in the released code.
const WINDOW: usize = 4;
/// How long a rearranger first waits for nodes to rearrange, ns; the time doubles, up to the second constant.
const LOOK_NS: u32 = 200;
const LONGEST_NS: u32 = 4_000;

// A gate's bits.
const HEAD: u32 = 1;
const REARRANGER: u32 = 2;

/// A waiter's place in its queue.
#[repr(align(128))]
pub struct Node<P: Platform> {
    /// The next node. Written by the owner before it arrives, once by the successor, then by the rearranger.
    pub(super) next: P::Ptr<Node<P>>,
    /// Written by the owner before it arrives, then by the predecessor and by the rearranger.
    gate: P::Word,
    /// T_enqueue (low half of the clock's ns) and T_alone (ns). Written by the owner before it links.
    pub(super) asked: P::Word,
    pub(super) alone: P::Word,
    /// Since when the owner has held the lock, as `asked`; 0: the hold isn't measured. The owner's.
    pub(super) since: P::Word,
    /// The section that the owner asks for. The owner's.
    pub(super) section: Cell<Section>,
}

impl<P: Platform> Default for Node<P> {
    fn default() -> Self {
        let [gate, asked, alone, since] = array::from_fn(|_| P::Word::new(0));
        let section = Cell::default();
        Self { next: P::Ptr::new(null_mut()), gate, asked, alone, since, section }
    }
}

// SAFETY: the section is the owner's alone.
unsafe impl<P: Platform> Sync for Node<P> {}

impl<P: Platform> Node<P> {
    /// Readies it to join a queue.
    pub(super) fn reset(&self, section: Section, alone: u32, now: u32) {
        // Relaxed, all: nobody else knows the node yet.
        self.next.store(null_mut(), Relaxed);
        self.gate.store(0, Relaxed);
        self.asked.store(now, Relaxed);
        self.alone.store(alone, Relaxed);
        self.section.set(section);
    }

    /// Makes it head; `rearranges`: the caller, which has left, was rearranger.
    pub(super) fn make_head(&self, rearranges: bool) {
        // ORDERING: Release [head]: publishes the links behind it, if we were rearranger.
        // SURVIVES: links change only in queues of more waiters than explorations have threads.
        self.gate.fetch_or(if rearranges { HEAD | REARRANGER } else { HEAD }, Release);
    }

    /// Waits until the predecessor has left; `true`: the caller is rearranger now.
    pub(super) fn wait(&self) -> bool {
        let is_head = |gate| gate & HEAD != 0;
        // ORDERING: Acquire, here and below, pairs with [head] and [role]: the links behind us are as the last rearranger left them.
        // SURVIVES: as in `make_head`.
        let gate = P::spin_until(&self.gate, Acquire, |gate| gate != 0);
        if is_head(gate) {
            return gate & REARRANGER != 0;
        }
        let mut look = LOOK_NS;
        while look <= LONGEST_NS && !is_head(self.gate.load(Relaxed)) {
            if self.rearrange() {
                // SURVIVES: as in `make_head`.
                P::spin_until(&self.gate, Acquire, is_head);
                return false;
            }
            P::spin_for(&self.gate, Relaxed, look, is_head);
            look *= 2;
        }
        P::spin_until(&self.gate, Relaxed, is_head); // the links behind us are our own
        true
    }

    /// The rearranger places a window of the nodes behind it, and passes its role on; `false`: too few wait.
    pub(super) fn rearrange(&self) -> bool {
        let (mut nodes, mut alone) = ([null_mut::<Node<P>>(); WINDOW], [0; WINDOW]);
        let mut count = 0;
        // ORDERING: Acquire, here and below, as [see].
        let mut rest = self.next.load(Acquire);
        while count < WINDOW && !rest.is_null() {
            // SAFETY: by invariant 3, it stays in the queue as long as we do.
            let node = unsafe { &*rest };
            let behind = node.next.load(Acquire);
            if behind.is_null() {
                break; // the last one: somebody may be joining behind it
            }
            (nodes[count], alone[count]) = (rest, node.alone.load(Relaxed)); // published by the link
            count += 1;
            rest = behind;
        }
        if count < 2 {
            return false;
        }
        let mut is_moved = false;
        for last in 1..count {
            let place = best_place(self.alone.load(Relaxed), &alone[..=last]);
            is_moved |= place < last;
            nodes[place..=last].rotate_right(1);
            alone[place..=last].rotate_right(1);
        }
        if is_moved {
            self.next.store(nodes[0], Relaxed); // only we read it
            for place in 0..count {
                let next = if place + 1 < count { nodes[place + 1] } else { rest };
                // Relaxed: [role] and [head] publish it. SAFETY: as above.
                unsafe { (*nodes[place]).next.store(next, Relaxed) };
            }
        }
        // ORDERING: Release [role]: the links are as we have left them.
        // SAFETY: as above.
        unsafe { (*nodes[count - 1]).gate.fetch_or(REARRANGER, Release) };
        true
    }
}

/// By proportional wait, is the head with the first wait and T_alone next, and not the other head?
pub(super) fn is_next((waited, alone): (u64, u32), (its_wait, its_alone): (u64, u32)) -> bool {
    let (alone, its_alone) = (u64::from(alone), u64::from(its_alone));
    (waited + its_alone) * its_alone >= (its_wait + alone) * alone
}

/// The place among these sections to which the last one should move, so that the slowdowns of all of them, served after a section of
/// `first` ns, are most alike. If that makes no difference, it stays.
pub(super) fn best_place(first: u32, alone: &[u32]) -> usize {
    let last = alone.len() - 1;
    // In 1024ths.
    let fairness = |place: usize| {
        let (mut sum, mut least, mut most) = (u64::from(first), u64::MAX, 1);
        for at in 0..=last {
            let from = if at < place {
                at
            } else if at == place {
                last
            } else {
                at - 1
            };
            let own = u64::from(alone[from].max(1));
            sum += own;
            (least, most) = (least.min(sum * 1024 / own), most.max(sum * 1024 / own));
        }
        least * 1024 / most
    };
    let mut best = (last, fairness(last));
    for place in (0..last).rev() {
        let fairness = fairness(place);
        if fairness > best.1 {
            best = (place, fairness);
        }
    }
    best.0
}

#[cfg(test)]
mod tests {
    use super::{Node, REARRANGER, best_place, is_next};
    use crate::testing::Threads;
    use core::ptr::null_mut;
    use lockwright_platform::Ordering::Relaxed;
    use lockwright_platform::{Ptr, Word};

    /// For a queue of these sections: the order into which the first node puts the others, and the next rearranger.
    fn rearranged<const N: usize>(alone: [u32; N]) -> ([usize; N], Option<usize>) {
        let nodes: [Node<Threads>; N] = core::array::from_fn(|_| Node::default());
        let address = |n: usize| (&raw const nodes[n]).cast_mut();
        for (n, alone) in alone.into_iter().enumerate() {
            nodes[n].alone.store(alone, Relaxed);
            nodes[n].next.store(if n + 1 < N { address(n + 1) } else { null_mut() }, Relaxed);
        }
        let handed_on = nodes[0].rearrange();
        let mut order = [0; N];
        for n in 1..N {
            let next = nodes[order[n - 1]].next.load(Relaxed);
            order[n] = (0..N).find(|&one| address(one) == next).expect("nobody is lost");
        }
        let has_role = |n: &usize| nodes[*n].gate.load(Relaxed) == REARRANGER;
        let next = (0..N).find(has_role);
        assert_eq!(next.is_some(), handed_on);
        (order, next)
    }

    #[test]
    fn a_window_is_put_in_order_and_its_last_goes_on() {
        assert_eq!(rearranged([100, 400, 100, 100]), ([0, 2, 1, 3], Some(1)));
        assert_eq!(rearranged([100, 100, 100, 400, 100]), ([0, 1, 2, 3, 4], Some(3)));
        assert_eq!(rearranged([100, 400, 100]), ([0, 1, 2], None), "the last stays where it is");
        let (order, next) = rearranged([100, 400, 300, 200, 100, 50, 100]);
        assert_eq!((&order[5..], next), (&[5, 6][..], Some(order[4])), "four at a time");
    }

    #[test]
    fn a_shorter_section_is_placed_before_longer_ones_and_equal_ones_stay() {
        assert_eq!(best_place(100, &[100, 100, 100]), 2);
        assert_eq!(best_place(100, &[400, 100]), 0);
        assert_eq!(best_place(100, &[100, 400]), 1);
        assert_eq!(best_place(100, &[100, 300, 400, 200]), 1);
    }

    #[test]
    fn the_larger_proportional_wait_is_next() {
        assert!(!is_next((3_400, 800), (2_000, 400)), "4.75 to 7");
        assert!(is_next((3_400, 800), (1_000, 400)), "4.75 to 4.5");
        assert!(is_next((3_400, 800), (1_100, 400)), "whoever asks, if they are equal");
    }
}
