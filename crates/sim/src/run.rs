//! One run: a lock, a machine, a workload, a number of threads, a seed.

use crate::check::Violation;
use crate::cpu::Cpu;
use crate::engine::{Engine, with_engine};
use crate::load::{RunWorld, Setup, Workload, time};
use crate::lock::LockSpec;
use crate::outcome::{Collect, Outcome};
use crate::profile::Profile;
use crate::timeline::Timeline;
use crate::transfers::Paths;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

/// How long threads may take to end after the run's end, or after any thread's later progress, in simulated ns.
const GRACE_NS: u64 = 2_000_000_000;

/// Where threads run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// Thread n on the n-th CPU, the fastest class first, and within a class one hardware thread of every core before
    /// the second ones. With more threads than CPUs, from the start again.
    #[default]
    Pinned,
    /// Wherever the scheduler puts them.
    Free,
    /// Thread n on the n-th of these CPUs, from the start again.
    Cpus(Vec<u32>),
}

/// One run. It owns everything that it needs, so it can wait, and run on any thread.
#[derive(Clone, Debug)]
pub struct Run {
    /// The machine.
    pub profile: Arc<Profile>,
    /// The lock.
    pub lock: LockSpec,
    /// What its threads do.
    pub workload: &'static Workload,
    /// The workload's options, where they differ from their defaults.
    pub params: BTreeMap<String, f64>,
    /// How many threads.
    pub threads: u32,
    /// Where they run.
    pub placement: Placement,
    /// The same seed, the same run.
    pub seed: u64,
    /// Simulated time before anything counts, ns.
    pub warmup_ns: u64,
    /// Simulated time that counts, ns.
    pub duration_ns: u64,
    /// Keep each operation?
    pub samples: bool,
    /// Keep what each core did, from the end of the warm-up on, at most this many entries.
    pub timeline: Option<usize>,
    /// Count the transfers of lines on the way from holder to holder?
    pub transfers: bool,
}

impl Run {
    /// Tells it from every other run; a machine's name stands for its profile.
    pub fn identity(&self) -> String {
        let Self { lock, params, threads, placement, seed, warmup_ns, duration_ns, .. } = self;
        let (machine, workload, samples) = (&self.profile.name, self.workload.id, self.samples);
        let programs: String =
            lock.programs().map(|(slot, program)| format!(" {slot}={}", program.name())).collect();
        let transfers = if self.transfers { " transfers" } else { "" };
        format!(
            "{machine} {} {workload} {params:?} {threads} {placement:?} {seed} {warmup_ns} {duration_ns} {samples}{programs}{transfers}",
            lock.name()
        )
    }

    fn cpus(&self) -> Vec<Option<u32>> {
        let by_class = || {
            let cpus = Cpu::all(&self.profile);
            let mut numbers: Vec<u32> = (0..self.profile.cpus()).collect();
            numbers.sort_by_key(|&cpu| (cpus[cpu as usize].class, cpus[cpu as usize].sibling));
            numbers
        };
        let list = match &self.placement {
            Placement::Free => return Vec::new(),
            Placement::Pinned => by_class(),
            Placement::Cpus(list) => {
                let (name, all) = (&self.profile.name, self.profile.cpus());
                for cpu in list {
                    assert!(*cpu < all, "no CPU {cpu} on '{name}', only 0 to {}", all - 1);
                }
                list.clone()
            }
        };
        // A server has a CPU of its own, even if it serves one thread.
        let count = self.threads.max(2) as usize;
        list.into_iter().cycle().take(count).map(Some).collect()
    }

    /// Threads on CPUs of each class, the fastest first; if the scheduler places them, threads that find no CPU of
    /// another class.
    fn threads_by_class(&self) -> Vec<u32> {
        let all = Cpu::all(&self.profile);
        let none = vec![0; self.profile.class.len()];
        let count = |cpus: &mut dyn Iterator<Item = u32>| {
            cpus.fold(none.clone(), |mut counts, cpu| {
                counts[all[cpu as usize].class] += 1;
                counts
            })
        };
        if self.placement == Placement::Free {
            let cpus = self.profile.cpus();
            let own = count(&mut (0..cpus));
            return own.iter().map(|own| self.threads.saturating_sub(cpus - own)).collect();
        }
        count(&mut self.cpus().into_iter().flatten().take(self.threads as usize))
    }

    /// Runs, on this thread.
    ///
    /// # Panics
    /// [`Placement::Cpus`] names a CPU that the machine does not have.
    pub fn outcome(&self) -> Outcome {
        let (from, end) = (time(self.warmup_ns), time(self.warmup_ns + self.duration_ns));
        let mut engine = Engine::new(&self.profile, self.seed);
        engine.policies = self.lock.policies();
        engine.grace = time(GRACE_NS);
        engine.limit = end + engine.grace;
        engine.meters.measured = (from, end);
        engine.timeline = self.timeline.map(|limit| Timeline::new(limit, from));
        engine.paths = self.transfers.then(|| Box::new(Paths::new((from, end))));
        let classes = self.profile.class.iter().map(|class| class.name.clone());
        let collect = Collect::new(classes, self.threads, self.samples);
        let world = RunWorld::new(self.threads, self.seed, from, end, collect);
        world.slower_ns.set(self.lock.slower_ns());
        with_engine(&mut engine, |engine| {
            let mut setup = Setup {
                engine,
                world: &world,
                lock: &self.lock,
                params: &self.params,
                specs: self.workload.params,
                cpus: self.cpus(),
                started: 0,
                servers: 0,
                beside: Vec::new(),
            };
            (self.workload.setup)(&mut setup);
            setup.serve();
            // SAFETY: it is the current machine, and no reference to it is left.
            unsafe { Engine::run(engine) };
            finish(engine, world, self)
        })
    }
}

#[allow(clippy::cast_precision_loss, reason = "counts and times far below 2^52")]
fn finish(engine: *mut Engine, world: Rc<RunWorld>, run: &Run) -> Outcome {
    // SAFETY: the run is over. Nobody else uses the machine until the locks end, and by then this reference is no
    // longer used.
    let e = unsafe { &mut *engine };
    let collect = std::mem::replace(
        &mut *world.collect.borrow_mut(),
        Collect::new(std::iter::empty(), 0, false),
    );
    let seconds = run.duration_ns as f64 * 1e-9;
    e.account_all();
    let joules = e.meters.joules + run.profile.kernel.package_w * seconds;
    let mut outcome = collect.outcome();
    // Servers ask for nothing.
    outcome.threads.truncate(world.clients.get() as usize);
    for (class, threads) in outcome.classes.iter_mut().zip(run.threads_by_class()) {
        class.threads = threads;
    }
    let operations = outcome.operations as f64;
    let violation = match e.violation.take().or_else(|| world.lost()) {
        Some(Violation::Stuck { why, at_ns, who }) => Some(match world.circle(|id| e.name(id)) {
            Some(who) => Violation::Circle { at_ns, who },
            None => Violation::Stuck { why, at_ns, who },
        }),
        other => other,
    };
    let locks = world.locks.borrow();
    outcome.seconds = seconds;
    outcome.throughput = operations / seconds;
    outcome.joules = joules;
    outcome.watts = joules / seconds;
    outcome.tpp = operations / joules;
    outcome.epo = joules / operations.max(1.0);
    outcome.cpu_seconds = e.meters.cpu as f64 * 1e-12;
    e.unused(|_| ());
    outcome.unused = e.unused.time as f64 * 1e-12 / seconds;
    outcome.acquisitions = locks.iter().map(|lock| lock.acquisitions.get()).sum();
    outcome.hand_overs = locks.iter().map(|lock| lock.hand_overs.get()).sum();
    outcome.most_overtaken = locks.iter().map(|l| l.most_overtaken.get()).max().unwrap_or(0);
    outcome.transfers = e.lines.transfers;
    outcome.sleeps = e.futexes.sleeps;
    outcome.wakes = e.futexes.wakes;
    outcome.events = e.handled;
    outcome.steps = e.handled + e.ran_on;
    outcome.violation = violation;
    outcome.timeline = e.timeline.take();
    outcome.path = e.paths.take().map(|paths| paths.outcome());
    // Last, because locks return memory to the machine.
    drop(locks);
    drop(world);
    outcome
}
