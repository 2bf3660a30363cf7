//! Does the runs: interleaved in rounds, each with a new folder for its records.

use super::{Setting, TuneRun};
use crate::epochs::{self, Record};
use crate::hints::{Failure, cause, warn};
use crate::launch;
use crate::signals::Watch;
use crate::supervise::{End, how, supervise};
use indicatif::ProgressBar;
use lockwright_energy::Source;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// What to run, and how.
pub(crate) struct TunePlan<'a> {
    pub(crate) settings: &'a [Setting],
    pub(crate) rounds: u32,
    /// The program is ended after this time.
    pub(crate) limit: Option<Duration>,
    /// The program under a setting.
    pub(crate) command: &'a dyn Fn(&Setting) -> Command,
    /// Its name, for messages.
    pub(crate) program: &'a str,
    /// The source of energy figures.
    pub(crate) energy: &'a Source,
    /// Receives the program's output.
    pub(crate) log: &'a Path,
    pub(crate) quiet: bool,
}

/// The result.
#[derive(Default)]
pub(crate) struct TuneResult {
    pub(crate) runs: Vec<TuneRun>,
    /// Did Ctrl-C, or another signal that ends this command, arrive?
    pub(crate) interrupted: bool,
    /// The failure that ended the measurement.
    pub(crate) failure: Option<Failure>,
}

/// Only this much of a run's output is kept.
const OUTPUT: u64 = 64 * 1024;

/// Carries out the plan. Every round runs each setting once, in an order that rotates.
pub(crate) fn measure(plan: &TunePlan<'_>) -> Result<TuneResult, Failure> {
    let unwritable = |error| {
        Failure::new(format!("cannot write '{}': {}", plan.log.display(), cause(&error)))
            .hint("lockwright tune --output DIR ...")
    };
    let mut log = File::options()
        .create(true)
        .truncate(true)
        .write(true)
        .read(true)
        .open(plan.log)
        .map_err(unwritable)?;
    let watch = Watch::new();
    let many = plan.settings.len();
    let bar = lockwright_bench::progress(u64::from(plan.rounds) * many as u64, "runs", plan.quiet);
    let mut measured = TuneResult::default();
    'rounds: for round in 1..=plan.rounds {
        for turn in 0..many {
            let setting = (turn + round as usize - 1) % many;
            bar.set_message(format!("round {round}: {}", plan.settings[setting].label()));
            bar.tick();
            match once(plan, setting, round, &watch, &bar, &mut log) {
                Ok(Some(run)) => measured.runs.push(run),
                Ok(None) => {
                    measured.interrupted = true;
                    break 'rounds;
                }
                Err(failure) => {
                    measured.failure = Some(failure);
                    break 'rounds;
                }
            }
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(measured)
}

/// One run; `None`: interrupted.
fn once(
    plan: &TunePlan<'_>,
    setting: usize,
    round: u32,
    watch: &Watch,
    bar: &ProgressBar,
    log: &mut File,
) -> Result<Option<TuneRun>, Failure> {
    let (program, given) = (plan.program, &plan.settings[setting]);
    let log_failure = |error: io::Error| {
        Failure::new(format!("cannot write '{}': {}", plan.log.display(), cause(&error)))
    };
    let folder = launch::folder("stats", "run --stats")?;
    log.seek(SeekFrom::End(0)).map_err(log_failure)?;
    writeln!(log, "== round {round}, {}", given.label()).map_err(log_failure)?;
    let start = log.stream_position().map_err(log_failure)?;
    let output = || File::options().append(true).open(plan.log).map_err(log_failure);
    let mut command = (plan.command)(given);
    command
        .env(epochs::VARIABLE, folder.path())
        .stdin(Stdio::null())
        .stdout(output()?)
        .stderr(output()?);
    let energy = plan.energy.start();
    let ended = supervise(&mut command, plan.limit, watch, bar).map_err(|error| {
        Failure::not_executable(format!("cannot run '{program}': {}", cause(&error)))
    })?;
    let joules = energy.stop(ended.used.cpu);
    let said = tail_of(log, start).map_err(log_failure)?;
    let failed = |how: String| {
        let last = said.lines().map(str::trim).rfind(|line| !line.is_empty());
        let last = last.map_or(String::new(), |line| format!(": {line}"));
        Failure::new(format!("'{program}' failed ({how}) with {}{last}", given.label()))
            .hint(format!("its output is in '{}'", plan.log.display()))
    };
    match ended.end {
        End::Interrupted => return Ok(None),
        End::Itself(status) if !status.success() => return Err(failed(how(status))),
        End::Itself(_) | End::TimeUp => {}
    }
    let record = Record::read(folder.path())?;
    if setting == 0 && round == 1 {
        // Show messages from the library, or from the dynamic linker about it.
        for line in said.lines().filter(|line| is_ours(line)) {
            bar.suspend(|| {
                warn(format!("'{program}' says: {line}"), format!("see '{}'", plan.log.display()));
            });
        }
    }
    if record.processes == 0 {
        return Err(Failure::new(format!("'{program}' executed no epoch with {}", given.label()))
            .hint("make one of a function: --epoch 'NAME=FUNCTION', or annotate its source, see docs/tune.md"));
    }
    Ok(Some(TuneRun { setting, round, record, joules }))
}

fn is_ours(line: &str) -> bool {
    line.starts_with("lockwright:") || line.contains("cannot be preloaded")
}

/// The output from `start` on, limited to the size that is kept.
fn tail_of(log: &mut File, start: u64) -> io::Result<String> {
    let end = log.metadata()?.len();
    if end > start + OUTPUT {
        log.set_len(start + OUTPUT)?;
    }
    let mut bytes = Vec::new();
    log.seek(SeekFrom::Start(start))?;
    log.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
