//! Foreign text as plain text: no escape sequence of it gets to the terminal.

use std::borrow::Cow;
use std::fmt::Write;

/// Would a terminal interpret this character instead of drawing it? Control characters begin escape sequences. The
/// others reorder the text around them, or break the line.
fn acts(char: char) -> bool {
    let turns = ['\u{61c}', '\u{200e}', '\u{200f}'];
    let orders = ['\u{2028}'..='\u{202e}', '\u{2066}'..='\u{2069}'];
    char.is_control() || turns.contains(&char) || orders.iter().any(|range| range.contains(&char))
}

/// Escapes the characters that a terminal would interpret, in Rust's notation: `\n`, `\u{1b}`. Characters in `kept`
/// stay.
fn escaped<'a>(text: &'a str, kept: &[char]) -> Cow<'a, str> {
    let acts = |char: char| acts(char) && !kept.contains(&char);
    if !text.contains(acts) {
        return text.into();
    }
    let mut safe = String::with_capacity(text.len() + 8);
    for char in text.chars() {
        match acts(char) {
            true => safe.extend(char.escape_debug()),
            false => safe.push(char),
        }
    }
    safe.into()
}

/// Foreign text for one line of ours: it stays one line, and the terminal interprets nothing in it.
pub fn shown(text: &str) -> Cow<'_, str> {
    escaped(text, &[])
}

/// Foreign text of several lines. The terminal interprets nothing in it but line breaks and tabs.
pub fn lines(text: &str) -> Cow<'_, str> {
    escaped(text, &['\n', '\t'])
}

/// JSON in which every character that a terminal would interpret is escaped. Only strings can contain such characters, and
/// `serde_json` doesn't escape those above U+0020.
pub fn safe_json(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for char in json.chars() {
        match acts(char) && char != '\n' {
            true => drop(write!(text, "\\u{:04x}", u32::from(char))),
            false => text.push(char),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str = "a\u{1b}]0;x\u{7}b\r\n\u{9b}31m\u{202e}\u{7f}'\"\\é";

    #[test]
    fn nothing_that_a_terminal_acts_on_is_shown() {
        let safe = r#"a\u{1b}]0;x\u{7}b\r\n\u{9b}31m\u{202e}\u{7f}'"\é"#;
        assert_eq!(shown(HOSTILE), safe);
        assert_eq!(lines(HOSTILE), safe.replace(r"\n", "\n"));
        assert!(matches!(shown("plain 'é' \u{1f512}"), Cow::Borrowed(_)));
    }

    #[test]
    fn json_says_the_same_to_a_parser() {
        let value = serde_json::json!({ "a": [HOSTILE], "\u{9d}": "\n" });
        let text = safe_json(&format!("{value:#}\n"));
        assert!(!text.contains(|char| acts(char) && char != '\n'), "{text:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    }
}
