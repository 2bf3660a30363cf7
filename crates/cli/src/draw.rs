//! What our plots are drawn with: lines and words in SVG, scales and their ticks, colours for light and dark pages.

use plotters::backend::SVGBackend;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::fmt::Write as _;

const FONT: &str = "sans-serif";

pub(crate) const PAPER: RGBColor = RGBColor(255, 255, 255);
pub(crate) const INK: RGBColor = RGBColor(40, 40, 40);
pub(crate) const SOFT: RGBColor = RGBColor(100, 108, 116);
pub(crate) const FAINT: RGBColor = RGBColor(222, 224, 227);

/// What the colours of every plot become on a dark page.
const DARK: [(RGBColor, &str); 4] =
    [(PAPER, "#15181c"), (INK, "#e4e6e9"), (SOFT, "#a4acb5"), (FAINT, "#343a41")];

pub(crate) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
pub(crate) type Drawn = Result<(), String>;

/// An SVG document of this size, with rules that turn it dark if the reader prefers that; `dark` has the plot's own
/// colours, and what each becomes.
pub(crate) fn document(
    (width, height): (i32, i32),
    dark: &[(RGBColor, &str)],
    draw: impl FnOnce(&Area<'_>) -> Drawn,
) -> Result<String, String> {
    let mut svg = String::new();
    {
        let area =
            SVGBackend::with_string(&mut svg, (width as u32, height as u32)).into_drawing_area();
        drawn(area.fill(&PAPER))?;
        draw(&area)?;
        drawn(area.present())?;
    }
    // A reader that opens only this file in a dark browser sees it dark, too.
    let body = svg.find('>').map_or(0, |end| end + 1);
    Ok(format!("{}{}{}", &svg[..body], style(dark), &svg[body..]))
}

fn style(dark: &[(RGBColor, &str)]) -> String {
    let mut css = String::from("<style>@media (prefers-color-scheme: dark) {");
    for (RGBColor(r, g, b), dark) in DARK.iter().chain(dark) {
        for property in ["fill", "stroke"] {
            let _ = write!(css, "svg [{property}=\"#{r:02X}{g:02X}{b:02X}\"]{{{property}:{dark}}}");
        }
    }
    css + "}</style>"
}

pub(crate) fn drawn<E: std::error::Error + Send + Sync>(result: Result<(), E>) -> Drawn {
    result.map_err(|cause| format!("cannot draw: {cause}"))
}

pub(crate) fn text(
    area: &Area<'_>,
    what: &str,
    at: (i32, i32),
    size: i32,
    ink: RGBColor,
    h: HPos,
) -> Drawn {
    let style =
        TextStyle::from((FONT, size).into_font()).color(&ink).pos(Pos::new(h, VPos::Center));
    drawn(area.draw_text(what, &style, at))
}

pub(crate) fn line(area: &Area<'_>, points: &[(i32, i32)], style: impl Into<ShapeStyle>) -> Drawn {
    drawn(area.draw(&PathElement::new(points.to_vec(), style)))
}

/// A dashed line from point to point.
pub(crate) fn dashes(
    area: &Area<'_>,
    from: (i32, i32),
    to: (i32, i32),
    style: impl Into<ShapeStyle> + Copy,
) -> Drawn {
    let (dx, dy) = (f64::from(to.0 - from.0), f64::from(to.1 - from.1));
    // Not `hypot`: the C library's needs glibc 2.35.
    let length = (dx * dx + dy * dy).sqrt().max(1.0);
    let at = |d: f64| {
        let share = (d / length).min(1.0);
        (from.0 + (dx * share).round() as i32, from.1 + (dy * share).round() as i32)
    };
    let mut d = 0.0;
    while d < length {
        line(area, &[at(d), at(d + 6.0)], style)?;
        d += 11.0;
    }
    Ok(())
}

/// A filled mark of radius `r`: 0 a disc, then a square, a diamond, triangles.
pub(crate) fn mark(
    area: &Area<'_>,
    shape: usize,
    (x, y): (i32, i32),
    r: i32,
    ink: RGBColor,
) -> Drawn {
    let polygon = |corners: Vec<(i32, i32)>| drawn(area.draw(&Polygon::new(corners, ink.filled())));
    match shape % 5 {
        0 => drawn(area.draw(&Circle::new((x, y), r, ink.filled()))),
        1 => drawn(area.draw(&Rectangle::new([(x - r, y - r), (x + r, y + r)], ink.filled()))),
        2 => polygon(vec![(x, y - r - 1), (x + r + 1, y), (x, y + r + 1), (x - r - 1, y)]),
        3 => polygon(vec![(x, y - r), (x + r, y + r), (x - r, y + r)]),
        _ => polygon(vec![(x, y + r), (x + r, y - r), (x - r, y - r)]),
    }
}

/// 1, 2 or 5 times a power of ten, at most six of them up to `max`.
pub(crate) fn nice_step(max: f64) -> f64 {
    let power = 10f64.powf((max.max(1e-9) / 6.0).log10().floor());
    let steps = [1.0, 2.0, 5.0].map(|factor| factor * power);
    steps.into_iter().find(|step| max / step <= 6.0).unwrap_or(10.0 * power)
}

/// 1, 2 and 5 times powers of ten within a range; only the powers if those are many.
pub(crate) fn log_ticks(low: f64, high: f64) -> Vec<f64> {
    let decades = (high / low).log10();
    let factors: &[f64] = if decades > 4.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let first = low.log10().floor() as i32;
    (first..=high.log10().ceil() as i32)
        .flat_map(|power| factors.iter().map(move |factor| factor * 10f64.powi(power)))
        .filter(|value| (low..=high).contains(value))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_lie_within_and_are_few() {
        for (low, high) in [(13e3, 2.6e6), (900.0, 1100.0), (100.0, 5e9)] {
            let ticks = log_ticks(low, high);
            assert!((1..=14).contains(&ticks.len()), "{ticks:?}");
            assert!(ticks.iter().all(|value| (low..=high).contains(value)), "{ticks:?}");
        }
        for max in [0.9, 7.0, 123.0, 1.6e6] {
            assert!((2.0..=6.0).contains(&(max / nice_step(max))), "{max}");
        }
    }
}
