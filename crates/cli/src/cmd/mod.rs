//! The subcommands.

pub(crate) mod bench;
pub(crate) mod calibrate;
pub(crate) mod completions;
pub(crate) mod doctor;
pub(crate) mod explain;
pub(crate) mod explore;
pub(crate) mod list;
pub(crate) mod man;
pub(crate) mod record;
pub(crate) mod reproduce;
pub(crate) mod run;
pub(crate) mod sim;
pub(crate) mod switch;
pub(crate) mod topology;
pub(crate) mod tune;
pub(crate) mod validate;
