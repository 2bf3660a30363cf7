//! A trace of `lockwright profile --record` as a workload.

use crate::cmd::record;
use crate::hints::{Failure, warn};
use crate::output::shown;
use lockwright_numbers::format::{si, thousands, time};
use lockwright_sim::load::Workload;
use lockwright_sim::workload::replay::{RecordedThread, Step, workload};
use lockwright_stats::trace::{self, Trace, TraceThread};
use std::path::Path;

/// A recorded program.
pub(crate) struct Recorded {
    pub(crate) workload: &'static Workload,
    /// Number of threads.
    pub(crate) threads: usize,
    /// How long it ran, ns.
    pub(crate) span_ns: u64,
    /// For each thread: does it take a lock?
    pub(crate) locking: Vec<bool>,
    /// A note on the recorded rate, for comparison.
    pub(crate) rate: String,
}

pub(crate) fn read(path: &Path) -> Result<Recorded, Failure> {
    let trace = record::read(path)?;
    if trace.acquisitions() == 0 {
        return Err(Failure::new(format!("trace '{}': no lock was taken", path.display()))
            .hint(format!("lockwright profile --record --show {}", path.display())));
    }
    if let Some(emulated) = &trace.meta.emulated {
        warn(
            format!(
                "the trace was recorded on an emulated machine ({emulated}): its slow cores' computing counts as that of fast ones"
            ),
            "lockwright profile --record without --emulate",
        );
    }
    let span_ns = trace.meta.span_ns;
    let threads: Vec<RecordedThread> =
        trace.threads.iter().map(|thread| thread_of(thread, span_ns)).collect();
    let takes_one =
        |thread: &RecordedThread| thread.steps.iter().any(|s| matches!(s, Step::Acquire(_)));
    let locking = threads.iter().map(takes_one).collect();
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let count = threads.len();
    let rate = rate(&trace);
    Ok(Recorded { workload: workload(&name, threads), threads: count, span_ns, locking, rate })
}

/// Describes the program's acquisition rate during the recording, and why a simulation has other figures.
fn rate(trace: &Trace) -> String {
    let (meta, acquisitions) = (&trace.meta, trace.acquisitions());
    let threads = trace.threads.len();
    format!(
        "the trace has {} acquisitions per second ({} in {} by {threads} thread{} on {} CPU{}, lock {}); in the simulation, \
         threads compute for as long as on the recording machine's fastest cores, but on other cores, and pay this machine's \
         costs for the lock's cache line, waits and wakes; a lock and those taken while it is held count as one operation",
        si(acquisitions as f64 / (meta.span_ns.max(1) as f64 / 1e9)),
        thousands(acquisitions),
        time(meta.span_ns as f64),
        if threads == 1 { "" } else { "s" },
        meta.cpus,
        if meta.cpus == 1 { "" } else { "s" },
        shown(&meta.lock),
    )
}

fn thread_of(thread: &TraceThread, span_ns: u64) -> RecordedThread {
    let mut end_ns = thread.start_ns;
    let mut step = |step: &trace::Step| match *step {
        trace::Step::Compute(ns) => {
            end_ns = end_ns.saturating_add(ns); // a file may contain anything
            Step::Compute(ns)
        }
        trace::Step::Idle(ns) => {
            end_ns = end_ns.saturating_add(ns);
            Step::Sleep(ns)
        }
        trace::Step::Acquire { lock, wait_ns } => {
            end_ns = end_ns.saturating_add(wait_ns);
            Step::Acquire(lock)
        }
        trace::Step::Release(lock) => Step::Release(lock),
    };
    let steps = thread.steps.iter().map(&mut step).collect();
    RecordedThread { steps, before_ns: thread.start_ns, after_ns: span_ns.saturating_sub(end_ns) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_idle_before_its_first_step_and_after_its_last() {
        let steps = vec![
            trace::Step::Compute(10),
            trace::Step::Acquire { lock: 3, wait_ns: 5 },
            trace::Step::Idle(20),
            trace::Step::Release(3),
        ];
        let thread = TraceThread { process: 0, class: None, start_ns: 100, steps };
        let made = thread_of(&thread, 1000);
        assert_eq!((made.before_ns, made.after_ns), (100, 1000 - 135));
        let expected = [Step::Compute(10), Step::Acquire(3), Step::Sleep(20), Step::Release(3)];
        assert_eq!(made.steps, expected);
        assert_eq!(thread_of(&thread, 50).after_ns, 0);
    }
}
