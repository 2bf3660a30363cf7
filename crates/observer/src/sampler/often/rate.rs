//! How often a process calls functions that take locks: counted by a hardware breakpoint, for a moment.
//!
//! A breakpoint costs a microsecond each time, in some virtual machines a dozen, so while one is set the thread takes locks far more slowly than it
//! would. What a breakpoint costs at least is measured here, and subtracted, so that what is told is a lower bound. If less than three tenths of the
//! time is left, that may be the measurement's error, and no figure is told. A breakpoint is set for a millisecond or 100 calls, whichever comes
//! first, a few times.

use crate::sampler::running::{ARGUMENT, REGISTERS, read};
use lockwright_symbols::{Symboliser, Unwinder};
use perf_event::data::Record;
use perf_event::events::Breakpoint;
use perf_event::{Builder, Counter, SampleFlag, Sampler};
use std::collections::HashMap;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Maximum length of a stack that is kept: beyond it lie the outermost callers.
pub(super) const FRAMES: usize = 48;
/// How long calls are counted at a time.
const WINDOW: Duration = Duration::from_millis(1);
/// Maximum number of calls that are counted at a time, for each thread and function.
const CALLS: u32 = 100;
/// From one time to the next.
const PAUSE: Duration = Duration::from_millis(200);
/// How many times: by turns the calls are counted, and their stacks are taken.
const TIMES: u32 = 8;
/// Fewer calls say nothing of how often there are any.
const FEW: u64 = 20;
/// The smallest part of the time that must be the program's own.
const OWN: f64 = 0.3;
/// Maximum number of functions: a CPU has four such registers, and others may use some.
pub(super) const FUNCTIONS: usize = 2;
/// Maximum number of threads at a time.
const THREADS: usize = 8;
/// Number of bytes copied from the stack at a call: enough for who calls.
const COPIED: u32 = 4 * 1024;
/// Room for copies: only the first calls of each time have stacks.
const ROOM: usize = 64 * 1024;
/// How often the cost of a breakpoint is measured; the best counts.
const ROUNDS: u32 = 8;
/// Maximum number of distinct places.
const PLACES: usize = 1024;
/// Maximum number of distinct locks at a place.
const LOCKS: usize = 64;

/// Calls of one function by one thread.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Hits {
    pub count: u64,
    /// The CPU time in which they were.
    pub cpu: Duration,
    /// How much of that time the breakpoints took at least.
    pub breakpoints: Duration,
}

impl Hits {
    pub(super) fn add(&mut self, more: Self) {
        self.count += more.count;
        self.cpu += more.cpu;
        self.breakpoints += more.breakpoints;
    }

    /// Calls a second of CPU time. `None`: there were none, or most of the time went into breakpoints.
    pub(super) fn rate(&self) -> Option<f64> {
        let own = self.cpu.saturating_sub(self.breakpoints);
        let is_known = self.count > 0 && !own.is_zero() && !self.is_too_often();
        is_known.then(|| self.count as f64 / own.as_secs_f64())
    }

    /// Did the breakpoints take so much of the time that the rest says nothing?
    pub(super) fn is_too_often(&self) -> bool {
        self.count >= FEW && self.cpu.saturating_sub(self.breakpoints) < self.cpu.mul_f64(OWN)
    }
}

/// Counts calls.
pub(super) struct Rate {
    next: Instant,
    times: u32,
    /// Why they can't be counted.
    pub refused: Option<io::Error>,
    /// By stack, the innermost address first: how often each lock was taken there; 0: others.
    pub places: HashMap<Vec<u64>, HashMap<u64, u64>>,
}

impl Rate {
    pub(super) fn begin() -> Self {
        Self { next: Instant::now(), times: 0, refused: None, places: HashMap::new() }
    }

    pub(super) fn is_due(&self) -> bool {
        self.refused.is_none() && self.times < TIMES && Instant::now() >= self.next
    }

    /// Counts calls of these functions in these threads, the most important first.
    pub(super) fn look(
        &mut self,
        functions: &[u64],
        threads: &[libc::pid_t],
        symbols: &Symboliser,
        unwinder: &mut Unwinder,
        mut tell: impl FnMut(libc::pid_t, usize, Hits),
    ) {
        self.next = Instant::now() + PAUSE;
        self.times += 1;
        if self.times.is_multiple_of(2) {
            self.look_at_stacks(functions, threads, symbols, unwinder);
            return;
        }
        let mut open = Vec::new();
        for &tid in threads.iter().take(THREADS) {
            for (number, &function) in functions.iter().take(FUNCTIONS).enumerate() {
                match set(&builder(tid, function)) {
                    Ok(counter) => open.push((tid, number, counter)),
                    Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {} // the thread has ended
                    Err(error) if open.is_empty() => {
                        self.refused = Some(error);
                        return;
                    }
                    Err(_) => {} // somebody else uses these registers
                }
            }
        }
        sleep(WINDOW);
        for (_, _, counter) in &mut open {
            let _ = counter.disable(); // if that fails, the thread has ended
        }
        for (tid, number, mut counter) in open {
            let Ok(counted) = counter.read_count_and_time() else { continue };
            let (count, watched) = (counted.count, counted.time_enabled);
            let breakpoints = Duration::from_nanos((count as f64 * cost_ns()) as u64);
            tell(tid, number, Hits { count, cpu: Duration::from_nanos(watched), breakpoints });
        }
    }

    /// Who calls these functions, and for which lock.
    fn look_at_stacks(
        &mut self,
        functions: &[u64],
        threads: &[libc::pid_t],
        symbols: &Symboliser,
        unwinder: &mut Unwinder,
    ) {
        let mask = REGISTERS.iter().chain([&ARGUMENT]).map(|register| 1 << register).sum();
        let set = |tid, function| {
            let mut builder = builder(tid, function);
            builder
                .sample(SampleFlag::REGS_USER | SampleFlag::STACK_USER)
                .sample_regs_user(mask)
                .sample_stack_user(COPIED);
            self::set(&builder)?.sampled(ROOM)
        };
        let threads = threads.iter().take(THREADS);
        let all = threads.flat_map(|tid| functions.iter().take(FUNCTIONS).map(|at| (*tid, *at)));
        let open: Vec<Sampler> = all.filter_map(|(tid, at)| set(tid, at).ok()).collect();
        sleep(WINDOW);
        for mut sampler in open {
            let _ = sampler.disable(); // if that fails, the thread has ended
            while let Some(record) = sampler.next_record() {
                if let Ok(Record::Sample(sample)) = record.parse_record()
                    && let Some(values) = sample.regs_user()
                    && let Some((&lock, rest)) = values.regs.split_first()
                    && let Some(registers) = read(rest)
                {
                    let bytes = sample.stack_user().unwrap_or_default();
                    let mut stack = unwinder.copied(symbols.space(), registers, bytes);
                    stack.truncate(FRAMES);
                    self.see(stack, lock);
                }
            }
        }
    }

    fn see(&mut self, stack: Vec<u64>, lock: u64) {
        if self.places.len() >= PLACES && !self.places.contains_key(&stack) {
            return;
        }
        let locks = self.places.entry(stack).or_default();
        let has_room = locks.len() < LOCKS || locks.contains_key(&lock);
        *locks.entry(if has_room { lock } else { 0 }).or_default() += 1;
    }
}

/// A breakpoint at a function, in a thread.
fn builder<'a>(tid: libc::pid_t, function: u64) -> Builder<'a> {
    let mut builder = Builder::new(Breakpoint::execute(function));
    builder.observe_pid(tid).any_cpu().sample_period(1);
    builder
}

/// Sets a breakpoint for some calls. It goes away with the result.
fn set(builder: &Builder<'_>) -> io::Result<Counter> {
    /// `PERF_EVENT_IOC_REFRESH`: enables an event for a number of overflows.
    const REFRESH: libc::c_ulong = 0x2402;
    let counter = builder.build()?;
    // SAFETY: the descriptor is an event's, and this call reads no memory of ours.
    let outcome = unsafe { libc::ioctl(counter.as_raw_fd(), REFRESH, CALLS) };
    if outcome == 0 { Ok(counter) } else { Err(io::Error::last_os_error()) }
}

/// What one breakpoint costs at least, ns, by calls of a function of ours that does nothing: the best of some rounds. 0: not known.
fn cost_ns() -> f64 {
    static COST: OnceLock<f64> = OnceLock::new();
    *COST.get_or_init(|| {
        let round = |_| {
            let mut counter = set(&builder(0, nothing as extern "C" fn() as usize as u64)).ok()?;
            for _ in 0..CALLS / 2 {
                nothing();
            }
            let counted = counter.read_count_and_time().ok()?;
            (counted.count > 0).then(|| counted.time_enabled as f64 / counted.count as f64)
        };
        (0..ROUNDS).filter_map(round).reduce(f64::min).unwrap_or(0.0)
    })
}

#[inline(never)]
extern "C" fn nothing() {
    std::hint::black_box(());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread that woke for a moment, with a call; and one that calls all the time.
    #[test]
    fn what_breakpoints_can_count_is_told() {
        let hits = |count, cpu_us, breakpoints_us| Hits {
            count,
            cpu: Duration::from_micros(cpu_us),
            breakpoints: Duration::from_micros(breakpoints_us),
        };
        assert_eq!(hits(100, 2_000, 1_000).rate().map(f64::round), Some(100_000.0));
        let short = hits(1, 18, 13);
        assert!(!short.is_too_often() && short.rate().is_some());
        let many = hits(100, 1_350, 1_300);
        assert!(many.is_too_often() && many.rate().is_none());
        assert!(hits(0, 1_000, 0).rate().is_none());
    }

    /// Where the kernel refuses, there is nothing to test.
    #[test]
    fn calls_of_a_function_are_counted_and_the_cost_is_no_more_than_they_took() {
        let Ok(mut counter) = set(&builder(0, nothing as extern "C" fn() as usize as u64)) else {
            assert_eq!(cost_ns(), 0.0);
            return;
        };
        (0..10).for_each(|_| nothing());
        let counted = counter.read_count_and_time().unwrap();
        assert_eq!(counted.count, 10);
        assert!(cost_ns() > 0.0);
        // No more calls than CALLS are slowed down.
        (0..2 * CALLS).for_each(|_| nothing());
        assert!((u64::from(CALLS)..2 * u64::from(CALLS)).contains(&counter.read().unwrap()));
    }
}
