//! The files in which a process records its epochs and its lock operations: layouts, histogram, writers.
//!
//! `no_std`, because it runs inside other people's programs. The reader, `lockwright-stats`, is a separate
//! crate: in one crate, cargo would unify the features of both, and the preloaded library must not link std.
//!
//! This is the layout for epochs ([`layout`], [`Writer`]); that for the trace of lock operations is in
//! [`trace`]:
//!
//! ```text
//!   byte 0           one Header: who wrote it
//!   HEADS_AT         EPOCHS x EpochHead: id, name, SLO, percentile
//!   BLOCKS_AT        EPOCHS x CLASSES x ClassBlock: counters and a histogram; holes until used
//! ```
//!
//! The file is mapped shared, and every update is one relaxed atomic operation on it. So it can be read while
//! the process runs, and it is complete after `kill -9` and `_exit`.
#![no_std]

#[cfg(test)]
extern crate std;

pub mod attached;
pub mod delegated;
pub mod environment;
pub mod epochs;
pub mod file;
pub mod histogram;
pub mod layout;
pub mod mailbox;
pub mod order;
pub mod pieces;
pub mod trace;
mod writer;

pub use file::Refused;
pub use writer::{About, Execution, Slot, Writer};
