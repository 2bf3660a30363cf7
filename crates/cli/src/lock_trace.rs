//! Reports on a trace of locks, as text and JSON.

use crate::epochs::Origin;
use crate::output::{self, shown};
use lockwright_numbers::Times;
use lockwright_numbers::format::{thousands, time};
use lockwright_observer::traced::{address, place};
use lockwright_stats::trace::{LockInfo, LockSummary, Summary, Trace};
use serde_json::{Value, json};

/// Maximum number of locks in the table.
const SHOWN: usize = 20;

/// A summary of a few lines, then one line for each of the busiest locks.
pub(crate) fn report(trace: &Trace) -> String {
    let (meta, summary) = (&trace.meta, trace.summary());
    if trace.threads.is_empty() && meta.dropped == 0 {
        return "no mutex was acquired\nhint: lockwright doctor --run -- PROGRAM\n".to_owned();
    }
    let count = |number: usize, what: &str| {
        format!("{} {what}{}", thousands(number as u64), if number == 1 { "" } else { "s" })
    };
    let mut head = format!(
        "{} of {} by {}, on lock {} and {}; every time is {}\n",
        count(trace.acquisitions() as usize, "acquisition"),
        count(trace.locks.len(), "lock"),
        count(trace.threads.len(), "thread"),
        shown(&meta.lock),
        count(meta.cpus as usize, "CPU"),
        Origin(meta.emulated.as_deref()),
    );
    head += &format!(
        "in {}; all threads together computed for {}, waited for locks for {}, and slept otherwise for {}",
        time(meta.span_ns as f64),
        time(summary.compute_ns as f64),
        time(summary.wait_ns as f64),
        time(summary.idle_ns as f64),
    );
    let mut text = output::wrapped(&head) + "\n";
    if meta.dropped > 0 {
        let (why, hint) = match meta.is_disk_full {
            true => ("there was no room on the disk", "df /dev/shm"),
            false => ("the limit was reached", "lockwright profile --record --limit N -- PROGRAM"),
        };
        text += &format!(
            "not recorded, at the end: {} ({why})\nhint: {hint}\n",
            count(meta.dropped as usize, "acquisition")
        );
    }
    text += &table(trace, &summary);
    if trace.locks.len() > SHOWN {
        let more = trace.locks.len() - SHOWN;
        text += &format!(
            "and {} with fewer acquisitions (--format json has all)\n",
            count(more, "lock")
        );
    }
    text
}

fn table(trace: &Trace, summary: &Summary) -> String {
    let mut locks: Vec<_> = trace.locks.iter().zip(&summary.locks).enumerate().collect();
    locks.sort_by_key(|(number, (_, lock))| (u64::MAX - lock.acquisitions(), *number));
    const FIGURES: [&str; 9] = [
        "threads", "count", "gap P50", "gap P99", "wait P50", "wait P99", "hold P50", "hold P99",
        "waited",
    ];
    let mut whole = output::table(&[&["lock", "where"][..], &FIGURES].concat());
    let mut places = output::table(&["lock", "where"]).all_by("--format json");
    let mut figures = output::table(&[&["lock"][..], &FIGURES].concat())
        .least(&["gap P50", "gap P99", "threads", "hold P99", "wait P50"])
        .all_by("--format json");
    locks.truncate(SHOWN);
    let is_short = locks.iter().any(|(_, (_, lock))| lock.hold.quantile(0.5) == 0);
    for (number, (info, lock)) in locks {
        let at = |times: &Times, q| time(times.quantile(q) as f64);
        let of_lock = [
            thousands(lock.threads),
            thousands(lock.acquisitions()),
            at(&lock.gap, 0.5),
            at(&lock.gap, 0.99),
            at(&lock.wait, 0.5),
            at(&lock.wait, 0.99),
            at(&lock.hold, 0.5),
            at(&lock.hold, 0.99),
            time(lock.wait.total() as f64),
        ];
        let number = [number.to_string()];
        let place = [place(info)];
        whole.add_row([&number[..], &place, &of_lock].concat());
        places.add_row([&number[..], &place].concat());
        figures.add_row([&number[..], &of_lock].concat());
    }
    // Names are never broken. If they don't fit, they get a table of their own.
    let mut text = match output::fits(&whole, 1) {
        true => output::plain(&whole),
        false => output::plain(&figures) + "\n" + &output::plain(&places),
    };
    if is_short {
        text += "hold 0 ns: no longer than recording itself takes, which is subtracted\n";
    }
    text
}

/// Everything except the individual steps.
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
            "total_ns": times.total(),
        })
    };
    let place = info.place.as_ref();
    json!({
        "lock": number, "process": info.process, "address": address(info),
        "object": place.map(|place| &place.object), "offset": place.map(|place| place.offset),
        "symbol": place.and_then(|place| place.symbol.as_ref()),
        "threads": lock.threads, "acquisitions": lock.acquisitions(),
        "gap": times(&lock.gap), "wait": times(&lock.wait), "hold": times(&lock.hold),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockwright_observer::traced::NAME;
    use lockwright_stats::trace::{Meta, Place, Step, TraceThread};

    fn reported(infos: Vec<LockInfo>, held_ns: u64) -> String {
        let steps = (0..infos.len() as u32).flat_map(|lock| {
            [Step::Acquire { lock, wait_ns: 0 }, Step::Compute(held_ns), Step::Release(lock)]
        });
        let thread = TraceThread { steps: steps.collect(), ..TraceThread::default() };
        let meta = Meta { processes: vec!["program".into()], ..Meta::default() };
        report(&Trace { meta, locks: infos, threads: vec![thread] })
    }

    #[test]
    fn locks_go_by_their_variables_or_where_they_lie() {
        let of = |symbol: Option<&str>| LockInfo {
            address: 0xabc,
            place: Some(Place {
                object: "/lib/libcache.so.1".into(),
                offset: 0x40,
                symbol: symbol.map(str::to_owned),
            }),
            ..LockInfo::default()
        };
        let long = "a".repeat(NAME + 1);
        let heap = LockInfo { place: None, ..of(None) };
        let text = reported(vec![of(Some("table+0x8")), of(None), heap, of(Some(&long))], 5);
        let (_, places) = text.split_once("lock  where\n").unwrap();
        let names: Vec<_> =
            places.lines().filter_map(|line| line.split_whitespace().nth(1)).collect();
        let cut = format!("{}...", &long[..NAME]);
        assert_eq!(names, ["table+0x8", "libcache.so.1+0x40", "0xabc", cut.as_str()], "{text}");
    }

    #[test]
    fn every_figure_has_its_name_above_it() {
        let text = reported(vec![LockInfo::default()], 5);
        for name in ["gap", "wait", "hold"] {
            for share in ["P50", "P99"] {
                assert!(text.contains(&format!("{name} {share}")), "{text}");
            }
        }
        assert!(text.lines().all(|line| line.chars().count() <= output::WIDTH), "{text}");
    }

    #[test]
    fn a_hold_of_no_time_is_explained() {
        let note = "hold 0 ns: no longer than";
        assert!(reported(vec![LockInfo::default()], 0).contains(note));
        assert!(!reported(vec![LockInfo::default()], 1).contains(note));
    }
}
