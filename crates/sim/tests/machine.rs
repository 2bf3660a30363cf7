//! The machine as a whole: every lock runs on it, the same seed gives the same run, and costs are those of the profile.

use lockwright_locks::catalog::{CATALOG, DELEGATED};
use lockwright_locks::entry::Kind;
use lockwright_locks::spec::GLIBC;
use lockwright_sim::batch::run_all;
use lockwright_sim::load::{Setup, Workload};
use lockwright_sim::workload::WORKLOADS;
use lockwright_sim::{LockSpec, Outcome, Placement, Run, profile, workload};
use std::iter;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A run with seed 1, pinned, a millisecond long.
fn plan(machine: &str, lock: &str, workload: &str, threads: u32, params: &[(&str, f64)]) -> Run {
    Run {
        profile: Arc::new(profile::builtin(machine).unwrap()),
        lock: LockSpec::parse(lock).unwrap(),
        workload: workload::find(workload).unwrap(),
        params: params.iter().map(|(key, value)| ((*key).to_owned(), *value)).collect(),
        threads,
        placement: Placement::Pinned,
        seed: 1,
        warmup_ns: 0,
        duration_ns: 1_000_000,
        samples: false,
        timeline: None,
        transfers: false,
    }
}

fn run(lock: &str, threads: u32, seed: u64, params: &[(&str, f64)]) -> Outcome {
    let plan = plan("m1", lock, "sections", threads, params);
    Run { seed, warmup_ns: 100_000, ..plan }.outcome()
}

/// Runs for as long as a few turns of a busy lock.
fn turns(plan: Run) -> Outcome {
    Run { warmup_ns: 1_000_000, duration_ns: 30_000_000, ..plan }.outcome()
}

/// Two threads are on each CPU, or one.
#[test]
fn locks_that_react_to_preemption_sleep_if_there_are_more_threads_than_cpus() {
    for lock in ["flexguard", "glk"] {
        let asleep = |threads| turns(plan("m1", lock, "sections", threads, &[])).sleeps;
        assert_eq!(asleep(8), 0, "{lock}");
        assert!(asleep(16) > 0, "{lock}");
    }
}

#[test]
#[should_panic(expected = "no CPU 8 on 'm1', only 0 to 7")]
fn a_cpu_that_the_machine_lacks_is_named() {
    let plan = plan("m1", "mcs", "sections", 2, &[]);
    Run { placement: Placement::Cpus(vec![0, 8]), ..plan }.outcome();
}

/// Of every lock that has a wait budget, whatever its name: the longest wait of a saturated lock.
#[test]
fn no_wait_is_longer_than_the_budget_and_the_wake_ups_of_those_before() {
    let mut locks = 0;
    for entry in CATALOG.iter().filter(|e| e.options.iter().any(|o| o.key == "budget")) {
        locks += 1;
        for (machine, threads) in [("m1", 8), ("xeon-2x10", 20)] {
            for budget_ns in [500_000, 1_000_000, 10_000_000] {
                let lock = format!("{}:budget={budget_ns}", entry.id);
                let outcome =
                    turns(plan(machine, &lock, "bench", threads, &[("lines", 2.0), ("gap", 0.0)]));
                let longest = outcome.classes.iter().map(|class| class.wait.max_ns).max().unwrap();
                let bound = budget_ns + u64::from(threads) * 100_000;
                assert!(longest <= bound, "{lock}, {machine}: {longest} ns");
                // Only a saturated lock has turns to look at.
                assert!(longest > 100_000, "{lock}, {machine}: {longest} ns");
            }
        }
    }
    assert!(locks > 0);
}

/// Of every lock with a `timeout`, whatever its name: the longest wait if all CPUs want it and few waiters stay awake.
#[test]
fn no_wait_is_longer_than_the_timeout_and_the_wake_ups_of_those_before() {
    let threads = 40;
    let locks = CATALOG.iter().filter(|e| e.options.iter().any(|o| o.key == "timeout"));
    assert!(locks.clone().count() > 0);
    for entry in locks {
        let of = |timeout_ns: u64| {
            let lock = format!("{}:timeout={timeout_ns}", entry.id);
            let outcome = turns(plan("xeon-2x10", &lock, "cycles", threads, &[("cs", 16_000.0)]));
            (
                outcome.classes.iter().map(|class| class.wait.max_ns).max().unwrap(),
                outcome.throughput,
            )
        };
        let (unbounded, throughput) = of(0);
        assert!(unbounded > 20_000_000, "{}: {unbounded} ns", entry.id);
        for timeout_ns in [200_000, 1_000_000] {
            let (longest, with_it) = of(timeout_ns);
            let bound = timeout_ns + u64::from(threads) * 100_000;
            assert!(longest <= bound, "{}, {timeout_ns}: {longest} ns", entry.id);
            assert!(2.0 * with_it > throughput, "{}, {timeout_ns}: {with_it}", entry.id);
        }
    }
}

/// The counter of the line's length is small and wraps. (From 513 to 513 + CPUs it is wrong.)
#[test]
fn no_crowd_is_too_large() {
    for entry in CATALOG.iter().filter(|entry| entry.kind == Kind::Front) {
        let of = |threads| {
            let run = plan("xeon-2cpu-vm", entry.id, "cycles", threads, &[("cs", 5000.0)]);
            let placement = Placement::Free;
            Run { placement, warmup_ns: 1_000_000, duration_ns: 20_000_000, ..run }
                .outcome()
                .throughput
        };
        let usual = of(300);
        for threads in [480, 512] {
            // Runs of 20 ms differ by up to four times; a count that wraps costs hundreds of times.
            assert!(10.0 * of(threads) > usual, "{}, {threads} threads", entry.id);
        }
    }
}

/// One thread holds the lock for long, so that all others fall asleep. Then each takes it for twenty short sections.
static BURST: Workload = Workload {
    id: "burst",
    idea: "all fall asleep behind one long section",
    source: "this test",
    params: &[],
    holds: false,
    setup: &|setup: &mut Setup| {
        let lock = setup.lock();
        setup.threads(move |me| {
            if me.number() == 0 {
                me.locked(lock, || me.sleep(50_000_000));
            } else {
                me.sleep(1_000_000);
                for _ in 0..20 {
                    me.locked(lock, || me.compute(50.0));
                }
            }
            me.operation(|| ());
        });
    },
};

/// Nobody has left the line yet, so nobody has noted that it is crowded. Still, a lock must not wake the whole line at once.
/// (Real: of 256 and more threads, each spun for its time slice, 8 to 80 us an acquisition.)
#[test]
fn a_crowd_that_came_during_one_section_is_not_woken_as_a_whole() {
    let threads = 100;
    for entry in CATALOG.iter().filter(|entry| entry.kind == Kind::Front) {
        let run = plan("xeon-2cpu-vm", entry.id, "cycles", threads, &[]);
        let (placement, duration_ns) = (Placement::Free, 100_000_000);
        let outcome = Run { workload: &BURST, placement, duration_ns, ..run }.outcome();
        assert_eq!(outcome.operations, u64::from(threads), "{}", entry.id);
        let (wakes, most) = (outcome.wakes, u64::from(threads + threads / 10));
        assert!(wakes <= most, "{}: {wakes} wakes, and each waiter needs one", entry.id);
    }
}

/// On two CPUs, a thread that keeps a lock busy has it for a turn. One that leaves it free most of the time shares it.
/// Waiters are woken before their turn. Behind long sections that was up to 80 times for each acquisition.
#[test]
fn a_long_line_behind_long_sections_is_not_woken_again_and_again() {
    for (machine, threads) in [("opteron-4x12", 48), ("niagara2-128", 128)] {
        for lock in ["auto", "fifo"] {
            let outcome = turns(plan(
                machine,
                lock,
                "bench",
                threads,
                &[("cs", 10_000.0), ("gap", 10_000.0)],
            ));
            let sleeps = outcome.sleeps as f64 / outcome.acquisitions as f64;
            assert!(sleeps < 5.0, "{lock} on {machine}: {sleeps} sleeps for each acquisition");
        }
    }
}

/// With servers, which take a CPU each, and with waiters that run the others' sections.
#[test]
fn delegated_sections_run_where_the_data_is() {
    let of = |lock: &str, threads| {
        let plan = plan("opteron-4x12", lock, "rcl", threads, &[("lines", 5.0)]);
        let outcome = Run { duration_ns: 2_000_000, ..plan }.outcome();
        assert_eq!(outcome.violation, None, "{lock}");
        outcome
    };
    for entry in DELEGATED {
        for threads in [2, 12] {
            let outcome = of(entry.id, threads);
            let served = outcome.threads.iter().all(|thread| thread.operations > 0);
            assert!(served, "{}, {threads} threads", entry.id);
        }
    }
    let mcs = of("mcs", 48).throughput;
    for lock in ["rcl", "ffwd", "flat-combining", "cc-synch", "dsm-synch", "combiner"] {
        let gain = of(lock, 48).throughput / mcs;
        assert!(gain > 1.5, "{lock}: {gain} of mcs");
    }
    // The role goes to a big core, and sections are short there.
    let of = |lock: &str| {
        let plan = plan("m1", lock, "rcl", 8, &[("lines", 5.0)]);
        Run { duration_ns: 5_000_000, ..plan }.outcome().throughput
    };
    let gain = of("combiner") / of("cc-synch");
    assert!(gain > 1.1, "{gain} of cc-synch, which serves on little cores, too");
}

#[test]
fn on_two_cpus_a_busy_lock_stays_and_another_one_does_not() {
    for lock in ["auto", "barging"] {
        let of = |cs: f64, gap: f64| {
            turns(plan("xeon-2cpu-vm", lock, "cycles", 2, &[("cs", cs), ("gap", gap)]))
        };
        let busy = of(2000.0, 700.0);
        assert!(busy.hand_overs * 100 < busy.acquisitions, "{lock}: {}", busy.hand_overs);
        assert!(busy.latency.max_ns < 10_000_000, "{lock}: {} ns", busy.latency.max_ns);
        let idle = of(700.0, 2000.0);
        assert!(idle.hand_overs * 2 > idle.acquisitions, "{lock}: {}", idle.hand_overs);
    }
}

/// With a gap, handing over is faster than one big core alone; without a gap it is slower.
#[test]
fn a_lock_stays_on_one_core_only_where_that_is_faster_than_handing_over() {
    for (machine, cores) in [("m1", 4), ("i5-13400", 6), ("hikey970", 4), ("xeon-2x10", 10)] {
        let of = |lock: &str, gap: f64| {
            let params = [("lines", 2.0), ("cs", 100.0), ("gap", gap)];
            let run = plan(machine, lock, "bench", cores, &params);
            Run { warmup_ns: 4_000_000, duration_ns: 6_000_000, ..run }.outcome().throughput
        };
        for lock in ["auto", "slo"] {
            let (knee, saturated) = (of(lock, 400.0), of(lock, 0.0));
            assert!(knee > 0.8 * of("fifo", 400.0), "{machine}, {lock}, gap 400: {knee}");
            assert!(saturated > 1.2 * of("fifo", 0.0), "{machine}, {lock}, gap 0: {saturated}");
        }
    }
}

/// Of the clusters' waiters, most get the lock from a neighbour.
#[test]
fn on_many_clusters_the_lock_stays_near_and_nobody_waits_longer_for_that() {
    for (machine, threads) in [("xeon-8x10", 80), ("xeon-8x10", 40), ("opteron-4x12", 48)] {
        let of = |lock| {
            let plan = plan(machine, lock, "bench", threads, &[("lines", 2.0), ("gap", 1000.0)]);
            let outcome = Run { warmup_ns: 500_000, duration_ns: 2_000_000, ..plan }.outcome();
            (outcome.throughput, outcome.latency.p99_ns)
        };
        for lock in ["auto", "slo"] {
            let ((throughput, p99), (fifos, fifos_p99)) = (of(lock), of("fifo"));
            assert!(throughput > 1.15 * fifos, "{machine}, {lock}: {throughput}, fifo {fifos}");
            assert!(p99 < fifos_p99 * 11 / 10, "{machine}, {lock}: {p99}, fifo {fifos_p99}");
        }
    }
}

/// With two threads there are no chains of grants, because nobody is behind the head.
#[test]
fn two_threads_learn_it_too() {
    for machine in ["m1", "xeon-2x10"] {
        let of = |lock| {
            let run = plan(machine, lock, "sections", 2, &[("lines", 4.0), ("gap", 400.0)]);
            Run { warmup_ns: 4_000_000, duration_ns: 6_000_000, ..run }.outcome().throughput
        };
        for lock in ["auto", "slo"] {
            assert!(of(lock) > 2.0 * of("fifo"), "{machine}, {lock}: {}", of(lock));
        }
    }
}

/// A core of the HiKey takes 550 us to leave its deep sleep.
#[test]
fn a_saturated_lock_is_not_idle_while_the_next_head_wakes_up() {
    let of = |lock: &str, threads| {
        let run = plan(
            "hikey970",
            lock,
            "bench",
            threads,
            &[("lines", 2.0), ("cs", 100.0), ("gap", 0.0)],
        );
        Run { warmup_ns: 4_000_000, duration_ns: 20_000_000, ..run }.outcome().throughput
    };
    for lock in ["auto", "slo", "barging"] {
        assert!(of(lock, 4) > 0.9 * of(lock, 1), "{lock}: {}, alone {}", of(lock, 4), of(lock, 1));
    }
}

fn every_lock() -> impl Iterator<Item = &'static str> {
    CATALOG.iter().chain(DELEGATED).map(|entry| entry.id).chain([GLIBC])
}

#[test]
fn every_lock_runs_crowded_or_not_and_breaks_no_rule() {
    for lock in every_lock() {
        for threads in [1, 2, 8, 20] {
            let outcome = run(lock, threads, 1, &[("gap", 500.0)]);
            assert_eq!(outcome.violation, None, "{lock}, {threads} threads");
            assert!(outcome.operations > 0, "{lock}, {threads} threads");
        }
    }
}

/// With its options as they are, and with each at its smallest: a loop that waits for more than a lock must still end.
#[test]
fn every_workload_runs_crowded_or_not_and_breaks_no_rule() {
    for workload in WORKLOADS {
        let smallest = workload.params.iter().map(|spec| Some((spec.key, spec.min)));
        for option in iter::once(None).chain(smallest) {
            let params: Vec<_> = option.into_iter().collect();
            for (lock, threads) in [("mcs", 1), ("mcs", 8), ("auto", 3), ("auto", 20)] {
                let run = plan("m1", lock, workload.id, threads, &params);
                let outcome = Run { duration_ns: 300_000, ..run }.outcome();
                let what = format!("{}, {params:?}, {lock}, {threads} threads", workload.id);
                assert_eq!(outcome.violation, None, "{what}");
                assert!(outcome.operations > 0, "{what}");
            }
        }
    }
}

#[test]
fn an_option_has_a_name_of_its_own_and_a_default_that_is_legal() {
    for workload in WORKLOADS {
        for (number, spec) in workload.params.iter().enumerate() {
            let what = format!("{}: {}", workload.id, spec.key);
            assert!((spec.min..=spec.max).contains(&spec.default), "{what}");
            let again = workload.params[..number].iter().any(|other| other.key == spec.key);
            assert!(!again && spec.key != "threads", "{what}: --sweep could mean something else");
        }
    }
}

#[test]
fn the_same_seed_is_the_same_run_and_another_one_is_not() {
    for lock in every_lock() {
        let of = |seed| {
            let outcome = run(lock, 12, seed, &[("gap", 300.0)]);
            (outcome.operations, outcome.events, outcome.transfers, outcome.joules.to_bits())
        };
        assert_eq!(of(1), of(1), "{lock}");
        assert_ne!(of(1), of(2), "{lock}");
    }
}

#[test]
fn threads_that_compute_for_long_are_not_stuck() {
    let outcome = plan("m1", "mcs", "bench", 8, &[("gap", 1e9)]).outcome();
    // 3.75 s on little cores.
    assert_eq!(outcome.violation, None);
}

#[test]
fn one_thread_alone_pays_what_the_profile_says() {
    let outcome = run("ticket", 1, 1, &[("lines", 64.0)]);
    let big = &profile::builtin("m1").unwrap().class[0];
    // fetch_add, load, 64 lines, load, store.
    let expected = big.atomic_ns + 64.0 * big.line_ns + 3.0 * big.load_ns;
    let measured = 1e9 / outcome.throughput;
    assert!((measured / expected - 1.0).abs() < 0.03, "{measured} ns, {expected} ns expected");
}

#[test]
fn runs_side_by_side_are_those_of_single_runs_in_the_order_asked_for() {
    let one = |(lock, seed): (&str, u64)| {
        let plan = plan("m1", lock, "sections", 8, &[("gap", 300.0)]);
        Run { seed, warmup_ns: 100_000, ..plan }
    };
    let all: Vec<_> = ["mcs", "tas", "asl"].into_iter().flat_map(|l| [(l, 1), (l, 2)]).collect();
    let runs: Vec<_> = all.iter().copied().map(one).collect();
    let over = AtomicUsize::new(0);
    let together = run_all(&runs, |number| {
        over.fetch_add(1 << (8 * number), Ordering::Relaxed);
    });
    assert_eq!(over.into_inner(), 0x01_01_01_01_01_01);
    for ((lock, seed), outcome) in all.into_iter().zip(together) {
        let alone = run(lock, 8, seed, &[("gap", 300.0)]);
        assert_eq!(outcome.events, alone.events, "{lock}, seed {seed}");
        assert_eq!(outcome.operations, alone.operations, "{lock}, seed {seed}");
    }
}
