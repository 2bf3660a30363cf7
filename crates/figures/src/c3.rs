//! The figures of C3 (*Contextual Concurrency Control*, HotOS 2021): what it costs that a policy decides, not the lock's own code.

use crate::by_policy;
use crate::experiment::Experiment;
use crate::plot::{Axis, Kind, Plot, Series};
use crate::policies::{by_bravos_rule, by_empty_hooks, by_shipped};
use crate::{Context, Error, Key, Load, Measured, Plan, Results, chosen, median, ratio};

/// All of them.
pub static EXPERIMENTS: &[Experiment] = &[
    Experiment { id: "c3-2", measure: figure_2 },
    Experiment { id: "c3-policies", measure: by_policy::policies },
];

const THREADS: [u32; 7] = [1, 2, 5, 10, 20, 40, 80];

/// A panel of the figure: the same load under several locks.
struct Panel {
    name: &'static str,
    title: &'static str,
    locks: Vec<(&'static str, Vec<Key>)>,
}

impl Panel {
    fn plan(
        plan: &mut Plan,
        name: &'static str,
        title: &'static str,
        (ms, locks): (f64, Vec<(&'static str, Load)>),
    ) -> Self {
        let mut points = |load: Load| {
            let at = |&threads: &u32| plan.add(load.clone().threads(threads).lasting(1.0, ms));
            THREADS.iter().map(at).collect()
        };
        let locks = locks.into_iter().map(|(name, load)| (name, points(load))).collect();
        Self { name, title, locks }
    }

    /// One lock's throughput to another's, for each number of threads.
    fn ratios(&self, results: &Results, lock: usize, to: usize) -> Vec<Vec<f64>> {
        let throughput = |lock: usize, at: usize| results.throughput(self.locks[lock].1[at]);
        (0..THREADS.len()).map(|at| ratio(&throughput(lock, at), &throughput(to, at))).collect()
    }

    fn plot(&self, results: &Results) -> Plot {
        let series = self.locks.iter().map(|(name, keys)| {
            let point = |(&threads, &key): (&u32, &Key)| {
                Some((f64::from(threads), median(&results.throughput(key))? / 1e6))
            };
            let points = THREADS.iter().zip(keys).filter_map(point).collect();
            Series::new(*name, Kind::Line, points)
        });
        Plot {
            name: format!("c3-2-{}", self.name),
            title: format!("c3-2 ({}): {}", self.name, self.title),
            x: Axis::log("threads"),
            left: Axis::linear("million sections a second"),
            right: None,
            series: series.collect(),
        }
    }
}

/// Seed by seed, the smallest over the numbers of threads.
fn worst(ratios: &[Vec<f64>]) -> Vec<f64> {
    crate::measured::across(ratios, f64::min)
}

/// Seed by seed, the median over the numbers of threads.
fn middle(ratios: &[Vec<f64>]) -> Vec<f64> {
    let seeds = ratios.iter().map(Vec::len).min().unwrap_or(0);
    let of = |seed: usize| median(&ratios.iter().map(|at| at[seed]).collect::<Vec<_>>());
    (0..seeds).filter_map(of).collect()
}

/// (a) readers, (b) writers, (c) hooks that do nothing.
fn figure_2(context: &Context<'_>) -> Result<Measured, Error> {
    let value = |key| chosen("c3-2", key);
    let faults = Load::new("rwlock", "rwlock").with("reads", value("reads")?);
    let faults = faults.with("cs", value("fault")?).with("gap", value("touch")?).with("lines", 0.0);
    let files = Load::new("bench", "mcs").with("lines", value("lines")?).with("cs", 0.0);
    let files = files.with("gap", value("outside")?);
    let table = Load::new("bench", "mcs").with("lines", value("bucket")?).with("cs", 0.0);
    let table = table.with("gap", value("between")?).with("exponential", 1.0);

    let mut plan = Plan::new();
    // Page faults have few writers, and they decide: in 5 ms, throughput differs by a half from seed to seed.
    let a = vec![
        ("stock", faults.clone()),
        ("BRAVO", faults.clone().lock("bravo")),
        ("Concord-BRAVO", faults.clone().under(by_bravos_rule())),
    ];
    let a = Panel::plan(&mut plan, "a", "readers that fault pages", (25.0, a));
    let b = vec![
        ("stock", files.clone()),
        ("ShflLock", files.clone().lock("shfllock")),
        ("Concord-ShflLock", files.clone().under(by_shipped("shfllock-hooked", "numa"))),
        ("programmed, NUMA", files.clone().under(by_shipped("programmed", "numa"))),
        ("programmed, NUMA turns", files.clone().under(by_shipped("programmed", "numa-turns"))),
    ];
    let b = Panel::plan(&mut plan, "b", "writers of a list", (5.0, b));
    let c = vec![
        ("no hooks", table.clone().lock("programmed")),
        ("seven empty hooks", table.clone().under(by_empty_hooks())),
    ];
    let c = Panel::plan(&mut plan, "c", "a hash table under one lock", (5.0, c));
    let results = plan.run(context)?;

    let mut measured = Measured::new();
    let last = THREADS.len() - 1;
    for (panel, stock, built_in) in
        [(&a, "bravo/stock-80", "concord/bravo"), (&b, "shfllock/stock-80", "concord/shfllock")]
    {
        measured.row(stock, panel.ratios(&results, 1, 0)[last].clone());
        let by_policy = panel.ratios(&results, 2, 1);
        measured.row(format!("{built_in}-80"), by_policy[last].clone());
        measured.row(format!("{built_in} worst"), worst(&by_policy));
        for (threads, ratio) in THREADS.iter().zip(by_policy) {
            measured.also(format!("{built_in}, {threads} threads"), ratio);
        }
    }
    for (lock, name) in [(3, "programmed"), (4, "turns")] {
        let ratios = b.ratios(&results, lock, 1);
        measured.row(format!("{name}/shfllock-80"), ratios[last].clone());
        measured.row(format!("{name}/shfllock worst"), worst(&ratios));
        for (threads, ratio) in THREADS.iter().zip(ratios) {
            measured.also(format!("{name}/shfllock, {threads} threads"), ratio);
        }
    }
    let empty = c.ratios(&results, 1, 0);
    measured.row("empty hooks/none worst", worst(&empty));
    measured.row("empty hooks/none median", middle(&empty));
    for (threads, ratio) in THREADS.iter().zip(empty) {
        measured.also(format!("empty hooks/none, {threads} threads"), ratio);
    }
    measured.plots = [a, b, c].iter().map(|panel| panel.plot(&results)).collect();
    Ok(measured)
}
