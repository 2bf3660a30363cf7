//! Asymmetry-aware locking: what is not one front lock's alone.

pub mod asl_clh;
pub mod asl_mcs;
pub mod asl_ticket;
pub mod feedback;
pub mod reorderable;
pub mod standby;
