//! `lockwright policy`.

mod check;
mod compose;
mod list;
mod load;
mod new;
mod run;
mod stats;
mod store;
mod tag;
mod unload;

use crate::hints::Failure;
use std::process::ExitCode;

/// Program the locks of a running program: write, check, simulate and load policies
///
/// A policy is a few functions in C, compiled to eBPF. It says who is next at a lock, and who waits how. It is verified before it
/// is loaded: it can't crash the program, run for ever, or break a lock. docs/policies.md is a tutorial.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  lockwright policy list                         the policies that there are
  lockwright policy new mine                     mine.bpf.c, to begin with
  lockwright policy check big-first              is it safe? what does it cost?
  lockwright policy run big-first --machine m1   simulated, beside other locks
  lockwright policy load big-first --pid 4242 --lock g_lock --guard 5s
                                                 and out again if it is worse
  lockwright policy stats --pid 4242             what it does
  lockwright policy unload --pid 4242            the old locks are back")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: PolicyCommand,
}

#[derive(clap::Subcommand)]
enum PolicyCommand {
    New(new::Args),
    Check(check::Args),
    Run(Box<run::Args>),
    Load(Box<load::Args>),
    List(list::Args),
    Stats(stats::Args),
    Unload(unload::Args),
    Store(store::StoreArgs),
    Remove(store::RemoveArgs),
    Compose(compose::Args),
    Tag(tag::Args),
}

pub(crate) fn main(args: Args) -> Result<ExitCode, Failure> {
    match args.what {
        PolicyCommand::New(args) => new::main(&args),
        PolicyCommand::Check(args) => check::main(&args),
        PolicyCommand::Compose(args) => compose::main(&args),
        PolicyCommand::Run(args) => run::main(*args),
        PolicyCommand::Load(args) => load::main(*args),
        PolicyCommand::List(args) => list::main(&args),
        PolicyCommand::Stats(args) => stats::main(&args),
        PolicyCommand::Unload(args) => unload::main(&args),
        PolicyCommand::Tag(args) => tag::main(&args),
        PolicyCommand::Store(args) => store::main(&args),
        PolicyCommand::Remove(args) => store::remove(&args),
    }
}
