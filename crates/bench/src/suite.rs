//! Named sets of points, with bars for their figures.
//!
//! ```text
//!   bars (what the project promises)    asl (what it promises of SLOs)
//!         └──────────────┬────────────────────────┘
//!                     verdict
//! ```

mod asl;
mod bars;
mod verdict;

pub(crate) use asl::asl;
pub(crate) use bars::bars;
pub(crate) use verdict::{Suite, Verdict};
