//! Standard output, and standard error.
//!
//! Much of our output was written by others: traces, profiles, names of programs, files and functions, variables. All
//! of it must reach the terminal as plain text. So everything goes through here, and no escape sequence gets out. Text
//! that belongs on one line passes through [`shown`] where it is inserted.

pub(crate) use lockwright_text::table::{Table, blocks, fits, plain, right, table};
use lockwright_text::{Failure, cause, lines, safe_json};
pub(crate) use lockwright_text::{WIDTH, beside, beside_within, shown, wrapped};
use std::io::{self, ErrorKind, Write};

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
