//! Everything against glibc, in one picture and in one table: what README shows.

use super::Results;
use super::chart::{escape, line, open, text};
use super::measure::short;
use super::stats::{Figure, Group, Panel, Ratio, Summary, Verdict, ratio_digits};
use std::fmt::Write as _;

/// One lock in one setting, beside glibc's.
struct Row<'a> {
    panel: &'a Panel,
    group: &'a Group,
    own: &'a Summary,
}

impl Row<'_> {
    /// What is compared, and where.
    fn name(&self) -> String {
        let slo = match self.own.subject.slo_ns {
            Some(ns) => format!(", SLO {}", short(ns)),
            None => String::new(),
        };
        match self.panel.cores {
            None => format!("{}: {}", self.panel.label(self.group.setting), self.own.subject.lock),
            Some(_) => format!("{}: {}{slo}", self.group.setting.name(), self.own.subject.lock),
        }
    }

    /// `None`: it means nothing here.
    fn ratio(&self, figure: Figure) -> Option<&Ratio> {
        self.panel.figures().contains(&figure).then(|| self.own.ratio(figure))
    }
}

fn rows(panel: &Panel) -> Vec<Row<'_>> {
    let mut rows = Vec::new();
    for group in &panel.groups {
        rows.extend(group.summaries[1..].iter().map(|own| Row { panel, group, own }));
    }
    rows
}

/// What stands above a panel's rows.
fn title(panel: &Panel) -> &'static str {
    match panel.cores {
        None => "this machine (real)",
        Some(_) => "a big core and a little one (emulated; times are the little core’s)",
    }
}

/// The table, in Markdown: medians. What the rounds agree on is bold where it is better, and italic where it is worse.
pub(super) fn markdown(results: &Results) -> String {
    let mut table =
        "| to glibc | origin | throughput | P99 | P99.9 | longest | CPU an operation |\n\
                     |---|---|---|---|---|---|---|\n"
            .to_owned();
    for row in results.panels.iter().flat_map(rows) {
        let _ = write!(table, "| {} | {} |", row.name(), row.panel.origin());
        for figure in Figure::ALL {
            let cell = row.ratio(figure).map_or("-".into(), |ratio| {
                let median = ratio_digits(ratio.spread.median);
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

/// Blank at the left.
const LEFT: f64 = 10.0;
const NAMES: f64 = 206.0;
const COLUMN: f64 = 154.0;
const GAP: f64 = 12.0;
/// Room for a figure, right of its plot.
const VALUE: f64 = 40.0;
const TOP: f64 = 100.0;
const ROW: f64 = 22.0;
const HEAD: f64 = 26.0;

/// Beyond these a ratio is drawn at the edge: its figure stands beside it.
const EDGE: f64 = 32.0;

/// The picture: a row a lock and setting, a column a figure, a dot for the median, a line from the smallest to the largest
/// round, on a logarithmic axis with glibc in the middle.
pub(super) fn svg(results: &Results, machine: &str) -> String {
    let height: f64 =
        results.panels.iter().map(|panel| HEAD + rows(panel).len() as f64 * ROW).sum();
    let (width, bottom) = (NAMES + Figure::ALL.len() as f64 * COLUMN + LEFT, TOP + height);
    let mut svg = open(width, bottom + 30.0, "locks compared with glibc's");
    let _ = write!(svg, "<style>{STYLE}</style>");
    let _ = write!(svg, r##"<rect width="{width}" height="{:.0}" fill="#fff"/>"##, bottom + 30.0);
    text(&mut svg, (LEFT, 18.0), "title", "Times glibc’s, median and range of the rounds");
    text(&mut svg, (LEFT, 36.0), "tick", &escape(machine));
    key(&mut svg);
    let medians = || {
        let all = results.panels.iter().flat_map(rows);
        all.flat_map(|row| Figure::ALL.map(|figure| row.ratio(figure).map(|r| r.spread.median)))
            .flatten()
    };
    // The same scale for all, as wide as the widest median wants it.
    let widest = medians().map(|ratio| ratio.max(1.0 / ratio)).fold(2.0, f64::max).min(EDGE);
    let half = (COLUMN - GAP - VALUE) / 2.0;
    let ticks: &[f64] = if widest > 8.0 { &[0.1, 1.0, 10.0] } else { &[0.5, 1.0, 2.0] };
    for (n, figure) in Figure::ALL.into_iter().enumerate() {
        let middle = NAMES + n as f64 * COLUMN + GAP + half;
        let x = |ratio: f64| middle + (ratio.ln() / (widest * 1.15).ln()).clamp(-1.0, 1.0) * half;
        text(&mut svg, (middle, TOP - 18.0), "group middle", figure.name());
        let wanted = if figure.is_gain() { "more is better" } else { "less is better" };
        text(&mut svg, (middle, TOP - 4.0), "tick middle", wanted);
        let mut y = TOP;
        for panel in &results.panels {
            y += HEAD;
            let end = y + rows(panel).len() as f64 * ROW;
            if panel.figures().contains(&figure) {
                for tick in ticks {
                    let class = if *tick == 1.0 { "axis" } else { "grid" };
                    line(&mut svg, (x(*tick), y), (x(*tick), end), class);
                }
            }
            for row in rows(panel) {
                if let Some(ratio) = row.ratio(figure) {
                    let (s, centre) = (ratio.spread, y + ROW / 2.0);
                    let class = match ratio.verdict(figure) {
                        Verdict::Better => "better",
                        Verdict::Worse => "worse",
                        Verdict::Even | Verdict::Untold => "even",
                    };
                    line(&mut svg, (x(s.min), centre), (x(s.max), centre), class);
                    let _ = write!(
                        svg,
                        r#"<circle cx="{:.1}" cy="{centre:.1}" r="4.5" class="{class}"/>"#,
                        x(s.median)
                    );
                    let at = middle + half + VALUE - 6.0;
                    text(&mut svg, (at, centre + 4.0), "value end", &ratio_digits(s.median));
                }
                y += ROW;
            }
        }
        for tick in ticks {
            text(&mut svg, (x(*tick), bottom + 15.0), "tick middle", &format!("{tick}"));
        }
    }
    let mut y = TOP;
    for panel in &results.panels {
        text(&mut svg, (LEFT, y + HEAD - 8.0), "group", title(panel));
        y += HEAD;
        for row in rows(panel) {
            text(&mut svg, (2.0 * LEFT, y + ROW / 2.0 + 4.0), "lock", &escape(&row.name()));
            y += ROW;
        }
    }
    svg.push_str("</svg>");
    svg
}

/// What the colours say.
fn key(svg: &mut String) {
    let verdicts = [
        ("better", "better: the rounds agree"),
        ("worse", "worse: the rounds agree"),
        ("even", "no clear difference"),
    ];
    for (n, (class, words)) in verdicts.into_iter().enumerate() {
        let x = LEFT + 5.0 + 190.0 * n as f64;
        let _ = write!(svg, r#"<circle cx="{x:.1}" cy="53" r="4.5" class="{class}"/>"#);
        text(svg, (x + 10.0, 57.0), "lock", words);
    }
}

/// Within the picture, which stands by itself. Blue and orange are told apart by all eyes.
const STYLE: &str = "text{font:13px system-ui,-apple-system,'Segoe UI',Roboto,'Liberation Sans','DejaVu Sans',sans-serif;\
fill:#1b1f24}.title{font-weight:600;font-size:15px}.group{font-weight:600}.lock,.value{font-size:12.5px}\
.tick{font-size:11px;fill:#5b6470}.middle{text-anchor:middle}.end{text-anchor:end}\
.grid{stroke:#e2e5e9}.axis{stroke:#8a929c}\
.better{fill:#1d62d1;stroke:#1d62d1}.worse{fill:#d9730d;stroke:#d9730d}.even{fill:#8a929c;stroke:#8a929c}\
line.better,line.worse,line.even{stroke-width:2}";
