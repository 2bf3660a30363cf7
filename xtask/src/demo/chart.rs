//! The report's two kinds of plot, as SVG that stands by itself.

use super::stats::{Figure, Summary, thousands, time};
use lockwright_numbers::Times;
use std::fmt::Write as _;

/// One colour a lock, the same in all plots: glibc is grey, ours follow.
const COLOURS: [&str; 7] =
    ["#6b7280", "#1d62d1", "#d9730d", "#0f8a5f", "#b83280", "#6d4bc3", "#0b8aa3"];
/// One dash pattern a lock: lines are told apart without colours too.
const DASHES: [&str; 7] = ["none", "none", "7 3", "2 3", "10 3 2 3", "4 2", "1 2"];

pub(crate) fn colour(lock: usize) -> &'static str {
    COLOURS[lock % COLOURS.len()]
}

pub(super) fn dash(lock: usize) -> &'static str {
    DASHES[lock % DASHES.len()]
}

/// Room for the locks' names, left of a plot.
const NAMES: f64 = 132.0;

/// Text as HTML and SVG want it.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Throughput: a bar for the median, a dot for every round.
pub(super) fn bars(name: &str, groups: &[(String, &[Summary])]) -> String {
    const LEFT: f64 = NAMES;
    const RIGHT: f64 = 170.0;
    const PLOT: f64 = 750.0 - LEFT;
    const BAR: f64 = 20.0;
    const STEP: f64 = 28.0;
    const HEAD: f64 = 30.0;
    let top = groups
        .iter()
        .flat_map(|(_, summaries)| summaries.iter().map(|summary| summary.rate.max))
        .fold(0.0, f64::max);
    let tick = nice_step(top);
    let end = (top / tick).ceil() * tick;
    let x = |rate: f64| LEFT + rate / end * PLOT;
    let rows: usize = groups.iter().map(|(_, summaries)| summaries.len()).sum();
    let bottom = groups.len() as f64 * HEAD + rows as f64 * STEP + 8.0;
    let (width, height) = (LEFT + PLOT + RIGHT, bottom + 46.0);

    let mut svg = open(width, height, &format!("{name}: operations per second, each lock"));
    let mut at = 0.0;
    while at <= end + tick / 2.0 {
        line(&mut svg, (x(at), 6.0), (x(at), bottom), if at == 0.0 { "axis" } else { "grid" });
        text(&mut svg, (x(at), bottom + 17.0), "tick middle", &thousands(at));
        at += tick;
    }
    let middle = LEFT + PLOT / 2.0;
    text(
        &mut svg,
        (middle, bottom + 38.0),
        "unit middle",
        "operations per second (more is better)",
    );
    let mut y = 0.0;
    for (label, summaries) in groups {
        y += HEAD;
        text(&mut svg, (0.0, y - 9.0), "group", label);
        for (lock, summary) in summaries.iter().enumerate() {
            let (centre, rate) = (y + BAR / 2.0, summary.rate);
            text(&mut svg, (LEFT - 10.0, centre + 4.5), "lock end", &escape(&summary.name()));
            let _ = write!(
                svg,
                r#"<rect x="{LEFT}" y="{y:.1}" width="{:.1}" height="{BAR}" fill="{c}"/>"#,
                x(rate.median) - LEFT,
                c = colour(lock)
            );
            line(&mut svg, (x(rate.min), centre), (x(rate.max), centre), "spread");
            for round in &summary.rates {
                let _ = write!(
                    svg,
                    r#"<circle cx="{:.1}" cy="{centre:.1}" r="2.6" class="round"/>"#,
                    x(*round)
                );
            }
            let value = if lock == 0 {
                thousands(rate.median)
            } else {
                let ratio = summary.ratio(Figure::Throughput).spread.median;
                format!("{}  ({ratio:.2} ×)", thousands(rate.median))
            };
            text(&mut svg, (x(rate.max) + 10.0, centre + 4.5), "value", &value);
            y += STEP;
        }
    }
    svg.push_str("</svg>");
    svg
}

/// Distribution of latencies; every step up the vertical axis is a tenth of the operations above it.
pub(super) fn cdf(label: &str, summaries: &[Summary]) -> String {
    const LEFT: f64 = 66.0;
    const TOP: f64 = 30.0;
    const WIDTH: f64 = 366.0;
    const HEIGHT: f64 = 260.0;
    /// 99.999 %.
    const NINES: f64 = 5.0;
    let all = || summaries.iter().map(|summary| &summary.latency);
    let low = all().map(|l| l.quantile(0.001)).min().unwrap_or(1).max(1);
    let high = all().map(Times::max).max().unwrap_or(10);
    let (first, last) = ((low as f64).log10().floor(), (high as f64).log10().ceil());
    let last = last.max(first + 1.0);
    let x = |ns: f64| LEFT + (ns.max(1.0).log10() - first).max(0.0) / (last - first) * WIDTH;
    let nines = |share: f64| (-(1.0 - share).max(1e-12).log10()).clamp(0.0, NINES);
    let y = |share: f64| TOP + HEIGHT * (1.0 - nines(share) / NINES);

    let (width, height) = (LEFT + WIDTH + 26.0, TOP + HEIGHT + 46.0);
    let mut svg = open(width, height, &format!("{label}: distribution of latencies"));
    text(&mut svg, (0.0, 14.0), "group", label);
    let shares = [0.0, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999];
    for (share, name) in
        shares.iter().zip(["0 %", "50 %", "90 %", "99 %", "99.9 %", "99.99 %", "99.999 %"])
    {
        let class = if *share == 0.0 { "axis" } else { "grid" };
        line(&mut svg, (LEFT, y(*share)), (LEFT + WIDTH, y(*share)), class);
        text(&mut svg, (LEFT - 7.0, y(*share) + 4.0), "tick end", name);
    }
    // With many decades, names for every other one.
    let every = if last - first > 7.0 { 2.0 } else { 1.0 };
    let mut decade = first;
    while decade <= last {
        let ns = 10_f64.powf(decade);
        line(&mut svg, (x(ns), TOP), (x(ns), TOP + HEIGHT), "grid");
        if (decade - first) % every == 0.0 {
            let name = time(ns.round() as u64).replace(".00", "").replace(".0", "");
            text(&mut svg, (x(ns), TOP + HEIGHT + 17.0), "tick middle", &name);
        }
        decade += 1.0;
    }
    let middle = LEFT + WIDTH / 2.0;
    text(
        &mut svg,
        (middle, TOP + HEIGHT + 38.0),
        "unit middle",
        "latency of an operation (further left is better)",
    );
    for (lock, summary) in summaries.iter().enumerate() {
        let mut path = String::new();
        for (ns, share) in summary.latency.cumulative() {
            let verb = if path.is_empty() { 'M' } else { 'L' };
            let _ = write!(path, "{verb}{:.1} {:.1}", x(ns as f64), y(share));
        }
        let _ = write!(
            svg,
            r#"<path d="{path}" class="curve" stroke="{}" stroke-dasharray="{}"/>"#,
            colour(lock),
            dash(lock)
        );
    }
    svg.push_str("</svg>");
    svg
}

/// The slow end of each lock's latencies against the objective: P50 to the longest operation.
pub(super) fn tails(name: &str, summaries: &[Summary], slo_ns: u64) -> String {
    const LEFT: f64 = NAMES;
    const RIGHT: f64 = 210.0;
    const PLOT: f64 = 710.0 - LEFT;
    const STEP: f64 = 28.0;
    const TOP: f64 = 30.0;
    let low =
        summaries.iter().map(|own| own.latency.quantile(0.5)).min().unwrap_or(1).max(1).min(slo_ns);
    let high = summaries.iter().map(|own| own.latency.max()).max().unwrap_or(10).max(slo_ns);
    let (first, last) = ((low as f64).log10().floor(), (high as f64).log10().ceil());
    let last = last.max(first + 1.0);
    let x = |ns: u64| LEFT + ((ns.max(1) as f64).log10() - first).max(0.0) / (last - first) * PLOT;
    let bottom = TOP + summaries.len() as f64 * STEP;
    let mut svg =
        open(LEFT + PLOT + RIGHT, bottom + 46.0, &format!("{name}: latencies on the little core"));
    let mut decade = first;
    while decade <= last {
        let ns = 10_f64.powf(decade).round() as u64;
        line(&mut svg, (x(ns), TOP), (x(ns), bottom), "grid");
        let label = time(ns).replace(".00", "").replace(".0", "");
        text(&mut svg, (x(ns), bottom + 17.0), "tick middle", &label);
        decade += 1.0;
    }
    let axis =
        "latency of an operation on the little core: P50 (ring), P99, P99.9 (dots), longest (bar)";
    text(&mut svg, (LEFT + PLOT / 2.0, bottom + 38.0), "unit middle", axis);
    for (lock, own) in summaries.iter().enumerate() {
        let y = TOP + (lock as f64 + 0.5) * STEP;
        let at = |share| own.latency.quantile(share);
        let (p50, p99, longest, ink) = (at(0.5), at(0.99), own.latency.max(), colour(lock));
        text(&mut svg, (LEFT - 10.0, y + 4.5), "lock end", &escape(&own.name()));
        let _ = write!(
            svg,
            r#"<path d="M{:.1} {y:.1}H{:.1}M{:.1} {:.1}v12" fill="none" stroke="{ink}" stroke-width="2"/>"#,
            x(p50),
            x(longest),
            x(longest),
            y - 6.0,
        );
        for ns in [p99, at(0.999)] {
            let _ = write!(svg, r#"<circle cx="{:.1}" cy="{y:.1}" r="4" fill="{ink}"/>"#, x(ns));
        }
        let _ = write!(
            svg,
            r##"<circle cx="{:.1}" cy="{y:.1}" r="4" fill="#fff" stroke="{ink}" stroke-width="2"/>"##,
            x(p50)
        );
        let value = format!("P99 {} ({:.2} of SLO)", time(p99), own.of_slo(slo_ns));
        text(&mut svg, (LEFT + PLOT + 10.0, y + 4.5), "value", &value);
    }
    line(&mut svg, (x(slo_ns), TOP - 8.0), (x(slo_ns), bottom), "slo");
    text(&mut svg, (x(slo_ns), TOP - 13.0), "group middle", &format!("SLO {}", time(slo_ns)));
    svg.push_str("</svg>");
    svg
}

/// 1, 2 or 5 times a power of ten: four to ten steps up to `top`.
pub(crate) fn nice_step(top: f64) -> f64 {
    let power = 10_f64.powf((top.max(1.0) / 4.0).log10().floor());
    let steps = [5.0, 2.0, 1.0].map(|factor| factor * power);
    steps.into_iter().find(|step| top / step >= 4.0).unwrap_or(power)
}

pub(crate) fn open(width: f64, height: f64, label: &str) -> String {
    format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="{}">"#,
        escape(label)
    )
}

pub(crate) fn line(svg: &mut String, from: (f64, f64), to: (f64, f64), class: &str) {
    let ((x1, y1), (x2, y2)) = (from, to);
    let _ = write!(
        svg,
        r#"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" class="{class}"/>"#
    );
}

pub(crate) fn text(svg: &mut String, (x, y): (f64, f64), class: &str, words: &str) {
    let _ = write!(svg, r#"<text x="{x:.1}" y="{y:.1}" class="{class}">{words}</text>"#);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round_and_few() {
        for top in [1.0, 7.0, 19.0, 99_999.0, 213_208.0, 1_600_000.0, 9.99e9] {
            let step = nice_step(top);
            assert!((4.0..=10.0).contains(&(top / step)) || top < 4.0, "{top}: {step}");
        }
        assert_eq!(nice_step(213_208.0), 50_000.0);
    }
}
