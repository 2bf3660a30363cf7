//! Databases: operations that were recorded on a real machine, drawn at random, each an epoch.
//!
//! `cargo xtask eval traces` records a database's driver with one thread, so that nobody waits, and keeps 600 operations in a row
//! (`traces/NAME.txt`). A line is an operation: numbers are ns of computing, `+N` takes lock N, and `-N` releases it. What a recording of locks can't
//! say is how many cache lines a section modifies that other threads' sections modify, too. The file's first line has
//! them for each lock; its second line says how they are known.

use super::epochs::{Epochs, SLO, WINDOW};
use crate::load::{DataId, LockId, Me, ParamSpec, Setup, Workload};
use std::rc::Rc;

const SCALE: ParamSpec = ParamSpec {
    key: "scale",
    meaning: "a factor: how many times as long computing takes as recorded, on cores of the fastest class",
    default: 1.0,
    min: 0.01,
    max: 100.0,
};

const LINES: ParamSpec = ParamSpec {
    key: "lines",
    meaning: "a factor: how many times as many shared lines sections modify as the database's do",
    default: 1.0,
    min: 0.0,
    max: 100.0,
};

macro_rules! databases {
    ($($name:ident: $id:literal, $idea:literal;)*) => {
        $(/// What the list says.
        pub(super) static $name: Workload = Workload {
            id: $id,
            idea: $idea,
            source: "recorded (docs/record.md); LibASL, PPoPP 2022, section 4.2; CAL, Applied Sciences 2024, section 4.3",
            params: &[SLO, WINDOW, SCALE, LINES],
            holds: true,
            setup: &|setup| self::setup(setup, include_str!(concat!("../../traces/", $id, ".txt"))),
        };)*
        /// The text of each one's trace.
        #[cfg(test)]
        const TRACES: &[(&str, &str)] =
            &[$(($id, include_str!(concat!("../../traces/", $id, ".txt")))),*];
    };
}

databases! {
    KYOTO: "kyoto", "Kyoto Cabinet's CacheDB in memory: half puts, half gets, all keys in one of its slots";
    LMDB: "lmdb", "LMDB: half puts, half gets, each a transaction";
    LEVELDB: "leveldb", "LevelDB's readrandom: gets of keys that are in its cache";
    SQLITE: "sqlite", "SQLite: a third each inserts, point queries and range queries over one connection";
}

/// A part of an operation.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Part {
    Compute(f64),
    Acquire(usize),
    Release(usize),
}

/// What was recorded.
struct Trace {
    operations: Vec<Vec<Part>>,
    /// For each lock.
    lines: Vec<f64>,
}

impl Trace {
    fn parse(text: &str) -> Self {
        let mut rows = text.lines();
        let mut lines: Vec<f64> = rows
            .next()
            .and_then(|first| first.strip_prefix("# lines"))
            .expect("the first line has the lines")
            .split_whitespace()
            .map(|word| word.parse().expect("a number"))
            .collect();
        let lock = |word: &str| word.parse().expect("a lock's number");
        let step = |word: &str| match word.as_bytes()[0] {
            b'+' => Part::Acquire(lock(&word[1..])),
            b'-' => Part::Release(lock(&word[1..])),
            _ => Part::Compute(word.parse().expect("ns")),
        };
        let is_operation = |row: &&str| !row.starts_with('#');
        let operation = |row: &str| row.split_whitespace().map(step).collect();
        let operations: Vec<Vec<Part>> = rows.filter(is_operation).map(operation).collect();
        let locks = operations.iter().flatten().map(|step| match step {
            Part::Acquire(lock) => lock + 1,
            _ => 0,
        });
        let last = *lines.last().expect("one lock at least");
        lines.resize(locks.max().unwrap_or(0), last);
        Self { operations, lines }
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "few lines")]
fn setup(setup: &mut Setup<'_>, text: &'static str) {
    let trace = Rc::new(Trace::parse(text));
    let (scale, factor) = (setup.param(SCALE.key), setup.param(LINES.key));
    let epochs = Epochs::of(setup);
    let locks: Rc<Vec<(LockId, DataId, u32)>> = Rc::new(
        trace
            .lines
            .iter()
            .map(|lines| {
                let lines = (lines * factor).round() as u32;
                (setup.lock(), setup.data(lines), lines)
            })
            .collect(),
    );
    setup.threads(move |me| {
        let count = u32::try_from(trace.operations.len()).expect("few");
        while me.goes_on() {
            let operation = &trace.operations[me.draw(0..count) as usize];
            epochs.run(me, || run(me, operation, &locks, scale));
        }
    });
}

fn run(me: &Me, operation: &[Part], locks: &[(LockId, DataId, u32)], scale: f64) {
    for step in operation {
        match *step {
            Part::Compute(ns) => me.compute(ns * scale),
            Part::Acquire(lock) => {
                let (lock, data, lines) = locks[lock];
                me.acquire(lock);
                me.touch(data, 0..lines);
            }
            Part::Release(lock) => me.release(locks[lock].0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LockSpec, Placement, Run, profile};
    use std::collections::BTreeMap;
    use std::sync::Arc;

    #[test]
    fn each_operation_releases_what_it_takes_and_no_two_take_locks_in_opposite_orders() {
        for (id, text) in TRACES {
            let trace = Trace::parse(text);
            assert_eq!(trace.operations.len(), 600, "{id}");
            let mut nested = std::collections::BTreeSet::new();
            for operation in &trace.operations {
                let mut held = Vec::new();
                for step in operation {
                    match *step {
                        Part::Acquire(lock) => {
                            assert!(!held.contains(&lock), "{id}: {operation:?}");
                            nested.extend(held.iter().map(|outer| (*outer, lock)));
                            held.push(lock);
                        }
                        Part::Release(lock) => held.retain(|one| *one != lock),
                        Part::Compute(ns) => assert!(ns >= 0.0),
                    }
                }
                assert!(held.is_empty(), "{id}: {operation:?}");
            }
            assert!(!nested.iter().any(|&(a, b)| nested.contains(&(b, a))), "{id}: {nested:?}");
        }
    }

    #[test]
    fn one_thread_takes_as_long_as_recorded() {
        for (id, text) in TRACES {
            let run = Run {
                profile: Arc::new(profile::builtin("m1").unwrap()),
                lock: LockSpec::parse("mcs").unwrap(),
                workload: super::super::find(id).unwrap(),
                params: BTreeMap::from([("lines".to_owned(), 0.0)]),
                threads: 1,
                placement: Placement::Pinned,
                seed: 1,
                warmup_ns: 0,
                duration_ns: 20_000_000,
                samples: false,
                timeline: None,
                transfers: false,
            };
            let steps = || Trace::parse(text).operations.into_iter().flatten().collect::<Vec<_>>();
            let of = |step: &Part| match step {
                Part::Compute(ns) => *ns,
                Part::Acquire(_) | Part::Release(_) => 10.0, // a free lock
            };
            let mean = steps().iter().map(of).sum::<f64>() / 600.0;
            let outcome = run.outcome();
            assert_eq!(outcome.violation, None, "{id}");
            let took = 1e9 / outcome.throughput;
            assert!((took / mean - 1.0).abs() < 0.2, "{id}: {took} ns, recorded {mean}");
        }
    }
}
