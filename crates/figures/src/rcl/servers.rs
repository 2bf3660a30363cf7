//! Several who run sections: a combiner for each cluster of cores, two servers for two locks, and a server whose sections block.

use super::sweep::load;
use crate::measured::across;
use crate::plot::{Axis, Kind, Plot, Series};
use crate::{Context, Error, Key, Measured, Plan, chosen, median, ratio};

/// Those of the catalogue that do best here without delegation.
const WITHOUT: [&str; 5] = ["mcs", "auto", "cna", "c-tkt-tkt", "cptltkt"];
const WITH: [&str; 3] = ["combiner-numa", "combiner", "rcl"];
const LINES: [u32; 3] = [1, 5, 10];
/// Mean delay between two critical sections, cycles.
const DELAYS: [f64; 5] = [300.0, 1_000.0, 3_000.0, 10_000.0, 30_000.0];
/// If there are two locks, half of them use either.
const THREADS: u32 = 48;
/// A thread that stands by looks 64 times, 1 ms apart, before a lock moves: simulated time before anything counts, and that counts, ms.
const MOVED_MS: (f64, f64) = (150.0, 10.0);
/// For blocking sections, likewise.
const BLOCKED_MS: (f64, f64) = (2.0, 10.0);

/// One lock, with one or more lines a section.
struct Curve {
    lock: &'static str,
    lines: u32,
    /// Over the delay.
    keys: [Key; DELAYS.len()],
}

pub(super) fn measure(context: &Context<'_>) -> Result<Measured, Error> {
    let (delay, block_ns) = (chosen("rcl-servers", "delay")?, chosen("rcl-servers", "block")?);
    let at = DELAYS.iter().position(|one| *one == delay).expect("one of the plot's delays");
    let mut plan = Plan::new();
    let mut curves = Vec::new();
    for lines in LINES {
        for lock in WITHOUT.iter().chain(&WITH) {
            let load = |delay| load(lock, None, lines.into(), delay).threads(THREADS);
            curves.push(Curve { lock, lines, keys: DELAYS.map(|delay| plan.add(load(delay))) });
        }
    }
    let two = |lock: &str| load(lock, None, 1.0, delay).threads(THREADS).with("locks", 2.0);
    // Only a server with a second thread looks whether it has too much to do.
    let servers = [("rcl", 1.0), ("rcl-pool", 2.0)].map(|(lock, servers)| {
        let load = two(lock).with("servers", servers);
        plan.add(load.lasting(MOVED_MS.0, MOVED_MS.1))
    });
    let mut blocking = |lock: &str| {
        [0.0, block_ns].map(|block| {
            plan.add(two(lock).with("block", block).lasting(BLOCKED_MS.0, BLOCKED_MS.1))
        })
    };
    let blocking = [("rcl", blocking("rcl")), ("mcs", blocking("mcs"))];
    let results = plan.run(context)?;
    let mut measured = Measured::new();
    for lines in LINES {
        let of = |lock: &str| {
            let is_it = |curve: &&Curve| curve.lock == lock && curve.lines == lines;
            let key = curves.iter().find(is_it).expect("it was planned").keys[at];
            results.throughput(key)
        };
        let best = across(&WITHOUT.map(of), f64::max);
        let numa = of("combiner-numa");
        measured.row(format!("combiner-numa/best, lines {lines}"), ratio(&numa, &best));
        measured
            .row(format!("combiner-numa/combiner, lines {lines}"), ratio(&numa, &of("combiner")));
        for lock in ["combiner", "rcl", "cptltkt", "mcs"] {
            measured.also(format!("{lock}/best, lines {lines}"), ratio(&of(lock), &best));
        }
    }
    let of = |key| results.throughput(key);
    measured.row("rcl-pool, two servers/rcl, one", ratio(&of(servers[1]), &of(servers[0])));
    for (lock, [free, blocked]) in blocking {
        let kept = ratio(&of(blocked), &of(free));
        match lock {
            "rcl" => measured.row("rcl, one lock blocks/none", kept),
            _ => measured.also(format!("{lock}, one lock blocks/none"), kept),
        }
    }
    measured.plots = LINES
        .map(|lines| {
            let of_lines = curves.iter().filter(|curve| curve.lines == lines);
            let series = of_lines.map(|curve| {
                let point = |(&delay, &key): (&f64, &Key)| Some((delay, median(&of(key))? / 1e6));
                let points = DELAYS.iter().zip(&curve.keys).filter_map(point).collect();
                Series::new(curve.lock, Kind::Line, points).of_operations()
            });
            Plot {
                name: format!("rcl-servers-{lines}"),
                title: format!("rcl-servers: 48 cores, lines a section: {lines}"),
                x: Axis::log("mean delay between two critical sections, cycles"),
                left: Axis::linear("million sections a second"),
                right: None,
                series: series.collect(),
            }
        })
        .into();
    Ok(measured)
}
