//! A wait that is torn anywhere leaves the list as if it had not been.

extern crate std;

use super::{Cond, Outcome, Sleeper, UNLISTED};
use crate::testing::{Threads, torn};
use core::ptr::{self, null_mut};
use lockwright_platform::{Ordering::Relaxed, Platform, Ptr, Word};

type Node = Sleeper<Threads>;

struct Memory {
    lock: <Threads as Platform>::Word,
    first: <Threads as Platform>::Ptr<Node>,
    last: <Threads as Platform>::Ptr<Node>,
    list_era: <Threads as Platform>::Word,
    record: <Threads as Platform>::Word,
}

impl Memory {
    fn new() -> Self {
        let (lock, list_era, record) = (Word::new(0), Word::new(0), Word::new(0));
        Self { lock, list_era, record, first: Ptr::new(null_mut()), last: Ptr::new(null_mut()) }
    }

    fn cond(&self, era: u32) -> Cond<'_, Threads> {
        let Self { lock, first, last, list_era, record } = self;
        Cond { lock, first, last, list_era, record, me: 77, era }
    }

    /// Checks that the list consists of these waiters, read from either end, and that nobody holds its lock.
    fn assert_is(&self, waiters: &[&Node], context: &str) {
        let (mut before, mut at) = (null_mut::<Node>(), self.first.load(Relaxed));
        for waiter in waiters {
            assert!(ptr::eq(at, *waiter), "{context}: not the waiter that should be here");
            assert!(waiter.previous.load(Relaxed) == before, "{context}: the way back differs");
            assert!(waiter.listed.load(Relaxed) != UNLISTED, "{context}: listed, and unaware");
            (before, at) = (at, waiter.next.load(Relaxed));
        }
        assert!(at.is_null(), "{context}: somebody is left");
        assert!(self.last.load(Relaxed) == before, "{context}: the last one is not last");
        assert_eq!(self.lock.load(Relaxed), 0, "{context}: the lock is held");
    }
}

/// After `before`, tears the `operation` of the middle one of three waiters at each of its steps, and lets that waiter leave.
fn tear(
    before: impl Fn(&Cond<'_, Threads>, &[Node; 3]),
    operation: impl Fn(&Cond<'_, Threads>, &Node),
) {
    for at in 1.. {
        let (memory, nodes) = (Memory::new(), [Node::default(), Node::default(), Node::default()]);
        let cond = memory.cond(0);
        before(&cond, &nodes);
        let is_done = torn(at, || operation(&cond, &nodes[1])).is_some();
        let outcome = cond.leave(&nodes[1], || None);
        assert!(at == 1 || outcome == Outcome::Cancelled, "there was no signal, {outcome:?}");
        let others = [&nodes[0], &nodes[2]];
        let listed = others.into_iter().filter(|node| node.listed.load(Relaxed) != UNLISTED);
        let listed: std::vec::Vec<&Node> = listed.collect();
        memory.assert_is(&listed, &std::format!("torn before step {at}"));
        if is_done {
            assert!(at > 5, "{at} steps: it did nothing");
            return;
        }
    }
}

fn enlist(cond: &Cond<'_, Threads>, node: &Node) {
    // SAFETY: the nodes outlive the lists here, and each is listed once.
    unsafe { cond.enlist(node) };
}

#[test]
fn a_waiter_leaves_from_anywhere_in_enlist() {
    tear(|_, _| (), enlist);
    tear(|cond, nodes| enlist(cond, &nodes[0]), enlist);
}

#[test]
fn a_waiter_leaves_from_anywhere_in_sleep() {
    let late = |cond: &Cond<'_, Threads>, node: &Node| {
        assert_eq!(cond.sleep(node, 0, Some(0)), Outcome::TimedOut);
    };
    for who in [&[1][..], &[0, 1], &[1, 2], &[0, 1, 2]] {
        tear(|cond, nodes| who.iter().for_each(|&at| enlist(cond, &nodes[at])), late);
    }
}

#[test]
fn who_leaves_with_a_signal_passes_it_on() {
    for waits in [0, 1, 2] {
        let (memory, nodes) = (Memory::new(), [Node::default(), Node::default(), Node::default()]);
        let cond = memory.cond(0);
        for node in &nodes[..=waits] {
            enlist(&cond, node);
        }
        cond.signal(|| None);
        memory.assert_is(&[&nodes[1], &nodes[2]][..waits], "signalled");
        assert_eq!(cond.leave(&nodes[0], || None), Outcome::Signalled);
        memory.assert_is(&[&nodes[2]][..waits.saturating_sub(1)], "passed on");
    }
}

#[test]
fn who_leaves_with_a_broadcast_takes_nothing_along() {
    let (memory, nodes) = (Memory::new(), [Node::default(), Node::default(), Node::default()]);
    let cond = memory.cond(0);
    enlist(&cond, &nodes[0]);
    enlist(&cond, &nodes[1]);
    cond.broadcast(|| None);
    enlist(&cond, &nodes[2]); // came later: not its signal
    assert_eq!(cond.leave(&nodes[0], || None), Outcome::Signalled);
    memory.assert_is(&[&nodes[2]], "left");
}

#[test]
fn no_number_of_forks_makes_a_parents_waiter_a_childs() {
    for forks in 1..=1025 {
        let (memory, nodes) = (Memory::new(), [Node::default(), Node::default()]);
        enlist(&memory.cond(0), &nodes[0]);
        let cond = memory.cond(forks);
        enlist(&cond, &nodes[1]);
        assert_eq!(nodes[1].previous.load(Relaxed), null_mut(), "in the {forks}th nested child");
        cond.signal(|| None);
        assert_eq!(nodes[1].listed.load(Relaxed), UNLISTED, "in the {forks}th nested child");
    }
}

#[test]
fn a_child_finds_its_parents_list_empty_and_free_wherever_the_fork_came() {
    for at in 1.. {
        let (memory, nodes) = (Memory::new(), [Node::default(), Node::default(), Node::default()]);
        enlist(&memory.cond(511), &nodes[0]);
        let is_done = torn(at, || enlist(&memory.cond(511), &nodes[1])).is_some();
        let cond = memory.cond(512);
        assert!(!cond.has_waiters(), "somebody is left of the parent's, step {at}");
        enlist(&cond, &nodes[2]);
        memory.assert_is(&[&nodes[2]], "the child's own");
        if is_done {
            return;
        }
    }
}
