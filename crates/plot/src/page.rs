//! Pages in one style, for light and dark screens, phones, and print.

use maud::{DOCTYPE, Markup, PreEscaped, Render, html};

const STYLE: &str = include_str!("page.css");

/// A page with this body.
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
            body { main { (body) } }
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
}
