//! The report's three kinds of plot, as SVG that stands by itself.

use super::drivers::NO_LIMIT_NS;
use super::figures::{Point, Results, slo};
use crate::demo::chart::{escape, line, nice_step, open, text};
use crate::demo::stats::{thousands, time};
use lockwright_numbers::Spread;
use std::fmt::Write as _;

/// Each plot carries it, so that its file can be shown alone.
const STYLE: &str = "<style>\
text{font:13px system-ui,-apple-system,\"Segoe UI\",Roboto,\"Liberation Sans\",\"DejaVu Sans\",sans-serif;fill:#1b1f24}\
.tick{font-size:11.5px;fill:#5b6470}.unit{font-size:12.5px;fill:#5b6470}.group{font-weight:600}\
.middle{text-anchor:middle}.end{text-anchor:end}\
.grid{stroke:#e2e5e9;stroke-width:1}.axis{stroke:#8a929c;stroke-width:1}\
.spread{stroke:#1b1f24;stroke-width:1.2}.reference{stroke:#5b6470;stroke-width:1.3;stroke-dasharray:5 4}\
.round{fill:#fff;stroke:#1b1f24;stroke-width:1}.curve{fill:none;stroke-width:2.1;stroke-linejoin:round}\
</style>";

pub(super) fn begin(width: f64, height: f64, label: &str, tag: &str) -> String {
    let mut svg = open(width, height, &format!("{label} ({tag})"));
    svg.push_str(STYLE);
    let _ = write!(svg, r##"<rect width="{width}" height="{height}" fill="#fff"/>"##);
    text(&mut svg, (0.0, 16.0), "group", &escape(label));
    text(&mut svg, (width - 4.0, 16.0), "tick end", tag);
    svg
}

/// One colour a class: the fastest blue, the slowest orange, all together black.
fn class_colour(results: &Results, class: Option<usize>) -> &'static str {
    match class {
        None => "#1b1f24",
        Some(0) => "#1d62d1",
        Some(class) if class == results.machine.little() => "#d9730d",
        Some(_) => "#0f8a5f",
    }
}

/// Ours in colour, the others in greys.
fn lock_colour(point: &Point) -> &'static str {
    match point.subject.lock.split(':').next() {
        Some("asl") => "#1d62d1",
        Some("asl-max") => "#6d4bc3",
        Some("fifo") => "#4b5563",
        _ => "#a5adb8",
    }
}

/// A logarithmic axis: decades that hold all of the values.
struct Decades {
    first: f64,
    last: f64,
    from: f64,
    length: f64,
}

impl Decades {
    fn new(values: impl Iterator<Item = u64>, from: f64, length: f64) -> Decades {
        let (mut low, mut high) = (u64::MAX, 1);
        for value in values {
            (low, high) = (low.min(value.max(1)), high.max(value));
        }
        let first = (low.min(high) as f64).log10().floor();
        let last = (high as f64).log10().ceil().max(first + 1.0);
        Decades { first, last, from, length }
    }

    fn at(&self, ns: u64) -> f64 {
        let place = ((ns.max(1) as f64).log10() - self.first) / (self.last - self.first);
        self.from + place.clamp(0.0, 1.0) * self.length
    }

    /// Each decade's latency, and its name.
    fn ticks(&self) -> impl Iterator<Item = (u64, String)> {
        (self.first as u32..=self.last as u32).map(|decade| {
            let ns = 10_u64.pow(decade);
            (ns, time(ns).replace(".00", "").replace(".0", ""))
        })
    }
}

/// A square, triangle or circle: classes are told apart without colours too.
fn mark(svg: &mut String, results: &Results, class: Option<usize>, (x, y): (f64, f64)) {
    let colour = class_colour(results, class);
    let _ = match class {
        None => write!(
            svg,
            r##"<circle cx="{x:.1}" cy="{y:.1}" r="4.4" fill="none" stroke="{colour}" stroke-width="1.8"/>"##
        ),
        Some(class) if class == results.machine.little() => {
            write!(svg, r#"<path d="M{x:.1} {:.1}l5 9h-10z" fill="{colour}"/>"#, y - 5.0)
        }
        Some(_) => write!(
            svg,
            r#"<rect x="{:.1}" y="{:.1}" width="8" height="8" fill="{colour}"/>"#,
            x - 4.0,
            y - 4.0
        ),
    };
}

/// Each lock: a bar of throughput, and marks at the P99 of big, little and all cores.
pub(super) fn bars(results: &Results) -> String {
    const LEFT: f64 = 104.0;
    const PLOT: f64 = 330.0;
    const RIGHT: f64 = 590.0;
    const MARKS: f64 = 350.0;
    const TOP: f64 = 58.0;
    const STEP: f64 = 25.0;
    const BAR: f64 = 16.0;
    let title = format!("{}: throughput and P99 latency, each lock", results.database.name);
    let bottom = TOP + results.points.len() as f64 * STEP;
    let mut svg = begin(RIGHT + MARKS + 26.0, bottom + 46.0, &title, results.machine.tag());

    let top = results.points.iter().map(|point| point.rate().max).fold(0.0, f64::max);
    let tick = nice_step(top);
    let end = (top / tick).ceil() * tick;
    let x = |rate: f64| LEFT + rate / end * PLOT;
    let mut at = 0.0;
    while at <= end + tick / 2.0 {
        line(
            &mut svg,
            (x(at), TOP - 6.0),
            (x(at), bottom),
            if at == 0.0 { "axis" } else { "grid" },
        );
        text(&mut svg, (x(at), bottom + 17.0), "tick middle", &rate_name(at));
        at += tick;
    }
    text(
        &mut svg,
        (LEFT + PLOT / 2.0, bottom + 38.0),
        "unit middle",
        "operations per second (more is better)",
    );

    let groups = results.groups();
    let p99 = |point: &Point, class| point.latency(class).quantile(0.99);
    let all =
        results.points.iter().flat_map(|point| groups.iter().map(|(class, _)| p99(point, *class)));
    let axis = Decades::new(all, RIGHT, MARKS);
    for (ns, name) in axis.ticks() {
        line(&mut svg, (axis.at(ns), TOP - 6.0), (axis.at(ns), bottom), "grid");
        text(&mut svg, (axis.at(ns), bottom + 17.0), "tick middle", &name);
    }
    let middle = RIGHT + MARKS / 2.0;
    text(
        &mut svg,
        (middle, bottom + 38.0),
        "unit middle",
        "P99 latency, logarithmic (further left is better)",
    );
    let mut legend = RIGHT;
    for (class, name) in &groups {
        mark(&mut svg, results, *class, (legend + 5.0, TOP - 22.0));
        text(&mut svg, (legend + 15.0, TOP - 17.5), "tick", &escape(name));
        legend += 34.0 + 7.0 * name.len() as f64;
    }

    let fifo = results.point("fifo");
    for (n, point) in results.points.iter().enumerate() {
        let y = TOP + n as f64 * STEP;
        let (centre, rate) = (y + BAR / 2.0, point.rate());
        text(&mut svg, (LEFT - 9.0, centre + 4.5), "end", &escape(&point.subject.name()));
        let _ = write!(
            svg,
            r#"<rect x="{LEFT}" y="{y:.1}" width="{:.1}" height="{BAR}" fill="{}"/>"#,
            x(rate.median) - LEFT,
            lock_colour(point)
        );
        line(&mut svg, (x(rate.min), centre), (x(rate.max), centre), "spread");
        for round in point.rates() {
            let _ = write!(
                svg,
                r#"<circle cx="{:.1}" cy="{centre:.1}" r="2.3" class="round"/>"#,
                x(round)
            );
        }
        let value = fifo
            .map_or(String::new(), |fifo| format!("{:.2} ×", Results::ratio(point, fifo).median));
        text(&mut svg, (x(rate.max) + 8.0, centre + 4.5), "tick", &value);
        line(&mut svg, (RIGHT, centre), (RIGHT + MARKS, centre), "grid");
        for (class, _) in &groups {
            mark(&mut svg, results, *class, (axis.at(p99(point, *class)), centre));
        }
    }
    svg.push_str("</svg>");
    svg
}

/// `1.2 M`, `350 k`.
fn rate_name(rate: f64) -> String {
    match rate {
        r if r >= 1e6 => format!("{} M", (r / 1e4).round() / 100.0),
        r if r >= 1e4 => format!("{} k", (r / 1e2).round() / 10.0),
        r => thousands(r),
    }
}

/// Throughput, and P99 on little and on all cores, against the SLO.
pub(super) fn sweep(results: &Results) -> Option<String> {
    const LEFT: f64 = 78.0;
    const PLOT: f64 = 560.0;
    const RIGHT: f64 = 150.0;
    const TOP: f64 = 48.0;
    const RATES: f64 = 150.0;
    const BETWEEN: f64 = 38.0;
    const LATENCIES: f64 = 250.0;
    /// Room for the SLOs that a logarithmic axis has no place for: 0 and none.
    const ASIDE: f64 = 56.0;
    let sweep = results.sweep();
    let slo_of = |point: &Point| point.subject.slo_ns.unwrap_or(0);
    let finite: Vec<u64> = sweep
        .iter()
        .map(|point| slo_of(point))
        .filter(|ns| (1..NO_LIMIT_NS).contains(ns))
        .collect();
    if finite.is_empty() {
        return None;
    }
    let low = *finite.first()? as f64;
    let high = (*finite.last()? as f64).max(low * 1.5);
    let x = |ns: u64| match ns {
        0 => LEFT + 10.0,
        NO_LIMIT_NS => LEFT + PLOT - 10.0,
        ns => {
            let place = (ns as f64 / low).ln() / (high / low).ln();
            LEFT + ASIDE + place * (PLOT - 2.0 * ASIDE)
        }
    };
    let little = Some(results.machine.little());
    let name = &results.machine.classes[results.machine.little()].name;
    let title = format!("{}: asl, throughput and P99 against the SLO", results.database.name);
    let second = TOP + RATES + BETWEEN;
    let bottom = second + LATENCIES;
    let mut svg = begin(LEFT + PLOT + RIGHT, bottom + 46.0, &title, results.machine.tag());

    // What not even FIFO can keep.
    let lost = sweep.iter().map(|point| slo_of(point)).filter(|ns| !results.feasible(*ns)).max();
    if let Some(ns) = lost {
        let width = x(ns) + 14.0 - LEFT;
        let height = bottom - TOP;
        let _ = write!(
            svg,
            r##"<rect x="{LEFT}" y="{TOP}" width="{width:.1}" height="{height:.1}" fill="#f3f4f6"/>"##
        );
        text(&mut svg, (LEFT + 6.0, TOP + 14.0), "tick", "infeasible");
    }

    // Throughput.
    let references: Vec<_> =
        ["fifo", "asl-max"].iter().filter_map(|lock| results.point(lock)).collect();
    let shown = sweep.iter().chain(&references);
    let top = shown.map(|point| point.rate().max).fold(0.0, f64::max);
    let tick = nice_step(top);
    let end = (top / tick).ceil() * tick;
    let y = |rate: f64| TOP + RATES * (1.0 - rate / end);
    let mut at = 0.0;
    while at <= end + tick / 2.0 {
        line(
            &mut svg,
            (LEFT, y(at)),
            (LEFT + PLOT, y(at)),
            if at == 0.0 { "axis" } else { "grid" },
        );
        text(&mut svg, (LEFT - 8.0, y(at) + 4.0), "tick end", &rate_name(at));
        at += tick;
    }
    let mut labels = Vec::new();
    for point in &references {
        let rate = point.rate().median;
        line(&mut svg, (LEFT, y(rate)), (LEFT + PLOT, y(rate)), "reference");
        labels.push((y(rate) + 4.0, point.subject.lock.clone()));
    }
    for (_, own) in spread_out(&mut labels) {
        text(&mut svg, (LEFT + PLOT + 8.0, own.0), "tick", &escape(&own.1));
    }
    let rates: Vec<Spread> = sweep.iter().map(|point| point.rate()).collect();
    let points = sweep.iter().zip(&rates).map(|(point, rate)| (x(slo_of(point)), y(rate.median)));
    curve(&mut svg, points, "#1d62d1");
    for (point, rate) in sweep.iter().zip(&rates) {
        let at = x(slo_of(point));
        line(&mut svg, (at, y(rate.min)), (at, y(rate.max)), "spread");
        let _ = write!(
            svg,
            r##"<circle cx="{at:.1}" cy="{:.1}" r="3.4" fill="#1d62d1"/>"##,
            y(rate.median)
        );
    }
    text(&mut svg, (LEFT, TOP - 9.0), "unit", "operations per second (more is better)");

    // Latencies.
    let p99 = |point: &Point, class| point.latency(class).quantile(0.99);
    let fifo = results.point("fifo").map(|fifo| p99(fifo, little));
    let values = sweep
        .iter()
        .flat_map(|point| [p99(point, little), p99(point, None)])
        .chain(finite.iter().copied())
        .chain(fifo);
    let axis = Decades::new(values, 0.0, LATENCIES);
    let y = |ns: u64| bottom - axis.at(ns);
    for (ns, name) in axis.ticks() {
        line(&mut svg, (LEFT, y(ns)), (LEFT + PLOT, y(ns)), "grid");
        text(&mut svg, (LEFT - 8.0, y(ns) + 4.0), "tick end", &name);
    }
    let first_in_axis = |ns: u64| (ns as f64).log10() >= axis.first;
    let diagonal: Vec<_> =
        finite.iter().filter(|ns| first_in_axis(**ns)).map(|ns| (x(*ns), y(*ns))).collect();
    if let (Some(first), Some(last)) = (diagonal.first(), diagonal.last()) {
        line(&mut svg, *first, *last, "axis");
        text(&mut svg, (first.0 + 4.0, first.1 + 13.0), "tick", "Y = X");
    }
    let mut labels = Vec::new();
    if let Some(ns) = fifo {
        line(&mut svg, (LEFT, y(ns)), (LEFT + PLOT, y(ns)), "reference");
        labels.push((y(ns) + 4.0, format!("fifo, {name}")));
    }
    for (class, label) in [(None, "overall".to_owned()), (little, name.clone())] {
        let place = |point: &&Point| (x(slo_of(point)), y(p99(point, class)));
        curve(&mut svg, sweep.iter().map(place), class_colour(results, class));
        for point in &sweep {
            mark(&mut svg, results, class, place(point));
        }
        if let Some(last) = sweep.last() {
            labels.push((y(p99(last, class)) + 4.0, format!("{label}, asl")));
        }
    }
    for (_, own) in spread_out(&mut labels) {
        text(&mut svg, (LEFT + PLOT + 8.0, own.0), "tick", &escape(&own.1));
    }
    text(&mut svg, (LEFT, second - 9.0), "unit", "P99 latency, logarithmic (less is better)");
    line(&mut svg, (LEFT, bottom), (LEFT + PLOT, bottom), "axis");
    for point in &sweep {
        let ns = slo_of(point);
        text(&mut svg, (x(ns), bottom + 17.0), "tick middle", &slo(ns));
    }
    let middle = LEFT + PLOT / 2.0;
    text(
        &mut svg,
        (middle, bottom + 38.0),
        "unit middle",
        "SLO of each operation (logarithmic between its ends)",
    );
    svg.push_str("</svg>");
    Some(svg)
}

/// Labels from top to bottom, moved apart where they would overlap.
fn spread_out(labels: &mut [(f64, String)]) -> impl Iterator<Item = (usize, &(f64, String))> {
    labels.sort_by(|a, b| a.0.total_cmp(&b.0));
    for n in 1..labels.len() {
        labels[n].0 = labels[n].0.max(labels[n - 1].0 + 14.0);
    }
    labels.iter().enumerate()
}

fn curve(svg: &mut String, points: impl Iterator<Item = (f64, f64)>, colour: &str) {
    let mut path = String::new();
    for (x, y) in points {
        let verb = if path.is_empty() { 'M' } else { 'L' };
        let _ = write!(path, "{verb}{x:.1} {y:.1}");
    }
    let _ = write!(svg, r#"<path d="{path}" class="curve" stroke="{colour}"/>"#);
}

const CURVES: [(&str, &str); 5] = [
    ("#4b5563", "none"),
    ("#1d62d1", "none"),
    ("#6d4bc3", "7 3"),
    ("#0f8a5f", "2 3"),
    ("#b83280", "10 3 2 3"),
];

/// Locks whose distributions are drawn: FIFO, asl at a middling and at no SLO, and the unfair one.
fn chosen(results: &Results) -> Vec<&Point> {
    let sweep = results.sweep();
    let finite: Vec<_> = sweep
        .iter()
        .filter(|point| point.subject.slo_ns.is_some_and(|ns| ns > 0 && ns < NO_LIMIT_NS))
        .collect();
    let middle = finite.len().checked_sub(2).or(finite.len().checked_sub(1));
    let mut chosen: Vec<&Point> = results.point("fifo").into_iter().collect();
    chosen.extend(middle.map(|n| *finite[n]));
    chosen.extend(sweep.last().filter(|last| last.subject.slo_ns == Some(NO_LIMIT_NS)));
    chosen.extend(["tas", "glibc"].iter().filter_map(|lock| results.point(lock)));
    chosen.truncate(CURVES.len());
    chosen
}

/// Distributions of latencies on big, little and all cores. Each step up the axis is a tenth of those above it.
pub(super) fn cdfs(results: &Results) -> String {
    const LEFT: f64 = 60.0;
    const TOP: f64 = 76.0;
    const WIDTH: f64 = 240.0;
    const HEIGHT: f64 = 250.0;
    const PANEL: f64 = WIDTH + 50.0;
    /// 99.99 %.
    const NINES: f64 = 4.0;
    let (chosen, groups) = (chosen(results), results.groups());
    let title = format!("{}: distribution of latencies", results.database.name);
    let bottom = TOP + HEIGHT;
    let width = LEFT + PANEL * groups.len() as f64;
    let mut svg = begin(width, bottom + 46.0, &title, results.machine.tag());
    let mut x = 0.0;
    for (point, (colour, dash)) in chosen.iter().zip(CURVES) {
        let name = point.subject.name();
        let _ = write!(
            svg,
            r#"<line x1="{x:.1}" y1="33" x2="{:.1}" y2="33" stroke="{colour}" stroke-width="3" stroke-dasharray="{dash}"/>"#,
            x + 30.0
        );
        text(&mut svg, (x + 36.0, 37.5), "tick", &escape(&name));
        x += 60.0 + 7.0 * name.chars().count() as f64;
    }
    let all = chosen.iter().flat_map(|point| {
        let latency = point.latency(None);
        [latency.quantile(0.001), latency.quantile(0.9999)]
    });
    let axis = Decades::new(all, 0.0, WIDTH);
    let nines = |share: f64| (-(1.0 - share).max(1e-12).log10()).clamp(0.0, NINES);
    let y = |share: f64| TOP + HEIGHT * (1.0 - nines(share) / NINES);
    let shares = [
        (0.0, "0 %"),
        (0.5, "50 %"),
        (0.9, "90 %"),
        (0.99, "99 %"),
        (0.999, "99.9 %"),
        (0.9999, "99.99 %"),
    ];
    for (n, (class, name)) in groups.iter().enumerate() {
        let left = LEFT + n as f64 * PANEL;
        text(&mut svg, (left, TOP - 14.0), "group", &escape(name));
        for (share, label) in shares {
            let class = if share == 0.0 { "axis" } else { "grid" };
            line(&mut svg, (left, y(share)), (left + WIDTH, y(share)), class);
            if n == 0 {
                text(&mut svg, (left - 7.0, y(share) + 4.0), "tick end", label);
            }
        }
        // With many decades, names for every other one.
        let every = if axis.last - axis.first > 4.0 { 2 } else { 1 };
        for (place, (ns, label)) in axis.ticks().enumerate() {
            let at = left + axis.at(ns);
            line(&mut svg, (at, TOP), (at, bottom), "grid");
            if place % every == 0 {
                text(&mut svg, (at, bottom + 17.0), "tick middle", &label);
            }
        }
        for (point, (colour, dash)) in chosen.iter().zip(CURVES) {
            let mut path = String::new();
            let (mut before, mut last) = (0.0, None);
            for (ns, share) in point.latency(*class).cumulative() {
                let at = left + axis.at(ns);
                // A step a pixel is enough, however fine the distribution is.
                if last.is_none_or(|last: f64| at - last >= 0.7)
                    || nines(share) - nines(before) > 0.02
                {
                    let verb = if path.is_empty() { 'M' } else { 'L' };
                    let _ = write!(path, "{verb}{at:.1} {:.1}", y(share));
                    (last, before) = (Some(at), share);
                }
            }
            let _ = write!(
                svg,
                r#"<path d="{path}" class="curve" stroke="{colour}" stroke-dasharray="{dash}"/>"#
            );
            if let Some(ns) =
                point.subject.slo_ns.filter(|ns| *ns < NO_LIMIT_NS && *class != Some(0))
            {
                let at = left + axis.at(ns);
                line(&mut svg, (at, TOP), (at, bottom), "reference");
                text(&mut svg, (at, TOP - 2.0), "tick middle", "SLO");
            }
        }
    }
    text(
        &mut svg,
        (LEFT + (width - LEFT) / 2.0, bottom + 38.0),
        "unit middle",
        "latency of an operation (further left is better)",
    );
    svg.push_str("</svg>");
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decades_hold_all_values() {
        let axis = Decades::new([1_500, 90_000].into_iter(), 10.0, 100.0);
        assert_eq!((axis.at(1_000), axis.at(100_000), axis.at(10_000)), (10.0, 110.0, 60.0));
        assert_eq!(
            axis.ticks().map(|tick| tick.1).collect::<Vec<_>>(),
            ["1 µs", "10 µs", "100 µs"]
        );
        assert_eq!(Decades::new([0].into_iter(), 0.0, 1.0).at(0), 0.0);
    }

    #[test]
    fn labels_keep_apart() {
        let mut labels = [(50.0, "b".to_owned()), (45.0, "a".to_owned()), (90.0, "c".to_owned())];
        let places: Vec<_> = spread_out(&mut labels).map(|(_, label)| label.0).collect();
        assert_eq!(places, [45.0, 59.0, 90.0]);
    }
}
