//! The model checkers' machines, and what we check on them.
//!
//! ```text
//!   tests/*.rs ──► scenario (what threads do, what must hold) ──► locks
//!                      │                                            │ Platform
//!                  explore ◄── checker: Loom | Shuttle ──► machine ◄┘
//! ```
//!
//! * [`Loom`](checker::Loom) goes through the interleavings of 2 threads with up to four preemptions, of 3 with up to two, and
//!   through the stale values that weakly ordered reads may return.
//! * [`Shuttle`](checker::Shuttle) draws schedules at random, for the orders of 3 and more threads that loom's bound
//!   leaves out. It is sequentially consistent only.
//!
//! Each lock in the catalogue takes part.

pub mod checker;
pub mod machine;
pub mod scenario;
