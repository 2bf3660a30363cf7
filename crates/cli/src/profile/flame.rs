//! Flame graphs of waiters, and of the holders during these waits.

use inferno::flamegraph::{self, Options};
use lockwright_observer::sampler::outcome::Folded;
use std::io::{self, Write};

/// Draws both side by side, counted in `unit`. The lowest boxes say which is which, and the boxes above them name the
/// lock.
///
/// # Errors
///
/// Nothing was seen (`InvalidData`), or `to` could not be written.
pub(crate) fn draw(title: &str, unit: &str, folded: &Folded, to: impl Write) -> io::Result<()> {
    with(Options::default(), title, unit, folded, to)
}

/// Draws them for a page: without what belongs to a file of its own, without a script and the words that only a script
/// makes work. Its style applies to it alone, not to the page's other pictures.
pub(crate) fn draw_still(title: &str, unit: &str, folded: &Folded) -> io::Result<String> {
    let mut options = Options::default();
    options.no_javascript = true;
    let mut svg = Vec::new();
    with(options, title, unit, folded, &mut svg)?;
    let svg = String::from_utf8_lossy(&svg);
    let svg = &svg[svg.find("<svg").unwrap_or(0)..];
    // inferno writes a script even where it should not.
    let svg = without(svg, "<script", "</script>");
    let svg = svg.replacen("<style type=\"text/css\">", STYLE, 1);
    let svg = svg.replacen("</style>", "}</style>", 1);
    Ok(svg.replacen("<svg ", "<svg class=\"flames\" ", 1))
}

/// On the page's own paper, and in its ink.
const STYLE: &str = "<style>.flames { > rect { fill:none; } > text { fill:currentColor; } #search { display:none; }";

/// A text without its first part from `start` to `end`.
fn without(text: &str, start: &str, end: &str) -> String {
    match (text.find(start), text.split_once(end)) {
        (Some(start), Some((_, rest))) => format!("{}{rest}", &text[..start]),
        _ => text.to_owned(),
    }
}

fn with(
    mut options: Options<'_>,
    title: &str,
    unit: &str,
    folded: &Folded,
    to: impl Write,
) -> io::Result<()> {
    // Names may contain any character, but these are separators.
    let clean = |name: &String| name.replace([';', '\n', '\r'], ":");
    let lines = folded.iter().map(|(frames, count)| {
        format!("{} {count}", frames.iter().map(clean).collect::<Vec<_>>().join(";"))
    });
    let lines: Vec<String> = lines.collect();
    options.title = title.to_owned();
    options.count_name = unit.to_owned();
    options.deterministic = true;
    flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_has_all_functions() {
        let stack = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let folded = vec![
            (stack(&["holders", "g_lock", "main", "a<b>;c"]), 30),
            (stack(&["waiters", "g_lock", "main", "lookup"]), 70),
        ];
        let mut svg = Vec::new();
        draw("locks", "samples", &folded, &mut svg).unwrap();
        let svg = String::from_utf8(svg).unwrap();
        for part in
            ["<svg", "waiters (70 samples", "lookup (70 samples", "a&lt;b&gt;:c (30 samples"]
        {
            assert!(svg.contains(part), "no '{part}'");
        }
    }

    #[test]
    fn on_a_page_it_changes_no_other_picture() {
        let folded = vec![(vec!["holders".to_owned(), "g_lock".to_owned()], 30)];
        let svg = draw_still("locks", "us", &folded).unwrap();
        assert!(svg.starts_with("<svg class=\"flames\" "), "{svg}");
        assert!(!svg.contains("<script") && svg.trim_end().ends_with("</svg>"), "{svg}");
        let style = svg.split_once("<style>").unwrap().1.split_once("</style>").unwrap().0;
        let (open, closed) = (style.matches('{').count(), style.matches('}').count());
        assert!(
            style.starts_with(".flames {") && style.ends_with("}\n}") && open == closed,
            "{style}"
        );
    }
}
