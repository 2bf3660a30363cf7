//! Samples the threads of a process that needs no preparation: which locks they wait for, and who holds these meanwhile, and where.
//!
//! ```text
//!  sample: each tick ─► wait: what each thread waits for ─► seen: counts by lock and stack
//!             │                                               │
//!             └ running: stacks of threads that run           ▼
//!                                                     outcome: names, shares
//! ```

pub mod outcome;
mod running;
pub mod sample;
mod seen;
pub mod target;
mod wait;
