//! How often a process calls functions that take locks: counted by a hardware breakpoint, for a moment.
//!
//! A breakpoint costs about a microsecond each time, so while one is set the thread takes locks more slowly than it would: what is counted is a lower
//! bound. It is set for a millisecond or a thousand calls, whichever comes first, a few times.

use super::FRAMES;
use crate::sampler::running::{ARGUMENT, REGISTERS, read};
use lockwright_symbols::{Symboliser, Unwinder};
use perf_event::data::Record;
use perf_event::events::Breakpoint;
use perf_event::{Builder, SampleFlag, Sampler};
use std::collections::HashMap;
use std::io;
use std::os::fd::AsRawFd;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long calls are counted at a time.
const WINDOW: Duration = Duration::from_millis(1);
/// Maximum number of calls that are counted at a time, for each thread and function.
const CALLS: libc::c_ulong = 1000;
/// From one time to the next.
const PAUSE: Duration = Duration::from_millis(250);
/// How many times.
const TIMES: u32 = 12;
/// Maximum number of functions: a CPU has four such registers, and others may use some.
const FUNCTIONS: usize = 2;
/// Maximum number of threads at a time.
const THREADS: usize = 8;
/// Number of bytes copied from the stack at a call: enough for who calls.
const COPIED: u32 = 4 * 1024;
/// Room for copies: the first calls of each time have stacks, and the others are only counted.
const ROOM: usize = 64 * 1024;
/// Maximum number of distinct places.
const PLACES: usize = 1024;
/// Maximum number of distinct locks at a place.
const LOCKS: usize = 64;

/// Calls of one thread.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Hits {
    pub count: u64,
    /// The CPU time in which they were.
    pub cpu: Duration,
}

impl Hits {
    pub(super) fn add(&mut self, more: Self) {
        self.count += more.count;
        self.cpu += more.cpu;
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
        mut tell: impl FnMut(libc::pid_t, Hits),
    ) {
        self.next = Instant::now() + PAUSE;
        self.times += 1;
        let mut open = Vec::new();
        for &tid in threads.iter().take(THREADS) {
            for (number, &function) in functions.iter().take(FUNCTIONS).enumerate() {
                match set(tid, function) {
                    Ok(sampler) => open.push((tid, number, sampler)),
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
        for (_, _, sampler) in &mut open {
            let _ = sampler.disable(); // if that fails, the thread has ended
        }
        for (tid, number, mut sampler) in open {
            let Ok(counted) = sampler.read_count_and_time() else { continue };
            // Both functions are watched for the same time.
            let cpu = if number == 0 { Duration::from_nanos(counted.time_enabled) } else { Duration::ZERO };
            tell(tid, Hits { count: counted.count, cpu });
            while let Some(record) = sampler.next_record() {
                if let Ok(Record::Sample(sample)) = record.parse_record()
                    && let Some(values) = sample.regs_user()
                    && let Some((&lock, rest)) = values.regs.split_first()
                    && let Some(registers) = read(rest)
                {
                    let bytes = sample.stack_user().unwrap_or_default();
                    let mut stack = unwinder.copied(symbols.space(), registers, &bytes);
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

/// Sets a breakpoint, which goes away with the result.
fn set(tid: libc::pid_t, function: u64) -> io::Result<Sampler> {
    /// `PERF_EVENT_IOC_REFRESH`: enables an event for a number of overflows.
    const REFRESH: libc::c_ulong = 0x2402;
    let mask = REGISTERS.iter().chain([&ARGUMENT]).map(|register| 1 << register).sum();
    let mut builder = Builder::new(Breakpoint::execute(function));
    builder
        .observe_pid(tid)
        .any_cpu()
        .sample_period(1)
        .sample(SampleFlag::REGS_USER | SampleFlag::STACK_USER)
        .sample_regs_user(mask)
        .sample_stack_user(COPIED);
    let sampler = builder.build()?.sampled(ROOM)?;
    // SAFETY: the descriptor is an event's, and this call reads no memory of ours.
    let outcome = unsafe { libc::ioctl(sampler.as_raw_fd(), REFRESH, CALLS) };
    if outcome == 0 { Ok(sampler) } else { Err(io::Error::last_os_error()) }
}
