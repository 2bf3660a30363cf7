//! The virtual AMP machine: a deterministic discrete-event simulator that runs the locks' own source.
//!
//! ```text
//!   workload ─► load API ─► lock (its own file) ─► Platform ─► engine: lines, cores, futexes, order
//!                                                                 ▲
//!                                                             profile (TOML)
//! ```
//!
//! Every figure that comes out of here is *simulated*.

mod agenda;
mod arbiter;
pub mod batch;
mod check;
mod cores;
mod engine;
pub mod explore;
mod futex;
mod kept;
mod lines;
pub mod load;
mod lock;
mod order;
mod outcome;
#[cfg(test)]
mod planted;
mod platform;
mod power;
mod product;
pub mod profile;
mod programs;
mod readers;
mod run;
pub mod sweep;
pub mod targets;
pub mod timeline;
mod transfers;
mod watched;
pub mod workload;

pub use check::Violation;
pub use kept::Kept;
pub use lock::{LockError, LockSpec};
pub use outcome::{ClassOutcome, Outcome, Quantiles, Sample, ThreadOutcome};
pub use programs::{SLOTS, SlotPolicy};
pub use run::{Placement, Run};
pub use transfers::{ByKind, HandOverPath};
