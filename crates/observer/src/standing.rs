//! Who waits now, and for whom: for a program that hangs, or that one lock holds up.
//!
//! ```text
//!   look      each thread that sleeps on a futex: which lock is it, and whom does the lock name as its holder?
//!   look      once more, a moment later: only waits that haven't ended in between are told
//!   circles   waiter ─► holder ─► what that holder waits for ─► ...: a way back to the waiter is a deadlock
//! ```
//!
//! No thread is stopped, and nothing needs to be loaded into the process: the locks' own words say who holds them, glibc's
//! as well as ours. Locks that record no holder, and waits for events, are left out, unless a holder is in one.

mod awaited;
mod elsewhere;
mod holder;
mod looker;
mod sleeper;

pub use holder::{Doing, HolderNow};
pub use looker::Named;

use crate::background::Background;
use crate::counts::outcome::lock_name;
use awaited::Awaited;
use lockwright_symbols::{Frame, Symboliser, blocked, slept_for};
use lockwright_text::{Failure, cause};
use looker::Observer;
use sleeper::{Sleeper, look};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The time between the two looks.
const APART: Duration = Duration::from_millis(120);
/// The time between two looks of a watch.
const AGAIN: Duration = Duration::from_secs(1);
/// Shorter waits are ordinary contention.
const LONG: Duration = Duration::from_millis(500);

/// The threads that wait in a process, and what holds them up.
#[derive(Clone, Default)]
pub struct Standing {
    /// Those that have waited longest first.
    pub waits: Vec<StandingWait>,
    /// Circles: each thread waits for the next one, and the last one for the first; indices into `waits`.
    pub deadlocks: Vec<Vec<usize>>,
    /// The number of threads that stand in line behind others, for locks of ours.
    pub in_line: usize,
}

/// A thread that waits.
#[derive(Clone)]
pub struct StandingWait {
    /// The thread.
    pub thread: Named,
    /// What for, by name.
    pub lock: String,
    /// `a mutex`, `the end of a thread`.
    pub kind: &'static str,
    /// It waits until a deadline of the program's at most.
    pub has_deadline: bool,
    /// How long it has slept; `None`: not known.
    pub since: Option<Duration>,
    /// The program's function that asks for it.
    pub at: Frame,
    /// Who holds it, and what that thread does.
    pub holder: HolderNow,
    awaited: Awaited,
}

impl StandingWait {
    /// Will it never end?
    pub fn is_for_ever(&self) -> bool {
        self.holder.is_hopeless() && !self.has_deadline
    }
}

impl Standing {
    /// Does it name anybody?
    pub fn is_empty(&self) -> bool {
        self.waits.is_empty()
    }

    /// Looks at a process once. Whoever looks again and again keeps a [`Lookout`].
    ///
    /// # Errors
    /// As [`Lookout::open`].
    pub fn of(pid: libc::pid_t) -> Result<Self, Failure> {
        Ok(Lookout::open(pid)?.look())
    }
}

/// Looks at a process, and keeps what it has read of the process's files.
pub struct Lookout(Observer);

impl Lookout {
    /// For this process.
    ///
    /// # Errors
    /// There is no such process, or this user may not look.
    pub fn open(pid: libc::pid_t) -> Result<Self, Failure> {
        let fail = |error: std::io::Error| {
            Failure::new(format!("may not look into process {pid}: {}", cause(&error)))
                .hint(crate::rights::hint(pid))
        };
        // Reading where a thread sleeps needs the same right as reading its memory.
        blocked(pid, pid).map_err(fail)?;
        let symbols = Symboliser::of_process(pid).map_err(fail)?;
        Ok(Self(Observer::new(pid, symbols)))
    }

    /// Looks twice, [`APART`]. Empty: nobody waits for long, or the process has ended.
    pub fn look(&mut self) -> Standing {
        let Self(observer) = self;
        observer.refresh();
        let first = look(observer);
        if first.is_empty() {
            return Standing::default();
        }
        let begun = Instant::now();
        sleep(APART);
        let waits = look(observer);
        let watched = begun.elapsed();
        let same = |now: &Sleeper| first.iter().find(|then| then.tid == now.tid) == Some(now);
        let still: Vec<Sleeper> = waits.into_iter().filter(same).collect();
        told(observer, &still, watched)
    }
}

/// Looks at a process again and again, on a thread of its own. One that may not be looked at has no waits.
pub type StandingWatch = Background<Standing>;

impl StandingWatch {
    /// Begins to look at a process.
    pub fn of(pid: libc::pid_t) -> Self {
        Self::every(pid, AGAIN)
    }

    /// The same, with this time between two looks.
    pub fn every(pid: libc::pid_t, again: Duration) -> Self {
        Self::start(move |shared| {
            let Ok(mut lookout) = Lookout::open(pid) else { return };
            while !shared.ends() {
                shared.tell(lookout.look());
                sleep(again);
            }
        })
    }
}

/// Names everything that lasts.
fn told(observer: &mut Observer, sleepers: &[Sleeper], watched: Duration) -> Standing {
    // Who waits for the end of a thread is told in a circle only, and who waits for a turn is counted only. To name others would read the program's
    // debug information for nothing.
    let may_be_told = |sleeper: &&Sleeper| match sleeper.awaited {
        Awaited::End { thread } => sleepers.iter().any(|other| other.tid == thread),
        Awaited::Turn => false,
        Awaited::Lock { .. } => true,
    };
    let mut waits: Vec<StandingWait> = sleepers
        .iter()
        .filter(may_be_told)
        .map(|sleeper| {
            let frames = observer.frames(&sleeper.stack);
            let at = crate::sampler::plumbing::own(&frames);
            let is_told = !sleeper.awaited.is_short_of(&sleeper.blocked);
            let slept = if is_told { slept_for(observer.pid, sleeper.tid) } else { None };
            let since = slept.map(|slept| slept.max(watched));
            StandingWait {
                thread: Named::of(observer.pid, sleeper.tid),
                lock: name(observer, &sleeper.awaited),
                kind: sleeper.awaited.kind(),
                has_deadline: awaited::has_deadline(observer, &sleeper.blocked, &sleeper.stack),
                since,
                at: frames.get(at).cloned().unwrap_or_default(),
                holder: holder::of(observer, sleeper, sleepers),
                awaited: sleeper.awaited.clone(),
            }
        })
        .collect();
    let deadlocks = circles(&waits);
    let in_circle: Vec<libc::pid_t> =
        deadlocks.iter().flatten().map(|&at| waits[at].thread.tid).collect();
    let is_told = |wait: &StandingWait| {
        let is_long = wait.since.is_none_or(|since| since >= LONG);
        let is_hopeless = wait.holder.is_hopeless();
        in_circle.contains(&wait.thread.tid) || (wait.awaited.is_lock() && (is_long || is_hopeless))
    };
    let in_line = sleepers.iter().filter(|one| one.awaited == Awaited::Turn).count();
    waits.retain(is_told);
    waits.sort_by_key(|wait| {
        (!in_circle.contains(&wait.thread.tid), std::cmp::Reverse(wait.since), wait.thread.tid)
    });
    let deadlocks = circles(&waits);
    Standing { waits, deadlocks, in_line }
}

fn name(observer: &mut Observer, awaited: &Awaited) -> String {
    match awaited {
        Awaited::Lock { address, .. } => lock_name(*address, None, &mut observer.symbols),
        Awaited::Turn => String::new(),
        Awaited::End { thread } => {
            let name = Named::of(observer.pid, *thread).name;
            format!("the end of thread {thread} ({name})")
        }
    }
}

/// The circles among the waits, each once, beginning with its lowest thread. One of which a wait has a deadline will break up.
fn circles(waits: &[StandingWait]) -> Vec<Vec<usize>> {
    // A thread waits for one thing at a time. So each has one arrow at most, and no two circles meet.
    let next = |at: usize| {
        let holder = waits[at].holder.thread().filter(|_| !waits[at].has_deadline)?;
        waits.iter().position(|wait| wait.thread.tid == holder)
    };
    let mut found: Vec<Vec<usize>> = Vec::new();
    for start in 0..waits.len() {
        let mut way = vec![start];
        while let Some(at) = next(*way.last().expect("it has the start")) {
            if let Some(from) = way.iter().position(|&seen| seen == at) {
                let mut circle = way.split_off(from);
                let lowest = (0..circle.len()).min_by_key(|&at| waits[circle[at]].thread.tid);
                circle.rotate_left(lowest.unwrap_or(0));
                if !found.contains(&circle) {
                    found.push(circle);
                }
                break;
            }
            way.push(at);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Thread `tid` waits for something that thread `holder` holds.
    fn wait(tid: libc::pid_t, holder: libc::pid_t) -> StandingWait {
        let named = |tid| Named { tid, name: "t".into(), scheduling: None };
        StandingWait {
            thread: named(tid),
            lock: "m".into(),
            kind: "mutex",
            has_deadline: false,
            since: None,
            at: Frame::default(),
            holder: HolderNow::Thread(named(holder), Doing::Waits),
            awaited: Awaited::Turn,
        }
    }

    #[test]
    fn a_circle_is_found_once_and_those_who_only_lead_to_it_are_not_in_it() {
        let waits = [wait(9, 5), wait(5, 7), wait(7, 3), wait(3, 5), wait(8, 4)];
        assert_eq!(circles(&waits), [vec![3, 1, 2]]);
        assert!(circles(&waits[..3]).is_empty());
        let mut timed = waits.clone();
        timed[2].has_deadline = true;
        assert!(circles(&timed).is_empty());
        let two = [wait(1, 2), wait(2, 1), wait(3, 4), wait(4, 3)];
        assert_eq!(circles(&two), [vec![0, 1], vec![2, 3]]);
    }

    #[test]
    fn a_process_that_nobody_holds_up_has_no_waits() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let pid = child.id().cast_signed();
        let standing = Standing::of(pid);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(standing.unwrap().is_empty());
        assert!(Standing::of(pid).is_err());
    }
}
