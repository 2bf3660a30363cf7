//! The conclusions: three sentences for readers who don't know the project, and tables for a terminal.

use super::stats::{Figure, Group, Panel, ROUNDS, Summary, Verdict};
use super::{ASL, FIFO, OURS};
use lockwright_numbers::format::{given, ns, ratio, si, time, with_range};
use lockwright_text::table::{plain, right, table as new};
use std::fmt::Write as _;

/// Columns of a terminal.
const WIDTH: usize = 80;

/// Above this, the little core's P99 misses its objective. Feedback steers towards the exact objective from both sides.
const KEPT: f64 = 1.05;

/// Findings on which the rounds agree, and those on which they don't.
#[derive(Default)]
struct Findings {
    better: Vec<String>,
    worse: Vec<String>,
    even: Vec<String>,
}

/// What is better, what is not, and what to do next.
pub(super) fn sentences(panels: &[Panel], next: &str) -> [String; 3] {
    let next = format!(
        "What to do next: run your own program under it, `{next}`, and compare the figures that matter to you \
         (for big and little cores see docs/epochs.md)."
    );
    let untold = |group: &Group| {
        group.summaries.iter().any(|lock| lock.verdict(Figure::Throughput) == Verdict::Untold)
    };
    if panels.iter().flat_map(|panel| &panel.groups).any(untold) {
        let few = |what| format!("{what}: unknown, because fewer than {ROUNDS} rounds were run.");
        return [few("What is better"), few("What is not"), next];
    }
    let mut found = Findings::default();
    for panel in panels {
        match panel.cores {
            None => machine(panel, &mut found),
            Some(_) => cores(panel, &mut found),
        }
    }
    let said = |parts: Vec<String>, none: &str| match parts.is_empty() {
        true => none.to_owned(),
        false => parts.join("; "),
    };
    let mut not = said(found.worse, "nothing is worse than under glibc");
    if !found.even.is_empty() {
        let _ = write!(not, "; no clear difference in {}", listed(&found.even));
    }
    [
        format!("What is better: {}.", said(found.better, "nothing that the rounds agree on")),
        format!("What is not: {not}."),
        next,
    ]
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

/// In which direction a figure differs from glibc's.
fn differs(figure: Figure, is_better: bool) -> &'static str {
    match (figure.is_gain(), is_better) {
        (true, true) => "higher",
        (true, false) => "lower",
        (false, true) => "shorter",
        (false, false) => "longer",
    }
}

/// This machine: for each figure, in how many settings it differs.
fn machine(panel: &Panel, found: &mut Findings) {
    let beside = if panel.is_busy() { " beside hogs" } else { "" };
    let total = panel.groups.len();
    let locks = panel.groups.first().map_or(0, |group| group.summaries.len());
    for n in 1..locks {
        let name = panel.groups[0].summaries[n].name();
        let (mut gains, mut losses, mut none) = (Vec::new(), Vec::new(), Vec::new());
        for figure in Figure::ALL {
            let words = figure.words();
            let mut said = false;
            for (wanted, to) in [(Verdict::Better, &mut gains), (Verdict::Worse, &mut losses)] {
                let is = |group: &&Group| group.summaries[n].verdict(figure) == wanted;
                let those: Vec<_> = panel.groups.iter().filter(is).collect();
                if those.is_empty() {
                    continue;
                }
                said = true;
                let median = |group: &&Group| group.summaries[n].ratio(figure).spread.median;
                let ratios = range(&those.iter().map(median).collect::<Vec<_>>());
                let is_all = those.len() == total;
                let often = match (is_all, those.len()) {
                    (true, 1) => String::new(),
                    (true, _) => format!(" in each of {total} settings"),
                    (false, some) => format!(" in {some} of {total} settings"),
                };
                // Names the settings in which a figure is worse.
                let places = those.iter().map(|group| panel.label(group.setting));
                let places = match wanted == Verdict::Worse && !is_all {
                    true => format!(": {}", places.collect::<Vec<_>>().join("; ")),
                    false => String::new(),
                };
                let whose = if to.is_empty() { format!("{name}'s") } else { "its".to_owned() };
                let differs = differs(figure, wanted == Verdict::Better);
                to.push(format!(
                    "{whose} {words} is {differs}{often} ({ratios} of glibc's{places})"
                ));
            }
            if !said {
                none.push(words);
            }
        }
        for (said, to) in [(gains, &mut found.better), (losses, &mut found.worse)] {
            if !said.is_empty() {
                to.push(format!("on this machine{beside} (real) {}", listed(&said)));
            }
        }
        if !none.is_empty() {
            found.even.push(format!("{name}'s {} on this machine{beside}", listed(&none)));
        }
    }
}

/// Big and little cores: the locks that use epochs.
fn cores(panel: &Panel, found: &mut Findings) {
    for lock in [OURS, ASL] {
        throughputs(panel, lock, found);
        for has_slo in [true, false] {
            tails(panel, lock, has_slo, found);
        }
    }
}

/// The throughput and SLOs of a lock, for each database.
fn throughputs(panel: &Panel, lock: &str, found: &mut Findings) {
    let (mut gains, mut losses) = (Vec::new(), Vec::new());
    for group in &panel.groups {
        let database = group.setting.name();
        for own in group.summaries.iter().filter(|own| own.subject.lock == lock) {
            let gain = ratio(own.ratio(Figure::Throughput).spread.median);
            let mut verdict = own.verdict(Figure::Throughput);
            let slo = match own.subject.slo_ns {
                None => "without an SLO".into(),
                Some(slo_ns) => {
                    let of_slo = own.of_slo(slo_ns);
                    let is = ratio(of_slo);
                    let tail = if of_slo > KEPT {
                        verdict = Verdict::Worse;
                        // If fifo, which never lets a thread overtake, also misses it, no lock of this kind can keep
                        // it.
                        let fifo = group.summaries.iter().find(|own| own.subject.lock == FIFO);
                        let fifo = fifo.map_or(String::new(), |fifo| {
                            format!(", fifo's {}", ratio(fifo.of_slo(slo_ns)))
                        });
                        format!("missed: the little core's P99 is {is} of it{fifo}")
                    } else {
                        format!("the little core's P99: {is} of it")
                    };
                    format!("with an SLO of {} ({tail})", given(slo_ns))
                }
            };
            match verdict {
                Verdict::Better => gains.push(format!("{gain} on {database} {slo}")),
                Verdict::Worse => losses.push(format!("{gain} on {database} {slo}")),
                Verdict::Even | Verdict::Untold => {
                    found.even.push(format!("{lock}'s throughput on {database} {slo}"));
                }
            }
        }
    }
    for (ratios, to) in [(gains, &mut found.better), (losses, &mut found.worse)] {
        if !ratios.is_empty() {
            to.push(format!(
                "on a big core and a little one (emulated) {lock}'s throughput is, in multiples of glibc's, {}",
                listed(&ratios)
            ));
        }
    }
}

/// Latencies on the little core that are longer than under glibc: the price of throughput.
fn tails(panel: &Panel, lock: &str, has_slo: bool, found: &mut Findings) {
    let mut longer = Vec::new();
    for figure in [Figure::P99, Figure::P999, Figure::Longest] {
        let summaries = panel.groups.iter().flat_map(|group| &group.summaries);
        let worse = summaries.filter(|own| {
            own.subject.lock == lock
                && own.subject.slo_ns.is_some() == has_slo
                && own.verdict(figure) == Verdict::Worse
        });
        let ratios: Vec<_> = worse.map(|own| own.ratio(figure).spread.median).collect();
        if !ratios.is_empty() {
            longer.push(format!("{} for the {}", range(&ratios), figure.words()));
        }
    }
    if !longer.is_empty() {
        found.worse.push(format!(
            "on a big core and a little one (emulated) the little core's times under {lock} with{} an SLO are, in multiples of those under glibc, {}",
            if has_slo { "" } else { "out" },
            listed(&longer)
        ));
    }
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
