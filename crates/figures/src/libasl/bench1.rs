//! Figures 8a and 8b: Bench-1, heavy contention.

use super::common::{ASL, BIG, EXISTING, LITTLE, OURS, PB10, bench1, throughput_and_tails};
use crate::measured::across;
use crate::plot::{Axis, Kind, Series};
use crate::{Context, Error, Key, Load, Measured, Plan, Results, ratio};

/// SLOs of Figure 8a, us.
const SLOS_8A: [u32; 4] = [0, 25, 50, 65];

/// Fixed windows, us, among which we look for the one with the tail of LibASL-50.
const WINDOWS: [u32; 8] = [2, 4, 6, 8, 10, 12, 14, 17];

/// Under a queue lock the order of the threads changes so slowly that runs of 50 ms differ by 2 %.
const FIFO_MS: f64 = 200.0;

/// MCS.
fn mcs() -> Result<Load, Error> {
    Ok(bench1("mcs")?.lasting(20.0, FIFO_MS))
}

/// LibASL with an SLO, us.
fn with_slo(lock: &str, slo: u32) -> Result<Load, Error> {
    let (warmup, duration) = match slo {
        0..20 => (20.0, FIFO_MS),
        20..200 => (20.0, 50.0),
        // A little core ends about one epoch per SLO. The window needs hundreds to settle, and the figure thousands
        // to count.
        _ => (100.0, 200.0),
    };
    Ok(bench1(lock)?.with("slo_us", f64::from(slo)).lasting(warmup, duration))
}

/// A lock from before LibASL.
fn existing(lock: &str) -> Result<Load, Error> {
    if lock == "mcs" { mcs() } else { bench1(lock) }
}

/// Only two rows of Figure 8a: the tails of MCS and TAS.
pub(super) fn rows_of_tails(context: &Context<'_>) -> Result<Measured, Error> {
    let mut plan = Plan::new();
    let (tas, mcs) = (plan.add(existing("tas")?), plan.add(existing("mcs")?));
    let asl_25 = plan.add(with_slo(ASL, 25)?);
    let results = plan.run(context)?;
    let mut measured = Measured::new();
    measured.row("p99 asl-25/tas", ratio(&results.p99(asl_25), &results.p99(tas)));
    measured.row("p99 mcs", results.p99(mcs));
    Ok(measured)
}

/// All locks.
pub(super) fn figure_8a(context: &Context<'_>) -> Result<Measured, Error> {
    let mut plan = Plan::new();
    let mut names = Vec::new();
    let mut add = |plan: &mut Plan, name: String, load: Load| {
        names.push(name);
        plan.add(load)
    };
    let mut locks = Vec::new();
    let of_sign = |is: bool, load: Load| if is { load.often() } else { load };
    for lock in EXISTING {
        let is = ["tas", "mcs", PB10].contains(&lock);
        locks.push(add(&mut plan, lock.to_owned(), of_sign(is, existing(lock)?)));
    }
    let mut slos = Vec::new();
    for slo in SLOS_8A {
        slos.push(add(&mut plan, format!("asl-{slo}"), of_sign(slo == 50, with_slo(ASL, slo)?)));
    }
    let max = add(&mut plan, "asl-max".to_owned(), bench1(ASL)?.often());
    let ours = add(&mut plan, "our asl-50".to_owned(), with_slo(OURS, 50)?);
    let ours_max = add(&mut plan, "our asl-max".to_owned(), bench1(OURS)?);
    let mut opt = Vec::new();
    for window in WINDOWS {
        opt.push(plan.add(bench1(ASL)?.with("window_us", f64::from(window)).often()));
    }
    let results = plan.run(context)?;
    let [glibc, tas, ticket, mcs, pb10] = locks[..] else { unreachable!("five locks") };
    let [asl_0, asl_25, asl_50, asl_65] = slos[..] else { unreachable!("four SLOs") };

    let throughput = |a, b| ratio(&results.throughput(a), &results.throughput(b));
    let p99 = |a, b| ratio(&results.p99(a), &results.p99(b));
    let extreme = |keys: &[Key], of: &dyn Fn(Key) -> Vec<f64>, choose| {
        across(&keys.iter().map(|&key| of(key)).collect::<Vec<_>>(), choose)
    };
    let others = [tas, ticket, mcs, pb10];
    let mut measured = Measured::new();
    measured.row("asl-0/mcs", throughput(asl_0, mcs));
    measured.row("asl-25/tas", throughput(asl_25, tas));
    measured.row("p99 asl-25/tas", p99(asl_25, tas));
    measured.row("asl-50/tas", throughput(asl_50, tas));
    measured.row("p99 asl-50/tas", p99(asl_50, tas));
    measured.row("asl-max/tas", throughput(max, tas));
    measured.row("asl-max/mcs", throughput(max, mcs));
    measured.row("pb10/mcs", throughput(pb10, mcs));
    measured.row("p99 pb10/mcs", p99(pb10, mcs));
    measured.row("asl-65/pb10", throughput(asl_65, pb10));
    measured.row("p99 asl-65/pb10", p99(asl_65, pb10));
    measured.row("asl-max/glibc", throughput(max, glibc));
    let worst = extreme(&others, &|key| results.throughput(key), f64::min);
    measured.row("glibc/worst other", ratio(&results.throughput(glibc), &worst));
    let longest = extreme(&others, &|key| results.p99(key), f64::max);
    measured.row("p99 glibc/longest other", ratio(&results.p99(glibc), &longest));
    measured.row(
        "p99 big/little of tas",
        ratio(&results.p99_of(tas, BIG), &results.p99_of(tas, LITTLE)),
    );
    let best = extreme(&[ticket, mcs, glibc], &|key| results.throughput(key), f64::max);
    measured.row("tas/best existing", ratio(&results.throughput(tas), &best));
    let optimal = at_same_tail(&results, &opt, asl_50);
    measured.row("asl-50/asl-opt", ratio(&results.throughput(asl_50), &optimal));
    measured.row("p99 mcs", results.p99(mcs));
    measured.also("our asl-50/tas", throughput(ours, tas));
    measured.also("our asl-max/mcs", throughput(ours_max, mcs));

    let keys = locks.iter().chain(&slos).chain([&max, &ours, &ours_max]).copied();
    let places: Vec<(f64, Key)> = (0_u32..).map(f64::from).zip(keys).collect();
    measured.plots.push(throughput_and_tails(
        "libasl-8a",
        "libasl-8a: Bench-1, all locks (asl-N: SLO of N us)",
        Axis::names("", names),
        (Kind::Bars, Kind::Marks),
        &results,
        &places,
    ));
    Ok(measured)
}

/// Throughput at the fixed window that gives little cores the same tail as `with_slo`, interpolated linearly between
/// two windows. A seed whose tail is outside the windows' range is left out.
fn at_same_tail(results: &Results, windows: &[Key], with_slo: Key) -> Vec<f64> {
    let curves: Vec<(Vec<f64>, Vec<f64>)> =
        windows.iter().map(|&key| (results.p99_of(key, LITTLE), results.throughput(key))).collect();
    let one = |(seed, &tail): (usize, &f64)| {
        let pair =
            curves.windows(2).find(|pair| (pair[0].0[seed]..=pair[1].0[seed]).contains(&tail));
        pair.map_or(f64::NAN, |pair| {
            let ((from, low), (to, high)) =
                ((pair[0].0[seed], pair[0].1[seed]), (pair[1].0[seed], pair[1].1[seed]));
            low + (high - low) * (tail - from) / (to - from)
        })
    };
    results.p99_of(with_slo, LITTLE).iter().enumerate().map(one).collect()
}

/// SLOs of Figure 8b, us: those of its rows, and smaller ones for the plot.
const SLOS_8B: [u32; 13] = [5, 10, 20, 25, 30, 40, 50, 65, 80, 100, 200, 300, 500];

/// The tail follows the SLO.
pub(super) fn figure_8b(context: &Context<'_>) -> Result<Measured, Error> {
    let mut plan = Plan::new();
    let mut keys = Vec::new();
    for slo in SLOS_8B {
        keys.push((slo, plan.add(with_slo(ASL, slo)?)));
    }
    let mcs = plan.add(mcs()?);
    let results = plan.run(context)?;
    let at = |slo| keys.iter().find(|(known, _)| *known == slo).expect("it is one of them").1;
    let throughput = |slo| results.throughput(at(slo));
    let mut measured = Measured::new();
    for &(slo, key) in keys.iter().filter(|(slo, _)| *slo >= 20) {
        let tail = results.p99_of(key, LITTLE);
        let row = tail.iter().map(|tail| tail / f64::from(slo)).collect();
        measured.row(format!("p99 little/slo {slo}us"), row);
    }
    measured.row("asl-10/mcs", ratio(&throughput(10), &results.throughput(mcs)));
    measured.row("asl-500/asl-20", ratio(&throughput(500), &throughput(20)));
    let growth = |from, to| ratio(&throughput(to), &throughput(from));
    measured.row("slowing growth", ratio(&growth(100, 500), &growth(20, 100)));
    let (big, little) = (results.p99_of(at(100), BIG), results.p99_of(at(100), LITTLE));
    measured.row("p99 big/little of asl-100", ratio(&big, &little));

    let points: Vec<(f64, Key)> = keys.iter().map(|&(slo, key)| (f64::from(slo), key)).collect();
    let mut plot = throughput_and_tails(
        "libasl-8b",
        "libasl-8b: Bench-1, the tail follows the SLO",
        Axis::log("SLO, µs"),
        (Kind::Line, Kind::Line),
        &results,
        &points,
    );
    let slo = |&(slo, _): &(u32, Key)| (f64::from(slo), f64::from(slo));
    plot.series
        .push(Series::new("y = x", Kind::Guide, keys.iter().map(slo).collect()).on_the_right());
    measured.plots.push(plot);
    Ok(measured)
}
