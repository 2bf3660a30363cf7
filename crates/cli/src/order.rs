//! The order in which a program's threads take locks: the report.

pub(crate) mod report;
