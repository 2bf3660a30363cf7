//! PB10: one little core's turn after every ten of big cores.
//!
//! The static proportion that LibASL is compared with (*Asymmetry-aware Scalable Locking*, PPoPP 2022, section 4,
//! "SHFL-PB10": ShflLock with two "nodes", big and little). Waiters on little cores stand in the line, in order;
//! its head holds back until `big` threads of big cores have overtaken it. Those take the word when it is free,
//! awake, and counted; where nobody waits to be overtaken, they join the line as everybody.
//!
//! ```text
//!   big     ─ line empty? join it ─ else wait awake ─► word, overtaking the head: 1, 2, ... `big`
//!   little  ─► line ─► head ─ holds back: overtaken `big` times, or free twice in a row ─► word
//! ```
//!
//! Our deviations: a big core that has not had its turn for `spin` ns joins the line, where it may sleep; the head
//! also goes if nobody wants the lock, so a lock is not left idle for the proportion's sake.
//!
//! Invariants: those of the front locks (front/mod.rs), and
//! 1. While the line's head is a little core's, at most `big` others take the word before it.
//! 2. A head holds back for 100 ms at most.

use super::tuning::OPTION_WAIT;
use super::{Arrival, FREE, OPTION_SPIN, Parts, Tuning, asl, line, overtake, side, try_take};
use crate::amp::standby::{WINDOW_MAX_NS, confirmed, stand_by};
use crate::catalog::{Entry, Kind, OptionSpec};
use lockwright_platform::Ordering::Relaxed;
use lockwright_platform::{Platform, Ptr, Word};

/// Turns of big cores for one of a little core's, by default.
const BIG: u32 = 10;

/// What the catalogue says.
pub static ENTRY: Entry = Entry {
    id: "pb10",
    kind: Kind::Front,
    idea: "proportional: one turn of a little core after every ten of big cores",
    source: "after SHFL-PB10 in Nian Liu et al., Asymmetry-aware Scalable Locking, PPoPP 2022, section 4",
    order: "little cores by arrival, big cores among themselves by chance",
    space: "0 bytes beside the mutex; 64 bytes of stack per waiter",
    wakes: "as fifo; big cores wait awake, for `spin` ns at most, then as fifo",
    delay: "a little core, by `big` turns for each one before it; 100 ms a head at most",
    advice: "to compare with asl; a proportion fits one load only",
    options: &[
        OptionSpec {
            key: "big",
            meaning: "turns of big cores for one of a little core's",
            min: 0,
            max: 511,
            default: Some(BIG),
        },
        OPTION_WAIT,
        OPTION_SPIN,
    ],
};

/// The rule of arrivals.
#[derive(Debug)]
pub struct Pb10;

/// In a program of its own (bench, models, simulator).
pub type Lock<P> = super::Alone<P, Pb10>;

impl<P: Platform> Arrival<P> for Pb10 {
    fn defaults(tuning: Tuning) -> Tuning {
        Tuning { bypass: BIG, ..asl::fixed::<P>(tuning) }
    }

    #[cold]
    fn lock_slow(parts: Parts<'_, P>, tuning: &Tuning) {
        if !P::place().class.is_big() {
            line::wait_holding_back(parts, tuning, |parts| hold_back(parts, tuning));
            return;
        }
        let mut got = false;
        if line::is_empty(&parts, tuning.era) {
            got = try_take::<P>(parts.word);
        } else {
            let awake_ns = tuning.awake_ns::<P>(parts.side);
            P::spin_for(parts.word, Relaxed, awake_ns, |value| {
                got = value == FREE && overtake(parts, tuning);
                got || parts.tail.load(Relaxed).is_null() // nobody to overtake any more: be the next
            });
        }
        if !got {
            line::wait(parts, tuning);
        }
    }
}

/// The head lets big cores go first.
fn hold_back<P: Platform>(parts: &Parts<'_, P>, tuning: &Tuning) {
    // Hints, all of them: how often it has been overtaken is checked by those who do (`overtake`).
    let had_their_turns =
        || (parts.side.load(Relaxed) & side::BYPASSES) / side::BYPASS >= tuning.bypass;
    if had_their_turns() {
        return;
    }
    let is_crowded = || parts.side.load(Relaxed) & side::CROWDED != 0;
    let our_turn = || had_their_turns() || parts.word.load(Relaxed) == FREE;
    stand_by::<P>(WINDOW_MAX_NS, tuning.waiting, confirmed, our_turn, is_crowded, || true);
}
