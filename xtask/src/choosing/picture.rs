//! The picture: the default's throughput to the best lock's, a field a point, a block a machine.

use super::data::{Machine, Part, Point, Results};
use super::sums::AUTO;
use super::tables::lengths;
use crate::demo::chart::{escape, open, text};
use crate::demo::stats::ratio_digits;
use std::fmt::Write as _;

const LEFT: f64 = 14.0;
/// A block: threads, then a field for each length of section and gap.
const THREADS: f64 = 62.0;
const FIELD: f64 = 58.0;
const ROW: f64 = 24.0;
const HEAD: f64 = 62.0;
const FOOT: f64 = 16.0;
const BETWEEN: f64 = 34.0;
const TOP: f64 = 82.0;

/// From how much on, how it is called, its colour, and that of its figure. Orange and blue are told apart by all eyes.
const STEPS: [(f64, &str, &str, &str); 5] = [
    (0.95, "0.95 or more", "#1d62d1", "#fff"),
    (0.9, "0.90 to 0.95", "#a9c6f5", "#1b1f24"),
    (0.75, "0.75 to 0.90", "#f8e3c8", "#1b1f24"),
    (0.5, "0.50 to 0.75", "#eeab67", "#1b1f24"),
    (0.0, "less than 0.50", "#b4480b", "#fff"),
];

const STYLE: &str = "text{font:13px system-ui,-apple-system,'Segoe UI',Roboto,'Liberation Sans','DejaVu Sans',sans-serif;\
fill:#1b1f24}.title{font-weight:600;font-size:15px}.group{font-weight:600}.tick{font-size:11.5px;fill:#5b6470}\
.middle{text-anchor:middle}.end{text-anchor:end}.value{font-size:12.5px;text-anchor:middle}";

/// What a block shows.
struct Block<'a> {
    part: &'a Part,
    machine: &'a Machine,
    threads: Vec<u32>,
    columns: Vec<(Option<u32>, u32)>,
}

impl<'a> Block<'a> {
    fn new(part: &'a Part, machine: &'a Machine) -> Self {
        let own = || machine.points.iter().filter(|point| point.slo_us.is_none());
        let mut threads: Vec<u32> = own().map(|point| point.threads).collect();
        let mut columns: Vec<_> = own().map(|point| (point.section_ns, point.gap)).collect();
        threads.sort_unstable();
        threads.dedup();
        columns.sort_unstable();
        columns.dedup();
        Self { part, machine, threads, columns }
    }

    fn height(&self) -> f64 {
        HEAD + self.threads.len() as f64 * ROW + FOOT
    }

    fn width(&self) -> f64 {
        THREADS + self.columns.len() as f64 * FIELD
    }

    fn point(&self, threads: u32, column: (Option<u32>, u32)) -> Option<&Point> {
        let of = |point: &&Point| point.slo_us.is_none() && point.threads == threads;
        let mut own = self.machine.points.iter().filter(of);
        own.find(|point| (point.section_ns, point.gap) == column)
    }

    fn draw(&self, svg: &mut String, (left, top): (f64, f64)) {
        let of = |(name, cpus): &(String, u32)| match self.machine.is_unequal() {
            true => format!("{cpus} {name}"),
            false => format!("{cpus} CPUs"),
        };
        let cpus: Vec<String> = self.machine.classes.iter().map(of).collect();
        let name = format!("{}: {}", self.machine.name, cpus.join(", "));
        text(svg, (left, top + 16.0), "group", &escape(&name));
        text(svg, (left + self.width(), top + 16.0), "tick end", &escape(&self.part.origin));
        text(svg, (left, top + HEAD - 8.0), "tick", "threads");
        let middle = left + THREADS + (self.width() - THREADS) / 2.0;
        text(svg, (middle, top + 36.0), "tick middle", "in the section / out of it, ns");
        for (n, (section, gap)) in self.columns.iter().enumerate() {
            let x = left + THREADS + (n as f64 + 0.5) * FIELD;
            text(svg, (x, top + HEAD - 8.0), "tick middle", &lengths(*section, *gap));
        }
        for (row, threads) in self.threads.iter().enumerate() {
            let y = top + HEAD + row as f64 * ROW;
            text(svg, (left + THREADS - 16.0, y + 16.5), "end", &threads.to_string());
            for (n, column) in self.columns.iter().enumerate() {
                let share = self.point(*threads, *column).and_then(|point| point.to_best(AUTO));
                if let Some(share) = share {
                    field(svg, (left + THREADS + n as f64 * FIELD, y), share);
                }
            }
        }
    }
}

fn field(svg: &mut String, (x, y): (f64, f64), share: f64) {
    let (_, _, paper, ink) = STEPS.iter().find(|(from, ..)| share >= *from).unwrap_or(&STEPS[4]);
    let (wide, tall) = (FIELD - 2.0, ROW - 2.0);
    let _ = write!(
        svg,
        r#"<rect x="{x:.1}" y="{y:.1}" width="{wide}" height="{tall}" rx="2" fill="{paper}"/>"#
    );
    let _ = write!(
        svg,
        r#"<text x="{:.1}" y="{:.1}" class="value" style="fill:{ink}">{}</text>"#,
        x + wide / 2.0,
        y + 15.5,
        ratio_digits(share)
    );
}

/// Draws it.
pub(super) fn svg(results: &Results) -> String {
    let parts = [&results.simulated, &results.real].into_iter().flatten();
    let blocks: Vec<Block<'_>> = parts
        .flat_map(|part| part.machines.iter().map(move |machine| Block::new(part, machine)))
        .collect();
    let wide = blocks.iter().map(Block::width).fold(0.0, f64::max);
    let rows: Vec<&[Block<'_>]> = blocks.chunks(2).collect();
    let tall = |row: &&[Block<'_>]| row.iter().map(Block::height).fold(0.0, f64::max);
    let height = TOP + rows.iter().map(tall).sum::<f64>();
    let width = 2.0 * (LEFT + wide) + BETWEEN;
    let mut svg = open(width, height, &format!("{AUTO} to the best lock, at each point"));
    let _ = write!(svg, "<style>{STYLE}</style>");
    let _ = write!(svg, r##"<rect width="{width}" height="{height:.0}" fill="#fff"/>"##);
    let title = format!("Throughput of {AUTO} to that of the best lock of the whole family");
    text(&mut svg, (LEFT, 24.0), "title", &title);
    if let Some(part) = results.simulated.as_ref().or(results.real.as_ref()) {
        let from = format!("{}; lockwright {}, seed {}", part.origin, part.version, part.seed);
        text(&mut svg, (LEFT, 43.0), "tick", &escape(&from));
    }
    let mut x = LEFT;
    for (_, name, paper, _) in STEPS {
        let _ =
            write!(svg, r#"<rect x="{x}" y="54" width="18" height="14" rx="2" fill="{paper}"/>"#);
        text(&mut svg, (x + 24.0, 65.5), "tick", name);
        x += 46.0 + 7.0 * name.len() as f64;
    }
    let mut y = TOP;
    for row in rows {
        for (n, block) in row.iter().enumerate() {
            block.draw(&mut svg, (LEFT + n as f64 * (wide + BETWEEN), y));
        }
        y += tall(&row);
    }
    svg + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::super::data::tests::part;
    use super::*;

    #[test]
    fn each_point_is_a_field_in_the_colour_of_its_figure() {
        let part = part(&[("glibc", [1000, 1000, 1], 1), (AUTO, [900, 400, 1], 1)]);
        let text = svg(&Results { simulated: Some(part), real: None });
        // A field a point without epochs, and the key.
        let fields = |paper: &str| text.matches(&format!("fill=\"{paper}\"")).count();
        assert_eq!((fields(STEPS[1].2), fields(STEPS[4].2), fields(STEPS[0].2)), (2, 2, 1));
        for said in ["m0: 1 big, 1 little", "100/400", "simulated", ">0.90<", ">0.40<"] {
            assert!(text.contains(said), "no '{said}' in {text}");
        }
        assert!(text.ends_with("</svg>\n"));
    }
}
