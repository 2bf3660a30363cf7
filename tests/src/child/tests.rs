//! Tests of `child`.

use super::*;
use std::sync::{Mutex, PoisonError};

/// Held by tests that stop this process, or mind if it is stopped.
static STOPPING: Mutex<()> = Mutex::new(());

#[test]
fn a_hung_child_ends_with_what_it_started() {
    let _alone = STOPPING.lock().unwrap_or_else(PoisonError::into_inner);
    let start = Instant::now();
    let run = || {
        let script = "sleep 1000 & sleep 1000 & echo $!; wait";
        let outcome = Child::new("sh").args(["-c", script]).limit(1).run().unwrap();
        assert_eq!(outcome.end, End::Hung(Duration::from_secs(1)));
        assert!(
            outcome
                .describe()
                .starts_with("hung: killed after 1 s (its 3 threads slept, and used 0.0")
        );
        outcome
    };
    // If the machine stood still, its time was up before it came to start anything; but not each time.
    let outcome = (0..5).map(|_| run()).find(|outcome| !outcome.stdout.is_empty()).unwrap();
    assert!(start.elapsed() < Duration::from_secs(500));
    let pid: u32 = outcome.text().trim().parse().unwrap();
    let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    assert!(state.is_empty() || state.contains(") Z "), "{state}");
}

#[test]
fn a_dropped_child_ends_with_what_it_started() {
    let _alone = STOPPING.lock().unwrap_or_else(PoisonError::into_inner);
    let script = "sleep 1000 & echo $!; wait";
    let mut running = Child::new("sh").args(["-c", script]).start().unwrap();
    let pid = loop {
        let said = String::from_utf8(whole(&mut running.out).unwrap()).unwrap();
        if said.ends_with('\n') {
            break said.trim().to_owned();
        }
        thread::sleep(Duration::from_millis(1));
    };
    assert_eq!(running.end().unwrap(), None);
    drop(running);
    let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    assert!(state.is_empty() || state.contains(") Z "), "{state}");
}

#[test]
fn the_kernel_ends_a_child_whose_starter_is_gone() {
    let start = || {
        let running = Child::new("sleep").args(["1000"]).start().unwrap();
        // As if we were killed: nobody drops it.
        Box::leak(Box::new(running)).pid()
    };
    let pid = thread::spawn(start).join().unwrap();
    let lives = || {
        let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        !state.is_empty() && !state.contains(") Z ")
    };
    let asked = Instant::now();
    while lives() && asked.elapsed() < Duration::from_secs(60) {
        thread::sleep(Duration::from_millis(1));
    }
    assert!(!lives());
}

#[test]
fn a_child_that_is_asked_to_stop_says_how_it_ended() {
    let script = "trap 'echo bye; exit 4' TERM; while :; do sleep 0.01; done";
    let outcome = Child::new("sh").args(["-c", script]).start().unwrap().stop().unwrap();
    // The first request may come before the trap is set.
    match outcome.end {
        End::Code(4) => assert_eq!(outcome.text(), "bye\n"),
        end => assert_eq!(end, End::Signal(libc::SIGTERM)),
    }
}

#[test]
fn a_failure_on_a_machine_that_runs_is_final() {
    let _alone = STOPPING.lock().unwrap_or_else(PoisonError::into_inner);
    let runs = || {
        let dir = tempfile::tempdir().unwrap();
        let script = "echo run >> runs; exit 1";
        let outcome = Child::new("sh").args(["-c", script]).dir(dir.path()).run_fairly();
        assert_eq!(outcome.unwrap().end, End::Code(1));
        fs::read_to_string(dir.path().join("runs")).unwrap().lines().count()
    };
    // A machine may really stand still, but not each time.
    assert!((0..5).any(|_| runs() == 1));
}

#[test]
fn a_failure_while_the_machine_stood_still_is_not() {
    let _alone = STOPPING.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = tempfile::tempdir().unwrap();
    // It stops us, its parent, as a paused machine would, and fails the first time only.
    let script = "echo run >> runs; [ $(wc -l < runs) = 2 ] && exit 0
        kill -STOP $PPID; sleep 1.5; kill -CONT $PPID; exit 1";
    let outcome = Child::new("sh").args(["-c", script]).dir(dir.path()).run_fairly().unwrap();
    assert_eq!(outcome.end, End::Code(0), "{}", outcome.describe());
}

#[test]
fn input_output_and_code_come_through() {
    let outcome =
        Child::new("sh").args(["-c", "cat; echo oops >&2; exit 3"]).input("hello\n").run().unwrap();
    assert_eq!(
        (outcome.end, outcome.text().as_str(), outcome.errors().as_str()),
        (End::Code(3), "hello\n", "oops\n")
    );
}

#[test]
fn an_interrupt_that_we_ignore_ends_a_child() {
    // SAFETY: no handler is installed; no other test here sends or expects SIGINT.
    let before = unsafe { libc::signal(libc::SIGINT, libc::SIG_IGN) };
    let outcome = Child::new("sh").args(["-c", "kill -INT $$; exit 0"]).run();
    // SAFETY: as above.
    unsafe { libc::signal(libc::SIGINT, before) };
    assert_eq!(outcome.unwrap().end, End::Signal(libc::SIGINT));
}

#[test]
fn a_child_that_goes_on_is_told_from_one_that_hangs() {
    let outcome = Child::new("sh").args(["-c", "while :; do :; done"]).limit(1).run().unwrap();
    let said = outcome.describe();
    match outcome.end {
        End::Starved(_) => assert!(said.starts_with("too busy a machine for it: "), "{said}"),
        end => {
            assert_eq!(end, End::TimedOut(Duration::from_secs(1)));
            let told =
                "timed out, but went on: killed after 1 s (its thread went on (1 runnable), ";
            assert!(said.starts_with(told), "{said}");
        }
    }
}
