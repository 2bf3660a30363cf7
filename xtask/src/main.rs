//! The project's own commands. One file a command; each takes its own flags.

mod conformance;
mod demo;
mod pool;
mod test;
mod tidy;
mod weaken;

use clap::{Parser, Subcommand};

/// lockwright's own commands: see README.md for the two that matter.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a real embedded database under glibc's lock and ours; print a table, write an HTML report.
    Demo(demo::Args),
    /// Pass every test, installing what they need.
    Test(test::Args),
    /// Check the house's conventions (also a test).
    Tidy(tidy::Args),
    /// Run glibc's own thread tests with and without the library, and compare.
    Conformance(conformance::Args),
    /// Weaken each ordering and drop each wake of the locks, one at a time: some model must notice.
    Weaken(weaken::Args),
}

fn main() -> anyhow::Result<()> {
    match Args::parse().command {
        Command::Demo(args) => demo::main(args),
        Command::Test(args) => test::main(args),
        Command::Tidy(args) => tidy::main(args),
        Command::Conformance(args) => conformance::main(args),
        Command::Weaken(args) => weaken::main(args),
    }
}
