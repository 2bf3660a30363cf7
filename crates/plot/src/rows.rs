//! Rows of marks beside their names, in one or more columns, each with its own axis.

use crate::axis::{Axis, Scale};
use crate::canvas::{Canvas, DASHED, Ink, MARGIN, NORMAL, Pen, SMALL, Side, WIDTH, width, wrapped};
use crate::curves::Range;
use crate::head::Head;

/// The kind of a mark.
#[derive(Clone, Copy, Debug, PartialEq)]
enum MarkKind {
    Bar,
    Span(f64),
    Dot(usize),
    Ring,
    Stop,
    Round,
}

/// A mark at a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mark {
    at: f64,
    ink: Ink,
    kind: MarkKind,
}

impl Mark {
    /// A bar from the start of the axis.
    pub const fn bar(to: f64, ink: Ink) -> Mark {
        Mark { at: to, ink, kind: MarkKind::Bar }
    }

    /// A line between two values.
    pub const fn span(from: f64, to: f64, ink: Ink) -> Mark {
        Mark { at: from, ink, kind: MarkKind::Span(to) }
    }

    /// A filled mark of this shape. Beyond the end of the axis, it becomes an arrow.
    pub const fn dot(at: f64, shape: usize, ink: Ink) -> Mark {
        Mark { at, ink, kind: MarkKind::Dot(shape) }
    }

    /// An open mark.
    pub const fn ring(at: f64, ink: Ink) -> Mark {
        Mark { at, ink, kind: MarkKind::Ring }
    }

    /// A stroke across the row.
    pub const fn stop(at: f64, ink: Ink) -> Mark {
        Mark { at, ink, kind: MarkKind::Stop }
    }

    /// One of the values whose median a bar shows.
    pub const fn round(at: f64) -> Mark {
        Mark { at, ink: Ink::TEXT, kind: MarkKind::Round }
    }

    fn values(&self) -> [f64; 2] {
        match self.kind {
            MarkKind::Span(to) => [self.at, to],
            _ => [self.at, self.at],
        }
    }
}

/// A row's marks in one column, and the words after them.
#[derive(Clone, Debug, Default)]
pub struct Cell {
    /// In drawing order.
    pub marks: Vec<Mark>,
    /// One text for each of the column's heads; missing ones stay blank.
    pub words: Vec<String>,
}

impl Cell {
    /// A bar, a line for its range, and words.
    pub fn bar(range: Range, ink: Ink, words: String) -> Cell {
        let marks =
            vec![Mark::bar(range.middle, ink), Mark::span(range.low, range.high, Ink::TEXT)];
        Cell { marks, words: vec![words] }
    }

    /// A cell with only words.
    pub fn words(words: &str) -> Cell {
        Cell { marks: Vec::new(), words: vec![words.to_owned()] }
    }
}

/// A row.
#[derive(Clone, Debug)]
pub struct Row {
    /// The name to its left.
    pub name: String,
    /// One for each column.
    pub cells: Vec<Cell>,
}

/// Rows with a common heading.
#[derive(Clone, Debug)]
pub struct Group {
    /// The heading.
    pub title: String,
    /// From top to bottom.
    pub rows: Vec<Row>,
}

/// A line through a whole column.
#[derive(Clone, Debug)]
pub struct ColumnLine {
    /// Its value.
    pub at: f64,
    /// The name at its upper end.
    pub name: String,
    /// The colour. The line is dashed.
    pub ink: Ink,
}

/// A column.
#[derive(Clone, Debug)]
pub struct Column {
    /// The title above it.
    pub title: String,
    /// The axis of its marks.
    pub axis: Axis,
    /// The headings of the words after the marks.
    pub heads: Vec<String>,
    /// Lines through all rows.
    pub rules: Vec<ColumnLine>,
}

impl Column {
    /// A column without rules.
    pub fn new(title: impl Into<String>, axis: Axis, heads: &[&str]) -> Column {
        let heads = heads.iter().map(|head| (*head).to_owned()).collect();
        Column { title: title.into(), axis, heads, rules: Vec::new() }
    }
}

/// Groups of rows with the same columns.
#[derive(Clone, Debug)]
pub struct Block {
    /// From left to right.
    pub columns: Vec<Column>,
    /// From top to bottom.
    pub groups: Vec<Group>,
}

/// Several blocks below one head.
#[derive(Clone, Debug)]
pub struct Rows {
    /// The head above all blocks.
    pub head: Head,
    /// Ordered from top to bottom.
    pub blocks: Vec<Block>,
}

/// Height of a row whose name has one line. Each further line adds as much as a line of text.
const ROW: f64 = 22.0;
const LINE: f64 = 14.0;
/// Height of a group's heading.
const TITLE: f64 = 26.0;
/// Maximum width of the names.
const NAMES: f64 = 240.0;
const GAP: f64 = 14.0;
/// Height below the rows, for ticks and the axis's name.
const FOOT: f64 = 52.0;

const NAME: Pen = Pen::new(NORMAL, Ink::TEXT, Side::Right);
const SOFT: Pen = Pen::new(SMALL, Ink::SOFT, Side::Middle);

impl Rows {
    /// Draws the blocks.
    pub fn svg(&self) -> String {
        let placed = self.head.placed();
        let rows = self.blocks.iter().flat_map(|block| block.groups.iter().flat_map(|g| &g.rows));
        let names = rows.map(|row| width(&row.name, NORMAL)).fold(0.0, f64::max).min(NAMES);
        let height: f64 = self.blocks.iter().map(Block::height).sum();
        placed.document(height, |canvas| {
            let mut y = placed.bottom;
            for block in &self.blocks {
                block.draw(canvas, y, MARGIN + names + 10.0);
                y += block.height();
            }
        })
    }
}

impl Row {
    fn name_lines(&self) -> Vec<String> {
        wrapped(&self.name, NORMAL, NAMES)
    }

    fn height(&self) -> f64 {
        ROW + (self.name_lines().len() as f64 - 1.0) * LINE
    }

    fn marks(&self, column: usize) -> &[Mark] {
        self.cells.get(column).map_or(&[], |cell| &cell.marks)
    }
}

impl Group {
    fn title_height(&self) -> f64 {
        if self.title.is_empty() { 0.0 } else { TITLE }
    }

    fn height(&self) -> f64 {
        self.title_height() + self.rows.iter().map(Row::height).sum::<f64>()
    }
}

/// A column's place and scale.
struct Frame<'a> {
    column: &'a Column,
    number: usize,
    scale: Scale<'a>,
    left: f64,
    /// Where the plot ends and the words begin.
    right: f64,
    /// The right ends of the words.
    words: Vec<f64>,
}

impl Block {
    fn head(&self) -> f64 {
        let any = |of: &dyn Fn(&Column) -> bool| self.columns.iter().any(of);
        let title = if any(&|column| !column.title.is_empty()) { 20.0 } else { 0.0 };
        let labels = any(&|column| {
            !column.heads.iter().all(String::is_empty)
                || column.rules.iter().any(|rule| !rule.name.is_empty())
        });
        title + if labels { 16.0 } else { 0.0 } + 4.0
    }

    fn height(&self) -> f64 {
        self.head() + self.groups.iter().map(Group::height).sum::<f64>() + FOOT
    }

    fn rows(&self) -> impl Iterator<Item = &Row> + Clone {
        self.groups.iter().flat_map(|group| &group.rows)
    }

    fn frame<'a>(&'a self, number: usize, left: f64, wide: f64) -> Frame<'a> {
        let column = &self.columns[number];
        let marks = self.rows().flat_map(move |row| row.marks(number));
        let rules = column.rules.iter().map(|rule| rule.at);
        let scale = Scale::of(&column.axis, marks.flat_map(Mark::values).chain(rules));
        let mut right = left + wide;
        let mut words = Vec::new();
        for (place, head) in column.heads.iter().enumerate().rev() {
            words.insert(0, right);
            let texts = self.rows().filter_map(|row| row.cells.get(number)?.words.get(place));
            let widest = texts.map(|text| width(text, SMALL)).fold(width(head, SMALL), f64::max);
            right -= widest + 10.0;
        }
        Frame { column, number, scale, left, right, words }
    }

    fn draw(&self, canvas: &Canvas<'_>, top: f64, left: f64) {
        let wide = (WIDTH - MARGIN - left + GAP) / self.columns.len() as f64;
        let first = top + self.head();
        for number in 0..self.columns.len() {
            let frame = self.frame(number, left + number as f64 * wide, wide - GAP);
            frame.draw(canvas, self, top, first);
        }
        let mut y = first;
        for group in &self.groups {
            let middle = y + group.title_height() / 2.0 + 2.0;
            canvas.label(&group.title, (MARGIN, middle), Pen { side: Side::Left, ..NAME }.bold());
            y += group.title_height();
            for row in &group.rows {
                let lines = row.name_lines();
                for (n, line) in lines.iter().enumerate() {
                    let middle = y + ROW / 2.0 + n as f64 * LINE;
                    canvas.text(line, (left - 10.0, middle), NAME);
                }
                y += row.height();
            }
        }
    }
}

impl Frame<'_> {
    fn x(&self, value: f64) -> f64 {
        self.left + self.scale.share(value) * (self.right - self.left)
    }

    fn draw(&self, canvas: &Canvas<'_>, block: &Block, top: f64, first: f64) {
        let centre = f64::midpoint(self.left, self.right);
        let title = Pen { side: Side::Left, ..NAME }.bold();
        canvas.text(&self.column.title, (self.left, top + 10.0), title);
        for (head, x) in self.column.heads.iter().zip(&self.words) {
            canvas.text(head, (*x, first - 10.0), Pen { side: Side::Right, ..SOFT });
        }
        let (mut y, mut bottom) = (first, first);
        let places = self.scale.placed(self.right - self.left);
        for group in &block.groups {
            let (from, to) = (y + group.title_height(), y + group.height());
            y = to;
            // A group without marks in this column has no grid there.
            if group.rows.iter().all(|row| row.marks(self.number).is_empty()) {
                continue;
            }
            bottom = to;
            for (tick, _) in &places {
                canvas.line(&[(self.x(*tick), from), (self.x(*tick), to)], Ink::FAINT, 1, 0);
            }
            let mut y = from;
            for row in &group.rows {
                self.row(canvas, row, y + ROW / 2.0);
                y += row.height();
            }
        }
        for rule in &self.column.rules {
            let x = self.x(rule.at);
            canvas.line(&[(x, first - 4.0), (x, bottom)], rule.ink, 1, DASHED);
            canvas.text(&rule.name, (x, first - 10.0), Pen { ink: rule.ink, ..SOFT });
        }
        for (tick, placed) in places {
            if let Some((_, name)) = placed {
                canvas.text(&name, (self.x(tick), bottom + 12.0), SOFT);
            }
        }
        canvas.text(self.column.axis.name(), (centre, bottom + 30.0), SOFT);
    }

    fn row(&self, canvas: &Canvas<'_>, row: &Row, y: f64) {
        let Some(cell) = row.cells.get(self.number) else { return };
        for mark in &cell.marks {
            let (x, ink) = (self.x(mark.at), mark.ink);
            match mark.kind {
                MarkKind::Bar => canvas.block((self.left, y - 7.0), (x, y + 7.0), ink),
                MarkKind::Span(to) => canvas.line(&[(x, y), (self.x(to), y)], ink, 2, 0),
                MarkKind::Dot(_) if !self.scale.holds(mark.at) => {
                    let to_right = x > f64::midpoint(self.left, self.right);
                    canvas.arrow((x, y), to_right, ink);
                }
                MarkKind::Dot(shape) => canvas.mark(shape, (x, y), 4.0, ink),
                MarkKind::Ring => canvas.ring((x, y), 4.0, ink, 2),
                MarkKind::Stop => canvas.line(&[(x, y - 8.0), (x, y + 8.0)], ink, 2, 0),
                MarkKind::Round => canvas.ring((x, y), 2.5, ink, 1),
            }
        }
        for (text, x) in cell.words.iter().zip(&self.words) {
            let pen = Pen { ink: Ink::TEXT, side: Side::Right, ..SOFT };
            canvas.text(text, (*x, y), pen);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::{Look, Style};

    #[test]
    fn rows_have_their_marks_words_and_rules() {
        let number = |value: f64| format!("{value}");
        let marks = vec![
            Mark::bar(2.0, Ink::of(0)),
            Mark::span(1.0, 3.0, Ink::TEXT),
            Mark::ring(2.0, Ink::of(1)),
            Mark::stop(3.0, Ink::of(1)),
            Mark::round(1.5),
            Mark::dot(90.0, 0, Ink::BAD),
        ];
        let cell = Cell { marks, words: vec!["2.00 M".into()] };
        let row = Row { name: "a-lock::of<a very long name> ".repeat(3), cells: vec![cell] };
        let mut column =
            Column::new("throughput", Axis::log("op/s", number).within(0.5, 8.0), &["rate"]);
        column.rules = vec![ColumnLine { at: 4.0, name: "SLO".into(), ink: Ink::ALARM }];
        let empty = Row { name: "none".into(), cells: vec![Cell::default()] };
        let group = |title: &str, row| Group { title: title.into(), rows: vec![row] };
        let chart = Rows {
            head: Head {
                title: "a title".into(),
                source: "measured".into(),
                key: vec![("ours".into(), Style::of(0, Look::Bars))],
            },
            blocks: vec![Block {
                columns: vec![column],
                groups: vec![group("2 threads", row), group("8 threads", empty)],
            }],
        };
        let svg = chart.svg();
        for part in ["a title", "throughput", "op/s", "rate", "2.00 M", "SLO", "ours"] {
            assert!(svg.contains(part), "no '{part}' in {svg}");
        }
        // A value beyond the axis becomes an arrow. Long names take several lines.
        assert_eq!(svg.matches("<polygon").count(), 1, "{svg}");
        assert!(svg.matches("long name").count() >= 2, "{svg}");
    }
}
