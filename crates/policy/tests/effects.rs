//! What the shipped policies do, on the virtual machine: each does what its page says, and keeps its bound. With `-- --nocapture` the
//! tests print what they measured, which is what the pages in docs/policies say.

use lockwright_contract::programs::maps::View;
use lockwright_platform::hooks::{Answer, Context, Hook, Node, Policy, READER, World};
use lockwright_policy::loaded::{Engine, Loaded};
use lockwright_policy::object::Object;
use lockwright_policy::shipped::shipped;
use lockwright_policy::verify::verify;
use lockwright_sim::load::{ParamSpec, Setup, Workload};
use lockwright_sim::{LockSpec, Outcome, Placement, Run, SlotPolicy, profile, workload};
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

fn load(name: &str) -> Loaded {
    let one = shipped().iter().find(|one| one.name == name).expect("a shipped policy");
    let verified = verify(Object::read(one.object).unwrap()).unwrap();
    Loaded::new(&verified, Engine::Interpreter).unwrap()
}

/// `programmed` with the shipped policy of this name.
fn with(name: &'static str) -> LockSpec {
    let policy = SlotPolicy::new(name, move || Box::new(load(name)));
    plain("programmed:slot=1").programmed(1, policy)
}

fn plain(lock: &str) -> LockSpec {
    LockSpec::parse(lock).unwrap()
}

type Params = &'static [(&'static str, f64)];

/// What runs, where, and for how many us, after a tenth of that.
struct Scene {
    machine: &'static str,
    load: &'static Workload,
    params: Params,
    threads: u32,
    us: u64,
}

impl Scene {
    fn run(&self, lock: LockSpec) -> Outcome {
        self.run_on(Placement::Pinned, lock)
    }

    fn run_on(&self, placement: Placement, lock: LockSpec) -> Outcome {
        self.run_seeded(1, placement, lock)
    }

    fn run_seeded(&self, seed: u64, placement: Placement, lock: LockSpec) -> Outcome {
        let outcome = Run {
            profile: Arc::new(profile::builtin(self.machine).unwrap()),
            lock,
            workload: self.load,
            params: self.params.iter().map(|(key, value)| ((*key).to_owned(), *value)).collect(),
            threads: self.threads,
            placement,
            seed,
            warmup_ns: self.us * 100,
            duration_ns: self.us * 1000,
            samples: false,
            timeline: None,
            transfers: false,
        }
        .outcome();
        assert_eq!(outcome.violation, None);
        outcome
    }
}

const fn param(key: &'static str, default: f64) -> ParamSpec {
    ParamSpec { key, meaning: "", default, min: 0.0, max: 1e12 }
}

/// Everybody holds one lock while it touches `lines` of data and computes for `cs` ns of the fastest core's time, thread 0 for `long`
/// times as long; and then computes for about `gap` ns. Threads below `some` have the tag `tag` and the priority `prio`, and with
/// `epochs` 1 they work in epochs; the others have the tag 1.
static ONE_LOCK: Workload = Workload {
    id: "one-lock",
    idea: "",
    source: "",
    params: &[
        param("lines", 0.0),
        param("cs", 1000.0),
        param("long", 1.0),
        param("gap", 1000.0),
        param("some", 0.0),
        param("tag", 1.0),
        param("prio", 0.0),
        param("epochs", 0.0),
    ],
    holds: false,
    setup: &one_lock,
};

thread_local! {
    /// The half of the threads that had the lock last; its acquisitions; those by the same half as the one before.
    static HALVES: Cell<(u32, u32, u32)> = const { Cell::new((0, 0, 0)) };
}

fn one_lock(setup: &mut Setup) {
    let (lock, lines) = (setup.lock(), setup.count("lines"));
    let data = setup.data(lines);
    let (cs, long, gap) = (setup.param("cs"), setup.param("long"), setup.param("gap"));
    let (some, tag, prio) = (setup.count("some"), setup.param("tag") as u64, setup.count("prio"));
    let epochs = setup.count("epochs") == 1;
    let threads = setup.thread_count();
    HALVES.set((0, 0, 0));
    setup.threads(move |me| {
        let is_one = me.number() < some;
        me.tag(if is_one { tag } else { 1 });
        me.prio(if is_one { prio.cast_signed() } else { 0 });
        let cs = if me.number() == 0 { cs * long } else { cs };
        let section = || {
            me.locked(lock, || {
                let half = me.number() * 2 / threads;
                let (last, all, same) = HALVES.get();
                HALVES.set((half, all + 1, same + u32::from(last == half)));
                me.touch(data, 0..lines);
                me.compute(cs);
            });
        };
        while me.goes_on() {
            if epochs && is_one {
                me.operation_within(0, Some(10_000), section);
            } else {
                me.operation(section);
            }
            me.compute(gap * (0.5 + me.chance()));
        }
    });
}

/// Half of the threads take an outer lock, and under it the lock that all take.
static NEST: Workload =
    Workload { id: "nest", idea: "", source: "", params: &[], holds: false, setup: &nest };

fn nest(setup: &mut Setup) {
    let (outer, inner) = (setup.lock(), setup.lock());
    let threads = setup.thread_count();
    setup.threads(move |me| {
        let nests = me.number() < threads / 2;
        while me.goes_on() {
            me.operation(|| {
                let section = || me.locked(inner, || me.compute(1000.0));
                if nests { me.locked(outer, section) } else { section() }
            });
            me.compute(500.0);
        }
    });
}

/// The first 8 threads use a lock; the others only compute.
static BURDENED: Workload =
    Workload { id: "burdened", idea: "", source: "", params: &[], holds: false, setup: &burdened };

fn burdened(setup: &mut Setup) {
    let lock = setup.lock();
    setup.threads(move |me| {
        while me.goes_on() {
            if me.number() < 8 {
                me.operation(|| me.locked(lock, || me.compute(10_000.0)));
                me.compute(10_000.0 * (0.5 + me.chance()));
            } else {
                me.compute(10_000.0);
            }
        }
    });
}

/// The operations of these threads.
fn operations(outcome: &Outcome, of: Range<usize>) -> f64 {
    outcome.threads[of].iter().map(|thread| thread.operations).sum::<u64>() as f64
}

/// Of an `m1` with 8 threads: how many operations big cores do for one of little cores.
fn big_to_little(outcome: &Outcome) -> f64 {
    operations(outcome, 0..4) / operations(outcome, 4..8)
}

fn mean_wait(outcome: &Outcome, thread: usize) -> f64 {
    let thread = &outcome.threads[thread];
    thread.wait_ns as f64 / thread.acquisitions as f64
}

fn longest_wait(outcome: &Outcome) -> u64 {
    outcome.classes.iter().map(|class| class.wait.max_ns).max().unwrap()
}

#[track_caller]
fn within(what: &str, value: f64, range: Range<f64>) {
    println!("{what}: {value:.3}");
    assert!(range.contains(&value), "{what}: {value}, not in {range:?}");
}

#[test]
fn big_first() {
    let params: Params = &[("cs", 20_000.0)];
    let scene = Scene { machine: "m1", load: &ONE_LOCK, params, threads: 8, us: 30_000 };
    let (fifo, ours) = (scene.run(plain("fifo")), scene.run(with("big-first")));
    within(
        "big-first: turns of big cores for one of a little core",
        big_to_little(&ours),
        6.0..25.0,
    );
    within("the same in order of arrival", big_to_little(&fifo), 0.9..1.1);
    within("throughput, of fifo's", ours.throughput / fifo.throughput, 1.8..3.0);
    // The bound, and a section of each of the others, which take up to 75 us.
    within("longest wait, ms", longest_wait(&ours) as f64 / 1e6, 1.0..2.6);
}

#[test]
fn numa() {
    let params: Params = &[("lines", 16.0), ("cs", 0.0), ("gap", 200.0)];
    let scene = Scene { machine: "xeon-2x10", load: &ONE_LOCK, params, threads: 20, us: 2_000 };
    // An order of arrival repeats itself: of one seed, its share of near hand-overs is that of the first round.
    let of = |lock: fn() -> LockSpec| {
        let (mut all, mut same, mut throughput) = (0, 0, 0.0);
        for seed in 1..=8 {
            throughput += scene.run_seeded(seed, Placement::Pinned, lock()).throughput;
            let (_, all_of, same_of) = HALVES.get();
            (all, same) = (all + all_of, same + same_of);
        }
        (f64::from(same) / f64::from(all), throughput)
    };
    let (fifo, ours) = (of(|| plain("fifo")), of(|| with("numa")));
    within("numa: hand-overs within a node", ours.0, 0.7..1.0);
    within("the same in order of arrival", fifo.0, 0.45..0.7);
    within("throughput, of fifo's", ours.1 / fifo.1, 1.05..1.5);
}

#[test]
fn numa_turns() {
    let params: Params = &[("lines", 4.0), ("cs", 0.0), ("gap", 600.0)];
    let of = |threads, lock| {
        let scene = Scene { machine: "xeon-8x10", load: &ONE_LOCK, params, threads, us: 2_000 };
        scene.run(lock)
    };
    for (threads, range) in [(10, 0.9..1.1), (20, 1.1..2.0), (40, 1.3..2.5), (80, 1.6..3.5)] {
        let (fifo, ours) = (of(threads, plain("fifo")), of(threads, with("numa-turns")));
        let what = format!("numa-turns: throughput of {threads} threads, of fifo's");
        within(&what, ours.throughput / fifo.throughput, range);
        // It waits for the other nodes' turns, and then in the line.
        let round = 15_000.0 * f64::from(threads / 10);
        let longest = ours.latency.p99_ns as f64 / (round + 10_000.0);
        within("P99, of a round and 10 us", longest, 0.0..1.0);
    }
}

#[test]
fn proportional() {
    let params: Params = &[("cs", 2000.0), ("gap", 500.0)];
    // It takes some milliseconds until the length of a round is known.
    let scene = Scene { machine: "m1", load: &ONE_LOCK, params, threads: 8, us: 40_000 };
    let [fifo, pb10, ours] =
        [plain("fifo"), plain("pb10"), with("proportional")].map(|lock| scene.run(lock));
    within(
        "proportional: turns of big cores for one of a little core",
        big_to_little(&ours),
        8.5..12.5,
    );
    within("throughput, of fifo's", ours.throughput / fifo.throughput, 1.5..2.5);
    within("throughput, of pb10's", ours.throughput / pb10.throughput, 0.95..1.05);
    within("turns of pb10's big cores for one of a little core", big_to_little(&pb10), 8.5..12.5);
}

#[test]
fn slo_order() {
    let cases: [(Params, f64); 2] = [(&[("slo_us", 50.0)], 50_000.0), (&[("slo_us", -1.0)], 0.0)];
    for (params, slo) in cases {
        let load = workload::find("bench1").unwrap();
        let scene = Scene { machine: "m1", load, params, threads: 8, us: 5_000 };
        let (asl, ours) = (scene.run(plain("asl")), scene.run(with("slo-order")));
        within("slo-order: throughput, of asl's", ours.throughput / asl.throughput, 0.92..1.05);
        if slo > 0.0 {
            let p99 = ours.classes[1].latency.p99_ns as f64;
            within("P99 on little cores, of the SLO", p99 / slo, 0.8..1.1);
        }
    }
}

#[test]
fn cal() {
    let load = workload::find("cal").unwrap();
    // It takes some milliseconds until the policy knows how long sections are.
    let scene = Scene { machine: "m1", load, params: &[], threads: 8, us: 16_000 };
    let [fifo, lock, ours] = [plain("fifo"), plain("cal"), with("cal")].map(|lock| scene.run(lock));
    // A little core's sections take longer, so equal slowdown is a longer latency there.
    let ratio = |o: &Outcome| o.classes[1].latency.mean_ns / o.classes[0].latency.mean_ns;
    within("cal: latency on little cores, of that on big ones", ratio(&ours), 1.5..2.5);
    within("the same of the lock cal", ratio(&lock), 1.5..2.5);
    within("the same in order of arrival", ratio(&fifo), 0.8..1.2);
    within("throughput, of the lock's", ours.throughput / lock.throughput, 0.93..1.1);
}

#[test]
fn inheritance() {
    let scene = Scene { machine: "xeon-2x10", load: &NEST, params: &[], threads: 10, us: 4_000 };
    let (fifo, ours) = (scene.run(plain("fifo")), scene.run(with("inheritance")));
    let ratio = |of: Range<usize>| operations(&ours, of.clone()) / operations(&fifo, of);
    within("inheritance: operations of the threads that nest, of fifo's", ratio(0..5), 1.1..2.0);
    within("of the others", ratio(5..10), 0.8..1.0);
}

#[test]
fn threads_that_matter_go_first() {
    let cases: [(&str, Params); 3] = [
        ("priority", &[("some", 1.0), ("tag", 5.0)]),
        ("priority", &[("some", 1.0), ("prio", 10.0)]),
        ("call-path", &[("some", 1.0), ("epochs", 1.0)]),
    ];
    for (name, params) in cases {
        let scene = Scene { machine: "xeon-2x10", load: &ONE_LOCK, params, threads: 10, us: 2_000 };
        let (fifo, ours) = (scene.run(plain("fifo")), scene.run(with(name)));
        let ratio = |thread| mean_wait(&ours, thread) / mean_wait(&fifo, thread);
        within(&format!("{name}: its mean wait, of fifo's"), ratio(0), 0.2..0.6);
        within("of another thread", ratio(1), 1.0..1.3);
    }
}

#[test]
fn scl() {
    let params: Params = &[("cs", 10_000.0), ("long", 10.0)];
    let scene = Scene { machine: "xeon-2x10", load: &ONE_LOCK, params, threads: 4, us: 50_000 };
    let (fifo, ours) = (scene.run(plain("fifo")), scene.run(with("scl")));
    let ratio = |o: &Outcome| 10.0 * operations(o, 0..1) / operations(o, 1..2);
    within("scl: lock time of a thread with long sections, of another's", ratio(&ours), 0.8..1.25);
    within("the same in order of arrival", ratio(&fifo), 9.0..11.0);
}

#[test]
fn scl_amp() {
    let params: Params = &[("cs", 20_000.0)];
    let scene = Scene { machine: "m1", load: &ONE_LOCK, params, threads: 8, us: 20_000 };
    let (time, work) = (scene.run(with("scl")), scene.run(with("scl-amp")));
    within("scl-amp: work on big cores, of that on little ones", big_to_little(&work), 0.85..1.2);
    within("the same with equal times", big_to_little(&time), 2.8..4.5);
}

#[test]
fn tenants() {
    // Thread 0 is a tenant; six others are another one.
    let cases: [(&str, Params, Range<f64>); 2] = [
        (
            "tenants: a thread's share, against six",
            &[("some", 1.0), ("tag", 2.0), ("cs", 10_000.0)],
            0.45..0.55,
        ),
        (
            "with twice the weight",
            &[("some", 1.0), ("tag", 8_589_934_594.0), ("cs", 10_000.0)],
            0.6..0.72,
        ),
    ];
    for (what, params, range) in cases {
        let scene = Scene { machine: "xeon-2x10", load: &ONE_LOCK, params, threads: 7, us: 20_000 };
        let share = |o: &Outcome| operations(o, 0..1) / operations(o, 0..7);
        within(what, share(&scene.run(with("tenants"))), range);
        within("the same in order of arrival", share(&scene.run(plain("fifo"))), 0.1..0.2);
    }
}

#[test]
fn parking() {
    let of = |params, us| {
        let scene = Scene { machine: "xeon-2x10", load: &ONE_LOCK, params, threads: 8, us };
        let (fifo, ours) = (scene.run(plain("fifo")), scene.run(with("parking")));
        (ours.throughput / fifo.throughput, ours.cpu_seconds / fifo.cpu_seconds)
    };
    let (throughput, cpu) = of(&[("cs", 1_000_000.0)], 50_000);
    within("parking: CPU time with sections of 1 ms, of fifo's", cpu, 0.3..0.6);
    within("throughput: one section of 21 less", throughput, 0.94..1.05);
    let (throughput, _) = of(&[("cs", 500.0)], 2_000);
    // Each question costs some of that, and fifo asks none. (0.96.)
    within("throughput with sections of 0.5 us", throughput, 0.94..1.05);
}

#[test]
fn vcpu() {
    // One of the 8 CPUs of the threads has something else to do half of the time.
    let on = || Placement::Cpus(vec![0, 2, 4, 6, 8, 10, 12, 14, 0]);
    let scene =
        Scene { machine: "xeon-2x10", load: &BURDENED, params: &[], threads: 9, us: 30_000 };
    let of = |lock| operations(&scene.run_on(on(), lock), 0..8);
    within("vcpu: throughput, of fifo's", of(with("vcpu")) / of(plain("fifo")), 3.0..100.0);
}

/// A world in which nothing happens.
struct Nowhere;

impl World for Nowhere {
    fn now(&self) -> u64 {
        1
    }
    fn cpu(&self) -> u32 {
        0
    }
    fn numa(&self) -> u32 {
        0
    }
    fn class(&self) -> u32 {
        0
    }
    fn pid_tgid(&self) -> u64 {
        1
    }
    fn tag(&self, _: u32) -> u64 {
        0
    }
    fn prio(&self, _: u32) -> i32 {
        0
    }
}

/// Simulated threads have no priorities, so this is only what it asks for.
#[test]
fn pi_boosts_for_real_time_waiters_and_orders_by_priority() {
    let pi = load("pi");
    let ask = |hook, own: i32, best: i32, curr: i32, passed| {
        let node = |prio| Node { prio, passed, ..Node::default() };
        let (own, best, curr) = (node(own), node(best), node(curr));
        pi.ask(hook, &Context { own, best, curr, ..Context::default() }, &Nowhere).value
    };
    let boosts = |prio| ask(Hook::ScheduleWaiter, prio, 0, 0, 0);
    assert_eq!([-5, 0, 1, 99].map(boosts), [0, 0, 3, 3]);
    let order = |best, curr, passed| ask(Hook::CmpNode, 0, best, curr, passed);
    assert_eq!([order(0, 10, 0), order(10, 0, 0), order(0, 0, 0), order(10, 0, 100)], [2, 0, 0, 1]);
}

#[test]
fn bravo_follows_what_readers_and_writers_do() {
    let bravo = load("bravo");
    let ask = |flags| {
        let own = Node { flags, ..Node::default() };
        bravo.ask(Hook::RwBias, &Context { lock_id: 64, own, ..Context::default() }, &Nowhere).value
    };
    // `every`: one request in this many is a writer's.
    let run = |every: u32| {
        (0..8192).map(|n| ask(if n % every == 0 { 0 } else { READER })).fold(0, |_, answer| answer)
    };
    assert_eq!(ask(READER), 0, "nothing is known yet");
    assert_eq!(run(1000), 1, "mostly read");
    assert_eq!(run(100), 1, "in between it stays as it is");
    assert_eq!(run(10), 2, "often written");
    assert_eq!(run(100), 2, "in between it stays as it is");
    assert_eq!(run(1000), 1, "mostly read again");
}

#[test]
fn bravo_distributes_readers_where_reads_dominate() {
    let cases: [(Params, Range<f64>); 2] =
        [(&[("reads", 99.99)], 2.0..100.0), (&[("reads", 50.0)], 0.8..1.1)];
    for (params, range) in cases {
        let load = workload::find("rwlock").unwrap();
        let scene = Scene { machine: "xeon-2x10", load, params, threads: 20, us: 5_000 };
        let policy = SlotPolicy::new("bravo", || Box::new(self::load("bravo")));
        let ours = scene.run(plain("programmed-rw:slot=1").programmed(1, policy));
        let without = scene.run(plain("programmed-rw:slot=1"));
        let what = format!("bravo: throughput with {} % reads, of that without", params[0].1);
        within(&what, ours.throughput / without.throughput, range);
    }
}

/// A policy that the test still sees.
struct Seen(Rc<Loaded>);

impl Policy for Seen {
    fn hooks(&self) -> u32 {
        self.0.hooks()
    }
    fn ask(&self, hook: Hook, context: &Context, world: &dyn World) -> Answer {
        self.0.ask(hook, context, world)
    }
}

thread_local! {
    static SEEN: RefCell<Option<Rc<Loaded>>> = const { RefCell::new(None) };
}

#[test]
fn histogram() {
    let policy = SlotPolicy::new("histogram", || {
        let loaded = Rc::new(load("histogram"));
        SEEN.set(Some(loaded.clone()));
        Box::new(Seen(loaded))
    });
    let params: Params = &[("cs", 5000.0)];
    let scene = Scene { machine: "xeon-2x10", load: &ONE_LOCK, params, threads: 8, us: 2_000 };
    let outcome = scene.run(plain("programmed:slot=1").programmed(1, policy));
    let seen = SEEN.take().expect("the run has made it");
    let bytes = seen.maps().bytes();
    let map = |name: &str| {
        let number = seen.maps().names().iter().position(|known| known == name).expect(name);
        View::all(&bytes).nth(number).expect(name)
    };
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
    let waits = map("waits");
    let counts: Vec<u64> = (0..64)
        .map(|bucket| (0..waits.rows).filter_map(|row| waits.value(bucket, row)).map(number).sum())
        .collect();
    // A mutex learns of its policy in its first wait: the policy doesn't hear of requests before that, one a thread.
    let missed = outcome.acquisitions - counts.iter().sum::<u64>();
    assert!(missed <= 8, "{missed}");
    // In a queue of eight most wait for seven sections of 5 us: between 2^15 and 2^16 ns.
    within(
        "histogram: waits of 33 to 66 us, of all",
        counts[15] as f64 / outcome.acquisitions as f64,
        0.8..1.0,
    );
    let longest: Vec<u64> = map("longest").entries().map(|(_, value)| number(value)).collect();
    assert_eq!(longest.len(), 1, "there is one lock");
    let of_waits = 63 - counts.iter().rev().position(|count| *count > 0).expect("some wait");
    assert_eq!(longest[0].ilog2() as usize, of_waits);
    let reports = map("reports");
    assert!(reports.records(&reports, &reports, 0).next().is_some());
}
