//! Reads the command line, and converts clap's errors to one line and a hint.

use crate::hints::{Failure, nearest};
use crate::spelling;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, FromArgMatches};
use std::ffi::OsString;

/// Reads the words of the command line. `--help` and `--version` print and exit.
pub(crate) fn parse<P: FromArgMatches>(command: Command, words: &[OsString]) -> Result<P, Failure> {
    let read = command.clone().try_get_matches_from(words);
    read.and_then(|matches| P::from_arg_matches(&matches)).map_err(|error| match error.kind() {
        // The last one is the command without a subcommand: help on standard error, exit code 2.
        ErrorKind::DisplayHelp
        | ErrorKind::DisplayVersion
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => error.exit(),
        _ => failure(&command, words, &error),
    })
}

fn failure(command: &Command, words: &[OsString], error: &clap::Error) -> Failure {
    let (last, named) = subcommands(command, words);
    let help = format!("{} {named}--help", command.get_name());
    if let Some(failure) = not_first(words, error) {
        return failure;
    }
    let failure = Failure::new(plainly(&first_paragraph(&error.render().to_string())));
    if let Some(flag) = namesake(command, words, error) {
        return failure.hint(format!("did you mean '{flag}'? {help}"));
    }
    if let Some(hint) = meant(last, error) {
        return failure.hint(format!("did you mean '{hint}'? {help}"));
    }
    let known =
        [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg, ContextKind::SuggestedValue];
    match known.into_iter().find_map(|kind| error.get(kind)) {
        Some(ContextValue::String(word)) => failure.hint(format!("did you mean '{word}'? {help}")),
        Some(ContextValue::Strings(words)) if !words.is_empty() => {
            failure.hint(format!("did you mean '{}'? {help}", words.join("' or '")))
        }
        _ => failure.hint(help),
    }
}

/// A command that is an option, such as `profile --kernel`, with the option behind other words.
fn not_first(words: &[OsString], error: &clap::Error) -> Option<Failure> {
    if !matches!(error.kind(), ErrorKind::ArgumentConflict | ErrorKind::UnknownArgument) {
        return None;
    }
    let mut words = words.iter().skip(1).map_while(|word| word.to_str());
    let parent = words.next()?;
    // Behind `--` are the words of a program.
    let mut own = words.take_while(|word| *word != "--");
    let whole = own.find_map(|option| spelling::behind(parent, option))?;
    let (_, option) = whole.split_once(' ')?;
    Some(
        Failure::new(format!(
            "'{option}' stands behind other words: it must be the first behind '{parent}'"
        ))
        .hint(format!("lockwright {whole} --help")),
    )
}

/// The subcommand that the user has named, at last, and all of them, each with a space behind it.
fn subcommands<'a>(command: &'a Command, words: &[OsString]) -> (&'a Command, String) {
    let (mut command, mut named) = (command, String::new());
    for word in words.iter().skip(1) {
        let Some(next) = word.to_str().and_then(|word| command.find_subcommand(word)) else {
            break;
        };
        named += &format!("{} ", next.get_name());
        command = next;
    }
    (command, named)
}

/// The subcommand that the user meant: clap's own distance doesn't find `run` for `rnu`, and it would propose the name of a command that is
/// an option to whom means its parent.
fn meant(command: &Command, error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else {
        return None;
    };
    let visible = command.get_subcommands().filter(|sub| !sub.is_hide_set());
    let mut names: Vec<&str> = visible.map(Command::get_name).collect();
    if command.get_name() == spelling::PROGRAM {
        for old in spelling::olds() {
            names.push(old);
        }
    }
    let name = nearest(word, names)?;
    Some(spelling::now(name).unwrap_or(name).to_owned())
}

/// Flags of different subcommands that mean the same.
const NAMESAKES: [[&str; 2]; 4] =
    [["time", "duration"], ["out", "output"], ["seed", "seeds"], ["rounds", "seeds"]];

/// The flag of this subcommand that corresponds to an unknown flag from another one.
fn namesake(command: &Command, words: &[OsString], error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(given)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let subcommand = command.find_subcommand(words.get(1)?)?;
    let has = |flag: &str| {
        subcommand
            .get_arguments()
            .any(|known| known.get_long() == Some(flag) && !known.is_hide_set())
    };
    let given = given.strip_prefix("--")?;
    let others = NAMESAKES.iter().filter_map(|pair| match pair {
        [one, other] if *one == given => Some(other),
        [other, one] if *one == given => Some(other),
        _ => None,
    });
    others.into_iter().find(|other| has(other)).map(|other| format!("--{other}"))
}

/// Rephrases Rust's messages about invalid numbers.
fn plainly(message: &str) -> String {
    [
        ("invalid digit found in string", "not a number"),
        ("invalid float literal", "not a number"),
        ("cannot parse integer from empty string", "not a number"),
        ("cannot parse float from empty string", "not a number"),
        ("number too large to fit in target type", "too large"),
    ]
    .iter()
    .fold(message.to_owned(), |text, (theirs, ours)| text.replace(theirs, ours))
}

/// clap's message on one line, without tips and usage.
fn first_paragraph(text: &str) -> String {
    let lines: Vec<_> = text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    lines.join(" ").trim_start_matches("error: ").to_owned()
}
