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
mod profile;
mod reproduce;
mod rules;
mod shards;
mod signals;
mod sim;
mod supervise;
mod top;
mod trace;
mod tune;
mod usage;

use clap::{CommandFactory, Parser, Subcommand};
use hints::Failure;
use lockwright_shards::Merge;
use std::process::ExitCode;

/// Locks for machines whose cores are not equal, for unmodified programs.
#[derive(Parser)]
#[command(name = "lockwright", version, after_help = EXAMPLES, max_term_width = output::WIDTH)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "Examples:
  lockwright run -- ./server --port 8080        run a program on our locks
  lockwright run --lock fifo -- ./server        on a lock of your choice
  lockwright switch 4242 fifo                   switch locks while it runs
  lockwright top 4242                           what its locks do, live
  lockwright ctl 4242 switch g_lock fifo --guard 5s
                                                and back if that is worse
  lockwright attach 4242                        a process that runs already
  lockwright policy list                        program its locks yourself
  lockwright run --lock asl --stats -- ./app    how its epochs kept their SLOs
  lockwright compare -- ./app                   is another lock better for it?
  lockwright tune --slo-range 20us..2ms -- ./app   which SLO suits them
  lockwright sim --machine m1 --lock mcs,asl    how locks do elsewhere
  lockwright profile -- ./server                which locks it waits for
  lockwright record -- ./server                 which locks it takes: a trace
  lockwright rewrite                            sections as functions, for RCL
  lockwright kernel --time 5s                   who waits inside the kernel
  lockwright merge shards                       one report of all shards
  lockwright explore mcs                        do schedules break a lock?
  lockwright list                               all locks
  lockwright doctor ./server                    can we reach this program?

Exit codes: 0 fine, 1 the answer is no, 2 wrong usage or an error of ours,
125/126/127 the program could not be started; else the program's own.";

#[derive(Subcommand)]
enum Command {
    Run(cmd::run::Args),
    Switch(cmd::switch::Args),
    Ctl(cmd::ctl::Args),
    Attach(cmd::attach::Args),
    Detach(cmd::detach::Args),
    Policy(cmd::policy::Args),
    List(cmd::list::Args),
    Explain(cmd::explain::Args),
    Doctor(cmd::doctor::Args),
    Topology(cmd::topology::Args),
    Bench(Box<cmd::bench::Args>),
    Compare(Box<cmd::compare::Args>),
    Tune(Box<cmd::tune::Args>),
    Sim(Box<cmd::sim::Args>),
    Reproduce(cmd::reproduce::Args),
    Rewrite(cmd::rewrite::Args),
    Merge(cmd::merge::Args),
    Record(cmd::record::Args),
    Profile(Box<cmd::profile::Args>),
    Top(cmd::top::Args),
    Export(cmd::export::Args),
    Kernel(Box<cmd::kernel::Args>),
    Calibrate(cmd::calibrate::Args),
    Validate(cmd::validate::Args),
    Explore(cmd::explore::Args),
    Completions(cmd::completions::Args),
    Man(cmd::man::Args),
}

fn main() -> ExitCode {
    let result = usage::parse::<Cli>().and_then(|cli| match cli.command {
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
        Command::Ctl(args) => cmd::ctl::main(args),
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
            Err(Failure::new("shards of shards").hint("name all folders in one lockwright merge"))
        }
        Command::Record(args) => cmd::record::main(args),
        Command::Profile(args) => cmd::profile::main(*args),
        Command::Top(args) => cmd::top::main(args),
        Command::Export(args) => cmd::export::main(args),
        Command::Kernel(args) => cmd::kernel::main(*args),
        Command::Calibrate(args) => cmd::calibrate::main(args),
        Command::Validate(args) => cmd::validate::main(args),
        Command::Explore(args) => cmd::explore::main(args, shards),
        Command::Completions(args) => cmd::completions::main(args, Cli::command()),
        Command::Man(args) => cmd::man::main(args, Cli::command()),
    }
}
