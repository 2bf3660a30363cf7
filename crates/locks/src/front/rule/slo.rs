//! Slo: a saturated lock stays on one core, the fastest class first, for as long as every waiter's budget allows.
//!
//! Our own. LibASL (asl.rs) hands a saturated lock from big core to big core, because little ones are slow. But each
//! hand-over moves the data to the next core, which may cost more than the section itself. So here the holder keeps the
//! lock for a *turn* (learn/saturation.rs), the others sleep, and each gets its turn. A budget in time limits what
//! overtaking and batching may cost a waiter. Within the budget they are unrestricted.
//!
//! ```text
//!   arrival on a little core ─ standby: window, a quarter of the budget at most ┐
//!   arrival on a big core ─────────────────────────────────────────────────────┴► line ─► head ─► word
//!   a thread in its turn ─ comes back, finds it free, and the head napping ──────────────────────► word
//!
//!   budget  ├─ standby ─┼─ turns of those before it: three quarters, in equal parts; little cores' a third of that ─┤
//! ```
//!
//! The window belongs to the epoch; feedback keeps it as long as the SLO allows, as in asl. Long turns help an SLO in another way,
//! too: a thread waits only once per turn. So with 100 operations in a turn its P99 is that of its own core working alone, and
//! with 1000 its P99.9. That leaves the longest wait, which consists of naps, and the budget bounds those.
//!
//! While the lock is not saturated this is asl, with two exceptions: an arrival also takes a word that stays free in front of a sleeping
//! head, and waiters of one cluster stand together (near.rs).
//!
//! Invariants: those of the front locks (word.rs, line.rs, grant.rs), and
//! 1. Between two headships at most `bypass` arrivals overtake a head that is awake and neither naps nor watches. The time in which it
//!    wakes up depends on the scheduler, and is not part of the budget.
//! 2. A head naps for three quarters of the budget at most, and not past the budget's end, counted from when it asked.

use super::{Choose, Note, Observe, Rule, Taken, View, asl};
use crate::entry::{Entry, Kind, Promise};
use crate::front::tuning::{self, Tuning, Window};
use lockwright_platform::Machine;

/// A waiter on a little core stands by for at most its budget divided by this.
const STANDBY_SHARE: u32 = 4;

/// A head that is awake takes a free word within this time, ns.
const AWAKE_HEAD_NS: u32 = 200;

/// What the catalogue says.
pub const ENTRY: Entry = Entry {
    id: "slo",
    kind: Kind::Front,
    preset_of: None,
    idea: "a saturated lock stays on one core, a big one if possible, for as long as every waiter's budget allows",
    source: "our own, on LibASL's standby and feedback (Nian Liu et al., PPoPP 2022); see docs/slo.md",
    order: "turns by arrival, those of one cluster together; little cores join the line after their window",
    promise: Promise::Bypass,
    stands_by: true,
    space: "0 bytes beyond the mutex; 128 bytes per waiter, from a pool; 64 KiB a process for clusters; 24 bytes per thread and epoch",
    wakes: "while saturated, the head of the line wakes itself every 50 to 200 µs; else as asl",
    delay: "while saturated, each waiter, by `budget` plus 0.1 ms per other waiter; else by those ahead of it, by `bypass`/8 waiters of each cluster, in a crowd as barging, and on a little core by its window",
    advice: "unequal cores, or more than four, where auto picks it too; by itself on small machines whose waiters should stand in line",
    options: &[tuning::BUDGET, tuning::WAIT, tuning::SPIN, tuning::BYPASS.or(tuning::BYPASSES)],
};

/// The rule.
#[derive(Debug)]
pub struct Lock;

impl<P: Machine> Rule<P> for Lock {
    const NEAR: bool = true;
    const BY_PRIORITY: bool = true;

    fn defaults(tuning: Tuning) -> Tuning {
        Tuning { window: Window::Epoch, grants_above: 0, ..tuning }
    }

    fn arrive(lock: &View<'_, P>, note: &mut Note) -> Option<Taken> {
        let saturated = lock.is_saturated();
        if let Some(taken) = come_back(lock, saturated) {
            return Some(taken);
        }
        if saturated && P::place().class.is_big() {
            return None;
        }
        let asked_ns = P::now();
        if P::is_urgent(asked_ns) {
            return None; // it waits on the word anyway, on any core
        }
        let window_ns = lock.tuning.window_ns.min(lock.tuning.budget_ns / STANDBY_SHARE);
        let taken = asl::arrive(lock, window_ns, note);
        note.asked_ns = asked_ns;
        taken
    }
}

impl<P: Machine> Choose<P> for Lock {}
impl<P: Machine> Observe<P> for Lock {}

/// Takes a word that the head leaves to others, or is too slow to take.
fn come_back<P: Machine>(lock: &View<'_, P>, saturated: bool) -> Option<Taken> {
    if saturated || lock.is_left() {
        return lock.take();
    }
    if !lock.is_open() || lock.is_line_empty() {
        return None;
    }
    P::pause(AWAKE_HEAD_NS);
    if lock.is_open() { lock.take() } else { None }
}
