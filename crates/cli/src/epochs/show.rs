//! Epochs as a table, JSON and CSV.

use super::{ClassNames, Record, Verdict, judge, judge_class, needed, share, tail};
use crate::output::{self, shown};
use lockwright_numbers::format::{thousands, time};
use lockwright_stats::{ClassStats, Epoch};
use serde_json::{Value, json};
use std::fmt::{self, Display, Write as _};
use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;

/// The origin of figures.
pub(crate) struct Origin<'a>(pub(crate) Option<&'a str>);

impl Origin<'_> {
    /// `real` or `emulated`.
    pub(crate) fn word(&self) -> &'static str {
        if self.0.is_some() { "emulated" } else { "real" }
    }
}

impl Display for Origin<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(spec) => write!(f, "emulated ({})", shown(spec)),
            None => f.write_str("real"),
        }
    }
}

/// `P99`, `P99.9`.
pub(crate) fn percentile(epoch: &Epoch) -> String {
    format!("P{}", epoch.percentile)
}

fn violations(class: &ClassStats) -> String {
    let share = 100.0 * class.violations as f64 / class.count.max(1) as f64;
    format!("{} ({share:.2} %)", thousands(class.violations))
}

/// Classes that executed the epoch, fastest first.
fn executed(epoch: &Epoch) -> Vec<&ClassStats> {
    epoch.classes.iter().filter(|class| class.count > 0).collect()
}

/// One block per epoch: a line for each class, and one for all classes together.
pub(crate) fn table(record: &Record, names: &ClassNames) -> String {
    let mut percentiles: Vec<_> = record.epochs().map(|(_, epoch)| percentile(epoch)).collect();
    percentiles.dedup();
    let common = if let [one] = &percentiles[..] { Some(one.as_str()) } else { None };
    let header = [
        "cores",
        "count",
        "P50",
        common.unwrap_or("percentile"),
        "violations",
        "window now",
        "verdict",
    ];
    let mut blocks = Vec::new();
    for (name, epoch) in record.epochs() {
        let classes = executed(epoch);
        let row = |cores: &str, class: &ClassStats, window: bool, verdict| {
            let at = time(tail(epoch, class) as f64);
            vec![
                cores.to_owned(),
                thousands(class.count),
                time(class.quantile(0.5) as f64),
                if common.is_some() { at } else { format!("{} {at}", percentile(epoch)) },
                violations(class),
                if window { time(class.window_ns as f64) } else { "-".to_owned() },
                Verdict::word(verdict).to_owned(),
            ]
        };
        let rows = match classes[..] {
            [only] => vec![row(names.of(only.class), only, true, judge(epoch))],
            _ => {
                let each = classes.iter().map(|class| {
                    row(names.of(class.class), class, true, judge_class(epoch, class))
                });
                [row("all", &epoch.all(), false, judge(epoch))].into_iter().chain(each).collect()
            }
        };
        blocks.push((format!("{}, SLO {}", shown(&name), time(epoch.slo_ns as f64)), rows));
    }
    let table = output::blocks(&header, &blocks).least(&["window now", "P50", "count"]);
    output::plain(&table.all_by("--format json"))
}

/// The reason for the verdict.
pub(crate) fn explain(epoch: &Epoch, names: &ClassNames) -> String {
    let (slo, at) = (time(epoch.slo_ns as f64), percentile(epoch));
    // Classes with too few executions have no say.
    let judged = |class: &&ClassStats| judge_class(epoch, class) != Verdict::TooFew;
    let judged = executed(epoch).into_iter().filter(judged);
    let Some(worst) = judged.max_by_key(|class| (tail(epoch, class), class.class)) else {
        let needed = thousands(needed(epoch));
        return format!("too few: a verdict on {at} needs {needed} executions on a class of cores");
    };
    let (cores, over) = (names.of(worst.class), tail(epoch, worst) as f64);
    let reached = time(over);
    match judge(epoch) {
        Verdict::TooFew | Verdict::Kept => {
            format!("kept: the longest {at}, on {cores} cores, is {reached}; the SLO is {slo}")
        }
        Verdict::Missed => format!(
            "missed: {at} on {cores} cores is {reached}, {:.0} % above the SLO of {slo}",
            100.0 * (over / epoch.slo_ns.max(1) as f64 - 1.0)
        ),
        Verdict::Infeasible => {
            let all = epoch.all();
            format!(
                "infeasible: of {} executions that were served first come, first served, {:.1} % took longer than \
                 {slo} (allowed: {:.1} %): no smaller window can keep it; another lock may",
                thousands(all.at_fifo),
                100.0 * all.at_fifo_violations as f64 / all.at_fifo.max(1) as f64,
                100.0 * (1.0 - share(epoch)),
            )
        }
    }
}

/// The output of `run --stats`: which epochs these are, the table, the reasons, and notes.
pub(crate) fn report(record: &Record, names: &ClassNames, program: &str) -> String {
    let program = shown(program);
    if record.processes == 0 {
        return format!(
            "epochs: none\nhint: lockwright run --stats --epoch 'NAME=FUNCTION:1ms' -- '{program}', or \
             lw_epoch_start and lw_epoch_end in its source\n\
             hint: which locks it takes, without epochs: lockwright profile --record -- '{program}'\n"
        );
    }
    let processes = if record.processes == 1 { "process" } else { "processes" };
    let head = format!(
        "\nepochs of '{program}', {}: lock {}, {} {processes}, {}",
        Origin(record.emulated.as_deref()),
        shown(&record.lock),
        record.processes,
        time(record.seconds * 1e9),
    );
    let mut text = format!("{}\n{}", output::wrapped(&head), table(record, names));
    for (name, epoch) in record.epochs() {
        let line = format!("{}: {}", shown(&name), explain(epoch, names));
        let _ = writeln!(text, "{}", output::wrapped(&line));
    }
    if let Some(note) = one_class(record, names) {
        let _ = writeln!(text, "{}", output::wrapped(&format!("note: {note}")));
    }
    if record.running > 0 {
        let _ = writeln!(text, "{} of the processes still run: figures so far", record.running);
    }
    text
}

/// Why no thread stood by, if all executions ended on cores of one class.
fn one_class(record: &Record, names: &ClassNames) -> Option<String> {
    let mut used: Vec<u8> = record
        .epochs()
        .flat_map(|(_, epoch)| executed(epoch).into_iter().map(|class| class.class))
        .collect();
    used.sort_unstable();
    used.dedup();
    let [only] = used[..] else { return None };
    let ended = "all executions ended on one class of cores, so no thread stood by";
    Some(match names.count() {
        1 => format!("{ended}: see `lockwright doctor --topology`, or try --emulate"),
        _ => format!(
            "{ended}: {}; perhaps the program was too short, or had too few busy threads, to use the others",
            names.of(only)
        ),
    })
}

/// Writes all figures to `file`: CSV if `name` ends in .csv, else JSON.
pub(crate) fn write(
    record: &Record,
    names: &ClassNames,
    name: &Path,
    mut file: File,
) -> io::Result<()> {
    if name.extension().is_none_or(|end| end != "csv") {
        return writeln!(file, "{:#}", json(record, names));
    }
    let mut csv = csv::Writer::from_writer(file);
    csv.write_record(csv_header())?;
    for row in csv_rows(record, names) {
        csv.write_record(row)?;
    }
    csv.flush()
}

fn json_class(epoch: &Epoch, class: &ClassStats) -> Value {
    json!({
        "count": class.count, "violations": class.violations,
        "min_ns": class.min_ns, "max_ns": class.max_ns,
        "p50_ns": class.quantile(0.5), "p90_ns": class.quantile(0.9),
        "p99_ns": class.quantile(0.99), "p999_ns": class.quantile(0.999),
        "at_percentile_ns": tail(epoch, class),
        "at_fifo": class.at_fifo, "at_fifo_violations": class.at_fifo_violations,
    })
}

/// All figures, with units in their names.
pub(crate) fn json(record: &Record, names: &ClassNames) -> Value {
    let epochs = record.epochs().map(|(name, epoch)| {
        let classes = executed(epoch).into_iter().map(|class| {
            let mut value = json_class(epoch, class);
            value["class"] = names.of(class.class).into();
            value["rank"] = class.class.into();
            value["window_ns"] = class.window_ns.into();
            value["verdict"] = judge_class(epoch, class).word().into();
            value
        });
        json!({
            "name": name, "id": epoch.id, "slo_ns": epoch.slo_ns, "percentile": epoch.percentile,
            "verdict": judge(epoch).word(), "because": explain(epoch, names),
            "all": json_class(epoch, &epoch.all()), "classes": classes.collect::<Value>(),
        })
    });
    json!({
        "origin": Origin(record.emulated.as_deref()).word(), "emulated": record.emulated,
        "lock": record.lock, "processes": record.processes, "still_running": record.running,
        "seconds": record.seconds, "epochs": epochs.collect::<Value>(),
    })
}

/// Names of [`csv_rows`]'s columns.
pub(crate) fn csv_header() -> [&'static str; 16] {
    [
        "origin",
        "lock",
        "epoch",
        "id",
        "cores",
        "count",
        "per_second",
        "p50_ns",
        "p99_ns",
        "percentile",
        "at_percentile_ns",
        "slo_ns",
        "violations",
        "window_ns",
        "max_ns",
        "verdict",
    ]
}

/// One row for each class of each epoch, and one for all classes together.
pub(crate) fn csv_rows(record: &Record, names: &ClassNames) -> Vec<[String; 16]> {
    let mut rows = Vec::new();
    for (name, epoch) in record.epochs() {
        let mut row = |cores: &str, class: &ClassStats, window: String, verdict: Verdict| {
            rows.push([
                Origin(record.emulated.as_deref()).word().to_owned(),
                record.lock.clone(),
                name.clone(),
                epoch.id.to_string(),
                cores.to_owned(),
                class.count.to_string(),
                format!("{:.1}", class.count as f64 / record.seconds.max(1e-9)),
                class.quantile(0.5).to_string(),
                class.quantile(0.99).to_string(),
                epoch.percentile.to_string(),
                tail(epoch, class).to_string(),
                epoch.slo_ns.to_string(),
                class.violations.to_string(),
                window,
                class.max_ns.to_string(),
                verdict.word().to_owned(),
            ]);
        };
        row("all", &epoch.all(), String::new(), judge(epoch));
        for class in executed(epoch) {
            let verdict = judge_class(epoch, class);
            row(names.of(class.class), class, class.window_ns.to_string(), verdict);
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::super::tests::{class, epoch, process};
    use super::*;

    fn record() -> (Record, ClassNames) {
        let times = |slow: u64| [vec![10_000; 990], vec![slow; 10 + 100]].concat();
        let classes = vec![
            class(0, 200_000, &times(50_000), false),
            class(1, 200_000, &times(400_000), true),
        ];
        let record =
            Record::of(vec![process(u32::MAX, "server", vec![epoch("get", 200_000, classes)])]);
        (record, ClassNames::new(None))
    }

    #[test]
    fn table_has_a_line_for_each_class() {
        let (record, names) = record();
        let text = table(&record, &names);
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[0].starts_with("cores") && lines[0].contains("P99"), "{text}");
        assert_eq!(lines[1], "get, SLO 200 µs");
        assert!(lines[2].contains("all") && lines[2].ends_with("infeasible"), "{text}");
        assert!(lines[3].contains(names.of(0)) && lines[3].ends_with("kept"), "{text}");
        assert_eq!(lines.len(), 5, "{text}");
    }

    #[test]
    fn two_epochs_with_percentiles_of_their_own_take_a_line_each() {
        let times = [vec![727; 650_000], vec![4_800_000; 6_510]].concat();
        let classes = || [0, 1].map(|number| class(number, 100_000, &times, true)).to_vec();
        let mut other = epoch("audit of a name that is rather long", 5_000_000, classes());
        other.percentile = 99.9;
        let epochs = vec![epoch("transfer", 100_000, classes()), other];
        let record = Record::of(vec![process(u32::MAX, "server", epochs)]);
        let text = table(&record, &ClassNames::new(None));
        assert!(text.lines().all(|line| line.chars().count() <= output::WIDTH), "{text}");
        assert!(text.contains("P99.9 4.78 ms") && text.contains("6,510 (0.99 %)"), "{text}");
        assert!(text.contains("violations") && text.contains("percentile"), "{text}");
        // At most two lines of header, two headings, and three lines for each epoch.
        assert!((9..=10).contains(&text.lines().count()), "{text}");
    }

    #[test]
    fn a_class_that_took_no_part_is_explained() {
        let (both, _) = record();
        let one = |number| {
            let get = epoch("get", 200_000, vec![class(number, 200_000, &[10_000; 20], false)]);
            Record::of(vec![process(u32::MAX, "server", vec![get])])
        };
        let mut topology = lockwright_native::topology::Topology::new();
        topology.read(b"/sys");
        let cpus: Vec<_> = topology.online().map(|(cpu, _)| cpu.to_string()).collect();
        if let [first, rest @ ..] = &cpus[..]
            && !rest.is_empty()
        {
            let spec = format!("big:{first},little:{}x3.75", rest.join(","));
            let names = ClassNames::new(Some(&spec));
            let text = report(&one(0), &names, "server").replace("\n  ", " ");
            assert!(text.contains("note: all executions ended on one class of cores"), "{text}");
            assert!(text.contains("stood by: big; perhaps the program was too short"), "{text}");
            assert!(report(&one(1), &names, "server").replace("\n  ", " ").contains("by: little;"));
            assert!(!report(&both, &names, "server").contains("note:"));
        }
        let equal = ClassNames::new(Some(&format!("all:{}", cpus.join(","))));
        assert!(report(&one(0), &equal, "server").contains("lockwright doctor --topology"));
    }

    #[test]
    fn infeasible_says_what_fifo_did() {
        let (record, names) = record();
        let (_, epoch) = record.epochs().next().unwrap();
        let text = explain(epoch, &names);
        assert!(text.starts_with("infeasible: of 1,100 executions"), "{text}");
        assert!(text.contains("10.0 % took longer than 200 µs (allowed: 1.0 %)"), "{text}");
    }

    #[test]
    fn too_few_executions_are_no_reason() {
        let few = class(1, 200_000, &[400_000], false);
        let text = |classes| explain(&epoch("get", 200_000, classes), &ClassNames::new(None));
        let needs = "too few: a verdict on P99 needs 100 executions on a class of cores";
        assert_eq!(text(vec![few.clone()]), needs);
        let kept = text(vec![class(0, 200_000, &[10_000; 100], false), few]);
        assert!(
            kept.starts_with("kept: the longest P99, on ") && kept.contains(" is 10.0 µs;"),
            "{kept}"
        );
    }

    #[test]
    fn csv_and_json_have_the_same_figures() {
        let (record, names) = record();
        let rows = csv_rows(&record, &names);
        let value = json(&record, &names);
        assert_eq!(rows.len(), 3);
        assert_eq!(rows[0].len(), csv_header().len());
        assert_eq!(rows[0][5], value["epochs"][0]["all"]["count"].to_string());
        assert_eq!((value["origin"].as_str(), rows[0][0].as_str()), (Some("emulated"), "emulated"));
        assert_eq!(rows[2][10], value["epochs"][0]["classes"][1]["at_percentile_ns"].to_string());
    }
}
