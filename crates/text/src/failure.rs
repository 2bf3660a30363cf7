//! Messages about problems: one line that says what is wrong with which value, and one with a hint.

use crate::safe::shown;
use std::fmt::{self, Display};

/// An error that ends the command.
#[derive(Clone, Debug)]
pub struct Failure {
    message: String,
    hint: Option<String>,
    code: u8,
}

/// The answer is no.
const NO: u8 = 1;
/// Wrong usage, or an internal failure.
const USAGE: u8 = 2;
/// As `env` and `timeout` do: the program was never started.
const REFUSED: u8 = 125;
/// As the shell does: the program was found, but can't be executed.
const NOT_EXECUTABLE: u8 = 126;
/// As the shell does: the program wasn't found.
const NOT_FOUND: u8 = 127;

impl Failure {
    /// Wrong usage, or an error of ours.
    pub fn new(message: impl Display) -> Self {
        Self { message: message.to_string(), hint: None, code: USAGE }
    }

    /// The message, without the hint.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Its hint, or this one if it has none.
    pub fn hint_or(&self, otherwise: impl Display) -> String {
        self.hint.clone().unwrap_or_else(|| otherwise.to_string())
    }

    /// Adds the line that says what to do.
    pub fn hint(mut self, hint: impl Display) -> Self {
        self.hint = Some(hint.to_string());
        self
    }

    /// Adds the `place` in a file to the message.
    pub fn within(mut self, place: &str) -> Self {
        self.message.insert_str(0, place);
        self
    }

    /// Nothing has failed: the answer is no.
    pub fn no(message: impl Display) -> Self {
        Self { code: NO, ..Self::new(message) }
    }

    /// The error for a program that we refuse to start.
    pub fn refused(message: impl Display) -> Self {
        Self { code: REFUSED, ..Self::new(message) }
    }

    /// The error for a program that was found, but can't be executed.
    pub fn not_executable(message: impl Display) -> Self {
        Self { code: NOT_EXECUTABLE, ..Self::new(message) }
    }

    /// The error for a program that wasn't found.
    pub fn not_found(message: impl Display) -> Self {
        Self { code: NOT_FOUND, ..Self::new(message) }
    }

    /// The command's exit code.
    pub fn code(&self) -> u8 {
        self.code
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown(&self.message))?;
        self.hint.as_ref().map_or(Ok(()), |hint| write!(f, "\nhint: {}", shown(hint)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_knows_its_own_hint_best() {
        let failure = Failure::new("no lock 'g_lok'");
        assert_eq!(failure.hint_or("policy list"), "policy list");
        assert_eq!(
            failure.hint("did you mean 'g_lock'?").hint_or("policy list"),
            "did you mean 'g_lock'?"
        );
    }
}
