//! Recommends an SLO, with reasons. The figures come from a curve.

use super::{Curve, Point};
use crate::epochs::Verdict;
use lockwright_numbers::format::{self, si, time};
use lockwright_numbers::median;
use lockwright_numbers::units::word;

/// Throughput within 2 % of the best counts as the best.
const AS_GOOD: f64 = 0.98;
/// A percentile below this share of its SLO doesn't use the SLO up.
const UNUSED: f64 = 0.9;
/// Smaller changes over the whole range don't count as an effect.
const EFFECT: f64 = 0.05;
/// Larger differences between rounds mean that the results are uncertain.
const NOISY: f64 = 1.3;
/// A percentile from fewer executions per run is uncertain.
const FEW: u64 = 1000;

/// A recommendation for one epoch.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Advice {
    /// The SLO, ns; `None` if no SLO can be kept.
    pub(crate) slo_ns: Option<u64>,
    /// The SLO with its reason, or why none is recommended, in one sentence.
    pub(crate) reason: String,
    /// Further notes, one sentence each.
    pub(crate) notes: Vec<String>,
}

impl Advice {
    /// The recommendation as a sentence; `epoch` is what it is for, if that isn't clear.
    pub(crate) fn sentence(&self, epoch: Option<&str>) -> String {
        let of = epoch.map_or(String::new(), |epoch| format!(" for '{epoch}'"));
        match self.slo_ns {
            Some(_) => format!("recommended{of}: {}", self.reason),
            None => format!("no SLO is recommended{of}: {}", self.reason),
        }
    }
}

/// `1.23 M/s`.
pub(crate) fn rate(point: &Point) -> String {
    format::rate(point.rate.median)
}

fn range(slos: &[u64]) -> String {
    match slos {
        [] => String::new(),
        [one] => word(*one),
        [first, .., last] => format!("{} to {}", word(*first), word(*last)),
    }
}

fn listed(slos: &[u64]) -> String {
    slos.iter().map(|&ns| word(ns)).collect::<Vec<_>>().join(", ")
}

/// The smallest kept SLO whose throughput is as good as the best of all kept SLOs.
pub(crate) fn advise(curve: &Curve) -> Advice {
    let cores = curve.slow_cores();
    let (at, slos) = (&curve.percentile, &curve.slos);
    let kept = || slos.iter().filter(|(_, point)| point.verdict == Verdict::Kept);
    // On a single class of cores, throughputs differ only by noise.
    let differ = |_: &&(u64, Point)| curve.classes.is_some();
    let best =
        kept().filter(differ).max_by(|(_, a), (_, b)| a.rate.median.total_cmp(&b.rate.median));
    let chosen = best.and_then(|(_, best)| {
        kept().find(|(_, point)| point.rate.median >= AS_GOOD * best.rate.median)
    });
    // The SLO must certainly beat every lock that keeps it without knowing it. If several do, name the fastest.
    let beaten_by = chosen.and_then(|(slo, point)| {
        let rivals = curve
            .locks
            .iter()
            .filter(|(_, lock)| keeps(lock, *slo, point) && lock.rate.max >= point.rate.min);
        rivals.max_by(|(_, a), (_, b)| a.rate.median.total_cmp(&b.rate.median))
    });
    let refused = chosen.zip(beaten_by);
    let chosen = chosen.filter(|_| refused.is_none());
    let with = |wanted| -> Vec<u64> {
        slos.iter().filter(|(_, point)| point.verdict == wanted).map(|(ns, _)| *ns).collect()
    };
    let (infeasible, missed) = (with(Verdict::Infeasible), with(Verdict::Missed));
    let reason = match (chosen, best) {
        (Some((slo, point)), Some((best_slo, best))) => {
            let reached = if slo == best_slo {
                format!("the highest throughput of all SLOs kept, {}", rate(point))
            } else {
                format!(
                    "the smallest SLO whose throughput, {}, is within 2 % of the best, {} at {}",
                    rate(point),
                    rate(best),
                    word(*best_slo)
                )
            };
            let tail = time(point.slow.median);
            format!("SLO {}: {reached}; {at} on {cores} is {tail}", word(*slo))
        }
        _ if slos.is_empty() => "no SLO was measured".to_owned(),
        _ if let Some(((slo, point), (lock, other))) = refused => {
            refusal(curve, (*slo, point), (lock.as_str(), other))
        }
        _ if curve.classes.is_none() => "SLOs make no difference here".to_owned(),
        _ => format!("no SLO from {} was kept", range(&[slos[0].0, slos[slos.len() - 1].0])),
    };
    let mut notes = Vec::new();
    if let Some((_, point)) = chosen {
        for (lock, other) in &curve.locks {
            notes.push(format!(
                "that is {:.2} times the throughput of {lock} ({}), whose {at} on {cores} is {}",
                point.rate.median / other.rate.median,
                rate(other),
                time(other.slow.median)
            ));
        }
    }
    if !infeasible.is_empty() {
        let fifo = curve.lock("fifo").map_or(String::new(), |fifo| {
            let is = time(fifo.slow.median);
            let below = infeasible.iter().any(|&ns| fifo.slow.median < ns as f64);
            let but = if below { ", which is lower: the runs vary, so measure again" } else { "" };
            format!("; {at} on {cores} under fifo is {is}{but}")
        });
        // Noise can make single larger SLOs seem infeasible. Count only those up to the first that isn't.
        let mut lowest = slos.iter().zip(&infeasible);
        let lowest = lowest.all(|((slo, _), infeasible)| slo == infeasible);
        let which = if lowest { range(&infeasible) } else { listed(&infeasible) };
        notes.push(format!("infeasible: {which}: even first come, first served exceeds it{fifo}"));
    }
    let few = with(Verdict::TooFew);
    if !few.is_empty() {
        notes.push(format!("too few executions for a verdict: {}; run it longer", listed(&few)));
    }
    if !missed.is_empty() {
        let list = listed(&missed);
        notes.push(format!("missed: {list}: {at} on {cores} is above the SLO there"));
    }
    notes.extend(shape(curve, chosen.map(|(slo, _)| *slo)));
    if let Some((slo, _)) = chosen {
        notes.push(format!(
            "to use it: lw_epoch_end(ID, {slo}) in the source; or --epoch 'NAME=FUNCTION:{slo}ns'; or, for \
             all epochs of the program, lockwright run --slo {slo}ns"
        ));
    }
    Advice { slo_ns: chosen.map(|(slo, _)| *slo), reason, notes }
}

/// Does a lock without SLOs keep this one, or at least come as close to it as the run with this SLO did?
fn keeps(lock: &Point, slo: u64, with_slo: &Point) -> bool {
    lock.slow.median <= with_slo.slow.median.max(slo as f64)
}

/// Why an SLO is not recommended although it was kept: another lock keeps it, too, with as much throughput.
fn refusal(curve: &Curve, (slo, point): (u64, &Point), (lock, other): (&str, &Point)) -> String {
    let (at, cores) = (&curve.percentile, curve.slow_cores());
    // With longer waits, what counts is that they are within the SLO.
    let too =
        if other.slow.median > point.slow.median { "the SLO is kept there, too: " } else { "" };
    let tails = format!(
        "{too}{at} on {cores} is {} there, and {} with SLO {}",
        time(other.slow.median),
        time(point.slow.median),
        word(slo)
    );
    if other.rate.median >= point.rate.median {
        let (more, less) = (rate(other), rate(point));
        return format!("throughput under {lock} is no lower, {more} against {less}, and {tails}");
    }
    let range = |point: &Point| format!("{} to {}", si(point.rate.min), si(point.rate.max));
    format!(
        "noise hides whether an SLO gives more throughput than {lock} ({} against {} a second in single \
         rounds), and {tails}",
        range(point),
        range(other)
    )
}

/// Notes derived from the curve's shape.
fn shape(curve: &Curve, chosen: Option<u64>) -> Vec<String> {
    let mut notes = Vec::new();
    let slos = &curve.slos;
    let (at, cores) = (&curve.percentile, curve.slow_cores());
    if curve.classes.is_none() {
        notes.push(
            "all executions ended on one class of cores, so no thread stood by: see \
             `lockwright doctor --topology`, or try --emulate"
                .to_owned(),
        );
    }
    let rates = || slos.iter().map(|(_, point)| point.rate.median);
    let (low, high) = (rates().fold(f64::INFINITY, f64::min), rates().fold(0.0, f64::max));
    if slos.len() > 1 && high > 0.0 && (high - low) / high < EFFECT {
        notes.push(format!(
            "the SLO hardly matters in this range: throughput differs by {:.1} %",
            100.0 * (high - low) / high
        ));
    } else if let [.., (_, before), (last, end)] = &slos[..]
        && chosen == Some(*last)
        && end.rate.median > before.rate.median / AS_GOOD
        && end.slow.median >= UNUSED * *last as f64
    {
        let further = format!("{}..{}", word(*last), word(last.saturating_mul(10)));
        notes.push(format!("throughput still rises at the range's end: try --slo-range {further}"));
    }
    // The SLO from which the percentile stays below the line Y = X to the end of the range.
    let unused = |(ns, point): &&(u64, Point)| point.slow.median < UNUSED * *ns as f64;
    let leaves = slos.iter().rev().take_while(unused).last();
    if let Some((ns, point)) = leaves {
        notes.push(format!(
            "from {} on {at} on {cores} stays below the SLO ({} there): a larger SLO gains nothing",
            word(*ns),
            time(point.slow.median)
        ));
    }
    let ranges: Vec<_> =
        slos.iter().map(|(_, point)| point.rate.max / point.rate.min.max(1e-9)).collect();
    if let Some(range) = median(&ranges).filter(|range| *range > NOISY) {
        notes.push(format!(
            "noisy: the rounds of one setting differ by a factor of {range:.1}; a quiet machine, more --rounds \
             or a longer --time would help"
        ));
    }
    let all = slos.iter().map(|(_, point)| point).chain(curve.locks.iter().map(|(_, p)| p));
    if let Some(fewest) = all.map(|point| point.executions).min().filter(|&fewest| fewest < FEW) {
        let fewest = if fewest == 0 { "none".to_owned() } else { format!("only {fewest}") };
        notes.push(format!(
            "few executions: a run had {fewest} on {cores}, so {at} is uncertain; let the program run longer"
        ));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockwright_numbers::Spread;

    fn point(rate: f64, slow_us: f64, verdict: Verdict) -> Point {
        let one = |value| Spread::of(&[value]).unwrap();
        Point {
            rate: one(rate),
            all: one(slow_us * 500.0),
            slow: one(slow_us * 1000.0),
            fast: None,
            per_joule: None,
            violations: 0.01,
            executions: 50_000,
            verdict,
        }
    }

    #[test]
    fn a_recommendation_reads_as_a_sentence() {
        let advice =
            |slo_ns, reason: &str| Advice { slo_ns, reason: reason.into(), notes: Vec::new() };
        let some = advice(Some(20_000), "SLO 20us: ...");
        assert_eq!(some.sentence(Some("get")), "recommended for 'get': SLO 20us: ...");
        let none = advice(None, "noise hides it");
        assert_eq!(none.sentence(None), "no SLO is recommended: noise hides it");
    }

    fn curve(slos: &[(u64, f64, f64, Verdict)]) -> Curve {
        Curve {
            epoch: "get".into(),
            percentile: "P99".into(),
            classes: Some(("big".into(), "little".into())),
            slos: slos
                .iter()
                .map(|&(us, rate, slow, verdict)| (us * 1000, point(rate, slow, verdict)))
                .collect(),
            locks: vec![("fifo".into(), point(100e3, 60.0, Verdict::Kept))],
        }
    }

    use Verdict::{Infeasible, Kept, Missed};

    #[test]
    fn smallest_slo_with_the_best_throughput_is_taken() {
        let advice = advise(&curve(&[
            (20, 100e3, 60.0, Infeasible),
            (50, 101e3, 61.0, Infeasible),
            (100, 150e3, 99.0, Kept),
            (200, 197e3, 199.0, Kept),
            (500, 200e3, 300.0, Kept),
            (1000, 200e3, 300.0, Kept),
        ]));
        assert_eq!(advice.slo_ns, Some(200_000));
        assert!(advice.reason.starts_with("SLO 200us: the smallest SLO whose throughput, 197 k/s"));
        let notes = advice.notes.join("\n");
        assert!(notes.contains("that is 1.97 times the throughput of fifo (100 k/s)"), "{notes}");
        assert!(notes.contains("infeasible: 20us to 50us"), "{notes}");
        assert!(notes.contains("from 500us on P99 on little cores stays below"), "{notes}");
        assert!(
            !notes.contains("noisy")
                && !notes.contains("rises")
                && !notes.contains("few executions"),
            "{notes}"
        );
    }

    #[test]
    fn slos_that_are_missed_are_not_recommended() {
        let advice = advise(&curve(&[(100, 150e3, 99.0, Kept), (200, 220e3, 280.0, Missed)]));
        assert_eq!(advice.slo_ns, Some(100_000));
        assert!(advice.notes.iter().any(|note| note.starts_with("missed: 200us:")));
        let advice = advise(&curve(&[(10, 1e3, 60.0, Infeasible), (20, 1e3, 60.0, Infeasible)]));
        assert_eq!(advice.slo_ns, None);
        assert_eq!(advice.reason, "no SLO from 10us to 20us was kept");
    }

    #[test]
    fn a_lock_that_is_as_good_without_an_slo_is_not_passed_over() {
        let mut curve = curve(&[(100, 150e3, 99.0, Kept)]);
        curve.locks.push(("slo".into(), point(160e3, 80.0, Kept)));
        let advice = advise(&curve);
        assert_eq!(advice.slo_ns, None);
        let expected = "throughput under slo is no lower, 160 k/s against 150 k/s, and P99 on little \
                        cores is 80.0 µs there, and 99.0 µs with SLO 100us";
        assert_eq!(advice.reason, expected);
        // Higher throughput on average, but not in every round.
        curve.locks[1].1.rate = Spread::of(&[100e3, 140e3, 155e3]).unwrap();
        let reason = advise(&curve).reason;
        assert!(reason.starts_with("noise hides whether an SLO gives more"), "{reason}");
        // The other lock does not keep the SLO, so the choice is the user's.
        curve.locks[1].1.slow = Spread::of(&[120e3]).unwrap();
        assert_eq!(advise(&curve).slo_ns, Some(100_000));
    }

    #[test]
    fn an_slo_that_a_faster_lock_keeps_anyway_is_not_recommended() {
        // 0.29 times the throughput of fifo, whose waits are longer, but far shorter than the SLO.
        let mut curve = curve(&[(500, 29e3, 40.0, Kept)]);
        let advice = advise(&curve);
        assert_eq!(advice.slo_ns, None);
        let expected = "throughput under fifo is no lower, 100 k/s against 29.0 k/s, and the SLO is kept \
                        there, too: P99 on little cores is 60.0 µs there, and 40.0 µs with SLO 500us";
        assert_eq!(advice.reason, expected);
        // Of several such locks, the fastest is named.
        curve.locks.push(("mcs".into(), point(120e3, 90.0, Kept)));
        assert!(advise(&curve).reason.starts_with("throughput under mcs is no lower"));
        // With more throughput in every round, the SLO is worth it.
        curve.slos[0].1.rate = Spread::of(&[130e3]).unwrap();
        assert_eq!(advise(&curve).slo_ns, Some(500_000));
    }

    #[test]
    fn noise_is_said_and_makes_no_range_of_single_slos() {
        let mut curve = curve(&[
            (20, 100e3, 60.0, Infeasible),
            (50, 150e3, 50.0, Kept),
            (100, 150e3, 300.0, Infeasible),
        ]);
        for (_, point) in &mut curve.slos {
            point.rate = Spread::of(&[90e3, 150e3, 200e3]).unwrap();
        }
        let notes = advise(&curve).notes.join("\n");
        assert!(notes.contains("infeasible: 20us, 100us: "), "{notes}");
        assert!(notes.contains("differ by a factor of 2.2"), "{notes}");
    }

    #[test]
    fn a_range_that_ends_too_early_or_changes_nothing_is_said() {
        let notes = |slos: &[_]| advise(&curve(slos)).notes.join("\n");
        let rising = notes(&[(100, 150e3, 99.0, Kept), (200, 200e3, 199.0, Kept)]);
        assert!(rising.contains("try --slo-range 200us..2ms"), "{rising}");
        let flat = notes(&[(100, 150e3, 99.0, Kept), (200, 151e3, 199.0, Kept)]);
        assert!(flat.contains("the SLO hardly matters") && !flat.contains("rises"), "{flat}");
        let mut one_class = curve(&[(100, 150e3, 99.0, Kept)]);
        one_class.classes = None;
        let advice = advise(&one_class);
        assert_eq!((advice.slo_ns, &advice.reason[..]), (None, "SLOs make no difference here"));
        assert!(advice.notes[0].starts_with("all executions ended on one class"));
        let contradicted = notes(&[(100, 150e3, 99.0, Infeasible), (200, 200e3, 199.0, Kept)]);
        assert!(
            contradicted.contains("is 60.0 µs, which is lower: the runs vary"),
            "{contradicted}"
        );
    }
}
