//! The page: first what a user needs, then the measurements.

use super::data::{Figures, Machine, Part, Point, Results};
use super::grid::EPOCHS_RUN_MS;
use super::sums::{AUTO, Crowd, GOOD, Group, LONG_NS, SHORT_NS, is_for_programs, keeps};
use super::tables::{self, brief, lengths};
use crate::demo::words::wrapped;
use lockwright_locks::front::{auto, barging, slo};
use lockwright_numbers::format::given;
use lockwright_sim::profile::BUILTIN;
use std::fmt::Write as _;

/// The whole page. `file` is the path of the results.
pub(super) fn page(results: &Results, file: &str) -> String {
    let mut page = "# Which lock for my program?\n\n".to_owned();
    page +=
        "<!-- made by `cargo xtask choosing`: change xtask/src/choosing/, not this file -->\n\n";
    let parts = || [&results.simulated, &results.real].into_iter().flatten();
    if parts().any(|part| part.quick) {
        page += "**Short runs: they show that everything works, and measure nothing.**\n\n";
    }
    if let Some(part) = &results.simulated {
        rule_of_thumb(&mut page, part);
    }
    other_locks(&mut page);
    how_it_picks(&mut page);
    if let Some(part) = &results.simulated {
        overview(&mut page, part);
        reading(&mut page, part);
        for machine in &part.machines {
            one(&mut page, part, machine);
        }
    }
    real(&mut page, results.real.as_ref());
    sources(&mut page, parts(), file);
    page
}

fn paragraph(page: &mut String, text: &str) {
    page.push_str(wrapped(text).replace("\n  ", "\n").trim_end());
    page.push_str("\n\n");
}

fn has(part: &Part, wanted: impl Fn(&Machine) -> bool) -> bool {
    part.machines.iter().any(wanted)
}

fn rule_of_thumb(page: &mut String, part: &Part) {
    let all = Group::new(part, |_, _| true).0;
    paragraph(
        page,
        &format!(
            "Start with `{AUTO}`, the default. The tables say where another lock is better, and by how much. Each figure is a \
         lock's throughput relative to the best lock's at the same point: the geometric mean over all simulated machines of \
         that kind (1.00: the best everywhere). \"The best lock\" means the best of all locks that let every thread in during the run, but the two tables below \
         name only locks that can serve a program's mutexes. So even the best of these may be below 1.00. *No wait over {}* means that no thread \
         waited longer at any point, in runs of {:.0} ms: it is no bound. `lockwright explain LOCK` has the bounds.",
            given(SHORT_NS),
            part.run_ms,
        ),
    );
    for (unequal, kind) in [(false, "equal cores"), (true, "big and little cores")] {
        if has(part, |machine| machine.is_unequal() == unequal) {
            let _ = writeln!(page, "**Machines with {kind}** (simulated, seed {}):\n", part.seed);
            page.push_str(&tables::choice(part, |machine| machine.is_unequal() == unequal, false));
            page.push('\n');
        }
    }
    let total = all.len();
    paragraph(
        page,
        &format!(
            "`{AUTO}` has at least {GOOD} of the best lock's throughput at {} of {total} points; of the best lock for programs, \
         at {}.{}{}",
            tables::good(&all),
            all.iter().filter(|point| to_front(point) >= GOOD).count(),
            worst(part),
            crowded(part),
        ),
    );
    slos(page, part);
}

/// The default lock's throughput relative to the best lock for programs.
fn to_front(point: &Point) -> f64 {
    let fair = |lock: &str, own: &Figures| is_for_programs(lock) && own.starved == 0;
    let best = point.best_of(fair).map(|(_, best)| best.of_glibc.max(1));
    let own = point.of.get(AUTO).map(|own| own.of_glibc);
    own.zip(best).map_or(0.0, |(own, best)| own as f64 / best as f64)
}

fn worst(part: &Part) -> String {
    let mut worst: Option<(f64, String)> = None;
    for machine in &part.machines {
        for point in machine.points.iter().filter(|point| point.slo_us.is_none()) {
            let (Some(share), Some((best, _))) = (point.to_best(AUTO), point.best()) else {
                continue;
            };
            if worst.as_ref().is_none_or(|(least, _)| share < *least) {
                let at = lengths(point.section_ns, point.gap);
                let where_ =
                    format!("{}, {} threads, {at}, against `{best}`", machine.name, point.threads);
                worst = Some((share, where_));
            }
        }
    }
    worst.map_or(String::new(), |(share, at)| format!(" Its worst is {} ({at}).", brief(share)))
}

/// The number of threads for which it is worst.
fn crowded(part: &Part) -> String {
    let share = |crowd: Crowd| {
        let group = Group::new(part, |_, own| own == crowd).0;
        let (good, all) = (tables::good(&group), group.len());
        let threads = match crowd {
            Crowd::Fewer => "fewer threads than CPUs",
            Crowd::Each => "one a CPU",
            Crowd::More => "more threads than CPUs",
        };
        (all > 0).then(|| format!("{good} of {all} with {threads}"))
    };
    let all: Vec<String> = Crowd::ALL.into_iter().filter_map(share).collect();
    format!(" By number of threads: at {}.", all.join(", "))
}

/// Which locks keep an SLO, and how often.
fn slos(page: &mut String, part: &Part) {
    let points = || {
        let all = part.machines.iter().flat_map(|machine| &machine.points);
        all.filter_map(|point| Some((point, point.slo_us?)))
    };
    let count = |lock: &String| {
        let kept = |(point, slo): &(&Point, u32)| {
            point.of.get(lock).is_some_and(|figures| keeps(figures, *slo))
        };
        points().filter(kept).count()
    };
    let known =
        part.locks.iter().filter(|lock| points().any(|(point, _)| point.of.contains_key(*lock)));
    let mut all: Vec<(usize, &str)> = known.map(|lock| (count(lock), lock.as_str())).collect();
    all.sort_by_key(|(kept, _)| std::cmp::Reverse(*kept));
    if all.is_empty() {
        return;
    }
    let each: Vec<String> = all.iter().map(|(kept, lock)| format!("`{lock}` {kept}")).collect();
    paragraph(
        page,
        &format!(
            "Which lock keeps the SLO that a program states ([epochs.md](epochs.md)), on big and little cores? There are {} simulated \
         points. Each lock kept the SLO (P99 on the slowest class) at this many of them: {}. Throughput is in the machines' \
         tables.",
            points().count(),
            each.join(", "),
        ),
    );
}

fn other_locks(page: &mut String) {
    page.push_str("## Where `auto` is not the best\n\n");
    paragraph(
        page,
        "Find your machine and number of threads below, then try the lock that is named there on your own program: what the \
        program does with its locks decides.",
    );
    page.push_str(
        "    lockwright run --lock fifo -- ./server       # another lock for all mutexes\n    \
         LOCKWRIGHT_LOCK=fifo LD_PRELOAD=$PWD/target/release/liblockwright.so ./server\n    \
         lockwright run --lock auto:budget=1ms -- ./server   # shorter waits\n    \
         lockwright run --config locks.toml -- ./server          # for one mutex alone\n    \
         lockwright switch 4242 fifo                  # while it runs\n    \
         lockwright profile --record --output server.bin -- ./server       # record it, then\n    \
         lockwright sim --machine m1 --lock auto,fifo,glibc --trace server.bin   # simulate it\n\n",
    );
    paragraph(
        page,
        "Compare throughput and tail several times, in turns; a difference of 3 % is noise. Textbook locks (`tas`, `mcs` and the \
        like) are in the tables to show what is possible. They are not for programs: with more threads than CPUs, some of \
        them stop for a time slice at each hand-over, and others starve some threads.",
    );
}

fn how_it_picks(page: &mut String) {
    page.push_str("## How `auto` picks\n\n");
    let budget = auto::ENTRY.options.iter().find(|option| option.key == "budget");
    let budget = budget.and_then(|option| option.default).unwrap_or_default() / 1_000_000;
    paragraph(
        page,
        "It decides at each lock, by the core of the thread that asks, and by what it sees of the lock. The program need not say \
        anything.",
    );
    let mut rule = |text: String| {
        page.push_str(wrapped(&format!("- {text}")).trim_end());
        page.push('\n');
    };
    rule(format!(
        "Up to 4 CPUs, on a core of the fastest class (as equal cores all are): `{}` ({}).",
        barging::ENTRY.id,
        barging::ENTRY.idea
    ));
    rule(format!(
        "More CPUs, or a core of a slower class: `{}` ({}). Waiters stand in line, those of one cluster together, and on more than 4 CPUs they are handed the lock. A thread on a slower \
        core lets others go first, for a quarter of the budget at most, or for the window of its epoch.",
        slo::ENTRY.id,
        slo::ENTRY.idea
    ));
    rule(format!(
        "If the last holder comes back sooner than the lock could be handed over, as measured, the lock is *saturated*, and stays \
        on that core for a turn. Turns share three quarters of the budget of {budget} ms (`{AUTO}:budget=TIME`; with 0 there \
        are no turns)."
    ));
    rule("More than four CPUs, and more waiters than CPUs: `barging` on all cores.".into());
    rule(
        "If the holder has lost its CPU, waiters stay awake for a shorter time, or not at all."
            .into(),
    );
    rule("One CPU (affinity, or a container's quota): nobody spins, and no lock is left to another core.".into());
    page.push('\n');
    paragraph(
        page,
        &format!(
            "The code is in `crates/locks/src/front/rule` (`auto.rs`, `barging.rs`, `slo.rs`: [slo.md](slo.md)) and in \
        `learn/saturation.rs` beside it. `lockwright explain {AUTO}` has the options."
        ),
    );
}

fn overview(page: &mut String, part: &Part) {
    page.push_str("## `auto` on each simulated machine\n\n");
    paragraph(
        page,
        &format!(
            "Throughput to the best of all locks that let every thread in, textbook locks included: geometric mean and worst, by \
        number of threads. The last column says at how many points it is at least {GOOD}."
        ),
    );
    page.push_str(&tables::overview(part));
    page.push_str(&missing(part));
    page.push('\n');
    paragraph(page, &winners(part));
    let _ = writeln!(page, "\n![`auto` to the best lock at each point, simulated](choosing.svg)\n");
}

/// At how many points each lock is the best.
fn winners(part: &Part) -> String {
    let all = Group::new(part, |_, _| true).0;
    let count = |lock: &String| {
        all.iter().filter(|point| point.best().is_some_and(|(best, _)| best == lock)).count()
    };
    let mut wins: Vec<(usize, &String)> =
        part.locks.iter().map(|lock| (count(lock), lock)).collect();
    wins.sort_by_key(|(points, _)| std::cmp::Reverse(*points));
    let (ever, never): (Vec<_>, Vec<_>) = wins.into_iter().partition(|(points, _)| *points > 0);
    let ever: Vec<String> =
        ever.iter().map(|(points, lock)| format!("`{lock}` {points}")).collect();
    let never: Vec<String> = never.iter().map(|(_, lock)| format!("`{lock}`")).collect();
    let never = match &*never {
        [] => String::new(),
        never => format!(" Nowhere: {}.", never.join(", ")),
    };
    format!("The number of points at which each lock is the best: {}.{never}", ever.join(", "))
}

/// The built-in machines that came after these results.
fn missing(part: &Part) -> String {
    let is_new = |name: &&str| !part.quick && part.machines.iter().all(|one| one.name != **name);
    let new: Vec<String> = BUILTIN
        .iter()
        .map(|(name, _)| *name)
        .filter(is_new)
        .map(|name| format!("`{name}`"))
        .collect();
    match &*new {
        [] => String::new(),
        new => format!("\nNot measured yet: {}.\n", new.join(", ")),
    }
}

fn reading(page: &mut String, part: &Part) {
    page.push_str("## What the tables of the machines say\n\n");
    paragraph(
        page,
        &format!(
            "*Which lock* names the lock with the most throughput: of all locks; of those for programs; of those under which nobody \
        waited for more than {} (the budget of `{AUTO}`, and wake-ups), or for more than {}. `{AUTO}` is below, to compare.",
            given(LONG_NS),
            given(SHORT_NS)
        ),
    );
    paragraph(
        page,
        "*Every lock*: `fewer`, `each` and `more` are the throughput relative to the best lock's (geometric mean) with fewer \
        threads than CPUs, one a CPU, and more; `worst` is the smallest at any point. `P99` (of an operation: the wait and the \
        section), `CPU` and `J` (CPU time and energy of an operation) are geometric means of the ratio to glibc's. `longest` is \
        the longest wait for the lock at any point. With more threads than CPUs it includes time slices of some ms.",
    );
    paragraph(
        page,
        &format!(
            "A wait of {:.0} ms+ lasted for the whole run: that thread never got the lock. Energy is the simulator's: it adds up the \
        watts of each class of cores and of the package, from the machine's profile. Some of those are assumed \
        ([sim.md](sim.md)).",
            part.run_ms
        ),
    );
    paragraph(
        page,
        &format!(
            "*`{AUTO}` at each point*: its throughput relative to the best lock's. A point's name has the nanoseconds inside the \
        section and outside it, `100/400`; a section also modifies two shared cache lines. Below the table are the points with \
        less than {GOOD}, by the lock that is the best there."
        ),
    );
    paragraph(
        page,
        &format!(
            "*Epochs with an SLO*: LibASL's Bench-1, four sections under two locks, one thread a CPU, {EPOCHS_RUN_MS} ms a run; the gap \
        is in NOPs. A lock keeps an SLO if its P99 on the slowest cores is at most 1.05 times the SLO. *best* is the fastest \
        lock that keeps it, among the front locks, glibc's, and a textbook lock that knows SLOs. *front* is the fastest front \
        lock that keeps it, with its throughput relative to the best's. *{AUTO}* is the throughput of `{AUTO}`, again relative \
        to the best's, whether or not `{AUTO}` keeps the SLO (`P99/SLO` says that). *longest* is its longest wait."
        ),
    );
}

fn one(page: &mut String, part: &Part, machine: &Machine) {
    let classes: Vec<String> =
        machine.classes.iter().map(|(name, cpus)| format!("{cpus} {name}")).collect();
    let _ = writeln!(page, "## {} ({})\n", machine.name, part.origin);
    paragraph(page, &format!("{}; CPUs: {}. {}.", machine.title, classes.join(", "), whence(part)));
    page.push_str("Which lock:\n\n");
    let textbook = part.locks.iter().any(|lock| !is_for_programs(lock));
    page.push_str(&tables::choice(part, |own| own.name == machine.name, textbook));
    page.push_str("\nEvery lock:\n\n");
    page.push_str(&tables::locks(part, machine));
    let _ = writeln!(page, "\n`{AUTO}` at each point:\n");
    page.push_str(&tables::points(machine));
    let behind = tables::behind(machine);
    let _ = match behind.is_empty() {
        true => writeln!(page, "\nIt is nowhere below {GOOD} of the best.\n"),
        false => writeln!(
            page,
            "\nWhere it is below {GOOD} of the best, by the best lock:\n\n{}",
            wrapped(&behind)
        ),
    };
    if machine.points.iter().any(|point| point.slo_us.is_some()) {
        page.push_str("Epochs with an SLO:\n\n");
        page.push_str(&tables::epochs(machine));
        page.push('\n');
    }
}

/// The origin of the figures.
fn whence(part: &Part) -> String {
    let Part { origin, version, seed, run_ms, rounds, .. } = part;
    let rounds = match rounds {
        1 => String::new(),
        rounds => format!(", {rounds} interleaved rounds"),
    };
    format!("{}, lockwright {version}, seed {seed}, {run_ms} ms a run{rounds}", capital(origin))
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

fn real(page: &mut String, part: Option<&Part>) {
    let Some(part) = part else { return };
    for machine in &part.machines {
        one(page, part, machine);
    }
    paragraph(
        page,
        "On a real machine `P99` is that of the wait for the lock, and ratios are medians of the rounds' ratios to glibc. Lengths \
        are drawn from an exponential distribution. A section modifies no shared lines, and threads are not bound to CPUs.",
    );
}

fn sources<'a>(page: &mut String, parts: impl Iterator<Item = &'a Part>, file: &str) {
    page.push_str("## Measure again\n\n");
    paragraph(
        page,
        &format!(
            "[{file}](../{file}) has all figures, with rates, P99, longest waits, CPU time and energy in plain units. The same source and \
        seed give the same simulated figures, to the last digit."
        ),
    );
    for part in parts {
        let _ = writeln!(page, "    {:<42} # {}", part.command, whence(part));
    }
    let _ = writeln!(
        page,
        "    {:<42} # this page, from its figures",
        format!("cargo xtask choosing --from {file}")
    );
}

#[cfg(test)]
mod tests {
    use super::super::data::tests::three;
    use super::*;

    #[test]
    fn the_page_says_what_is_simulated_and_what_is_missing() {
        let part = three();
        let mut results = Results { simulated: Some(part.clone()), real: None };
        // Ignores where lines are broken.
        let flat = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let text = flat(page(&results, "bench/runs/x/results.json"));
        for said in [
            "at 1 of 2 points",
            "worst is 0.20 (m0, 4 threads, 100/400, against `mcs`)",
            "## m0 (simulated)",
            "Simulated, lockwright 0.0.0, seed 7",
            "Epochs with an SLO:",
            "Not measured yet: `m1`, `i5-13400`",
        ] {
            assert!(text.contains(said), "no '{said}' in {text}");
        }
        assert!(!text.contains("Short runs") && !text.contains("eal machine"), "{text}");
        results.real = Some(Part { origin: "real".into(), rounds: 9, quick: true, ..part });
        let text = flat(page(&results, "x"));
        for said in ["Short runs", "## m0 (real)", "9 interleaved rounds", "Real, lockwright"] {
            assert!(text.contains(said), "no '{said}' in {text}");
        }
    }
}
