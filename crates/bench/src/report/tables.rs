//! The tables for the terminal.

use super::cell::status;
use crate::plan::{Plan, Row};
use crate::point::Work;
use crate::spec::Percentiles;
use crate::suite::Verdict;
use crate::summary::{Ceiling, Summary};
use lockwright_numbers::format::{self, digits, joules, option, ratio, si, time, with_range};
use lockwright_text::table::{plain, right, table};
use lockwright_text::wrapped;

/// The lines of a table: the row of the grid that each line belongs to, and its cells.
type Lines = Vec<(usize, Vec<String>)>;

/// One table for each kind of figure. Each point is a block of lines under its own heading. Without `wide`, only
/// columns that fit a terminal of 80 columns.
pub(crate) fn tables(
    plan: &Plan,
    summaries: &[Summary],
    ceilings: &[Ceiling],
    wide: bool,
) -> String {
    let work = |s: &Summary| &plan.rows[s.row].point.work;
    let all = || summaries.iter();
    let has_rate = |s: &&Summary| !matches!(work(s), Work::Memory { .. } | Work::EpochCost);
    let mut text = Vec::new();
    let mut add = |title: &str, header: &[&str], lines: Lines| {
        if !lines.is_empty() {
            let title = if title.is_empty() { String::new() } else { wrapped(title) + "\n" };
            text.push(title + &blocks(plan, header, lines, wide));
        }
    };

    // Throughput. The wide table also has the other figures of such points.
    let reference = format!("of {} [min .. max]", reference(plan));
    let shown: Vec<_> = all().filter(has_rate).collect();
    let source = summaries.iter().find_map(|s| s.joules_source.as_deref());
    let per_joule = source.map(|source| format!("op/J ({source})"));
    let mut header = vec!["lock", "rate", reference.as_str(), "of the ceiling", "CPU/op"];
    header.extend(per_joule.as_deref());
    let holds = ["hold P50", "P99", "P99.9", "max", "Jain", "CAL"];
    if wide {
        header.insert(3, "IQR");
        header.extend(source.into_iter().flat_map(|_| ["op/J by the first's", "J/op"]));
        header.extend(WAITS.iter().chain(&holds));
    }
    let mut lines = Lines::new();
    for (at, s) in shown.iter().enumerate() {
        let mut cells = vec![
            plan.subjects[s.subject].name.clone(),
            match s.rate {
                Some(rate) => format::rate(rate.median),
                None => status(s.status).into(),
            },
            with_range(&s.ratio),
        ];
        if wide {
            cells.push(option(s.ratio, |r| digits(r.iqr())));
        }
        cells.push(match wide {
            true => with_range(&s.of_ceiling),
            false => option(s.of_ceiling, |c| ratio(c.median)),
        });
        cells.push(option(s.cpu_ns, |c| time(c.median)));
        if source.is_some() {
            cells.push(option(s.tpp, |t| si(t.median)));
            if wide {
                cells.push(with_range(&s.tpp_ratio));
                cells.push(option(s.epo, |e| joules(e.median)));
            }
        }
        if wide {
            cells.extend(four(&s.wait));
            cells.extend(four(&s.hold));
            cells.push(option(s.jain, |j| format!("{j:.2}")));
            cells.push(option(s.cal, |c| format!("{c:.2}")));
        }
        lines.push((s.row, cells));
        let is_last = shown.get(at + 1).is_none_or(|next| next.row != s.row);
        if let Some(ceiling) = ceilings.iter().find(|c| is_last && c.row == s.row) {
            let by = plan.subjects[ceiling.by].alone.unwrap_or(1);
            let mut cells = vec![
                "(ceiling)".into(),
                format::rate(ceiling.rate.median),
                with_range(&ceiling.ratio),
                format!("{by} CPU{}", if by == 1 { "" } else { "s" }),
            ];
            if wide {
                cells.insert(3, option(ceiling.ratio, |r| digits(r.iqr())));
            }
            cells.resize(header.len(), String::new());
            lines.push((s.row, cells));
        }
    }
    add("", &header, lines);

    if !wide {
        let header: Vec<_> = ["lock"].into_iter().chain(WAITS).collect();
        let waits = all().filter(|s| s.wait.is_some());
        let cells = |s: &Summary| [name(plan, s)].into_iter().chain(four(&s.wait)).collect();
        add("", &header, waits.map(|s| (s.row, cells(s))).collect());
    }

    let tried = all().filter(|s| s.failed_share.is_some());
    let cells = |s: &Summary| {
        vec![name(plan, s), option(s.failed_share, |share| format!("{:.1} %", 100.0 * share))]
    };
    add("", &["lock", "failed tries"], tried.map(|s| (s.row, cells(s))).collect());

    let mut lines = Lines::new();
    for s in all().filter(|s| s.classes.len() > 1) {
        for class in &s.classes {
            let mut cells = vec![name(plan, s), class.class.to_string(), si(class.rate)];
            cells.extend(four(&class.wait));
            lines.push((s.row, cells));
        }
    }
    let header: Vec<_> = ["lock", "class", "op/s per thread"].into_iter().chain(WAITS).collect();
    add("per class of cores (0 is the fastest)", &header, lines);

    let mut lines = Lines::new();
    for s in all() {
        let Work::Epoch { slo_ns, .. } = *work(s) else { continue };
        let of_slo = |p99| if slo_ns == 0 { "-".into() } else { ratio(p99 / slo_ns as f64) };
        let line = |name: String, class: String, rate: f64, over: String, times: Option<_>| {
            let mut cells = vec![name, class, si(rate)];
            cells.extend(four(&times));
            cells.extend([option(times.map(|t| t.p99), of_slo), over]);
            (s.row, cells)
        };
        lines.push(match s.rate {
            Some(rate) => line(name(plan, s), "all".into(), rate.median, "".into(), s.latency),
            None => (s.row, vec![name(plan, s), status(s.status).into()]),
        });
        for class in &s.epochs {
            let over = format!("{:.2} %", 100.0 * class.violations);
            let number = class.class.to_string();
            lines.push(line(String::new(), number, class.rate, over, Some(class.latency)));
        }
    }
    add(
        "epochs and their latency, by class of cores (0 is the fastest), without the first third of each run, while \
         windows settle; 'of SLO': P99 divided by the SLO, 'over': share of the epochs that took longer",
        &["lock", "class", "epochs/s", "P50", "P99", "P99.9", "max", "of SLO", "over"],
        lines,
    );

    let cost = all().filter(|s| matches!(work(s), Work::EpochCost));
    let cells = |s: &Summary| {
        vec![name(plan, s), with_range(&s.epoch_ticks), with_range(&s.bytes_per_epoch)]
    };
    add(
        "",
        &["lock", "ticks of start + end", "bytes per thread and epoch"],
        cost.map(|s| (s.row, cells(s))).collect(),
    );

    let memory = all().filter(|s| matches!(work(s), Work::Memory { .. }));
    let cells = |s: &Summary| {
        let bytes = s.bytes_per_lock.map_or(status(s.status).into(), |b| {
            format!("{:.1} B [{:.1} .. {:.1}]", b.median, b.min, b.max)
        });
        vec![name(plan, s), option(s.size_of, |b| format!("{b} B")), bytes]
    };
    add(
        "",
        &["lock", "size of the lock", "bytes beside it [min .. max]"],
        memory.map(|s| (s.row, cells(s))).collect(),
    );

    let order = all().filter(|s| matches!(work(s), Work::Order { .. }));
    let share = |share: f64| format!("{:.3} %", 100.0 * share);
    let cells = |s: &Summary| {
        vec![
            name(plan, s),
            s.overtaken.map_or(status(s.status).into(), |o| share(o.0)),
            option(s.overtaken, |o| share(o.1)),
            option(s.bypass, |b| b.0.to_string()),
            option(s.bypass, |b| b.1.to_string()),
        ]
    };
    add(
        "",
        &["lock", "overtaken", "beyond grace", "bypass P99.9", "longest"],
        order.map(|s| (s.row, cells(s))).collect(),
    );
    text.join("\n")
}

/// Columns for the percentiles of a time.
const WAITS: [&str; 4] = ["wait P50", "P99", "P99.9", "max"];

/// Cells for these columns.
fn four(times: &Option<Percentiles>) -> [String; 4] {
    let of = |f: fn(&Percentiles) -> f64| option(*times, |t| time(f(&t)));
    [of(|t| t.p50), of(|t| t.p99), of(|t| t.p999), of(|t| t.max)]
}

/// The reference of ratios: a row's first lock.
fn reference(plan: &Plan) -> &'static str {
    let is_glibc = |row: &Row| plan.subjects[row.subjects[0]].name == "glibc";
    if plan.rows.iter().all(is_glibc) { "glibc" } else { "the first" }
}

fn name(plan: &Plan, s: &Summary) -> String {
    plan.subjects[s.subject].name.clone()
}

/// The columns that a narrow terminal lacks first.
const LEAST: [&str; 8] =
    ["CPU/op", "of the ceiling", "P99.9", "beyond grace", "bypass P99.9", "max", "wait P50", "P50"];

/// A table in blocks, each headed by its point.
fn blocks(plan: &Plan, header: &[&str], lines: Lines, wide: bool) -> String {
    let mut drawn = table(header).least(&LEAST).all_by("--wide");
    if wide {
        drawn.wide();
    }
    let mut last = None;
    for (row, mut cells) in lines {
        if last.replace(row) != Some(row) {
            drawn.line(&plan.rows[row].point.label());
        }
        cells[0].insert_str(0, "  ");
        cells.resize(header.len(), String::new());
        drawn.add_row(cells);
    }
    right(&mut drawn, 1..header.len());
    plain(&drawn)
}

/// The bars with their measured values, point by point, and how many bars were met.
pub(crate) fn bars(plan: &Plan, verdicts: &[Verdict]) -> String {
    let cells = |v: &Verdict| {
        let met = match v.met {
            Some(true) => "met",
            Some(false) => "missed",
            None => "",
        };
        let to = v.against.iter().map(|text| format!(" ({text})"));
        let figure = format!("{} {}{}", v.lock, v.figure, to.collect::<String>());
        (v.row, vec![figure, v.bar.clone(), with_range(&v.measured), met.into()])
    };
    let header = ["bar (to what)", "wanted", "measured [min .. max]", "verdict"];
    let table = blocks(plan, &header, verdicts.iter().map(cells).collect(), false);
    let judged = verdicts.iter().filter(|v| v.met.is_some());
    let met = judged.clone().filter(|v| v.met == Some(true)).count();
    format!("{table}\n{met} of {} bars met\n", judged.count())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::point::{Length, Point};
    use crate::subject::Subject;

    #[test]
    fn tables_fit_a_terminal() {
        let point = Point {
            work: Work::Mutex,
            threads: 32,
            cs_ns: 100,
            gap_ns: 400,
            length: Length::Fixed,
            lines: 0,
            pin: true,
            hogs: 2,
            latency: false,
            emulate: Some("big:0-3,8-11,little:4-7,12-15x3.75,tiny:16,18,20,22x10".into()),
        };
        let row = Row { point, subjects: vec![0] };
        let plan = Plan {
            subjects: vec![Subject::glibc()],
            rows: vec![row],
            ceilings: vec![Vec::new()],
            reps: 1,
            time_s: 1.0,
            limit_s: None,
            seed: 1,
        };
        let header = [
            "lock",
            "rate",
            "of the first [min .. max]",
            "of the ceiling",
            "CPU/op",
            "op/J (battery)",
        ];
        let cells = |name: &str| {
            let ratio = "10.4 [10.2 .. 12.5]";
            vec![
                name.into(),
                "79.4 k/s".into(),
                ratio.into(),
                "0.93".into(),
                "9.94 µs".into(),
                "9.96 M".into(),
            ]
        };
        for name in ["asl", "asl-opt:window=10000"] {
            let text = blocks(&plan, &header, vec![(0, cells(name)), (0, cells("fifo"))], false);
            assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
            assert_eq!(text.matches("32 thr 100/400 ns").count(), 1, "one heading: {text}");
            let at = |words: &str| text.find(words).unwrap();
            assert!(at("rate") < at("32 thr") && at("32 thr") < at(name), "{text}");
            let wide = blocks(&plan, &header, vec![(0, cells(name))], true);
            assert!(wide.starts_with("lock ") && wide.contains("of the first [min .. max]"));
        }
    }
}
