//! Stacks of running threads: the kernel copies registers and stack in its timer interrupt (`perf_event_open`).

use lockwright_symbols::Registers;
use perf_event::data::Record;
use perf_event::events::Software;
use perf_event::{Builder, Clock, SampleFlag, Sampler};
use std::collections::{HashMap, HashSet};
use std::io;

/// Number of bytes copied from each thread's stack: some dozens of frames.
const COPIED: u32 = 16 * 1024;
/// Number of copies buffered for each thread. They are fetched at each tick.
const COPIES: usize = 4;
/// Maximum number of threads that are followed, because each needs a descriptor and locked memory. In larger processes,
/// the other threads have no stacks while they run.
const THREADS: usize = 1000;

/// Frame pointer, stack pointer and instruction pointer, by the kernel's numbers (`asm/perf_regs.h`); on ARM also the
/// link register.
#[cfg(target_arch = "x86_64")]
const REGISTERS: [u32; 3] = [6, 7, 8];
#[cfg(target_arch = "aarch64")]
const REGISTERS: [u32; 4] = [29, 30, 31, 32];

/// A thread's registers and stack at one moment.
pub(super) struct Moment {
    /// The time by the monotonic clock, ns.
    pub time: u64,
    pub registers: Registers,
    pub stack: Vec<u8>,
}

/// Samples the running threads of a process.
pub(super) struct Running {
    period: u64,
    samplers: HashMap<libc::pid_t, Sampler>,
    latest: HashMap<libc::pid_t, Moment>,
    /// Why there are no samples.
    pub refused: Option<io::Error>,
    with_kernel: bool,
}

impl Running {
    /// Samples each running thread once per `period`, ns of the thread's CPU time.
    pub(super) fn new(period: u64) -> Self {
        let (samplers, latest) = Default::default();
        Self { period, samplers, latest, refused: None, with_kernel: true }
    }

    /// Follows these threads, and stops following the others.
    pub(super) fn follow(&mut self, threads: &HashSet<libc::pid_t>) {
        self.samplers.retain(|tid, _| threads.contains(tid));
        self.latest.retain(|tid, _| threads.contains(tid));
        for &tid in threads {
            if self.refused.is_some() || self.samplers.len() >= THREADS {
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
                Err(error) => self.refused = Some(error),
            }
        }
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
            .sample_stack_user(COPIED)
            .clockid(Clock::MONOTONIC);
        if self.with_kernel {
            builder.include_kernel();
        }
        let mut counter = builder.build()?;
        counter.enable()?;
        counter.sampled(COPIES * COPIED as usize)
    }

    /// Reads the kernel's copies since the last time.
    pub(super) fn fetch(&mut self) {
        for (&tid, sampler) in &mut self.samplers {
            while let Some(record) = sampler.next_record() {
                if let Ok(Record::Sample(sample)) = record.parse_record()
                    && let (Some(time), Some(registers)) = (sample.time(), sample.regs_user())
                    && let Some(registers) = read(&registers.regs)
                {
                    let stack = sample.stack_user().unwrap_or_default().to_vec();
                    self.latest.insert(tid, Moment { time, registers, stack });
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
fn read(values: &[u64]) -> Option<Registers> {
    let &[frame, stack, instruction] = values else { return None };
    Some(Registers { instruction, stack, frame: Some(frame), link: 0 })
}

#[cfg(target_arch = "aarch64")]
fn read(values: &[u64]) -> Option<Registers> {
    let &[frame, link, stack, instruction] = values else { return None };
    Some(Registers { instruction, stack, frame: Some(frame), link })
}
