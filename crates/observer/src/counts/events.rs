//! Counts a CPU event, such as cache misses, in critical sections. The kernel samples the location of every Nth event
//! (perf events).
//!
//! A sample belongs to a lock if one of its functions is among those that held the lock while others waited. So events
//! that occur in such a function outside the critical section count, too.

use super::counter::{Event, builder, why};
use super::course::TICK;
use super::observation::{Observed, Total};
use lockwright_symbols::{Frame, Symboliser, threads};
use perf_event::data::Record;
use perf_event::{SampleFlag, Sampler};
use std::collections::{HashMap, HashSet};
use std::io;
use std::time::Instant;

/// Buffer size for a thread's samples between two reads.
const ROOM: usize = 64 * 1024;
/// Maximum number of threads that are sampled, because each needs a descriptor and locked memory.
const THREADS: usize = 500;
/// Number of a lock's holders whose functions count.
const HOLDERS: usize = 3;

/// Counts one event in the threads of processes.
pub struct Events {
    event: Event,
    looked: Option<Instant>,
    /// By thread, with its process.
    samplers: HashMap<libc::pid_t, (u32, Sampler)>,
    /// By process: stacks, the innermost address first, with their counts.
    seen: HashMap<u32, HashMap<Vec<u64>, u64>>,
    /// Why there are no samples.
    refused: Option<String>,
}

impl Events {
    /// Begins now.
    pub fn begin(event: Event) -> Self {
        // Try it on this process first, to see whether the event exists.
        let refused = open(event, 0).err().map(|error| why(&error));
        Self { event, looked: None, samplers: HashMap::new(), seen: HashMap::new(), refused }
    }

    /// Samples these processes, if it is time to.
    pub fn look(&mut self, pids: impl IntoIterator<Item = u32>) {
        if self.refused.is_some() || self.looked.is_some_and(|then| then.elapsed() < TICK) {
            return;
        }
        self.looked = Some(Instant::now());
        self.fetch();
        let mut there = HashSet::new();
        for pid in pids {
            for tid in threads(pid as libc::pid_t).unwrap_or_default() {
                there.insert(tid);
                if self.samplers.contains_key(&tid) || self.samplers.len() >= THREADS {
                    continue;
                }
                match open(self.event, tid) {
                    Ok(sampler) => drop(self.samplers.insert(tid, (pid, sampler))),
                    Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {} // the thread has ended
                    Err(error) => self.refused = Some(why(&error)),
                }
            }
        }
        self.samplers.retain(|tid, _| there.contains(tid));
    }

    /// Reads the kernel's samples.
    fn fetch(&mut self) {
        for (pid, sampler) in self.samplers.values_mut() {
            let seen = self.seen.entry(*pid).or_default();
            while let Some(record) = sampler.next_record() {
                let Ok(Record::Sample(sample)) = record.parse_record() else { continue };
                // The markers between the kernel's and the program's part are not addresses.
                let is_address = |address: &u64| *address < 1 << 63;
                let chain = sample.callchain().unwrap_or_default();
                let chain: Vec<u64> = chain.iter().copied().filter(is_address).collect();
                *seen.entry(chain).or_default() += sample.period().unwrap_or(1);
            }
        }
    }

    /// Adds to a process's locks the events in their critical sections.
    pub fn tell(&mut self, outcome: &mut Observed, symbols: &mut Symboliser) {
        self.fetch();
        let seen = self.seen.remove(&outcome.pid).unwrap_or_default();
        let samples: Vec<(HashSet<String>, u64)> = seen
            .iter()
            .map(|(chain, count)| {
                let name = |(depth, address): (usize, &u64)| {
                    let frames = symbols.code(address - u64::from(depth > 0).min(*address));
                    frames.iter().map(Frame::name).collect::<Vec<_>>()
                };
                (chain.iter().enumerate().flat_map(name).collect(), *count)
            })
            .collect();
        outcome.events = Some(Total {
            event: self.event,
            count: samples.iter().map(|(_, count)| count).sum(),
            unavailable: self.refused.clone(),
        });
        for lock in &mut outcome.locks {
            let holders = lock.holders.iter().take(HOLDERS).filter(|site| site.ns > 0);
            let holders: Vec<&String> = holders.map(|site| &site.function).collect();
            let is_in = |names: &HashSet<String>| holders.iter().any(|name| names.contains(*name));
            let within = samples.iter().filter(|(names, _)| is_in(names));
            lock.events = Some(within.map(|(_, count)| count).sum());
        }
    }
}

fn open(event: Event, tid: libc::pid_t) -> io::Result<Sampler> {
    let mut builder = builder(event, tid);
    builder.sample(SampleFlag::PERIOD | SampleFlag::CALLCHAIN).exclude_callchain_kernel(true);
    let mut counter = builder.build()?;
    counter.enable()?;
    counter.sampled(ROOM)
}
