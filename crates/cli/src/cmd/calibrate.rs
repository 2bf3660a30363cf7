//! `lockwright sim --calibrate`.

use crate::format::FormatFlags;
use crate::hints::Failure;
use crate::interrupt::INTERRUPTED;
use crate::machine::{self, MachineFile};
use crate::{launch, output};
use lockwright_calibrate::{
    Calibration, DELEGATED, Delegation, DelegationPoint, Error, LOCKS, Options, Origin,
    ProfileFigure, STEPS, Wanted, in_words,
};
use lockwright_numbers::Spread;
use lockwright_numbers::format::{ratio, time};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Measure this machine, and write its profile for the simulator
///
/// Every sample lies between two probes of the machine. If the probes differ, the sample is rejected and counted as such.
/// Figures that can't be measured here are assumed; the file gives the source of each figure.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  lockwright sim --calibrate                     30 to 80 s; writes here.toml
  lockwright sim --calibrate --quick --output now.toml
                                                 seconds: fewer samples
  lockwright sim --calibrate --force --write     and how long to spin
  lockwright sim --calibrate --force --format json \\
    | jq '.figures[] | {path, kind}'

Let nothing else run meanwhile. Figures are real, from this machine, unless
marked assumed.
Ctrl-C ends it without writing a file (exit code 130). Methods:
docs/calibrate.md")]
pub(crate) struct Args {
    /// Where the profile goes
    #[arg(long, short, value_name = "FILE", default_value = "here.toml")]
    output: PathBuf,
    /// Fewer samples, and not when delegation pays: ten seconds at most
    #[arg(long)]
    quick: bool,
    /// Which speed to use if cache-line transfers have several
    #[arg(long, value_name = "WHICH", default_value = "frequent")]
    regime: Regime,
    /// Replace the file if it exists
    #[arg(long)]
    force: bool,
    /// Also print how long spinning pays on this machine, and store it, with the power the machine draws and when
    /// delegation pays, in
    /// ~/.config/lockwright/machine.toml (or in $XDG_CONFIG_HOME), where `run`, `switch` and `profile` read it
    #[arg(long)]
    write: bool,
    #[command(flatten)]
    format: FormatFlags,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Regime {
    /// The most frequent one
    Frequent,
    /// The one with the fastest transfers
    Fast,
    /// The one with the slowest transfers
    Slow,
    /// All of them together
    Any,
}

pub(crate) fn main(args: Args) -> Result<ExitCode, Failure> {
    // The file is written last. If that will fail, say so first.
    launch::keep(&args.output, args.force, "a profile", "lockwright sim --calibrate --force")?;
    launch::can_write(&args.output).map_err(|why| launch::unwritable(&args.output, &why))?;
    if args.write {
        let file = machine::file()?;
        launch::can_fill(file.parent().unwrap_or(Path::new(".")))
            .map_err(|why| launch::unwritable(&file, &why))?;
    }
    let options = Options {
        quick: args.quick,
        regime: match args.regime {
            Regime::Frequent => Wanted::Frequent,
            Regime::Fast => Wanted::Fast,
            Regime::Slow => Wanted::Slow,
            Regime::Any => Wanted::Any,
        },
    };
    let bar = lockwright_bench::progress(STEPS, "parts", args.format.is_json());
    let mut first = true;
    let measured = lockwright_calibrate::calibrate(options, &mut |part| {
        if !std::mem::take(&mut first) {
            bar.inc(1);
        }
        bar.set_message(part.to_owned());
    });
    bar.finish_and_clear();
    let calibration = match measured {
        Ok(calibration) => calibration,
        Err(Error::Interrupted) => {
            output::say("interrupted: no profile written\n");
            return Ok(ExitCode::from(INTERRUPTED));
        }
        Err(error) => return Err(failure(&error)),
    };
    let shown = args.output.display();
    lockwright_files::write(&args.output, calibration.profile.to_toml())
        .map_err(|why| launch::unwritable(&args.output, &why))?;
    let stored = args.write.then(|| MachineFile::of(&calibration));
    let place = stored.as_ref().map(MachineFile::write).transpose()?;
    if args.format.is_json() {
        let mut all = as_json(&calibration, &args.output);
        all["machine_file"] = json!(place);
        all["parameters"] = json!(stored);
        output::print_json(&all)?;
    } else {
        let title = format!("real: {}", calibration.profile.title);
        output::print(&format!("{}\n\n", output::wrapped(&title)))?;
        output::print(&table(&calibration.figures))?;
        for note in &calibration.notes {
            output::print(&output::wrapped(&format!("\nnote: {note}")))?;
        }
        let mut gap = if calibration.notes.is_empty() { "" } else { "\n" };
        if let Some(thresholds) = &calibration.profile.delegation {
            let text = delegation(thresholds, &calibration.delegation);
            output::print(&format!("{gap}\n{text}"))?;
            gap = "\n";
        }
        if let Some(machine) = &stored {
            output::print(&format!("{gap}\nMUTEXEE's parameters:\n"))?;
            output::print_table(&machine.table())?;
            output::print(&output::beside("\none pause by: ", &machine.pauses()))?;
        }
        let place = place.map_or(String::new(), |place| format!(" {}", place.display()));
        output::print(&format!("\nwritten: {shown}{place}\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn failure(error: &Error) -> Failure {
    let failure = Failure::new(error);
    match error {
        Error::TooManyCpus { most, .. } => {
            failure.hint(format!("taskset -c 0-{} lockwright sim --calibrate", most - 1))
        }
        Error::Topology { .. } => failure.hint("lockwright doctor --topology"),
        _ => failure,
    }
}

fn kind(origin: Origin) -> &'static str {
    match origin {
        Origin::Measured => "measured",
        Origin::Published => "published",
        Origin::Fitted => "fitted",
        Origin::Assumed => "assumed",
    }
}

/// Figures grouped by what they measure: `memory.hold_ns` is `hold_ns` under `memory`.
fn table(figures: &[ProfileFigure]) -> String {
    let mut blocks: Vec<(String, Vec<Vec<String>>)> = Vec::new();
    for figure in figures {
        let (of, name) = figure.path.rsplit_once('.').unwrap_or(("", &figure.path));
        let spread = figure.spread.map(|(low, high)| format!("{low} .. {high}"));
        let tried = figure.between.map(|(low, high)| format!("in {low} .. {high}"));
        let counted =
            || format!("{} of {}", figure.samples, figure.samples + figure.rejected.all());
        let cells = vec![
            name.to_owned(),
            figure.value.to_string(),
            figure.unit.to_owned(),
            spread.or(tried).unwrap_or("-".into()),
            figure.spread.map_or("-".to_owned(), |_| counted()),
            kind(figure.kind).to_owned(),
        ];
        match blocks.last_mut() {
            Some((last, block)) if last == of => block.push(cells),
            _ => blocks.push((of.to_owned(), vec![cells])),
        }
    }
    let header = ["figure", "value", "unit", "p10 .. p90", "samples", "kind"];
    let table = output::blocks(&header, &blocks).least(&["samples", "p10 .. p90", "kind"]);
    output::plain(&table.all_by("--format json"))
}

/// Delegation beside locks, and what follows.
fn delegation(thresholds: &Delegation, points: &[DelegationPoint]) -> String {
    let header = [&["in sections", "delay"][..], &LOCKS].concat();
    let mut table = output::table(&header).all_by("--format json");
    for point in points {
        let over =
            |of: &Spread| format!("{} [{} .. {}]", ratio(of.median), ratio(of.q1), ratio(of.q3));
        let first = [format!("{:.0} %", 100.0 * point.share), time(point.delay_ns.into())];
        table.add_row(first.into_iter().chain(point.over.iter().map(over)));
    }
    let about = format!(
        "throughput of {DELEGATED} divided by the lock's, median [quartiles] of {} rounds; in sections: the threads' time, \
         waiting or holding, under glibc's lock",
        points.iter().map(|point| point.over_all.n).min().unwrap_or(0)
    );
    format!(
        "{}\n{}{}",
        output::wrapped(&about),
        output::plain(&table),
        output::wrapped(&in_words(thresholds))
    )
}

fn as_json(calibration: &Calibration, file: &Path) -> serde_json::Value {
    json!({
        "origin": "real",
        "machine": calibration.profile.title,
        "file": file,
        "figures": calibration.figures,
        "regimes": calibration.regimes,
        "regime": calibration.regime,
        "notes": calibration.notes,
        "delegation": calibration.delegation,
        "pauses_ns": calibration.pauses.iter().cloned().collect::<std::collections::BTreeMap<_, _>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockwright_calibrate::Rejected;

    #[test]
    fn delegation_stands_beside_each_lock_and_the_verdict_below() {
        let ratio = Spread { min: 0.5, q1: 9.25, median: 11.5, q3: 12.76, max: 19.0, n: 9 };
        let point = |share, delay_ns| DelegationPoint {
            delay_ns,
            share,
            over: [ratio; LOCKS.len()],
            over_all: ratio,
        };
        let thresholds = Delegation {
            threads: 128,
            lines: 1,
            up_to: 0.93,
            over_glibc: Some(0.15),
            over_all: Some(0.6),
        };
        let text = delegation(&thresholds, &[point(0.15, 409_600), point(0.93, 800)]);
        assert!(text.lines().all(|line| line.chars().count() <= output::WIDTH), "{text}");
        let cells = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let row = text.lines().find(|line| line.starts_with("15 %")).map(cells);
        let over = "11.5 [9.25 .. 12.8]";
        assert_eq!(row, Some(format!("15 % 410 µs {over} {over} {over}")), "{text}");
        assert!(text.contains("of 9 rounds") && text.contains("from 15 % of time"), "{text}");
    }

    #[test]
    fn a_figure_takes_one_line_under_what_it_is_of() {
        let figure = |path: &str, value, spread, between| ProfileFigure {
            path: path.into(),
            value,
            unit: "ns",
            kind: Origin::Measured,
            spread,
            between,
            samples: 720,
            rejected: Rejected::default(),
            source: String::new(),
        };
        let text = table(&[
            figure("class.big.weight_back_to_back", 1.0, None, None),
            figure("class.big.nop_ns", 0.02399, Some((0.02383, 0.02415)), None),
            figure("kernel.wakeup_granularity_ns", 8e6, None, Some((4e6, 16e6))),
        ]);
        assert!(text.lines().all(|line| line.chars().count() <= output::WIDTH), "{text}");
        let lines: Vec<_> = text.lines().collect();
        assert_eq!((lines[1], lines[4], lines.len()), ("class.big", "kernel", 6), "{text}");
        assert!(
            lines[3].contains("0.02383 .. 0.02415") && lines[3].contains("720 of 720"),
            "{text}"
        );
        assert!(lines[5].contains("in 4000000 .. 16000000"), "{text}");
    }
}
