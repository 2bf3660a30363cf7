//! What locks do, as counted by processes (`contract::counters`): reads, names and ranks the counts.

pub mod beyond;
pub mod counter;
pub mod course;
#[cfg(test)]
mod drawn;
pub mod events;
pub mod lifetimes;
mod line;
pub mod live;
pub mod misses;
pub mod observation;
pub mod outcome;
pub(crate) mod passers;
pub mod period;
pub mod processes;
pub mod python;
pub mod reader;
pub mod sections;
mod settle;
mod sharing;
mod since;
mod slices;
pub mod snapshot;
pub mod sum;
mod threads;
pub mod used;
pub mod watched;
pub mod window;
pub mod wrapper;
