//! Which policy decides about readers of readers-writer locks.

use super::mailbox::lockwright_programs;
use crate::policy;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{AcqRel, Relaxed};
use lockwright_contract::programs::mailbox::{LOADED, TURN};
use lockwright_platform::hooks::Hook;

/// The slot of the policy that decides about readers of readers-writer locks; 0: none.
static FOR_READERS: AtomicU32 = AtomicU32::new(0);

/// The slot of the policy that decides whether readers of readers-writer locks use the table: the last one that was loaded, has the hook,
/// and is asked by the table of locks; 0: none. Those who use it when it goes do so until their lock's next writer.
#[inline(always)]
pub(crate) fn for_readers() -> u32 {
    FOR_READERS.load(Relaxed) // a policy that comes or goes now is as good as one that comes or goes a moment later
}

/// A policy has come or gone, or another table says who is asked: perhaps another policy decides about readers. One that is too slow goes
/// while others and tables come and go, so each thread that chooses looks again after it has written. Then the last one to write knows what
/// all the others knew.
pub(crate) fn choose_for_readers() {
    let choose = || {
        let slots = lockwright_programs.slots.iter().zip(0..);
        let decide = slots.filter(|(info, slot)| {
            info.state.load(Relaxed) % TURN == LOADED // see the exchange, here and below
                && info.hooks.load(Relaxed) & Hook::RwBias.bit() != 0
                && policy::asks(*slot)
        });
        let last = decide.max_by_key(|(info, _)| info.since_ns.load(Relaxed));
        last.map_or(0, |(_, slot)| slot)
    };
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
