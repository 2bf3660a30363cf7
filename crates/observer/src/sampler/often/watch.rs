//! What samples of running threads tell of lock operations: counts by stack, without names.

use super::rate::{FRAMES, FUNCTIONS, Hits, Rate};
use super::step::{self, LockStep};
use crate::sampler::running::Moment;
use lockwright_symbols::{Frame, Symboliser, Unwinder};
use std::collections::HashMap;
use std::time::Duration;

/// A smaller share of the CPU time isn't worth a word: if it all went away, the program would be 5 % faster.
pub(super) const LEAST: f64 = 0.05;
/// Fewer samples at a place may be chance: of 20, the true number is between 12 and 31 (95 %).
pub(super) const FEWEST: u64 = 20;
/// Maximum number of distinct stacks. What is seen in others counts, but without a place.
const STACKS: usize = 4096;
/// Maximum number of code addresses that are remembered.
const ADDRESSES: usize = 1 << 16;

/// Samples in one stack.
#[derive(Clone, Copy, Default)]
pub(super) struct Times {
    /// In a lock operation that didn't wait, as far as its code says.
    pub taking: u64,
    /// Those of them that take the lock; the others release it.
    pub acquiring: u64,
    /// In the code that waits for a lock, or wakes who waits.
    pub waiting: u64,
}

/// What one thread did.
#[derive(Default)]
struct RunningThread {
    /// Samples.
    all: u64,
    /// Those in lock operations.
    taking: u64,
    hits: [Hits; FUNCTIONS],
}

/// A function that takes a lock, as the program calls it.
#[derive(Default)]
struct EntryPoint {
    samples: u64,
    acquires: bool,
}

/// What samples of running threads tell of lock operations.
pub(in crate::sampler) struct Often {
    steps: HashMap<u64, LockStep>,
    /// All samples.
    pub(super) all: u64,
    /// By stack, the innermost address first.
    pub(super) stacks: HashMap<Vec<u64>, Times>,
    /// In lock operations, but no room for the stack.
    unplaced: u64,
    threads: HashMap<libc::pid_t, RunningThread>,
    /// By their addresses.
    entries: HashMap<u64, EntryPoint>,
    pub(super) rate: Rate,
}

impl Often {
    pub(in crate::sampler) fn begin() -> Self {
        Self {
            steps: HashMap::new(),
            all: 0,
            stacks: HashMap::new(),
            unplaced: 0,
            threads: HashMap::new(),
            entries: HashMap::new(),
            rate: Rate::begin(),
        }
    }

    /// Forgets what was where: the process has loaded other files.
    pub(in crate::sampler) fn refresh(&mut self) {
        self.steps.clear();
    }

    /// Takes a sample of a running thread.
    pub(in crate::sampler) fn see(
        &mut self,
        tid: libc::pid_t,
        moment: &Moment,
        symbols: &mut Symboliser,
        unwinder: &mut Unwinder,
    ) {
        let at = moment.registers.instruction;
        self.all += 1;
        self.threads.entry(tid).or_default().all += 1;
        let step = self.step(at, symbols);
        if step == LockStep::Elsewhere {
            return;
        }
        let mut stack = unwinder.copied(symbols.space(), moment.registers, &moment.stack);
        stack.truncate(FRAMES);
        // The functions of the lock, and the outermost of them: what the program called.
        let mut entry = None;
        let (mut is_ours, mut is_event) = (false, false);
        for (depth, &address) in stack.iter().enumerate() {
            let frame = symbols.bare(address);
            let is_its = step::is_of_lock(&frame) || (depth == 0 && step == LockStep::Call);
            if !is_its {
                break;
            }
            is_ours |= frame.module.contains("lockwright");
            is_event |= step::is_event(&frame);
            entry = Some((address, frame));
        }
        let Some((inner, frame)) = entry else { return };
        let is_waiting = match step {
            _ if is_event => return, // for something to happen, not for a lock
            LockStep::Taking => false,
            LockStep::Waiting => true,
            LockStep::Call if is_ours => true,
            LockStep::Call | LockStep::Unclear | LockStep::Elsewhere => return,
        };
        let acquires = step::acquires(&frame);
        if !is_waiting {
            self.threads.entry(tid).or_default().taking += 1;
            if let Some(start) = symbols.function_start(inner) {
                let entry = self.entries.entry(start).or_default();
                entry.samples += 1;
                entry.acquires = acquires;
            }
        }
        if self.stacks.len() >= STACKS && !self.stacks.contains_key(&stack) {
            self.unplaced += u64::from(!is_waiting);
            return;
        }
        let times = self.stacks.entry(stack).or_default();
        times.waiting += u64::from(is_waiting);
        times.taking += u64::from(!is_waiting);
        times.acquiring += u64::from(!is_waiting && acquires);
    }

    /// Whose code that is.
    fn step(&mut self, at: u64, symbols: &mut Symboliser) -> LockStep {
        if let Some(known) = self.steps.get(&at) {
            return *known;
        }
        if self.steps.len() >= ADDRESSES {
            self.steps.clear();
        }
        let step = LockStep::at(at, symbols);
        self.steps.insert(at, step);
        step
    }

    /// Samples in lock operations.
    pub(super) fn taking(&self) -> u64 {
        self.unplaced + self.stacks.values().map(|times| times.taking).sum::<u64>()
    }

    /// Counts calls for a moment, if it is time to, and if so many of the samples are in lock operations that it is worth it.
    pub(in crate::sampler) fn count_calls(
        &mut self,
        symbols: &Symboliser,
        unwinder: &mut Unwinder,
    ) {
        let is_worth = |often: &Self| {
            let taking = often.taking();
            taking >= FEWEST / 2 && taking as f64 >= LEAST * often.all as f64
        };
        if !self.rate.is_due() || !is_worth(self) {
            return;
        }
        let mut entries: Vec<(u64, u64)> = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.acquires)
            .map(|(at, entry)| (entry.samples, *at))
            .collect();
        entries.sort_unstable_by(|a, b| b.cmp(a));
        let mut threads: Vec<(u64, libc::pid_t)> = self
            .threads
            .iter()
            .filter(|(_, thread)| thread.taking > 0)
            .map(|(tid, thread)| (thread.taking, *tid))
            .collect();
        threads.sort_unstable_by(|a, b| b.cmp(a));
        let entries: Vec<u64> = entries.into_iter().map(|(_, at)| at).collect();
        let threads: Vec<libc::pid_t> = threads.into_iter().map(|(_, tid)| tid).collect();
        let all = &mut self.threads;
        self.rate.look(&entries, &threads, symbols, unwinder, |tid, function, hits| {
            all.entry(tid).or_default().hits[function].add(hits);
        });
    }

    /// Were locks taken so often that breakpoints can't count it?
    pub(super) fn is_too_often(&self) -> bool {
        self.threads.values().any(|thread| thread.hits.iter().any(Hits::is_too_often))
    }

    /// How often locks were taken: at least that many times a second of CPU time, in each thread for as much CPU time as it had. ns: of one sample,
    /// and of the whole.
    /// `None`: not counted, or too often for that.
    pub(super) fn at_least(&self, sample_ns: u64, took: Duration) -> Option<f64> {
        if self.is_too_often() {
            return None;
        }
        let of = |thread: &RunningThread| {
            let rate: f64 = thread.hits.iter().filter_map(Hits::rate).sum();
            rate * (thread.all * sample_ns) as f64 / 1e9
        };
        let calls: f64 = self.threads.values().map(of).sum();
        (calls > 0.0).then(|| calls / took.as_secs_f64())
    }
}

/// The functions on a stack by their names in the source, the innermost first.
pub(super) fn frames(stack: &[u64], symbols: &mut Symboliser) -> Vec<Frame> {
    stack.iter().flat_map(|&address| symbols.code(address).to_vec()).collect()
}
