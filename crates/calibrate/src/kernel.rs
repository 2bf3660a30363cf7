//! The profile's figures for the kernel.

use crate::alone;
use crate::layout::Layout;
use crate::ledger::{Ledger, Probe};
use crate::line::Pair;
use crate::memory::Lines;
use crate::stats::{Estimate, Sample};
use crate::together::on;
use crate::{Effort, Error, power, repeat, sched, sleep};
use lockwright_numbers::format::time;
use lockwright_numbers::median;
use lockwright_sim::profile::Kernel;
use std::time::Duration;

/// Sleeps whose wakes are compared, to detect a deeper idle state, ns.
const SLEEPS: [u64; 5] = [60_000, 250_000, 1_000_000, 4_000_000, 16_000_000];
/// Lengths of sleeps beside a running thread, to find out how long that runs undisturbed, ns.
const RUNS: [u64; 6] = [100_000, 300_000, 1_000_000, 2_000_000, 4_000_000, 8_000_000];
/// A sleep whose end is compared with what was asked for, ns.
const TIMED: u64 = 100_000;

/// Why figures are assumed.
const ONE_CPU: &str = "no second CPU to measure it with; a round figure";

pub(crate) fn measure(
    layout: &Layout,
    lines: &Lines,
    ledger: &mut Ledger,
    effort: Effort,
    step: &mut dyn FnMut(&str),
) -> Result<Kernel, Error> {
    let cpu = layout.core_of(0);
    step("deep idle");
    let deep = Deep::measure(layout, lines, effort)?;
    step("threads on one CPU");
    let one = OneCpu::measure(cpu, effort)?;
    step("interrupts");
    let noise = Interrupts::measure(&layout.cores(), effort)?;
    step("power");
    let switch_ns = ledger.measured(
        "kernel.switch_ns",
        &one.switch,
        Probe::Cycle,
        "two threads on one CPU that yield to each other (sched_yield), minus the time of a yield without another thread",
    );
    let (bucket_ns, bucket_contention) = bucket(layout, lines, ledger);
    let less = |estimate: &Estimate, ns: f64| estimate.map(|whole| (whole - ns).max(0.0));
    let sleep_ns = ledger.measured(
        "kernel.sleep_ns",
        &less(&one.hand_over, switch_ns + bucket_ns),
        Probe::Cycle,
        "from a futex wait until another thread runs on that CPU, minus switch_ns and bucket_ns",
    );
    let wake_ns = ledger.or_assumed(
        "kernel.wake_ns",
        lines.wake_call.map(|call| less(&call, bucket_ns)).as_ref(),
        Probe::Line,
        "a futex wake call, for a sleeper on another, idle CPU, minus bucket_ns",
        (1500.0, ONE_CPU),
    );
    let turnaround_ns = ledger.or_assumed(
        "kernel.turnaround_ns",
        lines.turnaround.as_ref(),
        Probe::Line,
        "from the wake call until the sleeper, asleep for 0.06 ms on an idle CPU, runs",
        (5000.0, ONE_CPU),
    );
    let (deep_after_ns, deep_exit_ns) = deep.enter(ledger);
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease");
    let release = version(&release.unwrap_or_default());
    let (buckets, by) = buckets(release, layout.cores().len() as u32);
    let timer_slack_ns = ledger.measured(
        "kernel.timer_slack_ns",
        &less(&one.late, switch_ns),
        Probe::Cycle,
        "a futex wait with a deadline in 0.1 ms, on an idle CPU: how long after the deadline it runs, minus switch_ns",
    );
    let slice_ns = ledger.measured(
        "kernel.slice_ns",
        &one.slice,
        Probe::Cycle,
        "two threads on one CPU that never sleep: how long each runs at a time",
    );
    let (granularity, tried, how) = one.granularity(timer_slack_ns, slice_ns);
    let path = "kernel.wakeup_granularity_ns";
    let wakeup_granularity_ns = match tried {
        Some(tried) => ledger.between(path, granularity, tried, &how),
        None => ledger.assumed(path, granularity, &how),
    };
    Ok(Kernel {
        sleep_ns,
        wake_ns,
        turnaround_ns,
        deep_after_ns,
        deep_exit_ns,
        bucket_ns,
        bucket_contention,
        wakes_in_bucket: ((1, 0)..(4, 2)).contains(&release),
        buckets: ledger.published("kernel.buckets", f64::from(buckets), by) as u32,
        timer_slack_ns,
        slice_ns,
        switch_ns,
        wakeup_granularity_ns,
        noise_every_ns: ledger.measured(
            "kernel.noise_every_ns",
            &noise.every,
            Probe::Cycle,
            &format!(
                "a loop that looks at the clock: gaps of 1 µs to 0.5 ms ({} longer ones left out: other threads, or the machine stood still)",
                noise.stalls
            ),
        ),
        noise_ns: ledger.measured("kernel.noise_ns", &noise.length, Probe::Cycle, "length of those gaps"),
        package_w: power::of_package(ledger, effort.time / 8),
        uncore_w: 0.0, // what the first busy core wakes is counted as part of the cores
    })
}

/// `kernel.bucket_ns` and `kernel.bucket_contention`.
fn bucket(layout: &Layout, lines: &Lines, ledger: &mut Ledger) -> (f64, f64) {
    let bucket_ns = ledger.or_assumed(
        "kernel.bucket_ns",
        lines.bucket_by_two.or(lines.bucket).as_ref(),
        Probe::Line,
        "two CPUs look for sleepers in one bucket: time between two such calls (an upper bound)",
        (150.0, ONE_CPU),
    );
    let more = layout.cores().len().saturating_sub(2);
    let contention = lines
        .bucket
        .zip(lines.bucket_by_two)
        .map(|(all, two)| all.map(|ns| ((ns / two.median - 1.0) / more as f64).max(0.0)));
    let bucket_contention = ledger.or_assumed(
        "kernel.bucket_contention",
        contention.as_ref(),
        Probe::Line,
        &format!("the same of all CPUs, to that of two, for each of the other {more}"),
        (0.1, "fewer than three CPUs: at most one CPU waits for a bucket; a round figure"),
    );
    (bucket_ns, bucket_contention)
}

/// Number of the futexes' hash buckets, and its source.
fn buckets(release: (u32, u32), cpus: u32) -> (u32, &'static str) {
    if release >= (6, 16) {
        let private = (4 * cpus).next_power_of_two().max(16);
        (
            private,
            "Linux from 6.16 on (kernel/futex/core.c): a process has its own, four for each CPU and 16 at least",
        )
    } else {
        let all = (256 * cpus).next_power_of_two();
        (all, "Linux before 6.16 (kernel/futex/core.c): 256 for each CPU")
    }
}

/// The first two numbers of a kernel's release; what can't be read is 0.
fn version(release: &str) -> (u32, u32) {
    let mut parts =
        release.split(|c: char| !c.is_ascii_digit()).map_while(|part| part.parse::<u32>().ok());
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

/// How a wake depends on how long the sleeper has slept.
#[derive(Debug, Default)]
struct Deep {
    /// Turnarounds after [`SLEEPS`]; empty without a second CPU.
    turnarounds: Vec<Estimate>,
}

impl Deep {
    fn measure(layout: &Layout, lines: &Lines, effort: Effort) -> Result<Self, Error> {
        let Some((waker, sleeper)) = layout.main_pair() else { return Ok(Self::default()) };
        let mut pair = Pair::new(waker, sleeper);
        let mut samples = vec![Vec::new(); SLEEPS.len()];
        repeat(effort.rounds / 5, 2 * effort.time, || {
            for (samples, ns) in samples.iter_mut().zip(SLEEPS) {
                let woken = pair.sample(|pair| sleep::wake(pair.to, pair.from, ns, 3));
                samples.push(woken.of(|woken| woken.turnaround_ns));
            }
        })?;
        let estimate = |samples: &Vec<Sample>| Estimate::of(samples, lines.regime.as_ref());
        Ok(Self { turnarounds: samples.iter().filter_map(estimate).collect() })
    }

    /// `kernel.deep_after_ns` and `kernel.deep_exit_ns`.
    fn enter(&self, ledger: &mut Ledger) -> (f64, f64) {
        let seen: Vec<_> = SLEEPS.iter().zip(&self.turnarounds).collect();
        let shown = seen
            .iter()
            .map(|(sleep, t)| format!("{} after {}", time(t.median), time(**sleep as f64)));
        let shown = shown.collect::<Vec<_>>().join(", ");
        let Some((step, exit)) = deepest(&self.turnarounds) else {
            let why = match seen.is_empty() {
                true => "one CPU: no sleeper on another CPU".to_owned(),
                false => format!("no deeper idle state shows: wakes take {shown}"),
            };
            let last = SLEEPS[SLEEPS.len() - 1] as f64;
            return (
                ledger.assumed("kernel.deep_after_ns", last, &why),
                ledger.assumed("kernel.deep_exit_ns", 0.0, &why),
            );
        };
        let tried = (SLEEPS[step - 1] as f64, SLEEPS[step] as f64);
        let after = (tried.0 * tried.1).sqrt();
        let how = format!("wakes take {shown}");
        let between = format!("{how}: the middle of the two between which that grows most");
        let later = self.turnarounds[step];
        let before = later.median - exit;
        (
            ledger.between("kernel.deep_after_ns", after, tried, &between),
            ledger.measured(
                "kernel.deep_exit_ns",
                &later.map(|ns| (ns - before).max(0.0)),
                Probe::Line,
                &how,
            ),
        )
    }
}

/// Between which two sleeps the wake-up time grows most (the index of the second), and by how much; `None`: by less
/// than half.
fn deepest(turnarounds: &[Estimate]) -> Option<(usize, f64)> {
    let growth = |step: &usize| turnarounds[*step].median / turnarounds[step - 1].median;
    let step = (1..turnarounds.len()).max_by(|a, b| growth(a).total_cmp(&growth(b)))?;
    let exit = turnarounds[step].median - turnarounds[step - 1].median;
    (growth(&step) >= 1.5).then_some((step, exit))
}

/// What threads do on one CPU.
#[derive(Debug)]
struct OneCpu {
    switch: Estimate,
    hand_over: Estimate,
    late: Estimate,
    slice: Estimate,
    /// How late a sleeper wakes up beside a running thread, for each of [`RUNS`], ns.
    beside: Vec<f64>,
}

impl OneCpu {
    fn measure(cpu: usize, effort: Effort) -> Result<Self, Error> {
        let rounds = |most: usize, measure: &dyn Fn() -> Vec<f64>| -> Result<Estimate, Error> {
            let mut samples = Vec::new();
            repeat(most, effort.time / 2, || {
                let before = on(cpu, alone::cycle);
                let values = measure();
                let after = on(cpu, alone::cycle);
                samples.extend(values.into_iter().map(|value| Sample { before, value, after }));
            })?;
            Ok(Estimate::of(&samples, None).expect("every round has a value"))
        };
        let mut beside = Vec::new();
        for ns in RUNS {
            let mut late = Vec::new();
            repeat(3, effort.time / 12, || late.extend(sched::woken_beside_a_runner(cpu, ns, 3)))?;
            beside.push(median(&late).expect("every round has a value"));
        }
        Ok(Self {
            switch: rounds(effort.rounds, &|| vec![sched::switch(cpu)])?,
            hand_over: rounds(effort.rounds, &|| vec![sleep::hand_over(cpu, 50)])?,
            late: rounds(effort.rounds, &|| vec![sleep::late(cpu, TIMED, 5)])?,
            slice: rounds(effort.rounds / 4, &|| sched::slices(cpu, Duration::from_millis(60)))?,
            beside,
        })
    }

    /// How long a running thread may run before a woken one preempts it: the shortest sleep that didn't end much later
    /// than on an idle CPU. Also the two sleeps between which it lies, unless all were too short.
    fn granularity(&self, slack_ns: f64, slice_ns: f64) -> (f64, Option<(f64, f64)>, String) {
        let shown = RUNS.iter().zip(&self.beside);
        let shown =
            shown.map(|(ns, late)| format!("{} late after {}", time(*late), time(*ns as f64)));
        let shown = shown.collect::<Vec<_>>().join(", ");
        let at_once = |late: f64| late < slack_ns + slice_ns / 8.0;
        let from =
            (0..RUNS.len()).find(|&first| self.beside[first..].iter().all(|&late| at_once(late)));
        let how = format!("a sleeper beside a thread that runs all the time: {shown}");
        match from {
            Some(0) => {
                let least = RUNS[0] as f64;
                (least, Some((0.0, least)), format!("{how}: it never waits, so at most"))
            }
            Some(first) => {
                let tried = (RUNS[first - 1] as f64, RUNS[first] as f64);
                (tried.1, Some(tried), how)
            }
            None => (slice_ns, None, format!("{how}: it always waits, so for the slice")),
        }
    }
}

/// Interrupts on all cores together.
#[derive(Debug)]
struct Interrupts {
    every: Estimate,
    length: Estimate,
    stalls: usize,
}

impl Interrupts {
    fn measure(cores: &[usize], effort: Effort) -> Result<Self, Error> {
        let time = effort.time / 20;
        let (mut every, mut length, mut stalls) = (Vec::new(), Vec::new(), 0);
        let mut turn = 0;
        repeat(20.max(cores.len()), 2 * effort.time, || {
            let cpu = cores[turn % cores.len()];
            turn += 1;
            let before = on(cpu, alone::cycle);
            let noise = sched::noise(cpu, time);
            let after = on(cpu, alone::cycle);
            let sample = |value| Sample { before, value, after };
            every.push(sample(noise.looked_ns / noise.gaps.len().max(1) as f64));
            length.extend(noise.gaps.iter().map(|&gap| sample(gap)));
            stalls += noise.stalls.len();
        })?;
        let none = [Sample { before: 1.0, value: 0.0, after: 1.0 }];
        let length = Estimate::of(&length, None).or_else(|| Estimate::of(&none, None));
        Ok(Self {
            every: Estimate::of(&every, None).expect("looked at least thrice"),
            length: length.expect("one sample at least"),
            stalls,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wakes(us: &[f64]) -> Vec<Estimate> {
        let estimate = |us: &f64| {
            let sample = Sample { before: 1.0, value: us * 1e3, after: 1.0 };
            Estimate::of(&[sample], None).unwrap()
        };
        us.iter().map(estimate).collect()
    }

    #[test]
    fn a_deep_idle_state_shows_where_wakes_grow_most() {
        let deep = Deep { turnarounds: wakes(&[5.0, 5.5, 40.0, 42.0, 42.0]) };
        assert_eq!(deepest(&deep.turnarounds), Some((2, 34_500.0)));
        let mut ledger = Ledger::default();
        assert_eq!(deep.enter(&mut ledger), (500_000.0, 34_500.0));
        assert_eq!(ledger.figures()[0].between, Some((250e3, 1e6)));
    }

    #[test]
    fn where_wakes_do_not_grow_there_is_none() {
        assert_eq!(deepest(&wakes(&[5.0, 5.5, 6.0, 6.0, 6.5])), None);
        let mut ledger = Ledger::default();
        assert_eq!(Deep::default().enter(&mut ledger), (16e6, 0.0));
        assert!(ledger.figures()[0].source.starts_with("one CPU"));
    }

    #[test]
    fn a_runner_is_left_alone_until_no_wake_waits_any_more() {
        let estimate = || wakes(&[1.0])[0];
        let one = |beside: [f64; 6]| OneCpu {
            switch: estimate(),
            hand_over: estimate(),
            late: estimate(),
            slice: estimate(),
            beside: beside.map(|us| us * 1e3).to_vec(),
        };
        let granularity = |beside| {
            let (value, tried, _) = one(beside).granularity(50e3, 3e6);
            (value, tried)
        };
        assert_eq!(granularity([60.0; 6]), (100e3, Some((0.0, 100e3))));
        let waits_twice = [2000.0, 60.0, 1500.0, 60.0, 60.0, 60.0];
        assert_eq!(granularity(waits_twice), (2e6, Some((1e6, 2e6))));
        assert_eq!(granularity([2500.0; 6]), (3e6, None));
    }

    #[test]
    fn kernels_from_6_16_on_have_private_buckets() {
        assert_eq!(version("6.18.44-generic\n"), (6, 18));
        assert_eq!(version("7.0-rc1"), (7, 0));
        assert_eq!(version(""), (0, 0));
        assert_eq!(
            (buckets((6, 8), 6).0, buckets((6, 16), 2).0, buckets((7, 0), 24).0),
            (2048, 16, 128)
        );
    }
}
