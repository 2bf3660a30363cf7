//! `lockwright profile`.

use crate::hints::Failure;
use crate::interrupt::INTERRUPTED;
use crate::profile::outcome::outcome;
use crate::profile::sample::{End, sample};
use crate::profile::target::Target;
use crate::profile::{flame, report};
use crate::{launch, output};
use lockwright_bench::{progress, units};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Show which locks a running process waits for, and what their holders do meanwhile
///
/// Any process with glibc's locks will do: nothing is put into it, and none of its threads is stopped. Some times a
/// second we look where each thread sleeps. If that is in a lock, the lock says who holds it, and we look at what the
/// holder does. docs/profile.md says what can be seen so, and what can't.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  lockwright profile -p 4242 --sample
  lockwright profile -p $(pidof server) --sample --time 30s --flame locks.svg
  lockwright profile -p 4242 --sample --format json | jq '.locks[0].holders[0]'

Ctrl-C ends the sampling, and reports what was seen until then (exit code 130).")]
pub(crate) struct Args {
    /// The process
    #[arg(long, short, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pid: libc::pid_t,
    /// Look from outside, again and again: all shares are estimates
    #[arg(long, required = true)]
    sample: bool,
    /// For how long, as in 500ms; without a unit, of seconds
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = units::seconds)]
    time: f64,
    /// Samples a second
    #[arg(long, value_name = "HZ", default_value_t = 99,
          value_parser = clap::value_parser!(u32).range(1..=2000))]
    rate: u32,
    /// How the report is written
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Where the report goes, instead of standard output
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// A flame graph of those who wait and those who hold
    #[arg(long, value_name = "FILE.svg")]
    flame: Option<PathBuf>,
    /// No progress bar
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// For people
    Text,
    /// For programs; all locks, and whole stacks
    Json,
}

/// A day is enough.
const LONGEST: f64 = 86_400.0;

pub(crate) fn main(args: Args) -> Result<ExitCode, Failure> {
    if !(0.01..=LONGEST).contains(&args.time) {
        return Err(Failure::new(format!(
            "bad --time '{}s': not within 10ms to 24 hours",
            args.time
        ))
        .hint("for example --time 5s"));
    }
    let mut target = Target::open(args.pid)?;
    // Writing comes last; that it will fail should be said first.
    for file in [&args.output, &args.flame].into_iter().flatten() {
        launch::can_write(file).map_err(|error| launch::unwritable(file, &error))?;
    }
    let time = Duration::from_secs_f64(args.time);
    let bar = progress(time.as_millis() as u64, args.quiet);
    bar.set_message(format!("sampling {}", args.pid));
    let sampled = sample(&mut target, time, args.rate.into(), &bar);
    bar.set_message("naming");
    let (outcome, folded) = outcome(&mut target, &sampled);
    bar.finish_and_clear();
    let text = match args.format {
        Format::Text => report::text(&outcome),
        Format::Json => {
            let value = serde_json::to_value(&outcome).map_err(Failure::new)?;
            output::json(&value)
        }
    };
    if let Some(file) = &args.flame {
        match folded.is_empty() {
            true => output::say(&format!("nothing to draw: '{}' is not written\n", file.display())),
            false => {
                let title = format!("Locks of {} ({})", target.name, target.pid);
                write(file, |to| flame::draw(&title, &folded, to))?;
            }
        }
    }
    match &args.output {
        Some(file) => write(file, |to| to.write_all(text.as_bytes()))?,
        None => output::print(&text)?,
    }
    Ok(match sampled.end {
        End::Interrupted => INTERRUPTED.into(),
        End::TimeIsUp | End::ProcessEnded => ExitCode::SUCCESS,
    })
}

fn write(
    file: &Path,
    content: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>,
) -> Result<(), Failure> {
    let mut to = BufWriter::new(launch::create(file)?);
    let written = content(&mut to).and_then(|()| to.flush());
    written.map_err(|error| launch::unwritable(file, &error))
}
