//! Figures 8h and 8i: Bench-6, two threads per core; the workload is Bench-1.

use super::common::{LITTLE, OURS, bench1, throughput_and_tails};
use crate::measured::across;
use crate::plot::{Axis, Kind, Series};
use crate::{Context, Error, Key, Load, Measured, Plan, median, ratio};

/// LibASL's blocking version, as published: it sleeps while it stands by, on top of
/// pthread_mutex_lock.
const BLOCKING: &str = "asl-pthread";

/// SLOs, ms.
const SLOS: [u32; 4] = [2, 5, 10, 20];

fn crowded(context: &Context<'_>, lock: &str) -> Result<Load, Error> {
    Ok(bench1(lock)?.threads(2 * context.profile.cpus()).lasting(100.0, 200.0))
}

/// Only one row of Figure 8h.
pub(super) fn row_of_8h(context: &Context<'_>) -> Result<Measured, Error> {
    let mut plan = Plan::new();
    let [stp, glibc] = [crowded(context, "mcs-stp")?, crowded(context, "glibc")?];
    let (stp, glibc) = (plan.add(stp), plan.add(glibc));
    let results = plan.run(context)?;
    let mut measured = Measured::new();
    measured.row("mcs-stp/glibc", ratio(&results.throughput(stp), &results.throughput(glibc)));
    Ok(measured)
}

/// Blocking locks without an SLO.
pub(super) fn figure_8h(context: &Context<'_>) -> Result<Measured, Error> {
    let names = ["glibc", "mcs-stp", BLOCKING, OURS];
    let mut plan = Plan::new();
    let mut keys = Vec::new();
    for name in names {
        keys.push(plan.add(crowded(context, name)?));
    }
    let results = plan.run(context)?;
    let to_glibc = |n: usize| ratio(&results.throughput(keys[n]), &results.throughput(keys[0]));
    let mut measured = Measured::new();
    measured.row("mcs-stp/glibc", to_glibc(1));
    measured.row("asl-pthread/glibc", to_glibc(2));
    measured.also("our asl/glibc", to_glibc(3));
    let places: Vec<(f64, Key)> = (0_u32..).map(f64::from).zip(keys).collect();
    measured.plots.push(throughput_and_tails(
        "libasl-8h",
        "libasl-8h: Bench-6, two threads a core, without an SLO",
        Axis::names("", names.map(str::to_owned)),
        (Kind::Bars, Kind::Marks),
        &results,
        &places,
    ));
    Ok(measured)
}

/// The blocking version, by SLO.
pub(super) fn figure_8i(context: &Context<'_>) -> Result<Measured, Error> {
    let mut plan = Plan::new();
    let glibc = plan.add(crowded(context, "glibc")?);
    let mut by_slo = |lock: &str| -> Result<Vec<(u32, Key)>, Error> {
        let mut keys = Vec::new();
        for slo in SLOS {
            let load = crowded(context, lock)?.with("slo_us", f64::from(slo) * 1000.0);
            keys.push((slo, plan.add(load.lasting(150.0, 200.0))));
        }
        Ok(keys)
    };
    let (keys, ours) = (by_slo(BLOCKING)?, by_slo(OURS)?);
    let results = plan.run(context)?;
    let to_slo = |slo, key| -> Vec<f64> {
        let tail = results.p99_of(key, LITTLE);
        tail.iter().map(|tail| tail / f64::from(slo) / 1000.0).collect()
    };
    let best = |keys: &[(u32, Key)]| {
        let to_glibc = |key| ratio(&results.throughput(key), &results.throughput(glibc));
        across(&keys.iter().map(|&(_, key)| to_glibc(key)).collect::<Vec<_>>(), f64::max)
    };
    let mut measured = Measured::new();
    for &(slo, key) in &keys {
        measured.row(format!("p99 little/slo {slo}ms"), to_slo(slo, key));
    }
    measured.row("best asl-pthread/glibc", best(&keys));
    for &(slo, key) in &ours {
        measured.also(format!("our asl, p99 little/slo {slo}ms"), to_slo(slo, key));
    }
    measured.also("our best asl/glibc", best(&ours));

    let us = |slo| f64::from(slo) * 1000.0;
    let points: Vec<(f64, Key)> = keys.iter().map(|&(slo, key)| (us(slo), key)).collect();
    let ends = [us(SLOS[0]), us(SLOS[SLOS.len() - 1])];
    let mut plot = throughput_and_tails(
        "libasl-8i",
        "libasl-8i: Bench-6, two threads a core, by SLO",
        Axis::log("SLO, µs"),
        (Kind::Line, Kind::Line),
        &results,
        &points,
    );
    let slo = ends.map(|slo| (slo, slo)).to_vec();
    plot.series.push(Series::new("y = x", Kind::Guide, slo).on_the_right());
    let glibc = median(&results.throughput(glibc)).map(|y| ends.map(|x| (x, y / 1e6)).to_vec());
    plot.series.extend(glibc.map(|points| Series::new("glibc's throughput", Kind::Guide, points)));
    measured.plots.push(plot);
    Ok(measured)
}
