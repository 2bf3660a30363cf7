//! When does a program that doesn't end count as hung? Where it has the CPUs that it wants, after its limit. On a loaded machine it waits
//! for a CPU most of the time, and may have had a thousandth of it. So its limit is a limit on the time that it *had*: of the time that
//! passed, the share that it got of what it wanted. A program whose threads all sleep wants nothing, and time passes as it does.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::time::{Duration, Instant};

/// However loaded the machine is, this many times the limit is enough.
const ENOUGH: u32 = 20;

/// A thread's account, in ns: on a CPU, and waiting for one.
#[derive(Clone, Copy, Default)]
struct CpuTime {
    ran: u64,
    waited: u64,
    /// It runs, or waits for a CPU, now.
    is_runnable: bool,
}

impl CpuTime {
    /// The kernel counts a wait for a CPU when it is over. So for a thread that waits now, what is missing since the last look was one.
    fn since(self, before: CpuTime, passed: Duration) -> CpuTime {
        let (ran, counted) = (self.ran.saturating_sub(before.ran), self.waited.max(before.waited));
        let known = ran + (counted - before.waited);
        let missing = (passed.as_nanos() as u64).saturating_sub(known);
        let waited = if self.is_runnable { counted + missing } else { counted };
        CpuTime { waited, ..self }
    }
}

/// A program's limit.
pub struct Patience {
    limit: Duration,
    started: Instant,
    looked: Instant,
    had: Duration,
    threads: BTreeMap<u32, CpuTime>,
    seen: Progress,
}

/// What a program did in the last quarter of its limit (half a second at least).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    threads: usize,
    runnable: usize,
    /// The time, and the CPU time used in it, look by look.
    looks: Vec<(Duration, Duration)>,
}

/// A program's time is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Up {
    /// It had its time, and its threads sleep.
    Hangs,
    /// It had its time, and its threads run.
    Runs,
    /// It didn't have its time, but nobody waits for ever.
    Starved,
}

impl Patience {
    /// With a program that starts now.
    pub fn new(limit: Duration) -> Self {
        let now = Instant::now();
        Self {
            limit,
            started: now,
            looked: now,
            had: Duration::ZERO,
            threads: BTreeMap::new(),
            seen: Progress::default(),
        }
    }

    /// Until the next look.
    pub fn pause(&self) -> Duration {
        (self.limit / 20).clamp(Duration::from_millis(10), Duration::from_millis(500))
    }

    /// Is it time to look at the program again?
    pub fn is_due(&self) -> bool {
        self.looked.elapsed() >= self.pause()
    }

    /// Looks at these processes of the program. `Some`: its time is up.
    pub fn look(&mut self, processes: &[u32]) -> Option<Up> {
        let now = Instant::now();
        let passed = now - self.looked;
        self.looked = now;
        self.account(passed, threads_of(processes));
        if self.had >= self.limit {
            return Some(if self.seen.sleeps() { Up::Hangs } else { Up::Runs });
        }
        (now - self.started >= self.limit * ENOUGH).then_some(Up::Starved)
    }

    fn account(&mut self, passed: Duration, mut threads: BTreeMap<u32, CpuTime>) {
        let (mut ran, mut waited) = (0, 0);
        for (tid, now) in &mut threads {
            let before = self.threads.get(tid).copied().unwrap_or_default();
            *now = now.since(before, passed);
            ran += now.ran.saturating_sub(before.ran);
            waited += now.waited.saturating_sub(before.waited);
        }
        // What it could have got: threads beyond the number of CPUs wait for each other.
        let cpus = std::thread::available_parallelism().map_or(1, usize::from) as f64;
        let wanted = ((ran + waited) as f64).min(cpus * passed.as_nanos() as f64);
        let share = if wanted > 0.0 { (ran as f64 / wanted).min(1.0) } else { 1.0 };
        self.had += passed.mul_f64(share);
        self.threads = threads;
        self.seen.threads = self.threads.len();
        self.seen.runnable = self.threads.values().filter(|thread| thread.is_runnable).count();
        self.seen.looks.push((passed, Duration::from_nanos(ran)));
        let span = (self.limit / 4).max(Duration::from_millis(500));
        while self.seen.looks[1..].iter().map(|(passed, _)| *passed).sum::<Duration>() >= span {
            self.seen.looks.remove(0);
        }
    }

    /// What it did in the end.
    pub fn seen(&self) -> &Progress {
        &self.seen
    }

    /// The limit.
    pub fn limit(&self) -> Duration {
        self.limit
    }

    /// Since the program's start.
    pub fn passed(&self) -> Duration {
        self.started.elapsed()
    }

    /// How long it had what it wanted.
    pub fn had(&self) -> Duration {
        self.had
    }
}

impl Progress {
    fn sums(&self) -> (f64, f64) {
        let sum = |of: fn(&(Duration, Duration)) -> Duration| {
            self.looks.iter().map(of).sum::<Duration>().as_secs_f64()
        };
        (sum(|look| look.0), sum(|look| look.1))
    }

    /// Do all its threads sleep, but for a moment now and then?
    fn sleeps(&self) -> bool {
        let (passed, ran) = self.sums();
        self.runnable == 0 && ran < passed / 20.0
    }
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (passed, ran) = self.sums();
        let threads = match self.threads {
            1 => "its thread".to_owned(),
            threads => format!("its {threads} threads"),
        };
        let what = match (self.sleeps(), self.runnable) {
            (true, _) => "slept".to_owned(),
            (_, 0) => "went on".to_owned(),
            (_, runnable) => format!("went on ({runnable} runnable)"),
        };
        write!(f, "{threads} {what}, and used {ran:.2} s of CPU time in the last {passed:.1} s")
    }
}

/// The threads of these processes.
fn threads_of(processes: &[u32]) -> BTreeMap<u32, CpuTime> {
    let mut threads = BTreeMap::new();
    for process in processes {
        let Ok(tasks) = fs::read_dir(format!("/proc/{process}/task")) else { continue };
        for task in tasks.flatten() {
            let Some(tid) = task.file_name().to_str().and_then(|tid| tid.parse().ok()) else {
                continue;
            };
            // A thread's name may be any bytes. A kernel without schedstat tells nothing: then time passes as it does.
            let stat = fs::read(task.path().join("stat")).unwrap_or_default();
            let stat = String::from_utf8_lossy(&stat);
            let state = stat.rsplit(") ").next().unwrap_or_default();
            let is_runnable = state.starts_with('R');
            let account = fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
            let mut numbers = account.split_whitespace().map(|number| number.parse().unwrap_or(0));
            let mut next = || numbers.next().unwrap_or(0);
            threads.insert(tid, CpuTime { ran: next(), waited: next(), is_runnable });
        }
    }
    threads
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn threads(of: &[(u64, u64, bool)]) -> BTreeMap<u32, CpuTime> {
        let ns = 1_000_000_000;
        let account = |&(ran, waited, is_runnable): &(u64, u64, bool)| CpuTime {
            ran: ran * ns,
            waited: waited * ns,
            is_runnable,
        };
        (1..).zip(of.iter().map(account)).collect()
    }

    #[test]
    fn time_counts_as_far_as_a_program_has_the_cpus_that_it_wants() {
        let mut sleeps = Patience::new(4 * SECOND);
        (0..4).for_each(|_| sleeps.account(SECOND, threads(&[(1, 0, false)])));
        // (In the first second it ran.)
        assert_eq!(sleeps.had(), 4 * SECOND);
        assert!(sleeps.seen().sleeps(), "{:?}", sleeps.seen());
        assert_eq!(
            sleeps.seen().to_string(),
            "its thread slept, and used 0.00 s of CPU time in the last 1.0 s"
        );
        // On a loaded machine.
        let mut starved = Patience::new(100 * SECOND);
        starved.account(10 * SECOND, threads(&[(1, 9, true), (0, 0, false)]));
        assert_eq!(starved.had(), SECOND);
        // It has had no CPU since then: the kernel hasn't counted that yet; and now it has.
        starved.account(10 * SECOND, threads(&[(1, 9, true), (0, 0, false)]));
        assert_eq!(starved.had(), SECOND);
        starved.account(10 * SECOND, threads(&[(2, 28, true), (0, 0, false)]));
        assert_eq!(starved.had(), 2 * SECOND);
        assert!(!starved.seen().sleeps());
        // Its own threads wait for each other.
        let mut crowd = Patience::new(100 * SECOND);
        let cpus = std::thread::available_parallelism().unwrap().get() as u64;
        let all = (0..2 * cpus).map(|at| if at < cpus { (5, 0, true) } else { (0, 5, true) });
        crowd.account(5 * SECOND, threads(&all.collect::<Vec<_>>()));
        assert_eq!(crowd.had(), 5 * SECOND);
    }

    #[test]
    fn what_a_process_does_is_seen() {
        let mut own = Patience::new(SECOND);
        assert_eq!(own.look(&[std::process::id()]), None);
        assert!(own.seen().threads > 0 && own.seen().runnable > 0, "{}", own.seen());
        assert!(!own.seen().sleeps());
    }
}
