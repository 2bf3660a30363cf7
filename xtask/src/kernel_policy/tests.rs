//! What the command says of a run, and of policies that do not fit.

use super::*;
use report::{Phase, Stats};

fn report() -> KernelRun {
    let stats = Stats {
        slow_paths: 900,
        waits: 800,
        asked: 5000,
        chosen: 300,
        chosen_big: 300,
        passed_max: 64,
        ..Stats::default()
    };
    let without = Phase { rounds: 1_000_000, stats: Stats::default() };
    KernelRun {
        kernel: "6.1.0-56-cloud-amd64".into(),
        hooks: vec![("cmp_node".into(), None)],
        phases: [without, Phase { rounds: 2_000_000, stats }, without],
        patched_ms: 1_234,
        unpatched_ms: 2_000,
        written: 7,
        read: 7,
    }
}

#[test]
fn the_report_fits_and_a_good_run_has_no_fault() {
    let text = told(BIG_FIRST, &report());
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(text.contains("patched in 1.2 s"), "{text}");
    assert_eq!(faults(BIG_FIRST, &report(), "all is well\n"), Vec::<String>::new());
}

#[test]
fn each_fault_is_named() {
    type Spoil = fn(&mut KernelRun);
    let cases: [(Spoil, &str); 6] = [
        (|report| report.hooks[0].1 = Some("R6 !read_ok".into()), "refuses"),
        (|report| report.phases[1].stats.asked = 0, "not asked"),
        (|report| report.phases[2].stats.asked = 1, "after the patch"),
        (|report| report.phases[2].rounds = 0, "stood still"),
        (|report| report.read = 8, "lost or changed"),
        (|report| report.phases[1].stats.chosen_big = 299, "little core"),
    ];
    for (spoil, named) in cases {
        let mut report = report();
        spoil(&mut report);
        let faults = faults(BIG_FIRST, &report, "");
        assert!(faults.len() == 1 && faults[0].contains(named), "{faults:?}");
    }
    let complaint = faults(BIG_FIRST, &report(), "[ 3.1] WARNING: CPU: 0 PID: 1\n");
    assert_eq!(complaint, ["the kernel complains: [ 3.1] WARNING: CPU: 0 PID: 1"]);
}

#[test]
fn the_report_is_found_among_the_kernels_messages() {
    let line = serde_json::to_string(&report()).unwrap();
    let console =
        format!("[ 1.0] up\nlockwright-step: x\n[ 2.0] a {}{line}\r\n[ 3.0] down\n", guest::REPORT);
    let found = machine::report(&console).unwrap();
    assert_eq!(found.phases[1].stats, report().phases[1].stats);
    assert!(machine::report("[ 1.0] up\n").is_none());
}

#[test]
fn the_modules_counts_are_lines_of_a_name_and_a_number() {
    let stats = Stats::read("slow_paths 9\nasked 3\nnew_one 1\n").unwrap();
    assert_eq!(stats, Stats { slow_paths: 9, asked: 3, ..Stats::default() });
    assert_eq!(Stats::read("slow_paths x\n"), None);
}

#[test]
fn a_policy_must_ask_what_the_module_asks_and_call_what_the_kernel_has() {
    let of = |name: &str| policy(name).unwrap();
    assert!(fit("big-first", &of("big-first")).is_ok());
    let refused = |name: &str| fit(name, &of(name)).unwrap_err().to_string();
    assert!(refused("bravo").contains("no cmp_node"), "{}", refused("bravo"));
    let unknown = policy("no-such-policy").unwrap_err().to_string();
    assert!(unknown.contains("hint: one of ") && unknown.contains("big-first"), "{unknown}");
}
