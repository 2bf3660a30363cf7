//! Counts futex calls of a program and its children, using a tracepoint. While it is active, every system call on the
//! machine takes a little longer. So calls are counted during the warm-up, not during the measurement.

use perf_event::events::Tracepoint;
use perf_event::{Builder, Counter};
use std::fs;
use std::io;
use std::path::PathBuf;

/// The kernel's event.
const EVENT: &str = "events/syscalls/sys_enter_futex/id";

/// Whether futex calls can be counted here.
pub(crate) enum Futexes {
    /// The event's number.
    Counted(u64),
    /// The reason why not, and a command that fixes it.
    Not(&'static str, &'static str),
}

impl Futexes {
    pub(crate) fn here() -> Self {
        let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
        // `tracefs /sys/kernel/tracing tracefs rw,... 0 0`
        let mounted = mounts.lines().filter_map(|line| {
            let mut words = line.split(' ').skip(1);
            let (place, kind) = (words.next()?, words.next()?);
            (kind == "tracefs").then(|| PathBuf::from(place))
        });
        let places: Vec<_> = mounted.collect();
        if places.is_empty() {
            return Self::Not(
                "tracefs is not mounted",
                "sudo mount -t tracefs -o mode=755 tracefs /sys/kernel/tracing",
            );
        }
        let id = places.iter().find_map(|place| {
            fs::read_to_string(place.join(EVENT)).ok()?.trim().parse::<u64>().ok()
        });
        match id {
            None => Self::Not(
                "tracefs can't be read",
                "sudo mount -o remount,mode=755 /sys/kernel/tracing",
            ),
            // Try it on this process first, to see whether we are allowed to.
            Some(id) if count(id, 0).is_ok() => Self::Counted(id),
            Some(_) => Self::Not(
                "the kernel doesn't let us open this event",
                "sudo sysctl kernel.perf_event_paranoid=1",
            ),
        }
    }

    /// Counts the calls of a process, its future threads and its children, from now on.
    pub(crate) fn of(&self, pid: libc::pid_t) -> Option<Counter> {
        let Self::Counted(id) = self else { return None };
        let mut counter = count(*id, pid).ok()?;
        counter.enable().ok()?;
        Some(counter)
    }
}

fn count(id: u64, pid: libc::pid_t) -> io::Result<Counter> {
    Builder::new(Tracepoint::with_id(id))
        .observe_pid(pid)
        .any_cpu()
        .inherit(true)
        .include_kernel()
        .build()
}
