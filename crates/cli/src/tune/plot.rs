//! The latency-throughput graph: throughput above, latency against the SLO with the line Y = X below.
//! Plain SVG, no script, no network; colours follow the reader's light or dark scheme.

use super::Curve;
use super::advice::{Advice, rate};
use crate::draw::{
    Area, Drawn, FAINT, INK, SOFT, dashes, document, drawn, line, log_ticks, mark, nice_step, text,
};
use crate::epochs::Verdict;
use lockwright_numbers::Spread;
use lockwright_numbers::format::{si, time};
use lockwright_numbers::units::word;
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

const WIDTH: i32 = 980;
const LEFT: i32 = 92;
const RIGHT: i32 = 34;
const TOP: i32 = 92;
/// Heights of the two panels, and what lies between them.
const UPPER: i32 = 220;
const GAP: i32 = 44;
const LOWER: i32 = 300;
const BOTTOM: i32 = 58;
const HEIGHT: i32 = TOP + UPPER + GAP + LOWER + BOTTOM;

const BAND: RGBColor = RGBColor(250, 233, 226);
const SLOW: RGBColor = RGBColor(0, 114, 178);
const ALL: RGBColor = RGBColor(150, 90, 170);
const FAST: RGBColor = RGBColor(30, 140, 100);
const OTHER: RGBColor = RGBColor(200, 90, 10);

/// Each colour, and what it becomes on a dark page.
const DARK: [(RGBColor, &str); 5] =
    [(BAND, "#3a2721"), (SLOW, "#58b4ee"), (ALL, "#c79ae0"), (FAST, "#56c596"), (OTHER, "#f0a04b")];

/// Both axes of times are logarithmic, over the same range.
struct Scale {
    low: f64,
    high: f64,
    top_rate: f64,
}

impl Scale {
    fn of(curve: &Curve) -> Scale {
        let slos = curve.slos.iter().map(|(ns, _)| *ns as f64);
        let points = || curve.slos.iter().chain(&[]).map(|(_, point)| point);
        let others = || curve.locks.iter().map(|(_, point)| point);
        let tails = points().chain(others()).map(|point| point.slow.median.max(1.0));
        let times = || slos.clone().chain(tails.clone());
        // The fastest class may be far below: its curve may leave the panel, the SLOs' may not.
        let (low, high) = (times().fold(f64::INFINITY, f64::min), times().fold(1.0, f64::max));
        let rates = points().chain(others()).map(|point| point.rate.max);
        Scale { low: low / 1.5, high: high * 1.3, top_rate: rates.fold(0.0, f64::max) * 1.12 }
    }

    fn share(&self, ns: f64) -> f64 {
        (ns.max(1.0) / self.low).ln() / (self.high / self.low).ln()
    }

    fn x(&self, ns: f64) -> i32 {
        LEFT + (self.share(ns).clamp(0.0, 1.0) * f64::from(WIDTH - LEFT - RIGHT)).round() as i32
    }

    fn y(&self, ns: f64) -> i32 {
        TOP + UPPER + GAP + LOWER
            - (self.share(ns).clamp(0.0, 1.0) * f64::from(LOWER)).round() as i32
    }

    fn y_rate(&self, rate: f64) -> i32 {
        TOP + UPPER - (rate / self.top_rate.max(1e-9) * f64::from(UPPER)).round() as i32
    }
}

/// The graph of one epoch as an SVG document; `origin` says where its figures come from.
pub(crate) fn graph(
    curve: &Curve,
    advice: &Advice,
    lock: &str,
    origin: &str,
) -> Result<String, String> {
    document((WIDTH, HEIGHT), &DARK, |area| {
        let scale = Scale::of(curve);
        heading(area, curve, lock, origin)?;
        band(area, curve, &scale)?;
        grid(area, curve, &scale)?;
        if let Some(slo) = advice.slo_ns {
            let x = scale.x(slo as f64);
            dashes(area, (x, TOP - 4), (x, HEIGHT - BOTTOM), INK)?;
            let side = if x > WIDTH / 2 { (HPos::Right, -6) } else { (HPos::Left, 6) };
            let label = format!("recommended: {}", word(slo));
            // In the room above the highest throughput.
            text(area, &label, (x + side.1, TOP + 10), 12, INK, side.0)?;
        }
        curves(area, curve, &scale)?;
        others(area, curve, &scale)
    })
}

fn heading(area: &Area<'_>, curve: &Curve, lock: &str, origin: &str) -> Drawn {
    let title = format!("Epoch '{}' under {lock}: latency and throughput by SLO", curve.epoch);
    text(area, &title, (16, 20), 17, INK, HPos::Left)?;
    text(area, origin, (16, 42), 12, SOFT, HPos::Left)?;
    let at = &curve.percentile;
    let mut keys = vec![(SLOW, format!("{at} on {}", curve.slow_cores()))];
    if let Some((fast, _)) = &curve.classes {
        keys.push((ALL, format!("{at} overall")));
        keys.push((FAST, format!("{at} on {fast} cores")));
    }
    let mut x = 16;
    for (ink, name) in keys {
        line(area, &[(x, 66), (x + 22, 66)], ink.stroke_width(3))?;
        text(area, &name, (x + 28, 66), 12, INK, HPos::Left)?;
        x += 54 + 7 * name.len() as i32;
    }
    if !curve.locks.is_empty() {
        marker(area, 0, (x + 6, 66))?;
        let words = "another lock, at its own latency; bars: smallest to largest round";
        text(area, words, (x + 18, 66), 12, INK, HPos::Left)?;
    }
    Ok(())
}

/// Where no order of the lock can keep the SLO.
fn band(area: &Area<'_>, curve: &Curve, scale: &Scale) -> Drawn {
    let infeasible = |(_, point): &&(u64, super::Point)| point.verdict == Verdict::Infeasible;
    // Single ones above are noise.
    let Some(last) = curve.slos.iter().take_while(infeasible).count().checked_sub(1) else {
        return Ok(());
    };
    // Up to half-way to the next SLO.
    let here = curve.slos[last].0 as f64;
    let end = curve.slos.get(last + 1).map_or(here * 1.1, |(next, _)| (here * *next as f64).sqrt());
    for (top, bottom) in [(TOP, TOP + UPPER), (TOP + UPPER + GAP, HEIGHT - BOTTOM)] {
        let corners = [(LEFT, top), (scale.x(end), bottom)];
        drawn(area.draw(&Rectangle::new(corners, BAND.filled())))?;
    }
    text(area, "infeasible", (LEFT + 6, TOP + 12), 12, OTHER, HPos::Left)
}

fn grid(area: &Area<'_>, curve: &Curve, scale: &Scale) -> Drawn {
    let (right, middle) = (WIDTH - RIGHT, TOP + UPPER + GAP);
    for ns in log_ticks(scale.low, scale.high) {
        let (x, y, name) = (scale.x(ns), scale.y(ns), word(ns.round() as u64));
        line(area, &[(x, TOP), (x, TOP + UPPER)], FAINT)?;
        line(area, &[(x, middle), (x, HEIGHT - BOTTOM)], FAINT)?;
        line(area, &[(LEFT, y), (right, y)], FAINT)?;
        text(area, &name, (x, HEIGHT - BOTTOM + 14), 12, SOFT, HPos::Center)?;
        text(area, &name, (LEFT - 8, y), 12, SOFT, HPos::Right)?;
    }
    let step = nice_step(scale.top_rate);
    let mut rate = 0.0;
    while rate <= scale.top_rate {
        let y = scale.y_rate(rate);
        line(area, &[(LEFT, y), (right, y)], if rate == 0.0 { SOFT } else { FAINT })?;
        let name = si(rate).replace(".00", "").replace(".0", "");
        text(area, &name, (LEFT - 8, y), 12, SOFT, HPos::Right)?;
        rate += step;
    }
    line(area, &[(LEFT, HEIGHT - BOTTOM), (right, HEIGHT - BOTTOM)], SOFT)?;
    line(area, &[(scale.x(scale.low), scale.y(scale.low)), (right, middle)], SOFT)?;
    text(area, "Y = X: latency = SLO", (right - 46, middle + 12), 12, SOFT, HPos::Right)?;
    text(area, "executions per second", (LEFT, TOP - 10), 12, SOFT, HPos::Left)?;
    let latency = format!("latency, {}", curve.percentile);
    text(area, &latency, (LEFT, middle - 11), 12, SOFT, HPos::Left)?;
    let axis = "SLO (logarithmic)";
    text(area, axis, ((LEFT + right) / 2, HEIGHT - 18), 13, INK, HPos::Center)
}

fn curves(area: &Area<'_>, curve: &Curve, scale: &Scale) -> Drawn {
    type Figure = fn(&super::Point) -> Option<Spread>;
    let figures: [(RGBColor, Figure, bool); 4] = [
        (FAST, |point| point.fast, false),
        (ALL, |point| point.fast.map(|_| point.all), false),
        (SLOW, |point| Some(point.slow), false),
        (INK, |point| Some(point.rate), true),
    ];
    for (ink, figure, is_rate) in figures {
        let y = |value: f64| if is_rate { scale.y_rate(value) } else { scale.y(value) };
        let points: Vec<_> = curve
            .slos
            .iter()
            .filter_map(|(ns, point)| Some((scale.x(*ns as f64), figure(point)?)))
            .collect();
        let path: Vec<_> = points.iter().map(|(x, spread)| (*x, y(spread.median))).collect();
        line(area, &path, ink.stroke_width(2))?;
        for (x, spread) in points {
            line(area, &[(x, y(spread.min)), (x, y(spread.max))], ink)?;
            drawn(area.draw(&Circle::new((x, y(spread.median)), 3, ink.filled())))?;
        }
    }
    Ok(())
}

/// One shape for each lock compared with.
fn marker(area: &Area<'_>, which: usize, at: (i32, i32)) -> Drawn {
    mark(area, [2, 1, 3][which % 3], at, 5, OTHER)
}

/// Other locks know no SLO: each stands where its own latency would be the SLO.
fn others(area: &Area<'_>, curve: &Curve, scale: &Scale) -> Drawn {
    let mut labels: Vec<(i32, i32)> = Vec::new();
    // Below the labels that are close already, or above them.
    let mut place = |(x, mut y): (i32, i32), step: i32| {
        while labels.iter().any(|at| (at.0 - x).abs() < 120 && (at.1 - y).abs() < 14) {
            y += step;
        }
        labels.push((x, y));
        (x, y)
    };
    let (left, right) = ((HPos::Right, -10), (HPos::Left, 10));
    for (which, (lock, point)) in curve.locks.iter().enumerate() {
        let tail = point.slow.median;
        let (x, y, y_rate) = (scale.x(tail), scale.y(tail), scale.y_rate(point.rate.median));
        marker(area, which, (x, y_rate))?;
        marker(area, which, (x, y))?;
        // Names stay within the picture; above the line Y = X there is most room.
        let (side, step) = if x > WIDTH - RIGHT - 110 { left } else { right };
        let at = place((x + step, y_rate + 14), 14);
        text(area, &format!("{lock} {}", rate(point)), at, 12, OTHER, side)?;
        let (side, step) = if x > LEFT + 110 { left } else { right };
        let at = place((x + step, y - 12), -14);
        text(area, &format!("{lock} {}", time(tail)), at, 12, OTHER, side)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_graph_has_its_parts() {
        let curve = crate::tune::tests::example();
        let advice = crate::tune::advice::advise(&curve);
        let svg =
            graph(&curve, &advice, "asl", "emulated (big:0,little:1x3.75): a machine").unwrap();
        if let Some(file) = std::env::var_os("LOCKWRIGHT_SHOW") {
            std::fs::write(file, &svg).unwrap();
        }
        let parts = [
            "emulated (big:0,little:1x3.75)",
            "infeasible",
            "Y = X",
            "recommended: 400us",
            "fifo 60.0 us",
            "barging 400 us",
            "P99 on little cores",
            "prefers-color-scheme: dark",
        ];
        for part in parts {
            assert!(svg.contains(part), "no '{part}' in {svg}");
        }
        assert_eq!(svg.matches("<svg").count(), 1);
    }

    #[test]
    fn every_colour_of_a_plot_has_a_dark_one() {
        let svg = document((9, 9), &DARK, |_| Ok(())).unwrap();
        for ink in [INK, SOFT, FAINT, BAND, SLOW, ALL, FAST, OTHER] {
            let RGBColor(r, g, b) = ink;
            assert!(svg.contains(&format!("svg [fill=\"#{r:02X}{g:02X}{b:02X}\"]")));
        }
    }
}
