//! Samples the threads of a process that needs no preparation: which locks they wait for, and who holds these meanwhile, and where.
//!
//! ```text
//!  sample: each tick ─► wait: what each thread waits for ─► seen: counts by lock and stack
//!             │                                               │
//!             └ running: stacks of threads that run           ▼
//!                 └ often: lock operations without waits ─► outcome: names, shares
//! ```

pub(crate) mod call;
pub mod family;
pub mod hold;
mod often;
pub mod outcome;
pub(crate) mod plumbing;
mod running;
pub mod sample;
mod seen;
pub mod target;
pub(crate) mod wait;
pub mod watch;

pub use seen::BATCHES;
