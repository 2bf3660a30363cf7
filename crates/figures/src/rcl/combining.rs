//! The combining locks and MCS-TP in RCL's microbenchmark, with their variants that yield: over the delay, and over the clients.

use super::sweep::{MACHINES, Sweep, load};
use crate::measured::across;
use crate::plot::{Axis, Kind, Plot, Series};
use crate::{Context, Error, Key, Measured, Plan, Results, chosen, median, ratio};

/// The other locks of the paper's that are not in `rcl-micro`'s rows.
const OTHERS: [&str; 4] = ["flat-combining", "cc-synch", "dsm-synch", "mcs-tp"];
/// These and RCL, each followed by its variant that yields; and POSIX, whose share of time in sections is the paper's axis.
const LOCKS: [&str; 11] = [
    "flat-combining",
    "flat-combining-yield",
    "cc-synch",
    "cc-synch-yield",
    "dsm-synch",
    "dsm-synch-yield",
    "mcs-tp",
    "mcs-tp-yield",
    "rcl",
    "rcl-yield",
    "glibc",
];
/// Threads that ask; a server comes on top of them.
const CLIENTS: [u32; 7] = [1, 2, 4, 8, 16, 32, 47];

/// All locks on one machine, from few clients to many.
struct Crowds(Vec<Vec<Key>>);

impl Crowds {
    fn plan(plan: &mut Plan, machine: Option<&str>, lines: f64, delay: f64) -> Self {
        let mut all = |lock: &str| {
            let server = u32::from(lock.starts_with("rcl"));
            let load = load(lock, machine, lines, delay);
            CLIENTS.map(|clients| plan.add(load.clone().threads(clients + server))).to_vec()
        };
        Self(LOCKS.map(&mut all).to_vec())
    }

    fn throughput(&self, results: &Results, lock: &str) -> Vec<Vec<f64>> {
        let at = LOCKS.iter().position(|one| *one == lock).expect("one of the locks that ran");
        self.0[at].iter().map(|&key| results.throughput(key)).collect()
    }

    /// Throughput with all clients.
    fn all(&self, results: &Results, lock: &str) -> Vec<f64> {
        self.throughput(results, lock).pop().unwrap_or_default()
    }

    /// Throughput with all clients to that with the best number of clients.
    fn kept(&self, results: &Results, lock: &str) -> Vec<f64> {
        let throughput = self.throughput(results, lock);
        ratio(&self.all(results, lock), &across(&throughput, f64::max))
    }

    fn plot(&self, results: &Results, name: &str) -> Plot {
        let series = LOCKS.iter().zip(&self.0).map(|(lock, keys)| {
            let point = |(&clients, &key): (&u32, &Key)| {
                Some((f64::from(clients), median(&results.throughput(key))? / 1e6))
            };
            let points = CLIENTS.iter().zip(keys).filter_map(point).collect();
            Series::new(*lock, Kind::Line, points)
        });
        Plot {
            name: name.to_owned(),
            title: format!("{name}: from few clients to many"),
            x: Axis::log("clients"),
            left: Axis::linear("million sections a second"),
            right: None,
            series: series.collect(),
        }
    }
}

pub(super) fn measure(context: &Context<'_>) -> Result<Measured, Error> {
    let lines = chosen("rcl-combining", "lines")?;
    let delay = chosen("rcl-combining", "delay")?;
    let mut plan = Plan::new();
    let planned = MACHINES.map(|(machine, threads, prefix)| {
        let sweep = Sweep::plan(&mut plan, &LOCKS, machine, threads, lines);
        (prefix, sweep, Crowds::plan(&mut plan, machine, lines, delay))
    });
    let results = plan.run(context)?;
    let mut measured = Measured::new();
    for (prefix, sweep, crowds) in &planned {
        let rcl = crowds.kept(&results, "rcl");
        measured.also(format!("{prefix}kept, rcl"), rcl.clone());
        for other in OTHERS {
            let kept = crowds.kept(&results, other);
            measured
                .row(format!("{prefix}rcl overtakes {other}"), sweep.overtakes(&results, other));
            measured.row(format!("{prefix}kept rcl/{other}"), ratio(&rcl, &kept));
            measured.also(format!("{prefix}kept, {other}"), kept);
        }
        for lock in LOCKS.iter().filter(|lock| LOCKS.contains(&&*format!("{lock}-yield"))) {
            let yielding = crowds.all(&results, &format!("{lock}-yield"));
            let spinning = crowds.all(&results, lock);
            measured.also(format!("{prefix}{lock}-yield/{lock}-47"), ratio(&yielding, &spinning));
        }
        let name = format!("rcl-combining-{}", if prefix.is_empty() { "48" } else { "128" });
        measured.plots.push(sweep.plot(&results, &name, lines));
        measured.plots.push(crowds.plot(&results, &format!("{name}-clients")));
    }
    Ok(measured)
}
