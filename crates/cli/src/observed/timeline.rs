//! Contention over time, drawn: as text, and for Perfetto.

use lockwright_observer::counts::observation::Observed;
use serde_json::{Value, json};

/// Draws the slices in at most this many columns. Also returns the highest value: the average number of waiting
/// threads.
pub(crate) fn signs(course: &[u64], slice_ns: u64, columns: usize) -> (String, f64) {
    const SIGNS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let width = course.len().div_ceil(columns.max(1)).max(1);
    let waiting = |slices: &[u64]| {
        slices.iter().sum::<u64>() as f64 / (slices.len() as u64 * slice_ns.max(1)) as f64
    };
    let all: Vec<f64> = course.chunks(width).map(waiting).collect();
    let most = all.iter().copied().fold(0.0, f64::max);
    let sign = |value: &f64| SIGNS[((value / most.max(1e-9) * 7.0).round() as usize).min(7)];
    (all.iter().map(sign).collect(), most)
}

/// The slices as counters in Chrome's trace format, which Perfetto shows (ui.perfetto.dev).
pub(crate) fn timeline(outcomes: &[Observed]) -> Value {
    let mut events = Vec::new();
    for outcome in outcomes {
        events.push(json!({
            "name": "process_name", "ph": "M", "pid": outcome.pid,
            "args": { "name": outcome.command },
        }));
        for lock in outcome.locks.iter().filter(|lock| lock.course.iter().any(|&ns| ns > 0)) {
            for (at, ns) in lock.course.iter().enumerate() {
                events.push(json!({
                    "name": lock.name, "ph": "C", "pid": outcome.pid,
                    "ts": (at as u64 * outcome.slice_ns) as f64 / 1000.0,
                    "args": { "threads waiting": *ns as f64 / outcome.slice_ns.max(1) as f64 },
                }));
            }
        }
    }
    json!({ "traceEvents": events, "displayTimeUnit": "ms" })
}

#[cfg(test)]
mod tests {
    use super::super::advice::tests::lock;
    use super::*;

    #[test]
    fn a_course_is_drawn_in_few_columns() {
        assert_eq!(signs(&[0, 50, 100, 100], 100, 10), ("▁▅██".to_owned(), 1.0));
        assert_eq!(signs(&[0, 0, 300, 100, 200], 100, 3), ("▁██".to_owned(), 2.0));
        assert_eq!(signs(&[], 100, 3).0, "");
    }

    #[test]
    fn a_timeline_has_a_counter_for_each_lock() {
        let mut waited = lock(10, (1, 1, 1));
        waited.course = vec![0, 50_000_000];
        let outcome = Observed {
            pid: 7,
            slice_ns: 100_000_000,
            locks: vec![waited, lock(10, (1, 1, 1))],
            ..Observed::default()
        };
        let timeline = timeline(&[outcome]);
        let events = timeline["traceEvents"].as_array().unwrap();
        assert_eq!(events.len(), 3, "{timeline:#}");
        assert_eq!((&events[2]["name"], &events[2]["ph"]), (&json!("lock"), &json!("C")));
        assert_eq!(events[2]["ts"], json!(100_000.0));
        assert_eq!(events[2]["args"]["threads waiting"], json!(0.5));
    }
}
