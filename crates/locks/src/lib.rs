//! The locks: one algorithm, one file, one page. (family tree: in the making)
#![no_std]

pub mod block;
pub mod catalog;
pub mod condvar;
pub mod front;
pub mod queue;
pub mod rw;
pub mod spin;
#[cfg(test)]
mod testing;
