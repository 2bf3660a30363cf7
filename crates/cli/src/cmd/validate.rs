//! `lockwright sim --validate`.

use crate::format::FormatFlags;
use crate::hints::{Failure, cause};
use crate::interrupt::INTERRUPTED;
use crate::sim::words;
use crate::{launch, output};
use lockwright_calibrate::Error;
use lockwright_calibrate::validate::{
    Bar, Met, PassVerdict, Raw, RealAndSimulated, Validation, validate,
};
use lockwright_numbers::format::time;
use lockwright_sim::profile::Profile;
use serde_json::json;
use std::fmt::Write;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Compare this machine with its simulation
///
/// Runs locks of the catalogue with one thread and with two, each pinned to a CPU, under loads that the profile was not
/// made from. Then simulates the same runs with the profile. A pass on the real machine counts only if the machine matched
/// the profile before and after it.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  lockwright sim --calibrate && lockwright sim --validate
                                           is this machine's profile good?
  lockwright sim --validate --quick        seconds: few locks and loads
  lockwright sim --validate --output runs/today
                                           saves every pass as raw data

Bars, over all locks and loads (factors count both ways: 0.5 counts as 2):
  1 thread     all within 10 % of the real figure
  2 threads    median factor at most 1.4
  2 threads    90 % of the factors at most 2.0
  2 threads    the faster of two locks is predicted for 0.8 of the pairs

Let nothing else run meanwhile. Exit codes: 0 all bars met, 1 a bar missed. On
the machine in docs/sim.md the first bar is missed: expect 1. With one CPU, the
bars for two threads are not measured; that is not a miss.")]
pub(crate) struct Args {
    /// The machine's profile, as `lockwright sim --calibrate` wrote it
    #[arg(long, value_name = "FILE", default_value = HERE)]
    profile: PathBuf,
    /// Only a few locks and loads: takes seconds
    #[arg(long)]
    quick: bool,
    /// Write raw data there: passes.csv, rows.csv, summary.txt, profile.toml
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    #[command(flatten)]
    format: FormatFlags,
}

/// Where `sim --calibrate` writes by default.
const HERE: &str = "here.toml";

pub(crate) fn main(args: Args) -> Result<ExitCode, Failure> {
    let (profile, text) = read(&args.profile)?;
    // The files are written last. If that will fail, say so first.
    if let Some(folder) = &args.output {
        launch::can_fill(folder).map_err(|why| unwritable(folder, &why))?;
    }
    let bar = lockwright_bench::progress(1, "runs", args.format.is_json());
    let result = validate(&profile, args.quick, &|done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    let validation = match result {
        Ok(validation) => validation,
        Err(Error::Interrupted) => {
            output::say("interrupted: no verdict, nothing written\n");
            return Ok(ExitCode::from(INTERRUPTED));
        }
        Err(error @ Error::OtherMachine { .. }) => {
            let failure = Failure::new(error).within(&format!("'{}': ", args.profile.display()));
            return Err(failure.hint(anew()));
        }
        Err(error) => return Err(Failure::new(error)),
    };
    let told = in_words(&profile, &validation);
    if let Some(folder) = &args.output {
        fs::create_dir_all(folder).map_err(|why| unwritable(folder, &why))?;
        let files = [
            ("passes.csv", passes(&validation.raw)),
            ("rows.csv", rows(&validation.rows)),
            ("summary.txt", format!("{}{told}", table(&validation.rows))),
            ("profile.toml", text),
        ];
        for (name, text) in files {
            let path = folder.join(name);
            lockwright_files::write(&path, text).map_err(|why| unwritable(&path, &why))?;
        }
    }
    let bars = validation.bars();
    if args.format.is_json() {
        let bars: Vec<_> = bars
            .iter()
            .map(|bar| {
                let ok = (bar.met != Met::NotMeasured).then_some(bar.met == Met::Yes);
                json!({"bar": bar.what, "result": bar.result, "ok": ok})
            })
            .collect();
        output::print_json(&json!({
            "origin": "real and simulated",
            "machine": profile.title,
            "rows": validation.rows,
            "summary": validation.summary,
            "missing": validation.missing,
            "bars": bars,
        }))?;
    } else {
        output::print(&table(&validation.rows))?;
        output::print(&told)?;
    }
    Ok(ExitCode::from(u8::from(bars.iter().any(|bar| bar.met == Met::No))))
}

fn read(path: &Path) -> Result<(Profile, String), Failure> {
    let shown = path.display();
    let calibrate = format!("lockwright sim --calibrate --output {shown}");
    let text = words::text(path).map_err(|why| {
        let failure = Failure::new(format!("cannot read '{shown}': {}", cause(&why)));
        match why.kind() {
            ErrorKind::NotFound => failure.hint(calibrate),
            _ => failure.hint(anew()),
        }
    })?;
    let profile = words::profile(&text)
        .map_err(|why| Failure::new(format!("'{shown}' isn't a profile: {why}")).hint(anew()))?;
    Ok((profile, text))
}

/// The command that makes a profile of this machine.
fn anew() -> String {
    let force = if Path::new(HERE).exists() { " --force" } else { "" };
    format!("lockwright sim --calibrate --output {HERE}{force}")
}

fn unwritable(path: &Path, why: &std::io::Error) -> Failure {
    Failure::new(format!("cannot write '{}': {}", path.display(), cause(why)))
        .hint("lockwright sim --validate --output DIR")
}

/// The table, with times to three digits. The files have more.
fn table(rows: &[RealAndSimulated]) -> String {
    let mut blocks: Vec<(String, Vec<Vec<String>>)> = Vec::new();
    for row in rows {
        let cells = vec![
            row.lock.clone(),
            row.threads.to_string(),
            time(row.real_ns),
            format!("{} .. {}", time(row.spread_ns.0), time(row.spread_ns.1)),
            time(row.simulated_ns),
            format!("{:.2}{}", row.ratio(), if row.predicted { "" } else { ", not predicted" }),
        ];
        match blocks.iter_mut().find(|(load, _)| *load == row.load) {
            Some((_, block)) => block.push(cells),
            None => blocks.push((row.load.clone(), vec![cells])),
        }
    }
    let header = ["lock", "threads", "real", "p10 .. p90", "simulated", "simulated / real"];
    output::plain(&output::blocks(&header, &blocks).least(&["p10 .. p90"]).all_by("--format json"))
}

fn in_words(profile: &Profile, validation: &Validation) -> String {
    let Validation { summary, missing, raw, .. } = validation;
    let count = |verdict| validation.count(verdict);
    let number =
        |figure: Option<f64>| figure.map_or("-".to_owned(), |figure| format!("{figure:.3}"));
    let mut text = format!(
        "\nreal and simulated: {}\n{} comparisons with one thread, {} with two, {} pairs of locks; {missing} combinations without enough passes\n\
         {} passes: {} count, {} preempted, {} changed meanwhile, {} don't match the profile\n\
         1 thread: median factor {}, largest {}\n",
        profile.title,
        summary.alone,
        summary.two,
        summary.pairs,
        raw.len(),
        count(PassVerdict::Counts),
        count(PassVerdict::Preempted),
        count(PassVerdict::Changed),
        count(PassVerdict::NotTheProfiles),
        number(summary.alone_median),
        number(summary.alone_max),
    );
    if summary.outside > 0 {
        let _ = writeln!(
            text,
            "1 thread, no computation, no gap: {} comparisons that the model doesn't cover, {} within 10 %: not judged",
            summary.outside,
            number(summary.outside_within),
        );
    }
    for Bar { what, result, met } in validation.bars() {
        let result = match met {
            Met::Yes => format!("{} met", number(result)),
            Met::No => format!("{} MISSED", number(result)),
            Met::NotMeasured => "not measured: one CPU".to_owned(),
        };
        let _ = writeln!(text, "{what}: {result}");
    }
    output::wrapped(&text) + "\n"
}

fn rows(rows: &[RealAndSimulated]) -> String {
    let mut text = "load,lock,threads,real_ns,p10_ns,p90_ns,simulated_ns,predicted\n".to_owned();
    for RealAndSimulated {
        lock,
        load,
        threads,
        real_ns,
        spread_ns: (low, high),
        simulated_ns,
        predicted,
    } in rows
    {
        let _ = writeln!(
            text,
            "\"{load}\",{lock},{threads},{real_ns:.2},{low:.2},{high:.2},{simulated_ns:.2},{predicted}"
        );
    }
    text
}

fn passes(raw: &[Raw]) -> String {
    let mut text = "load,lock,threads,ns,before_ns,after_ns,verdict\n".to_owned();
    for Raw { lock, load, threads, ns, before_ns, after_ns, verdict } in raw {
        let _ = writeln!(
            text,
            "\"{load}\",{lock},{threads},{ns:.2},{before_ns:.4},{after_ns:.4},{}",
            verdict.word()
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_stands_once_and_its_rows_take_a_line_each() {
        let row = |lock: &str, load: &str, ns| RealAndSimulated {
            lock: lock.into(),
            load: load.into(),
            threads: 2,
            real_ns: ns,
            spread_ns: (0.97 * ns, 1.12 * ns),
            simulated_ns: 1.1 * ns,
            predicted: true,
        };
        let long = "16 lines + 1000 ns, gap 6000 ns, exponential";
        let rows = [
            row("barging", long, 3601.6),
            row("tas", "0 lines", 29.87),
            row("asl-mcs", long, 3492.4),
        ];
        let text = table(&rows);
        assert!(text.lines().all(|line| line.chars().count() <= output::WIDTH), "{text}");
        assert_eq!((text.matches(long).count(), text.lines().count()), (1, 6), "{text}");
        assert!(text.contains("3.60 µs  3.49 µs .. 4.03 µs  3.96 µs"), "{text}");
    }
}
