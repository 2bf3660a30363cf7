//! How a command was called, and how what went wrong, or what it denies, is told.

use lockwright_text::cause;
use std::{fmt, io};

/// The command succeeded, and the answer is no: exit code 1, whereas errors have 2.
#[derive(Debug)]
pub(crate) struct No(pub(crate) String);

impl fmt::Display for No {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for No {}

/// Ctrl-C was pressed, and the results so far are kept: exit code 130.
#[derive(Debug)]
pub(crate) struct Interrupted(pub(crate) String);

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "interrupted: {}", self.0)
    }
}

impl std::error::Error for Interrupted {}

/// The words of this command, as far as they can be shown: not all paths are text.
pub(crate) fn shown_words() -> Vec<String> {
    let words = std::env::args_os().skip(1);
    words.map(|word| word.to_string_lossy().into_owned()).collect()
}

/// One line with the error and its causes, then their hints (or `help`, if there are none), then a program's output.
pub(crate) fn describe(error: &anyhow::Error, help: Option<&str>) -> String {
    let (mut line, mut hints, mut said) = (Vec::new(), String::new(), String::new());
    for part in error.chain() {
        let text = match part.downcast_ref::<io::Error>() {
            Some(error) => cause(error),
            None => part.to_string(),
        };
        let (text, hint) = match text.split_once("\nhint: ") {
            Some((text, hint)) => (text.to_owned(), Some(hint.to_owned())),
            None => (text, None),
        };
        let (what, rest) = text.split_once('\n').unwrap_or((&text, ""));
        line.push(what.to_owned());
        if let Some(hint) = hint {
            hints += &format!("\nhint: {hint}");
        }
        if !rest.is_empty() {
            said += &format!("\n{rest}");
        }
    }
    // Neither an answer nor Ctrl-C is a mistake, so they get no hint.
    let is_answer = error.is::<No>() || error.is::<Interrupted>();
    if let Some(help) = help.filter(|_| hints.is_empty() && !is_answer) {
        hints = format!("\nhint: {help}");
    }
    line.join(": ") + &hints + &said
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;

    #[test]
    fn hints_follow_the_causes() {
        let error = anyhow!("no such file").context("cannot read 'x'\nhint: make x").context("y");
        assert_eq!(describe(&error, Some("-")), "y: cannot read 'x': no such file\nhint: make x");
    }

    #[test]
    fn an_error_is_a_line_and_a_hint_and_then_what_a_program_said() {
        let missing = io::Error::from_raw_os_error(2);
        let error = anyhow!(missing).context("cannot read 'x'");
        let told = describe(&error, Some("cargo xtask fit --help"));
        assert_eq!(
            told,
            "cannot read 'x': no such file or directory\nhint: cargo xtask fit --help"
        );
        let error = anyhow!("ar: exit code 1\n--- stdout\nbusy").context("y");
        assert_eq!(describe(&error, Some("h")), "y: ar: exit code 1\nhint: h\n--- stdout\nbusy");
        assert_eq!(
            describe(&anyhow!(No("3 of the bars missed".into())), Some("h")),
            "3 of the bars missed"
        );
    }

    #[test]
    fn no_is_known_behind_its_context() {
        assert!(anyhow!(No("lost".into())).context("x").is::<No>());
        assert!(!anyhow!("lost").is::<No>());
    }
}
