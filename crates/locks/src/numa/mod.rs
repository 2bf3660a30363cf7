//! Locks for machines whose cores are near to some and far from others: the lock stays among near ones, for a bounded time.

pub mod cna;
pub mod cohort;
pub mod shfllock;
pub mod shuffling;
