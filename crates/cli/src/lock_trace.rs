//! A trace of locks, for people and for programs.

use crate::epochs::{Origin, thousands};
use crate::output::{self, shown};
use lockwright_bench::time;
use lockwright_stats::trace::{LockInfo, LockSummary, Summary, Times, Trace};
use serde_json::{Value, json};

/// Locks in the table.
const SHOWN: usize = 20;

/// A few lines, and a line for each of the busiest locks.
pub(crate) fn report(trace: &Trace) -> String {
    let (meta, summary) = (&trace.meta, trace.summary());
    if trace.threads.is_empty() && meta.dropped == 0 {
        return "no mutex was acquired\nhint: lockwright doctor --run -- PROGRAM\n".to_owned();
    }
    let count = |number: usize, what: &str| {
        format!("{} {what}{}", thousands(number as u64), if number == 1 { "" } else { "s" })
    };
    let mut text = format!(
        "{} of {} by {}, on lock {} and {}; every time is {}\n",
        count(trace.acquisitions() as usize, "acquisition"),
        count(trace.locks.len(), "lock"),
        count(trace.threads.len(), "thread"),
        shown(&meta.lock),
        count(meta.cpus as usize, "CPU"),
        Origin(meta.emulated.as_deref()),
    );
    text += &format!(
        "in {}; all threads together computed {}, waited for locks {}, slept otherwise {}\n",
        time(meta.span_ns as f64),
        time(summary.compute_ns as f64),
        time(summary.wait_ns as f64),
        time(summary.idle_ns as f64),
    );
    if meta.dropped > 0 {
        let (why, hint) = match meta.is_disk_full {
            true => ("there was no room on the disk", "df /dev/shm"),
            false => ("the limit was reached", "lockwright record --limit N -- PROGRAM"),
        };
        text += &format!(
            "not recorded, at the end: {} ({why})\nhint: {hint}\n",
            count(meta.dropped as usize, "acquisition")
        );
    }
    text += &table(trace, &summary);
    if trace.locks.len() > SHOWN {
        let more = trace.locks.len() - SHOWN;
        text += &format!("and {} with fewer acquisitions (--json has all)\n", count(more, "lock"));
    }
    text
}

fn table(trace: &Trace, summary: &Summary) -> String {
    let mut locks: Vec<_> = trace.locks.iter().zip(&summary.locks).enumerate().collect();
    locks.sort_by_key(|(number, (_, lock))| (u64::MAX - lock.acquisitions(), *number));
    let mut table = output::table(&[
        "lock", "address", "threads", "count", "gap P50", "P99", "wait P50", "P99", "hold P50",
        "P99", "waited",
    ]);
    for (number, (info, lock)) in locks.into_iter().take(SHOWN) {
        let at = |times: &Times, q| time(times.quantile(q) as f64);
        table.add_row([
            number.to_string(),
            address(info),
            thousands(lock.threads),
            thousands(lock.acquisitions()),
            at(&lock.gap, 0.5),
            at(&lock.gap, 0.99),
            at(&lock.wait, 0.5),
            at(&lock.wait, 0.99),
            at(&lock.hold, 0.5),
            at(&lock.hold, 0.99),
            time(lock.wait.total_ns() as f64),
        ]);
    }
    table.to_string().lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

fn address(info: &LockInfo) -> String {
    format!("{:#x}", info.address)
}

/// Everything but the single steps.
pub(crate) fn json(trace: &Trace) -> Value {
    let (meta, summary) = (&trace.meta, trace.summary());
    let locks = trace.locks.iter().zip(&summary.locks).enumerate();
    let threads = trace.threads.iter().map(|thread| {
        json!({
            "process": thread.process, "class": thread.class, "start_ns": thread.start_ns,
            "steps": thread.steps.len(),
        })
    });
    json!({
        "origin": Origin(meta.emulated.as_deref()).word(),
        "emulated": meta.emulated,
        "processes": meta.processes,
        "lock": meta.lock,
        "cpus": meta.cpus,
        "span_ns": meta.span_ns,
        "compute_ns": summary.compute_ns,
        "wait_ns": summary.wait_ns,
        "idle_ns": summary.idle_ns,
        "acquisitions": trace.acquisitions(),
        "dropped": meta.dropped,
        "threads": threads.collect::<Vec<_>>(),
        "locks": locks.map(|(number, (info, lock))| of(number, info, lock)).collect::<Vec<_>>(),
    })
}

fn of(number: usize, info: &LockInfo, lock: &LockSummary) -> Value {
    let times = |times: &Times| {
        json!({
            "p50_ns": times.quantile(0.5), "p90_ns": times.quantile(0.9),
            "p99_ns": times.quantile(0.99), "max_ns": times.quantile(1.0),
            "total_ns": times.total_ns(),
        })
    };
    json!({
        "lock": number, "process": info.process, "address": address(info),
        "threads": lock.threads, "acquisitions": lock.acquisitions(),
        "gap": times(&lock.gap), "wait": times(&lock.wait), "hold": times(&lock.hold),
    })
}
