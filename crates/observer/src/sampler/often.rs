//! Locks that are taken too often without waiting: how much CPU time goes into lock operations, where, and how often these are called.
//!
//! ```text
//!   each sample of a running thread ─► step: is the innermost code a lock's? If so, does it take the lock, or wait for it?
//!                                        │
//!            rate (a millisecond at a time): how often it is called  ─►  outcome: by the functions that call it
//! ```
//!
//! Nothing waits here, so nothing is counted in the process: a count would cost the path that is too expensive already. What is told are shares
//! of the kernel's samples.

pub(super) mod outcome;
mod rate;
mod step;
pub(super) mod watch;
