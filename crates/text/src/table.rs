//! Tables that fit a terminal.

use crate::{WIDTH, wrapped};
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table, Width, presets};
use std::ops::Range;

/// A table with this header, formatted for people.
pub fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(header);
    table
}

/// Figures stand to the right in these columns; those that the table lacks don't matter.
pub fn right(table: &mut Table, columns: Range<usize>) {
    for column in columns {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}

/// The columns that a table may use: the terminal's width, or else `COLUMNS`, or else 80.
fn width(table: &Table) -> usize {
    let said = || std::env::var("COLUMNS").ok()?.parse().ok().filter(|columns| *columns >= WIDTH);
    table.width().map(usize::from).or_else(said).unwrap_or(WIDTH)
}

/// Does the table fit as it is, with this many spaces between its columns?
pub fn fits(table: &Table, blanks: u16) -> bool {
    let mut table = table.clone();
    table.set_content_arrangement(ContentArrangement::Disabled);
    spread(&mut table, blanks);
    // The last column's padding is not printed.
    table.lines().all(|line| line.trim_end().chars().count() <= width(&table))
}

fn spread(table: &mut Table, blanks: u16) {
    table.column_iter_mut().for_each(|column| {
        column.set_padding((0, blanks));
    });
}

/// Longer cells are sentences, which may take several lines. Shorter ones are names and figures.
const SENTENCE: usize = 24;

/// Makes each column as narrow as possible: headers and sentences break between words. No word or figure is broken.
/// Returns whether the table then fits.
fn narrow(table: &mut Table, blanks: u16) -> bool {
    let longest_word = |text: &str| {
        text.split_whitespace().map(|word| word.chars().count()).max().unwrap_or_default()
    };
    let header: Vec<String> = match table.header() {
        Some(header) => header.cell_iter().map(|cell| cell.content()).collect(),
        None => return false,
    };
    let mut total = 0;
    for (at, name) in header.iter().enumerate() {
        let cells: Vec<_> = table.column_cells_iter(at).flatten().map(|c| c.content()).collect();
        let whole = cells.iter().map(|cell| cell.chars().count()).max().unwrap_or_default();
        let is_prose = at > 0 && whole > SENTENCE;
        let words = cells.iter().map(|cell| longest_word(cell)).max().unwrap_or_default();
        let least = longest_word(name).max(if is_prose { words } else { whole });
        total += least + usize::from(blanks);
        let fixed = Width::Fixed(u16::try_from(least).unwrap_or(u16::MAX).saturating_add(blanks));
        if let Some(column) = table.column_mut(at) {
            column.set_constraint(match is_prose {
                true => ColumnConstraint::LowerBoundary(fixed),
                false => ColumnConstraint::Absolute(fixed),
            });
        }
    }
    // The last column's padding is not printed.
    let room = width(table) + usize::from(blanks);
    table.set_width(u16::try_from(room).unwrap_or(u16::MAX));
    total <= room
}

/// A table that fits, without trailing spaces. It first moves columns closer together, then breaks headers and cells
/// into several lines, and breaks words only if nothing else helps.
pub fn plain(table: &Table) -> String {
    let mut table = table.clone();
    let blanks = if fits(&table, 2) { 2 } else { 1 };
    spread(&mut table, blanks);
    if fits(&table, blanks) {
        table.set_content_arrangement(ContentArrangement::Disabled);
    } else {
        let columns = u16::try_from(width(&table)).unwrap_or(u16::MAX);
        if !narrow(&mut table, blanks) {
            table.set_width(columns);
            table.column_iter_mut().for_each(|column| {
                column.remove_constraint();
            });
            // The first column names the row.
            if let Some(first) = table.column_mut(0) {
                first.set_constraint(ColumnConstraint::ContentWidth);
            }
        }
    }
    table.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// A table whose rows form blocks. Each block has a heading of any length, and its rows are indented.
pub fn blocks(header: &[&str], blocks: &[(String, Vec<Vec<String>>)]) -> String {
    let mut drawn = Lined::new(header);
    for (heading, rows) in blocks {
        drawn.line(wrapped(heading));
        for row in rows {
            let mut cells = row.clone();
            cells[0].insert_str(0, "  ");
            drawn.table.add_row(cells);
        }
    }
    drawn.plain()
}

/// A table with lines of text of any length between its rows.
pub struct Lined {
    /// The table's rows.
    pub table: Table,
    lines: Vec<String>,
}

impl Lined {
    /// An empty table with this header.
    pub fn new(header: &[&str]) -> Self {
        Self { table: table(header), lines: Vec::new() }
    }

    /// A placeholder row. No visible text begins with this character.
    fn marker(number: usize) -> String {
        format!("\u{1}{number}")
    }

    /// Adds one or more lines of text after the last row.
    pub fn line(&mut self, text: String) {
        self.table.add_row([Self::marker(self.lines.len())]);
        self.lines.push(text);
    }

    /// It need not fit a terminal.
    pub fn wide(&mut self) {
        self.table.set_width(u16::MAX);
    }

    /// The table as text, formatted as by [`plain`].
    pub fn plain(&self) -> String {
        let mut lines = self.lines.iter().enumerate().peekable();
        let line =
            |line: &str| match lines.next_if(|(number, _)| line.trim() == Self::marker(*number)) {
                Some((_, text)) => format!("{text}\n"),
                None => format!("{line}\n"),
            };
        plain(&self.table).lines().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines_of(text: &str) -> Vec<&str> {
        text.lines().inspect(|line| assert!(line.chars().count() <= WIDTH, "{text}")).collect()
    }

    #[test]
    fn headers_and_sentences_break_between_words_and_figures_do_not() {
        let mut wide = table(&["lock", "a header of many words", "rate of it", "what is said"]);
        let sentence = "a sentence that is much longer than all the other cells, and may be broken";
        wide.add_row(["asl", "12 345 (0.08 %)", "[1.23 M .. 1.31 M]", sentence]);
        let text = plain(&wide);
        let lines = lines_of(&text);
        assert!(
            lines.iter().any(|line| line.contains("12 345 (0.08 %) [1.23 M .. 1.31 M] a")),
            "{text}"
        );
        let words: Vec<_> = text.split_whitespace().collect();
        for word in "header many words rate sentence longer broken".split(' ') {
            assert!(words.contains(&word), "{word} is whole: {text}");
        }
    }

    #[test]
    fn a_block_has_its_heading_above_its_rows() {
        let row = |name: &str| vec![name.to_owned(), "31.2 ns".to_owned()];
        let long = "1 line + 0 ns, gap 0 ns, ".repeat(4);
        let all = [
            (long.trim_end().to_owned(), vec![row("mcs"), row("tas")]),
            ("short".to_owned(), vec![row("fifo")]),
        ];
        let text = blocks(&["lock", "real"], &all);
        let lines = lines_of(&text);
        assert_eq!(lines[0], "lock    real");
        assert!(lines[1].starts_with("1 line") && lines[2].starts_with("  "), "{text}");
        assert_eq!(lines[3..], ["  mcs   31.2 ns", "  tas   31.2 ns", "short", "  fifo  31.2 ns"]);
    }
}
