//! The order in which a program's threads take locks (the crate `record`): reads it, searches it for cycles, and
//! reports them with names.

mod circles;
pub(crate) mod outcome;
mod reader;
pub(crate) mod report;
