//! Standard output, and standard error.
//!
//! Much of our output was written by others: traces, profiles, names of programs, files and functions, variables. All
//! of it must reach the terminal as plain text. So everything goes through here, and no escape sequence gets out. Text
//! that belongs on one line passes through [`shown`] where it is inserted.

use crate::hints::{Failure, cause};
pub(crate) use lockwright_text::table::{Table, blocks, fits, plain, right, table};
pub(crate) use lockwright_text::{WIDTH, beside, wrapped};
use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, ErrorKind, Write};

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

/// Formats records as CSV. The first one is the header.
pub(crate) fn csv<R>(records: impl IntoIterator<Item = R>) -> Result<String, Failure>
where
    R: IntoIterator<Item = String>,
{
    let failed = |error: csv::Error| Failure::new(format!("cannot write CSV: {error}"));
    let mut csv = csv::Writer::from_writer(Vec::new());
    for record in records {
        csv.write_record(record.into_iter().map(String::into_bytes)).map_err(failed)?;
    }
    let bytes = csv.into_inner().map_err(|error| failed(error.into_error().into()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Foreign text for one line of ours: it stays one line, and the terminal interprets nothing in it.
pub(crate) fn shown(text: &str) -> Cow<'_, str> {
    escaped(text, &[])
}

/// Output with several lines.
fn lines(text: &str) -> Cow<'_, str> {
    escaped(text, &['\n', '\t'])
}

/// Prints text. A reader that closes the pipe (`| head`) is not an error.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    print_own(&lines(text))
}

/// Prints text without foreign parts unchanged: scripts and pages for other programs.
pub(crate) fn print_own(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::new(format!("cannot write to standard output: {}", cause(&error))))
        }
        _ => Ok(()),
    }
}

/// Writes to standard error in a single write. A closed standard error is not a failure (`eprint!` would panic).
pub(crate) fn say(text: &str) {
    let _ = io::stderr().lock().write_all(lines(text).as_bytes());
}

/// Prints a table, as `print` does.
pub(crate) fn print_table(table: &Table) -> Result<(), Failure> {
    print(&plain(table))
}

/// Prints JSON.
pub(crate) fn print_json(value: &serde_json::Value) -> Result<(), Failure> {
    print_own(&json(value))
}

/// Prints JSON on one line; `false`: the reader has closed the pipe.
pub(crate) fn print_json_line(value: &serde_json::Value) -> Result<bool, Failure> {
    let text = safe_json(&format!("{value}\n"));
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => {
            Err(Failure::new(format!("cannot write to standard output: {}", cause(&error))))
        }
    }
}

/// JSON with line breaks, for people and programs.
pub(crate) fn json(value: &serde_json::Value) -> String {
    safe_json(&format!("{value:#}\n"))
}

/// Only strings can contain such characters, and `serde_json` doesn't escape those above U+0020.
fn safe_json(json: &str) -> String {
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
        let text = json(&value);
        assert!(!text.contains(|char| acts(char) && char != '\n'), "{text:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    }
}
