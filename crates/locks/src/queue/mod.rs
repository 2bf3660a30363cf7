//! Queue locks: each waiter spins on a word of its own, and the holder hands the lock to the next in line.

pub mod clh;
pub mod hapax;
pub mod mcs;
pub mod mcs_tp;
pub mod reciprocating;
