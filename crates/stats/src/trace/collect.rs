//! Makes a trace from the files that processes recorded.

use super::{Hold, LockInfo, Meta, Place, Step, ThreadHolds, Trace, TraceThread};
use crate::error::Why;
use crate::read::{Plain, at};
use crate::{Author, Error};
use lockwright_contract::header::{Foreign, Layout};
use lockwright_contract::trace::{
    CHUNK, CHUNKS_AT, Chunk, OBJECTS, OBJECTS_AT, TraceHeader, What, complete, objects,
};
use lockwright_files::open_entry;
use std::collections::HashMap;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

impl Plain for TraceHeader {}
impl Plain for Chunk {}
impl Plain for [u8; OBJECTS] {}

/// One record.
#[derive(Clone, Copy)]
struct Operation {
    what: What,
    address: u64,
    from_ns: u64,
    to_ns: u64,
}

/// What one thread recorded.
#[derive(Default)]
struct ThreadTrace {
    process: u32,
    tid: u32,
    classes: Vec<u32>,
    operations: Vec<Operation>,
}

impl ThreadTrace {
    /// When its first operation began, ns of `CLOCK_MONOTONIC`.
    fn start_ns(&self) -> Option<u64> {
        self.operations.iter().find(|operation| operation.what != What::Away).map(|o| o.from_ns)
    }

    fn class(&self) -> Option<u8> {
        let first = *self.classes.first()?;
        self.classes.iter().all(|&class| class == first).then_some(first as u8)
    }
}

/// The objects that a process had loaded when it began: their memory and their paths.
type Objects = Vec<(Range<u64>, String)>;

/// What one process recorded.
struct ProcessTrace {
    author: Author,
    header: TraceHeader,
    objects: Objects,
    threads: Vec<ThreadTrace>,
    dropped: u64,
}

impl Trace {
    /// What all processes recorded in this folder (`*.locks`). It may be read while they run; then it has what
    /// they did until now. A file that is still being created is left out.
    ///
    /// # Errors
    /// The folder or one of its files can't be read, or a file has another version.
    pub fn collect(dir: &Path) -> Result<Self, Error> {
        Ok(Self::collect_with_holds(dir)?.0)
    }

    /// As [`collect`](Self::collect), with the moments at which each thread held locks, in the threads' order.
    ///
    /// # Errors
    /// As [`collect`](Self::collect).
    pub fn collect_with_holds(dir: &Path) -> Result<(Self, Vec<ThreadHolds>), Error> {
        let system = |error| Error::new(dir, Why::System(error));
        let mut processes = Vec::new();
        for entry in fs::read_dir(dir).map_err(system)? {
            let path = entry.map_err(system)?.path();
            if path.as_os_str().as_encoded_bytes().ends_with(TraceHeader::ENDING.as_bytes()) {
                processes.extend(process(&path).map_err(|why| Error::new(&path, why))?);
            }
        }
        processes.sort_by_key(|process| (process.author.start_ns, process.author.pid));
        Ok(merge(processes))
    }
}

/// One process; `None`: its file isn't complete.
fn process(path: &Path) -> Result<Option<ProcessTrace>, Why> {
    let file = open_entry(path).map_err(Why::System)?;
    let header: TraceHeader = match at(&file, 0) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        header => header.map_err(Why::System)?,
    };
    let author = match Author::of::<TraceHeader>(&header.common) {
        Ok(author) => author,
        Err(foreign @ Foreign::Version(_)) => {
            return Err(Why::foreign::<TraceHeader>(foreign, "a trace"));
        }
        Err(_) => return Ok(None),
    };
    let list: [u8; OBJECTS] = at(&file, OBJECTS_AT).map_err(Why::System)?;
    let objects = objects(&header, &list)
        .map(|(memory, path)| (memory, String::from_utf8_lossy(path).into_owned()))
        .collect();
    let mut threads: HashMap<u32, ThreadTrace> = HashMap::new();
    let mut dropped = header.dropped.load(Relaxed);
    for number in 0..header.taken.load(Relaxed).min(header.chunks) as usize {
        let chunk: Chunk = at(&file, CHUNKS_AT + number * CHUNK).map_err(Why::System)?;
        let Some((owner, records)) = complete(&chunk) else { continue };
        dropped += chunk.dropped.load(Relaxed);
        let thread = threads.entry(owner).or_default();
        thread.tid = chunk.tid.load(Relaxed);
        thread.classes.push(chunk.class.load(Relaxed));
        thread.operations.extend(records.iter().filter_map(|record| {
            let (what, address) = record.what()?;
            let (from_ns, to_ns) = (record.from_ns.load(Relaxed), record.to_ns.load(Relaxed));
            Some(Operation { what, address, from_ns, to_ns })
        }));
    }
    let threads = threads.into_values().collect();
    Ok(Some(ProcessTrace { author, header, objects, threads, dropped }))
}

fn merge(processes: Vec<ProcessTrace>) -> (Trace, Vec<ThreadHolds>) {
    let mut meta = Meta::default();
    let (mut own, mut objects, mut threads) = (Vec::new(), Vec::new(), Vec::new());
    for (number, process) in processes.into_iter().enumerate() {
        let ProcessTrace { author, header, .. } = process;
        if number == 0 {
            meta.lock = author.lock;
            meta.cpus = header.cpus;
        }
        meta.emulated = meta.emulated.or(author.emulated);
        meta.processes.push(author.command);
        meta.dropped += process.dropped;
        meta.is_disk_full |= header.is_disk_full.load(Relaxed) != 0;
        own.push(Own {
            gap_ns: header.gap_ns.load(Relaxed).into(),
            operation_ns: header.operation_ns.load(Relaxed).into(),
        });
        objects.push(process.objects);
        let process = process.threads.into_iter();
        threads.extend(process.map(|thread| ThreadTrace { process: number as u32, ..thread }));
    }
    threads.retain(|thread| thread.start_ns().is_some());
    threads.sort_by_key(|thread| (thread.start_ns(), thread.process));
    let start_ns = threads.first().and_then(ThreadTrace::start_ns).unwrap_or(0);
    let operations = threads.iter().flat_map(|thread| &thread.operations);
    let ends = operations.filter(|operation| operation.what != What::Away).map(|o| o.to_ns);
    meta.span_ns = ends.max().unwrap_or(0).saturating_sub(start_ns);
    let (locks, numbers) = locks(&threads, &objects);
    let holds = threads
        .iter()
        .map(|thread| ThreadHolds { tid: thread.tid, holds: self::holds(thread, &numbers) })
        .collect();
    let threads = threads.into_iter().map(|thread| TraceThread {
        process: thread.process,
        class: thread.class(),
        start_ns: thread.start_ns().unwrap_or(start_ns) - start_ns,
        steps: steps(&thread, &own[thread.process as usize], &numbers),
    });
    (Trace { meta, locks, threads: threads.collect() }, holds)
}

type Numbers = HashMap<(u32, u64), u32>;

/// The locks that were acquired, in the order in which threads first asked for them, and their indices.
fn locks(threads: &[ThreadTrace], objects: &[Objects]) -> (Vec<LockInfo>, Numbers) {
    let mut first: HashMap<(u32, u64), u64> = HashMap::new();
    for thread in threads {
        for operation in &thread.operations {
            if let What::Acquired | What::Woken = operation.what {
                let seen = first.entry((thread.process, operation.address)).or_insert(u64::MAX);
                *seen = operation.from_ns.min(*seen);
            }
        }
    }
    let mut locks: Vec<_> = first.into_iter().map(|(lock, from_ns)| (from_ns, lock)).collect();
    locks.sort_unstable();
    let infos = locks.iter().map(|&(_, (process, address))| {
        let mut objects = objects[process as usize].iter();
        let place = objects.find(|(memory, _)| memory.contains(&address)).map(|(memory, path)| {
            Place { object: path.clone(), offset: address - memory.start, symbol: None }
        });
        LockInfo { process, address, place }
    });
    let numbers = locks.iter().zip(0..).map(|(&(_, lock), number)| (lock, number));
    (infos.collect(), numbers.collect())
}

/// What recording itself cost, ns.
struct Own {
    gap_ns: u64,
    operation_ns: u64,
}

fn steps(thread: &ThreadTrace, own: &Own, numbers: &Numbers) -> Vec<Step> {
    let mut steps = Vec::new();
    // Locks held, and how often: a recursive lock counts as acquired and released once.
    let mut held: Vec<(u32, u32)> = Vec::new();
    let mut until_ns = None;
    let (mut slept, mut kept) = (0, 0);
    for operation in &thread.operations {
        let took = operation.to_ns.saturating_sub(operation.from_ns);
        if operation.what == What::Away {
            slept += operation.from_ns;
            kept += operation.to_ns;
            continue;
        }
        // Before the first operation nothing is known.
        if let Some(until_ns) = until_ns.replace(operation.to_ns) {
            let gap = operation.from_ns.saturating_sub(until_ns);
            let ran = gap.saturating_sub(slept + kept + own.gap_ns);
            let is_wait = operation.what == What::Woken;
            let (compute, idle) = if is_wait { (0, ran + slept) } else { (ran, slept) };
            add(&mut steps, Step::Compute(compute));
            add(&mut steps, Step::Idle(idle));
        }
        (slept, kept) = (0, 0);
        let number = numbers.get(&(thread.process, operation.address)).copied();
        let place = held.iter().position(|&(lock, _)| Some(lock) == number);
        match (operation.what, number, place) {
            (What::GaveUp, ..) => add(&mut steps, Step::Idle(took)),
            (What::Released, _, Some(place)) => {
                held[place].1 -= 1;
                if held[place].1 == 0 {
                    steps.push(Step::Release(held.remove(place).0));
                }
            }
            (What::Acquired | What::Woken, _, Some(place)) => held[place].1 += 1,
            (What::Acquired | What::Woken, Some(lock), None) => {
                held.push((lock, 1));
                let wait_ns = took.saturating_sub(own.operation_ns);
                steps.push(Step::Acquire { lock, wait_ns });
            }
            // Acquired before recording began, or by another thread.
            _ => {}
        }
    }
    steps.extend(held.into_iter().rev().map(|(lock, _)| Step::Release(lock)));
    steps
}

/// When the thread held which lock. A lock that it never released is left out; a recursive one is held once.
fn holds(thread: &ThreadTrace, numbers: &Numbers) -> Vec<Hold> {
    let mut holds = Vec::new();
    // Locks held, how often, and since when.
    let mut held: Vec<(u32, u32, u64)> = Vec::new();
    for operation in &thread.operations {
        let Some(&lock) = numbers.get(&(thread.process, operation.address)) else { continue };
        let place = held.iter().position(|&(other, ..)| other == lock);
        match (operation.what, place) {
            (What::Acquired | What::Woken, Some(place)) => held[place].1 += 1,
            (What::Acquired | What::Woken, None) => held.push((lock, 1, operation.to_ns)),
            (What::Released, Some(place)) => {
                held[place].1 -= 1;
                if held[place].1 == 0 {
                    let (lock, _, from_ns) = held.swap_remove(place);
                    holds.push(Hold { lock, from_ns, to_ns: operation.from_ns });
                }
            }
            _ => {}
        }
    }
    holds
}

/// Adds a time: to the last step, if that has the same kind.
fn add(steps: &mut Vec<Step>, step: Step) {
    match (steps.last_mut(), step) {
        (_, Step::Compute(0) | Step::Idle(0)) => {}
        (Some(Step::Compute(sum)), Step::Compute(ns)) | (Some(Step::Idle(sum)), Step::Idle(ns)) => {
            *sum += ns;
        }
        (_, step) => steps.push(step),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockwright_contract::About;
    use lockwright_contract::trace::{RECORDS, Tracer};
    use std::os::unix::ffi::OsStrExt;
    use tempfile::TempDir;

    fn about() -> About<'static> {
        About { now_ns: 7, lock: b"asl", command: b"./server --fast", ..About::default() }
    }

    fn tracer(records: u64) -> (TempDir, Tracer) {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().as_os_str().as_bytes();
        let tracer = Tracer::create(folder, &about(), records, 2).unwrap();
        tracer.header().gap_ns.store(10, Relaxed);
        tracer.header().operation_ns.store(5, Relaxed);
        (dir, tracer)
    }

    fn recorded(records: &[(What, usize, u64, u64)]) -> Trace {
        let (dir, tracer) = tracer(1);
        let chunk = tracer.chunk(None, 71, 1).unwrap();
        for &(what, lock, from, to) in records {
            chunk.push(what, lock, from, to);
        }
        let trace = Trace::collect(dir.path()).unwrap();
        assert_eq!(trace.fault(), None);
        trace
    }

    fn take(lock: u32, wait_ns: u64) -> Step {
        Step::Acquire { lock, wait_ns }
    }

    #[test]
    fn own_time_lies_between_operations_and_waits_within_them() {
        let trace = recorded(&[
            (What::Acquired, 0xa0, 100, 125),
            (What::Acquired, 0xb0, 175, 180),
            (What::Released, 0xa0, 200, 203), // hand over hand
            (What::Released, 0xb0, 300, 303),
        ]);
        let thread = &trace.threads[0];
        assert_eq!((thread.class, thread.start_ns, trace.meta.span_ns), (Some(1), 0, 203));
        assert_eq!(
            thread.steps,
            [
                take(0, 20),
                Step::Compute(40),
                take(1, 0),
                Step::Compute(10),
                Step::Release(0),
                Step::Compute(87),
                Step::Release(1)
            ]
        );
        let addresses: Vec<_> = trace.locks.iter().map(|lock| lock.address).collect();
        assert_eq!(addresses, [0xa0, 0xb0]);
        assert_eq!((trace.meta.lock.as_str(), trace.meta.cpus), ("asl", 2));
        assert_eq!(trace.meta.processes, ["./server --fast"]);
        assert_eq!(trace.acquisitions(), 2);
    }

    #[test]
    fn recursive_locks_count_once_and_unknown_releases_not_at_all() {
        let trace = recorded(&[
            (What::Released, 0xc0, 0, 3),
            (What::Acquired, 0xa0, 100, 105),
            (What::Acquired, 0xa0, 200, 205),
            (What::Released, 0xa0, 300, 303),
            (What::Released, 0xa0, 400, 403),
        ]);
        let inside = Step::Compute(85 + 85 + 87);
        assert_eq!(
            trace.threads[0].steps,
            [Step::Compute(87), take(0, 0), inside, Step::Release(0)]
        );
        assert_eq!(trace.locks.len(), 1);
    }

    #[test]
    fn holds_are_from_the_acquisition_to_the_release_and_know_their_thread() {
        let (dir, tracer) = tracer(1);
        let chunk = tracer.chunk(None, 71, 1).unwrap();
        for (what, lock, from, to) in [
            (What::Released, 0xc0, 0, 3),
            (What::Acquired, 0xa0, 100, 125),
            (What::Acquired, 0xb0, 130, 140),
            (What::Acquired, 0xa0, 150, 155),
            (What::Released, 0xa0, 160, 165),
            (What::Released, 0xa0, 200, 205),
            (What::Woken, 0xa0, 300, 310),
            (What::Released, 0xb0, 320, 325),
            (What::Released, 0xa0, 330, 331),
            (What::Acquired, 0xb0, 340, 345),
        ] {
            chunk.push(what, lock, from, to);
        }
        let (trace, holds) = Trace::collect_with_holds(dir.path()).unwrap();
        let hold = |lock, from_ns, to_ns| Hold { lock, from_ns, to_ns };
        let wanted = vec![hold(0, 125, 200), hold(1, 140, 320), hold(0, 310, 330)];
        assert_eq!(holds, [ThreadHolds { tid: 71, holds: wanted }]);
        assert_eq!(trace.threads.len(), 1);
    }

    #[test]
    fn sleeping_is_idle_and_being_kept_from_running_is_nothing() {
        let trace = recorded(&[
            (What::Acquired, 0xa0, 100, 105),
            (What::Away, 0, 30_000, 500),
            (What::Away, 0, 0, 400),
            (What::Released, 0xa0, 41_005, 41_010),
            (What::Woken, 0xa0, 50_020, 50_040),
            (What::GaveUp, 0xb0, 50_050, 60_050),
            (What::Released, 0xa0, 60_060, 60_061),
        ]);
        assert_eq!(
            trace.threads[0].steps,
            [
                take(0, 0),
                Step::Compute(9_990),
                Step::Idle(30_000),
                Step::Release(0),
                Step::Idle(9_000),
                take(0, 15),
                Step::Idle(10_000),
                Step::Release(0),
            ]
        );
    }

    #[test]
    fn what_is_held_at_the_end_is_released_there() {
        let trace = recorded(&[(What::Acquired, 0xa0, 0, 5), (What::Acquired, 0xb0, 15, 20)]);
        assert_eq!(
            trace.threads[0].steps,
            [take(0, 0), take(1, 0), Step::Release(1), Step::Release(0)]
        );
    }

    #[test]
    fn threads_fill_chunks_of_their_own_until_there_is_no_more() {
        let (dir, tracer) = tracer(1);
        let (mut a, b) = (tracer.chunk(None, 72, 0).unwrap(), tracer.chunk(None, 72, 0).unwrap());
        b.push(What::Acquired, 0xb0, 50, 51);
        let mut chunks = 2;
        let mut last = 100;
        loop {
            for _ in 0..RECORDS {
                assert!(a.room() > 0);
                a.push(What::GaveUp, 0xa0, last, last + 1);
                last += 1;
            }
            assert_eq!(a.room(), 0);
            a.push(What::Acquired, 0xe0, 0, 1); // has no room, and is not there
            match tracer.chunk(Some(a), 72, 1) {
                Some(next) => a = next,
                None => break,
            }
            chunks += 1;
        }
        assert_eq!(chunks, tracer.header().chunks);
        assert!(tracer.chunk(None, 72, 0).is_none());
        a.drop_one();
        tracer.drop_one();
        let trace = Trace::collect(dir.path()).unwrap();
        assert_eq!((trace.meta.dropped, trace.meta.is_disk_full), (2, false));
        let [first, second] = trace.threads.as_slice() else { panic!("{}", trace.threads.len()) };
        assert_eq!((first.start_ns, second.start_ns), (0, 50));
        assert_eq!((first.class, second.class), (Some(0), None));
        assert_eq!(second.steps, [Step::Idle((u64::from(chunks) - 1) * RECORDS as u64)]);
    }

    #[test]
    fn each_process_has_its_locks_and_what_is_no_recording_is_left_out() {
        let (dir, first) = tracer(1);
        let folder = dir.path().as_os_str().as_bytes();
        let about =
            About { now_ns: 8, command: b"child", emulated: b"big:0,little:1x2", ..about() };
        let second = Tracer::create(folder, &about, 1, 2).unwrap();
        for (tracer, from) in [(first, 200), (second, 100)] {
            tracer.chunk(None, 72, 0).unwrap().push(What::Acquired, 0xa0, from, from + 1);
        }
        fs::write(dir.path().join("1-0.locks"), "something else").unwrap();
        fs::write(dir.path().join("1-0.stats"), "something else").unwrap();
        let trace = Trace::collect(dir.path()).unwrap();
        assert_eq!(trace.meta.processes, ["./server --fast", "child"]);
        assert_eq!(trace.meta.emulated.as_deref(), Some("big:0,little:1x2"));
        let owners: Vec<_> = trace.threads.iter().map(|thread| thread.process).collect();
        assert_eq!(owners, [1, 0]);
        let owners: Vec<_> = trace.locks.iter().map(|lock| lock.process).collect();
        assert_eq!(owners, [1, 0]);
    }

    #[test]
    fn locks_lie_in_the_objects_that_their_process_lists() {
        let (dir, tracer) = tracer(1);
        tracer.list(0x1000..0x2000, b"/bin/server");
        tracer.list(0x5000..0x9000, b"/lib/libcache.so");
        tracer.list(0..usize::MAX, &[b'x'; OBJECTS]); // has no room, and is not there
        let chunk = tracer.chunk(None, 72, 0).unwrap();
        for (lock, at) in [0x1010, 0x2000, 0x8fff].into_iter().zip([10, 20, 30]) {
            chunk.push(What::Acquired, lock, at, at + 5);
            chunk.push(What::Released, lock, at + 6, at + 7);
        }
        let trace = Trace::collect(dir.path()).unwrap();
        let place = |object: &str, offset| Place { object: object.into(), offset, symbol: None };
        let places: Vec<_> = trace.locks.into_iter().map(|lock| lock.place).collect();
        let server = place("/bin/server", 0x10);
        assert_eq!(places, [Some(server), None, Some(place("/lib/libcache.so", 0x3fff))]);
    }
}
