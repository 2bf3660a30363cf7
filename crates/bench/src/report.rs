//! Tables for people, JSON and CSV for programs.
//!
//! ```text
//!   page (the README of a folder, notes)    tables (the terminal)    csv (every measurement, and the sums)
//!            └───────────────────────────────────┴──────────────────────────────┘
//!                                             cell
//! ```

mod cell;
mod csv;
mod page;
mod tables;

pub(crate) use csv::{raw, sums};
pub(crate) use page::{Report, caution, notes, origin, readme};
pub(crate) use tables::{bars, tables};
