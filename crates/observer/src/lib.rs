//! Reads a process from outside: which locks it has, what they do, and where.
//!
//! ```text
//!   a process that runs with lockwright                     any process
//!     counts:  what its locks did, as it counts them          sampler: what its threads wait for, sample by sample
//!     order:   in which order its threads took them           elf, objects, whose: what its files say: symbols, whose locks
//!                                                         standing: who waits now, and for whom
//!     mailbox, table: which lock serves which mutex
//!                            └──────── process: its memory and its files under /proc ────────┘
//! ```
//!
//! Nothing here prints. What fails says why by a [`Failure`](lockwright_text::Failure): the process has ended, may not be read,
//! runs without lockwright, or with another version's.
//!
//! ```no_run
//! use lockwright_contract::counters::control::Level;
//! use lockwright_observer::counts::snapshot::Lock;
//! use lockwright_observer::counts::watched::Watched;
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), lockwright_text::Failure> {
//! // Asks process 4242 to count for ten seconds, and tells of the three locks that made its threads wait longest.
//! let mut process = Watched::open(4242, Level::Counters, Duration::from_secs(10))?;
//! std::thread::sleep(Duration::from_secs(1));
//! let look = process.look()?;
//! if let Some(since) = &look.since {
//!     for lock in process.named(since, &look, 3, Lock::rank).locks {
//!         println!("{}: {} ns", lock.name, lock.wait_ns);
//!     }
//! }
//! # Ok(())
//! # }
//! ```

pub mod background;
mod bytes;
pub mod counts;
pub mod elf;
pub mod files;
pub mod find;
pub mod findings;
pub mod lease;
mod libraries;
pub mod mailbox;
pub mod multilib;
pub mod objects;
pub mod order;
pub mod origin;
pub mod process;
pub mod rights;
pub mod sampler;
mod stack;
pub mod standing;
pub mod table;
pub mod targets;
pub mod traced;
pub mod whose;
pub mod written;
