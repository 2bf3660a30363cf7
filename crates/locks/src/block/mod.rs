//! (in the making)
pub mod mcs_stp;
