//! What lockwright's library, inside somebody's program, and its command share: how each finds what the other has written.
//!
//! ```text
//!   the library, in a process                                                       commands
//!
//!   reads   ◄── variables     environment.rs: LOCKWRIGHT_*, all of them             run, profile, ...: set them
//!
//!   writes  ──► files, mapped shared                                                read, while the process runs or later
//!               layout.rs, writer.rs   PID-N.stats: epochs by latency               tune, compare (lockwright-stats)
//!               trace.rs               PID-N.locks: each operation on a lock        record (lockwright-stats)
//!               order.rs               PID-N.order: what was taken while            profile --order
//!                                      which lock was held
//!               counters/              PID-N.observe: waits and holds of locks      profile, top, export
//!               header.rs              how each of them begins: who, when         lockwright-stats
//!               (file.rs makes them; histogram.rs, pieces.rs, text.rs: what
//!               several have)
//!
//!   looks   ◄─► memory of the process, found by a symbol                            read and write, as a debugger does
//!               mailbox.rs             another table of locks                       switch, ctl
//!               programs/mailbox.rs    policies; programs/ has what is in them      policy
//!               counters/control.rs    what to count                                profile, top, ctl level
//!               epochs.rs              SLOs and windows                             ctl slo
//!               delegated.rs           delegated data                               ctl delegated
//!               attached.rs            which calls lead to the library              attach, detach
//! ```
//!
//! `no_std`, because it runs inside other people's programs. The reader of epochs and traces, `lockwright-stats`, is a separate
//! crate: in one crate, cargo would unify the features of both, and the preloaded library must not link std.
//!
//! A file for epochs ([`layout`], [`Writer`]):
//!
//! ```text
//!   byte 0           one EpochsHeader: who wrote it
//!   HEADS_AT         EPOCHS x EpochHead: id, name, SLO, percentile
//!   BLOCKS_AT        EPOCHS x CLASSES x ClassBlock: counters and a histogram; holes until used
//! ```
//!
//! A file is mapped shared, and every update is one relaxed atomic operation on it. So it can be read while
//! the process runs, and it is complete after `kill -9` and `_exit`.
#![no_std]

#[cfg(test)]
extern crate std;

pub mod attached;
pub mod counters;
pub mod delegated;
pub mod environment;
pub mod epochs;
pub mod file;
pub mod header;
pub mod histogram;
pub mod layout;
pub mod mailbox;
pub mod order;
pub mod pieces;
pub mod programs;
pub mod text;
pub mod trace;
mod writer;

pub use file::Refused;
pub use header::About;
pub use writer::{Execution, Slot, Writer};
