//! Lines between cores: the rounds of samples, and the profile's figures for memory.

use crate::layout::Layout;
use crate::ledger::{Ledger, Probe};
use crate::line::{self, Hammered, Pair};
use crate::sleep;
use crate::stats::{Estimate, Regime, Sample, Wanted};
use crate::{Effort, Error, repeat};
use lockwright_numbers::format::{digits, time};
use lockwright_sim::profile::{Cluster, Memory};

/// A sleep too short for the sleeper's CPU to become deeply idle, ns.
pub(crate) const SHORT_SLEEP_NS: u64 = 60_000;
/// Turns of waiting between two attempts at a line: enough that the attempts don't follow each other back to back.
const SPACED: u32 = 32;
/// Assumed for a machine whose transfers can't be measured, ns.
const SOME_LATENCY: f64 = 50.0;

/// What was measured between cores; nothing if there is only one.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    pub(crate) regimes: Vec<Regime>,
    pub(crate) regime: Option<Regime>,
    /// One line transfer, on the pair that stands for the machine.
    transfer: Option<Estimate>,
    /// One-way time of the ping-pong that served as probe.
    ping_pong: Option<Estimate>,
    hand_over: Option<Estimate>,
    block: Option<Estimate>,
    interval: Option<Estimate>,
    /// Operations between two transfers of a line that all CPUs change as fast as they can.
    run: Option<Estimate>,
    share: Option<Estimate>,
    pub(crate) wake_call: Option<Estimate>,
    pub(crate) turnaround: Option<Estimate>,
    pub(crate) bucket: Option<Estimate>,
    pub(crate) bucket_by_two: Option<Estimate>,
    /// Each class's chances to win a line, relative to the slowest class: back to back, and spaced.
    pub(crate) back_to_back: Vec<Option<Estimate>>,
    pub(crate) spaced: Vec<Option<Estimate>>,
    /// Transfers to a core of a cluster (first index) from a core of another.
    pairs: Vec<Vec<Option<Estimate>>>,
    siblings: Option<Estimate>,
}

/// The samples of the pair that stands for the machine.
#[derive(Debug, Default)]
struct Samples {
    transfer: Vec<Sample>,
    hand_over: Vec<Sample>,
    block: Vec<Sample>,
    interval: Vec<Sample>,
    run: Vec<Sample>,
    share: Vec<Sample>,
    wake_call: Vec<Sample>,
    turnaround: Vec<Sample>,
    bucket: Vec<Sample>,
    bucket_by_two: Vec<Sample>,
    back_to_back: Vec<Vec<Sample>>,
    spaced: Vec<Vec<Sample>>,
}

impl Lines {
    pub(crate) fn measure(
        layout: &Layout,
        wanted: Wanted,
        effort: Effort,
        step: &mut dyn FnMut(&str),
    ) -> Result<Self, Error> {
        let classes = layout.classes.len();
        let clusters = layout.clusters.len();
        let mut lines = Self {
            back_to_back: vec![None; classes],
            spaced: vec![None; classes],
            pairs: vec![vec![None; clusters]; clusters],
            ..Self::default()
        };
        step("lines between cores");
        let Some((to, from)) = layout.main_pair() else {
            step("pairs of cores");
            return Ok(lines);
        };
        let samples = Samples::take(layout, Pair::new(to, from), effort)?;
        let probes: Vec<_> = samples.transfer.iter().flat_map(|s| [s.before, s.after]).collect();
        lines.regimes = Regime::all(&probes);
        lines.regime = Regime::choose(&lines.regimes, wanted);
        let regime = lines.regime;
        let estimate = |samples: &[Sample]| Estimate::of(samples, regime.as_ref());
        lines.transfer = estimate(&samples.transfer);
        let as_probed: Vec<_> =
            samples.transfer.iter().map(|s| Sample { value: s.before, ..*s }).collect();
        lines.ping_pong = estimate(&as_probed);
        lines.hand_over = estimate(&samples.hand_over);
        lines.block = estimate(&samples.block);
        lines.interval = estimate(&samples.interval);
        lines.run = estimate(&samples.run);
        lines.share = estimate(&samples.share);
        lines.wake_call = estimate(&samples.wake_call);
        lines.turnaround = estimate(&samples.turnaround);
        lines.bucket = estimate(&samples.bucket);
        lines.bucket_by_two = estimate(&samples.bucket_by_two);
        lines.back_to_back = samples.back_to_back.iter().map(|s| estimate(s)).collect();
        lines.spaced = samples.spaced.iter().map(|s| estimate(s)).collect();

        step("pairs of cores");
        let number = (clusters * clusters) as u32;
        for (a, b) in (0..clusters).flat_map(|a| (0..clusters).map(move |b| (a, b))) {
            lines.pairs[a][b] = match layout.pair(a, b) {
                Some(pair) if pair == (to, from) => lines.transfer,
                Some((to, from)) => transfers(to, from, wanted, effort, number)?,
                None => None,
            };
        }
        if let Some((one, other)) = layout.siblings() {
            lines.siblings = transfers(one, other, wanted, effort, 4)?;
        }
        Ok(lines)
    }

    /// Transfers to cores of that class, relative to transfers to the fastest class: each pair, in both directions.
    pub(crate) fn latency_of(&self, layout: &Layout, class: usize) -> Option<Estimate> {
        let of = |class| {
            let clusters = layout.clusters.iter().enumerate();
            clusters.filter(move |(_, cluster)| cluster.class == class).map(|(number, _)| number)
        };
        let mut pairs = of(0).flat_map(|fast| of(class).map(move |slow| (fast, slow)));
        pairs.find_map(|(fast, slow)| {
            let to_fast = self.pairs[fast][slow]?;
            self.pairs[slow][fast].map(|to_slow| to_slow.map(|ns| ns / to_fast.median))
        })
    }
}

/// Line transfers of one pair, in its own regime.
fn transfers(
    to: usize,
    from: usize,
    wanted: Wanted,
    effort: Effort,
    parts: u32,
) -> Result<Option<Estimate>, Error> {
    let mut pair = Pair::new(to, from);
    let mut samples = Vec::new();
    repeat(effort.rounds / 3, effort.time / parts, || {
        samples.push(pair.sample(Pair::transfer).of(|ns| *ns));
    })?;
    let probes: Vec<_> = samples.iter().flat_map(|s| [s.before, s.after]).collect();
    let regime = Regime::choose(&Regime::all(&probes), wanted);
    Ok(Estimate::of(&samples, regime.as_ref()))
}

impl Samples {
    fn take(layout: &Layout, mut pair: Pair, effort: Effort) -> Result<Self, Error> {
        let cores = layout.cores();
        // Without a second core, two threads of one core.
        let hammering = if cores.len() > 1 { cores.clone() } else { vec![pair.to, pair.from] };
        let classes = layout.classes.len();
        let mut samples = Self {
            back_to_back: vec![Vec::new(); classes],
            spaced: vec![Vec::new(); classes],
            ..Self::default()
        };
        repeat(effort.rounds, 4 * effort.time, || {
            samples.transfer.push(pair.sample(Pair::transfer).of(|ns| *ns));
            samples.hand_over.push(pair.sample(Pair::hand_over).of(|ns| *ns));
            samples.block.push(pair.sample(Pair::block).of(|ns| *ns));
            let hammered = pair.sample(|_| line::hammer(&hammering, 0));
            samples.interval.push(hammered.of(|hammered| hammered.interval_ns));
            samples.run.push(hammered.of(|hammered| hammered.run));
            if classes > 1 {
                let spaced = pair.sample(|_| line::hammer(&hammering, SPACED));
                for class in 0..classes {
                    let chance = |h: &Hammered| chance(layout, h, class);
                    samples.back_to_back[class].push(hammered.of(chance));
                    samples.spaced[class].push(spaced.of(chance));
                }
            }
            if cores.len() > 2 {
                samples.share.push(pair.sample(|_| line::share(&cores)).of(|ns| *ns));
                samples
                    .bucket_by_two
                    .push(pair.sample(|_| sleep::bucket(&cores[..2])).of(|ns| *ns));
            }
            let woken = pair.sample(|pair| sleep::wake(pair.to, pair.from, SHORT_SLEEP_NS, 5));
            samples.wake_call.push(woken.of(|woken| woken.call_ns));
            samples.turnaround.push(woken.of(|woken| woken.turnaround_ns));
            samples.bucket.push(pair.sample(|_| sleep::bucket(&hammering)).of(|ns| *ns));
        })?;
        Ok(samples)
    }
}

/// The operations of a core of that class, relative to one of the slowest class.
fn chance(layout: &Layout, hammered: &Hammered, class: usize) -> f64 {
    let class_of = layout.clusters.iter().flat_map(|c| c.cores.iter().map(|_| c.class));
    let (mut own, mut slowest) = ((0u64, 0u64), (0u64, 0u64));
    for (of, &done) in class_of.zip(&hammered.done) {
        for (wanted, sum) in [(class, &mut own), (layout.classes.len() - 1, &mut slowest)] {
            if of == wanted {
                *sum = (sum.0 + done, sum.1 + 1);
            }
        }
    }
    let each = |(done, cores): (u64, u64)| done as f64 / cores.max(1) as f64;
    each(own) / each(slowest).max(1.0)
}

/// The clusters, as the kernel reports them.
pub(crate) fn clusters(layout: &Layout, ledger: &mut Ledger) -> Vec<Cluster> {
    let how = format!("the kernel's topology (what shares a cache: {})", layout.clusters_from);
    let cluster = |(number, cluster): (usize, &crate::layout::Cluster)| {
        let cores =
            ledger.told(&format!("cluster.{number}.cores"), cluster.cores.len() as f64, &how);
        let domain =
            ledger.told(&format!("cluster.{number}.domain"), f64::from(cluster.node), &how);
        let class = layout.classes[cluster.class].name.clone();
        Cluster { class, cores: cores as u32, domain: domain as u16 }
    };
    layout.clusters.iter().enumerate().map(cluster).collect()
}

/// The figures for transfers of cache lines. `cold_ns` is a figure of a core.
pub(crate) fn memory(
    layout: &Layout,
    lines: &Lines,
    cold: &Estimate,
    atomic_ns: f64,
    ledger: &mut Ledger,
) -> Memory {
    const ONE_CPU: &str = "no second CPU to measure it with; a round figure";
    let latency_ns = latencies(layout, lines, ledger);
    let transfer = lines.transfer.map_or(SOME_LATENCY, |estimate| estimate.median).max(1.0);
    let run = lines.run.map_or(1.0, |run| run.median);
    let busy = |interval_ns| blocked(interval_ns, run * atomic_ns, transfer);
    let occupancy = lines.interval.map(|interval| interval.map(|ns| busy(ns).0));
    let hold = lines.interval.map(|interval| interval.map(|ns| busy(ns).1));
    let overlap = lines.block.map(|block| block.map(|ns| (Pair::BLOCK * transfer / ns).max(1.0)));
    let cores = layout.cores().len();
    let check = lines.hand_over.map_or(String::new(), |hand_over| {
        format!(
            "{} (the simulator makes a store that a spinning CPU sees out of 1 + occupancy transfers; measured: {}, {} transfers)",
            if cores > 2 { "" } else { ", with two CPUs an upper bound" },
            time(hand_over.median),
            digits(hand_over.median / transfer),
        )
    });
    Memory {
        latency_ns,
        sibling_ns: ledger.or_assumed(
            "memory.sibling_ns",
            lines.siblings.as_ref(),
            Probe::Line,
            "lines that a core's other thread wrote last, each after the one before",
            (0.0, "no core here has two threads"),
        ),
        cold_ns: ledger.measured(
            "memory.cold_ns",
            cold,
            Probe::Cycle,
            "lines flushed from all caches, each read and changed after the one before, less the same from the own cache",
        ),
        occupancy: ledger.or_assumed(
            "memory.occupancy",
            occupancy.as_ref(),
            Probe::Line,
            &format!(
                "{} CPUs swap one word as fast as they can, {} times between two transfers of its line: the time between, less what the owner can use, by the length of one{check}",
                cores.max(2),
                digits(run),
            ),
            (0.5, ONE_CPU),
        ),
        hold_ns: ledger.or_assumed(
            "memory.hold_ns",
            hold.as_ref(),
            Probe::Line,
            "the rest of that time",
            (0.0, ONE_CPU),
        ),
        // Otherwise it takes two: one for a copy, one for the right to write.
        migrates: lines.ping_pong.is_some_and(|one_way| one_way.median < 1.5 * transfer),
        share_ns: ledger.or_assumed(
            "memory.share_ns",
            lines.share.as_ref(),
            Probe::Line,
            &format!("{} CPUs wait for a line to be written: by how much later each further one sees it", cores.max(2) - 1),
            (6.0, "fewer than three CPUs: a line has one other reader; as the profile m1"),
        ),
        overlap: ledger.or_assumed(
            "memory.overlap",
            overlap.as_ref(),
            Probe::Line,
            &format!(
                "{} lines that another CPU wrote last, changed as a critical section does, by the length of as many single transfers",
                Pair::BLOCK
            ),
            (2.0, ONE_CPU),
        ),
        local_weight: ledger.assumed(
            "memory.local_weight",
            1.0,
            if layout.clusters.len() == 1 {
                "one cluster: no core is further away"
            } else {
                "not measured: all cores have equal chances"
            },
        ),
        back_to_back_ns: ledger.assumed(
            "memory.back_to_back_ns",
            400.0,
            "as the profile m1; it matters only where classes of cores have other chances",
        ),
        jitter: ledger.assumed("memory.jitter", 0.05, "a round figure: single transfers are too short to be timed one by one"),
    }
}

/// The share of a transfer that blocks the line, and how much longer its owner keeps it, ns, both as the simulator
/// defines them. The owner has the line from `(1 + occupancy) / 2` transfers on, until `occupancy` transfers and the
/// hold are over.
fn blocked(interval_ns: f64, used_ns: f64, transfer_ns: f64) -> (f64, f64) {
    let until_used = ((interval_ns - used_ns) / transfer_ns).max(0.0);
    let occupancy = (2.0 * until_used - 1.0).clamp(0.0, 1.0);
    (occupancy, (interval_ns - occupancy * transfer_ns).max(0.0))
}

/// Latencies to a cluster (row) from another (column), as if the requester were of the fastest class.
fn latencies(layout: &Layout, lines: &Lines, ledger: &mut Ledger) -> Vec<Vec<f64>> {
    let count = layout.clusters.len();
    let class = |cluster: usize| layout.clusters[cluster].class;
    let slower = |class: usize| match class {
        0 => 1.0,
        _ => lines.latency_of(layout, class).map_or(1.0, |ratio| ratio.median),
    };
    let known = |a: usize, b: usize| match (class(a), class(b)) {
        (0, _) => lines.pairs[a][b],
        // In the other direction the requester is of the fastest class.
        (_, 0) => lines.pairs[b][a],
        (requester, _) => lines.pairs[a][b].map(|pair| pair.map(|ns| ns / slower(requester))),
    };
    let cells = || (0..count).flat_map(|a| (0..count).map(move |b| (a, b)));
    let least = cells()
        .filter_map(|(a, b)| known(a, b))
        .map(|pair| pair.median)
        .fold(f64::INFINITY, f64::min);
    let (some, why) = match least.is_finite() {
        true => (least, "a cluster of one core: the shortest of the others"),
        false => (SOME_LATENCY, "no second CPU to fetch a line from; a round figure"),
    };
    let mut how = "lines that the other CPU wrote last, each read and changed after the one before, less the same in the own cache"
        .to_owned();
    if let Some(ping_pong) = lines.ping_pong {
        how += &format!(" (one way of a ping-pong: {})", time(ping_pong.median));
    }
    if let Some(regime) = &lines.regime
        && lines.regimes.len() > 1
    {
        how += &format!(" (the regime chosen: {})", regime.words());
    }
    let mut rows = vec![vec![0.0; count]; count];
    for (a, b) in cells() {
        let path = format!("memory.latency_ns[{a}][{b}]");
        rows[a][b] = ledger.or_assumed(&path, known(a, b).as_ref(), Probe::Line, &how, (some, why));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_owner_uses_of_an_interval_does_not_block_the_line() {
        let near =
            |a: (f64, f64), b: (f64, f64)| (a.0 - b.0).abs() < 1e-9 && (a.1 - b.1).abs() < 1e-9;
        assert!(near(blocked(80.0, 20.0, 100.0), (0.2, 60.0)));
        // The owner could use nearly all of the time.
        assert!(near(blocked(70.0, 40.0, 90.0), (0.0, 70.0)));
    }
}
