//! The order in which a program's threads take locks (the crate `record`): read, searched for circles, named, told.

mod circles;
pub(crate) mod outcome;
mod reader;
pub(crate) mod report;
