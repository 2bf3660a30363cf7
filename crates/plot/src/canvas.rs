//! The drawing functions for charts: lines, marks and text in SVG, and colours for light and dark pages.

use plotters::backend::SVGBackend;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// The width of all charts.
pub(crate) const WIDTH: f64 = 980.0;
/// The margin around a chart.
pub(crate) const MARGIN: f64 = 16.0;
/// Sizes of text.
pub(crate) const SMALL: f64 = 11.5;
pub(crate) const NORMAL: f64 = 13.0;
pub(crate) const LARGE: f64 = 16.0;

/// A colour with its counterpart for dark pages. All inks look different on a light page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ink {
    light: u32,
    dark: u32,
}

impl Ink {
    /// The background.
    pub const PAPER: Ink = Ink { light: 0x00FF_FFFF, dark: 0x0015_181C };
    /// Text.
    pub const TEXT: Ink = Ink { light: 0x001B_1F24, dark: 0x00E4_E6E9 };
    /// Explanatory text.
    pub const SOFT: Ink = Ink { light: 0x005B_6470, dark: 0x00A4_ACB5 };
    /// Grids.
    pub const FAINT: Ink = Ink { light: 0x00E2_E5E9, dark: 0x0034_3A41 };
    /// The background of a part of a chart.
    pub const BAND: Ink = Ink { light: 0x00FA_E9E2, dark: 0x003A_2721 };
    /// A limit.
    pub const ALARM: Ink = Ink { light: 0x00B3_261E, dark: 0x00FF_7A70 };
    /// Better. Everyone can tell blue from orange.
    pub const GOOD: Ink = Ink { light: 0x001D_62D1, dark: 0x006F_A8FF };
    /// Worse.
    pub const BAD: Ink = Ink { light: 0x00D9_730D, dark: 0x00FF_9E4A };
    /// No difference; also the reference.
    pub const EVEN: Ink = Ink { light: 0x008A_929C, dark: 0x008D_959F };

    /// Colours of curves and bars, after Okabe and Ito.
    const SERIES: [Ink; 8] = [
        Ink { light: 0x0000_72B2, dark: 0x0058_B4EE },
        Ink { light: 0x00D5_5E00, dark: 0x00FF_8F45 },
        Ink { light: 0x0000_8C69, dark: 0x003F_D0A5 },
        Ink { light: 0x00AA_508C, dark: 0x00E3_9CCB },
        Ink { light: 0x00C8_8C00, dark: 0x00F2_BD3D },
        Ink { light: 0x0046_AAE1, dark: 0x008F_D4FF },
        Ink { light: 0x006E_6E70, dark: 0x00B9_BCC1 },
        Ink { light: 0x0078_5532, dark: 0x00C9_A27A },
    ];

    /// The colour of the series with this number.
    pub const fn of(number: usize) -> Ink {
        Self::SERIES[number % Self::SERIES.len()]
    }

    /// A colour that is the same on dark pages.
    pub const fn fixed(rgb: u32) -> Ink {
        Ink { light: rgb, dark: rgb }
    }

    /// The colour in CSS, for a light page.
    pub fn css(self) -> String {
        format!("#{:06X}", self.light)
    }

    /// The colours for light and for dark pages.
    pub(crate) fn both(self) -> [String; 2] {
        [self.css(), format!("#{:06X}", self.dark)]
    }

    fn colour(self) -> RGBColor {
        let [_, r, g, b] = self.light.to_be_bytes();
        RGBColor(r, g, b)
    }
}

pub(crate) type At = (f64, f64);

/// The side of a text at which its position is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Left,
    Middle,
    Right,
}

/// The style of a text.
#[derive(Clone, Copy)]
pub(crate) struct Pen {
    pub(crate) size: f64,
    pub(crate) ink: Ink,
    pub(crate) side: Side,
    pub(crate) bold: bool,
}

impl Pen {
    pub(crate) const fn new(size: f64, ink: Ink, side: Side) -> Pen {
        Pen { size, ink, side, bold: false }
    }

    pub(crate) const fn bold(self) -> Pen {
        Pen { bold: true, ..self }
    }
}

/// Dash patterns by number: they distinguish lines even without colours.
const DASHES: [(f64, f64); 6] =
    [(0.0, 0.0), (7.0, 4.0), (2.0, 3.0), (12.0, 4.0), (4.0, 7.0), (1.0, 5.0)];

/// The dash pattern of limits and goals.
pub(crate) const DASHED: usize = 1;

pub(crate) struct Canvas<'a> {
    area: DrawingArea<SVGBackend<'a>, Shift>,
    inks: RefCell<BTreeSet<Ink>>,
}

/// An SVG document of this size. It uses dark colours if the reader prefers them.
pub(crate) fn document(label: &str, (width, height): At, draw: impl FnOnce(&Canvas<'_>)) -> String {
    let mut svg = String::new();
    let size = (width.ceil() as u32, height.ceil() as u32);
    let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
    let canvas = Canvas { area, inks: RefCell::default() };
    canvas.block((0.0, 0.0), (width, height), Ink::PAPER);
    draw(&canvas);
    drawn(canvas.area.present());
    let inks = canvas.inks.take();
    drop(canvas);
    // The file may be opened by itself, so it contains its own rules.
    let (tag, rest) = svg.split_once('>').unwrap_or_default();
    let tag = tag.trim_start_matches("<svg");
    let label = maud::html! { (label) }.into_string();
    let style = style(&inks);
    format!("<svg role=\"img\" aria-label=\"{label}\"{tag}>{style}{}\n", rest.trim_end())
}

fn style(inks: &BTreeSet<Ink>) -> String {
    // Only on screens, because paper is white.
    let mut css = String::from("<style>@media screen and (prefers-color-scheme: dark) {");
    for Ink { light, dark } in inks.iter().filter(|ink| ink.light != ink.dark) {
        for property in ["fill", "stroke"] {
            let _ = write!(css, "svg [{property}=\"#{light:06X}\"]{{{property}:#{dark:06X}}}");
        }
    }
    css + "}</style>"
}

/// Writing SVG to a string can't fail.
fn drawn<E: std::error::Error + Send + Sync>(result: Result<(), E>) {
    result.expect("a string takes everything");
}

fn pixel((x, y): At) -> (i32, i32) {
    (x.round() as i32, y.round() as i32)
}

impl Canvas<'_> {
    fn colour(&self, ink: Ink) -> RGBColor {
        self.inks.borrow_mut().insert(ink);
        ink.colour()
    }

    pub(crate) fn text(&self, words: &str, at: At, pen: Pen) {
        let h = match pen.side {
            Side::Left => HPos::Left,
            Side::Middle => HPos::Center,
            Side::Right => HPos::Right,
        };
        // plotters gives a font's size without its leading.
        let font = ("sans-serif", pen.size * 1.24).into_font();
        let font = if pen.bold { font.style(FontStyle::Bold) } else { font };
        let ink = self.colour(pen.ink);
        let style = TextStyle::from(font).color(&ink).pos(Pos::new(h, VPos::Center));
        drawn(self.area.draw_text(words, &style, pixel(at)));
    }

    /// Text with a background, which hides what is below it.
    pub(crate) fn label(&self, words: &str, (x, y): At, pen: Pen) {
        let wide = width(words, pen.size) * if pen.bold { 1.1 } else { 1.0 };
        self.block((x - 2.0, y - 7.0), (x + wide + 2.0, y + 7.0), Ink::PAPER);
        self.text(words, (x, y), pen);
    }

    /// A line through points.
    pub(crate) fn line(&self, points: &[At], ink: Ink, width: u32, dash: usize) {
        let style = self.colour(ink).stroke_width(width);
        let draw = |points: &[At]| {
            let mut points: Vec<_> = points.iter().map(|at| pixel(*at)).collect();
            points.dedup();
            drawn(self.area.draw(&PathElement::new(points, style)));
        };
        match DASHES[dash % DASHES.len()] {
            (0.0, _) => draw(points),
            pattern => dashes(points, pattern).iter().for_each(|part| draw(part)),
        }
    }

    pub(crate) fn block(&self, from: At, to: At, ink: Ink) {
        let style = self.colour(ink).filled();
        drawn(self.area.draw(&Rectangle::new([pixel(from), pixel(to)], style)));
    }

    pub(crate) fn ring(&self, at: At, radius: f64, ink: Ink, width: u32) {
        let paper = self.colour(Ink::PAPER).filled();
        drawn(self.area.draw(&Circle::new(pixel(at), radius, paper)));
        let style = self.colour(ink).stroke_width(width);
        drawn(self.area.draw(&Circle::new(pixel(at), radius, style)));
    }

    /// A filled mark: 0 a disc, then a square, a diamond, triangles.
    pub(crate) fn mark(&self, shape: usize, at: At, radius: f64, ink: Ink) {
        let style = self.colour(ink).filled();
        let (x, y) = pixel(at);
        let r = radius.round() as i32;
        let polygon =
            |corners: Vec<(i32, i32)>| drawn(self.area.draw(&Polygon::new(corners, style)));
        match shape % 5 {
            0 => drawn(self.area.draw(&Circle::new((x, y), r, style))),
            1 => drawn(self.area.draw(&Rectangle::new([(x - r, y - r), (x + r, y + r)], style))),
            2 => polygon(vec![(x, y - r - 1), (x + r + 1, y), (x, y + r + 1), (x - r - 1, y)]),
            3 => polygon(vec![(x, y - r), (x + r, y + r), (x - r, y + r)]),
            _ => polygon(vec![(x, y + r), (x + r, y - r), (x - r, y - r)]),
        }
    }

    /// An arrow's head at an edge: its value lies beyond the edge.
    pub(crate) fn arrow(&self, (x, y): At, to_right: bool, ink: Ink) {
        let back = if to_right { -8.0 } else { 8.0 };
        let corners = [(x, y), (x + back, y - 5.0), (x + back, y + 5.0)].map(pixel);
        drawn(self.area.draw(&Polygon::new(corners.to_vec(), self.colour(ink).filled())));
    }
}

/// The solid parts of a dashed line. plotters has such a function, but it uses a `hypotf` that needs glibc 2.35.
fn dashes(points: &[At], (long, gap): (f64, f64)) -> Vec<Vec<At>> {
    let (mut parts, mut part) = (Vec::new(), points[..points.len().min(1)].to_vec());
    let (mut is_solid, mut left) = (true, long);
    for pair in points.windows(2) {
        let (mut at, end) = (pair[0], pair[1]);
        loop {
            let (dx, dy) = (end.0 - at.0, end.1 - at.1);
            let far = (dx * dx + dy * dy).sqrt();
            if far < left {
                left -= far;
                part.extend(is_solid.then_some(end));
                break;
            }
            at = (at.0 + dx * left / far, at.1 + dy * left / far);
            part.push(at);
            if is_solid {
                parts.push(std::mem::take(&mut part));
            }
            (is_solid, left) = (!is_solid, if is_solid { gap } else { long });
        }
    }
    if part.len() > 1 {
        parts.push(part);
    }
    parts
}

/// An upper bound for the width of a text: fonts differ, so we use the widest common one (DejaVu Sans).
pub(crate) fn width(text: &str, size: f64) -> f64 {
    let em = |c: char| match c {
        'i' | 'j' | 'l' | 'I' | '.' | ',' | ':' | ';' | '|' | '\'' | '!' | ' ' => 0.34,
        'f' | 't' | 'r' | 'J' | '(' | ')' | '[' | ']' | '/' | '-' | '"' => 0.43,
        'm' | 'w' | 'M' | 'W' | '%' | '@' => 0.99,
        '=' | '+' | '<' | '>' | '~' | '×' | 'O' | 'Q' | 'G' | 'D' | 'N' | 'H' | 'U' => 0.84,
        'A'..='Z' => 0.71,
        c if u32::from(c) < 0x2000 => 0.64,
        _ => 1.0,
    };
    text.chars().map(em).sum::<f64>() * size
}

/// Breaks a text into lines of at most this width, between words if possible, else within words.
pub(crate) fn wrapped(text: &str, size: f64, most: f64) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is one");
        let longer = if line.is_empty() { word.to_owned() } else { format!("{line} {word}") };
        if width(&longer, size) <= most {
            *line = longer;
            continue;
        }
        if !line.is_empty() {
            lines.push(String::new());
        }
        for c in word.chars() {
            let line = lines.last_mut().expect("there is one");
            if !line.is_empty() && width(line, size) + width(&c.to_string(), size) > most {
                lines.push(c.to_string());
            } else {
                line.push(c);
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_ink_that_was_used_has_a_dark_one() {
        let svg = document("a <chart>", (9.0, 9.0), |canvas| {
            canvas.mark(3, (4.0, 4.0), 3.0, Ink::of(0));
            canvas.block((0.0, 0.0), (2.0, 2.0), Ink::fixed(0x0012_3456));
        });
        assert!(svg.contains("svg [fill=\"#0072B2\"]{fill:#58B4EE}"), "{svg}");
        assert!(svg.contains("svg [fill=\"#FFFFFF\"]{fill:#15181C}"), "{svg}");
        assert!(!svg.contains("{fill:#123456}") && svg.contains("aria-label=\"a &lt;chart&gt;\""));
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"), "{svg}");
    }

    #[test]
    fn dashes_go_round_corners() {
        let parts = dashes(&[(0.0, 0.0), (5.0, 0.0), (5.0, 9.0)], (7.0, 4.0));
        let first = vec![(0.0, 0.0), (5.0, 0.0), (5.0, 2.0)];
        assert_eq!(parts, [first, vec![(5.0, 6.0), (5.0, 9.0)]]);
        assert_eq!(dashes(&[], (7.0, 4.0)), Vec::<Vec<At>>::new());
    }

    #[test]
    fn inks_look_different() {
        let named = [
            Ink::PAPER,
            Ink::TEXT,
            Ink::SOFT,
            Ink::FAINT,
            Ink::BAND,
            Ink::ALARM,
            Ink::GOOD,
            Ink::BAD,
            Ink::EVEN,
        ];
        let all = named.into_iter().chain(Ink::SERIES).map(|ink| ink.light);
        assert_eq!(all.collect::<BTreeSet<_>>().len(), named.len() + Ink::SERIES.len());
    }

    #[test]
    fn lines_are_no_wider_than_asked() {
        let text = "a long name: std::collections::hash_map::HashMap<K,V,S>::insert and more";
        let lines = wrapped(text, 12.0, 150.0);
        assert!(lines.iter().all(|line| width(line, 12.0) <= 150.0), "{lines:?}");
        assert_eq!(lines.concat().replace(' ', ""), text.replace(' ', ""));
        assert_eq!(wrapped("short", 12.0, 150.0), ["short"]);
    }
}
