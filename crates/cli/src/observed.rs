//! What locks do, as counted by processes (the crate `observe`): reads, names and ranks the counts.

pub(crate) mod advice;
pub(crate) mod beyond;
pub(crate) mod counter;
pub(crate) mod course;
pub(crate) mod delegate;
pub(crate) mod events;
pub(crate) mod lifetimes;
pub(crate) mod live;
pub(crate) mod misses;
pub(crate) mod outcome;
pub(crate) mod page;
pub(crate) mod pprof;
pub(crate) mod processes;
pub(crate) mod python;
pub(crate) mod reader;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod sections;
pub(crate) mod sharing;
pub(crate) mod snapshot;
pub(crate) mod threads;
pub(crate) mod watched;
