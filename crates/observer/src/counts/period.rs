//! What a process's locks do in a period of time.

use super::counter::Event;
use super::course::Course;
use super::events::Events;
use super::lifetimes::{Lifetimes, monotonic};
use super::live::Live;
use super::observation::Observed;
use super::outcome::outcome;
use super::python::Samplers;
use super::reader;
use crate::mailbox::{Remote, refuse_detached};
use crate::process::Process;
use lockwright_contract::counters::control::Level;
use lockwright_symbols::Symboliser;
use lockwright_text::{Failure, cause};
use std::fs;
use std::time::{Duration, Instant};

/// How often we check whether the time is up.
pub const LOOK: Duration = Duration::from_millis(20);
/// How long a process keeps counting at our level if the caller is killed.
const LEASE: Duration = Duration::from_secs(4);

/// What was observed.
pub struct Period {
    /// What its locks did.
    pub observed: Observed,
    /// How long its threads ran.
    pub lifetimes: Lifetimes,
    /// The CPU time of its threads, ns.
    pub cpu_ns: u64,
    /// Was there anything to count? If not, no thread has waited since the process began.
    pub is_counted: bool,
}

/// CPU time of a process so far, ns; 0: it no longer exists.
pub(super) fn cpu_ns(pid: libc::pid_t) -> u64 {
    let (mut clock, mut now) = (0, libc::timespec { tv_sec: 0, tv_nsec: 0 });
    // SAFETY: a writable clock id, and a writable timespec.
    let is_there = unsafe {
        libc::clock_getcpuclockid(pid, &mut clock) == 0 && libc::clock_gettime(clock, &mut now) == 0
    };
    if is_there { now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64 } else { 0 }
}

impl Period {
    /// Observes a process for `limit`, or until `goes_on`, which is told how long that has been, denies it. Afterwards its level is
    /// the same as before, even if the caller is killed.
    pub fn of(
        pid: libc::pid_t,
        level: Level,
        limit: Duration,
        event: Option<Event>,
        goes_on: impl Fn(Duration) -> bool,
    ) -> Result<Self, Failure> {
        let (live, before) = {
            let process = Process::open(pid)?;
            let live = Live::find(&process)?;
            refuse_detached(&process, &Remote::find(&process)?)?;
            live.ask(&process, level, LEASE)?;
            (live, live.snapshot(&process)?)
        };
        let mut symbols = Symboliser::of_process(live.pid).map_err(|error| {
            Failure::new(format!("cannot look into process {pid}: {}", cause(&error)))
        })?;
        let (begun, begun_ns) = (Instant::now(), monotonic());
        let (mut threads, mut last, mut renewed) = (0, None, begun);
        let computed = cpu_ns(live.pid);
        let mut computes = computed;
        let (mut course, mut samplers) = (Course::begin(), Samplers::default());
        let mut lifetimes = Lifetimes::begin();
        let mut events = event.map(Events::begin);
        while begun.elapsed() < limit && goes_on(begun.elapsed()) {
            std::thread::sleep(LOOK.min(limit.saturating_sub(begun.elapsed())));
            computes = computes.max(cpu_ns(live.pid));
            lifetimes.look([live.pid as u32]);
            // The most that there were at a time: at the end, most may be gone.
            let now = lockwright_symbols::threads(live.pid).map_or(0, |all| all.len());
            threads = threads.max(now);
            // The process may end at any moment. Its files then disappear, but its segment stays.
            if last.is_none() {
                last =
                    Process::open(pid).ok().and_then(|process| live.file(&process).ok().flatten());
            }
            if let Some((file, path)) = &last {
                course.look_at(file, path, threads);
                samplers.look_at(live.pid, file);
            }
            if let Some(events) = &mut events {
                events.look([live.pid as u32]);
            }
            if renewed.elapsed() > LEASE / 4 {
                renewed = Instant::now();
                let _ = Process::open(pid).and_then(|process| live.ask(&process, level, LEASE)); // the process may have ended
            }
            if fs::metadata(format!("/proc/{pid}")).is_err() {
                break;
            }
        }
        let (elapsed_ns, end_ns) = (begun.elapsed().as_nanos() as u64, monotonic());
        lifetimes.end();
        symbols.refresh();
        if let Ok(process) = Process::open(pid) {
            // The process may have started another program. The old program's counts are still there.
            let _ = live.leave(&process, level);
            if last.is_none() {
                last = live.file(&process)?;
            }
        }
        let cpu_ns = computes - computed;
        let Some((file, path)) = &last else {
            let pid = live.pid as u32;
            let observed = Observed { pid, elapsed_ns, threads, ..Observed::default() };
            return Ok(Self { observed, lifetimes, cpu_ns, is_counted: false });
        };
        let now = reader::read(file, path)?;
        let mut seen = match &before {
            Some(before) => now.since(before),
            None => now,
        };
        seen.close(begun_ns, end_ns);
        let mut outcomes = [outcome(&seen, &mut symbols, elapsed_ns, threads)];
        course.tell(&mut outcomes);
        // In a container it counts under another id, by which the course knows it.
        outcomes[0].pid = live.pid as u32;
        // The segment stores only the lock that was in force when counting began.
        let table = Process::open(pid).and_then(|process| Remote::find(&process)?.table());
        if let Ok(table) = table {
            outcomes[0].lock = table.default;
        }
        if let Some(events) = &mut events {
            events.tell(&mut outcomes[0], &mut symbols);
        }
        samplers.tell(&mut outcomes);
        let [observed] = outcomes;
        Ok(Self { observed, lifetimes, cpu_ns, is_counted: true })
    }
}
