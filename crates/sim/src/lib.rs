//! The virtual AMP machine.

pub mod profile;
