//! A figure's plot as SVG: bars, curves and dots over one horizontal axis and up to two vertical ones.

use crate::chart::{COLOURS, Scale, label};
use crate::draw::{Area, Drawn, FAINT, INK, SOFT, dashes, document, drawn, line, mark, text};
use lockwright_figures::plot::{Axis, Kind, Plot, Series};
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

const WIDTH: i32 = 980;
const HEIGHT: i32 = 470;
const LEFT: i32 = 74;
/// The key, right of the axes.
const KEY: i32 = 210;
/// The right axis's numbers.
const RIGHT: i32 = 60;
const TOP: i32 = 92;
const BOTTOM: i32 = 62;
/// Half of a bar, to the distance of two.
const HALF: f64 = 0.3;

/// Where values are, in pixels.
struct Frame<'p> {
    plot: &'p Plot,
    right_edge: i32,
    x: Scale,
    left: Scale,
    right: Option<Scale>,
}

/// Draws it; `source` says where its values come from.
pub(super) fn draw(plot: &Plot, source: &str) -> Result<String, String> {
    let frame = Frame::of(plot);
    document((WIDTH, HEIGHT), &COLOURS, |area| {
        text(area, &plot.title, (16, 20), 17, INK, HPos::Left)?;
        text(area, source, (16, 42), 12, SOFT, HPos::Left)?;
        frame.axes(area)?;
        let shown = |series: &&Series| !series.points.is_empty() || series.if_empty.is_some();
        // Guides have no colour of their own, so that none is lost for what was measured.
        let mut colour = 0;
        for (place, series) in plot.series.iter().filter(shown).enumerate() {
            frame.series(area, colour, series)?;
            key(area, place, colour, series)?;
            colour += usize::from(series.kind != Kind::Guide);
        }
        Ok(())
    })
}

fn key(area: &Area<'_>, place: usize, number: usize, series: &Series) -> Drawn {
    let (ink, x, y) = (colour(number), WIDTH - KEY + 30, TOP + place as i32 * 22);
    if series.points.is_empty() {
        let name = format!("{}: {}", series.name, series.if_empty.unwrap_or_default());
        return text(area, &name, (x + 32, y), 12, SOFT, HPos::Left);
    }
    match series.kind {
        Kind::Bars => {
            drawn(area.draw(&Rectangle::new([(x, y - 6), (x + 24, y + 6)], ink.filled())))?
        }
        Kind::Guide => dashes(area, (x, y), (x + 24, y), SOFT)?,
        Kind::Line => line(area, &[(x, y), (x + 24, y)], ink.stroke_width(2))?,
        Kind::Marks | Kind::Dots => {}
    }
    if matches!(series.kind, Kind::Line | Kind::Marks | Kind::Dots) {
        mark(area, number, (x + 12, y), 4, ink)?;
    }
    let side = if series.right { " (right)" } else { "" };
    text(area, &format!("{}{side}", series.name), (x + 32, y), 12, INK, HPos::Left)
}

/// What stands at an axis.
fn named(axis: &Axis) -> String {
    format!("{}{}", axis.label, if axis.log { " (logarithmic)" } else { "" })
}

fn colour(number: usize) -> RGBColor {
    COLOURS[number % COLOURS.len()].0
}

impl<'p> Frame<'p> {
    fn of(plot: &'p Plot) -> Self {
        let values = |right: bool| {
            let side = plot.series.iter().filter(move |series| series.right == right);
            side.flat_map(|series| series.points.iter().map(|(_, y)| *y)).filter(|y| y.is_finite())
        };
        let across = plot.series.iter().flat_map(|series| series.points.iter().map(|(x, _)| *x));
        let x = if plot.x.names.is_empty() {
            Scale::x(across, plot.x.log)
        } else {
            Scale { low: -0.5, high: plot.x.names.len() as f64 - 0.5, log: false, zero: false }
        };
        let right = plot.right.as_ref().map(|axis| Scale::y(values(true), axis.log));
        let right_edge = WIDTH - KEY - if right.is_some() { RIGHT } else { 0 };
        Self { plot, right_edge, x, left: Scale::y(values(false), plot.left.log), right }
    }

    fn across(&self, value: f64) -> i32 {
        LEFT + (self.x.share(value) * f64::from(self.right_edge - LEFT)).round() as i32
    }

    fn up(scale: &Scale, value: f64) -> i32 {
        HEIGHT - BOTTOM - (scale.share(value) * f64::from(HEIGHT - BOTTOM - TOP)).round() as i32
    }

    fn axes(&self, area: &Area<'_>) -> Drawn {
        let bottom = HEIGHT - BOTTOM;
        text(area, &named(&self.plot.left), (LEFT, TOP - 14), 12, SOFT, HPos::Left)?;
        for tick in self.left.ticks() {
            let y = Self::up(&self.left, tick);
            line(area, &[(LEFT, y), (self.right_edge, y)], FAINT)?;
            text(area, &label(tick, false), (LEFT - 8, y), 12, SOFT, HPos::Right)?;
        }
        if let Some((scale, axis)) = self.right.as_ref().zip(self.plot.right.as_ref()) {
            text(area, &named(axis), (self.right_edge, TOP - 14), 12, SOFT, HPos::Right)?;
            for tick in scale.ticks() {
                let y = Self::up(scale, tick);
                line(area, &[(self.right_edge, y), (self.right_edge + 4, y)], SOFT)?;
                text(area, &label(tick, false), (self.right_edge + 8, y), 12, SOFT, HPos::Left)?;
            }
        }
        self.below(area, &self.plot.x)?;
        line(area, &[(LEFT, bottom), (self.right_edge, bottom)], SOFT)?;
        let middle = (LEFT + self.right_edge) / 2;
        text(area, &named(&self.plot.x), (middle, HEIGHT - 16), 13, INK, HPos::Center)
    }

    fn below(&self, area: &Area<'_>, axis: &Axis) -> Drawn {
        let bottom = HEIGHT - BOTTOM;
        // Many names stand in two lines.
        let low = |number: usize| if axis.names.len() > 8 && number % 2 == 1 { 30 } else { 14 };
        for (number, name) in axis.names.iter().enumerate() {
            let at = (self.across(number as f64), bottom + low(number));
            text(area, name, at, 12, SOFT, HPos::Center)?;
        }
        if !axis.names.is_empty() {
            return Ok(());
        }
        let mut free = i32::MIN;
        for tick in self.x.ticks() {
            let (x, name) = (self.across(tick), label(tick, false));
            line(area, &[(x, TOP), (x, bottom)], FAINT)?;
            let half = name.len() as i32 * 4 + 4;
            // Names that would touch are left out.
            if x - half >= free {
                text(area, &name, (x, bottom + 14), 12, SOFT, HPos::Center)?;
                free = x + half;
            }
        }
        Ok(())
    }

    fn series(&self, area: &Area<'_>, number: usize, series: &Series) -> Drawn {
        let (ink, bottom) = (colour(number), HEIGHT - BOTTOM);
        let scale = self.right.as_ref().filter(|_| series.right).unwrap_or(&self.left);
        let known = series.points.iter().filter(|(_, y)| y.is_finite());
        let path: Vec<(i32, i32)> =
            known.clone().map(|&(x, y)| (self.across(x), Self::up(scale, y))).collect();
        match series.kind {
            Kind::Bars => {
                for (&(x, _), place) in known.zip(&path) {
                    let corners =
                        [(self.across(x - HALF), place.1), (self.across(x + HALF), bottom)];
                    drawn(area.draw(&Rectangle::new(corners, ink.filled())))?;
                }
            }
            Kind::Guide => {
                for pair in path.windows(2) {
                    dashes(area, pair[0], pair[1], SOFT)?;
                }
            }
            Kind::Line => line(area, &path, ink.stroke_width(2))?,
            Kind::Marks | Kind::Dots => {}
        }
        let size = match series.kind {
            Kind::Line => 4,
            Kind::Marks => 5,
            Kind::Dots => 1,
            Kind::Bars | Kind::Guide => return Ok(()),
        };
        path.into_iter().try_for_each(|place| mark(area, number, place, size, ink))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_drawn_with_its_axes() {
        let points = vec![(0.0, 1.0), (1.0, 200.0)];
        let kinds = [Kind::Bars, Kind::Line, Kind::Guide, Kind::Marks, Kind::Dots];
        let mut series: Vec<Series> = kinds
            .into_iter()
            .map(|kind| Series::new(format!("{kind:?}"), kind, points.clone()))
            .collect();
        series.push(Series::new("tail", Kind::Line, points).on_the_right());
        series.push(Series::new("left out", Kind::Line, vec![]));
        series.push(Series::new("little", Kind::Line, vec![]).of_operations());
        let plot = Plot {
            name: "x".into(),
            title: "a title".into(),
            x: Axis::names("", ["mcs".to_owned(), "tas".to_owned()]),
            left: Axis::linear("a rate"),
            right: Some(Axis::log("a time")),
            series,
        };
        let svg = draw(&plot, "simulated").unwrap();
        for part in [
            "a title",
            "simulated",
            "mcs",
            "tas",
            "a rate",
            "a time (logarithmic)",
            "Bars",
            "tail (right)",
            "little: none ended",
        ] {
            assert!(svg.contains(part), "no '{part}' in {svg}");
        }
        assert!(!svg.contains("left out") && !svg.contains("a rate (logarithmic)"), "{svg}");
    }
}
