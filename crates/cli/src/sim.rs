//! Studies on virtual machines: the command line (`words`), the runs (`plan`), and the results.

pub(crate) mod csv;
pub(crate) mod list;
pub(crate) mod notes;
pub(crate) mod perfetto;
pub(crate) mod plan;
pub(crate) mod plot;
pub(crate) mod replay;
pub(crate) mod report;
pub(crate) mod transfers;
pub(crate) mod words;

use lockwright_numbers::Spread;
use lockwright_numbers::format::time;
use lockwright_sim::Run;
use lockwright_sim::sweep::Knob;
use lockwright_sim::{ClassOutcome, Outcome, Placement, Violation};
use plan::Plan;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// One lock at one point of the grid, with one run per seed.
pub(crate) struct SeedRuns<'a> {
    pub(crate) plan: &'a Plan,
    /// Its number, in the order of the command line.
    pub(crate) number: usize,
    pub(crate) outcomes: &'a [Outcome],
}

/// The median and range of a figure over the seeds, without runs in which a check failed.
fn spread(outcomes: &[Outcome], figure: impl Fn(&Outcome) -> f64) -> Option<Spread> {
    let sound = outcomes.iter().filter(|outcome| outcome.violation.is_none());
    Spread::of(&sound.map(figure).collect::<Vec<_>>())
}

/// The results of the threads on a class of cores.
fn class<'o>(outcome: &'o Outcome, name: &str) -> Option<&'o ClassOutcome> {
    outcome.classes.iter().find(|class| class.class == name)
}

/// The names of the classes of cores of all machines, the fastest first.
fn classes(plan: &Plan) -> Vec<&str> {
    let mut all: Vec<&str> = Vec::new();
    for class in plan.machines.iter().flat_map(|machine| &machine.class) {
        if !all.contains(&class.name.as_str()) {
            all.push(&class.name);
        }
    }
    all
}

/// The share of operations that took longer than their SLO.
fn late(outcome: &Outcome) -> f64 {
    let late: u64 = outcome.classes.iter().map(|class| class.violations).sum();
    late as f64 / (outcome.operations as f64).max(1.0)
}

impl<'a> SeedRuns<'a> {
    /// All rows, made from the outcomes of all points.
    pub(crate) fn all(plan: &'a Plan, outcomes: &'a [Outcome]) -> Vec<SeedRuns<'a>> {
        let of = outcomes.chunks(plan.seeds.len()).enumerate();
        of.map(|(number, outcomes)| SeedRuns { plan, number, outcomes }).collect()
    }

    /// Its runs, which differ only in their seeds.
    pub(crate) fn runs(&self) -> &'a [Run] {
        let seeds = self.plan.seeds.len();
        &self.plan.runs[self.number * seeds..(self.number + 1) * seeds]
    }

    pub(crate) fn run(&self) -> &'a Run {
        &self.runs()[0]
    }

    pub(crate) fn at(&self) -> &'a plan::At {
        &self.plan.rows[self.number]
    }

    /// The lock, as named on the command line.
    pub(crate) fn lock(&self) -> &'a str {
        self.plan.locks[self.at().lock].name()
    }

    pub(crate) fn spread(&self, figure: impl Fn(&Outcome) -> f64) -> Option<Spread> {
        spread(self.outcomes, figure)
    }

    pub(crate) fn violations(&self) -> impl Iterator<Item = (&'a Run, &'a Violation)> {
        let runs = self.runs().iter().zip(self.outcomes);
        runs.filter_map(|(run, outcome)| Some((run, outcome.violation.as_ref()?)))
    }
}

/// One line with everything that the whole study has in common.
pub(crate) fn source(plan: &Plan) -> String {
    let mut text = "simulated: ".to_owned();
    match &plan.machines[..] {
        [one] => {
            let title = one.title.split(": ").next().unwrap_or_default();
            let _ = write!(text, "{} ({title})", one.name);
        }
        many => {
            let names: Vec<_> = many.iter().map(|machine| machine.name.as_str()).collect();
            text.push_str(&names.join(", "));
        }
    }
    if let [(what, params)] = &plan.workloads[..] {
        let _ = write!(text, ", {}", with_options(what.id, params));
    }
    if !plan.threads_vary && plan.sweeps.iter().all(|sweep| sweep.knob != Knob::Threads) {
        let threads = plan.runs[0].threads;
        if plan.runs.iter().all(|run| run.threads == threads) {
            let _ = write!(text, ", {threads} {}", if threads == 1 { "thread" } else { "threads" });
        }
    }
    let _ = write!(text, ", {}", placement(&plan.placement));
    let _ = write!(text, ", {}", time(plan.duration_ns as f64));
    let _ = match plan.seeds[..] {
        [seed] => write!(text, ", seed {seed}"),
        [first, .., last] => write!(text, ", median of seeds {first} to {last}"),
        [] => Ok(()),
    };
    text
}

/// What distinguishes this point from the others, except the lock and `x`: names and values of everything that varies.
pub(crate) fn place(row: &SeedRuns<'_>, x: Option<&Across>) -> Vec<(String, String)> {
    let (plan, at) = (row.plan, row.at());
    let mut all = Vec::new();
    if plan.machines.len() > 1 {
        all.push(("machine".to_owned(), plan.machines[at.machine].name.clone()));
    }
    if plan.workloads.len() > 1 {
        let (what, params) = &plan.workloads[at.workload];
        all.push(("workload".to_owned(), with_options(what.id, params)));
    }
    if plan.threads_vary && x != Some(&Across::Threads) {
        all.push(("threads".to_owned(), at.threads.to_string()));
    }
    for (number, (sweep, value)) in plan.sweeps.iter().zip(&at.swept).enumerate() {
        if x != Some(&Across::Sweep(number)) {
            all.push((sweep.key.clone(), value.to_string()));
        }
    }
    all
}

/// What varies along a plot's x axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Across {
    Threads,
    /// A sweep, by its number.
    Sweep(usize),
}

/// A word quoted for a shell, if necessary.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./,:=+@%".contains(c);
    match shlex::try_quote(word) {
        Ok(quoted) if word.is_empty() || !word.chars().all(plain) => quoted.into_owned(),
        _ => word.to_owned(),
    }
}

/// The command that repeats this run.
pub(crate) fn replay(plan: &Plan, row: &plan::At, run: &Run) -> String {
    use lockwright_numbers::units::word;
    let mut words = vec![
        "lockwright sim".to_owned(),
        format!("--machine {}", quoted(&plan.machine_words[row.machine])),
        format!("--lock {}", run.lock.name()),
        match &plan.trace {
            Some(file) => format!("--trace {}", quoted(file)),
            None => format!("--workload {}", with_options(run.workload.id, &run.params)),
        },
        format!("--threads {}", run.threads),
    ];
    if run.placement != Placement::Pinned {
        words.push(format!("--placement {}", placement(&run.placement)));
    }
    for (sweep, value) in plan.sweeps.iter().zip(&row.swept) {
        // Options are named as in the workload and the lock. A trace has no options.
        let key = match &sweep.knob {
            Knob::Figure(key) => key,
            Knob::Param(key) if plan.trace.is_some() => key,
            _ => continue,
        };
        words.push(format!("--sweep {}", quoted(&format!("{key}={value}"))));
    }
    words.push(format!("--seed {}", run.seed));
    words.push(format!("--duration {}", word(run.duration_ns)));
    words.push(match run.warmup_ns {
        0 => "--warmup 0".to_owned(),
        ns => format!("--warmup {}", word(ns)),
    });
    words.join(" ")
}

/// A workload in the form that `--workload` accepts.
pub(crate) fn with_options(name: &str, params: &BTreeMap<String, f64>) -> String {
    let options: Vec<_> = params.iter().map(|(key, value)| format!("{key}={value}")).collect();
    match options.is_empty() {
        true => name.to_owned(),
        false => format!("{name}:{}", options.join(",")),
    }
}

/// A placement in the form that `--placement` accepts.
pub(crate) fn placement(placement: &Placement) -> String {
    match placement {
        Placement::Pinned => "pinned".into(),
        Placement::Free => "free".into(),
        Placement::Cpus(list) => list.iter().map(u32::to_string).collect::<Vec<_>>().join(","),
    }
}
