//! `lockwright profile`: counts locks of a program or a process, and reports on them.

pub(crate) mod advice;
mod beyond;
pub(crate) mod brief;
pub(crate) mod columns;
mod conditions;
pub(crate) mod counted;
pub(crate) mod delegate;
pub(crate) mod finding;
pub(crate) mod often;
pub(crate) mod page;
pub(crate) mod pprof;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod sections;
pub(crate) mod slow;
mod starved;
pub(crate) mod target;
pub(crate) mod threads;
pub(crate) mod timeline;
pub(crate) mod waited;
pub(crate) mod watched;
