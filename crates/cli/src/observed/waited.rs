//! Who waits in the processes of a program that `profile` has started: perhaps it hangs, and somebody ends it.

use crate::output::say;
use crate::standing;
use lockwright_observer::process::started;
use lockwright_observer::standing::{Standing, StandingWait, StandingWatch};
use std::collections::{BTreeMap, BTreeSet};

/// Number of processes that are watched.
const MOST: usize = 8;

/// A process that is watched.
struct ProcessWaits {
    watch: StandingWatch,
    /// What was seen last while it ran.
    last: Standing,
    is_said: bool,
}

/// The processes.
#[derive(Default)]
pub(crate) struct Waited(BTreeMap<u32, ProcessWaits>);

/// Will some thread wait for ever?
fn is_hopeless(found: &Standing) -> bool {
    !found.deadlocks.is_empty() || found.waits.iter().any(StandingWait::is_for_ever)
}

impl Waited {
    /// Takes up what is known of these processes, in which threads have waited. Says at once, and once, who will wait for ever.
    pub(crate) fn look(&mut self, pids: &BTreeSet<u32>) {
        for &pid in pids {
            if self.0.len() < MOST && !self.0.contains_key(&pid) {
                let watch = StandingWatch::of(pid.cast_signed());
                self.0
                    .insert(pid, ProcessWaits { watch, last: Standing::default(), is_said: false });
            }
        }
        for (pid, one) in &mut self.0 {
            let found = one.watch.latest();
            // Nobody waits in a process that has ended: what was seen before is its last.
            if found.is_empty() && (one.last.is_empty() || started(*pid).is_none()) {
                continue;
            }
            one.last = found;
            if !one.is_said && is_hopeless(&one.last) {
                one.is_said = true;
                say(&standing::text(&one.last));
            }
        }
    }

    /// What was seen last, of the process with the most to tell.
    pub(crate) fn last(&self) -> Option<&Standing> {
        let all = self.0.values().map(|one| &one.last).filter(|last| !last.is_empty());
        all.max_by_key(|last| (is_hopeless(last), last.waits.len()))
    }
}
