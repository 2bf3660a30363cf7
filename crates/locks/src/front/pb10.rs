//! PB10: one little core's turn after every ten of big cores.
//!
//! The static proportion that LibASL is compared with (*Asymmetry-aware Scalable Locking*, PPoPP 2022, section 4,
//! "SHFL-PB10": ShflLock with two "nodes", big and little). Waiters on little cores stand in the line, in order;
//! its head holds back until `big` threads of big cores have overtaken it. Those wait awake, take the word when
//! it is free, and are counted. If the line is empty, they join it like everybody else.
//!
//! ```text
//!   big     ─ line empty? join it ─ else wait awake ─► word, overtaking the head: 1, 2, ... `big`
//!   little  ─► line ─► head ─ holds back: overtaken `big` times, or free twice in a row ─► word
//! ```
//!
//! Our deviations: a big core that has not had its turn for `spin` ns joins the line, where it may sleep. And the head
//! also takes the lock if nobody else wants it, so a lock doesn't stay idle for the proportion's sake.
//!
//! Invariants: those of the front locks (front/mod.rs), and
//! 1. While the line's head runs on a little core, at most `big` others take the word before it.
//! 2. A head holds back for 100 ms at most, and withholds no wake from others meanwhile.

use super::{Arrived, FREE, Note, Rule, Tuning, View, fifo, tuning};
use crate::amp::standby::{WINDOW_MAX_NS, confirmed, stand_by};
use crate::entry::{Entry, Kind, Promise};
use lockwright_platform::Platform;

/// Turns of big cores for one of a little core's, by default.
const BIG: u32 = 10;

/// What the catalogue says.
pub const ENTRY: Entry = Entry {
    id: "pb10",
    kind: Kind::Front,
    preset_of: None,
    idea: "proportional: little cores get one turn for every ten of big cores",
    source: "after SHFL-PB10 in Nian Liu et al., Asymmetry-aware Scalable Locking, PPoPP 2022, section 4",
    order: "little cores by arrival; big cores in no order",
    promise: Promise::Bypass,
    stands_by: false,
    space: "0 bytes beyond the mutex; 128 bytes per waiter, from a pool",
    wakes: "as fifo, but threads on big cores first spin for up to `spin` ns",
    delay: "a thread on a little core, by `big` turns for each one ahead of it; at most 100 ms per head of the line",
    advice: "to compare with asl; a fixed proportion suits only one load",
    options: &[tuning::BIG.or(BIG), tuning::WAIT, tuning::SPIN],
};

/// The rule.
#[derive(Debug)]
pub struct Lock;

impl<P: Platform> Rule<P> for Lock {
    const HOLDS_BACK: bool = true;

    fn defaults(tuning: Tuning) -> Tuning {
        Tuning { bypass: BIG, ..<fifo::Lock as Rule<P>>::defaults(tuning) }
    }

    fn arrive(lock: &View<'_, P>) -> Arrived {
        let class = P::place().class;
        if !class.is_big() {
            return Arrived::Joins(Note { class, ..Note::default() });
        }
        let mut taken = None;
        if lock.is_line_empty() {
            taken = lock.take();
        } else {
            lock.spin_for(|value| {
                taken = if value == FREE { lock.take() } else { None };
                taken.is_some() || lock.is_line_empty() // nobody to overtake any more: join the line
            });
        }
        Arrived::or_joins(taken)
    }

    /// The head lets big cores go first.
    fn hold_back(lock: &View<'_, P>, note: &Note) {
        // Hints, all of them: the threads that overtake it check how often they may.
        let had_their_turns = || lock.overtaken() >= lock.tuning.bypass;
        if note.class.is_big() || had_their_turns() {
            return;
        }
        let our_turn = || had_their_turns() || lock.is_open();
        let crowded = || lock.is_crowded();
        stand_by::<P>(WINDOW_MAX_NS, lock.tuning.waiting, confirmed, our_turn, crowded, || true);
    }
}
