//! `lockwright profile --sample`: the report and the flame graph.

pub(crate) mod flame;
pub(crate) mod report;
