//! The head of every chart: title, source, and a key with as many lines as necessary.

use crate::canvas::{
    Canvas, DASHED, Ink, LARGE, MARGIN, NORMAL, Pen, SMALL, Side, WIDTH, width, wrapped,
};

/// A chart's title, the source of its figures, and its key.
#[derive(Clone, Debug, Default)]
pub struct Head {
    /// The title.
    pub title: String,
    /// The source of the figures.
    pub source: String,
    /// Names, with the styles in which they are drawn.
    pub key: Vec<(String, Style)>,
}

/// How the points of a series are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// A line with marks.
    Line,
    /// A line without marks.
    Curve,
    /// A thin dashed line without marks, for a goal.
    Guide,
    /// Bars.
    Bars,
    /// Marks.
    Marks,
    /// Dots, for thousands of points.
    Dots,
    /// Nothing: only the key mentions the series.
    Nothing,
}

/// The style of a series, in the chart and in its key.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// Its colour.
    pub ink: Ink,
    /// The shape of its marks: 0 a disc, then a square, a diamond, triangles.
    pub shape: usize,
    /// Its dash pattern: 0 for none.
    pub dash: usize,
    /// How points are drawn.
    pub look: Look,
}

impl Style {
    /// The style of the series with this number.
    pub const fn of(number: usize, look: Look) -> Style {
        Style { ink: Ink::of(number), shape: number, dash: 0, look }
    }

    /// A style with this colour.
    pub const fn ink(ink: Ink, look: Look) -> Style {
        Style { ink, shape: 0, dash: 0, look }
    }

    /// This style with another dash pattern.
    #[must_use]
    pub const fn dashed(self, dash: usize) -> Style {
        Style { dash, ..self }
    }

    /// This style with another shape.
    #[must_use]
    pub const fn shaped(self, shape: usize) -> Style {
        Style { shape, ..self }
    }

    fn sign(self, canvas: &Canvas<'_>, (x, y): (f64, f64)) {
        let (from, to, middle) = ((x, y), (x + SIGN, y), (x + SIGN / 2.0, y));
        match self.look {
            Look::Line | Look::Curve => canvas.line(&[from, to], self.ink, 2, self.dash),
            Look::Guide => canvas.line(&[from, to], Ink::SOFT, 1, DASHED),
            Look::Bars => canvas.block((x + 6.0, y - 6.0), (x + SIGN, y + 6.0), self.ink),
            Look::Marks | Look::Dots | Look::Nothing => {}
        }
        if matches!(self.look, Look::Line | Look::Marks | Look::Dots) {
            canvas.mark(self.shape, middle, 4.0, self.ink);
        }
    }
}

const SIGN: f64 = 24.0;
const LINE: f64 = 18.0;

/// The positions of everything in a head.
pub(crate) struct Placed<'a> {
    words: Vec<(String, f64, Pen)>,
    key: Vec<(f64, f64, String, Style)>,
    label: &'a str,
    /// Where the chart begins.
    pub(crate) bottom: f64,
}

impl Head {
    pub(crate) fn placed(&self) -> Placed<'_> {
        let most = WIDTH - 2.0 * MARGIN;
        let mut y = 8.0;
        let mut words = Vec::new();
        let title = Pen::new(LARGE, Ink::TEXT, Side::Left).bold();
        let source = Pen::new(SMALL, Ink::SOFT, Side::Left);
        for (text, pen, step) in [(&self.title, title, 21.0), (&self.source, source, 16.0)] {
            if !text.is_empty() {
                // Bold letters are wider.
                let room = if pen.bold { most / 1.1 } else { most };
                for line in wrapped(text, pen.size, room) {
                    y += step;
                    words.push((line, y - step / 2.0, pen));
                }
            }
        }
        let mut key = Vec::new();
        let mut x = MARGIN;
        y += 4.0;
        for (name, style) in &self.key {
            let (mut sign, style) = (SIGN + 6.0, *style);
            if style.look == Look::Nothing {
                sign = 0.0;
            }
            for (part, text) in wrapped(name, NORMAL, most - sign).into_iter().enumerate() {
                let wide = sign + width(&text, NORMAL) + 18.0;
                if part > 0 || (x > MARGIN && x + wide - 18.0 > WIDTH - MARGIN) {
                    (x, y) = (MARGIN, y + LINE);
                }
                let style = if part == 0 { style } else { Style { look: Look::Nothing, ..style } };
                key.push((x, y + LINE / 2.0, text, style));
                x += wide;
            }
        }
        if !self.key.is_empty() {
            y += LINE;
        }
        Placed { words, key, label: &self.title, bottom: y + 6.0 }
    }
}

impl Placed<'_> {
    /// A document with a chart of this height below the head.
    pub(crate) fn document(&self, height: f64, draw: impl FnOnce(&Canvas<'_>)) -> String {
        crate::canvas::document(self.label, (WIDTH, self.bottom + height), |canvas| {
            for (text, y, pen) in &self.words {
                canvas.text(text, (MARGIN, *y), *pen);
            }
            for (x, y, name, style) in &self.key {
                style.sign(canvas, (*x, *y));
                let (aside, ink) = match style.look {
                    Look::Nothing => (0.0, Ink::SOFT),
                    _ => (SIGN + 6.0, Ink::TEXT),
                };
                canvas.text(name, (x + aside, *y), Pen::new(NORMAL, ink, Side::Left));
            }
            draw(canvas);
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_stays_within_the_chart() {
        let name = |n: usize| format!("lock number {n}: {}", "x".repeat(7 * n));
        let key = (0..24).map(|n| (name(n), Style::of(n, Look::Line))).collect();
        let head = Head { title: "t".repeat(200), source: "s ".repeat(200), key };
        let placed = head.placed();
        for (x, y, text, _) in &placed.key {
            assert!(x + SIGN + 6.0 + width(text, NORMAL) <= WIDTH - MARGIN + SIGN + 6.0, "{text}");
            assert!(*y < placed.bottom);
        }
        let mut spots: Vec<_> =
            placed.key.iter().map(|(x, y, ..)| (*y as i64, *x as i64)).collect();
        spots.dedup();
        assert_eq!(spots.len(), placed.key.len());
        assert!(placed.words.len() > 3);
    }
}
