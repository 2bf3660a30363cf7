//! The command line, with clap's errors in the house's words: one line and a hint.

use crate::hints::Failure;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};

/// Reads the command line; `--help` and `--version` print and leave.
pub(crate) fn parse<P: Parser + CommandFactory>() -> Result<P, Failure> {
    P::try_parse().map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => error.exit(),
        _ => failure::<P>(&error),
    })
}

fn failure<P: CommandFactory>(error: &clap::Error) -> Failure {
    let name = P::command().get_name().to_owned();
    let subcommand = std::env::args().nth(1).filter(|argument| {
        P::command().get_subcommands().any(|known| known.get_name() == argument)
    });
    let help = subcommand.map_or(format!("{name} --help"), |word| format!("{name} {word} --help"));
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return Failure::new("no command given").hint(help);
    }
    let failure = Failure::new(first_paragraph(&error.render().to_string()));
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

/// clap's message without its tips and usage, on one line.
fn first_paragraph(text: &str) -> String {
    let lines: Vec<_> = text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    lines.join(" ").trim_start_matches("error: ").to_owned()
}
