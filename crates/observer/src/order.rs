//! The order in which a process's threads took their locks, and the cycles in it.

mod circles;
pub mod outcome;
mod reader;
