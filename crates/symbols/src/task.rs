//! A thread as the scheduler sees it: its state, its priority, the time that it ran and the time that it waited for a CPU.
//!
//! The kernel's files say this of any thread whose process we may read. None of them stops the thread.

use crate::proc_text;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What a thread was doing when the kernel was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskState {
    /// It ran, or it could have run if it had had a CPU: `R`.
    Running,
    /// It slept: `S`.
    Sleeping,
    /// It slept and could not be interrupted, mostly for a disk or for memory: `D`.
    Disk,
    /// A signal or a debugger has stopped it: `T`, `t`.
    Stopped,
    /// It has ended: `Z`, `X`.
    Ended,
}

/// A thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Its name.
    pub name: String,
    /// What it was doing.
    pub state: TaskState,
    /// Page faults so far.
    pub faults: u64,
    /// Those of them that had to wait for a disk.
    pub disk_faults: u64,
    /// Its nice value, -20 to 19.
    pub nice: i32,
    /// The CPU on which it last ran.
    pub cpu: usize,
    /// Its priority under `SCHED_FIFO` and `SCHED_RR`, 1 to 99; 0: it has another policy.
    pub real_time: u32,
    /// Its policy by the kernel's number, as in `sched_getscheduler`.
    pub policy: u32,
}

impl Task {
    /// How it is scheduled, if unlike most threads: `SCHED_FIFO 20`, `nice 10`.
    pub fn scheduling(&self) -> Option<String> {
        const FIFO: u32 = libc::SCHED_FIFO as u32;
        const RR: u32 = libc::SCHED_RR as u32;
        const BATCH: u32 = libc::SCHED_BATCH as u32;
        const IDLE: u32 = libc::SCHED_IDLE as u32;
        const DEADLINE: u32 = libc::SCHED_DEADLINE as u32;
        match self.policy {
            FIFO => Some(format!("SCHED_FIFO {}", self.real_time)),
            RR => Some(format!("SCHED_RR {}", self.real_time)),
            BATCH => Some("SCHED_BATCH".to_owned()),
            IDLE => Some("SCHED_IDLE".to_owned()),
            DEADLINE => Some("SCHED_DEADLINE".to_owned()),
            _ if self.nice != 0 => Some(format!("nice {}", self.nice)),
            _ => None,
        }
    }

    /// Does the scheduler always prefer it to `other`, or give it at least three times as much of a CPU?
    pub fn is_far_above(&self, other: &Self) -> bool {
        const IDLE: u32 = libc::SCHED_IDLE as u32;
        const DEADLINE: u32 = libc::SCHED_DEADLINE as u32;
        // Five steps of nice are a factor of three.
        const STEPS: i32 = 5;
        let rank = |task: &Self| if task.policy == DEADLINE { 100 } else { task.real_time };
        match (rank(self), rank(other)) {
            (mine, its) if mine != its => mine > its,
            (0, _) if other.policy == IDLE => self.policy != IDLE,
            (0, _) => self.nice + STEPS <= other.nice,
            _ => false,
        }
    }
}

/// Reads about a thread.
///
/// # Errors
///
/// There is no such thread.
pub fn task(pid: libc::pid_t, tid: libc::pid_t) -> io::Result<Task> {
    let text = proc_text(format!("/proc/{pid}/task/{tid}/stat"))?;
    parse(&text).ok_or_else(|| ErrorKind::InvalidData.into())
}

/// `12 (a name) S 1 ...`: the name may contain blanks and parentheses.
fn parse(text: &str) -> Option<Task> {
    let (head, rest) = text.rsplit_once(") ")?;
    let name = head.split_once(" (")?.1.to_owned();
    let fields: Vec<&str> = rest.split_whitespace().collect();
    // By the numbers of proc(5), where the state is the third field.
    let field = |number: usize| fields.get(number - 3).copied();
    fn number<T: std::str::FromStr>(field: Option<&str>) -> Option<T> {
        field?.parse().ok()
    }
    let state = match field(3)? {
        "R" => TaskState::Running,
        "D" => TaskState::Disk,
        "T" | "t" => TaskState::Stopped,
        "Z" | "X" | "x" => TaskState::Ended,
        _ => TaskState::Sleeping,
    };
    let disk_faults = number(field(12))?;
    Some(Task {
        name,
        state,
        faults: number::<u64>(field(10))? + disk_faults,
        disk_faults,
        nice: number(field(19))?,
        cpu: number(field(39))?,
        real_time: number(field(40))?,
        policy: number(field(41))?,
    })
}

/// What a thread has had of the CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// How long it has run, ns. The kernel brings this up to date once a tick.
    pub ran_ns: u64,
    /// How long it could have run, but had no CPU, ns. Brought up to date when it gets one.
    pub delayed_ns: u64,
    /// How often it got a CPU.
    pub slices: u64,
}

/// Reads how long a thread has run, and how long it has waited for a CPU. `None`: this kernel doesn't count that.
pub fn cpu_time(pid: libc::pid_t, tid: libc::pid_t) -> Option<CpuTime> {
    let text = proc_text(format!("/proc/{pid}/task/{tid}/schedstat")).ok()?;
    let mut words = text.split_whitespace().map(|word| word.parse().ok());
    Some(CpuTime { ran_ns: words.next()??, delayed_ns: words.next()??, slices: words.next()?? })
}

/// The files in which a process's cgroup, and those above it, count for how long they were without quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Throttled {
    files: Vec<PathBuf>,
    /// The name of the count, and the length of its unit, ns.
    count: (&'static str, u64),
}

impl Throttled {
    /// For the cgroups of a process. `None`: none of them limits CPU time, or we can't see that.
    pub fn of(pid: libc::pid_t) -> Option<Self> {
        let groups = proc_text(format!("/proc/{pid}/cgroup")).ok()?;
        groups.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            let is_cpu = controllers.split(',').any(|one| one == "cpu");
            // The unit of version 2 is microseconds, that of version 1 nanoseconds.
            let (folders, count) = match controllers {
                "" => (["", "unified"], ("throttled_usec", 1000)),
                _ if is_cpu => (["cpu", "cpu,cpuacct"], ("throttled_time", 1)),
                _ => return None,
            };
            folders.iter().find_map(|folder| {
                let root = Path::new("/sys/fs/cgroup").join(folder);
                let path = Path::new(path.trim_start_matches('/'));
                let files = path.ancestors().map(|group| root.join(group).join("cpu.stat"));
                let files: Vec<_> = files.filter(|file| total(file, count).is_some()).collect();
                (!files.is_empty()).then_some(Self { files, count })
            })
        })
    }
}

fn total(file: &Path, (name, unit_ns): (&str, u64)) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let count = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
    Some(count? * unit_ns)
}

impl Throttled {
    /// The period of the innermost of these groups that has a quota. `None`: none has one.
    pub fn period(&self) -> Option<Duration> {
        let period = |file: &PathBuf| {
            let folder = file.parent()?;
            let text = |name: &str| fs::read_to_string(folder.join(name)).ok();
            // `max 100000`, or `20000 100000`: microseconds. Version 1 has a file for each, and -1 where there is no quota.
            let us = match text("cpu.max") {
                Some(both) => {
                    let (quota, period) = both.trim().split_once(' ')?;
                    (quota != "max").then(|| period.parse().ok())??
                }
                None => {
                    let quota: i64 = text("cpu.cfs_quota_us")?.trim().parse().ok()?;
                    (quota > 0).then(|| text("cpu.cfs_period_us")?.trim().parse().ok())??
                }
            };
            Some(Duration::from_micros(us))
        };
        self.files.iter().find_map(period)
    }
}

/// For how long the groups have been without quota so far, ns.
pub fn throttled_ns(groups: &Throttled) -> u64 {
    groups.files.iter().filter_map(|file| total(file, groups.count)).sum()
}

/// How long ago a thread that sleeps last ran. `None`: the kernel doesn't say, or not for that CPU.
///
/// The scheduler notes when a thread last ran, by its CPU's own clock, which stands still while a hypervisor takes that CPU. So
/// the calling thread goes to that CPU for a moment, to read the same clock.
pub fn slept_for(pid: libc::pid_t, tid: libc::pid_t) -> Option<Duration> {
    let cpu = task(pid, tid).ok()?.cpu;
    let here = Affinity::current()?;
    let there = Affinity::only(cpu)?;
    there.apply()?;
    let now = last_ran("/proc/thread-self/sched");
    let then = last_ran(&format!("/proc/{pid}/task/{tid}/sched"));
    here.apply();
    let ms = now? - then?;
    // A thread that has run in the meantime says nothing.
    (ms >= 0.0 && task(pid, tid).ok()?.cpu == cpu).then(|| Duration::from_secs_f64(ms / 1000.0))
}

/// When a thread last ran, ms.
fn last_ran(path: &str) -> Option<f64> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with("se.exec_start"))?;
    line.split_once(':')?.1.trim().parse().ok()
}

/// The CPUs that a thread may use.
struct Affinity(libc::cpu_set_t);

impl Affinity {
    /// The calling thread's.
    fn current() -> Option<Self> {
        // SAFETY: zeroes are an empty set.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        // SAFETY: a writable set of that size.
        let got = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) };
        (got == 0).then_some(Self(set))
    }

    fn only(cpu: usize) -> Option<Self> {
        if cpu >= libc::CPU_SETSIZE as usize {
            return None;
        }
        // SAFETY: zeroes are an empty set.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        // SAFETY: it is below CPU_SETSIZE.
        unsafe { libc::CPU_SET(cpu, &mut set) };
        Some(Self(set))
    }

    /// The calling thread may use these from now on.
    fn apply(&self) -> Option<()> {
        // SAFETY: a readable set of that size.
        let set = unsafe { libc::sched_setaffinity(0, size_of_val(&self.0), &raw const self.0) };
        (set == 0).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    /// The innermost group has none, the one above it a fifth of a CPU, in either version's words.
    #[test]
    fn the_period_is_that_of_the_innermost_group_with_a_quota() {
        for files in [
            [("in/cpu.max", "max 50000\n"), ("cpu.max", "20000 100000\n"), ("in/other", "")],
            [
                ("in/cpu.cfs_quota_us", "-1\n"),
                ("cpu.cfs_quota_us", "20000\n"),
                ("cpu.cfs_period_us", "100000\n"),
            ],
        ] {
            let folder = tempfile::tempdir().unwrap();
            fs::create_dir(folder.path().join("in")).unwrap();
            let stats = ["in/cpu.stat", "cpu.stat"].map(|name| folder.path().join(name));
            let groups = Throttled { files: stats.to_vec(), count: ("throttled_usec", 1000) };
            assert_eq!(groups.period(), None);
            for (name, text) in files {
                fs::write(folder.path().join(name), text).unwrap();
            }
            assert_eq!(groups.period(), Some(Duration::from_millis(100)));
        }
    }

    #[test]
    fn a_line_of_stat_is_read() {
        let text = "77 (a) (b c) S 1 2 3 4 5 6 100 0 7 0 11 12 13 14 -51 10 3 0 99 1 2 \
                    3 4 5 6 7 8 9 0 1 2 3 0 0 17 1 20 1 0 0 0\n";
        let read = parse(text).unwrap();
        assert_eq!((read.name.as_str(), read.state), ("a) (b c", TaskState::Sleeping));
        assert_eq!((read.faults, read.disk_faults, read.nice), (107, 7, 10));
        assert_eq!((read.cpu, read.real_time, read.policy), (1, 20, 1));
        assert_eq!(read.scheduling().as_deref(), Some("SCHED_FIFO 20"));
        assert_eq!(parse("77 (a) S 1"), None);
    }

    #[test]
    fn priorities_are_compared_as_the_scheduler_does() {
        let of = |policy: i32, real_time, nice| Task {
            name: String::new(),
            state: TaskState::Running,
            faults: 0,
            disk_faults: 0,
            nice,
            cpu: 0,
            real_time,
            policy: policy as u32,
        };
        let (plain, nice, idle) = (of(0, 0, 0), of(0, 0, 10), of(libc::SCHED_IDLE, 0, 0));
        let (fifo, rr) = (of(libc::SCHED_FIFO, 20, 0), of(libc::SCHED_RR, 30, 0));
        for (high, low) in [(&plain, &nice), (&plain, &idle), (&fifo, &plain), (&rr, &fifo)] {
            assert!(high.is_far_above(low) && !low.is_far_above(high), "{high:?} {low:?}");
        }
        assert!(!of(0, 0, -2).is_far_above(&plain) && !idle.is_far_above(&idle));
        assert_eq!((nice.scheduling().unwrap(), plain.scheduling()), ("nice 10".into(), None));
    }

    #[test]
    fn a_thread_that_sleeps_is_seen_to() {
        let (wake, woken) = channel::<()>();
        let (tell, told) = channel();
        let sleeper = std::thread::spawn(move || {
            // SAFETY: no preconditions.
            tell.send(unsafe { libc::gettid() }).unwrap();
            woken.recv().unwrap_err()
        });
        let (pid, tid) = (std::process::id().cast_signed(), told.recv().unwrap());
        while task(pid, tid).unwrap().state != TaskState::Sleeping {
            std::thread::yield_now();
        }
        // Where the kernel tells, the time only grows.
        if let (Some(first), Some(then)) = (slept_for(pid, tid), slept_for(pid, tid)) {
            assert!(then >= first || first - then < Duration::from_secs(1), "{first:?} {then:?}");
        }
        drop(wake);
        sleeper.join().unwrap();
        // The kernel says that a thread has ended a moment before it forgets the thread.
        while task(pid, tid).is_ok() {
            std::thread::yield_now();
        }
    }
}
