//! The project's own commands. One file a command; each takes its own flags.

mod aarch64;
mod choosing;
mod conformance;
mod demo;
mod deny;
mod eval;
mod fit;
mod pool;
mod test;
mod tidy;
mod weaken;

use clap::{Parser, Subcommand};
use std::fmt;
use std::process::ExitCode;

/// lockwright's own commands: see README.md for the two that matter.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a real embedded database under glibc's lock and ours; print a table, write an HTML report.
    Demo(demo::Args),
    /// Measure a paper's databases under its locks, or unmodified programs under ours; write an HTML report.
    Eval(eval::Args),
    /// Measure every lock on every simulated machine, or on this one; write docs/choosing.md: which lock for which program.
    Choosing(choosing::Args),
    /// Pass every test, installing what they need.
    Test(test::Args),
    /// Check the house's conventions (also a test).
    Tidy(tidy::Args),
    /// Check what the project is built from: licences, versions, sources, advisories (deny.toml).
    Deny(deny::Args),
    /// Run glibc's own thread tests with and without the library, and compare.
    Conformance(conformance::Args),
    /// Run the POSIX programs on 64-bit ARM, under user-mode emulation (needs a cross compiler).
    Aarch64(aarch64::Args),
    /// Weaken each ordering and drop each wake of the locks, one at a time: some model must notice.
    Weaken(weaken::Args),
    /// Fit a simulated machine's unpublished figures to the papers' results, and write them into its profile.
    Fit(fit::Args),
}

/// The command did its work, and the answer is no: exit code 1, where any other error is 2.
#[derive(Debug)]
struct No(String);

impl fmt::Display for No {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for No {}

/// Ctrl-C was pressed, and the results until then are kept: exit code 130.
#[derive(Debug)]
struct Interrupted(&'static str);

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "interrupted: {}", self.0)
    }
}

impl std::error::Error for Interrupted {}

fn main() -> ExitCode {
    let result = match Args::parse().command {
        Command::Demo(args) => demo::main(args),
        Command::Eval(args) => eval::main(args),
        Command::Choosing(args) => choosing::main(args),
        Command::Test(args) => test::main(args),
        Command::Tidy(args) => tidy::main(args),
        Command::Deny(args) => deny::main(args),
        Command::Conformance(args) => conformance::main(args),
        Command::Aarch64(args) => aarch64::main(args),
        Command::Weaken(args) => weaken::main(args),
        Command::Fit(args) => fit::main(args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", describe(&error));
            ExitCode::from(match () {
                () if error.is::<No>() => 1,
                () if error.is::<Interrupted>() => 130,
                () => 2,
            })
        }
    }
}

/// The error and its causes in one line, then what each of them hints at.
fn describe(error: &anyhow::Error) -> String {
    let (mut line, mut hints) = (Vec::new(), String::new());
    for cause in error.chain().map(ToString::to_string) {
        let (what, hint) = cause.split_once("\nhint: ").unwrap_or((&cause, ""));
        line.push(what.to_owned());
        if !hint.is_empty() {
            hints += &format!("\nhint: {hint}");
        }
    }
    line.join(": ") + &hints
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;

    #[test]
    fn hints_follow_the_causes() {
        let error = anyhow!("no such file").context("cannot read 'x'\nhint: make x").context("y");
        assert_eq!(describe(&error), "y: cannot read 'x': no such file\nhint: make x");
    }

    #[test]
    fn no_is_known_behind_its_context() {
        assert!(anyhow!(No("lost".into())).context("x").is::<No>());
        assert!(!anyhow!("lost").is::<No>());
    }
}
