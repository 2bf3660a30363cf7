//! `lockwright validate`.

use crate::hints::{Failure, cause};
use crate::output;
use lockwright_calibrate::Error;
use lockwright_calibrate::validate::{Raw, Row, Validation, Verdict, validate};
use lockwright_sim::profile::Profile;
use serde_json::json;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Compare this machine with the simulator's idea of it
///
/// Runs locks of the catalogue under loads that no profile is made from, with one thread and with two, each bound to a CPU; and
/// simulates the same by the profile. A pass on the real machine counts if the machine was as the profile says, before and
/// after.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  lockwright calibrate && lockwright validate           is the profile of this machine any good?
  lockwright validate --quick                           seconds, a few locks and loads
  lockwright validate --output runs/today               with every pass as raw data

Let nothing else run meanwhile. Exit codes: 0 all bars met, 1 not all. Bars: docs/sim.md")]
pub(crate) struct Args {
    /// The machine's profile, as `lockwright calibrate` wrote it
    #[arg(long, value_name = "FILE", default_value = "here.toml")]
    profile: PathBuf,
    /// A few locks and loads: some seconds
    #[arg(long)]
    quick: bool,
    /// Where raw data go: passes.csv, rows.csv, summary.txt, profile.toml
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// As shells say it of SIGINT.
const INTERRUPTED: u8 = 130;

pub(crate) fn main(args: Args) -> Result<ExitCode, Failure> {
    let (profile, text) = read(&args.profile)?;
    if let Some(folder) = &args.output {
        fs::create_dir_all(folder).map_err(|why| unwritable(folder, &why))?;
    }
    let bar = lockwright_bench::progress(1, args.json);
    let result = validate(&profile, args.quick, &|done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    let validation = match result {
        Ok(validation) => validation,
        Err(Error::Interrupted) => {
            output::say("interrupted: nothing is said of a part\n");
            return Ok(ExitCode::from(INTERRUPTED));
        }
        Err(error) => return Err(Failure::new(error)),
    };
    let told = in_words(&profile, &validation);
    if let Some(folder) = &args.output {
        let files = [
            ("passes.csv", passes(&validation.raw)),
            ("rows.csv", rows(&validation.rows)),
            ("summary.txt", format!("{}{told}", table(&validation.rows))),
            ("profile.toml", text),
        ];
        for (name, text) in files {
            let path = folder.join(name);
            fs::write(&path, text).map_err(|why| unwritable(&path, &why))?;
        }
    }
    let bars = validation.summary.bars();
    if args.json {
        let bars: Vec<_> = bars
            .iter()
            .map(|(what, result, ok)| json!({"bar": what, "result": result, "ok": ok}))
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
    Ok(ExitCode::from(u8::from(bars.iter().any(|(.., met)| !met))))
}

fn read(path: &Path) -> Result<(Profile, String), Failure> {
    let shown = path.display();
    let text = fs::read_to_string(path).map_err(|why| {
        Failure::new(format!("cannot read '{shown}': {}", cause(&why))).hint("lockwright calibrate")
    })?;
    let profile = Profile::parse(&text).map_err(|why| {
        Failure::new(format!("'{shown}' is no profile: {why}"))
            .hint("lockwright calibrate --output FILE")
    })?;
    Ok((profile, text))
}

fn unwritable(path: &Path, why: &std::io::Error) -> Failure {
    Failure::new(format!("cannot write '{}': {}", path.display(), cause(why)))
        .hint("lockwright validate --output DIR")
}

fn table(rows: &[Row]) -> String {
    let mut table = output::table(&[
        "load",
        "lock",
        "threads",
        "real ns",
        "p10 .. p90",
        "simulated ns",
        "simulated / real",
    ]);
    for row in rows {
        table.add_row([
            row.load.clone(),
            row.lock.clone(),
            row.threads.to_string(),
            format!("{:.1}", row.real_ns),
            format!("{:.1} .. {:.1}", row.spread_ns.0, row.spread_ns.1),
            format!("{:.1}", row.simulated_ns),
            format!("{:.2}", row.ratio()),
        ]);
    }
    output::plain(&table)
}

fn in_words(profile: &Profile, validation: &Validation) -> String {
    let Validation { summary, missing, raw, .. } = validation;
    let count = |verdict| validation.count(verdict);
    let number =
        |figure: Option<f64>| figure.map_or("-".to_owned(), |figure| format!("{figure:.3}"));
    let mut text = format!(
        "\nreal and simulated: {}\n{} comparisons with one thread, {} with two, {} pairs of locks; {missing} combinations without enough passes\n\
         {} passes: {} count, {} preempted, {} changed meanwhile, {} not as the profile says\n\
         1 thread: median factor {}, largest {}\n",
        profile.title,
        summary.alone,
        summary.two,
        summary.pairs,
        raw.len(),
        count(Verdict::Counts),
        count(Verdict::Preempted),
        count(Verdict::Changed),
        count(Verdict::NotTheProfiles),
        number(summary.alone_median),
        number(summary.alone_max),
    );
    for (what, result, met) in summary.bars() {
        let met = if met { "met" } else { "MISSED" };
        let _ = writeln!(text, "{what}: {} {met}", number(result));
    }
    text
}

fn rows(rows: &[Row]) -> String {
    let mut text = "load,lock,threads,real_ns,p10_ns,p90_ns,simulated_ns\n".to_owned();
    for Row { lock, load, threads, real_ns, spread_ns: (low, high), simulated_ns } in rows {
        let _ = writeln!(
            text,
            "\"{load}\",{lock},{threads},{real_ns:.2},{low:.2},{high:.2},{simulated_ns:.2}"
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
