//! Figure 8c: Bench-3, short and long epochs under one SLO.

use super::common::{ASL, LITTLE, OURS, dot};
use crate::plot::{Axis, Kind, Plot, Series};
use crate::{Context, Error, Key, Load, Measured, Plan, Results, chosen, ratio};

/// Shares of long epochs, %.
const SHARES: [u32; 7] = [0, 20, 40, 50, 60, 80, 100];
/// The share at which we look for the best fixed windows, %.
const COMPARED: u32 = 50;
/// Fixed windows to try for short and for long epochs, us.
const SHORT: [u32; 5] = [8, 12, 16, 20, 24];
const LONG: [u32; 5] = [0, 3, 6, 10, 15];
/// How far above the SLO the tail of the best windows may be: as far as LibASL's own.
const TOLERANCE: f64 = 1.02;

/// Throughput relative to MCS, by the share of long epochs.
pub(super) fn figure_8c(context: &Context<'_>) -> Result<Measured, Error> {
    let slo_us = chosen("libasl-8c", "slo_us")?;
    let (lines, nops, gap) =
        (chosen("libasl-8c", "lines")?, chosen("libasl-8c", "nops")?, chosen("libasl-8c", "gap")?);
    let load = |lock: &str, share: u32| {
        let load =
            Load::new("bench3", lock).with("lines", lines).with("nops", nops).with("gap", gap);
        // If all epochs are short, there are many of them.
        let duration = if share == 0 { 20.0 } else { 100.0 };
        let load = load.with("long", f64::from(share) / 100.0).with("slo_us", slo_us);
        let load = load.lasting(duration, duration);
        if share == COMPARED { load.often() } else { load }
    };
    let mut plan = Plan::new();
    let asl = SHARES.map(|share| plan.add(load(ASL, share)));
    let mcs = SHARES.map(|share| plan.add(load("mcs", share)));
    let ours = SHARES.map(|share| plan.add(load(OURS, share)));
    let mut fixed = Vec::new();
    for short in SHORT {
        for long in LONG {
            let load = load(ASL, COMPARED).with("window_us", f64::from(short));
            fixed.push(plan.add(load.with("window_long_us", f64::from(long))));
        }
    }
    let results = plan.run(context)?;
    let place = |share| SHARES.iter().position(|&known| known == share).expect("it is one of them");
    let (half, all) = (place(COMPARED), place(100));
    let speedup =
        |key: Key, share: usize| ratio(&results.throughput(key), &results.throughput(mcs[share]));
    let to_slo = |tail: Vec<f64>| tail.iter().map(|tail| tail / slo_us).collect();
    let mut measured = Measured::new();
    let optimal = best(&results, &fixed, slo_us);
    measured.row("asl/asl-opt at 50%", ratio(&results.throughput(asl[half]), &optimal));
    measured.row("asl/mcs at 50%", speedup(asl[half], half));
    for (share, &key) in SHARES.iter().zip(&asl).filter(|(share, _)| **share < 100) {
        measured.row(format!("p99 little/slo at {share}%"), to_slo(results.p99_of(key, LITTLE)));
    }
    measured.row("p99 mcs/slo at 100%", to_slo(results.p99(mcs[all])));
    measured.row("asl/mcs at 100%", speedup(asl[all], all));
    measured.also("our asl/mcs at 50%", speedup(ours[half], half));

    let curve = |keys: &[Key]| {
        let points = keys.iter().enumerate();
        let point =
            |(place, &key): (usize, &Key)| dot(f64::from(SHARES[place]), &speedup(key, place));
        points.filter_map(point).collect()
    };
    let best_at_half = ratio(&optimal, &results.throughput(mcs[half]));
    measured.plots.push(Plot {
        name: "libasl-8c".to_owned(),
        title: "libasl-8c: Bench-3, SLO of 100 µs".to_owned(),
        x: Axis::linear("long epochs, %"),
        left: Axis::linear("throughput to that of MCS"),
        right: None,
        series: vec![
            Series::new("asl", Kind::Line, curve(&asl)),
            Series::new(
                "asl-opt",
                Kind::Marks,
                dot(f64::from(COMPARED), &best_at_half).into_iter().collect(),
            ),
            Series::new("our asl", Kind::Line, curve(&ours)),
            Series::new("mcs", Kind::Guide, vec![(0.0, 1.0), (100.0, 1.0)]),
        ],
    });
    Ok(measured)
}

/// Seed by seed, the largest throughput among the windows whose little cores keep the SLO; not a
/// number if none do.
fn best(results: &Results, keys: &[Key], slo_us: f64) -> Vec<f64> {
    let all: Vec<(Vec<f64>, Vec<f64>)> =
        keys.iter().map(|&key| (results.throughput(key), results.p99_of(key, LITTLE))).collect();
    let seeds = all.first().map_or(0, |(throughput, _)| throughput.len());
    let of = |seed: usize| {
        let keeps = all.iter().filter(|(_, tail)| tail[seed] <= slo_us * TOLERANCE);
        keeps.map(|(throughput, _)| throughput[seed]).fold(f64::NAN, f64::max)
    };
    (0..seeds).map(of).collect()
}
