//! Sleeping on the virtual machine: what it costs, and how many callers at one address slow each other
//! down.

use lockwright_sim::{LockSpec, Outcome, Placement, Run, profile, workload};
use std::collections::BTreeMap;
use std::sync::Arc;

/// glibc's mutex on the Xeon, with some of its figures set.
fn run(threads: u32, placement: Placement, cs: f64, set: &[(&str, f64)]) -> Outcome {
    let mut profile = profile::builtin("xeon-2x10").unwrap();
    for (path, value) in set {
        profile.set(path, *value).unwrap();
    }
    let lock = LockSpec::parse("glibc").unwrap();
    let params = BTreeMap::from([("cs".to_owned(), cs)]);
    let run = Run {
        profile: Arc::new(profile),
        lock,
        workload: workload::find("cycles").unwrap(),
        params,
        threads,
        placement,
        seed: 3,
        warmup_ns: 200_000,
        duration_ns: 2_000_000,
        samples: false,
        timeline: None,
        transfers: false,
    };
    let outcome = run.outcome();
    assert_eq!(outcome.violation, None);
    outcome
}

#[test]
fn calls_on_one_address_delay_each_other() {
    let at = |contention| {
        let set = [("kernel.bucket_contention", contention)];
        run(40, Placement::Pinned, 1000.0, &set).throughput
    };
    assert!(at(1.0) < 0.85 * at(0.0), "{} and {} a second", at(1.0), at(0.0));
}

#[test]
fn who_waits_for_a_bucket_is_awake_and_draws_as_much_as_who_computes() {
    let set = [("kernel.bucket_contention", 1.0)];
    let crowd = run(40, Placement::Pinned, 1000.0, &set);
    let most = run(40, Placement::Pinned, 0.0, &[]).watts;
    assert!(crowd.watts > 0.98 * most, "{} W of {most} W", crowd.watts);
    assert!(crowd.sleeps < crowd.acquisitions / 20, "{} sleeps", crowd.sleeps);
}

#[test]
fn long_critical_sections_put_the_others_to_sleep() {
    let outcome = run(10, Placement::Pinned, 100_000.0, &[]);
    let all_awake = run(10, Placement::Pinned, 1000.0, &[]).watts;
    assert!(outcome.watts < all_awake - 15.0, "{} W, {all_awake} W awake", outcome.watts);
    assert!(outcome.sleeps + 10 >= outcome.hand_overs, "who gets it has slept");
}

#[test]
fn preemption_in_the_kernel_loses_nobody() {
    // Three threads per CPU, which all want the same bucket.
    let cpus = Placement::Cpus((0..8).collect());
    for slice in [20_000.0, 3_000_000.0] {
        let set = [("kernel.slice_ns", slice), ("kernel.wakeup_granularity_ns", 5000.0)];
        let outcome = run(24, cpus.clone(), 1000.0, &set);
        assert!(outcome.operations > 300, "{} operations", outcome.operations);
    }
    let outcome = run(60, Placement::Free, 1000.0, &[]);
    assert!(outcome.operations > 300, "{} operations", outcome.operations);
}
