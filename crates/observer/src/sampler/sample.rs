//! Samples all threads of a process repeatedly, without stopping any.

use super::running::Running;
use super::seen::{BATCHES, Holder, LockKind, Seen, StackId};
use super::target::{Target, field};
use super::wait::{self, Wait};
use lockwright_symbols::{Blocked, Registers, Unwinder, blocked, proc_text, threads};
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
    pub(crate) seen: Seen,
    /// How long that took.
    pub took: Duration,
    /// How it ended.
    pub end: End,
    /// Why running threads have no stacks.
    pub refused: Option<io::Error>,
}

/// How often a running thread is sampled by the kernel between two of our samples, so that one of these is close to
/// ours.
const LOOKS: u64 = 4;
/// How often we look for new libraries.
const REFRESH: Duration = Duration::from_millis(500);

/// Samples `rate` times a second for `time`, or until `goes_on`, which is told how long that has been, denies it.
pub fn sample(
    target: &mut Target,
    time: Duration,
    rate: f64,
    goes_on: impl Fn(Duration) -> bool,
) -> Sampled {
    let period = Duration::from_secs_f64(1.0 / rate);
    let nanoseconds = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX);
    let unwinder = Unwinder::new(&mut target.symboliser);
    let mut sampler = Sampler {
        target,
        unwinder,
        seen: Seen::default(),
        running: Running::new((nanoseconds / LOOKS).max(100_000)),
        outer: HashMap::new(),
        period: nanoseconds,
        read_write: HashMap::new(),
    };
    let start = Instant::now();
    let (mut next, mut refreshed) = (start, start);
    let end = loop {
        let elapsed = start.elapsed();
        if elapsed >= time {
            break End::TimeIsUp;
        }
        if !goes_on(elapsed) {
            break End::Interrupted;
        }
        if refreshed.elapsed() >= REFRESH {
            refreshed = Instant::now();
            sampler.refresh();
        }
        let part = elapsed.as_secs_f64() / time.as_secs_f64() * BATCHES as f64;
        if sampler.tick((part as usize).min(BATCHES - 1)).is_err() {
            break End::ProcessEnded;
        }
        // If we are late, skip the missed samples. Otherwise samples would cluster.
        next = (next + period).max(Instant::now());
        sleep(
            next.saturating_duration_since(Instant::now())
                .min(time.saturating_sub(start.elapsed())),
        );
    };
    let took = start.elapsed();
    sampler.target.symboliser.space_mut().learn_threads();
    Sampled { seen: sampler.seen, took, end, refused: sampler.running.refused }
}

struct Sampler<'a> {
    target: &'a mut Target,
    unwinder: Unwinder,
    seen: Seen,
    running: Running,
    /// A thread's id in our namespace, by its id in the process's namespace: in a container they differ.
    outer: HashMap<u32, libc::pid_t>,
    period: u64,
    /// Whether each stack waits for a readers-writer lock.
    read_write: HashMap<StackId, bool>,
}

impl Sampler<'_> {
    fn refresh(&mut self) {
        if self.target.symboliser.refresh() {
            self.unwinder.refresh(&mut self.target.symboliser);
        }
    }

    /// Takes one sample of all threads.
    ///
    /// # Errors
    ///
    /// The process has ended.
    fn tick(&mut self, batch: usize) -> io::Result<()> {
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
        self.running.fetch();
        self.seen.threads = self.seen.threads.max(states.len());
        self.seen.batches[batch] += 1;
        let mut owners: HashMap<u64, (LockKind, Owner)> = HashMap::new();
        for (&tid, state) in &states {
            let Some(state) = state else { continue };
            let Some(wait) = wait::of(pid, state, |id| self.outer.contains_key(&id)) else {
                continue;
            };
            // Did the thread continue in the meantime? Then our reads may be from two moments.
            let stack = self.stack(state);
            if blocked(pid, tid).ok().flatten() != Some(*state) {
                continue;
            }
            let stack = self.seen.stacks.id(stack);
            let wait = match wait {
                Wait::ReadWrite { at, .. } if !self.is_read_write(stack) => Wait::Word { lock: at },
                wait => wait,
            };
            let (lock, kind, owner) = match wait {
                Wait::Mutex { lock, kind, owner } => {
                    (lock, LockKind::Mutex(kind), Owner::Thread(owner))
                }
                Wait::ReadWrite { lock, writer: 0, readers: 1.., .. } => {
                    (lock, LockKind::ReadWrite, Owner::Readers)
                }
                Wait::ReadWrite { lock, writer, .. } => {
                    (lock, LockKind::ReadWrite, Owner::Thread(writer))
                }
                Wait::Word { lock } => (lock, LockKind::Word, Owner::Thread(0)),
                Wait::Other => {
                    *self.seen.others.entry(stack).or_default() += 1;
                    continue;
                }
            };
            self.seen.waiter(lock, kind, stack);
            // If several waiters saw the lock, use the view that shows the holder.
            let known = owners.entry(lock).or_insert((kind, owner));
            if known.1 == Owner::Thread(0) {
                *known = (kind, owner);
            }
        }
        for (lock, (kind, owner)) in owners {
            let holder = self.holder(lock, kind, owner, now);
            self.seen.holder(lock, holder, batch);
        }
        Ok(())
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

    /// What the holder is doing. We read the holder before and after, because it may change in between.
    fn holder(&mut self, lock: u64, kind: LockKind, owner: Owner, now: u64) -> Holder {
        let pid = self.target.pid;
        let mut id = match owner {
            Owner::Readers => return Holder::Readers,
            Owner::Thread(id) => id,
        };
        for _ in 0..2 {
            let Some(tid) = self.outer.get(&id).copied() else { return Holder::Unknown };
            let Ok(state) = blocked(pid, tid) else { return Holder::Unknown };
            let stack = state.map(|state| self.stack(&state));
            let after = match kind {
                LockKind::Mutex(kind) => wait::owner(pid, lock, kind),
                LockKind::ReadWrite | LockKind::Word => id,
            };
            if after != id {
                id = after;
                continue;
            }
            return match (stack, self.running.at(tid, now.saturating_sub(self.period))) {
                (Some(stack), _) => Holder::Sleeping(self.seen.stacks.id(stack)),
                (None, None) => Holder::Unseen,
                (None, Some(moment)) => {
                    let space = self.target.symboliser.space();
                    let stack = self.unwinder.copied(space, moment.registers, &moment.stack);
                    Holder::Running(self.seen.stacks.id(stack))
                }
            };
        }
        Holder::Unknown
    }
}

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
