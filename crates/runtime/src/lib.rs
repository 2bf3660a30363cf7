//! POSIX meaning on top of the locks: kinds, return codes, time, cancellation, fork. No symbol of its own
//! (those are the preload's), no allocation, nothing on stdout.
//!
//! ```text
//!   preload ──► mutex, cond, rwlock, spin ──► policy (which lock?) ──► locks::front, locks::condvar
//!                 │                             │
//!                 └► thread (tid, gate)         └► config (LOCKWRIGHT_*)      real: glibc's own, for the rest
//!                 └► watch ──► emulate: little cores, where they are emulated;  trace: operations, where recorded
//!                              guard: other people's tools, for which all of this is glibc's
//! ```
#![no_std]

#[cfg(test)]
extern crate std;

mod access;
mod clock;
pub mod cond;
mod config;
#[cfg(target_arch = "x86_64")]
pub mod deepbind;
mod emulate;
mod env;
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
mod mode;
pub mod mutex;
#[cfg(target_arch = "x86_64")]
mod object;
mod policy;
pub mod real;
mod recording;
mod rules;
pub mod rwlock;
mod shared;
pub mod spin;
pub mod sync;
pub mod thread;
mod trace;
#[cfg(target_arch = "x86_64")]
mod trampoline;
mod watch;
mod whole;
