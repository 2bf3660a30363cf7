//! The page's tables, in Markdown, no wider than a terminal.

use super::data::{Figures, Machine, Part, Point};
use super::grid::{EPOCHS_RUN_MS, GLIBC};
use super::sums::{AUTO, Crowd, GOOD, Group, LONG_NS, SHORT_NS, is_for_programs, keeps};
use comfy_table::{CellAlignment, Table, presets};
use lockwright_numbers::format::{given, ns};
use std::collections::BTreeMap;

/// Shown if nothing was measured, or no lock qualifies.
const NONE: &str = "-";

/// A table in which all columns except the first are numbers.
fn table(header: &[String], rows: &[Vec<String>]) -> String {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header(header);
    table.add_rows(rows);
    table.column_iter_mut().skip(1).for_each(|c| c.set_cell_alignment(CellAlignment::Right));
    format!("{table}\n")
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// A ratio in as few characters as the page's columns have room for: small ones have two digits.
pub(super) fn brief(ratio: f64) -> String {
    match ratio {
        r if r >= 99.5 => format!("{r:.0}"),
        r if r >= 9.95 => format!("{r:.1}"),
        r if r < 0.095 => format!("{r:.3}"),
        r => format!("{r:.2}"),
    }
}

fn ratio(ratio: Option<f64>) -> String {
    ratio.map_or(NONE.into(), brief)
}

/// The longest wait. Marked if the end of the run cut it off.
fn longest(wait: Option<u64>, run_ms: f64) -> String {
    match wait {
        None => NONE.into(),
        Some(wait) if wait as f64 >= run_ms * 0.9e6 => format!("{run_ms:.0} ms+"),
        Some(wait) => ns(wait),
    }
}

/// The longest wait that the runs of this part can show.
fn seen_ms(part: &Part) -> f64 {
    if part.origin == "simulated" { part.run_ms } else { f64::INFINITY }
}

/// For fewer threads than CPUs, as many, and more: the best lock, and the default's share of its throughput.
pub(super) fn choice(part: &Part, wanted: impl Fn(&Machine) -> bool, textbook: bool) -> String {
    let groups =
        Crowd::ALL.map(|crowd| (crowd, Group::new(part, |m, own| wanted(m) && own == crowd)));
    let groups: Vec<_> = groups.into_iter().filter(|(_, group)| !group.0.is_empty()).collect();
    let named = |best: Option<(&str, f64)>| match best {
        Some((lock, ratio)) => format!("{lock} {}", brief(ratio)),
        None => NONE.into(),
    };
    let locks = &part.locks;
    let row = |name: String, cell: &dyn Fn(&Group<'_>) -> String| {
        let cells = groups.iter().map(|(_, group)| cell(group));
        [name].into_iter().chain(cells).collect::<Vec<_>>()
    };
    let mut rows = Vec::new();
    if textbook {
        rows.push(row("any lock".into(), &|group| named(group.best(locks, |_| true))));
    }
    rows.push(row("most throughput".into(), &|group| named(group.best(locks, is_for_programs))));
    for ns in [LONG_NS, SHORT_NS] {
        let name = format!("no wait over {}", given(ns));
        rows.push(row(name, &|group| named(group.best_within(locks, ns, is_for_programs))));
    }
    rows.push(row(AUTO.into(), &|group| ratio(group.to_best(AUTO))));
    rows.push(row("  at worst".into(), &|group| ratio(group.worst(AUTO))));
    let run_ms = seen_ms(part);
    rows.push(row("  longest wait".into(), &|group| longest(group.longest(AUTO), run_ms)));
    let crowds = groups.iter().map(|(crowd, _)| crowd.name().to_owned());
    table(&["threads".to_owned()].into_iter().chain(crowds).collect::<Vec<_>>(), &rows)
}

/// How close the default is to the best, machine by machine.
pub(super) fn overview(part: &Part) -> String {
    let rows = part.machines.iter().map(|machine| {
        let mut row = vec![machine.name.clone()];
        for crowd in Crowd::ALL {
            let group = Group::new(part, |own, c| own.name == machine.name && c == crowd);
            row.push(match (group.to_best(AUTO), group.worst(AUTO)) {
                (Some(mean), Some(worst)) => format!("{mean:.2}, {worst:.2}"),
                _ => NONE.into(),
            });
        }
        let all: Vec<_> = Group::new(part, |own, _| own.name == machine.name).0;
        row.push(format!("{} of {}", good(&all), all.len()));
        row
    });
    let crowds = Crowd::ALL.map(|crowd| crowd.name().to_owned());
    let last = format!(">= {GOOD}");
    let header = [vec!["machine".to_owned()], crowds.to_vec(), vec![last]].concat();
    table(&header, &rows.collect::<Vec<_>>())
}

/// The number of points at which the default is good.
pub(super) fn good(points: &[&Point]) -> usize {
    let is_good = |point: &&&Point| point.to_best(AUTO).is_some_and(|ratio| ratio >= GOOD);
    points.iter().filter(is_good).count()
}

/// Every lock on one machine.
pub(super) fn locks(part: &Part, machine: &Machine) -> String {
    let of = |crowd: Option<Crowd>| {
        let is = |own: &Machine, c| own.name == machine.name && crowd.is_none_or(|one| one == c);
        Group::new(part, is)
    };
    let (all, energy) =
        (of(None), machine.points.iter().any(|p| p.of.values().any(|f| f.energy_nj > 0)));
    let mut header = words(&["lock", "fewer", "each", "more", "worst", "P99", "longest", "CPU"]);
    header.extend(energy.then(|| "J".to_owned()));
    let row = |lock: &String| {
        let mut row = vec![lock.clone()];
        row.extend(Crowd::ALL.map(|crowd| ratio(of(Some(crowd)).to_best(lock))));
        row.push(ratio(all.worst(lock)));
        row.push(ratio(all.to_glibc(lock, |figures| figures.p99_ns)));
        row.push(longest(all.longest(lock), seen_ms(part)));
        row.push(ratio(all.to_glibc(lock, |figures| figures.cpu_ns)));
        row.extend(energy.then(|| ratio(all.to_glibc(lock, |figures| figures.energy_nj))));
        row
    };
    table(&header, &part.locks.iter().map(row).collect::<Vec<_>>())
}

/// The default's throughput relative to the best at each point of a machine.
pub(super) fn points(machine: &Machine) -> String {
    let own = || machine.points.iter().filter(|point| point.slo_us.is_none());
    let mut columns: Vec<(Option<u32>, u32)> = own().map(|p| (p.section_ns, p.gap)).collect();
    columns.sort_unstable();
    columns.dedup();
    let mut threads: Vec<u32> = own().map(|point| point.threads).collect();
    threads.sort_unstable();
    threads.dedup();
    let header = columns.iter().map(|(section, gap)| lengths(*section, *gap));
    let header: Vec<String> = ["threads".to_owned()].into_iter().chain(header).collect();
    let rows = threads.iter().map(|threads| {
        let at = |(section, gap): &(Option<u32>, u32)| {
            own().find(|p| (p.threads, p.section_ns, p.gap) == (*threads, *section, *gap))
        };
        let cells = columns.iter().map(|column| ratio(at(column).and_then(|p| p.to_best(AUTO))));
        [threads.to_string()].into_iter().chain(cells).collect()
    });
    table(&header, &rows.collect::<Vec<Vec<String>>>())
}

/// Lengths of section and gap, ns.
pub(super) fn lengths(section: Option<u32>, gap: u32) -> String {
    let short = |ns: u32| match ns {
        0 => "0".to_owned(),
        ns if ns % 1000 == 0 => format!("{}k", ns / 1000),
        ns => ns.to_string(),
    };
    format!("{}/{}", section.map_or(String::new(), short), short(gap))
}

/// Points where the default is too far from the best, grouped by the best lock.
pub(super) fn behind(machine: &Machine) -> String {
    let mut by_lock: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for point in machine.points.iter().filter(|point| point.slo_us.is_none()) {
        let (Some(share), Some((best, _))) = (point.to_best(AUTO), point.best()) else { continue };
        if share < GOOD {
            let at = lengths(point.section_ns, point.gap);
            let text = format!("{} threads {at} {}", point.threads, brief(share));
            by_lock.entry(best).or_default().push(text);
        }
    }
    let line = |(lock, points): (&str, Vec<String>)| format!("- `{lock}`: {}\n", points.join("; "));
    by_lock.into_iter().map(line).collect()
}

/// Epochs with an SLO on one machine.
pub(super) fn epochs(machine: &Machine) -> String {
    let header = words(&["SLO", "gap", "best", "front", AUTO, "P99/SLO", "longest"]);
    let rows = machine.points.iter().filter_map(|point| {
        let slo = point.slo_us?;
        let [any, front] = kept(point, slo);
        let named = |best: Option<(&str, f64)>| {
            best.map_or(NONE.into(), |(lock, of)| format!("{lock} {}", brief(of)))
        };
        let auto = point.of.get(AUTO)?;
        let best = any.map(|(_, best)| best.of_glibc.max(1) as f64);
        let to = |figures: &Figures| best.map(|best| figures.of_glibc as f64 / best);
        Some(vec![
            given(u64::from(slo) * 1000),
            point.gap.to_string(),
            any.map_or(NONE.into(), |(lock, _)| lock.to_owned()),
            named(front.and_then(|(lock, figures)| Some((lock, to(figures)?)))),
            ratio(to(auto)),
            ratio((auto.slow_p99_ns > 0).then_some(auto.slow_p99_ns as f64 / f64::from(slo) / 1e3)),
            longest(Some(auto.longest_ns), EPOCHS_RUN_MS as f64),
        ])
    });
    table(&header, &rows.collect::<Vec<_>>())
}

/// The highest throughput among locks that keep the SLO: of all locks, and of those for programs.
fn kept(point: &Point, slo: u32) -> [Option<(&str, &Figures)>; 2] {
    let keeps = |figures: &Figures| keeps(figures, slo);
    let any = point.best_of(|_, figures| keeps(figures));
    let is_front = |lock: &str| lock != GLIBC && is_for_programs(lock);
    [any, point.best_of(|lock, figures| is_front(lock) && keeps(figures))]
}

#[cfg(test)]
mod tests {
    use super::super::data::tests::three;
    use super::*;

    #[test]
    fn tables_name_the_best_and_where_the_default_is_behind() {
        let part = three();
        let machine = &part.machines[0];
        let text = choice(&part, |_| true, true);
        let row = |name: &str| {
            let line =
                text.lines().find(|line| line.contains(name)).unwrap_or_else(|| panic!("{text}"));
            line.split('|')
                .map(str::trim)
                .filter(|cell| !cell.is_empty())
                .skip(1)
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(row("any lock"), ["auto 1.00", "mcs 1.00"]);
        assert_eq!(row("most throughput"), ["auto 1.00", "glibc 0.80"]);
        assert_eq!(row("over 1 ms"), ["glibc 0.50", "glibc 0.80"]);
        assert_eq!(row("at worst"), ["1.00", "0.20"]);
        assert_eq!(row("longest wait"), ["3.00 ms", "3.00 ms"]);
        assert_eq!(behind(machine), "- `mcs`: 4 threads 100/400 0.20\n");
        let locks = locks(&part, machine);
        assert!(locks.contains("20 ms+"), "a wait that the run cut short: {locks}");
        assert!(overview(&part).contains("1 of 2"), "{}", overview(&part));
        assert!(points(machine).contains("100/400"));
        // With an SLO of 50 us, every lock's P99 is too long.
        assert!(epochs(machine).lines().last().unwrap().contains(" - "), "{}", epochs(machine));
        assert_eq!(lengths(Some(100), 10_000), "100/10k");
    }
}
