//! What was observed.

use crate::Kind;
use lockwright_contract::histogram::middle;
use lockwright_numbers::Times;
use std::fmt;
use std::time::Duration;

/// Everything that an observation has seen.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// Waits that have ended: one entry for each lock, kind and stack.
    pub waits: Vec<StackWaits>,
    /// Waits that hadn't ended when the observation ended.
    pub unended: Unended,
    /// What is missing above.
    pub lost: Lost,
    /// What the observation itself cost.
    pub cost: Cost,
    /// How long it took.
    pub elapsed: Duration,
}

/// Waits for one lock, of one kind, by one stack.
#[derive(Clone, Debug)]
pub struct StackWaits {
    /// The lock.
    pub lock: Lock,
    /// Its type, and the kind of access.
    pub kind: Kind,
    /// For a futex: the process.
    pub process: Option<u32>,
    /// Return addresses, the innermost first; empty if the stack was lost.
    pub frames: Vec<u64>,
    /// The waits.
    pub sum: Sum,
}

/// A lock.
#[derive(Clone, Debug)]
pub struct Lock {
    /// Where it is.
    pub address: u64,
    /// Its owner, if it is known as one of a process's own locks.
    pub owner: Option<Owner>,
}

/// A process, and which of its locks it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Which one.
    pub role: Role,
    /// The process.
    pub process: u32,
    /// What the process calls itself.
    pub name: String,
}

/// A lock that each process has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// The address space: `mmap_lock`.
    MmapLock,
    /// The spinlock inside it, which guards its queue of waiters.
    MmapWaitLock,
    /// `page_table_lock`.
    PageTableLock,
    /// The signal handlers: `siglock`.
    Siglock,
    /// The table of open files: `file_lock`.
    FileLock,
    /// `cred_guard_mutex`, taken by `exec` and `ptrace`.
    CredGuard,
    /// `exec_update_lock`.
    ExecUpdate,
    /// Of a thread: `alloc_lock`.
    AllocLock,
}

impl Role {
    pub(crate) fn of(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::MmapLock,
            2 => Self::MmapWaitLock,
            3 => Self::PageTableLock,
            4 => Self::Siglock,
            5 => Self::FileLock,
            6 => Self::CredGuard,
            7 => Self::ExecUpdate,
            8 => Self::AllocLock,
            _ => return None,
        })
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MmapLock => "mmap_lock",
            Self::MmapWaitLock => "mmap_lock.wait_lock",
            Self::PageTableLock => "page_table_lock",
            Self::Siglock => "siglock",
            Self::FileLock => "file_lock",
            Self::CredGuard => "cred_guard_mutex",
            Self::ExecUpdate => "exec_update_lock",
            Self::AllocLock => "alloc_lock",
        })
    }
}

/// Waits, added up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// How many.
    pub count: u64,
    /// Their total time, ns.
    pub total_ns: u64,
    /// The longest, ns.
    pub max_ns: u64,
    /// How long they took: the middle of a bucket of `lockwright_contract::histogram`, off by at most 1/64.
    pub times: Times,
}

impl Sum {
    /// Adds waits of one bucket.
    pub fn add(&mut self, bucket: u16, count: u64, total_ns: u64, max_ns: u64) {
        self.count += count;
        self.total_ns += total_ns;
        self.max_ns = self.max_ns.max(max_ns);
        self.times.add(middle(usize::from(bucket)), count);
    }

    /// Adds another's waits.
    pub fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.total_ns += other.total_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
        self.times.merge(&other.times);
    }

    /// The wait that a share `q` (0 to 1) did not exceed, ns; off by at most 1/64 of itself. 0 if there is none.
    pub fn quantile(&self, q: f64) -> u64 {
        self.times.quantile(q).min(self.max_ns)
    }
}

/// Waits that have not ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unended {
    /// How many.
    pub count: u64,
    /// How long the longest has lasted, ns.
    pub longest_ns: u64,
}

/// What could not be kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Waits for which there was no room.
    pub waits: u64,
    /// Their time, ns.
    pub ns: u64,
    /// Waits whose stack was lost; they count, but without a caller.
    pub stacks: u64,
    /// Waits of which we saw only the end or only the beginning, and processes that we lost sight of.
    pub unseen: u64,
}

/// The cost of an observation: how long our programs took, measured in one run of eight. It doesn't include the few
/// tens of ns that the kernel needs to call them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// At the beginning of a wait: the waiter pays, while it would wait anyway.
    pub begin: Sum,
    /// At its end: whoever has just got the lock pays, while others wait for it.
    pub end: Sum,
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockwright_contract::histogram::bucket;

    #[test]
    fn sums_merge_and_have_quantiles() {
        let (mut one, mut other) = (Sum::default(), Sum::default());
        for ns in 1..=50 {
            one.add(bucket(ns) as u16, 1, ns, ns);
            other.add(bucket(ns + 50) as u16, 1, ns + 50, ns + 50);
        }
        one.merge(&other);
        assert_eq!((one.count, one.total_ns, one.max_ns), (100, 5050, 100));
        assert!(one.quantile(0.5).abs_diff(50) <= 1, "{}", one.quantile(0.5));
        assert!(one.quantile(0.99).abs_diff(99) <= 2, "{}", one.quantile(0.99));
        assert_eq!(one.quantile(1.0), 100, "no quantile exceeds the longest wait");
        assert_eq!(Sum::default().quantile(0.5), 0);
    }
}
