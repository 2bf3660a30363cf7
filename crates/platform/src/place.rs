//! Where a thread runs.

/// A core's class: its rank by speed, the fastest first. [`Platform::place`](crate::Platform::place) counts from the fastest
/// class that the program may run on.
///
/// `Class(0)` means the big cores. A machine with equal cores has only class 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Class(pub u8);

impl Class {
    /// The fastest class.
    pub const BIG: Class = Class(0);

    /// Is this the fastest class?
    pub fn is_big(self) -> bool {
        self == Self::BIG
    }
}

/// Where a thread runs. May be stale by the time that you look at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The operating system's number of the CPU.
    pub cpu: u32,
    /// That CPU's class.
    pub class: Class,
    /// NUMA node, or cluster: the CPUs that share its last-level cache.
    pub domain: u16,
}
