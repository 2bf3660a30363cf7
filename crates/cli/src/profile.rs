//! `lockwright profile`: which locks a program waits for, and who holds them during the waits, and where.
//!
//! ```text
//!  sample: each tick ─► wait: what each thread waits for ─► seen: counts by lock and stack
//!             │                                               │
//!             └ running: stacks of threads that run           ▼
//!                                            outcome: names, shares ─► report, flame
//! ```

pub(crate) mod flame;
pub(crate) mod outcome;
pub(crate) mod report;
pub(crate) mod running;
pub(crate) mod sample;
pub(crate) mod seen;
pub(crate) mod target;
pub(crate) mod wait;
