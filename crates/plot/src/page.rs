//! Pages in one style: dark and light, on a phone and in print.

use maud::{DOCTYPE, Markup, PreEscaped, Render, html};

const STYLE: &str = include_str!("page.css");

/// A page; `body` is what stands in it.
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

/// Where figures come from, in a word, and what that means.
pub fn tag(word: &str, meaning: &str) -> Markup {
    let class = if word == "real" { "tag" } else { "tag other" };
    html! { span class=(class) title=[Some(meaning).filter(|meaning| !meaning.is_empty())] { (word) } }
}

/// A chart, and what is said below it.
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
pub struct Row {
    /// As HTML.
    pub cells: Vec<Markup>,
    /// Is it the one to look at?
    pub chosen: bool,
    /// Does something new begin with it?
    pub first: bool,
}

impl Row {
    /// A row of texts.
    pub fn of<T: Render>(cells: impl IntoIterator<Item = T>) -> Row {
        let cells = cells.into_iter().map(|cell| cell.render()).collect();
        Row { cells, chosen: false, first: false }
    }
}

/// A table that scrolls in its box where it is too wide; `words` columns at its left are words, and the last if
/// `ends_in_words`; the others are figures.
pub fn table<T: Render>(
    header: impl IntoIterator<Item = T>,
    words: usize,
    ends_in_words: bool,
    rows: impl IntoIterator<Item = Row>,
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

/// Terms, and what they mean.
pub fn terms<T: Render>(pairs: impl IntoIterator<Item = (T, Markup)>) -> Markup {
    html! { dl { @for (term, meaning) in pairs { dt { (term) } dd { (meaning) } } } }
}

/// A sentence that must not be missed.
pub fn warning(text: impl Render) -> Markup {
    html! { p.warning { (text) } }
}

/// A little square in a colour.
pub fn chip(colour: &str) -> Markup {
    html! { i.chip style={ "background:" (colour) } {} }
}

/// A sentence in which what stands between backticks is code.
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
        let rows = [Row::of(["a<b", "1"]), Row { chosen: true, ..Row::of(["c", "2"]) }];
        let body = html! {
            h1 { "title " (tag("emulated", "slowed")) }
            (warning("mind"))
            (figure("<svg></svg>", "below"))
            (table(["lock", "rate"], 1, false, rows))
            (list(["one"])) (list([] as [&str; 0]))
            (terms([("Rounds", marked("it's `x < y`"))]))
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
            "<dt>Rounds</dt><dd>it’s <code>x &lt; y</code></dd>",
        ] {
            assert!(page.contains(part), "no '{part}' in {page}");
        }
        assert_eq!(page.matches("<ul>").count(), 1);
        assert!(!page.contains("<script") && !page.contains("http"), "{page}");
    }
}
