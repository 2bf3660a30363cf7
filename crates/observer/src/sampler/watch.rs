//! Samples a process as long as somebody looks at it, for a screen that is drawn again and again.

use super::family::{PARTS, PERIOD, thread_time};
use super::outcome::own_locks;
use super::sample::{End, Sampler};
use super::target::Target;
use crate::background::Background;
use crate::findings::OwnLock;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// What one interval's samples showed.
#[derive(Clone, Default)]
pub struct OwnSeen {
    /// Locks that aren't pthread's, for which threads waited.
    pub locks: Vec<OwnLock>,
    /// The number of samples; 0: there is none yet, or the process may not be looked at.
    pub samples: u64,
}

/// Looks for locks that aren't pthread's, on a thread of its own: the last whole interval.
pub type OwnWatch = Background<OwnSeen>;

impl OwnWatch {
    /// Begins to sample a process, and tells what it saw after each interval.
    pub fn of(pid: libc::pid_t, interval: Duration) -> Self {
        Self::start(move |shared| {
            let Ok(mut target) = Target::open(pid) else { return };
            loop {
                let mut sampler = Sampler::begin(target, PERIOD, false);
                let begun = Instant::now();
                let mut end = End::TimeIsUp;
                while begun.elapsed() < interval && end == End::TimeIsUp {
                    if shared.ends() {
                        return;
                    }
                    let before = thread_time();
                    if sampler.tick(0, &[]).is_err() {
                        end = End::ProcessEnded;
                    }
                    sleep(PERIOD.max(thread_time().saturating_sub(before) * PARTS));
                }
                let mut sampled = sampler.end(end);
                let (locks, samples) = own_locks(&mut sampled);
                shared.tell(OwnSeen { locks, samples });
                if end == End::ProcessEnded {
                    return;
                }
                target = sampled.target;
            }
        })
    }
}
