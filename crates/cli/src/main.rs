//! The `lockwright` command: each subcommand is a file in `cmd/`, its flags are that file's `Args`.

mod attach;
mod catalog;
mod cmd;
mod compare;
mod ctl;
mod delegate;
mod epoch;
mod epochs;
mod explore;
mod export;
mod format;
mod hints;
mod interrupt;
mod kernel;
mod launch;
mod leftovers;
mod library;
mod lock_trace;
mod machine;
mod manual;
mod observed;
mod order;
mod output;
mod pause;
mod policy;
mod preference;
mod profile;
mod reproduce;
mod rules;
mod shards;
mod signals;
mod sim;
mod spelling;
mod standing;
mod supervise;
mod top;
mod trace;
mod tune;
mod usage;

use clap::{CommandFactory, Parser, Subcommand};
use hints::Failure;
use lockwright_shards::Merge;
use std::process::ExitCode;

/// Which lock makes your program slow, why, and whether another one helps, without changing it; also where cores aren't equal
#[derive(Parser)]
#[command(name = "lockwright", version, after_help = EXAMPLES, max_term_width = output::WIDTH)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "Examples:
  lockwright doctor ./server                 can we reach this program?
  lockwright profile -- ./server             which lock is slow, and why
  lockwright compare -- ./server             would another lock be better?
  lockwright run --lock fifo -- ./server     with the better one
  lockwright attach 4242                     the same for what runs already
  lockwright top 4242                        what its locks do, live
  lockwright switch 4242 g_lock fifo --guard 5s
                                             another lock, back if it is worse
  lockwright sim --machine m1 --lock mcs,asl
                                             how locks do elsewhere

lockwright COMMAND --help says more of each.
Exit codes: 0 fine, 1 the answer is no, 2 wrong usage or an error of ours,
125/126/127 the program could not be started, 129/130/143 a signal ended it;
else the program's own.";

/// A command whose name has `--` is an option of another one; spelling.rs has the names.
#[derive(Subcommand)]
enum Command {
    Run(cmd::run::Args),
    Switch(cmd::switch::Args),
    Attach(cmd::attach::Args),
    #[command(name = "attach --undo")]
    Detach(cmd::detach::Args),
    Policy(cmd::policy::Args),
    List(cmd::list::Args),
    Explain(cmd::explain::Args),
    Doctor(cmd::doctor::Args),
    #[command(name = "doctor --topology")]
    Topology(cmd::topology::Args),
    Bench(Box<cmd::bench::Args>),
    Compare(Box<cmd::compare::Args>),
    Tune(Box<cmd::tune::Args>),
    Sim(Box<cmd::sim::Args>),
    Reproduce(cmd::reproduce::Args),
    Rewrite(cmd::rewrite::Args),
    #[command(name = "sim --merge")]
    Merge(cmd::merge::Args),
    #[command(name = "profile --record")]
    Record(cmd::record::Args),
    Profile(Box<cmd::profile::Args>),
    Top(cmd::top::Args),
    #[command(name = "top --export")]
    Export(cmd::export::Args),
    #[command(name = "profile --kernel")]
    Kernel(Box<cmd::kernel::Args>),
    #[command(name = "sim --calibrate")]
    Calibrate(cmd::calibrate::Args),
    #[command(name = "sim --validate")]
    Validate(cmd::validate::Args),
    Explore(cmd::explore::Args),
    #[command(name = "--completions")]
    Completions(cmd::completions::Args),
    #[command(name = "--man")]
    Man(cmd::man::Args),
}

/// The command line, as it is parsed and described.
fn described() -> clap::Command {
    spelling::command(Cli::command())
}

fn main() -> ExitCode {
    let (words, note) = spelling::routed(std::env::args_os());
    if let Some(note) = note {
        output::say(&note);
    }
    let result = usage::parse::<Cli>(described(), &words).and_then(|cli| match cli.command {
        Command::Merge(args) => cmd::merge::read(&args).and_then(merge),
        command => run(command, None),
    });
    result.unwrap_or_else(|failure| hints::report(&failure))
}

/// Makes the report of shards, using the command that made them.
fn merge(merged: Merge) -> Result<ExitCode, Failure> {
    let words = std::iter::once("lockwright".to_owned()).chain(merged.words());
    let cli = Cli::try_parse_from(words).map_err(|_| {
        Failure::new("this lockwright doesn't know the command that made the shards")
            .hint("merge with the program that made them")
    })?;
    // The files' author must not be able to choose any other command.
    match cli.command {
        command @ (Command::Sim(_)
        | Command::Reproduce(_)
        | Command::Explore(_)
        | Command::Bench(_)) => run(command, Some(merged)),
        _ => Err(shards::refused("no experiment")),
    }
}

/// Runs the command. `shards`, if given, has the results of its experiment.
fn run(command: Command, shards: Option<Merge>) -> Result<ExitCode, Failure> {
    match command {
        Command::Run(args) => cmd::run::main(args),
        Command::Switch(args) => cmd::switch::main(args),
        Command::Attach(args) => cmd::attach::main(args),
        Command::Detach(args) => cmd::detach::main(args),
        Command::Policy(args) => cmd::policy::main(args),
        Command::List(args) => cmd::list::main(args),
        Command::Explain(args) => cmd::explain::main(args),
        Command::Doctor(args) => cmd::doctor::main(args),
        Command::Topology(args) => cmd::topology::main(args),
        Command::Bench(args) => cmd::bench::main(*args, shards),
        Command::Compare(args) => cmd::compare::main(*args),
        Command::Tune(args) => cmd::tune::main(*args),
        Command::Sim(args) => cmd::sim::main(*args, shards),
        Command::Reproduce(args) => cmd::reproduce::main(args, shards),
        Command::Rewrite(args) => cmd::rewrite::main(args),
        Command::Merge(_) => {
            Err(Failure::new("shards of shards")
                .hint("name all folders in one lockwright sim --merge"))
        }
        Command::Record(args) => cmd::record::main(args),
        Command::Profile(args) => cmd::profile::main(*args),
        Command::Top(args) => cmd::top::main(args),
        Command::Export(args) => cmd::export::main(args),
        Command::Kernel(args) => cmd::kernel::main(*args),
        Command::Calibrate(args) => cmd::calibrate::main(args),
        Command::Validate(args) => cmd::validate::main(args),
        Command::Explore(args) => cmd::explore::main(args, shards),
        Command::Completions(args) => cmd::completions::main(args, &described()),
        Command::Man(args) => cmd::man::main(args, described()),
    }
}
