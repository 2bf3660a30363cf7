//! The events that the kernel counts for us (perf events), and why it may refuse.

use lockwright_text::cause;
use perf_event::Builder;
use perf_event::events::{Hardware, Software};
use serde::Serialize;
use std::io;

/// Maximum number of samples per second and thread.
const RATE: u64 = 997;

/// The event to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Event {
    /// Memory that no cache had; by the CPU's counters
    CacheMisses,
    /// Memory that the kernel had to map first
    PageFaults,
    /// Time that threads computed, ns
    CpuClock,
}

impl Event {
    /// As the command names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::CacheMisses => "cache-misses",
            Self::PageFaults => "page-faults",
            Self::CpuClock => "cpu-clock",
        }
    }

    /// In a sentence.
    pub fn words(self) -> String {
        self.name().replace('-', " ")
    }
}

/// Samples the event in a thread, at most [`RATE`] times a second.
pub fn builder<'a>(event: Event, tid: libc::pid_t) -> Builder<'a> {
    let mut builder = match event {
        Event::CacheMisses => Builder::new(Hardware::CACHE_MISSES),
        Event::PageFaults => Builder::new(Software::PAGE_FAULTS),
        Event::CpuClock => Builder::new(Software::CPU_CLOCK),
    };
    builder.observe_pid(tid).any_cpu().sample_frequency(RATE);
    builder
}

/// Why the kernel refuses to count.
pub fn why(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP) => {
            "this machine has no counter for them (virtual machines seldom do)".to_owned()
        }
        Some(libc::EACCES | libc::EPERM) => {
            "the kernel lets us count none: sudo sysctl kernel.perf_event_paranoid=2".to_owned()
        }
        Some(libc::EMFILE) => "too many threads for our limit of open files".to_owned(),
        _ => cause(error),
    }
}
