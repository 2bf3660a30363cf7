//! Which policies decide about readers of readers-writer locks.

use super::mailbox::lockwright_programs;
use crate::policy;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{AcqRel, Relaxed};
use lockwright_contract::programs::mailbox::{LOADED, SLOTS, TURN};
use lockwright_platform::hooks::Hook;

/// The slots of the policies that decide about readers of readers-writer locks, the one that was loaded last in the lowest bits; 0: no more.
static FOR_READERS: AtomicU64 = AtomicU64::new(0);

/// Bits of a slot there.
const SLOT: u32 = 4;
const _: () = assert!(SLOTS == 1 << SLOT && SLOTS as u32 * SLOT <= u64::BITS);

/// The slot of the policy that decides whether readers of readers-writer locks use the table: the last one that was loaded, has the hook,
/// and is asked by the table of locks; 0: none. Those who use it when it goes do so until their lock's next writer.
#[inline(always)]
pub(crate) fn for_readers() -> u32 {
    first(FOR_READERS.load(Relaxed)) // a policy that comes or goes now is as good as one that comes or goes a moment later
}

#[inline(always)]
fn first(slots: u64) -> u32 {
    slots as u32 % SLOTS as u32
}

/// The slots of the policies that were loaded before this one, the last one first.
pub(super) fn before(slot: u32) -> impl Iterator<Item = u32> {
    let mut slots = FOR_READERS.load(Relaxed); // as above
    let mut next = move || {
        let now = first(slots);
        slots >>= SLOT;
        (now != 0).then_some(now)
    };
    while next().is_some_and(|known| known != slot) {}
    core::iter::from_fn(next)
}

/// A policy has come or gone, or another table says who is asked: perhaps other policies decide about readers. One that is too slow goes
/// while others and tables come and go, so each thread that chooses looks again after it has written. Then the last one to write knows what
/// all the others knew.
pub(crate) fn choose_for_readers() {
    let mut chosen = choose();
    loop {
        // ORDERING: AcqRel, pairs with itself: after it we see the states that those saw who wrote before.
        FOR_READERS.swap(chosen, AcqRel);
        let now = choose();
        if now == chosen {
            return;
        }
        chosen = now;
    }
}

fn choose() -> u64 {
    let (mut slots, mut after) = (0, u64::MAX);
    // The last one first, by when they were loaded; of two at the same moment, the one in the higher slot.
    let mut last_slot = SLOTS;
    for place in 0..u64::BITS / SLOT {
        let all = lockwright_programs.slots.iter().enumerate().skip(1);
        let decide = all.filter(|(slot, info)| {
            info.state.load(Relaxed) % TURN == LOADED // see the exchange, here and below
                && info.hooks.load(Relaxed) & Hook::RwBias.bit() != 0
                && policy::asks(*slot as u32)
        });
        let times = decide.map(|(slot, info)| (info.since_ns.load(Relaxed), slot));
        let Some((since, slot)) = times.filter(|time| *time < (after, last_slot)).max() else {
            break;
        };
        slots |= (slot as u64) << (place * SLOT);
        (after, last_slot) = (since, slot);
    }
    slots
}

#[cfg(target_arch = "x86_64")]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::tests::{alone, ask_it, load_it, mappings, says, unload_it};

    #[test]
    fn a_policy_that_is_not_for_a_lock_leaves_it_to_the_one_before() {
        let _alone = alone();
        let ask = || ask_it(for_readers(), Hook::RwBias);
        let load = |slot, answer| load_it(slot, &[(Hook::RwBias, says(answer))]).unwrap();
        load(7, 1);
        load(3, 2);
        assert_eq!((for_readers(), ask()), (3, 2));
        let elsewhere = Hook::NOT_FOR_IT as u8;
        load(5, elsewhere);
        assert_eq!((for_readers(), ask()), (5, 2));
        load(3, elsewhere);
        assert_eq!((for_readers(), ask()), (3, 1), "3 and 5 are for other locks");
        unload_it(7);
        assert_eq!(ask(), 0, "nobody is for it");
        load(7, 1);
        assert_eq!((for_readers(), ask()), (7, 1));
        [3, 5, 7].into_iter().for_each(unload_it);
        assert_eq!((for_readers(), mappings()), (0, 0));
    }
}
