//! LOCKWRIGHT_TRACE=DIR: every operation on a mutex, with its times, in one file for each process.
//!
//! Each operation that acquires or releases is stamped before and after it, by the monotonic clock: between two
//! operations a thread computes, and within one it waits. Each thread writes to a chunk of the file of its own.
//!
//! * An interval of 20 us or more may contain a sleep, or another thread's turn on the CPU. Then the thread's CPU clock
//!   says how long it ran, and its count of voluntary switches says which of the two it was. They are read at the end
//!   of each such interval or operation, and when 200 us have passed. Shorter intervals in between count as running.
//! * The cost of recording is measured at the start, on a mutex of our own, and the reader subtracts it.
//!   Occasional costs (a fresh chunk, the CPU clock) are recorded as [`What::Away`].
//! * A forked child is not recorded: the file is its parent's. Recording also stops in a process that confines
//!   itself, since a system call of ours may kill that process.
//!
//! When the trace is off, as it normally is, it costs the plain mutex nothing: see `fast`.

use crate::access::{self, Access};
use crate::env::{refused, say, variable};
use crate::fork::{self, When};
use crate::thread::leaving_errno;
use crate::watch::{self, Hooks, Note, Who};
use crate::{files, object, thread};
use core::cell::Cell;
use core::ffi::CStr;
use core::ptr::null_mut;
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use lockwright_contract::trace::{Chunk, RECORDS, Tracer, What};
use lockwright_native::futex::{self, Clock};
use lockwright_native::{place, system_call};

/// One thread's account. Zeroed is right for a new thread.
#[repr(C)]
struct Account {
    /// Where it writes; null: it has recorded nothing.
    chunk: Cell<*const Chunk>,
    /// Its time is accounted for until this moment, ns.
    until_ns: Cell<u64>,
    /// The last reading of its CPU clock, ns.
    cpu_ns: Cell<u64>,
    /// The time since that reading that counts as running, ns.
    known_ns: Cell<u32>,
    /// The number of voluntary switches at that reading, wrapping.
    switches: Cell<u32>,
}

/// Intervals and operations of this length or more are measured by the CPU clock, ns.
const LONG_NS: u64 = 20_000;
/// The CPU clock is read at the latest when this much has been accounted for, ns.
const KNOWN_NS: u32 = 200_000;
/// The two clocks may disagree by this much, ns.
const DISAGREE_NS: u64 = 2_000;
/// The most records that one operation may add.
const ROOM: usize = 3;
/// How many acquisitions a file has room for, unless LOCKWRIGHT_TRACE_LIMIT says otherwise: 96 MiB.
const LIMIT: u64 = 2_000_000;
/// Our own cost is measured with this many pairs of operations.
const REHEARSED: usize = 256;

/// The file's [`Tracer::base`]; null: none.
static BASE: AtomicPtr<u8> = AtomicPtr::new(null_mut());

fn account() -> &'static Account {
    // SAFETY: the calling thread's own memory, which exists as long as the thread runs; zeroes are an account.
    unsafe { (*thread::this()).traced.account() }
}

fn tracer() -> Option<Tracer> {
    // ORDERING: Acquire, pairs with the Release in `load`: the file is complete.
    let base = BASE.load(Acquire);
    // SAFETY: `load` got it from a tracer.
    (!base.is_null()).then(|| unsafe { Tracer::at(base) })
}

fn now() -> u64 {
    futex::now(Clock::Monotonic)
}

/// What to do at each operation.
static HOOKS: Hooks = Hooks { before: |what| what.and_then(request), after };

/// An operation has ended.
fn after(note: Note, done: Option<(What, usize)>) {
    let (Some((chunk, from_ns)), Some((what, lock))) = (note, done) else { return };
    // SAFETY: `request` noted a chunk, which is mapped forever.
    Request { chunk: unsafe { &*chunk.cast() }, from_ns }.done(what, lock);
}

/// An operation that the program has asked for.
struct Request {
    chunk: &'static Chunk,
    from_ns: u64,
}

/// The program asks for an operation; `None`: it isn't recorded.
fn request(what: What) -> Note {
    fork::era(); // so that a child notices the fork even if no fork handler ran
    if !watch::is_by(Who::Trace) {
        return None;
    }
    let account = account();
    // SAFETY: null, or a chunk, which is mapped forever.
    let chunk = match unsafe { account.chunk.get().as_ref() } {
        Some(chunk) => chunk,
        None => first_chunk(account, what)?,
    };
    if chunk.room() < ROOM || access::is_confined() {
        if what != What::Released {
            chunk.drop_one();
        }
        return None;
    }
    let now = now();
    let gap = now.saturating_sub(account.until_ns.get());
    account.until_ns.set(now);
    if gap < LONG_NS {
        account.known_ns.set(account.known_ns.get() + gap as u32);
        return note(chunk, now);
    }
    note(chunk, long_gap(account, chunk, now, gap))
}

fn note(chunk: &'static Chunk, from_ns: u64) -> Note {
    Some((core::ptr::from_ref(chunk).cast(), from_ns))
}

impl Request {
    /// The operation is done; the memory at the lock's address is not read.
    fn done(self, what: What, lock: usize) {
        let account = account();
        let to = now();
        self.chunk.push(what, lock, self.from_ns, to);
        account.until_ns.set(to);
        let took = to.saturating_sub(self.from_ns);
        let known = account.known_ns.get() + took.min(LONG_NS) as u32;
        account.known_ns.set(known);
        if took >= LONG_NS || known >= KNOWN_NS || self.chunk.room() < ROOM + 1 {
            settle(account, self.chunk, to);
        }
    }
}

#[cold]
fn first_chunk(account: &Account, what: What) -> Option<&'static Chunk> {
    let tracer = tracer()?;
    // (If the process has confined itself, this gives nothing.)
    let chunk = leaving_errno(|| tracer.chunk(None, thread::id(), place::here().class.0));
    if chunk.is_none() && what != What::Released {
        tracer.drop_one();
    }
    let chunk = chunk?;
    account.chunk.set(chunk);
    read_clock(account);
    account.until_ns.set(now());
    Some(chunk)
}

/// The thread computed for a long time, or was away: records how long it was away. Returns the time after that.
#[cold]
fn long_gap(account: &Account, chunk: &Chunk, now_ns: u64, gap: u64) -> u64 {
    let (known, before) = (account.known_ns.get(), account.switches.get());
    let ran = read_clock(account).saturating_sub(known.into());
    let away = gap.saturating_sub(ran);
    let away = if away < DISAGREE_NS { 0 } else { away };
    let has_slept = account.switches.get() != before;
    let end = now();
    let own = end.saturating_sub(now_ns);
    let (slept, kept) = if has_slept { (away, own) } else { (0, away + own) };
    chunk.push(What::Away, 0, slept, kept);
    account.until_ns.set(end);
    end
}

/// Reads the CPU clock, and takes a fresh chunk if it is time to.
#[cold]
fn settle(account: &Account, mut chunk: &'static Chunk, to: u64) {
    read_clock(account);
    if chunk.room() < ROOM + 1
        && let Some(tracer) = tracer()
        && let Some(next) =
            leaving_errno(|| tracer.chunk(Some(chunk), thread::id(), place::here().class.0))
    {
        chunk = next;
        account.chunk.set(chunk);
    }
    let end = now();
    chunk.push(What::Away, 0, 0, end.saturating_sub(to));
    account.until_ns.set(end);
}

/// Reads the thread's clocks; returns how long it ran since the last reading, ns.
fn read_clock(account: &Account) -> u64 {
    // SAFETY: all-zero bytes are a valid `rusage`.
    let mut usage: libc::rusage = unsafe { core::mem::zeroed() };
    let read = || {
        // SAFETY: a writable rusage; every Linux has them.
        unsafe { system_call!(libc::SYS_getrusage, libc::RUSAGE_THREAD, &raw mut usage) };
        futex::read_ns(libc::CLOCK_THREAD_CPUTIME_ID)
    };
    let cpu = leaving_errno(|| access::asking(|access| (access != Access::None).then(read)));
    let Some(cpu) = cpu else { return 0 };
    let ran = cpu.saturating_sub(account.cpu_ns.get());
    account.cpu_ns.set(cpu);
    account.known_ns.set(0);
    account.switches.set(usage.ru_nvcsw as u32);
    ran
}

/// Reads LOCKWRIGHT_TRACE and LOCKWRIGHT_TRACE_LIMIT. The file will say what is emulated, and the number of CPUs.
/// `rehearse` performs the given number of pairs of operations on a mutex of its own, while they are watched.
///
/// # Safety
/// Called once, by the constructor, after emulation has begun.
pub(crate) unsafe fn load(emulated: &[u8], cpus: u32, rehearse: fn(usize)) {
    let Some(dir) = variable(c"LOCKWRIGHT_TRACE") else { return };
    let mut limit = LIMIT;
    if let Some(text) = variable(c"LOCKWRIGHT_TRACE_LIMIT") {
        match core::str::from_utf8(text).ok().and_then(|text| text.parse().ok()) {
            Some(number @ 1..) => limit = number,
            _ => say(&[
                b"bad LOCKWRIGHT_TRACE_LIMIT '",
                text,
                b"', it is 2000000: not a number from 1 on\n",
            ]),
        }
    }
    let mut room = files::AboutRoom::new();
    let lock = variable(c"LOCKWRIGHT_LOCK").unwrap_or(b"auto");
    let about = files::about(&mut room, lock, emulated);
    let made = Tracer::create(dir, &about, limit.saturating_mul(2), cpus);
    match made {
        Ok(tracer) => {
            // ORDERING: Release, pairs with the Acquire in `tracer`.
            BASE.store(tracer.base(), Release);
            list_objects(tracer);
            fork::tell_child(When::Unseen, in_child);
            watch::begin(Who::Trace, Some(&HOOKS));
            measure(tracer, rehearse);
        }
        Err(why) => refused(b"LOCKWRIGHT_TRACE", dir, why),
    }
}

/// Lists the program and the libraries that were loaded with it, since the locks in them may have names.
fn list_objects(tracer: Tracer) {
    let mut program = [0_u8; 4096];
    let program = files::program(&mut program);
    object::each(|info, at| {
        let path = match at {
            0 => program,
            _ if info.dlpi_name.is_null() => b"",
            // SAFETY: glibc's own C string.
            _ => unsafe { CStr::from_ptr(info.dlpi_name) }.to_bytes(),
        };
        // The kernel's own object (the vDSO) has no file.
        if let Some(memory) = object::memory(info)
            && path.contains(&b'/')
        {
            tracer.list(memory, path);
        }
        true
    });
}

/// Measures what recording costs, in the calling thread's first chunk, which is empty afterwards.
fn measure(tracer: Tracer, rehearse: fn(usize)) {
    let account = account();
    rehearse(REHEARSED);
    // SAFETY: null, or a chunk, which is mapped forever.
    let Some(chunk) = (unsafe { account.chunk.get().as_ref() }) else { return };
    let (mut gaps, mut operations) = (Counts::default(), Counts::default());
    let mut last = None;
    for record in &chunk.records[..(RECORDS - chunk.room()).min(2 * REHEARSED)] {
        let is_pause = record.what().is_none_or(|(what, _)| what == What::Away);
        let (from, to) = (record.from_ns.load(Relaxed), record.to_ns.load(Relaxed)); // our own
        if !is_pause {
            operations.add(to.saturating_sub(from));
            if let Some(last) = last {
                gaps.add(from.saturating_sub(last));
            }
        }
        last = (!is_pause).then_some(to);
    }
    let header = tracer.header();
    // Relaxed: constants from now on, and only the reader looks at them.
    header.gap_ns.store(gaps.median(), Relaxed);
    header.operation_ns.store(operations.median(), Relaxed);
    chunk.clear();
    read_clock(account);
    account.until_ns.set(now());
}

/// How often each time (ns) occurred; longer times count as the longest one.
struct Counts([u16; 1024]);

impl Default for Counts {
    fn default() -> Self {
        Self([0; 1024])
    }
}

impl Counts {
    fn add(&mut self, ns: u64) {
        self.0[ns.min(1023) as usize] += 1;
    }

    fn median(&self) -> u32 {
        let all: u16 = self.0.iter().sum();
        let mut below = 0;
        let at = self.0.iter().position(|count| {
            below += count;
            2 * below >= all
        });
        at.unwrap_or(0) as u32
    }
}

/// In the child of a fork: the file is the parent's.
fn in_child() {
    if watch::is_by(Who::Trace) {
        account().chunk.set(core::ptr::null());
        watch::end(Who::Trace);
    }
}
