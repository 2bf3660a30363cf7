//! Slo: SLO-bound batching on the fastest class of cores. (page to be written)

use super::{Arrived, Note, Rule, Tuning, View, asl, tuning, Window};
use crate::entry::{Entry, Kind, Promise};
use lockwright_platform::Platform;

/// What the catalogue says.
pub const ENTRY: Entry = Entry {
    id: "slo",
    kind: Kind::Front,
    preset_of: None,
    idea: "a saturated lock stays on one core, the fastest first, as long as every waiter's budget allows",
    source: "our own",
    order: "none while a core keeps it; else arrival among those who have asked",
    promise: Promise::Bypass,
    stands_by: true,
    space: "0 bytes beside the mutex; 64 bytes of stack per waiter; 24 bytes per thread and epoch",
    wakes: "as fifo",
    delay: "a waiter, by `budget` ns while the lock is saturated",
    advice: "machines with unequal cores",
    options: &[tuning::WAIT, tuning::SPIN, tuning::BYPASS.or(super::fifo::BYPASS), tuning::BUDGET],
};

/// A free word is taken by a head that is awake within so many ns.
const AWAKE_HEAD_NS: u32 = 200;

/// The rule.
#[derive(Debug)]
pub struct Lock;

impl<P: Platform> Rule<P> for Lock {
    fn defaults(tuning: Tuning) -> Tuning {
        Tuning { bypass: super::fifo::BYPASS, window: Window::Epoch, ..tuning }
    }

    fn arrive(lock: &View<'_, P>) -> Arrived {
        let saturated = lock.is_saturated();
        if saturated || lock.is_left() {
            if let Some(taken) = lock.take() {
                return Arrived::Took(taken);
            }
            if saturated && P::place().class.is_big() {
                return Arrived::Joins(Note::default());
            }
        } else if lock.is_open() && !lock.is_line_empty() {
            P::pause(AWAKE_HEAD_NS);
            // The head sleeps, or is on its way: this core is here.
            if lock.is_open() && let Some(taken) = lock.take() {
                return Arrived::Took(taken);
            }
        }
        let start = P::now();
        let window_ns = lock.tuning.window_ns.min(lock.tuning.budget_ns / 4);
        let tuning = Tuning { window_ns, ..*lock.tuning };
        match <asl::Lock as Rule<P>>::arrive(&lock.with(&tuning)) {
            Arrived::Joins(note) => Arrived::Joins(Note { asked_ns: start, ..note }),
            taken => taken,
        }
    }
}
