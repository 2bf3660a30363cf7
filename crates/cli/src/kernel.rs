//! Waits for the kernel's locks, and for futexes, in programs that don't run under lockwright.

pub(crate) mod names;
pub(crate) mod observe;
pub(crate) mod report;
mod user;
