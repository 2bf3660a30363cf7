//! The picture: the default's throughput relative to the best lock, with a field per point and a block per machine.

use super::data::{Machine, Part, Point, Results};
use super::sums::AUTO;
use super::tables::{brief, lengths};
use lockwright_plot::{ColourStep, Field, Head, Heat, HeatBlock, Ink};

const WHITE: Ink = Ink::fixed(0x00FD_FDFD);
const BLACK: Ink = Ink::fixed(0x001A_1E23);

const fn step(name: &'static str, paper: u32, ink: Ink) -> ColourStep {
    ColourStep { name, paper: Ink::fixed(paper), ink }
}

/// Lower bounds of the steps, and their colours. Everyone can tell orange from blue.
const STEPS: [(f64, ColourStep); 5] = [
    (0.95, step("0.95 or more", 0x001D_62D2, WHITE)),
    (0.9, step("0.90 to 0.95", 0x00A9_C6F5, BLACK)),
    (0.75, step("0.75 to 0.90", 0x00F8_E3C8, BLACK)),
    (0.5, step("0.50 to 0.75", 0x00EE_AB67, BLACK)),
    (0.0, step("less than 0.50", 0x00B4_480B, WHITE)),
];

fn block(part: &Part, machine: &Machine) -> HeatBlock {
    let own = || machine.points.iter().filter(|point| point.slo_us.is_none());
    let mut threads: Vec<u32> = own().map(|point| point.threads).collect();
    let mut columns: Vec<_> = own().map(|point| (point.section_ns, point.gap)).collect();
    threads.sort_unstable();
    threads.dedup();
    columns.sort_unstable();
    columns.dedup();
    let of = |(name, cpus): &(String, u32)| match machine.is_unequal() {
        true => format!("{cpus} {name}"),
        false => format!("{cpus} CPUs"),
    };
    let cpus: Vec<String> = machine.classes.iter().map(of).collect();
    let field = |threads: u32, column| -> Field {
        let at =
            |point: &&Point| (point.threads, (point.section_ns, point.gap)) == (threads, column);
        let share = own().find(at)?.to_best(AUTO)?;
        let step = STEPS.iter().position(|(from, _)| share >= *from).unwrap_or(STEPS.len() - 1);
        Some((step, brief(share)))
    };
    let row = |threads: &u32| {
        let fields = columns.iter().map(|column| field(*threads, *column)).collect();
        (threads.to_string(), fields)
    };
    HeatBlock {
        title: format!("{}: {}", machine.name, cpus.join(", ")),
        note: part.origin.clone(),
        down: "threads".into(),
        across: "in the section / out of it, ns".into(),
        columns: columns.iter().map(|(section, gap)| lengths(*section, *gap)).collect(),
        rows: threads.iter().map(row).collect(),
    }
}

/// Draws the picture.
pub(super) fn svg(results: &Results) -> String {
    let parts = [&results.simulated, &results.real].into_iter().flatten();
    let blocks = parts.flat_map(|part| part.machines.iter().map(|machine| block(part, machine)));
    let first = results.simulated.as_ref().or(results.real.as_ref());
    let source = first.map_or(String::new(), |part| {
        format!("{}; lockwright {}, seed {}", part.origin, part.version, part.seed)
    });
    let title = format!("Throughput of {AUTO} to that of the best lock of the whole family");
    let head = Head { title, source, key: Vec::new() };
    Heat { head, steps: STEPS.map(|(_, step)| step).to_vec(), blocks: blocks.collect() }.svg()
}

#[cfg(test)]
mod tests {
    use super::super::data::tests::part;
    use super::*;

    #[test]
    fn each_point_is_a_field_in_the_colour_of_its_figure() {
        let part = part(&[("glibc", [1000, 1000, 1], 1), (AUTO, [900, 400, 1], 1)]);
        let text = svg(&Results { simulated: Some(part), real: None });
        // One field for each point without epochs, and the key.
        let fields =
            |n: usize| text.matches(&format!("fill=\"{}\"", STEPS[n].1.paper.css())).count();
        assert_eq!((fields(1), fields(4), fields(0)), (2, 2, 1));
        for said in ["m0: 1 big, 1 little", "100/400", "simulated", "\n0.90\n", "\n0.40\n"] {
            assert!(text.contains(said), "no '{said}' in {text}");
        }
        assert!(text.ends_with("</svg>\n"));
    }
}
