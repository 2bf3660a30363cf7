//! Panels with curves, bars and dots over a horizontal axis and one or two vertical axes.

use crate::axis::{Axis, Scale};
use crate::canvas::{
    At, Canvas, DASHED, Ink, MARGIN, NORMAL, Pen, SMALL, Side, WIDTH, width, wrapped,
};
use crate::head::{Head, Look, Style};

/// A value with its range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    /// Where the mark is.
    pub middle: f64,
    /// The lower end of the range.
    pub low: f64,
    /// The upper end of the range.
    pub high: f64,
}

impl Range {
    /// A value without a range.
    pub const fn exactly(value: f64) -> Range {
        Range { middle: value, low: value, high: value }
    }
}

/// A series of points.
#[derive(Clone, Debug)]
pub struct Series {
    /// How they are drawn.
    pub style: Style,
    /// Does it use the right axis?
    pub right: bool,
    /// In the order of x.
    pub dots: Vec<(f64, Range)>,
}

impl Series {
    /// A series without ranges on the left axis.
    pub fn exact(style: Style, dots: impl IntoIterator<Item = (f64, f64)>) -> Series {
        let dots = dots.into_iter().map(|(x, y)| (x, Range::exactly(y))).collect();
        Series { style, right: false, dots }
    }
}

/// Annotations in a panel.
#[derive(Clone, Debug)]
pub enum Note {
    /// A dashed vertical line at an x, with its name.
    Upright(f64, String, Ink),
    /// A dashed horizontal line at a y of the left axis, with its name beside the panel.
    Level(f64, String),
    /// Shading up to an x, with its name.
    Band(f64, String),
    /// Words at a point.
    Words(f64, f64, String, Ink),
}

/// Series over one pair of axes.
#[derive(Clone, Debug)]
pub struct Panel {
    /// The title above the panel.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The left axis.
    pub y: Axis,
    /// The right one, if there is one.
    pub right: Option<Axis>,
    /// The series.
    pub series: Vec<Series>,
    /// The annotations.
    pub notes: Vec<Note>,
}

impl Panel {
    /// A panel with only a left axis.
    pub fn new(title: impl Into<String>, x: Axis, y: Axis, series: Vec<Series>) -> Panel {
        Panel { title: title.into(), x, y, right: None, series, notes: Vec::new() }
    }
}

/// Several panels below one head.
#[derive(Clone, Debug)]
pub struct Curves {
    /// The head above all panels.
    pub head: Head,
    /// Number of panels side by side.
    pub columns: usize,
    /// Height of each panel.
    pub height: f64,
    /// Ordered from left to right, then down.
    pub panels: Vec<Panel>,
}

/// Half the width of a bar, relative to the distance of two bars.
const HALF: f64 = 0.3;
/// Height of a line of names below a panel.
const LINE: f64 = 14.0;
/// Gap between panels.
const GAP: f64 = 14.0;

const SOFT: Pen = Pen::new(SMALL, Ink::SOFT, Side::Left);
const NAME: Pen = Pen::new(NORMAL, Ink::TEXT, Side::Left);

impl Curves {
    /// Panels below each other; three or more are arranged in two columns.
    pub fn new(head: Head, panels: Vec<Panel>) -> Curves {
        Curves { head, columns: if panels.len() > 2 { 2 } else { 1 }, height: 270.0, panels }
    }

    /// Draws the panels.
    pub fn svg(&self) -> String {
        let placed = self.head.placed();
        let columns = self.columns.max(1);
        let wide = (WIDTH - 2.0 * MARGIN + GAP) / columns as f64 - GAP;
        let frames: Vec<Frame<'_>> = self.panels.iter().map(Frame::new).collect();
        // Use the same margins everywhere, so that axes are aligned.
        let most = |of: &dyn Fn(&Frame<'_>) -> f64| frames.iter().map(of).fold(0.0, f64::max);
        let (left, right) = (most(&|frame| frame.left()), most(&|frame| frame.right()));
        let room = wide - left - right;
        let (head, foot) = (most(&|frame| frame.head()), most(&|frame| frame.foot(room)));
        let tall = head + self.height + foot;
        let rows = self.panels.len().div_ceil(columns);
        placed.document(rows as f64 * tall + 4.0, |canvas| {
            for (number, frame) in frames.iter().enumerate() {
                let x = MARGIN + left + (number % columns) as f64 * (wide + GAP);
                let y = placed.bottom + (number / columns) as f64 * tall + head;
                frame.draw(canvas, (x, y), (x + room, y + self.height), x - left);
            }
        })
    }
}

/// A panel and its scales.
struct Frame<'a> {
    panel: &'a Panel,
    x: Scale<'a>,
    y: Scale<'a>,
    right: Option<Scale<'a>>,
}

impl<'a> Frame<'a> {
    fn new(panel: &'a Panel) -> Frame<'a> {
        let own = |right: bool| panel.series.iter().filter(move |series| series.right == right);
        let values = |right: bool| {
            let ranges = own(right).flat_map(|series| series.dots.iter().map(|(_, range)| range));
            ranges.flat_map(|range| [range.low, range.middle, range.high]).filter(|y| y.is_finite())
        };
        let levels = panel.notes.iter().filter_map(|note| match note {
            Note::Level(y, _) => Some(*y),
            _ => None,
        });
        let across = panel.series.iter().flat_map(|series| series.dots.iter().map(|(x, _)| *x));
        Frame {
            panel,
            x: Scale::across(&panel.x, across),
            y: Scale::of(&panel.y, values(false).chain(levels)),
            right: panel.right.as_ref().map(|axis| Scale::of(axis, values(true))),
        }
    }

    fn left(&self) -> f64 {
        self.y.names_width() + 8.0
    }

    fn right(&self) -> f64 {
        let axis = self.right.as_ref().map_or(0.0, |scale| scale.names_width() + 8.0);
        let levels = self.levels().map(|(_, name)| width(name, SMALL) + 8.0).fold(0.0, f64::max);
        axis.max(levels)
    }

    fn levels(&self) -> impl Iterator<Item = (f64, &str)> {
        self.panel.notes.iter().filter_map(|note| match note {
            Note::Level(y, name) => Some((*y, name.as_str())),
            _ => None,
        })
    }

    fn has_axis_names(&self) -> bool {
        !self.panel.y.title().is_empty() || self.panel.right.is_some()
    }

    fn head(&self) -> f64 {
        let title = if self.panel.title.is_empty() { 0.0 } else { 18.0 };
        let names = if self.has_axis_names() { 16.0 } else { 0.0 };
        title + names + 12.0
    }

    fn foot(&self, room: f64) -> f64 {
        let lines = self.x.placed(room).into_iter().filter_map(|(_, placed)| Some(placed?.0));
        let names = (1 + lines.max().unwrap_or(0)) as f64 * LINE;
        names + if self.panel.x.title().is_empty() { 12.0 } else { 30.0 }
    }

    /// Draws it between two corners; its title begins at `from`.
    fn draw(&self, canvas: &Canvas<'_>, (left, top): At, (right, bottom): At, from: f64) {
        let x = |value: f64| left + self.x.share(value) * (right - left);
        let up = |scale: &Scale<'_>, value: f64| bottom - scale.share(value) * (bottom - top);
        let y = |value: f64| up(&self.y, value);
        for note in &self.panel.notes {
            if let Note::Band(to, _) = note {
                canvas.block((left, top), (x(*to), bottom), Ink::BAND);
            }
        }
        self.axes(canvas, (left, top), (right, bottom), from);
        let mut marks = Vec::new();

        for series in &self.panel.series {
            let scale = self.right.as_ref().filter(|_| series.right).unwrap_or(&self.y);
            let place = |(at, range): &(f64, Range)| (x(*at), up(scale, range.middle));
            let known = series.dots.iter().filter(|(_, range)| range.middle.is_finite());
            let path: Vec<At> = known.clone().map(place).collect();
            let Style { ink, shape, dash, look } = series.style;
            match look {
                Look::Line | Look::Curve => canvas.line(&path, ink, 2, dash),
                Look::Guide => canvas.line(&path, Ink::SOFT, 1, DASHED),
                _ => {}
            }
            let size = match look {
                Look::Line if dash > 0 => 3.0,
                Look::Line => 4.0,
                Look::Marks => 5.0,
                // Few enough to tell their colours apart.
                Look::Dots if series.dots.len() <= 300 => 2.0,
                _ => 1.0,
            };
            for ((at, range), place) in known.zip(path) {
                match look {
                    Look::Bars => {
                        canvas.block((x(at - HALF), place.1), (x(at + HALF), bottom), ink);
                    }
                    Look::Line | Look::Marks => {
                        canvas.mark(shape, place, size, ink);
                        marks.push(around(place, size));
                    }
                    Look::Dots => canvas.mark(shape, place, size, ink),
                    Look::Curve | Look::Guide | Look::Nothing => {}
                }
                if range.low < range.high {
                    let (low, high) = (up(scale, range.low), up(scale, range.high));
                    canvas.line(&[(place.0, low), (place.0, high)], ink, 1, 0);
                }
            }
        }

        let mut words = Words { taken: marks, from: (left, top), to: (right, bottom) };
        for note in &self.panel.notes {
            match note {
                Note::Band(to, name) => {
                    words.put(canvas, (left.min(x(*to)), top + 12.0), name, Ink::SOFT)
                }
                Note::Upright(at, name, ink) => {
                    canvas.line(&[(x(*at), top), (x(*at), bottom)], *ink, 1, DASHED);
                    words.put(canvas, (x(*at), top + 12.0), name, *ink);
                }
                Note::Words(at, value, name, ink) => {
                    words.put(canvas, (x(*at), y(*value)), name, *ink);
                }
                Note::Level(value, _) => {
                    let ends = [(left, y(*value)), (right, y(*value))];
                    canvas.line(&ends, Ink::SOFT, 1, DASHED);
                }
            }
        }
        let mut levels: Vec<(f64, &str)> =
            self.levels().map(|(value, name)| (y(value), name)).collect();
        spread_out(&mut levels);
        for (y, name) in levels {
            canvas.text(name, (right + 8.0, y), SOFT);
        }
    }

    fn axes(&self, canvas: &Canvas<'_>, (left, top): At, (right, bottom): At, from: f64) {
        let panel = self.panel;
        let x = |value: f64| left + self.x.share(value) * (right - left);
        let up = |scale: &Scale<'_>, value: f64| bottom - scale.share(value) * (bottom - top);
        let names = top - 15.0;
        let title = names - if self.has_axis_names() { 17.0 } else { 0.0 };
        let heading = wrapped(&panel.title, NORMAL * 1.1, right - from);
        let heading = match &heading[..] {
            [one] => one.clone(),
            many => format!("{}…", many[0]),
        };
        canvas.text(&heading, (from, title), NAME.bold());
        canvas.text(&panel.y.title(), (from, names), SOFT);
        for (tick, name) in self.y.ticks() {
            let y = up(&self.y, tick);
            canvas.line(&[(left, y), (right, y)], Ink::FAINT, 1, 0);
            canvas.text(&name, (left - 8.0, y), Pen { side: Side::Right, ..SOFT });
        }
        if let Some((scale, axis)) = self.right.as_ref().zip(panel.right.as_ref()) {
            let end = right + self.right();
            canvas.text(&axis.title(), (end, names), Pen { side: Side::Right, ..SOFT });
            for (tick, name) in scale.ticks() {
                let y = up(scale, tick);
                canvas.line(&[(right, y), (right + 4.0, y)], Ink::SOFT, 1, 0);
                canvas.text(&name, (right + 8.0, y), SOFT);
            }
        }
        for (tick, placed) in self.x.placed(right - left) {
            canvas.line(&[(x(tick), top), (x(tick), bottom)], Ink::FAINT, 1, 0);
            if let Some((line, name)) = placed {
                let at = (x(tick), bottom + 14.0 + line as f64 * LINE);
                canvas.text(&name, at, Pen { side: Side::Middle, ..SOFT });
            }
        }
        canvas.line(&[(left, bottom), (right, bottom)], Ink::SOFT, 1, 0);
        // A logarithmic axis is broken between 0 and the smallest value.
        for shift in [-2.0, 2.0] {
            if self.x.zero {
                let at = (x(0.0) + x(self.x.least())) / 2.0 + shift;
                canvas.line(&[(at - 2.0, bottom + 5.0), (at + 2.0, bottom - 5.0)], Ink::TEXT, 1, 0);
            }
            if self.y.zero {
                let at = (up(&self.y, 0.0) + up(&self.y, self.y.least())) / 2.0 + shift;
                canvas.line(&[(left - 5.0, at + 2.0), (left + 5.0, at - 2.0)], Ink::TEXT, 1, 0);
            }
        }
        let middle = Pen { side: Side::Middle, ..NAME };
        canvas.text(
            &panel.x.title(),
            ((left + right) / 2.0, bottom + self.foot(right - left) - 14.0),
            middle,
        );
    }
}

/// Moves labels apart where they would overlap, from top to bottom.
fn spread_out(labels: &mut [(f64, &str)]) {
    labels.sort_by(|a, b| a.0.total_cmp(&b.0));
    for n in 1..labels.len() {
        labels[n].0 = labels[n].0.max(labels[n - 1].0 + 14.0);
    }
}

/// The square that a mark covers.
fn around((x, y): At, half: f64) -> (At, At) {
    ((x - half, y - half), (x + half, y + half))
}

/// Places words in a panel without overlaps, and beside the marks.
struct Words {
    taken: Vec<(At, At)>,
    from: At,
    to: At,
}

impl Words {
    /// Puts words to the right or left of a point, or else as near as possible.
    fn put(&mut self, canvas: &Canvas<'_>, at: At, words: &str, ink: Ink) {
        let (x, y) = self.place(at, width(words, SMALL));
        if words.is_empty() {
            return;
        }
        canvas.label(words, (x, y), Pen { ink, ..SOFT });
    }

    fn place(&mut self, (x, y): At, wide: f64) -> At {
        let (half, step) = (7.0, 5.0);
        let sides = [x + 9.0, x - 9.0 - wide];
        let shifts = (0..60).map(|n| if n % 2 == 0 { n / 2 } else { -(n / 2) - 1 });
        let spots = shifts.flat_map(|n| sides.map(|left| (left, y + f64::from(n) * step)));
        let free = |&(left, y): &At| {
            let inside = left >= self.from.0
                && left + wide <= self.to.0
                && y - half >= self.from.1
                && y + half <= self.to.1;
            let apart = |((l, t), (r, b)): &(At, At)| {
                left >= *r || left + wide <= *l || y - half >= *b || y + half <= *t
            };
            inside && self.taken.iter().all(apart)
        };
        let spot = spots.into_iter().find(free).unwrap_or((sides[0], y));
        self.taken.push(((spot.0, spot.1 - half), (spot.0 + wide, spot.1 + half)));
        spot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(value: f64) -> String {
        value.to_string()
    }

    fn head(key: &[&str]) -> Head {
        let key = key.iter().enumerate();
        Head {
            title: "a title".into(),
            source: "measured: a machine".into(),
            key: key.map(|(n, name)| ((*name).to_owned(), Style::of(n, Look::Line))).collect(),
        }
    }

    #[test]
    fn a_chart_has_its_parts() {
        let range = |middle: f64| Range { middle, low: middle * 0.9, high: middle * 1.1 };
        let series = |n: usize, look| Series {
            style: Style::of(n, look).dashed(n % 2),
            right: n == 4,
            dots: vec![(0.0, range(10.0 + n as f64)), (1.0, range(2000.0))],
        };
        let looks = [Look::Bars, Look::Line, Look::Guide, Look::Marks, Look::Dots, Look::Curve];
        let all: Vec<_> = looks.into_iter().enumerate().map(|(n, l)| series(n, l)).collect();
        let mut panel = Panel::new(
            "one",
            Axis::names("", vec!["mcs".into(), "tas".into()]),
            Axis::log("P99", number),
            all,
        );
        panel.right = Some(Axis::linear("a rate", number));
        panel.notes = vec![
            Note::Band(0.5, "infeasible".into()),
            Note::Upright(1.0, "chosen".into(), Ink::TEXT),
            Note::Level(100.0, "fifo".into()),
            Note::Words(1.0, 100.0, "here".into(), Ink::of(1)),
        ];
        let other =
            Panel::new("two", Axis::linear("gap", number), Axis::linear("y", number), vec![]);
        let chart = Curves::new(head(&["mcs", "tas <1>"]), vec![panel, other]);
        let svg = chart.svg();
        for part in [
            "a title",
            "measured: a machine",
            "tas &lt;1&gt;",
            "one",
            "P99 (logarithmic)",
            "a rate",
            "infeasible",
            "chosen",
            "fifo",
            "here",
            "two",
            "gap",
            "prefers-color-scheme: dark",
        ] {
            assert!(svg.contains(part), "no '{part}' in {svg}");
        }
        assert_eq!((svg.matches("<svg").count(), &svg), (1, &chart.svg()));
    }

    #[test]
    fn a_logarithmic_axis_with_a_zero_is_broken() {
        let strokes = |first: f64| {
            let dots = [first, 10.0, 1000.0].map(|x| (x, 5.0));
            let series = vec![Series::exact(Style::of(0, Look::Line), dots)];
            let panel = Panel::new("", Axis::log("gap", number), Axis::linear("", number), series);
            let svg = Curves::new(head(&[]), vec![panel]).svg();
            svg.matches("<polyline").count() + svg.matches("<line").count()
        };
        let ticks = |first: f64| {
            let axis = Axis::log("", number);
            Scale::across(&axis, [first, 10.0, 1000.0].into_iter()).ticks().len()
        };
        assert_eq!(strokes(0.0) - ticks(0.0), strokes(1.0) - ticks(1.0) + 2);
    }

    #[test]
    fn labels_keep_apart() {
        let mut labels = [(50.0, "b"), (45.0, "a"), (90.0, "c")];
        spread_out(&mut labels);
        assert_eq!(labels.map(|(y, _)| y), [45.0, 59.0, 90.0]);
        let mut words = Words { taken: Vec::new(), from: (0.0, 0.0), to: (200.0, 100.0) };
        let places = [(); 4].map(|()| words.place((190.0, 50.0), 60.0));
        let mark = around((90.0, 20.0), 4.0);
        let mut beside = Words { taken: vec![mark], from: (0.0, 0.0), to: (200.0, 100.0) };
        assert_eq!(beside.place((50.0, 20.0), 60.0), (59.0, 35.0), "a word hides a mark");
        for (n, (x, y)) in places.iter().enumerate() {
            assert!(*x >= 0.0 && x + 60.0 <= 200.0 && (7.0..=93.0).contains(y), "{places:?}");
            assert!(places[..n].iter().all(|(_, other)| (y - other).abs() >= 14.0), "{places:?}");
        }
    }
}
