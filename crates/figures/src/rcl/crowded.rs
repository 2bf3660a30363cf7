//! RCL's microbenchmark with two threads a core.

use super::sweep::load;
use crate::plot::{Axis, Kind, Plot, Series};
use crate::{Context, Error, Key, Measured, Plan, Results, chosen, median, ratio};

const LOCKS: [&str; 9] = [
    "rcl",
    "rcl-yield",
    "glibc",
    "mcs",
    "mcs-tp",
    "mcs-tp-yield",
    "cc-synch",
    "cc-synch-yield",
    "combiner",
];
/// RCL is compared with these; all others are shown beside.
const RIVALS: [&str; 4] = ["glibc", "mcs", "mcs-tp", "cc-synch-yield"];
/// Mean delay between two critical sections, cycles.
const DELAYS: [u32; 3] = [1_000, 10_000, 100_000];
/// One thread a core, and two. RCL's server is one of the threads.
const THREADS: [u32; 2] = [48, 96];
/// Simulated time before anything counts, and that counts, ms: a thread that waits in vain keeps its core for a slice of 3 ms.
const TIMES_MS: (f64, f64) = (3.0, 12.0);

/// One lock at one delay.
struct Crowd {
    lock: &'static str,
    delay: u32,
    keys: [Key; 2],
}

impl Crowd {
    fn crowded(&self, results: &Results) -> Vec<f64> {
        results.throughput(self.keys[1])
    }

    /// Throughput with two threads a core to that with one.
    fn kept(&self, results: &Results) -> Vec<f64> {
        ratio(&self.crowded(results), &results.throughput(self.keys[0]))
    }
}

pub(super) fn measure(context: &Context<'_>) -> Result<Measured, Error> {
    let lines = chosen("rcl-crowded", "lines")?;
    let mut plan = Plan::new();
    let mut points = Vec::new();
    for delay in DELAYS {
        for lock in LOCKS {
            let load = load(lock, None, lines, delay.into()).lasting(TIMES_MS.0, TIMES_MS.1);
            let keys = THREADS.map(|threads| plan.add(load.clone().threads(threads)));
            points.push(Crowd { lock, delay, keys });
        }
    }
    let results = plan.run(context)?;
    let mut measured = Measured::new();
    for delay in DELAYS {
        let of = |lock: &str| {
            let is_it = |point: &&Crowd| point.lock == lock && point.delay == delay;
            points.iter().find(is_it).expect("it was planned")
        };
        let rcl = of("rcl");
        measured.row(format!("rcl 96/48, delay {delay}"), rcl.kept(&results));
        for lock in RIVALS {
            let rival = of(lock).crowded(&results);
            measured.row(
                format!("rcl-96/{lock}-96, delay {delay}"),
                ratio(&rcl.crowded(&results), &rival),
            );
        }
        for lock in &LOCKS[1..] {
            measured.also(format!("{lock} 96/48, delay {delay}"), of(lock).kept(&results));
        }
    }
    let series = LOCKS.iter().map(|lock| {
        let point = |point: &Crowd| Some((point.delay.into(), median(&point.kept(&results))?));
        let of = points.iter().filter(|point| point.lock == *lock);
        Series::new(*lock, Kind::Line, of.filter_map(point).collect())
    });
    measured.plots = vec![Plot {
        name: "rcl-crowded".to_owned(),
        title: "rcl-crowded: two threads a core to one".to_owned(),
        x: Axis::log("mean delay between two critical sections, cycles"),
        left: Axis::linear("throughput, to that of one thread a core"),
        right: None,
        series: series.collect(),
    }];
    Ok(measured)
}
