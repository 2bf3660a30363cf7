//! The order in which a program's threads take locks (`contract`'s `order`): reads it, searches it for cycles, and
//! reports them with names.

mod circles;
pub(crate) mod outcome;
mod reader;
pub(crate) mod report;
