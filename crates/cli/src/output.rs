//! Standard output, and standard error.

use crate::hints::{Failure, cause};
use comfy_table::{ContentArrangement, Table, presets};
use std::io::{self, ErrorKind, Write};

/// Prints. A reader that has seen enough (`| head`) is no error.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::new(format!("cannot write to standard output: {}", cause(&error))))
        }
        _ => Ok(()),
    }
}

/// Says it on standard error, in one piece. That nobody listens is no failure (`eprint!` would end us by it).
pub(crate) fn say(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// A table with this header, for people.
pub(crate) fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(header);
    table.column_iter_mut().for_each(|column| {
        column.set_padding((0, 2));
    });
    table
}

/// A table without blanks at the ends of its lines.
pub(crate) fn plain(table: &Table) -> String {
    table.to_string().lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// Prints a table, likewise.
pub(crate) fn print_table(table: &Table) -> Result<(), Failure> {
    print(&plain(table))
}

/// Prints JSON.
pub(crate) fn print_json(value: &serde_json::Value) -> Result<(), Failure> {
    print(&format!("{value:#}\n"))
}
