//! Text for a terminal: lines and tables that fit, foreign text as plain text, suggestions for mistyped words, causes of errors,
//! and messages about problems.

mod failure;
mod safe;
pub mod table;

pub use failure::Failure;
pub use safe::{lines, safe_json, shown};

use unicode_width::UnicodeWidthStr;

/// Width of a terminal, in columns.
pub const WIDTH: usize = 80;

/// Breaks lines between words where they are too long for a terminal, and indents the continuation lines.
pub fn wrapped(text: &str) -> String {
    wrapped_to(text, WIDTH)
}

/// Breaks lines as [`wrapped`] does, for a terminal with this many columns.
pub(crate) fn wrapped_to(text: &str, columns: usize) -> String {
    let mut out = String::new();
    for (at, line) in text.lines().enumerate() {
        if at > 0 {
            out.push('\n');
        }
        let mut width = 0;
        for (at, word) in glued(line.split(' ')).enumerate() {
            let length = word.width();
            if at > 0 && width + 1 + length > columns {
                out.push_str("\n  ");
                width = 2;
            } else if at > 0 {
                out.push(' ');
                width += 1;
            }
            out.push_str(&word);
            width += length;
        }
    }
    out
}

/// Words, of which a number and its unit are one: `1.5 ms,`.
fn glued<'a>(words: impl Iterator<Item = &'a str>) -> impl Iterator<Item = String> {
    let is_unit = |word: &str| {
        let word = word.trim_end_matches(|c: char| c.is_ascii_punctuation() && c != '%');
        ["ns", "µs", "ms", "s", "%", "k", "M", "G"].contains(&word)
    };
    let mut words = words.peekable();
    std::iter::from_fn(move || {
        let mut word = words.next()?.to_owned();
        while let Some(unit) =
            words.next_if(|next| word.ends_with(|c: char| c.is_ascii_digit()) && is_unit(next))
        {
            word = format!("{word} {unit}");
        }
        Some(word)
    })
}

/// `first`, followed by the text, which is broken where a line would be too long. Continuation lines align with the
/// text.
pub fn beside(first: &str, text: &str) -> String {
    beside_within(first, text, WIDTH)
}

/// The same, for a terminal that is `columns` wide.
pub fn beside_within(first: &str, text: &str, columns: usize) -> String {
    let indent = first.chars().count();
    let (mut lines, mut line, mut is_empty) = (String::new(), first.to_owned(), true);
    for word in glued(text.split_whitespace()) {
        let width = line.chars().count() + word.chars().count();
        if width + usize::from(!is_empty) > columns && !is_empty {
            lines.push_str(&line);
            lines.push('\n');
            (line, is_empty) = (" ".repeat(indent), true);
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(&word);
        is_empty = false;
    }
    lines.push_str(line.trim_end());
    lines + "\n"
}

/// The candidate that a mistyped `word` most probably meant, ignoring case.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = word.to_lowercase();
    candidates
        .into_iter()
        .map(|candidate| {
            (strsim::damerau_levenshtein(&lower, &candidate.to_lowercase()), candidate)
        })
        .min_by_key(|(distance, _)| *distance)
        // A larger distance means a different word, not a typing error.
        .filter(|(distance, candidate)| *distance <= (candidate.len().max(word.len()) / 3).max(1))
        .map(|(_, candidate)| candidate)
}

/// An error of the operating system in plain words: `no such file or directory`.
pub fn cause(error: &std::io::Error) -> String {
    let text = error.to_string();
    let words = text.split(" (os error").next().unwrap_or_default();
    words.chars().take(1).flat_map(char::to_lowercase).chain(words.chars().skip(1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_broken_between_words() {
        assert_eq!(wrapped("a short line\nand  another"), "a short line\nand  another");
        let (left, right) = ("x".repeat(60), "y".repeat(25));
        assert_eq!(wrapped(&format!("{left} {right} z")), format!("{left}\n  {right} z"));
        let near = "x".repeat(77);
        assert_eq!(
            wrapped(&format!("{near} 10 ms.")),
            format!("{near}\n  10 ms."),
            "with its unit"
        );
        assert_eq!(wrapped(&"w".repeat(99)), "w".repeat(99), "a word stays whole");
    }

    #[test]
    fn nearest_is_a_typing_error_away_or_nothing() {
        let names = ["barging", "fifo", "mcs", "mcs-stp"];
        assert_eq!(nearest("bargin", names), Some("barging"));
        assert_eq!(nearest("ffio", names), Some("fifo"));
        assert_eq!(nearest("mcsstp", names), Some("mcs-stp"));
        assert_eq!(nearest("MCS", names), Some("mcs"));
        assert_eq!(nearest("something", names), None);
    }
}
