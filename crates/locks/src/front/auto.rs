//! Auto: the front lock that suits the machine, chosen from CPUs, affinity and quota.
//!
//! ```text
//!   CPUs that the program may keep busy   spin before sleeping   leave saturated locks to their core
//!   1 (affinity, or a container's quota)  no                     no
//!   2 and more                            yes                    yes
//! ```
//!
//! It is [`barging`] with the machine's own tuning ([`Tuning::for_cpus`]): waiters stay awake only where a
//! holder can run beside them. Invariants: barging's.

use super::barging::{self, Barging};
use super::{Arrival, Parts, Tuning};
use crate::catalog::{Entry, Kind};
use lockwright_platform::Platform;

/// What the catalogue says.
pub static ENTRY: Entry = Entry {
    id: "auto",
    kind: Kind::Front,
    idea: "the default: what suits this machine's CPUs, affinity and quota",
    source: "our own choice among the front locks; see ARCHITECTURE.md",
    order: "as barging",
    space: "0 bytes beside the mutex; 64 bytes of stack per waiter",
    wakes: "as barging; nobody spins where the program has one CPU",
    delay: "as barging",
    advice: "start here",
    options: barging::ENTRY.options,
};

/// The rule of arrivals.
#[derive(Debug)]
pub struct Auto;

/// In a program of its own (bench, models, simulator).
pub type Lock<P> = super::Alone<P, Auto>;

impl<P: Platform> Arrival<P> for Auto {
    fn lock_slow(parts: Parts<'_, P>, tuning: &Tuning) {
        Barging::lock_slow(parts, tuning);
    }
}
