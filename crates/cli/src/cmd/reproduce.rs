//! `lockwright reproduce`.

use crate::format::FormatFlags;
use crate::hints::{Failure, cause, nearest};
use crate::reproduce::runs::SessionRuns;
use crate::reproduce::{Done, count, folder, json, list, planted_text, text};
use crate::sim::words::machine;
use crate::{interrupt, launch, output, shards};
use indicatif::ProgressBar;
use lockwright_figures::{
    Context, Error, Experiment, FigureReport, Measured, Progress, evaluate, experiments, find,
    models, planted,
};
use lockwright_shards::{Flags, Job, Merge, Session};
use lockwright_sim::profile::{Profile, builtin};
use lockwright_sim::targets::{self, Figure};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::{fs, io};

/// Reproduce the papers' figures on simulated machines, and compare the results
///
/// The locks' own source runs on a model of the paper's machine; the same seeds give the same figures. Each target says
/// which results are accepted. Targets for locks that don't exist yet are listed as missing.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  lockwright reproduce libasl-8b
  lockwright reproduce all --format json > figures.json
  lockwright reproduce libasl-1 libasl-4 --seeds 9 --output figures
  lockwright reproduce libasl-8g --machine here.toml
  lockwright reproduce libasl-1 --planted --seeds 1
  lockwright reproduce all --shard 1/8 --output shards
  lockwright reproduce --list

DIR gets report.html, figures.json and the plots (SVG). A result is the median
over the seeds. Figures are simulated. Exit codes: 0 every result is accepted, 1
a result is not accepted, a check such as mutual exclusion failed, or a row did
not notice its wrong model (--planted).")]
pub(crate) struct Args {
    /// Figures, or all
    #[arg(value_name = "FIGURE", required_unless_present = "list")]
    figures: Vec<String>,
    /// Another machine than the figure's: a name, or a profile in TOML
    #[arg(long, value_name = "MACHINE")]
    machine: Option<String>,
    /// Runs of each point, each with its own seed
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    seeds: u32,
    /// Simulate a tenth of the time: rough figures, but sooner
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    shards: Flags,
    #[command(flatten)]
    format: FormatFlags,
    /// Write report, plots and data there
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Measure each row on its planted wrong model, and see whether the row notices
    #[arg(long, conflicts_with_all = ["machine", "list", "output", "format"])]
    planted: bool,
    /// List the figures
    #[arg(long)]
    list: bool,
    /// No progress bar
    #[arg(long, short)]
    quiet: bool,
}

/// The factor by which `--quick` shortens the simulated time.
const QUICK: f64 = 0.1;

pub(crate) fn main(mut args: Args, merged: Option<Merge>) -> Result<ExitCode, Failure> {
    if let Some(merged) = &merged {
        if args.list {
            return Err(shards::refused("reproduce --list"));
        }
        args.output = merged.output().map(Path::to_owned);
    }
    if args.list {
        list(args.format.is_json())?;
        return Ok(ExitCode::SUCCESS);
    }
    let chosen = choose(&args.figures)?;
    if args.planted {
        return plant(&chosen, &args);
    }
    let other = args.machine.as_deref().map(machine).transpose()?.map(Arc::new);
    if let Some(other) = &other {
        check(&chosen, other)?;
    }
    // The files are written last. If that will fail, say so first.
    if let Some(dir) = &args.output {
        launch::can_fill(dir).map_err(|error| unmakable(dir, &error))?;
    }

    let inputs = inputs(&chosen, other.as_deref(), &args);
    let session = shards::session(&args.shards, args.output.as_deref(), merged, inputs)?;
    let bar = lockwright_bench::progress(0, "runs", args.quiet);
    let progress = |step| match step {
        Progress::Planned(runs) => bar.inc_length(runs as u64),
        Progress::Done => bar.inc(1),
    };
    let done =
        |bar: &ProgressBar| format!("{} runs, the last ones of {}", bar.position(), bar.message());
    let interrupts = interrupt::Watch::new(&bar, done, session.resume());
    if session.is_merged() {
        let jobs = planned(&session, &chosen, other.as_ref(), &args)?;
        session.complete(&jobs).map_err(shards::failure)?;
    }
    let runs = SessionRuns::new(&session);
    let length = if args.quick { QUICK } else { 1.0 };
    let mut contexts: Vec<Context<'_>> = Vec::new();
    let mut all = Vec::new();
    let mut broken = false;
    for (figure, experiment) in chosen {
        let profile = other.clone().unwrap_or_else(|| of(&figure));
        let known = contexts.iter().position(|context| context.profile.name == profile.name);
        let place = known.unwrap_or_else(|| {
            let (progress, runs) = (&progress, &runs);
            let new = Context::new(profile, args.seeds);
            let often = args.seeds.max(targets::SIGN_SEEDS);
            contexts.push(Context { length, progress, runs, often, ..new });
            contexts.len() - 1
        });
        bar.set_message(figure.figure.clone());
        let measured = match (experiment.measure)(&contexts[place]) {
            Ok(measured) => measured,
            Err(error @ Error::Violation { .. }) => {
                broken = true;
                bar.suspend(|| {
                    output::say(&format!("error: figure {} is void: {error}\n", figure.figure))
                });
                Measured::new()
            }
            Err(Error::Elsewhere) => continue,
            Err(error) => return Err(failure(&figure.figure, error)),
        };
        let compared = evaluate(&figure, &contexts[place].profile, args.seeds, &measured);
        let report = FigureReport { quick: args.quick, ..compared };
        let done = Done { figure, measured, report };
        if !args.format.is_json() {
            bar.suspend(|| output::print(&text(&done)))?;
        }
        all.push(done);
    }
    interrupts.over();
    bar.finish_and_clear();
    if session.is_part() {
        output::print(&session.summary())?;
        return Ok(ExitCode::SUCCESS);
    }

    if args.format.is_json() {
        output::print_json(&json(&all, args.figures.len() == 1 && all.len() == 1)?)?;
    } else if all.len() > 1 {
        output::print(&crate::reproduce::summary(&all))?;
    }
    if let Some(dir) = &args.output {
        fs::create_dir_all(dir).map_err(|error| unmakable(dir, &error))?;
        let files = folder::write(&all, &shards::command(&session), dir)?;
        if !args.format.is_json() {
            output::print(&format!(
                "\nwritten: {} and {}\n",
                dir.join("report.html").display(),
                count(files, "plot")
            ))?;
        }
    }
    let missed = broken || all.iter().any(|done| done.report.missed().next().is_some());
    Ok(if missed { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

/// Measures each row on its wrong model. Exit code 1: a row accepts it.
fn plant(chosen: &[(Figure, &'static Experiment)], args: &Args) -> Result<ExitCode, Failure> {
    let bar = lockwright_bench::progress(0, "runs", args.quiet);
    let progress = |step| match step {
        Progress::Planned(runs) => bar.inc_length(runs as u64),
        Progress::Done => bar.inc(1),
    };
    let _interrupts = interrupt::Watch::new(&bar, |_| String::new(), None);
    let length = if args.quick { QUICK } else { 1.0 };
    let (mut all, mut noticed) = (0, 0);
    for (figure, experiment) in chosen {
        bar.set_message(figure.figure.clone());
        let models = models(figure);
        let often = args.seeds.max(targets::SIGN_SEEDS);
        let context = |wrong| {
            let wrong = Some(wrong);
            Context {
                wrong,
                often,
                length,
                progress: &progress,
                ..Context::new(of(figure), args.seeds)
            }
        };
        let rows = planted(figure, experiment, context, &models)
            .map_err(|error| failure(&figure.figure, error))?;
        all += rows.len();
        noticed += rows.iter().filter(|row| row.is_noticed()).count();
        bar.suspend(|| output::print(&planted_text(figure, &rows)))?;
    }
    bar.finish_and_clear();
    output::print(&format!("{noticed} of {all} rows notice their planted wrong model\n"))?;
    Ok(ExitCode::from(u8::from(noticed < all)))
}

/// Everything that determines the results.
fn inputs(
    chosen: &[(Figure, &'static Experiment)],
    other: Option<&Profile>,
    args: &Args,
) -> Vec<String> {
    let figures = chosen.iter().map(|(figure, _)| figure.figure.clone());
    let machine = other.map_or("the papers'".to_owned(), |profile| format!("{profile:?}"));
    figures.chain([machine, args.seeds.to_string(), args.quick.to_string()]).collect()
}

/// The jobs of all figures.
fn planned(
    session: &Session,
    chosen: &[(Figure, &'static Experiment)],
    other: Option<&Arc<Profile>>,
    args: &Args,
) -> Result<Vec<Job>, Failure> {
    let runs = SessionRuns::planning(session);
    let length = if args.quick { QUICK } else { 1.0 };
    for (figure, experiment) in chosen {
        let profile = other.cloned().unwrap_or_else(|| of(figure));
        let often = args.seeds.max(targets::SIGN_SEEDS);
        let context = Context { length, often, runs: &runs, ..Context::new(profile, args.seeds) };
        match (experiment.measure)(&context) {
            Ok(_) | Err(Error::Elsewhere | Error::Violation { .. }) => {}
            Err(error) => return Err(failure(&figure.figure, error)),
        }
    }
    Ok(runs.jobs())
}

fn failure(figure: &str, error: Error) -> Failure {
    match error {
        Error::NotMade(error) => match error.downcast::<lockwright_shards::Error>() {
            Ok(error) => shards::failure(*error),
            Err(error) => Failure::new(format!("{figure}: {error}")),
        },
        error => Failure::new(format!("{figure}: {error}")),
    }
}

fn unmakable(dir: &Path, error: &io::Error) -> Failure {
    Failure::new(format!("cannot write to '{}': {}", dir.display(), cause(error)))
        .hint("lockwright reproduce --output DIR ...")
}

/// Checks that all chosen figures can run on that machine.
fn check(chosen: &[(Figure, &'static Experiment)], machine: &Arc<Profile>) -> Result<(), Failure> {
    for (Figure { figure, machine: own, .. }, experiment) in chosen {
        experiment.check(machine.clone()).map_err(|error| {
            let hint = match chosen {
                [_] => format!("on the paper's machine, {own}: lockwright reproduce {figure}"),
                _ => format!("leave it out, or use {own}: lockwright reproduce {figure}"),
            };
            Failure::new(format!("{figure} {error}")).hint(hint)
        })?;
    }
    Ok(())
}

/// The figures with these names, each once.
fn choose(words: &[String]) -> Result<Vec<(Figure, &'static Experiment)>, Failure> {
    let mut ids: Vec<&str> = Vec::new();
    for word in words.iter().flat_map(|words| words.split(',')).map(str::trim) {
        let known: Vec<&str> = experiments().map(|experiment| experiment.id).collect();
        let named = match word {
            "all" => known,
            word if known.contains(&word) => vec![word],
            word => {
                let list = "lockwright reproduce --list";
                let hint = match &meant(word, &known)[..] {
                    [] => list.to_owned(),
                    some => format!("did you mean '{}'? {list}", some.join("' or '")),
                };
                return Err(Failure::new(format!("unknown figure '{word}'")).hint(hint));
            }
        };
        for id in named {
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
    }
    let of = |id| targets::figure(id).zip(find(id)).expect("every experiment has targets: tested");
    Ok(ids.into_iter().map(of).collect())
}

/// Suggestions for a word that isn't a figure: figures with that number in any paper, or else the nearest name.
fn meant<'k>(word: &str, known: &[&'k str]) -> Vec<&'k str> {
    let number = |id: &&&str| id.split_once('-').is_some_and(|(_, number)| number == word);
    let same: Vec<&str> = known.iter().filter(number).copied().collect();
    if same.is_empty() { nearest(word, known.iter().copied()).into_iter().collect() } else { same }
}

/// The figure's own machine.
fn of(figure: &Figure) -> Arc<Profile> {
    Arc::new(builtin(&figure.machine).expect("targets name existing profiles: tested"))
}
