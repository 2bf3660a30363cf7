//! Auto: the default. It picks what suits the machine, and the core on which a thread asks.
//!
//! On more than four CPUs it is slo.rs: waiters stand in line, and are granted the lock. When waiters outnumber the CPUs,
//! it is barging.rs on all cores. For a sleeper takes longer to wake than most sections last, so a free lock should not wait
//! for it; and a slow core that stands by leaves its CPU idle.
//!
//! On few CPUs, on cores of the fastest class (all cores, if they are equal), it is barging.rs with the tuning that
//! suits the CPUs ([`Tuning::for_cpus`]): the next in line seldom has a CPU, so a thread that finds the lock free
//! should take it. With one CPU (affinity, or a container's quota) nobody spins, and no lock is left to another core.
//!
//! ```text
//!   few CPUs, fastest class ─ word free? take ─ spin ─ crowd? doze ─ line ─► head: naps while the lock is saturated, till its turn ─► word
//!   few CPUs, slower class  ─ standby: window, a quarter of the budget at most ─ line ─┘
//!   many CPUs ─ (slower class: standby) ─ line ─► granted, or head
//!   many CPUs, and more waiters ─ word free? take ─ spin ─ doze ─ line ─► head
//! ```
//!
//! Invariants: those of barging and slo.

use super::{Choose, Note, Observe, Rule, Taken, View, barging, slo};
use crate::entry::{Entry, Kind, Promise};
use crate::front::tuning::{self, Tuning, Window};
use lockwright_platform::Machine;

/// What the catalogue says.
pub const ENTRY: Entry = Entry {
    id: "auto",
    kind: Kind::Front,
    preset_of: Some(barging::ENTRY.id), // and of slo: whole-system tests run under those two
    idea: "the default: picks by CPUs, affinity and quota: barging on few CPUs, slo on many or unequal ones",
    source: "our own choice among the front locks; see ARCHITECTURE.md",
    order: "on few CPUs, or with more waiters than CPUs: none among running threads, first come first served among sleepers; else as slo",
    promise: Promise::Bypass,
    stands_by: true,
    space: "0 bytes beyond the mutex; 128 bytes per waiter, from a pool; 64 KiB a process for clusters",
    wakes: "as barging or slo; nobody spins if the program has one CPU",
    delay: "as barging or slo; a thread on a slower core also by its window, within `budget`",
    advice: "start here; docs/choosing.md says where another lock is faster, and by how much",
    options: &[
        tuning::BUDGET,
        tuning::SPIN,
        tuning::SPINNERS,
        tuning::BYPASS.or(tuning::BYPASSES),
        tuning::WAIT,
    ],
};

/// On at most this many CPUs a thread that finds the lock free should take it: the next in line seldom has a CPU.
const FEW: u32 = 4;

/// The rule.
#[derive(Debug)]
pub struct Lock;

impl<P: Machine> Rule<P> for Lock {
    const NEAR: bool = true;
    const BY_PRIORITY: bool = true;

    fn defaults(tuning: Tuning) -> Tuning {
        Tuning { window: Window::Epoch, grants_above: FEW, ..tuning }
    }

    fn arrive(lock: &View<'_, P>, note: &mut Note) -> Option<Taken> {
        let barges = match lock.tuning.cpus {
            ..=FEW => P::place().class.is_big(),
            _ => lock.is_crowded(),
        };
        if barges { barging::Lock::arrive(lock, note) } else { slo::Lock::arrive(lock, note) }
    }
}

impl<P: Machine> Choose<P> for Lock {}
impl<P: Machine> Observe<P> for Lock {}
