//! Samples all threads of a process repeatedly, without stopping any.

use super::hold::Holds;
use super::often::watch::Often;
use super::running::{DEEP, Running, SHALLOW};
use super::seen::{BATCHES, Holder, LockKind, Seen, StackId};
use super::target::{Target, classes_of_cpus, field};
use super::wait::{self, Wait};
use crate::findings::Holding;
use lockwright_symbols::{Blocked, Registers, Symboliser, Unwinder, blocked, proc_text, threads};
use std::collections::{HashMap, HashSet};
use std::io::{self, ErrorKind};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How the sampling ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The time was over.
    TimeIsUp,
    /// The process was.
    ProcessEnded,
    /// The caller ended it.
    Interrupted,
}

/// What was seen, and for how long.
pub struct Sampled {
    /// The process.
    pub target: Target,
    pub(crate) seen: Seen,
    /// What the holders of each lock did while others waited for it, by the lock's address.
    pub holdings: HashMap<u64, Holding>,
    /// The stacks in which they slept most often.
    pub(super) asleep: HashMap<u64, StackId>,
    /// How long that took.
    pub took: Duration,
    /// How it ended.
    pub end: End,
    /// Why running threads have no stacks.
    pub refused: Option<io::Error>,
    pub(super) often: Often,
    /// The CPU time between two samples of a running thread, ns.
    pub(super) sample_ns: u64,
}

/// How often a running thread is sampled by the kernel between two of our samples, so that one of these is close to
/// ours.
const LOOKS: u64 = 4;
/// The CPU time between two samples of a running thread if nobody asks where holders run, ns. No multiple of a scheduler's tick.
const SPARSE: u64 = 5_030_000;
/// Maximum number of frames of libraries below the function that the program called.
const INNER: usize = 12;
/// How often we look for new libraries.
const REFRESH: Duration = Duration::from_millis(500);

/// Samples `rate` times a second for `time`, or until `goes_on`, which is told how long that has been, denies it.
pub fn sample(
    target: Target,
    time: Duration,
    rate: f64,
    goes_on: impl Fn(Duration) -> bool,
) -> Sampled {
    let period = Duration::from_secs_f64(1.0 / rate);
    let mut sampler = Sampler::begin(target, period, true);
    let start = Instant::now();
    let mut next = start;
    let end = loop {
        let elapsed = start.elapsed();
        if elapsed >= time {
            break End::TimeIsUp;
        }
        if !goes_on(elapsed) {
            break End::Interrupted;
        }
        sampler.look_at_running();
        let part = elapsed.as_secs_f64() / time.as_secs_f64() * BATCHES as f64;
        if sampler.tick((part as usize).min(BATCHES - 1), &[]).is_err() {
            break End::ProcessEnded;
        }
        // If we are late, skip the missed samples. Otherwise samples would cluster.
        next = (next + period).max(Instant::now());
        sleep(
            next.saturating_duration_since(Instant::now())
                .min(time.saturating_sub(start.elapsed())),
        );
    };
    sampler.end(end)
}

/// Samples a process.
pub struct Sampler {
    target: Target,
    unwinder: Unwinder,
    seen: Seen,
    /// Where running threads run.
    running: Running,
    /// Does anybody ask where holders run?
    places: bool,
    often: Often,
    holds: Holds,
    begun: Instant,
    refreshed: Instant,
    /// A thread's id in our namespace, by its id in the process's namespace: in a container they differ.
    outer: HashMap<u32, libc::pid_t>,
    period: u64,
    /// Whether each stack waits for a readers-writer lock.
    read_write: HashMap<StackId, bool>,
    /// Whether each stack may wait for a mutex, and whether in our library.
    mutexes: HashMap<StackId, (bool, bool)>,
    /// Where threads slept in the last sample. Most of them still do, so their stacks are known.
    slept: HashMap<libc::pid_t, (Blocked, StackId)>,
}

impl Sampler {
    /// Begins to sample a process, about once in `period`. `places`: also learns where running holders run.
    pub fn begin(mut target: Target, period: Duration, places: bool) -> Self {
        let nanoseconds = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX);
        let now = Instant::now();
        let running = match places {
            true => Running::new((nanoseconds / LOOKS).max(100_000), DEEP),
            false => Running::new(SPARSE, SHALLOW),
        };
        Self {
            unwinder: Unwinder::new(&mut target.symboliser),
            seen: Seen::default(),
            running,
            places,
            often: Often::begin(),
            holds: Holds::begin(target.pid, classes_of_cpus(&target.environment)),
            begun: now,
            refreshed: now,
            outer: HashMap::new(),
            period: nanoseconds,
            read_write: HashMap::new(),
            mutexes: HashMap::new(),
            slept: HashMap::new(),
            target,
        }
    }

    /// What was seen.
    pub fn end(mut self, end: End) -> Sampled {
        self.fetch();
        let Self { mut target, seen, running, holds, begun, often, .. } = self;
        let took = begun.elapsed();
        target.symboliser.space_mut().learn_threads();
        let period = took.as_nanos() as u64 / seen.samples().max(1);
        let (refused, sample_ns) = running.ended();
        let (mut holdings, mut asleep) = (HashMap::new(), HashMap::new());
        // The words of a condition variable may look like a lock's. Names are found only now, since that takes long.
        let is_event = |stack| {
            let inner = seen.stacks.get(stack).iter().take(INNER);
            let mut names = inner.filter_map(|at| target.symboliser.function(*at));
            names.any(|name| is_for_event(&name))
        };
        for (lock, (holding, stack)) in holds.end(period, is_event) {
            holdings.insert(lock, holding);
            asleep.extend(stack.map(|stack| (lock, stack)));
        }
        Sampled { target, seen, holdings, asleep, took, end, refused, often, sample_ns }
    }

    /// What names the process's addresses, and what walks its stacks.
    pub(super) fn names(&mut self) -> (&mut Symboliser, &mut Unwinder) {
        (&mut self.target.symboliser, &mut self.unwinder)
    }

    /// Looks at what running threads have done: the kernel has sampled them.
    pub(super) fn look_at_running(&mut self) {
        self.fetch();
        self.often.count_calls(&self.target.symboliser, &mut self.unwinder);
    }

    fn fetch(&mut self) {
        let Self { running, often, target, unwinder, .. } = self;
        running.fetch(|tid, moment| often.see(tid, moment, &mut target.symboliser, unwinder));
    }

    fn refresh(&mut self) {
        if self.target.symboliser.refresh() {
            self.unwinder.refresh(&mut self.target.symboliser);
            self.often.refresh();
            self.slept.clear();
        }
    }

    /// Takes one sample of all threads, in one of [`BATCHES`] batches. `waited`: locks that threads are known to wait for, though
    /// perhaps none of them sleeps on the lock itself.
    ///
    /// # Errors
    ///
    /// The process has ended.
    pub(super) fn tick(&mut self, batch: usize, waited: &[(u64, LockKind)]) -> io::Result<()> {
        if self.refreshed.elapsed() >= REFRESH {
            self.refreshed = Instant::now();
            self.refresh();
        }
        self.holds.settle();
        let pid = self.target.pid;
        let now = monotonic();
        let all = threads(pid)?;
        let mut states = HashMap::with_capacity(all.len());
        for tid in all {
            match blocked(pid, tid) {
                // A zombie thread: its parent has not reaped it yet.
                Ok(Some(Blocked { stack_pointer: 0, .. })) => {}
                Ok(state) => drop(states.insert(tid, state)),
                // The thread has just ended.
                Err(_) => {}
            }
        }
        if states.is_empty() {
            return Err(ErrorKind::NotFound.into());
        }
        self.meet(&states);
        self.seen.threads = self.seen.threads.max(states.len());
        self.seen.batches[batch] += 1;
        let mut owners: HashMap<u64, (LockKind, Owner)> = HashMap::new();
        let mut waiters: HashMap<u64, Vec<libc::pid_t>> = HashMap::new();
        for (&tid, state) in &states {
            let Some(state) = state else { continue };
            let Some(wait) = wait::of(pid, state, |id| self.outer.contains_key(&id)) else {
                continue;
            };
            let Some(stack) = self.slept_at(tid, state) else { continue };
            let wait = match wait {
                Wait::ReadWrite { at, .. } if !self.is_read_write(stack) => Wait::Word { lock: at },
                // Something else with the words of a mutex.
                Wait::Mutex { .. } if !self.may_be_mutex(stack).0 => Wait::Other,
                wait => wait,
            };
            let (lock, kind, owner) = match wait {
                Wait::Mutex { lock, kind, owner } => {
                    (lock, LockKind::Mutex(kind), Owner::Thread(owner))
                }
                Wait::ReadWrite { lock, writer, readers, is_shared, .. } => {
                    let kind =
                        if is_shared { LockKind::SharedReadWrite } else { LockKind::ReadWrite };
                    let is_read = writer == 0 && readers > 0;
                    (lock, kind, if is_read { Owner::Readers } else { Owner::Thread(writer) })
                }
                Wait::Word { lock } => (lock, LockKind::Word, Owner::Thread(0)),
                Wait::Other => {
                    *self.seen.others.entry(stack).or_default() += 1;
                    continue;
                }
            };
            self.seen.waiter(lock, kind, stack);
            waiters.entry(lock).or_default().push(tid);
            // If several waiters saw the lock, use the view that shows the holder.
            let known = owners.entry(lock).or_insert((kind, owner));
            if known.1 == Owner::Thread(0) {
                *known = (kind, owner);
            }
        }
        for (lock, (kind, owner)) in owners {
            let (holder, thread) = self.holder(lock, kind, owner, now);
            self.seen.holder(lock, holder, batch);
            if let Some((tid, state)) = thread {
                let waits = self.waits_for_lock(state.as_ref());
                self.holds.see(lock, tid, state, waits, &waiters[&lock]);
            }
        }
        self.see_holders(waited.iter().filter(|(lock, _)| !waiters.contains_key(lock)));
        self.slept.retain(|tid, _| states.contains_key(tid));
        Ok(())
    }

    /// Does a quota limit the process's CPU time?
    pub(super) fn has_quota(&self) -> bool {
        self.holds.has_quota()
    }

    /// Is there a time without quota that hasn't been told yet?
    pub(super) fn is_to_be_spanned(&self) -> bool {
        self.holds.is_to_be_spanned()
    }

    /// The length of a time without quota that ended a little while ago: which locks' waits span such a time is to be [told](Self::spanned).
    pub(super) fn without_quota(&self) -> Option<Duration> {
        self.holds.without_quota()
    }

    /// For these locks threads waited during all of that time.
    pub(super) fn spanned(&mut self, locks: &[u64]) {
        self.holds.spanned(locks);
    }

    /// Looks only at the holders of these locks, for which threads wait.
    pub(super) fn glance(&mut self, waited: &[(u64, LockKind)]) {
        self.holds.settle();
        self.see_holders(waited.iter());
    }

    fn see_holders<'a>(&mut self, locks: impl Iterator<Item = &'a (u64, LockKind)>) {
        for &(lock, kind) in locks {
            let owner = Owner::Thread(recorded(self.target.pid, lock, kind));
            let holder = self.holder(lock, kind, owner, monotonic());
            if let (_, Some((tid, state))) = holder {
                let waits = self.waits_for_lock(state.as_ref());
                self.holds.see(lock, tid, state, waits, &[]);
            }
        }
    }

    /// Finds the ids of new threads, and forgets threads that have ended.
    fn meet(&mut self, states: &HashMap<libc::pid_t, Option<Blocked>>) {
        let ids: HashSet<libc::pid_t> = states.keys().copied().collect();
        self.outer.retain(|_, tid| ids.contains(tid));
        let known: HashSet<_> = self.outer.values().copied().collect();
        for &tid in ids.difference(&known) {
            let path = format!("/proc/{}/task/{tid}/status", self.target.pid);
            let status = proc_text(path).unwrap_or_default();
            let inner = field(&status, "NSpid:").and_then(|ids| ids.split_whitespace().next_back());
            let inner = inner.and_then(|id| id.parse().ok()).unwrap_or(tid.cast_unsigned());
            self.outer.insert(inner, tid);
            if let Some(state) = &states[&tid] {
                self.target.symboliser.space_mut().learn_thread(tid, state.stack_pointer);
            }
        }
        if ids != known {
            self.running.follow(&ids);
        }
    }

    /// The stack of a thread that sleeps. `None`: it has gone on in the meantime.
    fn slept_at(&mut self, tid: libc::pid_t, state: &Blocked) -> Option<StackId> {
        if let Some((then, stack)) = self.slept.get(&tid)
            && then == state
        {
            return Some(*stack);
        }
        // If it has gone on, our reads may be from two moments.
        let stack = self.stack(state);
        if blocked(self.target.pid, tid).ok().flatten() != Some(*state) {
            return None;
        }
        let stack = self.seen.stacks.id(stack);
        self.slept.insert(tid, (*state, stack));
        Some(stack)
    }

    fn stack(&mut self, state: &Blocked) -> Vec<u64> {
        let registers = Registers {
            instruction: state.instruction,
            stack: state.stack_pointer,
            ..Registers::default()
        };
        self.unwinder.sleeping(self.target.symboliser.space(), registers)
    }

    /// Does the stack show a wait for a readers-writer lock? The words alone could also be those of a mutex that is
    /// just free.
    fn is_read_write(&mut self, stack: StackId) -> bool {
        /// Maximum number of glibc frames below the function that the program called.
        const INNER: usize = 6;
        let Self { seen, target, read_write, .. } = self;
        *read_write.entry(stack).or_insert_with(|| {
            let inner = seen.stacks.get(stack).iter().take(INNER);
            let mut names = inner.filter_map(|at| target.symboliser.function(*at));
            names.any(|name| name.contains("rwlock"))
        })
    }

    /// May a thread with that stack wait for a mutex, and does it wait in our library?
    fn may_be_mutex(&mut self, stack: StackId) -> (bool, bool) {
        let Self { seen, target, mutexes, .. } = self;
        *mutexes.entry(stack).or_insert_with(|| {
            let inner = seen.stacks.get(stack).iter().take(INNER);
            let frames: Vec<_> = inner.map(|at| target.symboliser.bare(*at)).collect();
            let is_static = wait::is_static(target.symboliser.space());
            (wait::may_be_mutex(&frames, is_static), wait::is_in_ours(&frames))
        })
    }

    /// Does a thread that sleeps there wait for a lock, as far as words tell?
    fn waits_for_lock(&mut self, asleep: Option<&(Blocked, StackId)>) -> bool {
        let Some((state, stack)) = asleep else { return false };
        match wait::of(self.target.pid, state, |id| self.outer.contains_key(&id)) {
            None => false,
            Some(Wait::Mutex { .. }) => self.may_be_mutex(*stack).0,
            // In the line before a lock of ours, the word isn't the lock's.
            Some(Wait::Other) => self.may_be_mutex(*stack).1,
            Some(Wait::ReadWrite { .. } | Wait::Word { .. }) => true,
        }
    }

    /// What the holder is doing; and who that is, and where it sleeps, if the lock says. We read the holder before and after,
    /// because it may change in between.
    fn holder(
        &mut self,
        lock: u64,
        kind: LockKind,
        owner: Owner,
        now: u64,
    ) -> (Holder, Option<HoldingThread>) {
        let pid = self.target.pid;
        let mut id = match owner {
            Owner::Readers => return (Holder::Readers, None),
            Owner::Thread(id) => id,
        };
        for _ in 0..2 {
            let Some(tid) = self.outer.get(&id).copied() else { break };
            let Ok(state) = blocked(pid, tid) else { break };
            let asleep = state.map(|state| {
                let stack = self.stack(&state);
                (state, self.seen.stacks.id(stack))
            });
            let after = if kind == LockKind::Word { id } else { recorded(pid, lock, kind) };
            if after != id {
                id = after;
                continue;
            }
            let since = now.saturating_sub(self.period);
            let moment = self.running.at(tid, since).filter(|_| self.places);
            let holder = match (asleep, moment) {
                (Some((_, stack)), _) => Holder::Sleeping(stack),
                (None, None) => Holder::Unseen,
                (None, Some(moment)) => {
                    let space = self.target.symboliser.space();
                    let stack = self.unwinder.copied(space, moment.registers, &moment.stack);
                    Holder::Running(self.seen.stacks.id(stack))
                }
            };
            return (holder, Some((tid, asleep)));
        }
        (Holder::Unknown, None)
    }
}

/// Is it a function that waits for something to happen?
fn is_for_event(name: &str) -> bool {
    const PARTS: [&str; 7] = [
        "cond",
        "sem_",
        "join",
        "barrier",
        "_M_futex_wait", // std::future
        "__atomic_wait", // std::atomic
        "platform_wait",
    ];
    const OF_CPP: [&str; 2] = ["future", "latch"];
    PARTS.iter().any(|of| name.contains(of))
        || (name.starts_with("std::") && OF_CPP.iter().any(|of| name.contains(of)))
}

/// The holder that a lock records, by its id in the process's namespace; 0: none.
fn recorded(pid: libc::pid_t, lock: u64, kind: LockKind) -> u32 {
    match kind {
        LockKind::Mutex(kind) => wait::owner(pid, lock, kind),
        LockKind::ReadWrite | LockKind::SharedReadWrite => wait::writer(pid, lock),
        LockKind::Word => 0,
    }
}

/// A thread that holds a lock, and where it sleeps; `None`: it runs, or waits for a CPU.
type HoldingThread = (libc::pid_t, Option<(Blocked, StackId)>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// The id in the process's namespace; 0: unknown.
    Thread(u32),
    Readers,
}

/// The clock that the kernel's samples use, ns.
fn monotonic() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes to `time` alone.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::is_for_event;

    #[test]
    fn events_of_cpp_are_no_locks() {
        for name in [
            "std::__atomic_futex_unsigned_base::_M_futex_wait_until",
            "std::__future_base::_State_baseV2::wait",
            "std::__atomic_wait_address_v<int>",
            "std::latch::wait",
            "pthread_cond_wait",
        ] {
            assert!(is_for_event(name), "{name}");
        }
        for name in ["std::mutex::lock", "__lll_lock_wait", "futures_of_today", "dispatch"] {
            assert!(!is_for_event(name), "{name}");
        }
    }
}
