//! Two plots: throughput against the first lock of each group (glibc, but for suites), and the percentiles of
//! waits. Plain SVG, no script, no network.

use crate::plan::{Plan, Row};
use crate::subject::Role;
use crate::summary::{Ceiling, Summary};
use crate::system::Machine;
use anyhow::{Result, anyhow};
use lockwright_numbers::format::{si, spaced, time};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::path::Path;

const WIDTH: i32 = 980;
const LINE: i32 = 20;
/// Left of the axis: the locks' names.
const LEFT: i32 = 190;
/// Right of the axis: the figures.
const RIGHT: i32 = 210;
/// Above the rows: title, machine, key.
const TOP: i32 = 78;
/// Below the rows: axis and its name.
const BOTTOM: i32 = 52;
const FONT: &str = "sans-serif";
const INK: RGBColor = RGBColor(40, 40, 40);
const CEILING: RGBColor = RGBColor(204, 51, 17);
const FAINT: RGBColor = RGBColor(214, 214, 214);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

fn colour(role: Role) -> RGBColor {
    match role {
        Role::Reference => RGBColor(110, 110, 110),
        Role::Ours => RGBColor(0, 114, 178),
        Role::InProcess => RGBColor(86, 180, 233),
        Role::Peer => RGBColor(230, 159, 0),
        Role::Ceiling => CEILING,
    }
}

fn text(
    area: &Area<'_>,
    what: &str,
    at: (i32, i32),
    size: i32,
    ink: RGBColor,
    h: HPos,
) -> Result<()> {
    let style =
        TextStyle::from((FONT, size).into_font()).color(&ink).pos(Pos::new(h, VPos::Center));
    drawn(area.draw_text(what, &style, at))
}

fn drawn<E: std::error::Error + Send + Sync>(result: Result<(), E>) -> Result<()> {
    result.map_err(|cause| anyhow!("cannot draw: {cause}"))
}

/// A line of a plot: a point's heading, or one lock there.
enum Entry<'a> {
    Heading(String),
    Lock(&'a Summary),
}

fn entries<'a>(
    plan: &Plan,
    summaries: &'a [Summary],
    wanted: fn(&Summary) -> bool,
) -> Vec<Entry<'a>> {
    let mut all = Vec::new();
    let mut last = None;
    for s in summaries.iter().filter(|s| wanted(s)) {
        if last != Some(s.row) {
            all.push(Entry::Heading(plan.rows[s.row].point.label()));
            last = Some(s.row);
        }
        all.push(Entry::Lock(s));
    }
    all
}

/// What the colours mean; a ceiling is one of throughput.
const KEY: [(Role, &str); 5] = [
    (Role::Reference, "glibc"),
    (Role::Ours, "ours, through the preload"),
    (Role::InProcess, "from our catalogue, in process"),
    (Role::Peer, "peers"),
    (Role::Ceiling, "the point's ceiling"),
];

/// Where figures of waits end, right of the axis, and which they are.
const FIGURES: [(i32, &str); 4] = [(52, "P50"), (104, "P99"), (156, "P99.9"), (204, "max")];

/// Draws title, key and grid; `ticks` are positions (0 to 1) and their texts.
fn frame(
    area: &Area<'_>,
    machine: &Machine,
    title: &str,
    axis: &str,
    rows: usize,
    key: &[(Role, &str)],
    ticks: &[(f64, String)],
) -> Result<()> {
    drawn(area.fill(&WHITE))?;
    text(area, title, (16, 18), 17, INK, HPos::Left)?;
    text(area, &machine.line(), (16, 38), 12, INK, HPos::Left)?;
    let mut x = 16;
    for &(role, name) in key {
        drawn(area.draw(&Rectangle::new([(x, 53), (x + 10, 63)], colour(role).filled())))?;
        text(area, name, (x + 15, 58), 12, INK, HPos::Left)?;
        x += 36 + 7 * name.len() as i32;
    }
    let bottom = TOP + rows as i32 * LINE;
    for (at, name) in ticks {
        let x = across(*at);
        drawn(area.draw(&PathElement::new([(x, TOP), (x, bottom)], FAINT)))?;
        text(area, name, (x, bottom + 12), 12, INK, HPos::Center)?;
    }
    text(area, axis, (across(0.5), bottom + 34), 13, INK, HPos::Center)
}

fn across(share: f64) -> i32 {
    LEFT + (share * f64::from(WIDTH - LEFT - RIGHT)).round() as i32
}

/// Steps of 1, 2 or 5 times a power of ten, at most eight of them.
fn nice_step(max: f64) -> f64 {
    let power = 10f64.powf((max / 8.0).log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|m| m * power)
        .find(|step| max / step <= 8.0)
        .unwrap_or(power)
}

/// Throughput as a ratio to that of the group's first lock; whiskers are the range of the repetitions.
pub(crate) fn throughput(
    plan: &Plan,
    summaries: &[Summary],
    ceilings: &[Ceiling],
    machine: &Machine,
    file: &Path,
) -> Result<bool> {
    let rows = entries(plan, summaries, |s| s.ratio.is_some());
    let ceiling = |s: &Summary| {
        let of_row = ceilings.iter().find(|c| c.row == s.row);
        of_row.and_then(|c| c.ratio).map(|ratio| ratio.median)
    };
    if rows.is_empty() {
        return Ok(false);
    }
    let max = rows
        .iter()
        .filter_map(|e| if let Entry::Lock(s) = e { Some(s) } else { None })
        .flat_map(|s| [s.ratio.map(|r| r.median), ceiling(s)])
        .flatten()
        .fold(1.0, f64::max)
        * 1.12;
    let step = nice_step(max);
    let ticks: Vec<(f64, String)> = (0..)
        .map(|i| f64::from(i) * step)
        .take_while(|v| *v <= max)
        .map(|v| (v / max, format!("{}", (v * 100.0).round() / 100.0)))
        .collect();
    let height = TOP + BOTTOM + rows.len() as i32 * LINE;
    let area = SVGBackend::new(file, (WIDTH as u32, height as u32)).into_drawing_area();
    let glibc = |row: &Row| plan.subjects[row.subjects[0]].role == Role::Reference;
    let first = if plan.rows.iter().all(glibc) { "glibc" } else { "the first" };
    frame(
        &area,
        machine,
        &format!(
            "Throughput, ratio to {first} in the same group (median; line: smallest to largest repetition)"
        ),
        &format!("ratio to {first}'s throughput (more is better)"),
        rows.len(),
        &KEY,
        &ticks,
    )?;
    for (i, entry) in rows.iter().enumerate() {
        let y = TOP + i as i32 * LINE + LINE / 2;
        match entry {
            Entry::Heading(label) => text(&area, label, (16, y), 13, INK, HPos::Left)?,
            Entry::Lock(s) => {
                let (Some(ratio), Some(rate)) = (s.ratio, s.rate) else { continue };
                let who = &plan.subjects[s.subject];
                text(&area, &who.name, (LEFT - 8, y), 12, INK, HPos::Right)?;
                let x = |v: f64| across((v / max).min(1.0));
                let bar = [(x(0.0), y - 6), (x(ratio.median), y + 6)];
                drawn(area.draw(&Rectangle::new(bar, colour(who.role).filled())))?;
                drawn(area.draw(&PathElement::new([(x(ratio.min), y), (x(ratio.max), y)], INK)))?;
                for end in [ratio.min, ratio.max] {
                    drawn(area.draw(&PathElement::new([(x(end), y - 3), (x(end), y + 3)], INK)))?;
                }
                if let Some(most) = ceiling(s) {
                    let line = [(x(most), y - LINE / 2), (x(most), y + LINE / 2)];
                    drawn(area.draw(&PathElement::new(line, CEILING.stroke_width(2))))?;
                }
                let unit = plan.rows[s.row].point.unit();
                let at = |x| (WIDTH - RIGHT + x, y);
                text(&area, &format!("{:.2}", ratio.median), at(50), 12, INK, HPos::Right)?;
                let said = format!("{}{unit}", spaced(si(rate.median)));
                text(&area, &said, at(160), 12, INK, HPos::Right)?;
            }
        }
    }
    let one = across(1.0 / max);
    let bottom = TOP + rows.len() as i32 * LINE;
    drawn(area.draw(&PathElement::new([(one, TOP), (one, bottom)], INK)))?;
    drawn(area.present())?;
    Ok(true)
}

/// The percentiles of waits, on a logarithmic axis.
pub(crate) fn latency(
    plan: &Plan,
    summaries: &[Summary],
    machine: &Machine,
    file: &Path,
) -> Result<bool> {
    let rows = entries(plan, summaries, |s| s.wait.is_some());
    if rows.is_empty() {
        return Ok(false);
    }
    let waits = || rows.iter().filter_map(|e| if let Entry::Lock(s) = e { s.wait } else { None });
    let low = waits().map(|w| w.p50.max(1.0)).fold(f64::INFINITY, f64::min).log10().floor();
    let high = waits().map(|w| w.max.max(1.0)).fold(1.0, f64::max).log10().ceil().max(low + 1.0);
    let x = |ns: f64| across((ns.max(1.0).log10() - low) / (high - low));
    let ticks: Vec<(f64, String)> = (low as i32..=high as i32)
        .map(|e| {
            let name = time(10f64.powi(e)).replace(".00", "").replace(".0", "");
            ((f64::from(e) - low) / (high - low), name)
        })
        .collect();
    let height = TOP + BOTTOM + rows.len() as i32 * LINE;
    let area = SVGBackend::new(file, (WIDTH as u32, height as u32)).into_drawing_area();
    frame(
        &area,
        machine,
        "Waits: P50 (ring), P90, P99, P99.9 (dots), longest (bar)",
        "time from asking for the lock to having it (less is better)",
        rows.len(),
        &KEY[..KEY.len() - 1],
        &ticks,
    )?;
    for (at, name) in FIGURES {
        text(&area, name, (WIDTH - RIGHT + at, TOP - 7), 11, INK, HPos::Right)?;
    }
    for (i, entry) in rows.iter().enumerate() {
        let y = TOP + i as i32 * LINE + LINE / 2;
        match entry {
            Entry::Heading(label) => text(&area, label, (16, y), 13, INK, HPos::Left)?,
            Entry::Lock(s) => {
                let Some(w) = s.wait else { continue };
                let who = &plan.subjects[s.subject];
                let ink = colour(who.role);
                text(&area, &who.name, (LEFT - 8, y), 12, INK, HPos::Right)?;
                let path = PathElement::new([(x(w.p50), y), (x(w.max), y)], ink.stroke_width(2));
                drawn(area.draw(&path))?;
                for dot in [w.p90, w.p99, w.p999] {
                    drawn(area.draw(&Circle::new((x(dot), y), 3, ink.filled())))?;
                }
                drawn(area.draw(&Circle::new((x(w.p50), y), 4, WHITE.filled())))?;
                drawn(area.draw(&Circle::new((x(w.p50), y), 4, ink.stroke_width(2))))?;
                let end =
                    PathElement::new([(x(w.max), y - 6), (x(w.max), y + 6)], ink.stroke_width(2));
                drawn(area.draw(&end))?;
                for ((at, _), ns) in FIGURES.iter().zip([w.p50, w.p99, w.p999, w.max]) {
                    let at = (WIDTH - RIGHT + at, y);
                    text(&area, &time(ns), at, 11, INK, HPos::Right)?;
                }
            }
        }
    }
    drawn(area.present())?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_few_round_ticks() {
        for max in [0.9, 1.1, 2.3, 7.0, 40.0, 1234.0] {
            let step = nice_step(max);
            assert!((3.0..=8.0).contains(&(max / step)), "{max} by {step}");
        }
    }
}
