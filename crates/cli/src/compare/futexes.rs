//! Futex calls of a program and its children, counted by the kernel. Each system call of the whole machine takes a little longer
//! meanwhile, so they are counted while a program warms up, not while it is measured.

use perf_event::events::Tracepoint;
use perf_event::{Builder, Counter};
use std::fs;
use std::io;
use std::path::PathBuf;

/// The kernel's event.
const EVENT: &str = "events/syscalls/sys_enter_futex/id";

/// Can futex calls be counted here?
pub(crate) enum Futexes {
    /// The event's number.
    Counted(u64),
    /// Why not, and a command that mends it.
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
            // Ourselves, to see whether we may.
            Some(id) if count(id, 0).is_ok() => Self::Counted(id),
            Some(_) => Self::Not(
                "the kernel doesn't let us open this event",
                "sudo sysctl kernel.perf_event_paranoid=1",
            ),
        }
    }

    /// Counts those of a process, its threads to come and its children, from now on.
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
