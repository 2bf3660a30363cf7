//! The program as a user runs it.

use lockwright_tests::{Child, End, Outcome, compile};
use std::fs;

fn program(args: &[&str]) -> Child {
    Child::new(env!("CARGO_BIN_EXE_lockwright-demo")).args(args)
}

fn run(args: &[&str]) -> Outcome {
    program(args).run().unwrap()
}

#[test]
fn both_databases_report_a_verified_result() {
    for database in ["sqlite", "lmdb"] {
        let outcome = run(&["--database", database, "--threads", "4", "--seconds", "0.2"]);
        assert_eq!(outcome.end, End::Code(0), "{database}: {}", outcome.describe());
        let report: serde_json::Value = serde_json::from_slice(&outcome.stdout).unwrap();
        let operations = report["operations"].as_u64().unwrap();
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
        (&["--fast"], "--fast"),
    ] {
        let outcome = run(args);
        assert_eq!(outcome.end, End::Code(2));
        assert!(outcome.errors().contains(named), "{}", outcome.errors());
        assert!(outcome.errors().contains("hint: "));
    }
}
