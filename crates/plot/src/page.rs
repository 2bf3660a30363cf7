//! Pages in one style, for light and dark screens, phones, and print.

use maud::{DOCTYPE, Markup, PreEscaped, Render, html};

const STYLE: &str = include_str!("page.css");
/// Sorts tables. Without it, a page shows as much.
const SCRIPT: &str = include_str!("page.js");

/// A page with this body. It has a script only if a table can be sorted.
pub fn page(title: &str, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                main { (body) }
                @if body.0.contains(SORTABLE) { script { (PreEscaped(SCRIPT)) } }
            }
        }
    };
    page.into_string() + "\n"
}

/// The origin of figures in one word, with an explanation.
pub fn tag(word: &str, meaning: &str) -> Markup {
    let class = if word == "real" { "tag" } else { "tag other" };
    html! { span class=(class) title=[Some(meaning).filter(|meaning| !meaning.is_empty())] { (word) } }
}

/// A chart with a caption.
pub fn figure(svg: &str, caption: impl Render) -> Markup {
    let caption = caption.render();
    html! {
        figure {
            div.scroll { (PreEscaped(svg)) }
            @if !caption.0.is_empty() { figcaption { (caption) } }
        }
    }
}

/// A row of a table.
#[derive(Clone, Debug, Default)]
pub struct TableRow {
    /// The cells, as HTML.
    pub cells: Vec<Markup>,
    /// Is it highlighted?
    pub chosen: bool,
    /// Does it begin a new group?
    pub first: bool,
}

impl TableRow {
    /// A row of text cells.
    pub fn of<T: Render>(cells: impl IntoIterator<Item = T>) -> TableRow {
        let cells = cells.into_iter().map(|cell| cell.render()).collect();
        TableRow { cells, chosen: false, first: false }
    }
}

/// A table that scrolls if it is too wide. The first `words` columns contain text, and so does the last if
/// `ends_in_words`. The others contain figures.
pub fn table<T: Render>(
    header: impl IntoIterator<Item = T>,
    words: usize,
    ends_in_words: bool,
    rows: impl IntoIterator<Item = TableRow>,
) -> Markup {
    let header: Vec<Markup> = header.into_iter().map(|cell| cell.render()).collect();
    let class = |at: usize| {
        let is_word = at < words || (ends_in_words && at + 1 == header.len());
        is_word.then_some("words")
    };
    html! {
        div.scroll { table {
            thead { tr { @for (at, cell) in header.iter().enumerate() { th class=[class(at)] { (cell) } } } }
            tbody { @for row in rows {
                tr.chosen[row.chosen].first[row.first] {
                    @for (at, cell) in row.cells.iter().enumerate() { td class=[class(at)] { (cell) } }
                }
            } }
        } }
    }
}

/// How a table that can be sorted begins.
const SORTABLE: &str = "<table class=\"sortable\"";

/// A cell of a table that can be sorted.
#[derive(Clone, Debug)]
pub enum Key {
    /// Sorted as text.
    Words(String),
    /// A figure as people read it, sorted by its value.
    Figure(String, f64),
    /// It isn't known; it sorts below all figures.
    Unknown,
}

/// A table that a click on a column's head sorts, and that scrolls if it is too wide. `header`: names with their
/// meanings. `sorted`: the column by which the rows are sorted, the largest first.
pub fn sortable(
    header: &[(&str, &str)],
    sorted: usize,
    rows: impl IntoIterator<Item = Vec<Key>>,
) -> Markup {
    let rows: Vec<Vec<Key>> = rows.into_iter().collect();
    let is_words = |at: usize| {
        let cell = rows.first().and_then(|row| row.get(at));
        cell.is_some_and(|cell| matches!(cell, Key::Words(_)))
    };
    let class = |at: usize| is_words(at).then_some("words");
    html! {
        div.scroll { table.sortable {
            thead { tr { @for (at, (name, meaning)) in header.iter().enumerate() {
                th scope="col" class=[class(at)] title=[Some(*meaning).filter(|text| !text.is_empty())]
                    aria-sort=[(at == sorted).then_some("descending")] { (name) }
            } } }
            tbody { @for row in &rows { tr { @for (at, cell) in row.iter().enumerate() {
                @match cell {
                    Key::Words(text) => td class=[class(at)] { (text) },
                    Key::Figure(text, value) => td data-value=(value) { (text) },
                    Key::Unknown => td data-value="-1" { "-" },
                }
            } } } }
        } }
    }
}

/// A list; nothing if it is empty.
pub fn list<T: Render>(items: impl IntoIterator<Item = T>) -> Markup {
    let mut items = items.into_iter().peekable();
    html! { @if items.peek().is_some() { ul { @for item in items { li { (item) } } } } }
}

/// Terms with their meanings.
pub fn terms<T: Render>(pairs: impl IntoIterator<Item = (T, Markup)>) -> Markup {
    html! { dl { @for (term, meaning) in pairs { dt { (term) } dd { (meaning) } } } }
}

/// A prominent warning.
pub fn warning(text: impl Render) -> Markup {
    html! { p.warning { (text) } }
}

/// A small coloured square.
pub fn chip(colour: &str) -> Markup {
    html! { i.chip style={ "background:" (colour) } {} }
}

/// A command: a line breaks between its words, never at their hyphens.
pub fn command(text: &str) -> Markup {
    let words = text.split(' ').enumerate();
    html! { code { @for (n, word) in words { @if n > 0 { " " } span.word { (word) } } } }
}

/// A sentence with code between backticks.
pub fn marked(sentence: &str) -> Markup {
    html! {
        @for (n, piece) in sentence.split('`').enumerate() {
            @if n % 2 == 1 { code { (piece) } } @else { (piece.replace('\'', "’")) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_its_parts_and_needs_nothing_else() {
        let rows =
            [TableRow::of(["a<b", "1"]), TableRow { chosen: true, ..TableRow::of(["c", "2"]) }];
        let body = html! {
            h1 { "title " (tag("emulated", "slowed")) }
            (warning("mind"))
            (figure("<svg></svg>", "below"))
            (table(["lock", "rate"], 1, false, rows))
            (list(["one"])) (list([] as [&str; 0]))
            (terms([("Rounds", marked("it's `x < y`"))]))
            (command("run --lock <x>"))
        };
        let page = page("a & b", &body);
        for part in [
            "<title>a &amp; b</title>",
            "<span class=\"tag other\" title=\"slowed\">emulated</span>",
            "<p class=\"warning\">mind</p>",
            "<figcaption>below</figcaption>",
            "<th class=\"words\">lock</th><th>rate</th>",
            "<td class=\"words\">a&lt;b</td><td>1</td>",
            "<tr class=\"chosen\"><td class=\"words\">c</td>",
            "<ul><li>one</li></ul>",
            "<span class=\"word\">run</span> <span class=\"word\">--lock</span> <span",
            "<dt>Rounds</dt><dd>it’s <code>x &lt; y</code></dd>",
        ] {
            assert!(page.contains(part), "no '{part}' in {page}");
        }
        assert_eq!(page.matches("<ul>").count(), 1);
        assert!(!page.contains("<script") && !page.contains("http"), "{page}");
    }

    #[test]
    fn a_table_that_can_be_sorted_has_values_and_a_script() {
        let row = |name: &str, shown: &str, value| {
            vec![Key::Words(name.into()), Key::Figure(shown.into(), value), Key::Unknown]
        };
        let header = [("lock", ""), ("total wait", "all threads"), ("mean", "")];
        let rows = [row("a", "1.00 s", 1e9), row("b", "20.0 ms", 2e7)];
        let page = page("a", &sortable(&header, 1, rows));
        for part in [
            "<th scope=\"col\" class=\"words\">lock</th>",
            "<th scope=\"col\" title=\"all threads\" aria-sort=\"descending\">total wait</th>",
            "<td data-value=\"20000000\">20.0 ms</td>",
            "<td data-value=\"-1\">-</td>",
            "</main><script>",
        ] {
            assert!(page.contains(part), "no '{part}' in {page}");
        }
        assert!(!page.contains("http"), "{page}");
    }
}
