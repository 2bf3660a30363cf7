//! The program as a user runs it.

use lockwright_tests::{Child, End, Outcome, compile};
use std::fs;

fn program(args: &[&str]) -> Child {
    Child::new(env!("CARGO_BIN_EXE_lockwright-demo")).args(args)
}

fn run(args: &[&str]) -> Outcome {
    program(args).run().unwrap()
}

/// The report of a run with operations. If the machine pauses, a run may have none, and is repeated.
fn report(args: &[&str]) -> (serde_json::Value, u64) {
    let mut tries = 0..5;
    loop {
        let outcome = run(args);
        assert_eq!(outcome.end, End::Code(0), "{args:?}: {}", outcome.describe());
        let report: serde_json::Value = serde_json::from_slice(&outcome.stdout).unwrap();
        let operations = report["operations"].as_u64().unwrap();
        if operations > 0 || tries.next().is_none() {
            return (report, operations);
        }
    }
}

#[test]
fn both_databases_report_a_verified_result() {
    for database in ["sqlite", "lmdb"] {
        let (report, operations) =
            report(&["--database", database, "--threads", "4", "--seconds", "0.2"]);
        let counted: u64 = report["latency_counts"]
            .as_array()
            .unwrap()
            .iter()
            .map(|bucket| bucket[1].as_u64().unwrap())
            .sum();
        assert!(operations > 0);
        assert_eq!(counted, operations, "every operation has its latency");
        assert!(report["verified"]["sum"].is_u64());
    }
}

#[test]
fn operations_are_told_apart_by_cpu_and_by_objective() {
    for (database, size) in [("sqlite", "2000"), ("lmdb", "500")] {
        let flags =
            ["--threads", "2", "--seconds", "0.2", "--warmup", "0.1", "--pin", "--slo", "0"];
        let scans = ["--scan-every", "10"];
        let more = if database == "sqlite" { &scans[..] } else { &[] };
        let args = [&["--database", database, "--size", size], &flags[..], more].concat();
        let (report, operations) = report(&args);
        let cpus = report["cpus"].as_array().unwrap();
        let sum = |field: &str| cpus.iter().map(|cpu| cpu[field].as_u64().unwrap()).sum::<u64>();
        assert!(operations > 0 && !cpus.is_empty());
        assert_eq!(sum("operations"), operations, "every operation ran on a CPU");
        assert_eq!(sum("over_slo"), operations, "every operation takes some time");
        assert_eq!(report["epochs"], false, "nobody offers epochs here");
        if database == "sqlite" {
            let scans = report["verified"]["scans"].as_u64().unwrap();
            assert!(scans >= operations / 10, "{scans} scans of {operations} operations");
        } else {
            assert_eq!(report["verified"]["keys"], 500);
        }
    }
}

#[test]
fn an_epoch_starts_and_ends_with_each_operation() {
    let dir = tempfile::tempdir().unwrap();
    let (source, library) = (dir.path().join("epochs.c"), dir.path().join("epochs.so"));
    let text = "#include <stdint.h>\n#include <stdio.h>\n#include <stdlib.h>\n\
        static __thread int inside; static long done; static uint64_t slo;\n\
        void lw_epoch_start(int id) { if (inside++ || id != 1) abort(); }\n\
        void lw_epoch_end(int id, uint64_t ns) { if (--inside || id != 1) abort(); slo = ns;\n\
          __atomic_add_fetch(&done, 1, __ATOMIC_RELAXED); }\n\
        __attribute__((destructor)) static void say(void)\n\
        { fprintf(stderr, \"%ld %lu\", done, (unsigned long)slo); }\n";
    fs::write(&source, text).unwrap();
    compile(&source, &library, &["-shared", "-fPIC"]).unwrap();
    for database in ["sqlite", "lmdb"] {
        let outcome = program(&["--database", database, "--seconds", "0.1", "--slo", "70000"])
            .env("LD_PRELOAD", &library)
            .run()
            .unwrap();
        assert_eq!(outcome.end, End::Code(0), "{database}: {}", outcome.describe());
        let report: serde_json::Value = serde_json::from_slice(&outcome.stdout).unwrap();
        assert_eq!(report["epochs"], true);
        assert_eq!(outcome.errors(), format!("{} 70000", report["operations"]));
    }
}

#[test]
fn a_lock_that_does_not_exclude_is_caught() {
    let dir = tempfile::tempdir().unwrap();
    let (source, library) = (dir.path().join("open.c"), dir.path().join("open.so"));
    let text = "#include <pthread.h>\n\
        int pthread_mutex_lock(pthread_mutex_t *m) { (void)m; return 0; }\n\
        int pthread_mutex_unlock(pthread_mutex_t *m) { (void)m; return 0; }\n";
    fs::write(&source, text).unwrap();
    compile(&source, &library, &["-shared", "-fPIC"]).unwrap();
    for database in ["sqlite", "lmdb"] {
        let outcome = program(&["--database", database, "--threads", "8", "--seconds", "1"])
            .env("LD_PRELOAD", &library)
            .run()
            .unwrap();
        assert_ne!(outcome.end, End::Code(0), "{database}: {}", outcome.describe());
    }
}

#[test]
fn bad_flags_are_named() {
    for (args, named) in [
        (&["--database", "oracle"][..], "oracle"),
        (&["--threads", "0"], "'0'"),
        (&["--seconds", "-1"], "'-1'"),
        (&["--size", "0"], "'0'"),
        (&["--warmup", "x"], "x"),
        (&["--database", "lmdb", "--scan-every", "5"], "--scan-every"),
        (&["--fast"], "--fast"),
    ] {
        let outcome = run(args);
        assert_eq!(outcome.end, End::Code(2));
        assert!(outcome.errors().contains(named), "{}", outcome.errors());
        assert!(outcome.errors().contains("hint: "));
    }
}
