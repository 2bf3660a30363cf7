//! The virtual AMP machine: a deterministic discrete-event simulator that runs the locks' own source.
//!
//! ```text
//!   workload ─► load API ─► lock (its own file) ─► Platform ─► engine: lines, cores, futexes, order
//!                                                                 ▲
//!                                                             profile (TOML)
//! ```
//!
//! Every figure that comes out of here is *simulated*.
//!
//! The floors: a file uses only files on lower floors, or on its own. There are no circles of files (`cargo xtask tidy` checks that).
//!
//! ```text
//!  asked      sweep     batch     targets   workload/ what threads do     explore/ (mod, search, survivors)
//!  a run      run       load/ the calls of a workload           explore/ (scenario, readers, pthread)
//!  watched    watched   making                                  explore/ (subject, lock, process, protected)
//!  locks      product   readers   lock: which one, by name
//!  machine    platform  programs: policies at work              explore/ (machine, machine/cell)
//!  costs      futex     lines     cores     power     engine/ (events, running)     explore/ (explorer/steps)
//!  engine     engine: the parts together                        explore/ (explorer: who goes next, explorer/trace)
//!  parts      agenda    arbiter   directory (of lines)     cpu     sleepers     meters     memory     policies
//!             any_lock  engine/ (thread, stack)   published/    explore/ (memory, adversary, mutant, setting)
//!  ground     units     profile/  order     check     timeline  outcome     kept      transfers
//! ```
//!
//! A part is what the engine has; what it costs to use one is on the floor of costs, mostly as methods of the engine.

mod agenda;
mod any_lock;
mod arbiter;
pub mod batch;
mod check;
mod cores;
mod cpu;
mod directory;
mod engine;
pub mod explore;
mod futex;
mod kept;
mod lines;
pub mod load;
mod lock;
mod making;
mod memory;
mod meters;
mod order;
mod outcome;
#[cfg(test)]
mod planted;
mod platform;
mod policies;
mod power;
mod product;
pub mod profile;
mod programs;
mod published;
mod readers;
mod run;
mod sleepers;
pub mod sweep;
pub mod targets;
pub mod timeline;
mod transfers;
mod units;
mod unused;
mod watched;
pub mod workload;

pub use check::Violation;
pub use kept::Kept;
pub use lock::{LockError, LockSpec};
pub use outcome::{ClassOutcome, Outcome, Quantiles, Sample, ThreadOutcome};
pub use policies::{SLOTS, SlotPolicy};
pub use run::{Placement, Run};
pub use transfers::{ByKind, HandOverPath};
