//! The project's own commands: one file per command, each with its own flags.

mod aarch64;
mod answer;
mod book;
mod bpf;
mod choosing;
mod conformance;
mod dask;
mod demo;
mod deny;
mod dist;
mod eval;
mod fit;
mod guard;
mod kernel_policy;
mod pages;
mod pool;
mod progress;
mod release;
mod root;
mod shards;
mod soak;
mod test;
mod tidy;
mod tool;
mod weaken;

use answer::{Interrupted, No, describe, shown_words};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser, Subcommand};
use lockwright_shards::Merge;
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
    /// Pass every test, installing what they need: about half an hour, as root on Debian 12.
    ///
    /// Installs missing packages with apt-get first. If it isn't root, it only lists them.
    Test(test::Args),
    /// Run the long searches that the tests have no time for; an interrupted soak resumes where it was.
    Soak(soak::Args),
    /// Run those of the soak's searches that draw inputs and policies: ten million policies, and more.
    Fuzz(soak::Choice),
    /// Check the house's conventions (also a test).
    Tidy(tidy::Args),
    /// Build the book of docs/ into target/book, and check its links (also a test).
    Book(book::Args),
    /// Drive the commands' pages and pictures in a browser (needs chromium, nodejs, npm): errors, sorting, zoom, width, contrast.
    Pages(pages::Args),
    /// Check the project's dependencies: licences, versions, sources, advisories (deny.toml).
    Deny(deny::Args),
    /// Make what users install: a tarball, a Debian package, crates; with --check install and use them.
    Dist(dist::Args),
    /// Make a version: set it everywhere, close the changelog's `Unreleased`, commit, tag. Pushes nothing.
    Release(release::Args),
    /// Run glibc's own thread tests with and without the library, and compare.
    Conformance(conformance::Args),
    /// Run the driver of shards on Dask: a local cluster, two of whose workers are killed (installs Dask by pip).
    Dask(dask::Args),
    /// Run the POSIX programs on 64-bit ARM, under user-mode emulation (needs a cross compiler).
    Aarch64(aarch64::Args),
    /// Weaken each memory ordering and drop each wake-up of the locks, one at a time: some model must notice.
    Weaken(weaken::Args),
    /// Compile the programs in eBPF, the policies and the one that `lockwright profile --kernel` loads (needs clang), and compare them with the committed ones.
    Bpf(bpf::Args),
    /// Patch a running Debian kernel, in QEMU, so that its mutexes ask a lock policy; functional only.
    KernelPolicy(kernel_policy::Args),
    /// Run a command that ends, with all that it started, when we do.
    #[command(hide = true)]
    Guard(guard::Args),
    /// Compute until the process with this number ends: what the demo measures beside.
    #[command(hide = true)]
    Hog { parent: u32 },
    /// Make one report of the shards of an evaluation or a fit.
    Merge(shards::Args),
    /// Fit a simulated machine's unpublished figures to the papers' results, and write them to its profile.
    Fit(fit::Args),
}

fn main() -> ExitCode {
    let words = shown_words();
    let args = Args::try_parse().unwrap_or_else(|error| match error.kind() {
        ErrorKind::DisplayHelp
        | ErrorKind::DisplayVersion
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => error.exit(),
        _ => {
            eprintln!("error: {}", misused(&error, &help(&words)));
            std::process::exit(2);
        }
    });
    let result = match args.command {
        Command::Merge(args) => shards::read(&args).and_then(merge),
        command => run(command, None),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", describe(&error, Some(&help(&words))));
            ExitCode::from(match () {
                () if error.is::<No>() => 1,
                () if error.is::<Interrupted>() => 130,
                () => 2,
            })
        }
    }
}

/// Makes the report of shards, using the command that made them.
fn merge(shards: Merge) -> anyhow::Result<()> {
    let words = std::iter::once("cargo xtask".to_owned()).chain(shards.words());
    let args = Args::try_parse_from(words).map_err(|_| {
        anyhow::anyhow!("cargo xtask doesn't know the command that made the shards")
    })?;
    match args.command {
        command @ (Command::Eval(_) | Command::Fit(_)) => run(command, Some(shards)),
        // The files' author must not be able to choose any other command.
        _ => Err(shards::refused(&shards.words().join(" "))),
    }
}

/// Runs the command. `shards`, if given, has its results.
fn run(command: Command, shards: Option<Merge>) -> anyhow::Result<()> {
    match command {
        Command::Demo(args) => demo::main(args),
        Command::Eval(args) => eval::main(args, shards),
        Command::Choosing(args) => choosing::main(args),
        Command::Test(args) => test::main(args),
        Command::Soak(args) => soak::main(args),
        Command::Fuzz(args) => soak::fuzz(&args),
        Command::Tidy(args) => tidy::main(args),
        Command::Book(args) => book::main(args),
        Command::Pages(args) => pages::main(args),
        Command::Deny(args) => deny::main(args),
        Command::Dist(args) => dist::main(args),
        Command::Release(args) => release::main(args),
        Command::Conformance(args) => conformance::main(args),
        Command::Dask(args) => dask::main(args),
        Command::Aarch64(args) => aarch64::main(args),
        Command::Weaken(args) => weaken::main(args),
        Command::Bpf(args) => bpf::main(args),
        Command::KernelPolicy(args) => kernel_policy::main(args),
        Command::Fit(args) => fit::main(args, shards),
        Command::Guard(args) => guard::main(&args),
        Command::Hog { parent } => {
            lockwright_bench::hog(parent);
            Ok(())
        }
        Command::Merge(_) => anyhow::bail!("shards of shards\nhint: name all folders in one merge"),
    }
}

/// The help command for these words.
fn help(words: &[String]) -> String {
    let mut command = Args::command();
    let mut text = "cargo xtask".to_owned();
    for word in words {
        let Some(known) = command.find_subcommand(word).cloned() else { break };
        text += &format!(" {word}");
        command = known;
    }
    text + " --help"
}

/// clap's message without its tips and usage, on one line, then a hint.
fn misused(error: &clap::Error, help: &str) -> String {
    let text = error.render().to_string();
    let lines: Vec<_> = text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    let line = lines.join(" ");
    let meant =
        [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg, ContextKind::SuggestedValue]
            .into_iter()
            .find_map(|kind| match error.get(kind)? {
                ContextValue::String(word) => Some(word.clone()),
                ContextValue::Strings(words) => words.first().cloned(),
                _ => None,
            });
    let meant = meant.map_or(String::new(), |word| format!("did you mean '{word}'? "));
    format!("{}\nhint: {meant}{help}", line.trim_start_matches("error: "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misused_command_is_a_line_and_a_hint() {
        for (words, told) in [
            ("bogus", "unrecognized subcommand 'bogus'\nhint: cargo xtask --help"),
            (
                "tidy --writ",
                "unexpected argument '--writ' found\nhint: did you mean '--write'? cargo xtask tidy --help",
            ),
            ("eval nope", "unrecognized subcommand 'nope'\nhint: cargo xtask eval --help"),
            (
                "fuzz --record",
                "unexpected argument '--record' found\nhint: cargo xtask fuzz --help",
            ),
            ("deny x", "unexpected argument 'x' found\nhint: cargo xtask deny --help"),
        ] {
            let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
            let error =
                Args::try_parse_from(["xtask".to_owned()].iter().chain(&words)).err().unwrap();
            assert_eq!(misused(&error, &help(&words)), told);
        }
    }
}
