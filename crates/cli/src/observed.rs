//! What locks do, as processes count it (the crate `observe`): read, named, ranked.

pub(crate) mod advice;
pub(crate) mod course;
pub(crate) mod events;
pub(crate) mod live;
pub(crate) mod outcome;
pub(crate) mod page;
pub(crate) mod pprof;
pub(crate) mod processes;
pub(crate) mod python;
pub(crate) mod reader;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod sharing;
pub(crate) mod snapshot;
pub(crate) mod threads;
pub(crate) mod watched;
