//! The report of a comparison, as text, JSON and HTML.

use super::Setting;
use super::figure::Figure;
use super::measure::Measured;
use super::outcome::{Cell, Comparison, FigureRow};
use super::run::Run;
use crate::output;
use lockwright_bench::{FEWEST, Finding, Interval, Machine};
use lockwright_numbers::format::{ratio, si, time};
use lockwright_plot::{Axis, Block, Column, Group, Head, Ink, Range, Rows, page};
use maud::html;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Everything that a report mentions.
pub(crate) struct Report<'a> {
    pub(crate) machine: Machine,
    /// The emulated machine; `None`: a real one.
    pub(crate) emulated: Option<&'a str>,
    /// The command as typed, without folders.
    pub(crate) command: String,
    /// The program's name.
    pub(crate) program: &'a str,
    /// The program and its arguments, quoted for a shell.
    pub(crate) words: &'a str,
    pub(crate) settings: &'a [Setting],
    pub(crate) measured: &'a Measured,
    pub(crate) outcome: &'a Comparison,
    pub(crate) warm_up: usize,
    /// Were epochs measured in each run?
    pub(crate) with_epochs: bool,
    /// The load, the condition it waits for, and the requested figures.
    pub(crate) asked: Value,
    /// Did a run fail?
    pub(crate) failed: bool,
    /// Why futex calls are not counted, and how to fix that.
    pub(crate) uncounted: Option<(&'a str, &'a str)>,
}

impl Report<'_> {
    fn origin(&self) -> String {
        match self.emulated {
            Some(spec) => format!("emulated ({spec})"),
            None => "real".to_owned(),
        }
    }

    /// Where the figures come from, on one line.
    fn source(&self) -> String {
        self.machine.source(self.origin())
    }

    /// How much was measured, and why it ended.
    fn extent(&self) -> String {
        let plural =
            |many: usize, what: &str| format!("{many} {what}{}", if many == 1 { "" } else { "s" });
        let rounds = plural(self.measured.rounds, "round");
        let after = match self.warm_up {
            0 => String::new(),
            runs => format!(", after {} of each to warm up", plural(runs, "run")),
        };
        let why = match () {
            () if self.failed => "then a run failed",
            () if self.measured.interrupted => "then interrupted",
            () if self.measured.stopped => "then the result was clear",
            () => "as many as allowed",
        };
        format!("{rounds} of {} settings, interleaved{after}; {why}", self.settings.len())
    }

    /// The name of the setting that the others are compared with.
    fn base(&self) -> &str {
        &self.settings[0].name
    }

    /// The margin in per cent.
    fn margin(&self) -> f64 {
        (1000.0 * self.outcome.margin).round() / 10.0
    }

    /// The printed report.
    pub(crate) fn text(&self) -> String {
        let mut text = output::wrapped(&format!("{}\n{}", self.source(), self.extent())) + "\n\n";
        let header = ["", "median", "[min .. max]", &format!("to {}", self.base()), "surely"];
        let blocks: Vec<_> = self.outcome.rows.iter().map(|row| self.block(row)).collect();
        let table = output::blocks(&header, &blocks)
            .least(&["[min .. max]", "median"])
            .all_by("--json FILE");
        text += &output::plain(&table);
        text += "\n";
        for sentence in self.verdict() {
            let _ = writeln!(text, "{}", output::wrapped(&sentence));
        }
        for sentence in self.notes() {
            text += &output::beside("  - ", &sentence);
        }
        text
    }

    fn block(&self, row: &FigureRow) -> (String, Vec<Vec<String>>) {
        let is_first = self.outcome.first().is_some_and(|first| first.figure == row.figure);
        let decides = if is_first { "; decides" } else { "" };
        let rows = self.settings.iter().zip(&row.cells);
        let rows = rows.map(|(setting, cell)| cells(&setting.name, &row.figure, cell)).collect();
        (format!("{}, {} is better{decides}", row.figure.name, wanted(&row.figure)), rows)
    }

    /// What was found about each setting, and what to do.
    fn verdict(&self) -> Vec<String> {
        let Some(first) = self.outcome.first() else { return Vec::new() };
        let others = self.settings.iter().zip(&first.cells).skip(1);
        let mut all: Vec<_> =
            others.map(|(setting, cell)| self.finding(setting, &first.figure, cell)).collect();
        let base = self.base();
        match self.outcome.best {
            None if self.outcome.is_clear() => all.push(format!("stay with {base}")),
            None => {}
            Some(best) => {
                let best = &self.settings[best];
                let run = match &best.lock {
                    Some(_) => format!("lockwright run --lock {} -- {}", best.name, self.words),
                    None => self.words.to_owned(),
                };
                all.push(format!("take {}: {run}", best.name));
            }
        }
        all
    }

    /// A sentence on one setting.
    fn finding(&self, setting: &Setting, figure: &Figure, cell: &Cell) -> String {
        let (name, base) = (&setting.name, self.base());
        let (Some(interval), Some(finding)) = (cell.to_first, cell.finding) else {
            return format!("{name}: no verdict from fewer than {FEWEST} rounds");
        };
        let times = times(figure, &interval);
        let margin = self.margin();
        match finding {
            Finding::Better => format!("{name} is better than {base}: {times}"),
            Finding::Worse => format!("{name} is worse than {base}: {times}"),
            Finding::Same => {
                format!("{name} makes no difference: {times}; less than {margin} % doesn't count")
            }
            Finding::Unclear => {
                format!(
                    "noise hides the effect of {name}: {times}; less than {margin} % doesn't count"
                )
            }
        }
    }

    /// Further notes for the user.
    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let base = self.base();
        if let Some(best) = self.outcome.best {
            for (figure, interval) in self.outcome.costs(best) {
                notes.push(format!("but surely: {}", times(figure, &interval)));
            }
            let as_good: Vec<_> =
                self.outcome.as_good.iter().map(|at| self.settings[*at].name.as_str()).collect();
            if !as_good.is_empty() {
                notes.push(format!(
                    "it is not surely better than {} by a margin that counts",
                    as_good.join(", ")
                ));
            }
        }
        for (run, line) in self.findings() {
            let setting = &self.settings[run.setting].name;
            let when = match run.round {
                0 => "its first run".to_owned(),
                round => format!("round {round}"),
            };
            notes.push(format!("with {setting}, in {when}: {line}"));
        }
        let rounds = self.measured.rounds;
        let cells = self.outcome.first().into_iter().flat_map(|row| &row.cells);
        let enough = cells.filter_map(|cell| cell.to_first?.rounds_for(self.outcome.margin));
        if let Some(most) = enough.max_by(f64::total_cmp) {
            notes.push(for_an_answer(rounds, most));
        }
        let confidence = self.outcome.rows.iter().flat_map(|row| &row.cells);
        let confidence = confidence.filter_map(|cell| Some(cell.to_first?.confidence));
        if let Some(least) = confidence.min_by(f64::total_cmp) {
            notes.push(format!(
                "'to {base}': times as good, more than 1 is better; 'surely': with {} confidence, from the ratios \
                 of {rounds} rounds",
                percent(least)
            ));
        }
        let first = self.measured.first.iter().flat_map(|run| &run.figures);
        let has_epochs = first.clone().any(|(figure, _)| figure.name.starts_with("epoch '"));
        if has_epochs && !self.with_epochs {
            notes.push(
                "the program has epochs: --epochs compares their rates and percentiles, too"
                    .to_owned(),
            );
        }
        let futexes = self.measured.first.iter().filter_map(|run| {
            let (figure, calls) =
                run.figures.iter().find(|(figure, _)| figure.name.contains("futex calls"))?;
            Some(format!("{} under {}", figure.shown(*calls), self.settings[run.setting].name))
        });
        let futexes: Vec<_> = futexes.collect();
        if !futexes.is_empty() {
            notes.push(format!("futex calls in the first run of each: {}", futexes.join(", ")));
        }
        if let Some((why, mend)) = self.uncounted {
            notes.push(format!("futex calls are not counted: {why}; {mend}"));
        }
        notes
    }

    /// What was found besides, with the first run that showed it.
    fn findings(&self) -> Vec<(&Run, &str)> {
        let mut all: Vec<(&Run, &str)> = Vec::new();
        for run in self.measured.first.iter().chain(&self.measured.runs) {
            for line in &run.findings {
                if !all.iter().any(|(known, of)| known.setting == run.setting && of == line) {
                    all.push((run, line));
                }
            }
        }
        all
    }

    pub(crate) fn json(&self) -> Value {
        let runs = self.measured.runs.iter().map(|run| {
            let figures = run.figures.iter().map(|(figure, value)| {
                let name = figure.name.as_str();
                json!({ "figure": name, "value": value })
            });
            json!({
                "round": run.round, "setting": self.settings[run.setting].name,
                "figures": figures.collect::<Value>(),
            })
        });
        let rows = self.outcome.rows.iter().map(|row| {
            let cells = self.settings.iter().zip(&row.cells).map(|(setting, cell)| {
                json!({ "setting": setting.name, "values": cell.values,
                        "times_as_good": cell.to_first, "finding": cell.finding })
            });
            json!({ "figure": row.figure, "settings": cells.collect::<Value>() })
        });
        let name = |at: usize| self.settings[at].name.as_str();
        json!({
            "origin": if self.emulated.is_some() { "emulated" } else { "real" },
            "emulated": self.emulated, "machine": self.machine, "command": self.command,
            "program": self.words, "asked": self.asked, "settings": self.settings, "rounds": self.measured.rounds,
            "margin": self.outcome.margin,
            "clear": self.outcome.is_clear(), "interrupted": self.measured.interrupted,
            "units": "times: ns",
            "take": self.outcome.best.map(name),
            "as_good": self.outcome.as_good.iter().map(|at| name(*at)).collect::<Vec<_>>(),
            "verdict": self.verdict(), "notes": self.notes(),
            "findings": self.findings().iter().map(|(run, line)| {
                json!({ "setting": self.settings[run.setting].name, "round": run.round, "finding": line })
            }).collect::<Value>(),
            "figures": rows.collect::<Value>(), "runs": runs.collect::<Value>(),
        })
    }

    /// One self-contained page: no network, no script.
    pub(crate) fn page(&self) -> String {
        let base = self.base();
        let row = |row: &FigureRow, at: usize| {
            let (setting, cell) = (&self.settings[at], &row.cells[at]);
            let name = if at == 0 { &*row.figure.name } else { "" };
            let figures = cells(&setting.name, &row.figure, cell);
            let all = std::iter::once(name.to_owned()).chain(figures);
            let chosen = self.outcome.best == Some(at);
            page::TableRow { chosen, first: at == 0, ..page::TableRow::of(all) }
        };
        let count = self.settings.len();
        let all = self.outcome.rows.iter();
        let rows = all.flat_map(|of| (0..count.min(of.cells.len())).map(move |at| row(of, at)));
        let to_base = format!("to {base}");
        let header = ["figure", "lock", "median", "[min .. max]", &to_base, "surely"];
        let origin = if self.emulated.is_some() { "emulated" } else { "real" };
        let body = html! {
            h1 { (self.program) " by lock " (page::tag(origin, "")) }
            p.soft { (self.source()) }
            @for sentence in self.verdict() { p.advice { (sentence) "." } }
            (page::list(self.notes()))
            @if let Some(svg) = self.plot() { (page::figure(&svg, "")) }
            (page::table(header, 2, false, rows))
            h2 { "How this was measured" }
            (page::terms([
                ("Command", page::command(&self.command)),
                ("Rounds", html! { (self.extent()) ". Every round runs each setting once, in an order that rotates. \
                    What disturbs the machine for longer than a round disturbs all of them, and leaves their ratios." }),
                (&to_base, html! { "the middle of the rounds’ ratios (Hodges and Lehmann), in times as good; "
                    em { "surely" } ": the interval of Wilcoxon’s signed-rank test." }),
            ]))
        };
        page::page(&format!("lockwright compare: {}", self.program), &body)
    }

    /// The deciding figure's bars, and below them the ratios.
    fn plot(&self) -> Option<String> {
        let row = self.outcome.first()?;
        let block = |title: String,
                     axis,
                     show: &dyn Fn(f64) -> String,
                     of: &dyn Fn(&Cell) -> Option<Range>| {
            let line = |(at, (setting, cell)): (usize, (&Setting, &Cell))| {
                let cell = of(cell).map_or(lockwright_plot::Cell::words("-"), |range| {
                    lockwright_plot::Cell::bar(range, Ink::of(at), show(range.middle))
                });
                lockwright_plot::Row { name: setting.name.clone(), cells: vec![cell] }
            };
            let rows = self.settings.iter().zip(&row.cells).enumerate().map(line).collect();
            let columns = vec![Column::new("", axis, &[""])];
            Block { columns, groups: vec![Group { title, rows }] }
        };
        let figure = &row.figure;
        let values = block(
            format!(
                "{}: {} is better; median, lines from smallest to largest",
                figure.name,
                wanted(figure)
            ),
            Axis::linear(&figure.name, if figure.is_time { time } else { si }),
            &|value| figure.shown(value),
            &|cell| cell.values.map(|s| Range { middle: s.median, low: s.min, high: s.max }),
        );
        let ratios = block(
            format!("times as good as {}; lines: where the ratio surely is", self.base()),
            Axis::linear("times as good", si),
            &ratio,
            &|cell| match cell.to_first {
                Some(ratio) => {
                    Some(Range { middle: ratio.middle, low: ratio.low, high: ratio.high })
                }
                // The first setting has ratio 1 to itself. Others with too few rounds have none.
                None => std::ptr::eq(cell, &row.cells[0]).then(|| Range::exactly(1.0)),
            },
        );
        let title = format!("{} by lock", self.program);
        let head = Head { title, source: self.source(), key: Vec::new() };
        Some(Rows { head, blocks: vec![values, ratios] }.svg())
    }
}

/// What to do about noise: as many rounds as would do, by the spread of those that there are, or, if that is no sensible number, something
/// else.
fn for_an_answer(rounds: usize, enough: f64) -> String {
    // A comparison makes no more of itself either.
    let most = (10 * rounds).min(super::measure::MOST) as f64;
    if enough > most {
        return format!(
            "more rounds won't give a clear answer here (not even {most:.0} would do): stop other programs, make the \
             runs longer, or count only larger differences: --margin 10"
        );
    }
    // Two digits: it is an estimate.
    let unit = 10_f64.powf(enough.log10().floor() - 1.0).max(1.0);
    format!(
        "for a clear answer: about --rounds {:.0}, if the noise stays as it is; or stop other programs, or make the runs \
         longer",
        ((enough / unit).ceil() * unit).max(rounds as f64 + 1.0)
    )
}

/// Which values of a figure are better.
fn wanted(figure: &Figure) -> &'static str {
    if figure.more { "more" } else { "less" }
}

/// A line of the table.
fn cells(name: &str, figure: &Figure, cell: &Cell) -> Vec<String> {
    let dash = || "-".to_owned();
    let (median, range) = match cell.values {
        Some(spread) => (
            figure.shown(spread.median),
            format!("[{} .. {}]", figure.shown(spread.min), figure.shown(spread.max)),
        ),
        None => (dash(), dash()),
    };
    let (middle, surely) = match cell.to_first {
        Some(to) => (ratio(to.middle), format!("[{} .. {}]", bound(to.low), bound(to.high))),
        None => (dash(), dash()),
    };
    vec![name.to_owned(), median, range, middle, surely]
}

/// An end of an interval. One near 1 keeps the digits that tell on which side of it the interval lies.
pub(crate) fn bound(end: f64) -> String {
    let near = (3..=6).filter(|_| (0.995..1.005).contains(&end) && end != 1.0);
    let mut near = near.map(|digits| format!("{end:.digits$}"));
    near.find(|text| text.parse() != Ok(1.0)).unwrap_or_else(|| ratio(end))
}

/// `1.25 times as fast (surely 1.21 to 1.30)`, `0.80 times the P99 (surely ...)`.
fn times(figure: &Figure, interval: &Interval) -> String {
    let words = |what: &str, middle: f64, low: f64, high: f64| {
        format!("{} times {what} (surely {} to {})", ratio(middle), bound(low), bound(high))
    };
    let (low, middle, high) = (interval.low, interval.middle, interval.high);
    match figure {
        Figure { name, more: false, is_time: true, .. } if name == "time" => {
            words("as fast", middle, low, high)
        }
        Figure { name, more: true, .. } => words(&format!("the {name}"), middle, low, high),
        Figure { name, .. } => words(&format!("the {name}"), 1.0 / middle, 1.0 / high, 1.0 / low),
    }
}

/// `99.9 %`.
fn percent(share: f64) -> String {
    // Rounded down, because nothing is certain.
    format!("{} %", (share * 1000.0).floor() / 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_answered_by_rounds_or_by_something_else() {
        let said = for_an_answer(60, 143.2);
        assert!(said.starts_with("for a clear answer: about --rounds 150, if"), "{said}");
        assert!(for_an_answer(60, 31.0).contains("--rounds 61,"), "more than there are");
        let said = for_an_answer(60, 2055.0);
        assert!(said.contains("(not even 600 would do)") && said.contains("--margin 10"), "{said}");
        assert!(for_an_answer(1500, 2055.0).contains("not even 2000"), "as many as compare allows");
    }

    #[test]
    fn ratios_are_told_in_the_figures_own_direction() {
        let interval =
            Interval { low: 1.1, middle: 1.25, high: 1.6, rounds: 12, confidence: 0.999 };
        assert_eq!(
            times(&Figure::time("time"), &interval),
            "1.25 times as fast (surely 1.10 to 1.60)"
        );
        assert_eq!(
            times(&Figure::rate("rps"), &interval),
            "1.25 times the rps (surely 1.10 to 1.60)"
        );
        assert_eq!(
            times(&Figure::time("P99"), &interval),
            "0.80 times the P99 (surely 0.62 to 0.91)"
        );
        assert_eq!([1.0, 1.0021, 0.9996, 1.01].map(bound), ["1.00", "1.002", "0.9996", "1.01"]);
        assert_eq!(percent(1.0 - 2.0 / 2048.0), "99.9 %");
        assert_eq!(percent(0.9375), "93.7 %");
    }
}
