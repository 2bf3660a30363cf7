//! POSIX meaning on top of the locks: kinds, return codes, time, cancellation, fork. No symbol of its own
//! (those are the preload's), no allocation, nothing on stdout.
//!
//! ```text
//!   preload ──► mutex, cond, rwlock, spin ──► locks::posix (kinds, which lock?), locks::condvar
//!                 │                             └► environment ─► policy, config (LOCKWRIGHT_*)
//!                 └► thread (tid, gate)                           real: glibc's own, for the rest
//!                 └► watch ──► emulate: little cores, where they are emulated;  trace: operations, where recorded
//!                              guard: other people's tools, for which all of this is glibc's
//! ```
#![no_std]

#[cfg(test)]
extern crate std;

mod clock;
pub mod cond;
pub mod config;
#[cfg(target_arch = "x86_64")]
pub mod deepbind;
pub mod emulate;
pub mod environment;
pub mod epoch;
mod files;
mod fork;
#[cfg(target_arch = "x86_64")]
mod got;
mod guard;
pub mod init;
pub mod layout;
mod leave;
pub mod machine;
pub mod mutex;
#[cfg(target_arch = "x86_64")]
mod object;
pub mod policy;
pub mod real;
mod recording;
pub mod rwlock;
pub mod spin;
pub mod sync;
pub mod thread;
mod trace;
#[cfg(target_arch = "x86_64")]
mod trampoline;
mod watch;
mod whole;
