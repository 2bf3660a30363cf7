//! Who sleeps on which word, and the kernel's hash buckets, where calls on one address wait for each other.

use crate::profile::Profile;
use crate::units::Tid;
use std::collections::VecDeque;

/// A thread that sleeps on a word.
pub(crate) struct Sleeper {
    pub(crate) thread: Tid,
    pub(crate) address: usize,
    pub(crate) movable: bool,
}

/// A kernel lock.
#[derive(Clone, Default)]
pub(crate) struct Bucket {
    pub(crate) holder: Option<Tid>,
    /// First come, first served.
    pub(crate) queue: VecDeque<Tid>,
}

/// All sleepers, in order of arrival.
pub(crate) struct Futexes {
    pub(crate) sleepers: VecDeque<Sleeper>,
    pub(crate) buckets: Vec<Bucket>,
    /// Calls that found the word changed, sleeps, and wakes that woke a thread, for reports.
    pub(crate) sleeps: u64,
    pub(crate) wakes: u64,
}

impl Futexes {
    pub(crate) fn new(profile: &Profile) -> Self {
        let buckets = vec![Bucket::default(); profile.kernel.buckets.max(1) as usize];
        Self { sleepers: VecDeque::new(), buckets, sleeps: 0, wakes: 0 }
    }

    /// A sleeper whose time is up.
    pub(crate) fn leave(&mut self, thread: Tid) {
        self.sleepers.retain(|sleeper| sleeper.thread != thread);
    }
}
