//! Tests of the feedback: bounds, and whether synthetic latencies end up at the percentile.

extern crate std;

use super::*;
use proptest::prelude::*;
use std::{vec, vec::Vec};

const PERCENTILES: [u32; 4] = [900_000, 950_000, 990_000, 999_000];

fn percentile(millionths: u32) -> Percentile {
    Percentile::from_millionths(millionths).unwrap()
}

#[test]
fn percentiles_are_read_as_decimals() {
    for (text, millionths) in [
        ("99", 990_000),
        ("99.9", 999_000),
        ("90", 900_000),
        ("90.0", 900_000),
        ("97.25", 972_500),
        ("99.", 990_000),
    ] {
        assert_eq!(Percentile::parse(text.as_bytes()), Some(percentile(millionths)), "{text}");
    }
    for bad in [
        "",
        "89.9",
        "99.91",
        "100",
        "p99",
        "99,9",
        "9 9",
        "-99",
        "99.9.9",
        "999999999999",
        "99.12345",
    ] {
        assert_eq!(Percentile::parse(bad.as_bytes()), None, "{bad}");
    }
}

fn any_percentile() -> impl Strategy<Value = Percentile> {
    (900_000_u32..=999_000).prop_map(percentile)
}

/// Of every order of magnitude.
fn any_ns() -> impl Strategy<Value = u64> {
    (0_u32..64, any::<u64>()).prop_map(|(shift, ns)| ns >> shift)
}

/// Units come from a first window, and from windows up to the cap.
fn any_feedback() -> impl Strategy<Value = Feedback> {
    (0..=WINDOW_MAX_NS, 1..=WINDOW_MAX_NS / 10)
        .prop_map(|(window_ns, unit_ns)| Feedback { window_ns, unit_ns })
}

proptest! {
    #[test]
    fn the_window_is_bounded_and_can_always_grow(
        start in any_feedback(),
        percentile in any_percentile(),
        slo in any_ns(),
        latencies in prop::collection::vec(any_ns(), 1..200),
    ) {
        let mut now = start;
        for latency in latencies {
            let next = now.after(latency, slo, percentile);
            prop_assert!(next.window_ns <= WINDOW_MAX_NS);
            prop_assert!((1..=WINDOW_MAX_NS / 5).contains(&next.unit_ns));
            if latency > slo {
                prop_assert_eq!(next.window_ns, now.window_ns / 2);
            } else {
                prop_assert!(next.window_ns > now.window_ns || next.window_ns == WINDOW_MAX_NS);
            }
            now = next;
        }
    }

    #[test]
    fn a_longer_latency_never_gives_a_longer_window(
        start in any_feedback(), percentile in any_percentile(), slo in any_ns(), a in any_ns(), b in any_ns(),
    ) {
        let (short, long) = (a.min(b), a.max(b));
        let after = |latency| start.after(latency, slo, percentile).window_ns;
        prop_assert!(after(long) <= after(short));
    }

    #[test]
    fn after_a_violation_the_window_is_back_when_the_percentile_says(
        window in 100_000..=WINDOW_MAX_NS, percentile in any_percentile(),
    ) {
        let mut now = Feedback { window_ns: window, unit_ns: 1 }.after(2, 1, percentile);
        let mut executions = 0_u64;
        while now.window_ns < window / 2 * 2 {
            now = now.after(1, 1, percentile);
            executions += 1;
        }
        let expected = MILLION / percentile.spare();
        prop_assert!(executions.abs_diff(expected) <= expected / 20 + 1, "{executions}: {expected}");
    }

    #[test]
    fn the_first_window_is_the_slo_and_grows_by_its_share(slo in any_ns(), percentile in any_percentile()) {
        let first = Feedback::first(slo, percentile);
        prop_assert_eq!(u64::from(first.window_ns), slo.min(WINDOW_MAX_NS.into()));
        prop_assert_eq!(first.unit_ns, percentile.unit_ns(first.window_ns).max(1));
    }
}

/// A machine for one thread: its latencies are a function of the window.
struct Machine {
    seed: u64,
    now: Feedback,
    slo: u64,
    percentile: Percentile,
}

/// The result of a run of executions.
struct Run {
    violations: f64,
    windows: Vec<u32>,
    /// Latencies, sorted.
    latencies: Vec<u64>,
}

impl Machine {
    fn new(slo: u64, percentile: Percentile) -> Self {
        Self { seed: 0x9E37_79B9_7F4A_7C15, now: Feedback::first(slo, percentile), slo, percentile }
    }

    /// From 0 to 1.
    fn random(&mut self) -> f64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        (self.seed >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn run(&mut self, count: usize, latency: impl Fn(f64, &mut Self) -> f64) -> Run {
        let mut run = Run { violations: 0.0, windows: vec![], latencies: vec![] };
        for _ in 0..count {
            let ns = latency(self.now.window_ns.into(), self) as u64;
            run.violations += f64::from(u8::from(ns > self.slo)) / count as f64;
            run.windows.push(self.now.window_ns);
            run.latencies.push(ns);
            self.now = self.now.after(ns, self.slo, self.percentile);
        }
        run.latencies.sort_unstable();
        run
    }
}

/// Some critical sections, overtaken as often as the window allows, and a machine that is never quite still.
fn noisy(window: f64, machine: &mut Machine) -> f64 {
    let base = 4_000.0 + 2_000.0 * machine.random();
    let overtaken = window * (0.9 + 0.1 * machine.random());
    base + overtaken
}

/// Violations reach the share that the percentile allows, and at least half of it: with fewer, the window
/// would be smaller than it could be.
#[test]
fn violations_converge_to_the_percentile() {
    for millionths in PERCENTILES {
        let percentile = percentile(millionths);
        let spare = percentile.spare() as f64 / MILLION as f64;
        let mut machine = Machine::new(100_000, percentile);
        machine.run((5.0 / spare) as usize, noisy);
        let run = machine.run((2_000.0 / spare) as usize, noisy);
        std::println!("P{}: {} of {spare}", f64::from(millionths) / 1e4, run.violations);
        assert!(
            (0.5..=1.05).contains(&(run.violations / spare)),
            "{millionths}: {}",
            run.violations
        );
        // The latency at the percentile is the SLO.
        let at = run.latencies[(run.latencies.len() as f64 * (1.0 - spare)) as usize];
        assert!((0.95..=1.05).contains(&(at as f64 / 100_000.0)), "{millionths}: {at}");
    }
}

/// Waits that reach from nothing to the whole window: most executions never use it.
#[test]
fn violations_stay_within_the_percentile_when_waits_vary() {
    let wide = |window: f64, machine: &mut Machine| 5_000.0 + window * machine.random();
    for millionths in PERCENTILES {
        let percentile = percentile(millionths);
        let spare = percentile.spare() as f64 / MILLION as f64;
        let mut machine = Machine::new(100_000, percentile);
        machine.run((5.0 / spare) as usize, wide);
        let run = machine.run((2_000.0 / spare) as usize, wide);
        std::println!("P{}: {} of {spare}", f64::from(millionths) / 1e4, run.violations);
        assert!(
            (0.4..=1.05).contains(&(run.violations / spare)),
            "{millionths}: {}",
            run.violations
        );
    }
}

#[test]
fn an_slo_out_of_reach_closes_the_window_and_a_later_phase_opens_it_again() {
    for millionths in PERCENTILES {
        let percentile = percentile(millionths);
        let spare = percentile.spare() as f64 / MILLION as f64;
        let mut machine = Machine::new(100_000, percentile);
        // Half of the executions are too slow, whatever the window.
        let crowded = |window: f64, machine: &mut Machine| 200_000.0 * machine.random() + window;
        machine.run(100, crowded);
        let run = machine.run((100.0 / spare) as usize, crowded);
        // Negligible: a 64th of the SLO.
        assert!(run.windows.iter().all(|&window| window < 100_000 / 64), "{millionths}");
        // A calm phase: 95 us may be spent on being overtaken.
        let run = machine.run((25.0 / spare) as usize, noisy);
        let opened = run.windows.iter().position(|&window| window > 80_000);
        std::println!("P{}: open after {opened:?}", f64::from(millionths) / 1e4);
        assert!(opened.is_some(), "{millionths}: {:?}", run.windows.last());
    }
}

#[test]
fn the_window_follows_a_change_of_load() {
    let mut machine = Machine::new(100_000, Percentile::P99);
    let with =
        |factor: f64| move |window: f64, machine: &mut Machine| noisy(window * factor, machine);
    machine.run(1_000, with(1.0));
    // Ten times as much waiting for the same window: it shrinks within a few violations.
    let run = machine.run(1_000, with(10.0));
    assert!(run.violations < 0.02, "{}", run.violations);
    assert!(run.windows[20..].iter().all(|&window| window < 11_000));
    // And back.
    let run = machine.run(3_000, with(1.0));
    assert!(*run.windows.iter().max().unwrap() > 80_000);
    assert!(run.violations < 0.015, "{}", run.violations);
}

/// One epoch with two code paths: the long one decides, and nothing violates more often than it may.
#[test]
fn heterogeneous_executions_keep_the_slo() {
    for share in [0.05, 0.5, 0.95] {
        let mixed = |window: f64, machine: &mut Machine| {
            let is_long = machine.random() < share;
            let own = if is_long { 50_000.0 } else { 500.0 };
            own + window * (0.8 + 0.2 * machine.random())
        };
        let mut machine = Machine::new(100_000, Percentile::P99);
        machine.run(1_000, mixed);
        let run = machine.run(200_000, mixed);
        std::println!("{share}: {}", run.violations);
        assert!((0.004..0.0105).contains(&run.violations), "{share}: {}", run.violations);
        let at = run.latencies[198_000];
        assert!(at <= 100_500, "{share}: P99 {at}");
    }
}

/// An epoch that now and then loses its CPU loses half of its window, and gets it back soon.
#[test]
fn a_rare_stall_costs_little() {
    let stalled = |window: f64, machine: &mut Machine| {
        if machine.random() < 0.000_5 { 4_000_000.0 } else { noisy(window, machine) }
    };
    let mut machine = Machine::new(100_000, Percentile::P99);
    machine.run(1_000, noisy);
    let calm = machine.run(50_000, noisy);
    let with = machine.run(50_000, stalled);
    let mean = |run: &Run| run.windows.iter().map(|&ns| f64::from(ns)).sum::<f64>() / 50_000.0;
    assert!(mean(&with) > 0.9 * mean(&calm), "{} {}", mean(&with), mean(&calm));
    assert!(with.violations < 0.0115, "{}", with.violations);
}
