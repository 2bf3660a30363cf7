//! Energy: a machine draws what its profile says for what its cores do.

use lockwright_sim::{LockSpec, Outcome, Placement, Run, profile, workload};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Watts of `threads` on the Xeon. Each repeatedly draws a lock and holds it for `cs` cycles.
fn run(lock: &str, threads: u32, locks: f64, cs: f64) -> Outcome {
    let profile = profile::builtin("xeon-2x10").unwrap();
    let lock = LockSpec::parse(lock).unwrap();
    let params = BTreeMap::from([
        ("locks".to_owned(), locks),
        ("cs".to_owned(), cs),
        ("fair".to_owned(), 0.0),
    ]);
    let run = Run {
        profile: Arc::new(profile),
        lock,
        workload: workload::find("cycles").unwrap(),
        params,
        threads,
        placement: Placement::Pinned,
        seed: 1,
        warmup_ns: 300_000, // longer than cores need to fall asleep
        duration_ns: 1_000_000,
        samples: false,
        timeline: None,
        transfers: false,
    };
    run.outcome()
}

fn near(watts: f64, expected: f64) {
    assert!((watts - expected).abs() < 0.3, "{watts} W, {expected} W expected");
}

#[test]
fn the_first_core_of_a_socket_costs_more_than_the_next_and_a_hyper_thread_less() {
    let xeon = profile::builtin("xeon-2x10").unwrap();
    let (core, kernel) = (&xeon.class[0].power, &xeon.kernel);
    let asleep = core.deep_w * (1.0 + core.sibling);
    let alone = core.active_w + core.sibling * core.deep_w;
    let watts = |threads| run("tas", threads, 65536.0, 50_000.0).watts;
    near(watts(1), kernel.package_w + kernel.uncore_w + alone + 19.0 * asleep);
    near(watts(2), kernel.package_w + kernel.uncore_w + 2.0 * alone + 18.0 * asleep);
    near(watts(11), kernel.package_w + 2.0 * kernel.uncore_w + 11.0 * alone + 9.0 * asleep);
    let both = core.active_w * (1.0 + core.sibling);
    near(watts(40), kernel.package_w + 2.0 * kernel.uncore_w + 20.0 * both);
}

#[test]
fn who_spins_on_a_copy_draws_what_the_machine_spins_with() {
    let xeon = profile::builtin("xeon-2x10").unwrap();
    let (core, kernel) = (&xeon.class[0].power, &xeon.kernel);
    // A critical section that lasts for the whole run: one works, nine spin with barriers.
    let spinning = run("ttas", 10, 1.0, 1e7).watts;
    let working = core.active_w + core.sibling * core.deep_w;
    let waiting = core.spin_fence_w + core.sibling * core.deep_w;
    let asleep = core.deep_w * (1.0 + core.sibling);
    near(spinning, kernel.package_w + kernel.uncore_w + working + 9.0 * waiting + 10.0 * asleep);
    let sleeping = run("glibc", 10, 1.0, 1e7).watts;
    near(sleeping, kernel.package_w + kernel.uncore_w + working + 19.0 * asleep);
}

#[test]
fn cpu_time_is_that_of_threads_that_do_not_sleep() {
    // A critical section that lasts for the whole run: one works, nine spin or sleep.
    let cpus = |lock| {
        let outcome = run(lock, 10, 1.0, 1e7);
        outcome.cpu_seconds / outcome.seconds
    };
    let (spinning, sleeping) = (cpus("ttas"), cpus("glibc"));
    assert!((spinning - 10.0).abs() < 1e-6, "{spinning}");
    assert!((sleeping - 1.0).abs() < 1e-6, "{sleeping}");
}

#[test]
fn energy_adds_up() {
    let outcome = run("mcs", 4, 1.0, 1000.0);
    assert!((outcome.joules - outcome.watts * outcome.seconds).abs() < 1e-9);
    assert!((outcome.tpp * outcome.epo - 1.0).abs() < 1e-9);
    assert!((outcome.tpp - outcome.throughput / outcome.watts).abs() < 1e-3 * outcome.tpp);
}
