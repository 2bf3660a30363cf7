//! All results relative to glibc, as a picture and a table for README.

use super::stats::{Figure, Group, Panel, Ratio, Summary, Verdict};
use super::{ASL, DemoResults, OURS};
use lockwright_numbers::format;
use lockwright_plot::{Axis, Block, Cell, Column, ColumnLine, Head, Ink, Look, Mark, Rows, Style};
use std::fmt::Write as _;

/// One lock in one setting, with glibc's results.
struct LockInSetting<'a> {
    panel: &'a Panel,
    group: &'a Group,
    own: &'a Summary,
}

impl LockInSetting<'_> {
    /// The lock and the setting.
    fn name(&self) -> String {
        let slo = match self.own.subject.slo_ns {
            Some(ns) => format!(", SLO {}", format::given(ns)),
            // Locks that use objectives have one in the row above.
            None if [ASL, OURS].contains(&&*self.own.subject.lock) => ", no SLO".into(),
            None => String::new(),
        };
        match self.panel.cores {
            None => format!("{}: {}", self.panel.label(self.group.setting), self.own.subject.lock),
            Some(_) => format!("{}: {}{slo}", self.group.setting.name(), self.own.subject.lock),
        }
    }

    /// `None`: the figure is meaningless here.
    fn ratio(&self, figure: Figure) -> Option<&Ratio> {
        self.panel.figures().contains(&figure).then(|| self.own.ratio(figure))
    }
}

fn rows(panel: &Panel) -> Vec<LockInSetting<'_>> {
    let mut rows = Vec::new();
    for group in &panel.groups {
        rows.extend(group.summaries[1..].iter().map(|own| LockInSetting { panel, group, own }));
    }
    rows
}

/// The title above a panel's rows.
fn title(panel: &Panel) -> &'static str {
    match panel.cores {
        None if panel.is_busy() => {
            "this machine, beside processes that compute all the time (real)"
        }
        None => "this machine (real)",
        Some(_) => "a big core and a little one (emulated; times are the little core’s)",
    }
}

/// The table in Markdown: medians. If the rounds agree, better is bold and worse is italic.
pub(super) fn markdown(results: &DemoResults) -> String {
    let mut table =
        "| to glibc | origin | throughput | P99 | P99.9 | longest | CPU an operation |\n\
                     |---|---|---|---|---|---|---|\n"
            .to_owned();
    for row in results.panels.iter().flat_map(rows) {
        let _ = write!(table, "| {} | {} |", row.name(), row.panel.origin());
        for figure in Figure::ALL {
            let cell = row.ratio(figure).map_or("-".into(), |ratio| {
                let median = format::ratio(ratio.spread.median);
                match ratio.verdict(figure) {
                    Verdict::Better => format!("**{median}**"),
                    Verdict::Worse => format!("*{median}*"),
                    Verdict::Even | Verdict::Untold => median,
                }
            });
            let _ = write!(table, " {cell} |");
        }
        table.push('\n');
    }
    table
}

/// A ratio beyond this becomes an arrow at the edge, with its value beside it.
const EDGE: f64 = 32.0;

/// A logarithmic axis centred on glibc, wide enough for all medians of the figure.
fn axis(figure: Figure, medians: impl Iterator<Item = f64>) -> Axis {
    let widest = medians.map(|ratio| ratio.max(1.0 / ratio)).fold(2.0, f64::max).min(EDGE);
    let step = match widest {
        9.0.. => 10.0,
        4.5.. => 5.0,
        _ => 2.0,
    };
    let wanted = if figure.is_gain() { "more is better" } else { "less is better" };
    let axis = Axis::log(wanted, |ratio| format!("{ratio}"));
    axis.within(1.0 / widest / 1.15, widest * 1.15).named_at(&[1.0 / step, 1.0, step])
}

fn ink(verdict: Verdict) -> Ink {
    match verdict {
        Verdict::Better => Ink::GOOD,
        Verdict::Worse => Ink::BAD,
        Verdict::Even | Verdict::Untold => Ink::EVEN,
    }
}

/// The picture: one row per lock and setting, one column per figure. A dot shows the median, and a line the range of
/// the rounds. Each column has its own logarithmic axis, centred on glibc.
pub(super) fn svg(results: &DemoResults, machine: &str) -> String {
    let column = |figure: Figure| {
        let all = results.panels.iter().flat_map(rows);
        let medians = all.filter_map(|row| row.ratio(figure).map(|ratio| ratio.spread.median));
        let mut column = Column::new(figure.name(), axis(figure, medians), &[""]);
        column.rules = vec![ColumnLine { at: 1.0, name: String::new(), ink: Ink::SOFT }];
        column
    };
    let cell = |row: &LockInSetting<'_>, figure| {
        let Some(ratio) = row.ratio(figure) else { return Cell::default() };
        let (spread, ink) = (ratio.spread, ink(ratio.verdict(figure)));
        let marks = vec![Mark::span(spread.min, spread.max, ink), Mark::dot(spread.median, 0, ink)];
        Cell { marks, words: vec![format::ratio(spread.median)] }
    };
    let row = |row: LockInSetting<'_>| lockwright_plot::Row {
        name: row.name(),
        cells: Figure::ALL.map(|figure| cell(&row, figure)).to_vec(),
    };
    let group = |panel: &Panel| lockwright_plot::Group {
        title: title(panel).to_owned(),
        rows: rows(panel).into_iter().map(row).collect(),
    };
    let columns = Figure::ALL.map(column).to_vec();
    let groups = results.panels.iter().map(group).collect();
    let key = [
        (Verdict::Better, "better: the rounds agree"),
        (Verdict::Worse, "worse: the rounds agree"),
        (Verdict::Even, "no clear difference"),
    ];
    let head = Head {
        title: "To glibc: median and range of the rounds, logarithmic, cut at the edges".into(),
        source: machine.to_owned(),
        key: key.map(|(v, words)| (words.to_owned(), Style::ink(ink(v), Look::Marks))).to_vec(),
    };
    Rows { head, blocks: vec![Block { columns, groups }] }.svg()
}
