//! What is explored: a single lock of the catalogue (a mutex's or a readers-writer lock), or a process with several.

use super::lock::{Made, chooses, make};
use super::process::Unlock;
use crate::lock::{LockError, LockSpec};
use lockwright_locks::posix;

/// The name of [`Subject::runtime`].
pub const RUNTIME: &str = "runtime";

/// How to make a lock for a number of threads.
pub(super) type Make = fn(&LockSpec, usize) -> Made;

/// A lock, or the runtime's mutex and condition variable.
#[derive(Clone, Debug)]
pub struct Subject(pub(super) What);

#[derive(Clone, Debug)]
pub(super) enum What {
    /// `crowd`: it takes many threads to go wrong.
    Lock {
        spec: LockSpec,
        make: Make,
        crowd: bool,
    },
    ReadWrite {
        spec: LockSpec,
    },
    Runtime {
        unlock: Unlock,
    },
}

impl Subject {
    /// A `pthread_mutex_t` as the runtime serves it, by several random locks and options at once, with its
    /// condition variable and glibc's own code.
    pub fn runtime() -> Self {
        Self(What::Runtime { unlock: posix::unlock })
    }

    /// Reads `NAME[:key=value,...]`, or [`RUNTIME`].
    pub fn parse(text: &str) -> Result<Self, LockError> {
        if text == RUNTIME { Ok(Self::runtime()) } else { LockSpec::parse(text).map(Self::from) }
    }

    /// As it was written.
    pub fn name(&self) -> &str {
        match &self.0 {
            What::Lock { spec, .. } | What::ReadWrite { spec } => spec.name(),
            What::Runtime { .. } => RUNTIME,
        }
    }

    /// A lock from outside the catalogue whose rule chooses who is next.
    #[cfg(test)]
    pub(super) fn made(spec: LockSpec, make: Make) -> Self {
        Self(What::Lock { spec, make, crowd: true })
    }

    /// The runtime, with a fault in how it unlocks.
    #[cfg(test)]
    pub(super) fn runtime_that_unlocks(unlock: Unlock) -> Self {
        Self(What::Runtime { unlock })
    }
}

impl From<LockSpec> for Subject {
    fn from(spec: LockSpec) -> Self {
        match spec.is_read_write() {
            true => Self(What::ReadWrite { spec }),
            false => Self(What::Lock { crowd: chooses(&spec), spec, make }),
        }
    }
}
