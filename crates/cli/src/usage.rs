//! Reads the command line, and converts clap's errors to one line and a hint.

use crate::catalog;
use crate::hints::{Failure, nearest};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};

/// Reads the command line. `--help` and `--version` print and exit.
pub(crate) fn parse<P: Parser + CommandFactory>() -> Result<P, Failure> {
    P::try_parse().map_err(|error| match error.kind() {
        // The last one is the command without a subcommand: help on standard error, exit code 2.
        ErrorKind::DisplayHelp
        | ErrorKind::DisplayVersion
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => error.exit(),
        _ => failure::<P>(&error),
    })
}

fn failure<P: CommandFactory>(error: &clap::Error) -> Failure {
    let name = P::command().get_name().to_owned();
    let help = format!("{name} {}--help", subcommands(&P::command()));
    let failure = Failure::new(plainly(&first_paragraph(&error.render().to_string())));
    if let Some(flag) = namesake::<P>(error) {
        return failure.hint(format!("did you mean '{flag}'? {help}"));
    }
    if let Some(command) = switch_all(error) {
        return failure.hint(command);
    }
    let known =
        [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg, ContextKind::SuggestedValue];
    match known.into_iter().find_map(|kind| error.get(kind)) {
        Some(ContextValue::String(word)) => failure.hint(format!("did you mean '{word}'? {help}")),
        Some(ContextValue::Strings(words)) if !words.is_empty() => {
            failure.hint(format!("did you mean '{}'? {help}", words.join("' or '")))
        }
        _ => match meant::<P>(error) {
            Some(word) => failure.hint(format!("did you mean '{word}'? {help}")),
            None => failure.hint(help),
        },
    }
}

/// A complete command for `ctl PID switch` with one word only. People leave out TARGET, since `switch PID LOCK` has none.
fn switch_all(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::Strings(missing)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let words: Option<Vec<_>> = std::env::args_os().map(|word| word.into_string().ok()).collect();
    let words = words?;
    match &words[..] {
        [_, ctl, pid, switch, word]
            if ctl == "ctl" && switch == "switch" && missing[..] == ["<RULE>"] =>
        {
            let is_lock = catalog::check(word).is_ok();
            let words = if is_lock { ["all", word.as_str()] } else { [word.as_str(), "auto"] };
            let words = shlex::try_join(words).ok()?;
            Some(format!("lockwright ctl {pid} switch {words}"))
        }
        _ => None,
    }
}

/// The subcommand, if it may be one: the first word, if it is text.
fn first_word() -> Option<String> {
    std::env::args_os().nth(1)?.into_string().ok()
}

/// The subcommands that the user has named, each with a space behind it.
fn subcommands(command: &clap::Command) -> String {
    let (mut command, mut named) = (command, String::new());
    for word in std::env::args_os().skip(1) {
        let Some(next) = word.to_str().and_then(|word| command.find_subcommand(word)) else {
            break;
        };
        named += &format!("{} ", next.get_name());
        command = next;
    }
    named
}

/// The subcommand that the user meant: clap's own distance doesn't find `run` for `rnu`.
fn meant<P: CommandFactory>(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else {
        return None;
    };
    let command = P::command();
    nearest(word, command.get_subcommands().map(clap::Command::get_name)).map(str::to_owned)
}

/// Flags of different subcommands that mean the same.
const NAMESAKES: [[&str; 2]; 4] =
    [["time", "duration"], ["out", "output"], ["seed", "seeds"], ["rounds", "seeds"]];

/// The flag of this subcommand that corresponds to an unknown flag from another one.
fn namesake<P: CommandFactory>(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(given)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let (command, word) = (P::command(), first_word()?);
    let subcommand = command.get_subcommands().find(|known| known.get_name() == word)?;
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
