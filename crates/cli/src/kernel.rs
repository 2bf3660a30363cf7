//! Waits for the kernel's locks, and for futexes, of programs that don't run under us.

pub(crate) mod names;
pub(crate) mod observe;
pub(crate) mod report;
mod user;
