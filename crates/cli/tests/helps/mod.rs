//! Every command's help, as a user finds it: from the command's own `--help` on.

use anyhow::{Result, ensure};
use lockwright_tests::{Child, End};

/// A command, and its help.
pub(crate) struct Help {
    /// Behind `lockwright`.
    pub(crate) words: Vec<String>,
    pub(crate) text: String,
}

impl Help {
    /// `lockwright profile --record`
    pub(crate) fn command(&self) -> String {
        ["lockwright".to_owned()].iter().chain(&self.words).cloned().collect::<Vec<_>>().join(" ")
    }
}

/// All of them: of the command itself, and of all commands below it.
pub(crate) fn helps() -> Result<Vec<Help>> {
    let mut helps = Vec::new();
    walk(Vec::new(), &mut helps)?;
    Ok(helps)
}

fn walk(words: Vec<String>, helps: &mut Vec<Help>) -> Result<()> {
    let outcome = Child::new(env!("CARGO_BIN_EXE_lockwright"))
        .args(&words)
        .args(["--help"])
        .env("COLUMNS", "80")
        .run()?;
    let help = Help { words, text: outcome.text() };
    ensure!(outcome.end == End::Code(0), "{} --help: {}", help.command(), outcome.describe());
    ensure!(outcome.stderr.is_empty(), "{} --help: {}", help.command(), outcome.describe());
    let below = below(&help);
    let words = help.words.clone();
    helps.push(help);
    for name in below {
        walk([&words[..], &[name]].concat(), helps)?;
    }
    Ok(())
}

/// The lines below a heading, up to the end of the list.
pub(crate) fn part<'a>(help: &'a str, heading: &str) -> Option<&'a str> {
    let (_, rest) = help.split_once(&format!("\n{heading}\n"))?;
    Some(rest.split_once("\n\n").map_or(rest, |(part, _)| part))
}

/// The next words of the commands below this one.
fn below(help: &Help) -> Vec<String> {
    let mut names = Vec::new();
    for heading in ["Look:", "Change:", "Study:", "Commands:"] {
        for line in part(&help.text, heading).unwrap_or_default().lines() {
            // What goes on from the line before is indented further.
            let name = line.strip_prefix("  ").filter(|line| !line.starts_with(' '));
            names.extend(name.and_then(|line| line.split(' ').next()));
        }
    }
    // Commands that are options. Those of `lockwright` itself are beside the usual two.
    let heading = if help.words.is_empty() { "Options:" } else { "Instead, as the first word:" };
    if let Some((_, rest)) = help.text.split_once(&format!("\n{heading}\n")) {
        let rest = rest.split("\nExamples:\n").next().unwrap_or_default();
        let list = rest.lines().filter_map(|line| line.strip_prefix("      "));
        let options = list.filter(|line| line.starts_with("--"));
        names.extend(options.filter_map(|line| line.split(' ').next()));
    }
    names.iter().filter(|name| **name != "help").map(|name| (*name).to_owned()).collect()
}
