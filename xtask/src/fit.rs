//! Fits a simulated machine. It finds values for the unpublished figures of its profile, so that the rows marked `fit`
//! in the papers' figures come out as in the papers. All other rows are predictions.

mod figures;
mod goal;
mod search;

use crate::answer::No;
use crate::root::root;
use crate::shards;
use anyhow::{Context, Result, bail};
use figures::Fitted;
use goal::{Effort, Goal, Measurement, losses, mean};
use indicatif::{ProgressBar, ProgressStyle};
use lockwright_shards::{Flags, Job, Merge, Session};
use lockwright_sim::profile::{BUILTIN, Profile};
use lockwright_sim::targets::Row;
use lockwright_text::table::{plain, right, table};
use search::{Budget, Found, neighbours, search};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use std::{env, fs};

/// The effort for the verdict before and after, as in `lockwright reproduce`.
const JUDGED: Effort = Effort { seeds: 5, length: 1.0 };

/// The length of runs during the search, relative to full runs.
const SEARCH_LENGTH: f64 = 0.1;

/// Maximum number of evaluations per fitted figure. If a search needs more, it has gone wrong.
const EVALUATIONS: usize = 100;

/// The seed of the search's own random draws.
const SEED: u64 = 1;

/// A check distinguishes candidates with small differences, so it needs more seeds.
const CHECK_SEEDS: u32 = 10;

/// A neighbour is better if its loss is smaller by at least this (an error of 3 % in one row) and by three standard
/// errors.
const GAIN: f64 = 1e-3;

/// Flags.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The machine: a profile's name.
    profile: String,
    /// Change nothing: print how far the rows are from the papers, and whether changing any one fitted figure would help.
    #[arg(long)]
    check: bool,
    /// Seeds per run during the search, the same for all candidates. With --check, at least 10.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    seeds: u32,
    /// End the search after this long.
    #[arg(long, value_name = "MINUTES", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    budget: u64,
    /// Searches, each with draws of its own; the best result counts. Each is a job of --shard.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000),
        conflicts_with = "check")]
    starts: u64,
    #[command(flatten)]
    shards: Flags,
    /// Where --shard and --resume keep results.
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
}

pub(crate) fn main(args: Args, merged: Option<Merge>) -> Result<()> {
    let mut fit = Fit::open(&args.profile)?;
    if cfg!(debug_assertions) {
        return again_optimised();
    }
    let session = fit.session(&args, merged)?;
    let is_done = if args.check { fit.check(&args, &session)? } else { fit.run(&args, &session)? };
    if !is_done {
        print!("{}", session.summary());
    }
    Ok(())
}

/// Runs the command again in an optimised build: a test build simulates several times more slowly.
pub(crate) fn again_optimised() -> Result<()> {
    let mut command = Command::new(env!("CARGO"));
    command
        .args(["run", "--quiet", "--release", "--package", "xtask", "--"])
        .args(env::args_os().skip(1));
    let status = command.status().context("cannot run cargo")?;
    std::process::exit(status.code().unwrap_or(2));
}

/// The profile to fit.
struct Fit {
    path: PathBuf,
    text: String,
    profile: Profile,
    fitted: Fitted,
    goal: Goal,
}

impl Fit {
    fn open(name: &str) -> Result<Self> {
        let of = |text: &str| Profile::parse(text).map(|profile| Fitted::of(&profile));
        if !BUILTIN.iter().any(|(known, _)| *known == name) {
            let names: Vec<&str> = BUILTIN.iter().map(|(known, _)| *known).collect();
            bail!("unknown profile '{name}'\nhint: one of {}", names.join(", "));
        }
        let path = root().join(format!("crates/sim/profiles/{name}.toml"));
        let text = fs::read_to_string(&path);
        let text = text.with_context(|| format!("cannot read '{}'", path.display()))?;
        let profile = Profile::parse(&text).with_context(|| format!("'{}'", path.display()))?;
        let fitted = Fitted::of(&profile);
        if fitted.params.is_empty() {
            let with =
                BUILTIN.iter().find(|(_, text)| of(text).is_ok_and(|of| !of.params.is_empty()));
            let with = with.map_or("m1", |(name, _)| name);
            bail!("nothing in the profile '{name}' is fitted\nhint: cargo xtask fit {with}");
        }
        let goal = Goal::of(&fitted.targets)?;
        Ok(Self { path, text, profile, fitted, goal })
    }

    fn here(&self) -> Vec<f64> {
        self.fitted.params.iter().map(|param| param.value).collect()
    }

    fn measure(&self, values: &[f64], effort: Effort) -> Result<Vec<Measurement<'_>>> {
        self.goal.measure(&self.fitted.with(&self.profile, values)?, effort)
    }

    fn losses(&self, values: &[f64], effort: Effort) -> Result<Vec<f64>> {
        Ok(losses(&self.measure(values, effort)?, effort.seeds))
    }

    /// Everything that determines the results.
    fn session(&self, args: &Args, merged: Option<Merge>) -> Result<Session> {
        let (check, seeds, budget) = (args.check, args.seeds, args.budget);
        let numbers = format!("{check} {seeds} {budget} {}", args.starts);
        let inputs = vec![self.profile.name.clone(), self.text.clone(), numbers];
        shards::session(&args.shards, args.output.as_deref(), merged, inputs)
    }

    /// One search. Its evaluations depend on each other, so it can't be divided.
    fn search(&self, args: &Args, start: u64, bar: &ProgressBar) -> Result<Found> {
        let effort = Effort { seeds: args.seeds, length: SEARCH_LENGTH };
        let until = Instant::now() + Duration::from_secs(args.budget * 60);
        let budget = Budget { evaluations: EVALUATIONS * self.fitted.params.len(), until };
        let failed = Mutex::new(None);
        let loss = |values: &[f64]| {
            if failed.lock().expect("nobody panics with it").is_some() {
                return 0.0; // a constant loss makes the search end soon
            }
            self.losses(values, effort).map_or_else(
                |why| {
                    *failed.lock().expect("nobody panics with it") = Some(why);
                    0.0
                },
                |losses| mean(&losses).0,
            )
        };
        let found =
            search(&self.fitted.params, loss, budget, SEED + start, |evaluations, best| {
                bar.set_position(evaluations as u64);
                bar.set_message(format!("{best:.4}"));
            })?;
        match failed.into_inner().expect("nobody panics with it") {
            Some(why) => Err(why),
            None => Ok(found),
        }
    }

    /// Returns `false` if this session did only a part.
    fn run(&mut self, args: &Args, session: &Session) -> Result<bool> {
        let jobs = Job::all((0..args.starts).map(|start| format!("start {start}")));
        let bar = bar()?;
        let found = results(session, &jobs, |start| self.search(args, start as u64, &bar))?;
        bar.finish_and_clear();
        let Some(all) = found else { return Ok(false) };
        let best = all.iter().min_by(|a, b| a.loss.total_cmp(&b.loss));
        let found = best.context("no search")?;
        let before = self.measure(&self.here(), JUDGED)?;
        let after = self.measure(&found.values, JUDGED)?;
        let of = |rows: &[Measurement<'_>]| mean(&losses(rows, JUDGED.seeds)).0;
        let (old, new) = (of(&before), of(&after));
        print!("{}\n{}", self.values_table(&found.values), rows_table(&before, Some(&after)));
        println!(
            "loss {old:.4} before, {new:.4} after {} evaluations: simulated, {} seeds; the search had {} and runs of {} of the length",
            found.evaluations, JUDGED.seeds, args.seeds, SEARCH_LENGTH
        );
        if !found.converged {
            println!(
                "the search was not over\nhint: cargo xtask fit {} --budget {}",
                args.profile,
                args.budget * 2
            );
        }
        if new >= old {
            println!("no better: '{}' stays as it was", self.path.display());
            return Ok(true);
        }
        let text = self.fitted.write(&self.text, &found.values)?;
        fs::write(&self.path, text)
            .with_context(|| format!("cannot write '{}'", self.path.display()))?;
        println!("written: '{}'", self.path.display());
        Ok(true)
    }

    /// Returns `false` if this session did only a part.
    fn check(&self, args: &Args, session: &Session) -> Result<bool> {
        let seeds = args.seeds.max(CHECK_SEEDS);
        let effort = Effort { seeds, length: SEARCH_LENGTH };
        let neighbours = neighbours(&self.fitted.params);
        // The first job is the current place itself.
        let places = std::iter::once(self.here()).chain(neighbours.iter().map(|(_, v)| v.clone()));
        let places: Vec<Vec<f64>> = places.collect();
        let jobs = Job::all(places.iter().map(|values| format!("{values:?}")));
        let bar = bar()?;
        let losses = results(session, &jobs, |place| {
            let losses = self.losses(&places[place], effort)?;
            bar.inc(1);
            Ok(losses)
        })?;
        bar.finish_and_clear();
        let Some(losses) = losses else { return Ok(false) };
        let (here, there) = losses.split_first().context("no place")?;
        print!("{}", rows_table(&self.measure(&self.here(), JUDGED)?, None));
        println!(
            "loss {:.4}: simulated, {seeds} seeds, runs of {SEARCH_LENGTH} of the length",
            mean(here).0
        );
        let mut moves = Vec::new();
        for ((index, values), there) in neighbours.into_iter().zip(there) {
            let less: Vec<f64> = here.iter().zip(there).map(|(here, there)| here - there).collect();
            let param = &self.fitted.params[index];
            let what = format!("{} = {} instead of {}", param.name, values[index], param.value);
            let (gain, error) = mean(&less);
            moves.push((gain, error, what));
        }
        moves.sort_by(|a, b| b.0.total_cmp(&a.0));
        for (gain, error, what) in moves.iter().take(3) {
            println!("{what}: loss smaller by {gain:.4} ± {error:.4}");
        }
        if moves.iter().all(|(gain, error, _)| *gain <= GAIN + 3.0 * error) {
            println!(
                "an optimum: no fitted figure alone makes the loss smaller by three standard errors"
            );
            return Ok(true);
        }
        Err(No(format!("no longer an optimum\nhint: cargo xtask fit {}", self.profile.name)).into())
    }

    fn values_table(&self, values: &[f64]) -> String {
        let mut table = table(&["figure", "from", "to", "before", "after"]);
        for (param, value) in self.fitted.params.iter().zip(values) {
            let [low, high] = param.range;
            let numbers = [low, high, param.value, *value].map(|number| number.to_string());
            table.add_row([vec![param.name.clone()], numbers.to_vec()].concat());
        }
        right(&mut table, 1..5);
        plain(&table)
    }
}

/// The results of jobs that run one after the other, each on all cores.
fn results<R: Serialize + DeserializeOwned + Send>(
    session: &Session,
    jobs: &[Job],
    work: impl Fn(usize) -> Result<R>,
) -> Result<Option<Vec<R>>> {
    let mut failed = None;
    let results = session.results(jobs, |left, keep| {
        for &place in left {
            match work(place) {
                Ok(result) => keep(place, result)?,
                Err(why) => {
                    failed = Some(why);
                    return Err(lockwright_shards::Error::interrupted());
                }
            }
        }
        Ok(())
    });
    match failed {
        Some(why) => Err(why),
        None => Ok(results?),
    }
}

fn bar() -> Result<ProgressBar> {
    let bar = ProgressBar::new_spinner();
    bar.set_style(ProgressStyle::with_template(
        "{spinner} {pos} evaluations, {elapsed}, loss {msg}",
    )?);
    bar.enable_steady_tick(Duration::from_millis(200));
    Ok(bar)
}

fn rows_table(before: &[Measurement<'_>], after: Option<&[Measurement<'_>]>) -> String {
    let header =
        ["figure", "row", "paper", if after.is_some() { "before" } else { "result" }, "after"];
    let mut table = table(&header[..if after.is_some() { 5 } else { 4 }]);
    let number =
        |one: &Measurement<'_>| one.result().map_or("none".into(), |result| format!("{result:.3}"));
    for (place, one) in before.iter().enumerate() {
        let mut cells =
            vec![one.figure.to_owned(), one.row.name.clone(), paper(one.row), number(one)];
        cells.extend(after.map(|after| number(&after[place])));
        table.add_row(cells);
    }
    right(&mut table, 2..5);
    plain(&table)
}

/// What the paper says about a row.
fn paper(row: &Row) -> String {
    let bound = |sign: &str, number: Option<f64>| number.map(|number| format!("{sign} {number}"));
    let number = row.paper.map(|number| number.to_string());
    let bounds = [bound(">=", row.paper_low), bound("<=", row.paper_high)];
    number.unwrap_or_else(|| bounds.into_iter().flatten().collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_that_is_not_there_or_not_fitted_is_named_with_a_hint() {
        let why = |name: &str| Fit::open(name).err().unwrap().to_string();
        assert!(why("m9").starts_with("unknown profile 'm9'\nhint: one of m1, "), "{}", why("m9"));
        let none = why("hikey970");
        assert!(
            none.contains("'hikey970'") && none.ends_with("hint: cargo xtask fit m1"),
            "{none}"
        );
    }
}
