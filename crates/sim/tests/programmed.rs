//! Locks that policies program, on the machine: what the policies of papers do to order and throughput, and what none of them can do.

use lockwright_platform::hooks::{Answer, Context, Hook, Policy, THREADS, World};
use lockwright_sim::explore::{Exploration, Search};
use lockwright_sim::{LockSpec, Outcome, Placement, Run, SlotPolicy, profile, workload};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// A policy that answers one hook.
struct One<F>(Hook, F);

impl<F: Fn(&Context) -> u64> Policy for One<F> {
    fn hooks(&self) -> u32 {
        self.0.bit() | THREADS
    }
    fn ask(&self, _: Hook, context: &Context, _: &dyn World) -> Answer {
        Answer { value: (self.1)(context), insns: 10 }
    }
}

/// `programmed` with a policy that answers `hook`.
fn programmed(hook: Hook, answer: fn(&Context) -> u64) -> LockSpec {
    let program = SlotPolicy::new(hook.name(), move || Box::new(One(hook, answer)));
    LockSpec::parse("programmed:slot=1").unwrap().programmed(1, program)
}

fn plain(name: &str) -> LockSpec {
    LockSpec::parse(name).unwrap()
}

fn run(machine: &str, lock: LockSpec, load: &str, threads: u32, params: &[(&str, f64)]) -> Outcome {
    run_seed(1, machine, lock, load, threads, params)
}

fn run_seed(
    seed: u64,
    machine: &str,
    lock: LockSpec,
    load: &str,
    threads: u32,
    params: &[(&str, f64)],
) -> Outcome {
    let outcome = Run {
        profile: Arc::new(profile::builtin(machine).unwrap()),
        lock,
        workload: workload::find(load).unwrap(),
        params: params.iter().map(|(key, value)| ((*key).to_owned(), *value)).collect(),
        threads,
        placement: Placement::Pinned,
        seed,
        warmup_ns: 1_000_000,
        duration_ns: if load == "bench1" { 10_000_000 } else { 4_000_000 },
        samples: false,
        timeline: None,
        transfers: false,
    }
    .outcome();
    assert_eq!(outcome.violation, None);
    outcome
}

/// How much more the fastest class gets done than the others.
fn big_share(outcome: &Outcome) -> f64 {
    outcome.classes[0].operations as f64 / outcome.operations as f64
}

fn big_first(context: &Context) -> u64 {
    let Context { best, curr, .. } = context;
    u64::from(curr.core_class == 0 || curr.core_class < best.core_class)
}

/// Sections that are long enough for a choice.
const LONG: [(&str, f64); 2] = [("lines", 32.0), ("gap", 600.0)];

#[test]
fn big_cores_first_serves_big_cores_first() {
    let fifo = run("m1", plain("fifo"), "bench", 8, &LONG);
    let ours = run("m1", programmed(Hook::CmpNode, big_first), "bench", 8, &LONG);
    let (with, without) = (big_share(&ours), big_share(&fifo));
    assert!(with > without + 0.1, "{with} {without}");
    assert!(ours.throughput > fifo.throughput, "{} {}", ours.throughput, fifo.throughput);
}

#[test]
fn the_bound_holds_whatever_a_policy_says() {
    // Threads on little cores are passed over as often as the bound allows, and then served.
    let share = |bypass: u32| {
        let lock = programmed(Hook::CmpNode, big_first).with("bypass", bypass).unwrap();
        big_share(&run("m1", lock, "bench", 8, &LONG))
    };
    let (tight, loose) = (share(1), share(100));
    assert!(tight < loose && loose < 1.0, "{tight} {loose}");
}

#[test]
fn grouping_pays_on_two_sockets() {
    let load = [("lines", 16.0), ("gap", 600.0)];
    let same_node = |context: &Context| match context.curr.numa == context.own.numa {
        false => 0,
        true if context.round == 0 => 1,
        true => 3,
    };
    // In order of arrival, it is the seed that decides how often the lock changes its node.
    let of = |lock: LockSpec| {
        let seeds = 1..=4;
        let all = seeds.map(|seed| run_seed(seed, "xeon-2x10", lock.clone(), "bench", 20, &load));
        all.map(|outcome| outcome.throughput).sum::<f64>()
    };
    let (ours, fifo) = (of(programmed(Hook::CmpNode, same_node)), of(plain("fifo")));
    assert!(ours > 1.1 * fifo, "{ours} {fifo}");
}

/// Does something in the machine before it answers. It has memory of its own.
#[repr(align(128))]
struct Busy(fn(&dyn World, usize));

impl Policy for Busy {
    fn hooks(&self) -> u32 {
        Hook::LockContended.bit()
    }
    fn ask(&self, _: Hook, _: &Context, world: &dyn World) -> Answer {
        (self.0)(world, std::ptr::from_ref(self).addr());
        Answer { value: 0, insns: 10 }
    }
}

/// Four threads contend for a lock whose policy does this.
fn busy(what: fn(&dyn World, usize)) -> Outcome {
    let lock = LockSpec::parse("programmed:slot=1").unwrap();
    let lock = lock.programmed(1, SlotPolicy::new("busy", move || Box::new(Busy(what))));
    run("m1", lock, "bench", 4, &[("lines", 4.0), ("gap", 600.0)])
}

#[test]
fn a_policys_memory_moves_between_cores() {
    let per_operation = |what: fn(&dyn World, usize)| {
        let outcome = busy(what);
        outcome.transfers as f64 / outcome.operations as f64
    };
    let untouched = per_operation(|_, _| ());
    let read = per_operation(|world, at| world.touches(at, false));
    let written = per_operation(|world, at| {
        world.touches(at, true);
        world.touches(at + 8, false); // the same line
    });
    assert!((read - untouched).abs() < 0.2, "each core keeps it: {read} {untouched}");
    assert!(written > untouched + 0.4, "{written} {untouched}");
}

#[test]
fn a_policys_clock_takes_time() {
    let often = busy(|world, _| assert!((0..100).all(|_| world.now() > 0)));
    let (with, without) = (often.throughput, busy(|_, _| ()).throughput);
    assert!(with < 0.9 * without, "{with} {without}");
}

#[test]
fn without_a_policy_it_is_fifo() {
    for (machine, threads) in [("m1", 2), ("m1", 8), ("m1", 16), ("xeon-2x10", 20)] {
        for load in [[("lines", 8.0), ("gap", 600.0)], [("lines", 2.0), ("gap", 0.0)]] {
            let fifo = run(machine, plain("fifo"), "bench", threads, &load).throughput;
            for lock in [plain("programmed"), plain("programmed:slot=3")] {
                let ours = run(machine, lock, "bench", threads, &load).throughput;
                assert!((ours / fifo - 1.0).abs() < 0.01, "{machine} {threads}: {ours} to {fifo}");
            }
        }
    }
}

#[test]
fn standby_for_the_epochs_window_is_asl() {
    let window = |context: &Context| match context.own.core_class {
        0 => 0,
        _ => context.own.window_ns.into(),
    };
    for (threads, slo_us) in [(8, -1.0), (8, 0.0), (8, 100.0)] {
        let load = [("slo_us", slo_us)];
        // One run differs from another by up to 11 % of the throughput.
        let of = |lock: LockSpec| -> f64 {
            let seed =
                |seed| run_seed(seed, "m1", lock.clone(), "bench1", threads, &load).throughput;
            (1..=12).map(seed).sum()
        };
        let (one, other) = (of(programmed(Hook::LockContended, window)), of(plain("asl")));
        assert!(
            (one / other - 1.0).abs() < 0.05,
            "{threads} threads, {slo_us} us: {one} to {other}"
        );
    }
}

/// A policy that is told of everything, and counts.
struct Counts(Arc<[AtomicU64; 8]>);

impl Policy for Counts {
    fn hooks(&self) -> u32 {
        Hook::LockAcquire.bit() | Hook::LockAcquired.bit() | Hook::LockRelease.bit()
    }
    fn ask(&self, hook: Hook, _: &Context, _: &dyn World) -> Answer {
        self.0[hook as usize].fetch_add(1, Relaxed);
        Answer { value: u64::from(hook == Hook::LockAcquire), insns: 10 }
    }
}

#[test]
fn a_policy_is_told_of_each_acquisition_and_each_release() {
    let counts: Arc<[AtomicU64; 8]> = Arc::default();
    let shared = counts.clone();
    let policy = SlotPolicy::new("counts", move || Box::new(Counts(shared.clone())));
    let lock = plain("programmed:slot=1").programmed(1, policy);
    // The run checks that nobody is overtaken too often, though each arrival may take a free lock past the line.
    let outcome = run("m1", lock, "bench", 8, &[("lines", 4.0), ("gap", 600.0)]);
    let hooks = [Hook::LockAcquire, Hook::LockAcquired, Hook::LockRelease];
    let [asked, got, released] = hooks.map(|hook| counts[hook as usize].load(Relaxed));
    assert!(got > outcome.operations, "{got} of {}", outcome.operations);
    // A thread may be between two of them when the run ends, and each locked once before the mutex was contended.
    assert!(asked.abs_diff(got) <= 8 && got.abs_diff(released) <= 8, "{asked} {got} {released}");
}

/// In explorations policies are adversaries, which are drawn for each schedule.
#[test]
fn no_answer_breaks_exclusion_a_bound_or_a_line() {
    let search = Search {
        strategy: None,
        first: 0,
        schedules: 5_000,
        time: Duration::MAX,
        jobs: 2,
        stop: || false,
    };
    let hit = search.run(&Exploration::new(plain("programmed"), None)).1;
    assert!(hit.is_none(), "{hit:#?}");
}
