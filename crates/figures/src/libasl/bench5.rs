//! Figure 8g: Bench-5, from high to low contention.

use super::common::{ASL, OURS, PB10, dot};
use crate::measured::across;
use crate::plot::{Axis, Kind, Plot, Series};
use crate::{Context, Error, Key, Load, Measured, Plan, chosen, median, ratio};

/// NOPs between two acquisitions.
const GAPS: [u32; 16] = [
    0, 500, 1000, 2000, 3000, 5000, 7500, 10_000, 13_000, 16_000, 20_000, 25_000, 35_000, 50_000,
    75_000, 120_000,
];
/// The gaps for locks that no row needs.
const SOME: [u32; 6] = [0, 1000, 5000, 13_000, 25_000, 75_000];
/// MCS on the 4 big cores saturates the lock where it has this share of its largest throughput.
const SATURATED: f64 = 0.97;

/// Which lock, and the gap.
fn loads() -> Result<impl Fn(&str, u32) -> Load, Error> {
    let lines = chosen("libasl-8g", "lines")?;
    Ok(move |lock: &str, gap: u32| {
        let load = Load::new("sections", lock).with("lines", lines);
        load.with("gap", f64::from(gap)).lasting(1.0, 10.0)
    })
}

/// Two of its rows alone.
pub(super) fn rows_without_a_gap(context: &Context<'_>) -> Result<Measured, Error> {
    let (mut plan, load) = (Plan::new(), loads()?);
    let [asl, mcs, tas] = [ASL, "mcs", "tas"].map(|lock| plan.add(load(lock, 0)));
    let results = plan.run(context)?;
    let asl = results.throughput(asl);
    let mut measured = Measured::new();
    measured.row("asl/mcs at x=0", ratio(&asl, &results.throughput(mcs)));
    measured.row("asl/tas at x=0", ratio(&asl, &results.throughput(tas)));
    Ok(measured)
}

/// LibASL's throughput to that of the other locks.
pub(super) fn figure_8g(context: &Context<'_>) -> Result<Measured, Error> {
    let (mut plan, load) = (Plan::new(), loads()?);
    let asl = GAPS.map(|gap| plan.add(load(ASL, gap)));
    let ours = GAPS.map(|gap| plan.add(load(OURS, gap)));
    let mcs = GAPS.map(|gap| plan.add(load("mcs", gap)));
    let mcs_4 = GAPS.map(|gap| plan.add(load("mcs", gap).threads(4)));
    let others = ["tas", "glibc", "ticket", PB10]
        .map(|lock| (lock, SOME.map(|gap| plan.add(load(lock, gap)))));
    let results = plan.run(context)?;
    let to = |over: &[Key], under: &[Key]| -> Vec<Vec<f64>> {
        let pairs = over.iter().zip(under);
        pairs
            .map(|(&over, &under)| ratio(&results.throughput(over), &results.throughput(under)))
            .collect()
    };
    let (to_mcs, to_mcs_4) = (to(&asl, &mcs), to(&asl, &mcs_4));
    let saturated =
        saturated(&mcs_4.map(|key| median(&results.throughput(key)).unwrap_or_default()));
    let medians =
        |ratios: &[Vec<f64>]| -> Vec<f64> { ratios.iter().filter_map(|r| median(r)).collect() };
    let best = peak(&medians(&to_mcs_4));
    let mut measured = Measured::new();
    measured.row("asl/mcs at x=0", to_mcs[0].clone());
    measured.row(
        "asl/tas at x=0",
        ratio(&results.throughput(asl[0]), &results.throughput(others[0].1[0])),
    );
    measured.row("worst asl/mcs-8", across(&to_mcs, f64::min));
    measured.row("saturated asl/mcs-4", across(&to_mcs_4[..saturated], f64::min));
    measured
        .row("transition asl/mcs-4", across(&to_mcs_4[saturated..=best.max(saturated)], f64::min));
    measured.row("low contention asl/mcs-4", across(&to_mcs_4, f64::max));
    let ours_to_mcs_4 = to(&ours, &mcs_4);
    measured.also("our worst asl/mcs-8", across(&to(&ours, &mcs), f64::min));
    measured.also("our saturated asl/mcs-4", across(&ours_to_mcs_4[..saturated], f64::min));
    let transition = &ours_to_mcs_4[saturated..=peak(&medians(&ours_to_mcs_4)).max(saturated)];
    measured.also("our transition asl/mcs-4", across(transition, f64::min));
    measured.also("our low contention asl/mcs-4", across(&ours_to_mcs_4, f64::max));

    let curve = |name: &str, gaps: &[u32], ratios: &[Vec<f64>]| {
        let points =
            gaps.iter().zip(ratios).filter_map(|(&gap, r)| dot(f64::from(gap) / 1000.0, r));
        Series::new(name, Kind::Line, points.collect())
    };
    let mut series = vec![
        curve("mcs-4", &GAPS, &to_mcs_4),
        curve("mcs", &GAPS, &to_mcs),
        curve("mcs-4, our asl", &GAPS, &ours_to_mcs_4),
    ];
    let asl_at_some: Vec<Key> =
        GAPS.iter().zip(asl).filter(|(gap, _)| SOME.contains(gap)).map(|(_, key)| key).collect();
    series.extend(others.iter().map(|(lock, keys)| curve(lock, &SOME, &to(&asl_at_some, keys))));
    series.push(Series::new("1", Kind::Guide, vec![(0.0, 1.0), (120.0, 1.0)]));
    measured.plots.push(Plot {
        name: "libasl-8g".to_owned(),
        title: "libasl-8g: Bench-5, throughput of asl without an SLO to that of other locks"
            .to_owned(),
        x: Axis::linear("thousand NOPs between two acquisitions"),
        left: Axis::linear("throughput of asl to that of ..."),
        right: None,
        series,
    });
    Ok(measured)
}

/// Gaps, from the first on, at which the lock is saturated.
fn saturated(throughput: &[f64]) -> usize {
    let most = throughput.iter().copied().fold(0.0, f64::max);
    throughput.iter().position(|&one| one < SATURATED * most).unwrap_or(throughput.len())
}

/// The index of the largest value.
fn peak(values: &[f64]) -> usize {
    (0..values.len()).max_by(|&a, &b| values[a].total_cmp(&values[b])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::{peak, saturated};

    #[test]
    fn saturation_ends_where_throughput_falls() {
        assert_eq!(saturated(&[0.99, 1.0, 0.98, 0.9, 0.99]), 3);
        assert_eq!(peak(&[1.0, 0.8, 1.6, 1.5]), 2);
    }
}
