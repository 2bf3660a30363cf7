//! Auto: the front lock that suits the machine, chosen from CPUs, affinity and quota.
//!
//! Today it is [`barging`](super::barging) with the machine's own tuning: waiters stay awake only where a
//! holder can run beside them ([`Tuning::for_cpus`]: with one CPU left by affinity or by a container's
//! quota nobody spins), and only as many as there are CPUs to spare.

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
