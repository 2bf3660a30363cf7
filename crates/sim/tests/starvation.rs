//! Readers that overlap without end, and writers, on the virtual machine: who is delayed by whom, under each preference. Everything is
//! seeded: the figures are the same each time.

use lockwright_sim::{LockSpec, Outcome, Placement, Run, profile, workload};
use std::sync::Arc;

/// A section's length, ns.
const SECTION: f64 = 2_000.0;

/// `threads` threads, of which the first `writers` write, and the others read again as soon as they have read.
fn run(prefer: u32, threads: u32, writers: u32, ms: u64) -> Outcome {
    let outcome = Run {
        profile: Arc::new(profile::builtin("m1").unwrap()),
        lock: LockSpec::parse(&format!("rwlock:prefer={prefer}")).unwrap(),
        workload: workload::find("rwlock").unwrap(),
        params: [
            ("writers", f64::from(writers)),
            ("cs", SECTION),
            ("gap", 0.0),
            ("exponential", 1.0),
        ]
        .map(|(key, value)| (key.to_owned(), value))
        .into(),
        threads,
        placement: Placement::Pinned,
        seed: 1,
        warmup_ns: 0,
        duration_ns: ms * 1_000_000,
        samples: false,
        timeline: None,
        transfers: false,
    }
    .outcome();
    assert_eq!(outcome.violation, None);
    outcome
}

/// What the writers, and what the readers got done.
fn operations(outcome: &Outcome, writers: usize) -> (u64, u64) {
    let sum = |threads: &[_]| {
        threads.iter().map(|one: &lockwright_sim::ThreadOutcome| one.operations).sum()
    };
    (sum(&outcome.threads[..writers]), sum(&outcome.threads[writers..]))
}

#[test]
fn a_writer_waits_without_bound_for_preferred_readers_and_briefly_for_patient_ones() {
    for ms in [4, 16] {
        let (wrote, read) = operations(&run(0, 6, 1, ms), 1);
        assert!(wrote == 0 && read > 1_000 * ms, "it gets in by luck: {wrote} in {ms} ms, {read}");
        let patient = run(3, 6, 1, ms);
        let (wrote, read) = operations(&patient, 1);
        assert!(wrote > 10 * ms && read > wrote, "{wrote} {read} in {ms} ms");
        // The longest of the sections that readers had begun, and what it takes to wake up.
        let longest = patient.classes.iter().map(|class| class.wait.max_ns).max().unwrap();
        assert!(longest < 200_000, "{longest} ns in {ms} ms");
    }
}

#[test]
fn phases_take_turns_with_patient_readers() {
    let ms = 8;
    let of = |prefer| operations(&run(prefer, 6, 4, ms), 4);
    let (strict, turns) = (of(2), of(3));
    assert!(
        strict.1 * 10 < strict.0,
        "strictly preferred writers leave readers little: {strict:?}"
    );
    assert!(turns.0 > 50 * ms && turns.1 > 50 * ms, "nobody starves: {turns:?}");
}
