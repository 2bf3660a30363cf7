//! The report of a tuning, as text, HTML, SVG, JSON and CSV.

use super::advice::{Advice, advise, rate};
use super::{Curve, Point, Setting, TuneRun, pareto, plot};
use crate::epochs::{ClassNames, Origin, csv_header, csv_rows, json};
use crate::hints::{Failure, cause};
use crate::output;
use lockwright_bench::Machine;
use lockwright_energy::Source;
use lockwright_numbers::format::time;
use lockwright_numbers::units::word;
use lockwright_plot::page;
use maud::html;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Everything that a report mentions.
pub(crate) struct Report<'a> {
    /// The lock that was tuned.
    pub(crate) lock: &'a str,
    /// The emulated machine; `None`: a real one.
    pub(crate) emulated: Option<String>,
    pub(crate) machine: Machine,
    /// The command as typed, without folders.
    pub(crate) command: String,
    /// The program's name.
    pub(crate) program: &'a str,
    pub(crate) settings: &'a [Setting],
    /// Requested number of rounds.
    pub(crate) rounds: u32,
    pub(crate) runs: &'a [TuneRun],
    pub(crate) curves: &'a [Curve],
    pub(crate) names: &'a ClassNames,
    /// The source of the energy figures.
    pub(crate) energy: &'a Source,
    /// Show throughput, latency and energy together?
    pub(crate) pareto: bool,
    /// Why runs are missing, if they are.
    pub(crate) incomplete: Option<&'a str>,
}

impl Report<'_> {
    fn origin(&self) -> Origin<'_> {
        Origin(self.emulated.as_deref())
    }

    /// The origin of the figures, on one line.
    fn source(&self) -> String {
        self.machine.source(self.origin())
    }

    /// How much was measured.
    fn extent(&self) -> String {
        let all = self.settings.len() * self.rounds as usize;
        let runs = format!(
            "{} runs: {} rounds of {} settings, interleaved",
            self.runs.len(),
            self.rounds,
            self.settings.len()
        );
        match self.incomplete {
            Some(why) => format!("{runs}; {why}: {} runs are missing", all - self.runs.len()),
            None => runs,
        }
    }

    /// The printed report.
    pub(crate) fn text(&self) -> String {
        let head = format!("{}\n{}", self.source(), self.extent());
        let mut text = output::wrapped(&head) + "\n";
        for curve in self.curves {
            let _ = writeln!(text, "\nepoch '{}'\n{}", curve.epoch, table(curve, self.lock));
            let advice = advise(curve);
            let sentence = advice.sentence(Some(&curve.epoch));
            let _ = writeln!(text, "{}", output::wrapped(&sentence));
            for note in &advice.notes {
                text += &output::beside("  - ", note);
            }
            if self.pareto {
                let table = pareto::table(curve, self.lock, self.energy.kind().word());
                let _ = writeln!(text, "\n{}", output::plain(&table));
            }
        }
        if self.pareto {
            let words =
                "* no other setting is as good in all three figures and better in one; medians";
            let _ = writeln!(text, "{}", output::wrapped(words));
            let words = output::wrapped(&self.energy.lines().join("\n"));
            let _ = writeln!(text, "{words}");
        }
        text
    }

    /// Writes tune.html, tune.json, tune.csv, tune.svg and, for further epochs, tune-2.svg, ...
    pub(crate) fn write(&self, dir: &Path) -> Result<Vec<PathBuf>, Failure> {
        let mut figures = Vec::new();
        for curve in self.curves {
            let advice = advise(curve);
            let svg = plot::graph(curve, &advice, self.lock, &self.source());
            figures.push((advice, svg));
        }
        let mut files = vec![
            ("tune.html".to_owned(), self.page(&figures)),
            ("tune.json".to_owned(), format!("{:#}\n", self.json())),
            ("tune.csv".to_owned(), self.csv()?),
        ];
        for (number, (_, svg)) in figures.into_iter().enumerate() {
            let name =
                if number == 0 { "tune.svg".into() } else { format!("tune-{}.svg", number + 1) };
            files.push((name, svg));
        }
        for (number, curve) in self.curves.iter().enumerate().filter(|_| self.pareto) {
            let svg = self.pareto_picture(curve);
            let number = if number == 0 { String::new() } else { format!("-{}", number + 1) };
            files.push((format!("tune-pareto{number}.svg"), svg));
        }
        let write = |(name, text): (String, String)| {
            let path = dir.join(name);
            lockwright_files::write(&path, text).map_err(|error| {
                Failure::new(format!("cannot write '{}': {}", path.display(), cause(&error)))
                    .hint("lockwright tune --output DIR ...")
            })?;
            Ok(path)
        };
        files.into_iter().map(write).collect()
    }

    fn pareto_picture(&self, curve: &Curve) -> String {
        pareto::picture(curve, self.lock, self.energy.kind().word(), &self.source())
    }

    fn json(&self) -> Value {
        let points = |setting: Value, point: &Point| json!({ "setting": setting, "point": point });
        let curves = self.curves.iter().map(|curve| {
            let advice = advise(curve);
            let slos = curve.slos.iter().map(|(ns, point)| points((*ns).into(), point));
            let locks = curve.locks.iter().map(|(lock, point)| points(lock.as_str().into(), point));
            json!({
                "epoch": curve.epoch, "percentile": curve.percentile,
                "fastest_class": curve.classes.as_ref().map(|(fast, _)| fast),
                "slowest_class": curve.classes.as_ref().map(|(_, slow)| slow),
                "by_slo_ns": slos.collect::<Value>(), "by_lock": locks.collect::<Value>(),
                "recommended_slo_ns": advice.slo_ns, "reason": advice.reason, "notes": advice.notes,
            })
        });
        let runs = self.runs.iter().map(|run| {
            let mut value = json(&run.record, self.names);
            value["setting"] = self.settings[run.setting].label().into();
            value["round"] = run.round.into();
            value["joules"] = run.joules.into();
            value
        });
        json!({
            "origin": self.origin().word(), "emulated": self.emulated, "machine": self.machine,
            "command": self.command, "lock": self.lock, "rounds": self.rounds,
            "incomplete": self.incomplete,
            "units": "rate: executions per second; all, slow, fast: ns at the epoch's percentile; per_joule: executions per joule",
            "energy": {
                "source": self.energy.kind(), "what": self.energy.what(), "notes": self.energy.notes(),
            },
            "epochs": curves.collect::<Value>(), "runs": runs.collect::<Value>(),
        })
    }

    fn csv(&self) -> Result<String, Failure> {
        let header = ["round", "setting"].into_iter().chain(csv_header()).map(str::to_owned);
        let mut records: Vec<Vec<String>> = vec![header.collect()];
        for run in self.runs {
            let head = [run.round.to_string(), self.settings[run.setting].label()];
            let rows = csv_rows(&run.record, self.names).into_iter();
            records.extend(rows.map(|row| head.iter().cloned().chain(row).collect()));
        }
        output::csv(records)
    }

    /// One self-contained page: no network, no script.
    fn page(&self, figures: &[(Advice, String)]) -> String {
        let word = self.origin().word();
        let place = match &self.emulated {
            Some(spec) => format!(
                "little cores are emulated ({spec}): their computing is stretched, see the manual. \
                 Nothing here is a figure of a real big.LITTLE machine."
            ),
            None => "measured on the machine named above as it is.".to_owned(),
        };
        let body = html! {
            h1 { (self.program) " by SLO " (page::tag(word, "")) }
            p.soft { (self.source()) }
            @if let Some(why) = self.incomplete { (page::warning(format!("Incomplete: {why}."))) }
            @for (curve, (advice, svg)) in self.curves.iter().zip(figures) {
                h2 { "Epoch " (curve.epoch) }
                p.advice.sentence { (advice.sentence(None)) "." }
                (page::list(advice.notes.iter().map(|note| page::marked(note))))
                (page::figure(svg, ""))
                @let (header, rows) = cells(curve, self.lock);
                (page::table(header, 1, true, rows.into_iter().map(|(slo, row)| page::TableRow {
                    chosen: slo.is_some() && slo == advice.slo_ns, ..page::TableRow::of(row)
                })))
                @if self.pareto { (page::figure(&self.pareto_picture(curve), NOT_BEATEN)) }
            }
            h2 { "How this was measured" }
            (page::terms([
                ("Command", page::command(&self.command)),
                ("Runs", html! { (self.extent()) ". Every round runs each setting once, in an order that rotates; \
                    figures are medians over the rounds, bars their range." }),
                ("Figures", html! { "Throughput: executions of the epoch per second. Latency: at the epoch’s \
                    percentile, of whole runs, from their first execution on." }),
                ("Other locks", html! { "have no SLO. Each is placed where its own latency would be the SLO, so \
                    anything above it has more throughput at that latency." }),
                ("Kept", html! { "the percentile of each class of cores is at most 5 % above the SLO." }),
                ("Infeasible", html! { "of at least 100 executions that were served first come, first served, \
                    more exceeded the SLO than the percentile allows." }),
                (word, html! { (place) }),
            ]))
        };
        page::page(&format!("lockwright tune: {}", self.program), &body)
    }
}

/// What a setting is that is beaten by none.
const NOT_BEATEN: &str = "Beaten by none, and named: no other setting is as good in throughput, latency and energy, and better in one of them.";

/// A row of the table.
type Cells = [String; 7];

/// The table of an epoch, for a terminal.
fn table(curve: &Curve, lock: &str) -> String {
    let (header, rows) = cells(curve, lock);
    let [.., overall, _, _] = &header;
    let least = ["[min .. max]", overall, "rate"];
    let mut table =
        output::table(&header.each_ref().map(String::as_str)).least(&least).all_by("tune.json");
    for (_, row) in rows {
        table.add_row(row);
    }
    output::plain(&table)
}

/// The table of an epoch: its header, and rows, each with its SLO.
fn cells(curve: &Curve, lock: &str) -> (Cells, Vec<(Option<u64>, Cells)>) {
    let at = &curve.percentile;
    let header = [
        "setting".to_owned(),
        "rate".to_owned(),
        "[min .. max]".to_owned(),
        format!("{at} {}", curve.slow_cores()),
        format!("{at} overall"),
        "over SLO".to_owned(),
        "verdict".to_owned(),
    ];
    let row = |name: String, point: &Point, slo: bool| {
        let range = format!(
            "[{} .. {}]",
            lockwright_numbers::format::si(point.rate.min),
            lockwright_numbers::format::si(point.rate.max)
        );
        // Columns about the SLO don't apply to other locks.
        let own = |text: String| if slo { text } else { "-".to_owned() };
        [
            name,
            rate(point),
            range,
            time(point.slow.median),
            time(point.all.median),
            own(format!("{:.2} %", 100.0 * point.violations)),
            own(point.verdict.word().to_owned()),
        ]
    };
    let others = curve.locks.iter().map(|(other, point)| (None, row(other.clone(), point, false)));
    let slos = curve
        .slos
        .iter()
        .map(|(ns, point)| (Some(*ns), row(format!("{lock}, SLO {}", word(*ns)), point, true)));
    (header, others.chain(slos).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::epochs::Verdict;
    use lockwright_numbers::Spread;

    #[test]
    fn a_setting_takes_one_line() {
        let spread = |values: &[f64]| Spread::of(values).expect("values");
        let point = |verdict| Point {
            rate: spread(&[123_456.0, 197_321.0, 1_312_000.0]),
            all: spread(&[59_800.0]),
            slow: spread(&[10_100_000.0]),
            fast: None,
            violations: 0.1234,
            executions: 5000,
            per_joule: None,
            verdict,
        };
        let curve = Curve {
            epoch: "get".into(),
            percentile: "P99.9".into(),
            classes: Some(("big".into(), "little".into())),
            slos: [20_000, 1_230_000].map(|ns| (ns, point(Verdict::Infeasible))).to_vec(),
            locks: vec![("barging".into(), point(Verdict::Kept))],
        };
        let text = table(&curve, "asl-max");
        assert!(text.lines().all(|line| line.chars().count() <= output::WIDTH), "{text}");
        let of = |name: &str| text.lines().find(|line| line.contains(name)).expect("its line");
        let line = of("asl-max, SLO 1.23ms");
        for cell in ["197 k/s", "[123 k .. 1.31 M]", "10.1 ms", "59.8 µs", "12.34 %", "infeasible"]
        {
            assert!(line.contains(cell), "{text}");
        }
        assert!(of("barging").ends_with('-') && of("little").contains("SLO"), "{text}");
    }
}
