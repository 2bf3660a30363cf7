//! POSIX meaning on top of the locks: kinds, return codes, time, cancellation, fork. No symbol of its own
//! (those are the preload's), no allocation, nothing on stdout.
//!
//! ```text
//!   preload ──► mutex, cond, rwlock, spin ──► policy (which lock?) ──► locks::front, locks::condvar
//!                 │                             │
//!                 └► thread (tid, gate)         └► config (LOCKWRIGHT_*)      real: glibc's own, for the rest
//! ```
#![no_std]

#[cfg(test)]
extern crate std;

pub mod cond;
pub mod config;
mod fork;
pub mod init;
pub mod layout;
pub mod mutex;
pub mod policy;
pub mod real;
pub mod rwlock;
pub mod spin;
pub mod thread;
mod whole;
