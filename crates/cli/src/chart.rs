//! Charts in one style: curves with ranges in panels, and bars. Plain SVG, no script, no network.

use crate::draw::{
    Area, Drawn, FAINT, INK, SOFT, dashes, document, drawn, line, log_ticks, mark, nice_step, text,
};
use lockwright_numbers::format::{si, time};
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

const WIDTH: i32 = 980;
const LEFT: i32 = 74;
/// The key, right of the panels.
const KEY: i32 = 176;
const TOP: i32 = 64;
const PANEL: i32 = 270;
/// Above a panel its title, below it the axis.
const HEAD: i32 = 34;
const FOOT: i32 = 50;
/// A line of bars.
const ROW: i32 = 22;

/// Colours of curves and bars (after Okabe and Ito), and what each becomes on a dark page.
pub(crate) const COLOURS: [(RGBColor, &str); 8] = [
    (RGBColor(0, 114, 178), "#58b4ee"),
    (RGBColor(213, 94, 0), "#ff8f45"),
    (RGBColor(0, 140, 105), "#3fd0a5"),
    (RGBColor(170, 80, 140), "#e39ccb"),
    (RGBColor(200, 140, 0), "#f2bd3d"),
    (RGBColor(70, 170, 225), "#8fd4ff"),
    (RGBColor(110, 110, 112), "#b9bcc1"),
    (RGBColor(120, 85, 50), "#c9a27a"),
];

fn colour(key: usize) -> RGBColor {
    COLOURS[key % COLOURS.len()].0
}

/// A value with the range that it stands for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Range {
    pub(crate) middle: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// What is written along an axis, and how.
#[derive(Clone, Debug)]
pub(crate) struct Axis {
    pub(crate) name: String,
    /// Equal ratios are equally far apart.
    pub(crate) log: bool,
    /// Its values are nanoseconds.
    pub(crate) is_time: bool,
}

/// A curve.
pub(crate) struct Curve {
    /// Which entry of the key it belongs to.
    pub(crate) key: usize,
    pub(crate) dashed: bool,
    /// In the order of x.
    pub(crate) dots: Vec<(f64, Range)>,
}

/// Curves over one pair of axes.
pub(crate) struct Panel {
    pub(crate) title: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) curves: Vec<Curve>,
}

/// A heading: what it shows, and where the figures come from.
pub(crate) struct Heading<'a> {
    pub(crate) title: &'a str,
    pub(crate) source: &'a str,
}

/// Panels with curves, and the key to them; a name of several lines has them below each other.
pub(crate) fn curves(
    heading: &Heading<'_>,
    key: &[String],
    panels: &[Panel],
) -> Result<String, String> {
    let columns = if panels.len() > 2 { 2 } else { 1 };
    let rows = panels.len().div_ceil(columns) as i32;
    let lines = key.iter().map(|name| name.lines().count() as i32).sum::<i32>();
    let height = TOP + (rows * (HEAD + PANEL + FOOT)).max(lines * ROW + HEAD);
    document((WIDTH, height), &COLOURS, |area| {
        head(area, heading)?;
        let (x, mut y) = (WIDTH - KEY + 16, TOP + HEAD);
        for (number, name) in key.iter().enumerate() {
            line(area, &[(x, y), (x + 24, y)], colour(number).stroke_width(2))?;
            mark(area, number, (x + 12, y), 4, colour(number))?;
            for (number, part) in name.lines().enumerate() {
                let (indent, ink) = if number == 0 { (32, INK) } else { (12, SOFT) };
                text(area, part, (x + indent, y), 12, ink, HPos::Left)?;
                y += ROW;
            }
        }
        let width = (WIDTH - KEY) / columns as i32;
        for (number, panel) in panels.iter().enumerate() {
            let (row, column) = (number / columns, (number % columns) as i32);
            let top = TOP + row as i32 * (HEAD + PANEL + FOOT) + HEAD;
            let left = column * width + LEFT;
            let inside = Inside { left, right: (column + 1) * width - 8, top, bottom: top + PANEL };
            draw_panel(area, panel, &inside)?;
        }
        Ok(())
    })
}

fn head(area: &Area<'_>, heading: &Heading<'_>) -> Drawn {
    text(area, heading.title, (16, 20), 17, INK, HPos::Left)?;
    text(area, heading.source, (16, 42), 12, SOFT, HPos::Left)
}

/// Where a panel's curves are, in pixels.
struct Inside {
    left: i32,
    right: i32,
    top: i32,
    bottom: i32,
}

/// Values along a length.
#[derive(Debug)]
pub(crate) struct Scale {
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) log: bool,
    /// A logarithmic scale has no 0; if there is one, it stands at the low end.
    pub(crate) zero: bool,
}

impl Scale {
    pub(crate) fn x(values: impl Iterator<Item = f64> + Clone, log: bool) -> Scale {
        let (low, high) = ends(values.clone());
        // Nothing above 0 has no logarithm.
        let log = log && high > 0.0;
        if !log {
            let margin = ((high - low) * 0.02).max(high.abs() * 1e-3).max(1e-9);
            return Scale { low: low - margin, high: high + margin, log, zero: false };
        }
        let positive = values.filter(|value| *value > 0.0);
        let (least, high) = ends(positive);
        let zero = low <= 0.0;
        // 0 stands as far from the next value as a factor of 4 would.
        let low = if zero { least / 4.0 } else { least / 1.1 };
        Scale { low, high: high * 1.1, log, zero }
    }

    pub(crate) fn y(values: impl Iterator<Item = f64> + Clone, log: bool) -> Scale {
        if log {
            let mut scale = Scale::x(values, true);
            (scale.low, scale.high) = (scale.low / 1.2, scale.high * 1.2);
            scale
        } else {
            let (_, high) = ends(values);
            Scale { low: 0.0, high: (high * 1.08).max(1e-12), log, zero: false }
        }
    }

    /// Where a broken axis goes on after its 0: see [`x`](Self::x).
    fn least(&self) -> f64 {
        self.low * 3.9
    }

    pub(crate) fn share(&self, value: f64) -> f64 {
        let share = if self.log {
            (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        share.clamp(0.0, 1.0)
    }

    /// The values themselves where they are few, as numbers of threads are.
    fn ticks_at(&self, values: impl Iterator<Item = f64>) -> Vec<f64> {
        let mut distinct: Vec<f64> = values.collect();
        distinct.sort_by(f64::total_cmp);
        distinct.dedup();
        if self.log || distinct.len() > 12 { self.ticks() } else { distinct }
    }

    pub(crate) fn ticks(&self) -> Vec<f64> {
        if self.log {
            let mut ticks = log_ticks(self.low, self.high);
            if self.zero {
                let least = self.least();
                ticks.retain(|tick| *tick >= least);
                ticks.insert(0, 0.0);
            }
            return ticks;
        }
        let step = nice_step(self.high - self.low);
        let first = (self.low / step).ceil() as i64;
        let last = (self.high / step).floor() as i64;
        (first..=last).map(|number| number as f64 * step).collect()
    }
}

fn ends(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
        (low.min(value), high.max(value))
    });
    if low.is_finite() { (low, high) } else { (0.0, 1.0) }
}

/// A value on an axis, without digits that say nothing.
pub(crate) fn label(value: f64, is_time: bool) -> String {
    let text = match value.abs() {
        0.0 => "0".to_owned(),
        _ if is_time => time(value),
        small if small < 0.0995 => format!("{value:.5}"),
        _ => si(value),
    };
    let (number, unit) = text.split_once(' ').unwrap_or((&text, ""));
    let number = match number.contains('.') {
        true => number.trim_end_matches('0').trim_end_matches('.'),
        false => number,
    };
    format!("{number} {unit}").trim_end().to_owned()
}

/// Two strokes across an axis.
fn broken(area: &Area<'_>, (x, y): (i32, i32), (wide, tall): (i32, i32)) -> Drawn {
    for shift in [-2, 2] {
        // Along the axis, which is where the stroke is thin.
        let (x, y) = if wide < tall { (x + shift, y) } else { (x, y + shift) };
        line(area, &[(x - wide, y + tall), (x + wide, y - tall)], INK)?;
    }
    Ok(())
}

fn draw_panel(area: &Area<'_>, panel: &Panel, inside: &Inside) -> Drawn {
    let dots = || panel.curves.iter().flat_map(|curve| &curve.dots);
    let across = Scale::x(dots().map(|(x, _)| *x), panel.x.log);
    let up = Scale::y(dots().flat_map(|(_, y)| [y.low, y.middle, y.high]), panel.y.log);
    let (width, height) = (inside.right - inside.left, inside.bottom - inside.top);
    let x = |value: f64| inside.left + (across.share(value) * f64::from(width)).round() as i32;
    let y = |value: f64| inside.bottom - (up.share(value) * f64::from(height)).round() as i32;

    text(area, &panel.title, (inside.left, inside.top - 24), 13, INK, HPos::Left)?;
    text(area, &panel.y.name, (inside.left, inside.top - 8), 12, SOFT, HPos::Left)?;
    for tick in up.ticks() {
        line(area, &[(inside.left, y(tick)), (inside.right, y(tick))], FAINT)?;
        let name = label(tick, panel.y.is_time);
        text(area, &name, (inside.left - 8, y(tick)), 12, SOFT, HPos::Right)?;
    }
    let mut free = i32::MIN;
    for tick in across.ticks_at(dots().map(|(x, _)| *x)) {
        line(area, &[(x(tick), inside.top), (x(tick), inside.bottom)], FAINT)?;
        let name = label(tick, panel.x.is_time);
        let half = name.len() as i32 * 4 + 4;
        // Names that would touch are left out.
        if x(tick) - half >= free {
            text(area, &name, (x(tick), inside.bottom + 14), 12, SOFT, HPos::Center)?;
            free = x(tick) + half;
        }
    }
    line(area, &[(inside.left, inside.bottom), (inside.right, inside.bottom)], SOFT)?;
    // Between 0 and the least value a logarithmic axis is broken.
    if across.zero {
        broken(area, ((x(0.0) + x(across.least())) / 2, inside.bottom), (2, 5))?;
    }
    if up.zero {
        broken(area, (inside.left, (y(0.0) + y(up.least())) / 2), (5, 2))?;
    }
    let middle = (inside.left + inside.right) / 2;
    text(area, &panel.x.name, (middle, inside.bottom + 34), 13, INK, HPos::Center)?;

    for curve in &panel.curves {
        let ink = colour(curve.key);
        let path: Vec<_> = curve.dots.iter().map(|(at, value)| (x(*at), y(value.middle))).collect();
        if curve.dashed {
            for pair in path.windows(2) {
                dashes(area, pair[0], pair[1], ink.stroke_width(2))?;
            }
        } else {
            line(area, &path, ink.stroke_width(2))?;
        }
        for ((at, value), place) in curve.dots.iter().zip(&path) {
            line(area, &[(x(*at), y(value.low)), (x(*at), y(value.high))], ink)?;
            mark(area, curve.key, *place, if curve.dashed { 3 } else { 4 }, ink)?;
        }
    }
    Ok(())
}

/// A bar for each of a few things.
pub(crate) struct Bars {
    pub(crate) title: String,
    pub(crate) axis: Axis,
    /// Name, colour, length, if it has one.
    pub(crate) bars: Vec<(String, usize, Option<Range>)>,
    /// The text where there is none.
    pub(crate) none: &'static str,
}

/// Groups of bars, one below the other.
pub(crate) fn bars(heading: &Heading<'_>, groups: &[Bars]) -> Result<String, String> {
    const NAMES: i32 = 190;
    let tall = |group: &Bars| HEAD + group.bars.len() as i32 * ROW + FOOT;
    let height = TOP + groups.iter().map(tall).sum::<i32>();
    document((WIDTH, height), &COLOURS, |area| {
        head(area, heading)?;
        let mut top = TOP + HEAD;
        for group in groups {
            let values = group.bars.iter().filter_map(|(_, _, value)| *value);
            let values = values.flat_map(|value| [value.middle, value.high]);
            let scale = Scale::y(values, group.axis.log);
            let width = f64::from(WIDTH - NAMES - 120);
            let x = |value: f64| NAMES + (scale.share(value) * width).round() as i32;
            let bottom = top + group.bars.len() as i32 * ROW;
            text(area, &group.title, (16, top - 16), 13, INK, HPos::Left)?;
            for tick in scale.ticks() {
                line(area, &[(x(tick), top), (x(tick), bottom)], FAINT)?;
                let name = label(tick, group.axis.is_time);
                text(area, &name, (x(tick), bottom + 12), 12, SOFT, HPos::Center)?;
            }
            let middle = (NAMES + WIDTH - 120) / 2;
            text(area, &group.axis.name, (middle, bottom + 30), 13, INK, HPos::Center)?;
            for (number, (name, key, value)) in group.bars.iter().enumerate() {
                let y = top + number as i32 * ROW + ROW / 2;
                text(area, name, (NAMES - 8, y), 12, INK, HPos::Right)?;
                let Some(value) = value else {
                    text(area, group.none, (NAMES + 8, y), 12, SOFT, HPos::Left)?;
                    continue;
                };
                let corners = [(NAMES, y - 6), (x(value.middle), y + 6)];
                drawn(area.draw(&Rectangle::new(corners, colour(*key).filled())))?;
                line(area, &[(x(value.low), y), (x(value.high), y)], INK.stroke_width(2))?;
                let end = x(value.high.max(value.middle)) + 8;
                let figure = label(value.middle, group.axis.is_time);
                text(area, &figure, (end, y), 12, INK, HPos::Left)?;
            }
            top = bottom + FOOT + HEAD;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_hold_their_values_in_order_and_have_ticks_within() {
        for (values, log) in [
            (&[0.0, 10.0, 1000.0, 1e6][..], true),
            (&[0.0, 1.0, 2.0, 30.0], false),
            (&[5.0], false),
            (&[5.0], true),
            (&[0.0], true),
            (&[0.2, 0.21], false),
            (&[-3.0, 4.0], false),
        ] {
            let scale = Scale::x(values.iter().copied(), log);
            let shares: Vec<f64> = values.iter().map(|value| scale.share(*value)).collect();
            assert!(shares.is_sorted(), "{values:?}: {shares:?}");
            let ticks = scale.ticks();
            assert!(!ticks.is_empty() && ticks.len() <= 24, "{values:?}: {ticks:?}");
            let fits = |tick: &f64| (scale.low..=scale.high).contains(tick) || *tick == 0.0;
            assert!(ticks.iter().all(fits), "{values:?}: {ticks:?}");
        }
    }

    #[test]
    fn labels_have_no_digits_that_say_nothing() {
        for (value, is_time, expected) in [
            (0.0, true, "0"),
            (20_000.0, true, "20 us"),
            (1500.0, true, "1.5 us"),
            (2e6, false, "2 M"),
            (0.25, false, "0.25"),
            (0.05, false, "0.05"),
            (400.0, false, "400"),
        ] {
            assert_eq!(label(value, is_time), expected);
        }
    }

    #[test]
    fn a_logarithmic_axis_with_a_zero_is_broken() {
        let strokes = |first: f64| {
            let range = |middle| Range { middle, low: middle, high: middle };
            let axis = |log| Axis { name: "gap".into(), log, is_time: false };
            let dots = [first, 10.0, 1000.0].map(|x| (x, range(5.0))).into();
            let curves_of = vec![Curve { key: 0, dashed: false, dots }];
            let panel =
                Panel { title: "one".into(), x: axis(true), y: axis(false), curves: curves_of };
            let heading = Heading { title: "a title", source: "simulated" };
            let svg = curves(&heading, &["mcs".into()], &[panel]).unwrap();
            svg.matches("<polyline").count() + svg.matches("<line").count()
        };
        // The same number of lines of the grid: 0 and 10, or 1 and 10.
        let ticks = |first: f64| Scale::x([first, 10.0, 1000.0].into_iter(), true).ticks().len();
        assert_eq!(strokes(0.0) - ticks(0.0), strokes(1.0) - ticks(1.0) + 2);
    }

    #[test]
    fn a_chart_has_its_parts() {
        let axis = |name: &str| Axis { name: name.into(), log: true, is_time: true };
        let range = |middle: f64| Range { middle, low: middle * 0.9, high: middle * 1.1 };
        let curve = |key| Curve {
            key,
            dashed: key == 1,
            dots: vec![(1.0, range(10.0 + key as f64)), (100.0, range(2000.0))],
        };
        let panel = |title: &str| Panel {
            title: title.into(),
            x: axis("gap"),
            y: axis("P99"),
            curves: vec![curve(0), curve(1)],
        };
        let heading = Heading { title: "a title", source: "simulated: a machine" };
        let key = ["mcs".to_owned(), "tas <1>\nlittle: none ended".to_owned()];
        let svg = curves(&heading, &key, &[panel("one"), panel("two"), panel("three")]).unwrap();
        for part in [
            "a title",
            "simulated: a machine",
            "mcs",
            "tas &lt;1&gt;",
            "little: none ended",
            "three",
            "gap",
            "P99",
        ] {
            assert!(svg.contains(part), "no '{part}' in {svg}");
        }
        assert_eq!(svg.matches("<svg").count(), 1);
        let bars_of = Bars {
            title: "throughput".into(),
            axis: Axis { name: "op/s".into(), log: false, is_time: false },
            bars: vec![("mcs".into(), 0, Some(range(2e6))), ("asl".into(), 1, None)],
            none: "none ended",
        };
        let svg = bars(&heading, &[bars_of]).unwrap();
        for part in
            ["simulated: a machine", "throughput", "op/s", "mcs", "2 M", "asl", "none ended"]
        {
            assert!(svg.contains(part), "no '{part}' in {svg}");
        }
    }
}
