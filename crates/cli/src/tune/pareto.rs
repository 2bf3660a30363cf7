//! `tune --pareto`: compares throughput, latency and energy together. A setting that is beaten in all of them is out.
//! The choice among the others is the user's.

use super::{Curve, Point, plot::range};
use crate::output;
use lockwright_numbers::Spread;
use lockwright_numbers::format::{self, si, time};
use lockwright_numbers::units::word;
use lockwright_plot::{Axis, Curves, Head, Ink, Look, Note, Panel, Series, Style};

/// A setting with its figures.
pub(crate) struct Choice<'a> {
    name: String,
    /// The lock, either the tuned one or another.
    lock: &'a str,
    point: &'a Point,
    /// The setting that is no worse in any figure, and better in at least one.
    beaten_by: Option<String>,
}

/// All settings of an epoch: other locks first, then SLOs.
pub(crate) fn choices<'a>(curve: &'a Curve, lock: &'a str) -> Vec<Choice<'a>> {
    let locks = curve.locks.iter().map(|(other, point)| (other.clone(), other.as_str(), point));
    let slos = curve.slos.iter();
    let slos = slos.map(|(ns, point)| (format!("{lock}, SLO {}", word(*ns)), lock, point));
    let mut all: Vec<_> = locks
        .chain(slos)
        .map(|(name, lock, point)| Choice { name, lock, point, beaten_by: None })
        .collect();
    let beaten = |choice: &Choice<'_>| {
        let better = |other: &&Choice<'_>| beats(figures(other.point), figures(choice.point));
        // If several beat it, name the fastest.
        let best = all.iter().filter(better);
        let best = best.max_by(|a, b| a.point.rate.median.total_cmp(&b.point.rate.median));
        best.map(|other| other.name.clone())
    };
    let beaten: Vec<_> = all.iter().map(beaten).collect();
    for (choice, by) in all.iter_mut().zip(beaten) {
        choice.beaten_by = by;
    }
    all
}

/// More is better in each of them. Unknown energy has no influence.
fn figures(point: &Point) -> [f64; 3] {
    let per_joule = point.per_joule.map_or(0.0, |spread| spread.median);
    [point.rate.median, -point.slow.median, per_joule]
}

/// Is it no worse in any figure, and better in at least one?
fn beats(one: [f64; 3], other: [f64; 3]) -> bool {
    let pairs = || one.iter().zip(&other);
    pairs().all(|(one, other)| one >= other) && pairs().any(|(one, other)| one > other)
}

/// A table for the terminal. `source` is the source of the energy figures.
pub(crate) fn table(curve: &Curve, lock: &str, source: &str) -> output::Table {
    let (latency, energy) =
        (format!("{} {}", curve.percentile, curve.slow_cores()), format!("op/J ({source})"));
    let mut table = output::table(&["setting", "throughput", &latency, &energy, "beaten by"])
        .least(&[&energy, "throughput"])
        .all_by("tune.json");
    for choice in choices(curve, lock) {
        let point = choice.point;
        table.add_row([
            choice.name,
            format::rate(point.rate.median),
            time(point.slow.median),
            point.per_joule.map_or("-".into(), |spread| si(spread.median)),
            choice.beaten_by.unwrap_or("none *".into()),
        ]);
    }
    table
}

/// Two panels with the same latency axis: throughput, and executions per joule.
pub(crate) fn picture(curve: &Curve, lock: &str, source: &str, origin: &str) -> String {
    let choices = choices(curve, lock);
    let mut key: Vec<String> = Vec::new();
    for choice in &choices {
        if key.last().is_none_or(|last| last != choice.lock) {
            key.push(choice.lock.to_owned());
        }
    }
    let number = |choice: &Choice<'_>| key.iter().position(|name| name == choice.lock);
    let best = Style::of(key.len(), Look::Marks);
    let panel = |title: &str, axis: String, of: &dyn Fn(&Point) -> Option<Spread>| {
        let series = |choice: &Choice<'_>, style| {
            let dots = vec![(choice.point.slow.median, range(of(choice.point)?))];
            Some(Series { style, right: false, dots })
        };
        let all = choices
            .iter()
            .filter_map(|choice| series(choice, Style::of(number(choice)?, Look::Marks)));
        // A smaller mark on top of the other, and its name.
        let small = Style { look: Look::Line, ..best.dashed(1) };
        let unbeaten = choices.iter().filter(|choice| choice.beaten_by.is_none());
        let at = |choice: &Choice<'_>| Some((choice.point.slow.median, of(choice.point)?.median));
        let places = unbeaten.filter_map(|choice| Some((choice, at(choice)?)));
        let name =
            |(choice, (x, y)): (&Choice<'_>, _)| Note::Words(x, y, choice.name.clone(), Ink::TEXT);
        let notes = places.clone().map(name).collect();
        let unbeaten = places.map(|(_, place)| Series::exact(small, [place]));
        let x = Axis::log(format!("{}, {}", curve.percentile, curve.slow_cores()), time);
        let panel = Panel::new(title, x, Axis::linear(axis, si), all.chain(unbeaten).collect());
        Panel { notes, ..panel }
    };
    let panels = vec![
        panel("Throughput by latency", "executions per second".into(), &|point| Some(point.rate)),
        panel("Energy by latency", format!("executions per joule ({source})"), &|p| p.per_joule),
    ];
    let names = key.iter().enumerate();
    let mut names: Vec<_> =
        names.map(|(n, name)| (name.clone(), Style::of(n, Look::Marks))).collect();
    names.push(("beaten by none".to_owned(), best));
    let title = format!("Epoch '{}' under {lock}: throughput, latency, energy", curve.epoch);
    Curves::new(Head { title, source: origin.into(), key: names }, panels).svg()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tune::tests::example;

    /// Executions per joule fall while throughput rises, except for one setting that is bad in every figure.
    fn with_energy() -> Curve {
        let mut curve = example();
        let energy = |joules: f64| Spread::of(&[joules]);
        for (at, (_, point)) in curve.slos.iter_mut().enumerate() {
            point.per_joule = energy(900.0 - 100.0 * at as f64);
        }
        for (_, point) in &mut curve.locks {
            point.per_joule = energy(100.0);
        }
        curve
    }

    fn beaten(curve: &Curve) -> Vec<(String, Option<String>)> {
        choices(curve, "asl").into_iter().map(|choice| (choice.name, choice.beaten_by)).collect()
    }

    #[test]
    fn who_is_worse_in_all_figures_is_beaten() {
        let curve = with_energy();
        let names: Vec<_> = beaten(&curve);
        let by = |name: &str| names.iter().find(|(known, _)| known == name).unwrap().1.clone();
        // 130 k/s at 400 us: 165 k/s at 198 us is better.
        assert_eq!(by("barging").as_deref(), Some("asl, SLO 200us"));
        // 100 k/s at 60 us: the same with nine times the executions per joule is better.
        assert_eq!(by("fifo").as_deref(), Some("asl, SLO 25us"));
        // A little more throughput, at a little more latency.
        assert_eq!(
            [by("asl, SLO 25us"), by("asl, SLO 50us"), by("asl, SLO 1.6ms")],
            [None, None, None]
        );
        assert!(beats([1.0, 2.0, 3.0], [1.0, 2.0, 2.0]) && !beats([1.0; 3], [1.0; 3]));
        assert!(!beats([2.0, 1.0, 1.0], [1.0, 2.0, 1.0]));
    }

    #[test]
    fn without_energy_two_figures_decide() {
        let curve = example();
        let names = beaten(&curve);
        assert_eq!(names[0], ("fifo".to_owned(), None), "the same as an SLO");
        assert!(names[1].1.is_some(), "{names:?}");
        let text = output::plain(&table(&curve, "asl", "model"));
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains("op/J (model)") && text.contains("none *"), "{text}");
    }

    #[test]
    fn the_picture_has_both_panels_and_marks_the_best() {
        let svg = picture(&with_energy(), "asl", "rapl", "real: a machine");
        for part in [
            "executions per joule (rapl)",
            "executions per second",
            "beaten by none",
            "barging",
            "\nasl, SLO 25us\n",
        ] {
            assert!(svg.contains(part), "no '{part}' in {svg}");
        }
    }
}
