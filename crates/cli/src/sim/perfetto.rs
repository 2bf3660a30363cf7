//! A run's timeline as trace events for ui.perfetto.dev and chrome://tracing: one track per CPU and one per lock.

use lockwright_sim::Run;
use lockwright_sim::profile::Profile;
use lockwright_sim::timeline::{Activity, Timeline};
use serde_json::{Value, json};

/// In this format, tracks of one kind form a "process".
const CPUS: u32 = 1;
const LOCKS: u32 = 2;

/// The name of a core's activity.
fn word(activity: Activity) -> &'static str {
    match activity {
        Activity::Work => "works",
        Activity::Kernel => "kernel",
        Activity::SpinLocal => "spins",
        Activity::SpinGlobal => "contends",
        Activity::Idle => "idle",
    }
}

/// The format's unit is microseconds; we keep picoseconds.
fn us(ps: u64) -> f64 {
    ps as f64 / 1e6
}

fn metadata(kind: &str, (process, track): (u32, u32), value: Value) -> Value {
    let key = if kind.ends_with("sort_index") { "sort_index" } else { "name" };
    json!({"ph": "M", "name": kind, "pid": process, "tid": track, "args": {key: value}})
}

/// The class names of all CPUs, in order.
pub(crate) fn classes(profile: &Profile) -> Vec<&str> {
    let of = |cluster: &lockwright_sim::profile::Cluster| {
        let class = profile.class.iter().find(|class| class.name == cluster.class);
        class.map_or((0, ""), |class| ((cluster.cores * class.smt) as usize, class.name.as_str()))
    };
    profile.cluster.iter().map(of).flat_map(|(cpus, name)| vec![name; cpus]).collect()
}

/// The trace of this run.
pub(crate) fn trace(run: &Run, source: &str, timeline: &Timeline) -> Value {
    let mut events = vec![
        metadata(
            "process_name",
            (CPUS, 0),
            format!("CPUs ({}, simulated)", run.profile.name).into(),
        ),
        metadata(
            "process_name",
            (LOCKS, 0),
            format!("locks ({}, simulated)", run.lock.name()).into(),
        ),
        metadata("process_sort_index", (CPUS, 0), 0.into()),
        metadata("process_sort_index", (LOCKS, 0), 1.into()),
    ];
    for (cpu, class) in (0..).zip(classes(&run.profile)) {
        events.push(metadata("thread_name", (CPUS, cpu), format!("CPU {cpu} ({class})").into()));
        events.push(metadata("thread_sort_index", (CPUS, cpu), cpu.into()));
    }
    let last = timeline.holds.iter().map(|hold| hold.lock).max();
    for lock in 0..last.map_or(0, |last| last + 1) {
        events.push(metadata("thread_name", (LOCKS, lock), format!("lock {lock}").into()));
    }
    for span in &timeline.spans {
        let activity = word(span.activity);
        let name = match span.thread {
            Some(thread) => format!("thread {thread} {activity}"),
            None => activity.to_owned(),
        };
        events.push(json!({
            "ph": "X", "name": name, "cat": activity, "pid": CPUS, "tid": span.cpu,
            "ts": us(span.start_ps), "dur": us(span.end_ps - span.start_ps),
        }));
    }
    for hold in &timeline.holds {
        events.push(json!({
            "ph": "X", "name": format!("thread {}", hold.thread), "cat": "holds",
            "pid": LOCKS, "tid": hold.lock,
            "ts": us(hold.start_ps), "dur": us(hold.end_ps - hold.start_ps),
            "args": {"waited_us": us(hold.start_ps - hold.asked_ps)},
        }));
    }
    json!({
        "displayTimeUnit": "ns",
        "otherData": {"origin": "simulated", "source": source, "seed": run.seed, "left_out": timeline.dropped},
        "traceEvents": events,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockwright_sim::{LockSpec, Placement, profile, workload};
    use std::collections::BTreeMap;
    use std::sync::Arc;

    #[test]
    fn tracks_have_names_and_what_is_on_one_does_not_overlap() {
        // More threads than CPUs, sleeping and spinning: this covers every activity.
        for (lock, threads) in [("glibc", 12), ("mcs-stp", 12), ("tas", 8), ("mcs", 8)] {
            let run = Run {
                profile: Arc::new(profile::builtin("m1").unwrap()),
                lock: LockSpec::parse(lock).unwrap(),
                workload: workload::find("sections").unwrap(),
                params: BTreeMap::from([("gap".into(), 500.0)]),
                threads,
                placement: Placement::Pinned,
                seed: 1,
                warmup_ns: 50_000,
                duration_ns: 100_000,
                samples: false,
                timeline: Some(100_000),
                transfers: false,
            };
            let timeline = run.outcome().timeline.unwrap();
            let trace = trace(&run, "simulated: a test", &timeline);
            // Convert to text and back, to see what a reader gets.
            let trace: Value = serde_json::from_str(&trace.to_string()).unwrap();
            assert_eq!(trace["otherData"]["origin"], "simulated");
            let events = trace["traceEvents"].as_array().unwrap();
            let track =
                |event: &Value| (event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap());
            let mut named = Vec::new();
            let mut tracks: BTreeMap<(u64, u64), Vec<(f64, f64)>> = BTreeMap::new();
            for event in events {
                match event["ph"].as_str().unwrap() {
                    "M" if event["name"] == "thread_name" => named.push(track(event)),
                    "M" => {}
                    "X" => {
                        let (start, length) =
                            (event["ts"].as_f64().unwrap(), event["dur"].as_f64().unwrap());
                        assert!(start >= 50.0, "{lock}: before the measurement: {event}");
                        tracks.entry(track(event)).or_default().push((start, start + length));
                    }
                    other => panic!("no such phase: {other}"),
                }
            }
            assert_eq!(tracks.keys().filter(|(process, _)| *process == 1).count(), 8, "{lock}");
            assert!(tracks.contains_key(&(2, 0)), "{lock}");
            for (track, mut spans) in tracks {
                assert!(named.contains(&track), "{lock}: {track:?} has no name");
                spans.sort_by(|a, b| a.0.total_cmp(&b.0));
                for pair in spans.windows(2) {
                    // Differences below a picosecond are rounding errors.
                    assert!(pair[0].1 <= pair[1].0 + 1e-6, "{lock}: {track:?}: {pair:?}");
                }
            }
        }
    }
}
