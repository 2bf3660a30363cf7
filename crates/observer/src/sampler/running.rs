//! Stacks of running threads: the kernel copies registers and stack in its timer interrupt (`perf_event_open`).

use lockwright_symbols::Registers;
use perf_event::data::Record;
use perf_event::events::Software;
use perf_event::{Builder, Clock, SampleFlag, Sampler};
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Number of bytes copied from each thread's stack, where stacks of holders are wanted: some dozens of frames.
pub(super) const DEEP: u32 = 16 * 1024;
/// Likewise, where only who calls a lock's function is.
pub(super) const SHALLOW: u32 = 8 * 1024;
/// Number of copies buffered for each thread. They are fetched at each tick.
const COPIES: usize = 4;
/// Maximum number of threads that are followed, because each needs a descriptor and locked memory. In larger processes,
/// the other threads have no stacks while they run.
const THREADS: usize = 1000;
/// Likewise beside counts, in all processes together: the descriptors have to do for what else is opened.
const FEWER: usize = 400;
/// The threads that are followed beside counts.
static FOLLOWED: AtomicUsize = AtomicUsize::new(0);

/// Frame pointer, stack pointer and instruction pointer, by the kernel's numbers (`asm/perf_regs.h`); on ARM also the
/// link register.
#[cfg(target_arch = "x86_64")]
pub(super) const REGISTERS: [u32; 3] = [6, 7, 8];
/// The first argument of a function that was just called.
#[cfg(target_arch = "x86_64")]
pub(super) const ARGUMENT: u32 = 5;
#[cfg(target_arch = "aarch64")]
pub(super) const REGISTERS: [u32; 4] = [29, 30, 31, 32];
#[cfg(target_arch = "aarch64")]
pub(super) const ARGUMENT: u32 = 0;

/// A thread's registers and stack at one moment.
pub(super) struct Moment {
    /// The time by the monotonic clock, ns.
    pub time: u64,
    pub registers: Registers,
    pub stack: Vec<u8>,
}

/// Samples the running threads of a process.
pub(super) struct Running {
    /// How much CPU time lies between two samples of a thread, ns.
    period: u64,
    copied: u32,
    samplers: HashMap<libc::pid_t, Sampler>,
    latest: HashMap<libc::pid_t, Moment>,
    /// Why there are no samples.
    refused: Option<io::Error>,
    with_kernel: bool,
    /// How many of [`FOLLOWED`] are ours.
    counted: usize,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.count(0);
    }
}

impl Running {
    /// Samples each running thread once per `period`, ns of the thread's CPU time.
    /// `copied`: how much of their stacks.
    pub(super) fn new(period: u64, copied: u32) -> Self {
        let (samplers, latest) = Default::default();
        Self { period, copied, samplers, latest, refused: None, with_kernel: true, counted: 0 }
    }

    /// Follows these threads, and stops following the others.
    pub(super) fn follow(&mut self, threads: &HashSet<libc::pid_t>) {
        self.begin_to_follow(threads);
        self.count(self.samplers.len());
    }

    fn begin_to_follow(&mut self, threads: &HashSet<libc::pid_t>) {
        self.samplers.retain(|tid, _| threads.contains(tid));
        self.latest.retain(|tid, _| threads.contains(tid));
        self.count(self.samplers.len());
        let others = FOLLOWED.load(Relaxed).saturating_sub(self.counted); // a limit
        let most = if self.copied == DEEP { THREADS } else { FEWER.saturating_sub(others) };
        for &tid in threads {
            if self.refused.is_some() || self.samplers.len() >= most {
                return;
            }
            if self.samplers.contains_key(&tid) {
                continue;
            }
            let opened = self.open(tid).or_else(|error| {
                // Only some users may see where the kernel is. The place of the system call is enough.
                self.with_kernel &=
                    !matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM));
                self.open(tid)
            });
            match opened {
                Ok(sampler) => drop(self.samplers.insert(tid, sampler)),
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                Err(error) if self.samplers.is_empty() => self.refused = Some(error),
                Err(_) => return, // no more descriptors or locked memory: those that are followed have to do
            }
        }
    }

    /// Notes how many threads are followed.
    fn count(&mut self, now: usize) {
        let now = if self.copied == DEEP { 0 } else { now };
        FOLLOWED.fetch_add(now.wrapping_sub(self.counted), Relaxed); // wraps, so it also subtracts
        self.counted = now;
    }

    fn open(&self, tid: libc::pid_t) -> io::Result<Sampler> {
        let mask = REGISTERS.iter().map(|register| 1 << register).sum();
        let mut builder = Builder::new(Software::CPU_CLOCK);
        builder
            .observe_pid(tid)
            .any_cpu()
            .sample_period(self.period)
            .sample(SampleFlag::TIME | SampleFlag::REGS_USER | SampleFlag::STACK_USER)
            .sample_regs_user(mask)
            .sample_stack_user(self.copied)
            .clockid(Clock::MONOTONIC);
        if self.with_kernel {
            builder.include_kernel();
        }
        let mut counter = builder.build()?;
        counter.enable()?;
        counter.sampled(COPIES * self.copied as usize)
    }

    /// Why there are no samples, if there are none, and how much CPU time lies between two.
    pub(super) fn ended(mut self) -> (Option<io::Error>, u64) {
        (self.refused.take(), self.period)
    }

    /// Reads the kernel's copies since the last time, and shows each.
    pub(super) fn fetch(&mut self, mut show: impl FnMut(libc::pid_t, &Moment)) {
        for (&tid, sampler) in &mut self.samplers {
            while let Some(record) = sampler.next_record() {
                if let Ok(Record::Sample(sample)) = record.parse_record()
                    && let (Some(time), Some(registers)) = (sample.time(), sample.regs_user())
                    && let Some(registers) = read(&registers.regs)
                {
                    let stack = sample.stack_user().unwrap_or_default().to_vec();
                    let moment = Moment { time, registers, stack };
                    show(tid, &moment);
                    self.latest.insert(tid, moment);
                }
            }
        }
    }

    /// Where the thread was last seen, if that was at `since` or later.
    pub(super) fn at(&self, tid: libc::pid_t, since: u64) -> Option<&Moment> {
        self.latest.get(&tid).filter(|moment| moment.time >= since)
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) fn read(values: &[u64]) -> Option<Registers> {
    let &[frame, stack, instruction] = values else { return None };
    Some(Registers { instruction, stack, frame: Some(frame), link: 0 })
}

#[cfg(target_arch = "aarch64")]
pub(super) fn read(values: &[u64]) -> Option<Registers> {
    let &[frame, link, stack, instruction] = values else { return None };
    Some(Registers { instruction, stack, frame: Some(frame), link })
}
