//! Asymmetry-aware locking: the parts that several locks share.

pub mod feedback;
pub mod reorderable;
pub mod standby;
