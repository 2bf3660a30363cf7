//! What locks do, as counted by processes (the crate `observe`): reads, names and ranks the counts.

pub mod counter;
pub mod course;
pub mod events;
pub mod lifetimes;
pub mod live;
pub mod misses;
pub mod observation;
pub mod outcome;
pub mod processes;
pub mod python;
pub mod reader;
pub mod sections;
mod sharing;
pub mod snapshot;
mod threads;
pub mod watched;
