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
//!               order.rs               PID-N.order: which lock was taken while      profile --order
//!                                      which was held
//!               counters/              PID-N.observe: waits and holds of locks      profile, top, export
//!               header.rs              how each of these begins: who, when          all (lockwright-stats reads it)
//!               file.rs makes them; hash.rs, histogram.rs, pieces.rs and
//!               text.rs are what several are made of
//!
//!   looks   ◄─► memory of the process, found by a symbol                            read and write, as a debugger does
//!               mailbox.rs             another table of locks                       switch
//!               programs/mailbox.rs    policies; programs/ has what is in them      policy
//!               post.rs                how both are posted and taken up             post/remote.rs: their side
//!               counters/control.rs    what to count                                profile, top, switch level
//!               epochs.rs              SLOs and windows                             switch slo
//!               delegated.rs           delegated data                               switch delegate
//!               attached.rs            which calls lead to the library              attach, detach
//! ```
//!
//! Invariants:
//! 1. Every update of a file is one relaxed atomic operation on its mapping. So the file can be read while the process runs, and is
//!    complete after `kill -9` and `_exit`.
//! 2. Whatever one side lays out and the other reads begins with a number that says what it is and in which version, or with its size. A
//!    layout that changes has another one.
//!
//! `no_std`, because it runs inside other people's programs. The reader of files, `lockwright-stats`, is a separate crate: in one crate,
//! cargo would unify the features of both, and the preloaded library must not link std.
#![no_std]

#[cfg(test)]
extern crate std;

pub mod attached;
pub mod counters;
pub mod delegated;
pub mod environment;
pub mod epochs;
pub mod file;
pub mod hash;
pub mod header;
pub mod histogram;
pub mod layout;
pub mod mailbox;
pub mod order;
pub mod pieces;
pub mod post;
pub mod programs;
pub mod text;
pub mod trace;
mod writer;

pub use file::Refused;
pub use header::About;
pub use writer::{Execution, Slot, Writer};
