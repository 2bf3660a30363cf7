//! Asymmetry-aware locking: the parts that several locks share.

pub mod cal_textbook;
pub mod feedback;
mod lengths;
mod rearranger;
pub mod reorderable;
pub mod reorderable_try;
pub mod standby;
