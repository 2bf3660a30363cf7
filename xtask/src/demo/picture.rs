//! Everything against glibc, in one picture and in one table: what README shows.

use super::chart::{escape, line, open, text};
use super::measure::short;
use super::stats::{Figure, Group, Panel, Ratio, Summary, Verdict, ratio_digits};
use super::{ASL, OURS, Results};
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
            // Those who know objectives have one in the row before.
            None if [ASL, OURS].contains(&&*self.own.subject.lock) => ", no SLO".into(),
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

/// Beyond these a ratio is an arrow at the edge: its figure stands beside it.
const EDGE: f64 = 32.0;

/// A column's logarithmic axis, glibc in the middle.
struct Scale {
    /// Where glibc stands.
    middle: f64,
    /// From there to either edge: room, and the ratio that stands there.
    half: f64,
    edge: f64,
}

impl Scale {
    /// As wide as the widest of a figure's medians wants it.
    fn of(medians: impl Iterator<Item = f64>, left: f64) -> Scale {
        let half = (COLUMN - GAP - VALUE) / 2.0;
        let widest = medians.map(|ratio| ratio.max(1.0 / ratio)).fold(2.0, f64::max).min(EDGE);
        Scale { middle: left + GAP + half, half, edge: widest * 1.15 }
    }

    fn x(&self, ratio: f64) -> f64 {
        self.middle + (ratio.ln() / self.edge.ln()).clamp(-1.0, 1.0) * self.half
    }

    fn ticks(&self) -> [f64; 3] {
        let step = if self.edge > 10.0 {
            10.0
        } else if self.edge > 5.0 {
            5.0
        } else {
            2.0
        };
        [1.0 / step, 1.0, step]
    }

    /// The mark of a median.
    fn mark(&self, ratio: f64, y: f64, class: &str) -> String {
        let x = self.x(ratio);
        if (1.0 / self.edge..=self.edge).contains(&ratio) {
            return format!(r#"<circle cx="{x:.1}" cy="{y:.1}" r="4.5" class="{class}"/>"#);
        }
        let tip = if ratio > 1.0 { 7.0 } else { -7.0 };
        let (x, top) = (x - tip, y - 5.5);
        format!(r#"<path d="M{x:.1} {top:.1}l{tip} 5.5l{} 5.5z" class="{class}"/>"#, -tip)
    }
}

/// The picture: a row a lock and setting, a column a figure, a dot for the median, a line from the smallest to the largest
/// round, each column on its own logarithmic axis with glibc in the middle.
pub(super) fn svg(results: &Results, machine: &str) -> String {
    let height: f64 =
        results.panels.iter().map(|panel| HEAD + rows(panel).len() as f64 * ROW).sum();
    let (width, bottom) = (NAMES + Figure::ALL.len() as f64 * COLUMN + LEFT, TOP + height);
    let mut svg = open(width, bottom + 30.0, "locks compared with glibc's");
    let _ = write!(svg, "<style>{STYLE}</style>");
    let _ = write!(svg, r##"<rect width="{width}" height="{:.0}" fill="#fff"/>"##, bottom + 30.0);
    let heading =
        "As many times glibc’s: median and range of the rounds, logarithmic, cut at the edges";
    text(&mut svg, (LEFT, 18.0), "title", heading);
    text(&mut svg, (LEFT, 36.0), "tick", &escape(machine));
    key(&mut svg);
    for (n, figure) in Figure::ALL.into_iter().enumerate() {
        let all = results.panels.iter().flat_map(rows);
        let medians = all.filter_map(|row| row.ratio(figure).map(|ratio| ratio.spread.median));
        let scale = Scale::of(medians, NAMES + n as f64 * COLUMN);
        text(&mut svg, (scale.middle, TOP - 18.0), "group middle", figure.name());
        let wanted = if figure.is_gain() { "more is better" } else { "less is better" };
        text(&mut svg, (scale.middle, TOP - 4.0), "tick middle", wanted);
        let (mut y, mut last) = (TOP, TOP);
        for panel in &results.panels {
            y += HEAD;
            let end = y + rows(panel).len() as f64 * ROW;
            if panel.figures().contains(&figure) {
                for tick in scale.ticks() {
                    let class = if tick == 1.0 { "axis" } else { "grid" };
                    line(&mut svg, (scale.x(tick), y), (scale.x(tick), end), class);
                }
                last = end;
            }
            for row in rows(panel) {
                if let Some(ratio) = row.ratio(figure) {
                    let (s, centre) = (ratio.spread, y + ROW / 2.0);
                    let class = match ratio.verdict(figure) {
                        Verdict::Better => "better",
                        Verdict::Worse => "worse",
                        Verdict::Even | Verdict::Untold => "even",
                    };
                    line(&mut svg, (scale.x(s.min), centre), (scale.x(s.max), centre), class);
                    svg.push_str(&scale.mark(s.median, centre, class));
                    let at = scale.middle + scale.half + VALUE - 4.0;
                    text(&mut svg, (at, centre + 4.0), "value end", &ratio_digits(s.median));
                }
                y += ROW;
            }
        }
        for tick in scale.ticks() {
            text(&mut svg, (scale.x(tick), last + 15.0), "tick middle", &format!("{tick}"));
        }
    }
    let mut y = TOP;
    for panel in &results.panels {
        text(&mut svg, (LEFT, y + HEAD - 8.0), "group", title(panel));
        y += HEAD;
        for (n, row) in rows(panel).into_iter().enumerate() {
            // A line between databases, where each has several rows.
            let locks = row.group.summaries.len() - 1;
            if n > 0 && locks > 1 && n % locks == 0 {
                line(&mut svg, (2.0 * LEFT, y), (width - LEFT, y), "grid");
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_is_as_wide_as_its_own_medians() {
        let scale = |medians: &[f64]| Scale::of(medians.iter().copied(), 0.0);
        assert_eq!(scale(&[0.9, 1.2]).ticks(), [0.5, 1.0, 2.0]);
        assert_eq!(scale(&[0.2, 1.2]).ticks(), [0.2, 1.0, 5.0]);
        assert_eq!(scale(&[188.0]).ticks(), [0.1, 1.0, 10.0]);
        let wide = scale(&[0.5, 188.0]);
        assert!(wide.x(0.5) < wide.x(1.0) && wide.x(1.0) == wide.middle);
        // What lies beyond the edge is an arrow at it.
        assert!(wide.mark(0.5, 0.0, "better").starts_with("<circle "));
        assert!(wide.mark(188.0, 0.0, "worse").starts_with("<path "));
        assert_eq!(wide.x(188.0), wide.x(1e9));
    }
}
