//! Who goes first at a private readers-writer lock, if a rule says so: rules with the lock `rwlock`, and the variable LOCKWRIGHT_RWLOCK,
//! which is the last of them.
//!
//! The lock's own word says who goes first, so that locking looks nothing up. A thread that has to wait for the lock looks whether a rule
//! applies to it, and writes the word: only then does it matter who goes first. What the program asked for is noted in a word that
//! glibc's `pthread_rwlock_init` makes 0, as is the rule:
//!
//! ```text
//!   note   ┌── generation of rules ──┬── place ──┬─ own preference + 1 ─┐      0: as the program asked, and no rule has applied
//!          └         31 … 8          ┴   7 … 3   ┴        2 … 0         ┘
//! ```
//!
//! Threads may have read the word before it changes, and go on by that: the lock allows each thread its own preference at any time
//! (`locks::rw::rwlock`).

use crate::{policy, rules};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use lockwright_locks::rw::{PREFER, Prefer};
use lockwright_locks::spec::Spec;
use lockwright_native::Atomic32;
use lockwright_platform::Word;

/// The rule that LOCKWRIGHT_RWLOCK stands for, without the name of the preference.
pub(crate) const RULE: &[u8] = b"kind:rwlock+0x0-0xffffffffffffffff=rwlock:prefer=";
/// At most this long with it, and with what separates rules.
pub(crate) const RULE_MAX: usize = RULE.len() + 16;

const OWN: u32 = 7;
const PLACE: u32 = 31;
const PLACE_SHIFT: u32 = 3;
const GENERATION_SHIFT: u32 = 8;

/// Parses `rwlock[:prefer=NAME]`, which has no other option here.
pub(crate) fn parse(spec: &[u8]) -> Option<Prefer> {
    let spec = Spec::parse_any(core::str::from_utf8(spec).ok()?).ok()?;
    let mut options = spec.options();
    let (option, number) = options.next().unwrap_or((&PREFER, Prefer::Readers as u32));
    (option.key == PREFER.key && options.next().is_none()).then(|| Prefer::of(number))
}

/// Writes the preference of the lock at `address` anew if a rule applies to it, or has applied. Called by a thread that has to wait.
pub(crate) fn adopt(address: usize, prefer: &Atomic32, note: &Atomic32) {
    let generation = policy::generation() << GENERATION_SHIFT; // before the table
    let Some(table) = policy::current() else { return };
    let mut seen = note.load(Relaxed); // verified by the exchange
    if seen == 0 && table.preferences.iter().all(|preference| *preference == 0) {
        return;
    }
    if seen == 0 || seen >> GENERATION_SHIFT != generation >> GENERATION_SHIFT {
        let place = rules::rule_for_rwlock(&table.order, address).unwrap_or(0);
        let own = if seen == 0 {
            prefer.load(Relaxed).min(Prefer::Patient as u32) + 1
        } else {
            seen & OWN
        };
        let new = generation | (place << PLACE_SHIFT) | (own & OWN);
        // ORDERING: AcqRel, Acquire, pairs with itself: whoever reads the program's own preference does so before anybody writes another.
        seen = match note.compare_exchange(seen, new, AcqRel, Acquire) {
            Ok(_) => new,
            Err(other) => other,
        };
    }
    let place = (seen >> PLACE_SHIFT) & PLACE;
    let ruled = u32::from(table.preferences[place as usize % table.preferences.len()]);
    let number = if ruled == 0 { seen & OWN } else { ruled } - 1;
    if prefer.load(Relaxed) != number {
        prefer.store(number, Relaxed); // any value will do, at any time
    }
}
