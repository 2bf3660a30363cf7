//! Tables that fit a terminal.

use crate::{WIDTH, wrapped_to};
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Width, presets};
use std::ops::Range;
use unicode_width::UnicodeWidthStr;

/// A table for people. Where it has no room for all columns, it leaves out the least important ones, and says so.
#[derive(Clone, Debug, Default)]
pub struct Table {
    header: Vec<String>,
    rows: Vec<Row>,
    right: Range<usize>,
    least: Vec<String>,
    all_by: Option<&'static str>,
    width: Option<usize>,
}

#[derive(Clone, Debug)]
enum Row {
    Cells(Vec<String>),
    /// Text of any length across all columns.
    Line(String),
}

/// Stands for a line while the columns are laid out. No visible text begins with this character.
const LINE: &str = "\u{1}";

/// A table with this header.
pub fn table(header: &[&str]) -> Table {
    Table { header: header.iter().map(|name| (*name).to_owned()).collect(), ..Table::default() }
}

/// Figures stand to the right in these columns; those that the table lacks don't matter.
pub fn right(table: &mut Table, columns: Range<usize>) {
    table.right = columns;
}

/// Does the table fit as it is, with this many spaces between its columns?
pub fn fits(table: &Table, blanks: u16) -> bool {
    let kept: Vec<_> = (0..table.header.len()).collect();
    table.whole(&kept, blanks, table.width()).is_some()
}

/// A table that fits, without trailing spaces. No word and no figure is broken. It first moves columns closer together,
/// then breaks headers and sentences into several lines, then gives long names lines of their own. If that isn't
/// enough, sentences of the last column go below their rows, and then columns are left out. The last line names them.
pub fn plain(table: &Table) -> String {
    table.fitted(table.width())
}

/// Longer cells are sentences, which may take several lines. Shorter ones are names and figures.
const SENTENCE: usize = 24;
/// A sentence needs this many columns.
const READABLE: usize = 16;
/// Longer names of rows may take a line of their own.
const NAME: usize = 20;
/// Narrower terminals are taken for mistakes.
const NARROWEST: usize = 20;

impl Table {
    /// Columns with these headers are the first to go where there is no room, in this order. The others follow from
    /// the right. The first column stays.
    #[must_use]
    pub fn least(mut self, headers: &[&str]) -> Self {
        self.least = headers.iter().map(|name| (*name).to_owned()).collect();
        self
    }

    /// What else shows all columns: `--format json`.
    #[must_use]
    pub fn all_by(mut self, option: &'static str) -> Self {
        self.all_by = Some(option);
        self
    }

    /// Adds a row.
    pub fn add_row<C: ToString>(&mut self, cells: impl IntoIterator<Item = C>) {
        self.rows.push(Row::Cells(cells.into_iter().map(|cell| cell.to_string()).collect()));
    }

    /// Adds one or more lines of text after the last row. Long ones break between words.
    pub fn line(&mut self, text: &str) {
        self.rows.push(Row::Line(text.to_owned()));
    }

    /// It need not fit a terminal.
    pub fn wide(&mut self) {
        self.width = Some(usize::MAX);
    }

    /// Has it no rows?
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The columns that a table may use: the terminal's width, or else `COLUMNS`, or else 80.
    fn width(&self) -> usize {
        let said = || std::env::var("COLUMNS").ok()?.parse().ok();
        let here = || comfy_table::Table::new().width().map(usize::from).or_else(said);
        self.width.or_else(|| here().filter(|columns| *columns >= NARROWEST)).unwrap_or(WIDTH)
    }

    fn fitted(&self, width: usize) -> String {
        let mut kept: Vec<_> = (0..self.header.len()).collect();
        if let Some(text) = self.laid_out(&kept, width) {
            return text;
        }
        if let Some(below) = self.below() {
            return below.fitted(width);
        }
        let mut gone = Vec::new();
        let text = loop {
            // The first column stays, however long its words are.
            let Some(name) = self.next_to_go(&kept) else {
                break self.whole(&kept, 1, usize::MAX).unwrap_or_default();
            };
            gone.extend(kept.extract_if(1.., |at| self.header[*at] == *name));
            if let Some(text) = self.laid_out(&kept, width) {
                break text;
            }
        };
        match gone[..] {
            [] => text,
            _ => text + &wrapped_to(&self.left_out(gone), width) + "\n",
        }
    }

    /// These columns in the first form that fits.
    fn laid_out(&self, kept: &[usize], width: usize) -> Option<String> {
        let narrow = |table: &Self| {
            let longest = [SENTENCE, 0];
            longest.into_iter().find_map(|longest| table.narrow(kept, width, longest))
        };
        let text = [2, 1].into_iter().find_map(|blanks| self.whole(kept, blanks, width));
        text.or_else(|| narrow(self)).or_else(|| narrow(&self.named()))
    }

    /// The header of the column that goes next.
    fn next_to_go(&self, kept: &[usize]) -> Option<&String> {
        let is_there = |name: &&String| kept.iter().skip(1).any(|at| self.header[*at] == **name);
        let last = || kept.iter().skip(1).next_back().map(|at| &self.header[*at]);
        self.least.iter().find(is_there).or_else(last)
    }

    /// `left out: P99, max (to see them: --format json, or a wider terminal)`.
    fn left_out(&self, mut gone: Vec<usize>) -> String {
        gone.sort_unstable();
        let name = |at: usize| match self.header[at].trim() {
            "" => format!("column {}", at + 1),
            name => name.to_owned(),
        };
        let mut names: Vec<_> = gone.iter().map(|at| name(*at)).collect();
        names.dedup();
        let way = self.all_by.map_or(String::new(), |option| format!("{option}, or "));
        let them = if names.len() == 1 { "it" } else { "them" };
        format!("left out: {} (to see {them}: {way}a wider terminal)", names.join(", "))
    }

    /// The table with long names on lines of their own, above their rows.
    fn named(&self) -> Self {
        let mut named = Self { rows: Vec::new(), ..self.clone() };
        for row in &self.rows {
            match row {
                Row::Cells(cells) if cells.len() > 1 && cells[0].width() > NAME => {
                    named.line(&cells[0]);
                    named.add_row([&[String::new()], &cells[1..]].concat());
                }
                row => named.rows.push(row.clone()),
            }
        }
        named
    }

    /// The table with the sentences of its last column below their rows.
    fn below(&self) -> Option<Self> {
        let last = self.header.len().checked_sub(1).filter(|last| *last > 0)?;
        let longest = self.column(last).map(UnicodeWidthStr::width).max()?;
        let mut below = Self { rows: Vec::new(), ..self.clone() };
        let name = below.header.pop().filter(|_| longest > SENTENCE)?;
        for row in &self.rows {
            match row {
                Row::Cells(cells) => {
                    below.add_row(cells.iter().take(last));
                    if let Some(sentence) = cells.get(last).filter(|cell| !cell.is_empty()) {
                        below.line(&format!("  {}: {sentence}", name.trim()));
                    }
                }
                row => below.rows.push(row.clone()),
            }
        }
        Some(below)
    }

    /// The cells of a column.
    fn column(&self, at: usize) -> impl Iterator<Item = &str> {
        self.rows.iter().filter_map(move |row| match row {
            Row::Cells(cells) => cells.get(at).map(String::as_str),
            Row::Line(_) => None,
        })
    }

    /// A table of these columns, with this many spaces between them.
    fn drawn(&self, kept: &[usize], blanks: u16) -> comfy_table::Table {
        let mut drawn = comfy_table::Table::new();
        drawn.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        drawn.set_header(kept.iter().map(|at| &self.header[*at]));
        for row in &self.rows {
            drawn.add_row(match row {
                Row::Cells(cells) => {
                    kept.iter().map(|at| cells.get(*at).map_or("", String::as_str)).collect()
                }
                Row::Line(_) => vec![LINE],
            });
        }
        for (column, at) in drawn.column_iter_mut().zip(kept) {
            column.set_padding((0, blanks));
            if self.right.contains(at) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        drawn
    }

    /// The drawn table as text, with the lines between its rows.
    fn text(&self, drawn: &comfy_table::Table, width: usize) -> String {
        let mut between = self.rows.iter().filter_map(|row| match row {
            Row::Line(text) => Some(text),
            Row::Cells(_) => None,
        });
        let mut text = String::new();
        for line in drawn.lines() {
            let line = line.trim_end();
            match if line.trim_start() == LINE { between.next() } else { None } {
                Some(line) => text += &wrapped_to(line, width.min(WIDTH)),
                None => text += line,
            }
            text.push('\n');
        }
        text
    }

    /// These columns as they are, if they fit.
    fn whole(&self, kept: &[usize], blanks: u16, width: usize) -> Option<String> {
        let drawn = self.drawn(kept, blanks);
        // The last column's padding is not printed.
        let fits = drawn.lines().all(|line| line.trim_end().width() <= width);
        fits.then(|| self.text(&drawn, width))
    }

    /// These columns, each as narrow as possible, if they fit: headers, and columns of words with a cell that is longer
    /// than `longest`, break between words. Figures are not broken.
    fn narrow(&self, kept: &[usize], width: usize, longest: usize) -> Option<String> {
        let longest_word =
            |text: &str| text.split_whitespace().map(UnicodeWidthStr::width).max().unwrap_or(0);
        let mut drawn = self.drawn(kept, 1);
        let mut total = 0;
        for (column, &at) in drawn.column_iter_mut().zip(kept) {
            let whole = self.column(at).map(UnicodeWidthStr::width).max().unwrap_or(0);
            let words = self.column(at).map(longest_word).max().unwrap_or(0);
            let has_figures =
                || self.column(at).any(|cell| cell.contains(|c: char| c.is_ascii_digit()));
            let is_prose = at > 0 && (whole > SENTENCE || whole > longest && !has_figures());
            let cells = match is_prose {
                true if whole > SENTENCE => words.max(READABLE),
                true => words,
                false => whole,
            };
            let least = longest_word(&self.header[at]).max(cells).max(1);
            total += least + 1;
            let fixed = Width::Fixed(u16::try_from(least + 1).unwrap_or(u16::MAX));
            column.set_constraint(match is_prose {
                true => ColumnConstraint::LowerBoundary(fixed),
                false => ColumnConstraint::Absolute(fixed),
            });
        }
        // The last column's padding is not printed.
        let room = width.saturating_add(1);
        drawn.set_content_arrangement(ContentArrangement::Dynamic);
        drawn.set_width(u16::try_from(room).unwrap_or(u16::MAX));
        (total <= room).then(|| self.text(&drawn, width))
    }
}

/// A table whose rows form blocks. Each block has a heading of any length, and its rows are indented.
pub fn blocks(header: &[&str], blocks: &[(String, Vec<Vec<String>>)]) -> Table {
    let mut drawn = table(header);
    for (heading, rows) in blocks {
        drawn.line(heading);
        for row in rows {
            let mut cells = row.clone();
            cells[0].insert_str(0, "  ");
            drawn.add_row(cells);
        }
    }
    drawn
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn lines_of(text: &str, width: usize) -> Vec<&str> {
        text.lines().inspect(|line| assert!(line.width() <= width, "{width}: {text}")).collect()
    }

    fn words(text: &str) -> Vec<&str> {
        text.split_whitespace().collect()
    }

    #[test]
    fn headers_and_sentences_break_between_words_and_figures_do_not() {
        let mut wide = table(&["lock", "a header of many words", "rate of it", "what is said"]);
        let sentence = "a sentence that is much longer than all the other cells, and may be broken";
        wide.add_row(["asl", "12 345 (0.08 %)", "[1.23 M .. 1.31 M]", sentence]);
        let text = wide.fitted(80);
        let lines = lines_of(&text, 80);
        assert!(
            lines.iter().any(|line| line.contains("12 345 (0.08 %) [1.23 M .. 1.31 M] a")),
            "{text}"
        );
        for word in words("header many words rate sentence longer broken") {
            assert!(words(&text).contains(&word), "{word} is whole: {text}");
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
        let drawn = blocks(&["lock", "real"], &all);
        let text = drawn.fitted(80);
        let lines = lines_of(&text, 80);
        assert_eq!(lines[0], "lock    real");
        assert!(lines[1].starts_with("1 line") && lines[2].starts_with("  "), "{text}");
        assert_eq!(lines[3..], ["  mcs   31.2 ns", "  tas   31.2 ns", "short", "  fifo  31.2 ns"]);
        lines_of(&drawn.fitted(40), 40);
    }

    fn waits(names: &[&str]) -> Table {
        let header = ["lock", "blocked", "waits", "wait P50", "P99", "P99.9", "max", "hold P50"];
        let mut waits = table(&header).least(&["hold P50", "P99.9", "blocked"]);
        for name in names {
            let figures =
                ["12.3 %", "123 456", "1.23 µs", "12.3 µs", "123 µs", "1.23 ms", "1.23 µs"];
            waits.add_row([&[*name], &figures[..]].concat());
        }
        right(&mut waits, 1..header.len());
        waits
    }

    #[test]
    fn the_least_important_columns_go_and_the_last_line_names_them() {
        let waits = waits(&["mcs", "fifo"]).all_by("--format json");
        let at = |width| waits.fitted(width);
        let shown =
            |width| lines_of(&at(width), width).into_iter().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(
            shown(120)[0],
            "lock  blocked    waits  wait P50      P99   P99.9      max  hold P50"
        );
        assert_eq!((shown(80).len(), shown(120).len()), (3, 3));
        assert_eq!(shown(60)[0], "lock blocked   waits    wait     P99  P99.9     max    hold");
        assert_eq!(
            shown(50),
            [
                "lock  blocked    waits  wait P50      P99      max",
                "mcs    12.3 %  123 456   1.23 µs  12.3 µs  1.23 ms",
                "fifo   12.3 %  123 456   1.23 µs  12.3 µs  1.23 ms",
                "left out: P99.9, hold P50 (to see them: --format",
                "  json, or a wider terminal)",
            ]
        );
        assert_eq!(
            shown(40),
            [
                "lock   waits wait P50     P99     max",
                "mcs  123 456  1.23 µs 12.3 µs 1.23 ms",
                "fifo 123 456  1.23 µs 12.3 µs 1.23 ms",
                "left out: blocked, P99.9, hold P50 (to",
                "  see them: --format json, or a wider",
                "  terminal)",
            ]
        );
        assert!(!fits(&Table { width: Some(60), ..waits.clone() }, 1));
        assert!(fits(&Table { width: Some(80), ..waits }, 2));
    }

    #[test]
    fn a_long_name_has_a_line_of_its_own_before_figures_go() {
        let long = "std::map<int, shared_state>::insert_or_assign(int&&, shared_state&&)::mutex";
        let cyrillic = "база_данных::соединение::блокировка_очереди";
        let wide = "锁锁锁锁锁锁锁锁锁锁锁锁锁锁锁锁";
        let waits = waits(&[long, cyrillic, wide, "mcs"]);
        assert_eq!(waits.fitted(160).lines().count(), 5, "as it is");
        for (width, gone) in [(120, false), (80, false), (60, false), (40, true)] {
            let text = waits.fitted(width);
            let lines = lines_of(&text, width.max(long.len()));
            let at = lines.iter().position(|line| *line == cyrillic).expect("a line of its own");
            assert!(
                lines[at + 1].starts_with("    ") && lines[at + 1].contains("123 456"),
                "{text}"
            );
            assert!(lines.contains(&wide), "{text}");
            assert_eq!(text.contains("left out: "), gone, "{width}: {text}");
            assert!(!text.contains("--format"), "no option has all: {text}");
        }
    }

    #[test]
    fn a_name_that_is_too_long_for_the_terminal_stays_whole() {
        let word = "w".repeat(50);
        let mut drawn = table(&["lock", "waits"]);
        drawn.add_row([word.as_str(), "12"]);
        assert_eq!(drawn.fitted(40), format!("lock waits\n{word}\n     12\n"));
        let wide = Table { width: Some(40), ..drawn.clone() };
        let mut all = wide.clone();
        all.wide();
        assert_eq!(plain(&all), format!("{:50}  waits\n{word}  12\n", "lock"));
        assert_eq!(plain(&wide), drawn.fitted(40));
    }

    #[test]
    fn sentences_go_below_their_rows_before_columns_go() {
        let mut drawn = table(&["figure", "value", "from", "source"]);
        let source = "arch/arm64/boot/dts/apple/t8103.dtsi of Asahi Linux";
        drawn.add_row(["class.big.power.active_w", "4.95", "published", source]);
        drawn.add_row(["class.big.smt", "1", "published", ""]);
        assert_eq!(
            lines_of(&drawn.fitted(60), 60),
            [
                "figure                    value  from",
                "class.big.power.active_w  4.95   published",
                "  source: arch/arm64/boot/dts/apple/t8103.dtsi of Asahi",
                "  Linux",
                "class.big.smt             1      published",
            ]
        );
        assert_eq!(lines_of(&drawn.fitted(80), 80).len(), 4, "two lines beside the first row");
    }

    #[test]
    fn words_break_between_words_only_if_needed_and_columns_of_one_name_go_together() {
        let mut drawn = table(&["cpu", "class", "from", "capacity", "from"]);
        drawn.add_row(["0", "big", "cpu_capacity", "1 024", "last-level cache"]);
        assert_eq!(lines_of(&drawn.fitted(48), 48).len(), 2);
        let text = drawn.fitted(44);
        assert_eq!(lines_of(&text, 44).len(), 3, "{text}");
        assert!(text.contains(" last-level\n") && text.ends_with(" cache\n"), "{text}");
        let text = drawn.fitted(34);
        assert!(text.starts_with("cpu  class  capacity\n0    big    1 024\n"), "{text}");
        assert!(text.ends_with("left out: from (to see it: a wider\n  terminal)\n"), "{text}");
    }

    const WORD: &str = "[a-zäж锁%.<0-9]{1,8}";

    proptest! {
        #[test]
        fn every_line_fits_and_no_word_is_broken(
            width in NARROWEST..140,
            header in vec(vec(WORD, 1..4), 1..9),
            rows in vec(vec(vec(WORD, 0..9), 1..9), 0..5),
            least in vec(0_usize..9, 0..5),
            aligned in 0_usize..9,
        ) {
            let header: Vec<_> = header.iter().map(|words| words.join(" ")).collect();
            let names: Vec<_> = header.iter().map(String::as_str).collect();
            let least: Vec<_> = least.iter().filter_map(|at| names.get(*at).copied()).collect();
            let mut drawn = table(&names).least(&least).all_by("--format json");
            for (at, row) in rows.iter().enumerate() {
                drawn.add_row(row.iter().take(names.len()).map(|words| words.join(" ")));
                if at % 2 == 1 {
                    drawn.line(&row[0].join(" "));
                }
            }
            right(&mut drawn, aligned..names.len());
            let text = drawn.fitted(width);
            let is_short = |cell: &str| cell.width() <= width;
            if is_short(names[0]) && drawn.column(0).all(is_short) {
                for line in text.lines() {
                    prop_assert!(line.width() <= width, "{width}: {line:?} in\n{text}");
                }
            }
            let word_of = |word: &str| word.trim_end_matches([',', ':']).to_owned();
            let told = drawn.left_out((0..names.len()).collect());
            let heads = header.join(" ");
            let known = [words(&told), vec!["it:"], words(&heads)].concat();
            let given: Vec<_> = rows.iter().flatten().flatten().map(String::as_str).collect();
            for word in words(&text) {
                let is_named = known.contains(&word) || known.contains(&&*word_of(word));
                prop_assert!(is_named || given.contains(&word), "{width}: {word:?} in\n{text}");
            }
            // What is not shown is said to be left out.
            prop_assert_eq!(&drawn.fitted(width), &text);
            if !text.contains("left out:") {
                let all = words(&text);
                for &word in &given {
                    prop_assert!(all.contains(&word) || !is_in(&drawn, word), "{word:?} in\n{text}");
                }
            }
        }
    }

    fn is_in(table: &Table, word: &str) -> bool {
        (0..table.header.len()).any(|at| table.column(at).any(|cell| words(cell).contains(&word)))
    }
}
