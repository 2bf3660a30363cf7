//! (in the making)
pub mod mcs;
pub mod clh;
