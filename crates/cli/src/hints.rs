//! What the user reads when something is wrong: one line with value and cause, one with a way out.

use crate::output::{say, shown};
pub(crate) use lockwright_text::cause;
pub(crate) use lockwright_text::nearest;
use std::fmt::{self, Display};
use std::process::ExitCode;

/// An error that ends the command.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    hint: Option<String>,
    code: u8,
}

/// Wrong usage, or our own failure.
const USAGE: u8 = 2;
/// As with `env` and `timeout`: the program was not even tried.
const REFUSED: u8 = 125;
/// As with the shell: found, but it can't be executed.
const NOT_EXECUTABLE: u8 = 126;
/// As with the shell.
const NOT_FOUND: u8 = 127;

impl Failure {
    pub(crate) fn new(message: impl Display) -> Self {
        Self { message: message.to_string(), hint: None, code: USAGE }
    }

    /// What is wrong, without the way out.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    pub(crate) fn hint(mut self, hint: impl Display) -> Self {
        self.hint = Some(hint.to_string());
        self
    }

    /// The same, about a `place` in a file.
    pub(crate) fn within(mut self, place: &str) -> Self {
        self.message.insert_str(0, place);
        self
    }

    /// We won't start the program.
    pub(crate) fn refused(message: impl Display) -> Self {
        Self { code: REFUSED, ..Self::new(message) }
    }

    pub(crate) fn not_executable(message: impl Display) -> Self {
        Self { code: NOT_EXECUTABLE, ..Self::new(message) }
    }

    pub(crate) fn not_found(message: impl Display) -> Self {
        Self { code: NOT_FOUND, ..Self::new(message) }
    }

    pub(crate) fn report(self) -> ExitCode {
        say(&format!("error: {self}\n"));
        ExitCode::from(self.code)
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown(&self.message))?;
        self.hint.as_ref().map_or(Ok(()), |hint| write!(f, "\nhint: {}", shown(hint)))
    }
}

/// Something that the user should know; the command goes on.
pub(crate) fn warn(message: impl Display, hint: impl Display) {
    let (message, hint) = (message.to_string(), hint.to_string());
    say(&format!("warning: {}\nhint: {}\n", shown(&message), shown(&hint)));
}
