//! The conclusions: a verdict of a few lines for readers who don't know the project, and tables for a terminal.

use super::stats::{Figure, Group, Panel, ROUNDS, Summary, Verdict};
use super::{ASL, OURS};
use lockwright_numbers::format::{given, ns, ratio, si, time, with_range};
use lockwright_text::table::{plain, right, table as new};
use std::collections::BTreeSet;

/// Columns of a terminal.
const WIDTH: usize = 80;

/// Above this, the little core's P99 misses its objective. Feedback steers towards the exact objective from both sides.
const KEPT: f64 = 1.05;

/// How many lines of a terminal the verdict may take.
const LINES: usize = 6;

/// Where a lock is worse than glibc's, and by how much.
struct Loss {
    /// `SQLite, 8 threads`
    place: String,
    /// `13 % slower`
    what: String,
    /// The worst come first: by their kind, and then by how much.
    kind: LossKind,
    times: f64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum LossKind {
    Slo,
    Throughput,
    Time,
    /// Nobody has asked for a limit there.
    TimeWithoutSlo,
}

/// What is told of a panel.
struct Told {
    head: &'static str,
    /// In one or two ways, the one that says more first.
    gains: Vec<String>,
    losses: Vec<Loss>,
}

impl Told {
    /// In at most this many lines of a terminal. Names the places where the lock is worse, as far as there is room, the worst first, and
    /// says how much worse the lock is there at least.
    fn sentence(&self, lines: usize) -> String {
        let fits = |said: &String| wrapped(said).lines().count() <= lines;
        let all = self.losses.len();
        let choices = (1..=all.max(1)).rev().flat_map(|named| [(named, named), (named, 1)]);
        let mut said = choices.flat_map(|(named, detailed)| {
            self.gains.iter().map(move |gain| self.naming(gain, named, detailed))
        });
        let least = || self.gains.last().map_or_else(String::new, |gain| self.naming(gain, 1, 0));
        said.find(fits).unwrap_or_else(least)
    }

    fn naming(&self, gain: &str, named: usize, detailed: usize) -> String {
        let Self { head, losses, .. } = self;
        if losses.is_empty() {
            return format!("{head}: {gain}, and worse nowhere.");
        }
        let place = |(at, loss): (usize, &Loss)| match at < detailed {
            true => format!("{} ({})", loss.place, loss.what),
            false => loss.place.clone(),
        };
        let mut places: Vec<_> = losses.iter().take(named).enumerate().map(place).collect();
        if losses.len() > named {
            places.push(format!("{} more", losses.len() - named));
        }
        format!("{head}: {gain}. Worse: {}.", places.join("; "))
    }
}

/// The verdict in a person's words: a sentence for each panel, which names where the lock is worse. At most six lines in all.
pub(super) fn verdict(panels: &[Panel]) -> Vec<String> {
    let untold = |group: &Group| {
        group.summaries.iter().any(|lock| lock.verdict(Figure::Throughput) == Verdict::Untold)
    };
    if panels.iter().flat_map(|panel| &panel.groups).any(untold) {
        return vec![format!("No verdict: it needs at least {ROUNDS} rounds.")];
    }
    let told = |panel: &Panel| match panel.cores {
        None => machine(panel),
        Some(_) => cores(panel),
    };
    let lines = LINES / panels.len().max(1);
    panels.iter().map(|panel| told(panel).sentence(lines)).collect()
}

/// What to do next.
pub(super) fn next(command: &str) -> String {
    format!("Next, your own program: `{command}` (for big and little cores: docs/epochs.md)")
}

/// `a, b and c`.
fn listed<S: AsRef<str>>(parts: &[S]) -> String {
    let parts: Vec<&str> = parts.iter().map(AsRef::as_ref).collect();
    match parts.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => parts.concat(),
    }
}

/// `1.10`, or `0.12 to 0.45`.
fn range(ratios: &[f64]) -> String {
    let low = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let high = ratios.iter().copied().fold(0.0, f64::max);
    let (low, high) = (ratio(low), ratio(high));
    if low == high { low } else { format!("{low} to {high}") }
}

/// How much worse a figure is: `13 % slower`, `longest 2.1 times as long`.
fn worse(figure: Figure, ratio: f64) -> String {
    let percent = format!("{:.0} %", 100.0 * (ratio - 1.0).abs());
    let times = if ratio < 9.95 { format!("{ratio:.1}") } else { format!("{ratio:.0}") };
    match figure {
        Figure::Throughput => format!("{percent} slower"),
        Figure::Cpu => format!("{percent} more CPU time"),
        _ if ratio < 1.95 => format!("{} {percent} longer", figure.name()),
        _ => format!("{} {times} times as long", figure.name()),
    }
}

/// The worst of the figures in which a lock is worse.
fn worst(own: &Summary, place: String, time: LossKind) -> Option<Loss> {
    let is_worse = |figure: &Figure| own.verdict(*figure) == Verdict::Worse;
    let median = |figure: Figure| own.ratio(figure).spread.median;
    if is_worse(&Figure::Throughput) {
        let by = median(Figure::Throughput);
        let what = worse(Figure::Throughput, by);
        return Some(Loss { place, what, kind: LossKind::Throughput, times: 1.0 / by });
    }
    // Of equal ones the first: it is the most common.
    let times =
        Figure::ALL.into_iter().rev().filter(is_worse).map(|figure| (figure, median(figure)));
    let (figure, by) = times.max_by(|(_, one), (_, other)| one.total_cmp(other))?;
    Some(Loss { place, what: worse(figure, by), kind: time, times: by })
}

/// The worst first, and of each place only the worst.
fn sorted(mut losses: Vec<Loss>) -> Vec<Loss> {
    losses.sort_by(|one, other| one.kind.cmp(&other.kind).then(other.times.total_cmp(&one.times)));
    let mut seen = BTreeSet::new();
    losses.retain(|loss| seen.insert(loss.place.clone()));
    losses
}

/// This machine. Of several locks only the first: the tables have them all.
fn machine(panel: &Panel) -> Told {
    let total = panel.groups.len();
    let own = panel.groups.iter().filter_map(|group| Some((group, group.summaries.get(1)?)));
    let own: Vec<_> = own.collect();
    let name = own.first().map_or_else(String::new, |(_, own)| own.name());
    let better = |figure: Figure| {
        let better = own.iter().filter(|(_, own)| own.verdict(figure) == Verdict::Better);
        better.map(|(_, own)| own.ratio(figure).spread.median).collect::<Vec<_>>()
    };
    let (faster, tails) = (better(Figure::Throughput), better(Figure::P999));
    let gain = match faster.len() {
        0 => format!("{name} is faster than glibc in none of {total} settings"),
        many => format!(
            "{name} is {} times as fast as glibc in {many} of {total} settings",
            range(&faster)
        ),
    };
    let gains = match tails.len() {
        0 => vec![gain],
        many => vec![format!("{gain}, P99.9 shorter in {many}"), gain],
    };
    let losses = own
        .iter()
        .filter_map(|(group, own)| worst(own, panel.label(group.setting), LossKind::Time));
    let losses = sorted(losses.collect());
    Told { head: if panel.is_busy() { "Beside hogs" } else { "This machine" }, gains, losses }
}

/// Big and little cores: the locks that use epochs.
fn cores(panel: &Panel) -> Told {
    let (mut gains, mut losses) = (Vec::new(), Vec::new());
    for lock in [OURS, ASL] {
        let (mut faster, mut places) = (Vec::new(), Vec::new());
        for group in &panel.groups {
            let database = group.setting.name();
            for own in group.summaries.iter().filter(|own| own.subject.lock == lock) {
                let Some(slo_ns) = own.subject.slo_ns else {
                    let place = format!("{lock} without an SLO");
                    losses.extend(worst(own, place, LossKind::TimeWithoutSlo));
                    continue;
                };
                let (of_slo, place) = (own.of_slo(slo_ns), format!("{lock} on {database}"));
                if of_slo > KEPT {
                    let what = format!("P99 {} of its SLO", ratio(of_slo));
                    losses.push(Loss { place, what, kind: LossKind::Slo, times: of_slo });
                    continue;
                }
                if own.verdict(Figure::Throughput) == Verdict::Better {
                    faster.push(own.ratio(Figure::Throughput).spread.median);
                    places.push(database);
                }
                losses.extend(worst(own, place, LossKind::Time));
            }
        }
        if faster.is_empty() {
            continue;
        }
        let fast = if gains.is_empty() { "times as fast as glibc" } else { "times" };
        let places = match places.len() == panel.groups.len() {
            true => String::new(),
            false => format!(" on {}", listed(&places)),
        };
        gains.push(format!("{lock} is {} {fast}{places}", range(&faster)));
    }
    let gain = match gains.is_empty() {
        true => "no lock is faster within its SLO".to_owned(),
        false => format!("within its SLO {}", listed(&gains)),
    };
    Told { head: "Unequal cores (emulated)", gains: vec![gain], losses: sorted(losses) }
}

/// The panels' tables.
pub(super) fn tables(panels: &[Panel], machine: &str) -> String {
    let mut text = wrapped(&format!("{machine}\n"));
    for panel in panels {
        text += &match &panel.cores {
            None if panel.is_busy() => wrapped(
                "\nThis machine, busy (real): beside hogs, other processes that compute all the time\n",
            ),
            None => "\nThis machine (real)\n".to_owned(),
            Some(cores) => wrapped(&format!(
                "\nBig and little cores (emulated: {}); times are the little core's, glibc is its algorithm in our library\n",
                cores.spec
            )),
        };
        text += &table(panel);
    }
    text + &wrapped(
        "of glibc: medians of the ratios within each round; percentiles: of all rounds together; hogs: CPUs that \
         they used, all together\n",
    )
}

fn table(panel: &Panel) -> String {
    let mut header = vec!["lock", "ops/s", "of glibc [min .. max]"];
    header.extend(match panel.cores {
        None if panel.is_busy() => &["P99.9", "of glibc [min .. max]", "hogs"][..],
        None => &["P50", "P99", "P99.9", "longest", "CPU/op"],
        Some(_) => &["P99", "P99.9", "longest", "of SLO"],
    });
    let mut drawn = new(&header);
    for group in &panel.groups {
        let slo = group.slo_ns.map_or(String::new(), |ns| format!(", SLO {}", given(ns)));
        drawn.line(&(panel.label(group.setting) + &slo));
        for (n, own) in group.summaries.iter().enumerate() {
            drawn.add_row(cells(panel, group, own, n == 0));
        }
    }
    right(&mut drawn, 1..header.len());
    plain(&drawn)
}

fn cells(panel: &Panel, group: &Group, own: &Summary, is_first: bool) -> Vec<String> {
    let to_glibc = |figure| match is_first {
        true => String::new(),
        false => with_range(&Some(own.ratio(figure).spread)),
    };
    let at = |share| ns(own.latency.quantile(share));
    let name = match own.subject.slo_ns {
        None => own.subject.lock.clone(),
        Some(_) => format!("{}, SLO", own.subject.lock),
    };
    let mut cells = vec![format!("  {name}"), si(own.rate.median)];
    cells.push(to_glibc(Figure::Throughput));
    if panel.is_busy() {
        cells.extend([at(0.999), to_glibc(Figure::P999), ratio(own.hogs_cpus.median)]);
        return cells;
    }
    if panel.cores.is_none() {
        cells.push(at(0.5));
    }
    cells.extend([at(0.99), at(0.999), ns(own.latency.max())]);
    cells.push(match group.slo_ns {
        None => time(own.cpu_ns.median),
        Some(slo_ns) => ratio(own.of_slo(slo_ns)),
    });
    cells
}

/// Breaks lines between words at the terminal's width.
pub(crate) fn wrapped(text: &str) -> String {
    let mut out = String::new();
    let mut width = 0;
    // A newline stays with its word.
    for word in text.split_inclusive([' ', '\n']) {
        let letters = word.trim_end().chars().count();
        if width > 2 && width + letters > WIDTH {
            out.truncate(out.trim_end_matches(' ').len());
            out.push_str("\n  ");
            width = 2;
        }
        out.push_str(word);
        width = if word.ends_with('\n') { 0 } else { width + word.chars().count() };
    }
    out
}
