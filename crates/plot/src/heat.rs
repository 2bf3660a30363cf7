//! Heat maps: tables with coloured fields.

use crate::canvas::{Canvas, Ink, MARGIN, NORMAL, Pen, SMALL, Side, WIDTH, width};
use crate::head::{Head, Look, Style};

/// A step of the colour scale.
#[derive(Clone, Copy, Debug)]
pub struct ColourStep {
    /// The name in the key.
    pub name: &'static str,
    /// The field's colour.
    pub paper: Ink,
    /// The colour of its figure.
    pub ink: Ink,
}

/// One table.
#[derive(Clone, Debug)]
pub struct HeatBlock {
    /// The title at the upper left.
    pub title: String,
    /// The note at the upper right.
    pub note: String,
    /// The label above the rows' names.
    pub down: String,
    /// The label above the columns' names.
    pub across: String,
    /// The columns' names.
    pub columns: Vec<String>,
    /// Each row's name and fields.
    pub rows: Vec<(String, Vec<Field>)>,
}

/// The index of the step in [`Heat::steps`], and the text; `None`: blank.
pub type Field = Option<(usize, String)>;

/// Several tables in two columns.
#[derive(Clone, Debug)]
pub struct Heat {
    /// The head above all tables; its key shows the steps.
    pub head: Head,
    /// The colour scale.
    pub steps: Vec<ColourStep>,
    /// Ordered from left to right, then down.
    pub blocks: Vec<HeatBlock>,
}

const ROW: f64 = 24.0;
const HEAD: f64 = 62.0;
const FOOT: f64 = 16.0;
const BETWEEN: f64 = 34.0;

const SOFT: Pen = Pen::new(SMALL, Ink::SOFT, Side::Left);

impl Heat {
    /// Draws the tables.
    pub fn svg(&self) -> String {
        let mut head = self.head.clone();
        let key = |step: &ColourStep| (step.name.to_owned(), Style::ink(step.paper, Look::Bars));
        head.key = self.steps.iter().map(key).collect();
        let placed = head.placed();
        let rows: Vec<&[HeatBlock]> = self.blocks.chunks(2).collect();
        let tall = |row: &[HeatBlock]| row.iter().map(HeatBlock::height).fold(0.0, f64::max);
        let wide = (WIDTH - 2.0 * MARGIN - BETWEEN) / 2.0;
        placed.document(rows.iter().map(|row| tall(row)).sum(), |canvas| {
            let mut y = placed.bottom;
            for row in rows {
                for (n, block) in row.iter().enumerate() {
                    let x = MARGIN + n as f64 * (wide + BETWEEN);
                    block.draw(canvas, (x, y), wide, &self.steps);
                }
                y += tall(row);
            }
        })
    }
}

impl HeatBlock {
    fn height(&self) -> f64 {
        HEAD + self.rows.len() as f64 * ROW + FOOT
    }

    fn draw(&self, canvas: &Canvas<'_>, (left, top): (f64, f64), wide: f64, steps: &[ColourStep]) {
        let names = self.rows.iter().map(|(name, _)| name).chain([&self.down]);
        let names = names.map(|name| width(name, NORMAL)).fold(0.0, f64::max) + 12.0;
        let field = (wide - names) / self.columns.len().max(1) as f64;
        let (right, from) = (Side::Right, left + names);
        let title = Pen::new(NORMAL, Ink::TEXT, Side::Left).bold();
        canvas.text(&self.title, (left, top + 14.0), title);
        canvas.text(&self.note, (left + wide, top + 14.0), Pen { side: right, ..SOFT });
        canvas.text(&self.down, (left, top + HEAD - 12.0), SOFT);
        let middle = Pen { side: Side::Middle, ..SOFT };
        canvas.text(&self.across, (from + (wide - names) / 2.0, top + 34.0), middle);
        for (n, name) in self.columns.iter().enumerate() {
            canvas.text(name, (from + (n as f64 + 0.5) * field, top + HEAD - 12.0), middle);
        }
        for (row, (name, fields)) in self.rows.iter().enumerate() {
            let y = top + HEAD + row as f64 * ROW;
            let pen = Pen::new(NORMAL, Ink::TEXT, right);
            canvas.text(name, (from - 12.0, y + ROW / 2.0), pen);
            for (n, shown) in fields.iter().enumerate() {
                let Some((step, text)) = shown else { continue };
                let (x, ColourStep { paper, ink, .. }) = (from + n as f64 * field, steps[*step]);
                canvas.block((x, y), (x + field - 2.0, y + ROW - 2.0), paper);
                let pen = Pen::new(NORMAL, ink, Side::Middle);
                canvas.text(text, (x + field / 2.0 - 1.0, y + ROW / 2.0), pen);
            }
        }
    }
}
