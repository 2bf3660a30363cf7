//! Flame graphs of waiters, and of the holders during these waits.

use super::outcome::Folded;
use inferno::flamegraph::{self, Options};
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

/// Draws them without a script, for a page.
pub(crate) fn draw_still(
    title: &str,
    unit: &str,
    folded: &Folded,
    to: impl Write,
) -> io::Result<()> {
    let mut options = Options::default();
    options.no_javascript = true;
    with(options, title, unit, folded, to)
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
}
