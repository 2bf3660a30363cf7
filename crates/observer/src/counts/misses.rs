//! Counts an event, such as cache misses, inside critical sections: the kernel samples it in each thread (perf events)
//! with the time, and a record of all sections says in which one a sample lies.
//!
//! Each sample stands for as many events as had happened since the one before. So the number of events in a lock's
//! sections is an estimate, which many samples make exact.

use super::counter::{Event, builder, why};
use lockwright_stats::trace::{Hold, ThreadHolds, Trace};
use lockwright_symbols::threads;
use perf_event::data::Record;
use perf_event::{Clock, SampleFlag, Sampler};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// How often we look for new threads.
const TICK: Duration = Duration::from_millis(20);
/// Buffer size for a thread's samples between two looks.
const ROOM: usize = 64 * 1024;
/// Maximum number of threads that are sampled, because each needs a descriptor and locked memory.
const THREADS: usize = 500;

/// One sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct EventSample {
    /// When, ns of `CLOCK_MONOTONIC`.
    at_ns: u64,
    /// How many events it stands for.
    events: u64,
}

/// What was sampled in one thread.
#[derive(Clone, Debug, Default)]
struct Watched {
    /// Since when, ns of `CLOCK_MONOTONIC`.
    from_ns: u64,
    samples: Vec<EventSample>,
}

/// The events in one lock's sections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct InSections {
    /// Sections in which events were counted.
    pub sections: u64,
    /// Estimated number of events in all of them.
    pub events: u64,
    /// The number of samples that this comes from.
    pub samples: u64,
}

impl InSections {
    /// Events a section, on average; `None`: no section was watched.
    pub fn mean(&self) -> Option<f64> {
        (self.sections > 0).then(|| self.events as f64 / self.sections as f64)
    }
}

/// Every critical section of a program, and the events that were sampled meanwhile.
pub struct Recorded {
    /// The sections.
    pub trace: Trace,
    /// When each thread held which lock.
    pub holds: Vec<ThreadHolds>,
    /// The events.
    pub misses: Misses,
}

/// Samples one event in the threads of recorded processes.
pub struct Misses {
    event: Event,
    looked: Option<Instant>,
    samplers: HashMap<libc::pid_t, Sampler>,
    watched: HashMap<libc::pid_t, Watched>,
    refused: Option<String>,
}

impl Misses {
    /// Begins now.
    pub fn begin(event: Event) -> Self {
        // Try it on this process first, to see whether the event exists.
        let refused = open(event, 0).err().map(|error| why(&error));
        let (samplers, watched) = (HashMap::new(), HashMap::new());
        Self { event, looked: None, samplers, watched, refused }
    }

    /// The event.
    pub fn event(&self) -> Event {
        self.event
    }

    /// Why nothing, or not everything, could be counted.
    pub fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    /// Samples the processes that record in this folder (`PID-N.locks`), if it is time to.
    pub fn look_into(&mut self, folder: &Path) {
        if self.refused.is_some() || self.looked.is_some_and(|then| then.elapsed() < TICK) {
            return;
        }
        self.looked = Some(Instant::now());
        self.fetch();
        let mut there = HashSet::new();
        for tid in recording(folder).into_iter().flat_map(|pid| threads(pid).unwrap_or_default()) {
            there.insert(tid);
            if self.samplers.contains_key(&tid) || self.samplers.len() >= THREADS {
                continue;
            }
            match open(self.event, tid) {
                Ok(sampler) => {
                    self.watched.entry(tid).or_default().from_ns = now_ns();
                    self.samplers.insert(tid, sampler);
                }
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {} // the thread has ended
                Err(error) => self.refused = Some(why(&error)),
            }
        }
        self.samplers.retain(|tid, _| there.contains(tid));
    }

    /// Reads the kernel's samples.
    fn fetch(&mut self) {
        for (tid, sampler) in &mut self.samplers {
            let watched = self.watched.entry(*tid).or_default();
            while let Some(record) = sampler.next_record() {
                let Ok(Record::Sample(sample)) = record.parse_record() else { continue };
                let Some(at_ns) = sample.time() else { continue };
                watched.samples.push(EventSample { at_ns, events: sample.period().unwrap_or(1) });
            }
        }
    }

    /// The events in the sections of each lock, by the lock's number. Sections that began before their thread was watched
    /// don't count.
    pub fn tell(&mut self, threads: &[ThreadHolds]) -> BTreeMap<u32, InSections> {
        self.fetch();
        let mut all = BTreeMap::new();
        for ThreadHolds { tid, holds } in threads {
            let Some(watched) = self.watched.get_mut(&(*tid as libc::pid_t)) else { continue };
            watched.samples.sort_by_key(|sample| sample.at_ns);
            add(&mut all, holds, watched);
        }
        all
    }
}

/// Adds the events of one thread's sections; its samples are in order.
fn add(all: &mut BTreeMap<u32, InSections>, holds: &[Hold], watched: &Watched) {
    for hold in holds.iter().filter(|hold| hold.from_ns >= watched.from_ns) {
        let of_lock = all.entry(hold.lock).or_default();
        let first = watched.samples.partition_point(|sample| sample.at_ns < hold.from_ns);
        let within = watched.samples[first..].iter().take_while(|s| s.at_ns <= hold.to_ns);
        of_lock.sections += 1;
        for sample in within {
            of_lock.events += sample.events;
            of_lock.samples += 1;
        }
    }
}

/// The processes that record in this folder.
fn recording(folder: &Path) -> Vec<libc::pid_t> {
    let names = fs::read_dir(folder).into_iter().flatten().flatten();
    let pid = |name: &str| name.strip_suffix(".locks")?.split('-').next()?.parse().ok();
    names.filter_map(|entry| pid(entry.file_name().to_str()?)).collect()
}

fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a writable timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn open(event: Event, tid: libc::pid_t) -> std::io::Result<Sampler> {
    let mut builder = builder(event, tid);
    builder.sample(SampleFlag::PERIOD | SampleFlag::TIME).clockid(Clock::MONOTONIC);
    let mut counter = builder.build()?;
    counter.enable()?;
    counter.sampled(ROOM)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at_ns: u64, events: u64) -> EventSample {
        EventSample { at_ns, events }
    }

    #[test]
    fn events_count_in_the_sections_in_which_they_happened() {
        let hold = |lock, from_ns, to_ns| Hold { lock, from_ns, to_ns };
        let samples =
            vec![sample(5, 9), sample(12, 1), sample(25, 2), sample(26, 3), sample(90, 7)];
        let watched = Watched { from_ns: 10, samples };
        let mut all = BTreeMap::new();
        // One began too early; one lies inside another; one had no events.
        let holds =
            [hold(0, 4, 8), hold(0, 11, 13), hold(2, 24, 25), hold(1, 20, 30), hold(0, 40, 50)];
        add(&mut all, &holds, &watched);
        let of = |sections, events, samples| InSections { sections, events, samples };
        assert_eq!(all, [(0, of(2, 1, 1)), (1, of(1, 5, 2)), (2, of(1, 2, 1))].into());
        assert_eq!((all[&0].mean(), InSections::default().mean()), (Some(0.5), None));
    }

    #[test]
    fn threads_that_nobody_watched_tell_nothing() {
        let mut misses = Misses::begin(Event::PageFaults);
        misses.watched.insert(7, Watched { from_ns: 0, samples: vec![sample(3, 1), sample(2, 1)] });
        let hold = Hold { lock: 4, from_ns: 1, to_ns: 2 };
        let threads = [7, 8].map(|tid| ThreadHolds { tid, holds: vec![hold] });
        let wanted = InSections { sections: 1, events: 1, samples: 1 };
        assert_eq!(misses.tell(&threads), [(4, wanted)].into());
    }
}
