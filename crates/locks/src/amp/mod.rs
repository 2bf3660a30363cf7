//! Asymmetry-aware locking: what is not one front lock's alone.

pub mod feedback;
pub mod reorderable;
pub mod standby;
