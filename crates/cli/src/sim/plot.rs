//! A study's plots: throughput, latency, and operations per joule. Curves show what varies most; without variation,
//! bars.

use super::plan::Plan;
use super::{Across, SeedRuns, place, source};
use lockwright_numbers::Spread;
use lockwright_numbers::format::{si, time};
use lockwright_plot::{
    Axis, Block, Cell, Column, Curves, Group, Head, Ink, Look, Panel, Range, Series, Show, Style,
    far_apart,
};
use lockwright_sim::{ClassOutcome, Outcome};

/// Shown instead of the latency if no operation completed.
const NONE: &str = "none ended";

/// Maximum number of panels, to keep the picture readable.
const MANY_PANELS: usize = 12;

/// Computes a figure of a run; `None` if nothing was counted.
type Of = Box<dyn Fn(&Outcome) -> Option<f64>>;

/// A figure to draw.
struct Drawing {
    name: String,
    dashed: bool,
    of: Of,
    /// The rank of its class of cores.
    rank: Option<usize>,
}

impl Drawing {
    /// Did the runs have a thread on that class?
    fn ran(&self, row: &SeedRuns<'_>) -> bool {
        let ran = |outcome: &Outcome| match self.rank {
            Some(rank) => outcome.classes.get(rank).is_some_and(ClassOutcome::ran),
            None => true,
        };
        row.outcomes.iter().any(|outcome| outcome.violation.is_none() && ran(outcome))
    }
}

/// A plot: its file name, title and y axis, and one or two figures.
struct Plot {
    file: &'static str,
    title: String,
    y: &'static str,
    is_time: bool,
    figures: Vec<Drawing>,
}

impl Plot {
    fn show(&self) -> Show {
        if self.is_time { time } else { si }
    }
}

fn plots(plan: &Plan) -> Vec<Plot> {
    let simple = |of: fn(&Outcome) -> f64| {
        let of = Box::new(move |outcome: &Outcome| Some(of(outcome)));
        vec![Drawing { name: String::new(), dashed: false, of, rank: None }]
    };
    let of_class = |rank: usize, name: &str, dashed| Drawing {
        name: format!("{name} cores"),
        dashed,
        of: Box::new(move |outcome: &Outcome| {
            let latency = outcome.classes.get(rank)?.latency;
            (latency.count > 0).then_some(latency.p99_ns as f64)
        }),
        rank: Some(rank),
    };
    // Machines whose classes have different names can't share a curve. Use all cores together.
    let classes = &plan.machines[0].class;
    let same = plan.machines.iter().all(|machine| {
        machine.class.iter().map(|class| &class.name).eq(classes.iter().map(|class| &class.name))
    });
    let last = classes.len() - 1;
    let (what, latency) = if same && last > 0 {
        let slow = of_class(last, &classes[last].name, false);
        (
            format!(
                "P99 latency: solid on {} cores, dashed on {} cores",
                classes[last].name, classes[0].name
            ),
            vec![slow, of_class(0, &classes[0].name, true)],
        )
    } else {
        let of = |outcome: &Outcome| {
            (outcome.latency.count > 0).then_some(outcome.latency.p99_ns as f64)
        };
        let all = Drawing { name: String::new(), dashed: false, of: Box::new(of), rank: None };
        ("P99 latency of operations".to_owned(), vec![all])
    };
    let throughput = simple(|outcome| outcome.throughput);
    let tpp = simple(|outcome| outcome.tpp);
    let plot = |file, title, y, is_time, figures| Plot { file, title, y, is_time, figures };
    vec![
        plot("throughput.svg", "Throughput".into(), "operations per second", false, throughput),
        plot("latency.svg", what, "P99 of an operation", true, latency),
        plot("energy.svg", "Throughput per power".into(), "operations per joule", false, tpp),
    ]
}

/// The x axis: the sweep with the most values, or else the number of threads if it varies.
fn across(plan: &Plan) -> Option<Across> {
    let sweeps = plan.sweeps.iter().enumerate().filter(|(_, sweep)| sweep.values.len() > 1);
    // If several are equally long, the first.
    let longest = sweeps.rev().max_by_key(|(_, sweep)| sweep.values.len());
    longest
        .map(|(number, _)| Across::Sweep(number))
        .or(plan.threads_vary.then_some(Across::Threads))
}

fn range(spread: Spread) -> Range {
    Range { middle: spread.median, low: spread.min, high: spread.max }
}

fn value(row: &SeedRuns<'_>, figure: &Drawing) -> Option<Range> {
    let sound = row.outcomes.iter().filter(|outcome| outcome.violation.is_none());
    let values: Option<Vec<f64>> = sound.map(|outcome| (figure.of)(outcome)).collect();
    Spread::of(&values?).map(range)
}

/// The rows of each panel, with the panel's title.
fn panels<'r, 'a>(
    rows: &'r [SeedRuns<'a>],
    x: Option<&Across>,
) -> Vec<(String, Vec<&'r SeedRuns<'a>>)> {
    let mut all: Vec<(String, Vec<&SeedRuns<'_>>)> = Vec::new();
    for row in rows {
        let parts = place(row, x);
        let title = match parts.is_empty() {
            true => {
                let (what, params) = &row.plan.workloads[row.at().workload];
                let machine = &row.plan.machines[row.at().machine].name;
                format!("{machine}, {}", super::with_options(what.id, params))
            }
            false => parts.iter().map(|(k, v)| format!("{k} {v}")).collect::<Vec<_>>().join(", "),
        };
        match all.iter_mut().find(|(known, _)| *known == title) {
            Some((_, rows)) => rows.push(row),
            None => all.push((title, vec![row])),
        }
    }
    all
}

/// All plots of the study: file names and SVG.
pub(crate) fn all(plan: &Plan, rows: &[SeedRuns<'_>]) -> Vec<(&'static str, String)> {
    let x = across(plan);
    let panels = panels(rows, x.as_ref());
    let mut note = source(plan);
    if panels.len() > MANY_PANELS {
        note += &format!("; the first {MANY_PANELS} of {} panels", panels.len());
    }
    let panels = &panels[..panels.len().min(MANY_PANELS)];
    let draw = |plot: &Plot| {
        let svg = match &x {
            Some(x) => over(plan, x, panels, plot, &note),
            None => side_by_side(panels, plot, &note),
        };
        (plot.file, svg)
    };
    plots(plan).iter().map(draw).collect()
}

fn over(
    plan: &Plan,
    x: &Across,
    panels: &[(String, Vec<&SeedRuns<'_>>)],
    plot: &Plot,
    note: &str,
) -> String {
    let at = |row: &SeedRuns<'_>| match x {
        Across::Threads => f64::from(row.at().threads),
        Across::Sweep(number) => row.at().swept[*number],
    };
    let meaning = match x {
        Across::Threads => "threads".to_owned(),
        Across::Sweep(number) => {
            let sweep = &plan.sweeps[*number];
            match sweep.meaning == sweep.key {
                true => sweep.key.clone(),
                false => format!("{}: {}", sweep.key, sweep.meaning),
            }
        }
    };
    let panel = |(title, rows): &(String, Vec<&SeedRuns<'_>>)| {
        let series = |lock: usize, figure: &Drawing| {
            let mine = rows.iter().filter(|row| row.at().lock == lock);
            let dots = mine.filter_map(|row| Some((at(row), value(row, figure)?)));
            let mut dots: Vec<_> = dots.collect();
            dots.sort_by(|a, b| a.0.total_cmp(&b.0));
            let style = Style::of(lock, Look::Line).dashed(usize::from(figure.dashed));
            Series { style, right: false, dots }
        };
        let locks = 0..plan.locks.len();
        let all: Vec<_> = locks
            .flat_map(|lock| plot.figures.iter().map(move |figure| series(lock, figure)))
            .collect();
        let dots = || all.iter().flat_map(|series| &series.dots);
        let x_log = far_apart(dots().map(|(x, _)| *x));
        let y_log = plot.is_time && far_apart(dots().map(|(_, y)| y.middle));
        let x = Axis::maybe_log(&meaning, si, x_log);
        Panel::new(title, x, Axis::maybe_log(plot.y, plot.show(), y_log), all)
    };
    let drawn = || panels.iter().flat_map(|(_, rows)| rows);
    let entry = |lock: usize| {
        let mine = || drawn().filter(move |row| row.at().lock == lock);
        let missing = plot.figures.iter().filter_map(|figure| missing(mine(), figure));
        let missing: Vec<_> = missing.collect();
        let name = plan.locks[lock].name();
        let name = match missing.is_empty() {
            true => name.to_owned(),
            false => format!("{name} ({})", missing.join("; ")),
        };
        (name, Style::of(lock, Look::Line))
    };
    let key = (0..plan.locks.len()).map(entry).collect();
    let head = Head { title: plot.title.clone(), source: note.into(), key };
    Curves::new(head, panels.iter().map(panel).collect()).svg()
}

/// A note in the key about points that are missing because no operation completed.
fn missing<'a>(
    rows: impl Iterator<Item = &'a &'a SeedRuns<'a>>,
    figure: &Drawing,
) -> Option<String> {
    let ran: Vec<_> = rows.filter(|row| figure.ran(row)).collect();
    let none = ran.iter().filter(|row| value(row, figure).is_none()).count();
    let of = match figure.name.split(' ').next() {
        Some(class) if !class.is_empty() => format!("{class}: "),
        _ => String::new(),
    };
    match none {
        0 => None,
        _ if none == ran.len() => Some(format!("{of}{NONE}")),
        _ => Some(format!("{of}{NONE} at {none} of {}", ran.len())),
    }
}

fn side_by_side(panels: &[(String, Vec<&SeedRuns<'_>>)], plot: &Plot, note: &str) -> String {
    let mut blocks = Vec::new();
    for (title, rows) in panels {
        for figure in &plot.figures {
            let row = |row: &&SeedRuns<'_>| {
                let cell = value(row, figure).map_or(Cell::words(NONE), |range| {
                    Cell::bar(range, Ink::of(row.at().lock), plot.show()(range.middle))
                });
                lockwright_plot::Row { name: row.lock().to_owned(), cells: vec![cell] }
            };
            let rows: Vec<_> = rows.iter().filter(|row| figure.ran(row)).map(row).collect();
            if rows.is_empty() {
                continue; // no thread ran there
            }
            let title = match figure.name.is_empty() {
                true => title.clone(),
                false => format!("{title}: {}", figure.name),
            };
            let column = Column::new("", Axis::linear(plot.y, plot.show()), &[""]);
            blocks.push(Block { columns: vec![column], groups: vec![Group { title, rows }] });
        }
    }
    // The remark about dashes applies only to curves.
    let title = plot.title.split(':').next().unwrap_or_default().to_owned();
    let head = Head { title, source: note.into(), key: Vec::new() };
    lockwright_plot::Rows { head, blocks }.svg()
}
