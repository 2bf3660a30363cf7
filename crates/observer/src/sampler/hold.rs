//! Why holders were slow: what each did while others waited for its lock.
//!
//! ```text
//!   see      a thread holds a lock that others wait for, at this moment: it sleeps in a call, or is in state R
//!   settle   a moment later: of a thread in state R, the scheduler's counts say for how much of the time it ran,
//!            and for how much it was left without a CPU
//!   blame    later: a cgroup that gets new quota counts for how long it had none; who had no CPU then had none for that reason
//!   span     a little later still: waits have ended that were as long as that time. Their threads may have been awake, so that no look saw
//!            them wait; yet nobody ran to release the lock
//! ```
//!
//! A sample falls into a long wait more often than into a short one. So the shares are shares of the time that others waited.

use super::call::call_name;
use super::seen::StackId;
use crate::findings::{Cause, Holding, Inversion};
use lockwright_symbols::{
    Blocked, CpuTime, Task, TaskState, Throttled, cpu_time, task, throttled_ns,
};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};

/// If a holder has a fault this often, ns of its running time, then faults are what it does.
const FAULT_NS: u64 = 8_000;
/// A cgroup gets new quota within this time: its period is a second at most.
const PERIOD: Duration = Duration::from_secs(1);
/// How long after a time without quota the waits that spanned that time have ended.
const SETTLED: Duration = Duration::from_millis(30);
/// The scheduler brings its counts up to date once a tick, so a shorter time says little, ns.
const TICK_NS: u64 = 4_000_000;

/// A holder that was in state R.
struct Pending {
    lock: u64,
    tid: libc::pid_t,
    at: Instant,
    time: CpuTime,
    faults: u64,
}

/// A holder that had no CPU.
struct Delayed {
    lock: u64,
    at: Instant,
    part: f64,
}

/// A time in which the cgroup was without quota.
#[derive(Clone, Copy)]
struct Without {
    begun: Instant,
    ended: Instant,
}

/// Sums for one lock.
#[derive(Default)]
struct Sums {
    samples: u64,
    /// The times of the last ones, if there is a quota.
    recent: VecDeque<Instant>,
    causes: BTreeMap<Cause, f64>,
    classes: BTreeMap<u8, f64>,
    /// Where holders slept on a futex, and whether on a lock's as far as its words tell: samples.
    futexes: HashMap<(StackId, bool), u64>,
    /// Where holders slept in system calls: samples.
    sleeps: HashMap<StackId, u64>,
    /// By the two threads' names and priorities: samples.
    inversions: HashMap<[(String, String); 2], u64>,
    /// Samples in which the holder was compared with a waiter.
    compared: u64,
}

/// Watches the holders of a process's locks.
pub(super) struct Holds {
    pid: libc::pid_t,
    /// The class of each CPU, the fastest first.
    classes: Vec<u8>,
    quota: Option<Throttled>,
    /// How often the quota is renewed; `None`: there is none.
    renewed: Option<Duration>,
    throttled_ns: u64,
    pending: Vec<Pending>,
    /// In the order of time.
    delayed: VecDeque<Delayed>,
    /// Times without quota whose waits haven't been told yet ([`spanned`](Self::spanned)).
    without: VecDeque<Without>,
    /// The end of the last one that has been told: no look counts for two of them.
    told_until: Option<Instant>,
    /// When we looked, in the last while.
    looks: VecDeque<Instant>,
    locks: HashMap<u64, Sums>,
}

impl Holds {
    /// `classes`: of each CPU.
    pub(super) fn begin(pid: libc::pid_t, classes: Vec<u8>) -> Self {
        let quota = Throttled::of(pid);
        Self {
            pid,
            renewed: quota.as_ref().and_then(Throttled::period),
            classes,
            throttled_ns: quota.as_ref().map_or(0, throttled_ns),
            quota,
            pending: Vec::new(),
            delayed: VecDeque::new(),
            without: VecDeque::new(),
            told_until: None,
            looks: VecDeque::new(),
            locks: HashMap::new(),
        }
    }

    /// A thread holds a lock; `waiters` wait for it. `waits`: the holder sleeps on what looks like another lock.
    pub(super) fn see(
        &mut self,
        lock: u64,
        tid: libc::pid_t,
        state: Option<(Blocked, StackId)>,
        waits: bool,
        waiters: &[libc::pid_t],
    ) {
        let Ok(holder) = task(self.pid, tid) else { return };
        let class = self.classes.get(holder.cpu).copied().unwrap_or(0);
        let sums = self.locks.entry(lock).or_default();
        sums.samples += 1;
        if self.renewed.is_some() {
            sums.recent.push_back(Instant::now());
        }
        *sums.classes.entry(class).or_default() += 1.0;
        sums.compare(self.pid, &holder, waiters);
        let cause = match (holder.state, state) {
            (TaskState::Stopped, _) => Cause::Stopped,
            (_, Some((Blocked { call: Some(libc::SYS_futex), .. }, stack))) => {
                *sums.futexes.entry((stack, waits)).or_default() += 1;
                return;
            }
            (_, Some((Blocked { call: Some(call), .. }, stack))) => {
                *sums.sleeps.entry(stack).or_default() += 1;
                Cause::Asleep(call_name(call))
            }
            (_, Some((Blocked { call: None, .. }, _))) => Cause::Paging,
            (_, None) => {
                let Some(time) = cpu_time(self.pid, tid) else {
                    return sums.add(Cause::Running, 1.0); // this kernel doesn't tell
                };
                let (at, faults) = (Instant::now(), holder.faults);
                return self.pending.push(Pending { lock, tid, at, time, faults });
            }
        };
        sums.add(cause, 1.0);
    }

    pub(super) fn has_quota(&self) -> bool {
        self.renewed.is_some()
    }

    pub(super) fn is_to_be_spanned(&self) -> bool {
        !self.without.is_empty()
    }

    /// The length of a time without quota after which waits have had the time to end.
    pub(super) fn without_quota(&self) -> Option<Duration> {
        let first = self.without.front()?;
        (first.ended.elapsed() >= SETTLED).then(|| first.ended - first.begun)
    }

    /// Threads waited for these locks during all of the first time without quota. Looks at which nobody was seen count for it, too.
    pub(super) fn spanned(&mut self, locks: &[u64]) {
        let Some(Without { begun, ended }) = self.without.pop_front() else { return };
        let begun = self.told_until.replace(ended).map_or(begun, |told| told.max(begun));
        let within = |at: &&Instant| (begun..ended).contains(*at);
        let looks = self.looks.iter().filter(within).count();
        for lock in locks {
            let sums = self.locks.entry(*lock).or_default();
            let missed = looks.saturating_sub(sums.recent.iter().filter(within).count());
            sums.samples += missed as u64;
            sums.add(Cause::Throttled, missed as f64);
        }
    }

    /// Looks again at the holders that were in state R.
    pub(super) fn settle(&mut self) {
        let is_early = |one: &Pending| one.at.elapsed().as_nanos() < TICK_NS.into();
        let (early, due) = std::mem::take(&mut self.pending).into_iter().partition(is_early);
        self.pending = early;
        let due: Vec<Pending> = due;
        for one in due {
            let sums = self.locks.entry(one.lock).or_default();
            let (Some(time), Ok(now)) = (cpu_time(self.pid, one.tid), task(self.pid, one.tid))
            else {
                sums.add(Cause::Running, 1.0); // it ended, so it ran
                continue;
            };
            let elapsed_ns = one.at.elapsed().as_nanos() as u64;
            let is_runnable = now.state == TaskState::Running;
            let (ran_ns, delayed_ns) = split(one.time, time, elapsed_ns, is_runnable);
            let delayed = delayed_ns as f64 / (ran_ns + delayed_ns).max(1) as f64;
            self.delayed.push_back(Delayed { lock: one.lock, at: one.at, part: delayed });
            let faults = now.faults.saturating_sub(one.faults);
            let cause = match faults > 0 && ran_ns / faults < FAULT_NS {
                true => Cause::PageFaults,
                false => Cause::Running,
            };
            sums.add(cause, 1.0 - delayed);
        }
        self.blame(PERIOD);
    }

    /// Says why holders had no CPU: those of a time in which the cgroup was without quota, and those from longer ago than `patience`.
    fn blame(&mut self, patience: Duration) {
        let without = self.newly_without();
        for one in std::mem::take(&mut self.delayed) {
            let cause = match one.at.elapsed() {
                ago if ago <= without => Cause::Throttled,
                ago if ago < patience => {
                    self.delayed.push_back(one);
                    continue;
                }
                _ => Cause::Preempted,
            };
            self.locks.entry(one.lock).or_default().add(cause, one.part);
        }
    }

    /// For how long the cgroup was without quota until a moment ago: the sum over its CPUs.
    fn newly_without(&mut self) -> Duration {
        let Some(quota) = &self.quota else { return Duration::ZERO };
        let now = Instant::now();
        let total_ns = throttled_ns(quota);
        let sum = Duration::from_nanos(total_ns.saturating_sub(self.throttled_ns));
        self.throttled_ns = total_ns;
        if self.renewed.is_none() && !sum.is_zero() {
            self.renewed = quota.period(); // it has just got a quota
        }
        if let Some(period) = self.renewed {
            self.note(now, sum, period);
        }
        sum
    }

    /// Notes a look, and the time without quota that ended a moment ago. `sum`: over all CPUs.
    fn note(&mut self, now: Instant, sum: Duration, period: Duration) {
        self.looks.push_back(now);
        let is_old = |at: &Instant| now.duration_since(*at) > 2 * period.max(PERIOD);
        let forget = |times: &mut VecDeque<Instant>| {
            while times.front().is_some_and(is_old) {
                times.pop_front();
            }
        };
        forget(&mut self.looks);
        self.locks.values_mut().for_each(|sums| forget(&mut sums.recent));
        // Without counts of waits, nobody asks for them.
        while self.without.front().is_some_and(|old| is_old(&old.ended)) {
            self.without.pop_front();
        }
        // No CPU is without for longer than a period. With a quota of several CPUs, this may be too long; then no wait spans the time.
        let cpus = sum.as_nanos().div_ceil(period.as_nanos().max(1)).max(1) as u32;
        let length = sum / cpus;
        if let Some(begun) = now.checked_sub(length).filter(|_| !length.is_zero()) {
            // CPUs that get their quota one after the other had none at the same time.
            match self.without.back_mut().filter(|last| begun < last.ended) {
                Some(last) => last.ended = now,
                None => self.without.push_back(Without { begun, ended: now }),
            }
        }
    }

    /// What was seen, by lock; and the stack in which its holders slept most often. `period_ns`: the time between two samples on average.
    /// `is_event`: does a thread with that stack wait for something to happen, and not for a lock?
    pub(super) fn end(
        mut self,
        period_ns: u64,
        mut is_event: impl FnMut(StackId) -> bool,
    ) -> HashMap<u64, (Holding, Option<StackId>)> {
        for one in std::mem::take(&mut self.pending) {
            self.locks.entry(one.lock).or_default().add(Cause::Running, 1.0);
        }
        self.blame(Duration::ZERO);
        for sums in self.locks.values_mut() {
            for ((stack, waits), count) in std::mem::take(&mut sums.futexes) {
                let is_lock = waits && !is_event(stack);
                sums.add(if is_lock { Cause::Lock } else { Cause::Signal }, count as f64);
            }
        }
        let all = self.locks.into_iter();
        all.map(|(lock, sums)| (lock, sums.holding(period_ns))).collect()
    }
}

/// For how long a thread ran, and for how long it had no CPU, ns, after a moment in which it was in state R.
fn split(then: CpuTime, now: CpuTime, elapsed_ns: u64, is_runnable: bool) -> (u64, u64) {
    let ran_ns = now.ran_ns.saturating_sub(then.ran_ns);
    let counted_ns = now.delayed_ns.saturating_sub(then.delayed_ns);
    // A delay is counted when the thread gets a CPU. If it has got none since, and didn't run, the delay lasts; but the scheduler's
    // count of what it ran may be a tick behind.
    let left_ns = elapsed_ns.saturating_sub(ran_ns);
    let lasts = is_runnable && now.slices == then.slices && left_ns > TICK_NS + TICK_NS / 4;
    let lasting_ns = if lasts { left_ns } else { 0 };
    (ran_ns, counted_ns + lasting_ns)
}

impl Sums {
    fn add(&mut self, cause: Cause, part: f64) {
        if part > 0.0 {
            *self.causes.entry(cause).or_default() += part;
        }
    }

    /// Notes a waiter whose priority is far above the holder's.
    fn compare(&mut self, pid: libc::pid_t, holder: &Task, waiters: &[libc::pid_t]) {
        self.compared += u64::from(!waiters.is_empty());
        let plain = |task: &Task| task.scheduling().unwrap_or_else(|| "nice 0".to_owned());
        let waiters = waiters.iter().filter_map(|&tid| task(pid, tid).ok());
        if let Some(waiter) = waiters.into_iter().find(|waiter| waiter.is_far_above(holder)) {
            let names = [&waiter, holder].map(|task| (task.name.clone(), plain(task)));
            *self.inversions.entry(names).or_default() += 1;
        }
    }

    /// Also returns the stack in which holders slept most often.
    fn holding(self, period_ns: u64) -> (Holding, Option<StackId>) {
        let samples = self.samples;
        let whole = self.causes.values().sum::<f64>().max(1e-9);
        let mut causes: Vec<(Cause, f64)> =
            self.causes.into_iter().map(|(cause, part)| (cause, part / whole)).collect();
        causes.sort_by(|a, b| b.1.total_cmp(&a.1));
        let slowest = self.classes.keys().copied().max().unwrap_or(0);
        let seen = self.classes.values().sum::<f64>().max(1.0);
        let class = |at: u8| self.classes.get(&at).copied().unwrap_or(0.0) / seen;
        let classes = if slowest == 0 { Vec::new() } else { (0..=slowest).map(class).collect() };
        let most = self.inversions.into_iter().max_by_key(|(_, count)| *count);
        let inversion = most.map(|([waiter, holder], count)| Inversion {
            waiter,
            holder,
            share: count as f64 / self.compared.max(1) as f64,
            ns: count * period_ns,
        });
        let most = self.sleeps.into_iter().max_by_key(|(stack, count)| (*count, *stack));
        let asleep_at = most.map(|(stack, _)| stack);
        (Holding { samples, causes, classes, asleep_in: None, inversion }, asleep_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Of a thread that has got a CPU so often.
    fn time(ran_ms: u64, delayed_ms: u64, slices: u64) -> CpuTime {
        CpuTime { ran_ns: ran_ms * MS, delayed_ns: delayed_ms * MS, slices }
    }

    #[test]
    fn a_thread_in_state_r_ran_or_had_no_cpu() {
        let parts = |now, runnable| split(time(100, 50, 7), now, 20 * MS, runnable);
        // It ran all the time; the scheduler's count is a little behind.
        assert_eq!(parts(time(117, 50, 7), true), (17 * MS, 0));
        // It still has no CPU.
        assert_eq!(parts(time(100, 50, 7), true), (0, 20 * MS));
        // It had none for a while, and then slept.
        assert_eq!(parts(time(101, 62, 8), false), (MS, 12 * MS));
        // It ran for a moment, and then slept; and is about to run again.
        assert_eq!(parts(time(101, 50, 7), false), (MS, 0));
        assert_eq!(parts(time(101, 50, 9), true), (MS, 0));
    }

    /// Ten looks before the quota is there again: two saw the holder, which had no CPU. Waits for one of two locks were as long as that time.
    #[test]
    fn who_waited_during_all_of_a_time_without_quota_waited_for_quota() {
        let mut holds = Holds::begin(std::process::id().cast_signed(), Vec::new());
        let begun = Instant::now();
        let at = |ms: u64| begun + Duration::from_millis(ms);
        let period = Duration::from_millis(100);
        for look in 0..=19 {
            holds.note(at(10 * look), Duration::ZERO, period);
        }
        // Two CPUs get their quota, and a third one shortly after.
        holds.note(at(200), 2 * Duration::from_millis(95), period);
        holds.note(at(210), Duration::from_millis(99), period);
        let [Without { begun, ended }] = *holds.without.make_contiguous() else { panic!("one") };
        assert_eq!((begun, ended), (at(105), at(210)));
        for lock in [1, 2] {
            let sums = holds.locks.entry(lock).or_default();
            sums.recent.extend([at(50), at(110), at(120)]);
            sums.samples = 3;
            sums.add(Cause::Running, 1.0);
            sums.add(Cause::Throttled, 2.0);
        }
        holds.spanned(&[1]);
        assert!(holds.without.is_empty());
        let holding = |lock: u64| {
            let sums = &holds.locks[&lock];
            (sums.samples, sums.causes[&Cause::Throttled], sums.causes[&Cause::Running])
        };
        assert_eq!((holding(1), holding(2)), ((11, 10.0, 1.0), (3, 2.0, 1.0)));
        // Another CPU gets its quota late: only the looks since then are new.
        holds.note(at(220), Duration::ZERO, period);
        holds.note(at(230), Duration::from_millis(99), period);
        holds.spanned(&[1]);
        let sums = &holds.locks[&1];
        assert_eq!((sums.samples, sums.causes[&Cause::Throttled]), (13, 12.0));
    }

    #[test]
    fn shares_are_of_all_samples_and_the_greatest_comes_first() {
        let mut sums = Sums { samples: 4, ..Sums::default() };
        sums.add(Cause::Running, 1.0);
        sums.add(Cause::Asleep("fsync".into()), 2.0);
        sums.add(Cause::Preempted, 0.75);
        sums.add(Cause::Running, 0.25);
        sums.classes = BTreeMap::from([(0, 1.0), (1, 3.0)]);
        let names = |name: &str, how: &str| (name.to_owned(), how.to_owned());
        let inverted = [names("rt", "SCHED_FIFO 20"), names("batch", "nice 10")];
        sums.inversions.insert(inverted, 2);
        sums.compared = 4;
        let (holding, _) = sums.holding(10 * MS);
        assert_eq!(holding.main(), Some(&(Cause::Asleep("fsync".into()), 0.5)));
        assert_eq!((holding.share(&Cause::Running), holding.share(&Cause::Lock)), (0.3125, 0.0));
        assert_eq!(holding.classes, [0.25, 0.75]);
        let inversion = holding.inversion.unwrap();
        assert_eq!((inversion.share, inversion.ns), (0.5, 20 * MS));
    }
}
