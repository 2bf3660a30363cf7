//! Messages about problems, printed.

use crate::output::say;
use lockwright_text::shown;
pub(crate) use lockwright_text::{Failure, cause, nearest};
use std::fmt::Display;
use std::process::ExitCode;

/// Prints the error that ends the command, and returns the exit code for it.
pub(crate) fn report(failure: &Failure) -> ExitCode {
    say(&format!("error: {failure}\n"));
    ExitCode::from(failure.code())
}

/// Prints a warning; the command goes on.
pub(crate) fn warn(message: impl Display, hint: impl Display) {
    let (message, hint) = (message.to_string(), hint.to_string());
    say(&format!("warning: {}\nhint: {}\n", shown(&message), shown(&hint)));
}
