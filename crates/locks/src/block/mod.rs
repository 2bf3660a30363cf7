//! Whole locks whose waiters fall asleep.

pub mod glk;
pub mod mcs_stp;
pub mod u_scl;
