//! `lockwright switch`: what a running process's locks do, and live control of them.
//!
//! ```text
//!   target ─► which rules ─┐
//!   set: which options  ───┴─► table ─► mailbox ─► the process
//!                                ▲
//!   guard: slices by turns ──────┘ old, new, new, old, ...: which one stays?
//!   list, epochs, segment: what it does; SLOs; a copy of its counts
//! ```

mod changed;
pub(crate) mod delegated;
pub(crate) mod epochs;
pub(crate) mod guard;
pub(crate) mod judge;
pub(crate) mod list;
pub(crate) mod segment;
pub(crate) mod target;
