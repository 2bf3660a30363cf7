//! shfllock-hooked: ShflLock whose shuffler asks a policy whom to move. Only simulated machines have it.
//!
//! S. Park, I. Calciu, T. Kim, S. Kashyap, *Contextual Concurrency Control*, HotOS 2021, section 5, Figure 2 (Concord-ShflLock): the hook
//! `cmp_node` in the lock of S. Kashyap et al., *Scalable and Practical Locking with Shuffling*, SOSP 2019. Programs get
//! `programmed`, which has all hooks, on our own line of waiters.
//!
//! The lock, its drawing and its invariants: `shfllock`. The policy is asked where `shfllock` compares clusters: `own` is the
//! waiter that was placed last, `curr` the one to look at. It always asks slot 1. No policy: nobody is moved. As in `shfllock`, 1024 are moved in a row at most.

use lockwright_locks::entry::Entry;
use lockwright_locks::front::tuning::SLOT;
use lockwright_locks::numa::shfllock::{self, Shfl};
use lockwright_locks::numa::shuffling::{Clusters, Policy};
use lockwright_platform::hooks::{Context, Hook, Node};
use lockwright_platform::{Machine, Place};
use std::marker::PhantomData;

/// What the simulator's list says.
pub(super) static ENTRY: Entry = Entry {
    id: "shfllock-hooked",
    idea: "shfllock whose shuffler asks the policy in slot 1 whom to move",
    source: "C3: Park et al., Contextual Concurrency Control, HotOS 2021, section 5; ShflLock: Kashyap et al., SOSP 2019",
    advice: "only simulated, to compare with the paper; programmed has all hooks",
    options: &[SLOT.or(ITS_SLOT)],
    ..shfllock::ENTRY
};

/// The lock.
pub(super) type Lock<P> = Shfl<P, ByHook<P>>;

/// The slot of its policy.
const ITS_SLOT: u32 = 1;
/// A question about a waiter that isn't next anyway.
const LATER: u32 = 1;

/// Asks a policy.
pub(super) struct ByHook<P>(PhantomData<P>);

impl<P: Machine> Policy for ByHook<P> {
    fn group(place: Place) -> u32 {
        Clusters::group(place)
    }

    fn first(last: u32, group: u32) -> u32 {
        Clusters::first(last, group)
    }

    fn follow(group: u32, number: u32, next: u32) -> Option<u32> {
        let on = |numa| Node { numa, ..Node::default() };
        let (own, curr) = (on(group), on(next));
        let context = Context { own, curr, best: curr, round: LATER, ..Context::default() };
        let moves = P::ask(ITS_SLOT, Hook::CmpNode, &context) != 0;
        // Its bound: within a group.
        moves.then(|| Clusters::follow(group, number, group)).flatten()
    }
}
