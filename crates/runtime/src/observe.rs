//! What locks do, counted in shared memory (the crate `observe`): who waits, for how long, and for whom.
//!
//! ```text
//!   waits        notes when; if this wait is sampled (one in several), makes the holder unlock by the slow path
//!     sleeps     the same, each time
//!   has_waited   takes the time, if the thread slept or the wait is sampled; keeps the result, and counts it later
//!   releases     takes the time                                                      │ the mutex may be gone
//!   released     counts: this wait, this hold, and the waits that the holder caused  ◄────┘
//! ```
//!
//! All of it lies on paths that wait anyway; the uncontended path knows nothing of it. Counting happens after a release, so that
//! nobody waits for it. We also see a holder that never had to wait: the waiter sends its unlock to the slow path, and there the
//! caller's address and stack are those of the critical section.
//!
//! Semaphores have paths of their own ([`semaphores`]), since they stay glibc's.
//!
//! The level is a word that commands write ([`lockwright_observe`]). The first thread that has to wait makes the segment. A
//! process that can't have one goes on without it.

pub(crate) mod maps;
pub(crate) mod semaphores;

use crate::caller::Call;
use crate::env::{say, variable};
use crate::fork::{self, When};
use crate::layout::Mutex;
use crate::thread::{self, Room};
use crate::{access, files};
use core::cell::{Cell, UnsafeCell};
use core::ffi::{c_int, c_ulong};
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use lockwright_locks::front::side;
use lockwright_locks::posix;
use lockwright_native::futex::{self, Clock};
use lockwright_native::place;
use lockwright_observe::control::{BUSY, Control, FAILED, Level, NONE, OPEN, Sampling};
use lockwright_observe::layout::{DEPTH, FOLDERS};
use lockwright_observe::{About, Blame, Refused, Segment, Wait};
use lockwright_platform::Word;

/// What is counted in this process.
#[unsafe(no_mangle)]
#[used]
pub(crate) static lockwright_observe: Control = Control::new();

struct Shared(UnsafeCell<Option<Segment>>);
// SAFETY: written by the thread that has made the state BUSY, and read while the state is OPEN.
unsafe impl Sync for Shared {}
static SEGMENT: Shared = Shared(UnsafeCell::new(None));

/// What the environment said at the start: the program may have changed it by the time that the segment is made.
struct Said {
    /// The lock in use.
    lock: [u8; 128],
    lock_len: usize,
    /// LOCKWRIGHT_OBSERVE_DIR, which replaces [`FOLDERS`]; empty: not set.
    folder: [u8; 256],
    folder_len: usize,
}

struct Spec(UnsafeCell<Said>);
// SAFETY: written by the constructor.
unsafe impl Sync for Spec {}
static SPEC: Spec =
    Spec(UnsafeCell::new(Said { lock: [0; 128], lock_len: 0, folder: [0; 256], folder_len: 0 }));

/// The path of the segment's file, if it lies in one of [`FOLDERS`]; ends in NUL. Empty: somebody else removes it.
struct File(UnsafeCell<[u8; 128]>);
// SAFETY: written by the thread that has made the state BUSY, and read while the state is OPEN.
unsafe impl Sync for File {}
static FILE: File = File(UnsafeCell::new([0; 128]));

static HAS_SAID: AtomicBool = AtomicBool::new(false);

/// A thread's account. Zeroes are the account of a thread that waits for nothing.
#[repr(C)]
pub(crate) struct Account {
    /// The lock that it waits for; 0: none.
    lock: Cell<u64>,
    since_ns: Cell<u64>,
    /// When the wait before this one was timed, ns.
    before_ns: Cell<u64>,
    /// The call that asked for the lock.
    at: Cell<Call>,
    /// The thread's last call to us; consumed by the code that needs it.
    call: Cell<Call>,
    /// A wait that has ended, and is not counted yet; if its lock is 0: none.
    ended: Cell<Wait>,
    /// Since when it has held `ended.lock`, ns; 0: the hold isn't timed.
    held_since_ns: Cell<u64>,
    sampling: Cell<Sampling>,
    /// A lock, and how many waits for it have yet to be added to its record.
    uncounted: Cell<(u64, u32)>,
    /// How many waits the current one stands for; 0: it isn't sampled.
    counts: Cell<u32>,
    slept: Cell<bool>,
    /// `call` must not change: the program has called a function of ours there, which releases a mutex, or acquires it again.
    is_within: Cell<bool>,
}

/// Bytes of an [`Account`].
pub(crate) const ACCOUNT: usize = 168;
const _: () = assert!(size_of::<Account>() == ACCOUNT);
const _: () = assert!(size_of::<Room<ACCOUNT>>() == ACCOUNT);

fn account() -> &'static Account {
    // SAFETY: the calling thread's own memory, always of this type.
    unsafe { (*thread::this()).observed.account() }
}

/// Is anything counted?
#[inline(always)]
pub(crate) fn is_on() -> bool {
    lockwright_observe.level.load(Relaxed) != Level::Off as u32 // a hint
}

fn is_full() -> bool {
    lockwright_observe.level.load(Relaxed) == Level::Full as u32 // a hint
}

/// Reads LOCKWRIGHT_OBSERVE.
///
/// # Safety
/// Called once, by the constructor.
pub(crate) unsafe fn load() {
    let lock = variable(c"LOCKWRIGHT_LOCK").unwrap_or(b"auto");
    // SAFETY: called once, before anybody reads it.
    let said = unsafe { &mut *SPEC.0.get() };
    said.lock_len = lock.len().min(said.lock.len());
    said.lock[..said.lock_len].copy_from_slice(&lock[..said.lock_len]);
    if let Some(folder) = variable(c"LOCKWRIGHT_OBSERVE_DIR") {
        match said.folder.get_mut(..folder.len()) {
            Some(place) if folder[0] == b'/' => {
                place.copy_from_slice(folder);
                said.folder_len = folder.len();
            }
            _ => say(&[
                b"LOCKWRIGHT_OBSERVE_DIR='",
                folder,
                b"' is no absolute path of at most 256 bytes: it is ignored\n",
            ]),
        }
    }
    let Some(name) = variable(c"LOCKWRIGHT_OBSERVE") else { return };
    match Level::from_name(name) {
        Some(level) => lockwright_observe.begin(level),
        None => say(&[
            b"LOCKWRIGHT_OBSERVE='",
            name,
            b"' is none of off, counters, full: nothing is counted\n",
        ]),
    }
}

/// The segment; makes it if the process has none yet.
#[inline]
fn segment() -> Option<Segment> {
    // ORDERING: Acquire, pairs with the Release in `open`.
    match lockwright_observe.state.load(Acquire) {
        // SAFETY: OPEN: nobody writes any more.
        OPEN => unsafe { *SEGMENT.0.get() },
        NONE => open(),
        _ => None,
    }
}

/// The segment, if the process has one. For callers that hold a lock, and should not make it now.
#[inline]
fn opened() -> Option<Segment> {
    // ORDERING: Acquire, pairs with the Release in `open`.
    if lockwright_observe.state.load(Acquire) == OPEN { segment() } else { None }
}

/// When counting began: notes from before that are out of date.
fn begun() -> u64 {
    lockwright_observe.since_ns.load(Relaxed) // a hint: written before the level
}

#[cold]
fn open() -> Option<Segment> {
    let control = &lockwright_observe;
    // ORDERING: Acquire, pairs with the Release below.
    control.state.compare_exchange(NONE, BUSY, Acquire, Relaxed).ok()?;
    fork::tell_child(When::Unseen, in_child);
    futex::before_sleep(before_sleep);
    let made = thread::leaving_errno(make);
    maps::begin();
    if let Err(Refused::System(error)) = made {
        control.error.store(error as u32, Relaxed); // published below
    }
    // SAFETY: BUSY: nobody else reads or writes it.
    unsafe { *SEGMENT.0.get() = made.ok() };
    if let Ok(segment) = made {
        control.base.store(segment.base().addr() as u64, Relaxed); // as above
    } else if !HAS_SAID.swap(true, Relaxed) {
        say(&[b"no shared memory to count locks in: nothing is counted\n"]);
    }
    // ORDERING: Release, pairs with the Acquire in `segment`: the segment is complete.
    control.state.store(if made.is_ok() { OPEN } else { FAILED }, Release);
    made.ok()
}

fn make() -> Result<Segment, Refused> {
    // A filter that is older than the program comes from a container or a service manager. Those allow making files; and
    // somebody asked for this one.
    if access::now() == access::Access::None {
        return Err(Refused::System(libc::EPERM)); // the program's own filter may kill
    }
    let (mut command, mut stat, mut boot) = ([0_u8; 512], [0_u8; 1024], [0_u8; 40]);
    // SAFETY: written by the constructor.
    let said = unsafe { &*SPEC.0.get() };
    let about = About {
        now_ns: futex::now(Clock::Monotonic),
        started: files::read(c"/proc/self/stat", &mut stat).map_or(0, started),
        namespace: files::inode(c"/proc/self/ns/pid"),
        boot: files::read(c"/proc/sys/kernel/random/boot_id", &mut boot)
            .unwrap_or(b"")
            .trim_ascii(),
        lock: &said.lock[..said.lock_len],
        command: files::command_line(&mut command),
    };
    if said.folder_len > 0 {
        match Segment::create(&said.folder[..said.folder_len], &about) {
            Err(Refused::System(libc::ENOENT)) => {} // the command that made the folder has ended, but the program goes on
            made => return made,
        }
    }
    let mut why = Refused::System(libc::ENOENT);
    for (before, after) in FOLDERS {
        let mut path = [0_u8; 64];
        let len = folder(before.as_bytes(), after.as_bytes(), &mut path);
        // SAFETY: a NUL-terminated path. If the folder is a link, or belongs to somebody else, opening it will be refused. (Not by
        // libc's `mkdir`: a program may define a function of that name.)
        unsafe { libc::syscall(libc::SYS_mkdirat, libc::AT_FDCWD, path.as_ptr(), 0o700) };
        match Segment::create(&path[..len], &about) {
            Ok(segment) => {
                // SAFETY: no preconditions.
                let name = segment.name(unsafe { libc::getpid() } as u32).unwrap_or([0; 64]);
                // SAFETY: BUSY: nobody else reads or writes it.
                let file = unsafe { &mut *FILE.0.get() };
                *file = [0; 128];
                file[..len].copy_from_slice(&path[..len]);
                file[len] = b'/';
                file[len + 1..len + 1 + name.len() - 1].copy_from_slice(&name[..name.len() - 1]);
                return Ok(segment);
            }
            Err(refused) => why = refused,
        }
    }
    Err(why)
}

/// Writes the name of this user's folder; returns its length.
fn folder(before: &[u8], after: &[u8], path: &mut [u8; 64]) -> usize {
    let mut digits = [0_u8; 10];
    // SAFETY: no preconditions.
    let mut user = unsafe { libc::geteuid() };
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (user % 10) as u8;
        user /= 10;
        if user == 0 {
            break;
        }
    }
    let mut len = 0;
    for piece in [before, &digits[at..], after] {
        path[len..len + piece.len()].copy_from_slice(piece);
        len += piece.len();
    }
    len
}

/// Field 22 of `/proc/PID/stat`; the second may contain anything.
fn started(stat: &[u8]) -> u64 {
    let end = stat.iter().rposition(|&byte| byte == b')').map_or(0, |at| at + 1);
    let field = stat[end..].split(|&byte| byte == b' ').filter(|field| !field.is_empty()).nth(19);
    let digits = field.unwrap_or(b"").iter().take_while(|byte| byte.is_ascii_digit());
    digits.fold(0, |sum: u64, &digit| sum.wrapping_mul(10).wrapping_add(u64::from(digit - b'0')))
}

/// The process ends, and removes its file, which takes memory. (If the process is killed, the next command removes it.)
pub(crate) fn at_exit() {
    if opened().is_none() || access::now() == access::Access::None {
        return;
    }
    // SAFETY: no preconditions.
    let pid = unsafe { libc::getpid() } as u32;
    // A child that hasn't noticed its fork yet still has its parent's segment.
    if opened().is_some_and(|segment| segment.name(pid).is_some()) {
        // SAFETY: OPEN: nobody writes any more. A NUL-terminated path. Threads that go on running still have the mapping.
        unsafe { libc::syscall(libc::SYS_unlinkat, libc::AT_FDCWD, (*FILE.0.get()).as_ptr(), 0) };
    }
}

/// In the child of a fork: the segment is the parent's.
fn in_child() {
    // Relaxed: there is one thread.
    lockwright_observe.base.store(0, Relaxed);
    lockwright_observe.state.store(NONE, Relaxed);
}

/// The calling thread has to wait; `caller` is the address of its call, or 0. Returns when, ns; 0: the wait isn't counted.
#[cold]
pub(crate) fn waits(mutex: &Mutex, caller: usize) -> u64 {
    fork::era(); // so that a child notices the fork even if no fork handler ran
    let Some(segment) = segment() else { return 0 };
    let (account, lock) = (account(), core::ptr::from_ref(mutex).addr() as u64);
    count(account, &segment);
    let now = futex::now(Clock::Monotonic);
    lockwright_observe.expire(now);
    if maps::is_due(now) {
        maps::tell(&segment, now);
    }
    let mut sampling = account.sampling.get();
    account.before_ns.set(sampling.last_ns);
    let counts = sampling.next(now);
    account.sampling.set(sampling);
    arrives(account, &segment, mutex, now, counts != 0);
    account.lock.set(lock);
    account.since_ns.set(now);
    let call = account.call.take();
    account.at.set(if caller == 0 { call } else { Call { from: caller, ..call } });
    account.slept.set(false);
    account.counts.set(counts);
    if counts != 0 {
        segment.blocks(lock, now, counts, begun());
        posix::ask(mutex);
    }
    now
}

/// Counts one more wait. The segment is told only now and then: each time would cost as much as a short wait.
#[inline]
fn arrives(account: &Account, segment: &Segment, mutex: &Mutex, now: u64, tell: bool) {
    let lock = core::ptr::from_ref(mutex).addr() as u64;
    let (of, count) = account.uncounted.get();
    if of == lock && !tell {
        return account.uncounted.set((lock, count + 1));
    }
    let place = mutex.side.load(Relaxed) & side::LOCK;
    if of == lock || count == 0 {
        segment.arrived(lock, place, now, u64::from(count) + 1);
        return account.uncounted.set((lock, 0));
    }
    segment.arrived_before(of, u64::from(count));
    segment.arrived(lock, place, now, 1);
    account.uncounted.set((lock, 0));
}

/// Before any sleep of a thread.
fn before_sleep() {
    let account = account();
    let lock = account.lock.get();
    if lock == 0 || account.slept.replace(true) {
        return;
    }
    if let Some(segment) = opened() {
        segment.blocks(lock, account.since_ns.get(), 1, begun());
    }
}

/// The wait has ended.
#[cold]
pub(crate) fn has_waited(mutex: &Mutex, acquired: bool) {
    let (account, lock) = (account(), core::ptr::from_ref(mutex).addr() as u64);
    // It is another lock if a signal handler has waited meanwhile.
    let is_this = account.lock.replace(0) == lock;
    let (slept, counts) = (account.slept.get(), account.counts.get());
    let timed = is_this && (slept || counts != 0 || !acquired);
    if !timed && !is_full() {
        return;
    }
    let Some(segment) = opened() else { return };
    let here = place::among_usable();
    if is_full() && acquired {
        segment.follow(lock, thread::id(), here.cpu, timed);
    }
    if !timed {
        return;
    }
    let (of, before) = account.uncounted.get();
    if of == lock && before != 0 {
        segment.arrived_before(lock, before.into());
        account.uncounted.set((lock, 0));
    }
    let (now, at) = (futex::now(Clock::Monotonic), account.at.get());
    let ns = now.saturating_sub(account.since_ns.get());
    let mut sampling = account.sampling.get();
    // Waits with a sleep are all timed, so such a wait stands only for itself.
    let span = if slept { 0 } else { now.saturating_sub(account.before_ns.get()) };
    let counts = sampling.cap(counts, ns, span);
    account.sampling.set(sampling);
    let wait = Wait {
        lock,
        site: at.from as u64,
        stack: 0,
        tid: thread::id(),
        ended_ns: now,
        ns,
        weight: if slept || !acquired { 1 } else { counts },
        class: here.class.0,
        asleep: slept,
        acquired,
        by_thread: is_full(),
    };
    // Now, while the frames of the call still exist. We hold the lock here, but few stacks are wanted.
    let wants = is_full() && segment.wants_stack(lock, wait.site, wait.ns);
    let stack = if wants { stack(&segment, at) } else { 0 };
    account.ended.set(Wait { stack, ..wait });
    if !acquired {
        segment.gives_up(lock, account.since_ns.get());
        return count(account, &segment);
    }
    segment.answers(lock, now, posix::waiters(mutex) > 0);
    account.held_since_ns.set(now);
    posix::ask(mutex); // asks our own unlock to come by the slow path
}

/// Counts the wait that has ended, if any.
fn count(account: &Account, segment: &Segment) {
    let wait = account.ended.take();
    if wait.lock != 0 {
        segment.waited(&wait);
        account.held_since_ns.set(0);
    }
}

/// The calling thread is about to release a mutex, by the slow path. Returns when, ns; 0: the release isn't counted.
#[cold]
pub(crate) fn releases() -> u64 {
    if opened().is_some() { futex::now(Clock::Monotonic) } else { 0 }
}

/// The mutex has been released; `release` is what [`releases`] said, or 0 if the lock was granted to a waiter.
#[cold]
pub(crate) fn released(address: usize, release: u64) {
    let (account, lock) = (account(), address as u64);
    let call = account.call.take();
    let ended = account.ended.get();
    let timed = ended.lock == lock && ended.ended_ns > begun();
    let Some(segment) = opened().filter(|_| release != 0 || timed) else { return };
    let now = if release != 0 { release } else { futex::now(Clock::Monotonic) };
    let stack = || stack(&segment, call);
    let blame = Blame { site: call.from as u64, tid: thread::id(), by_thread: is_full() };
    if timed {
        let since = account.held_since_ns.get();
        count(account, &segment);
        if since != 0 {
            let held = now.saturating_sub(since);
            // The holds that this one stands for all happened since the wait before, so together they can't have lasted longer
            // than that.
            let most = now.saturating_sub(account.before_ns.get()) / held.max(1);
            let weight = ended.weight.min(u32::try_from(most).unwrap_or(u32::MAX)).max(1);
            segment.held(lock, held, weight, blame);
            if release == 0 {
                segment.blocked_by_hold(lock, held, weight, blame, stack);
            }
        }
    }
    if release != 0 {
        segment.blocked(lock, now, begun(), blame, stack);
    }
}

/// The program has called us, by this call, to lock or to unlock by a slow path.
#[inline]
pub(crate) fn called(call: Call) {
    let account = account();
    if !account.is_within.get() {
        account.call.set(call);
    }
}

/// Runs `act`, in which a function of ours that the program called, by this call, releases a mutex or acquires it.
#[inline]
pub(crate) fn within<R>(call: Call, act: impl FnOnce() -> R) -> R {
    if !is_on() || call.from == 0 {
        return act();
    }
    let account = account();
    account.is_within.set(true);
    account.call.set(call);
    let result = act();
    account.is_within.set(false);
    result
}

/// A mutex is destroyed.
#[cold]
pub(crate) fn retire(mutex: &Mutex) {
    if let Some(segment) = opened() {
        let lock = core::ptr::from_ref(mutex).addr() as u64;
        segment.retire(lock);
    }
}

/// The stack of the program's call; 0: none, or nobody wants one.
///
/// It follows frame pointers, if the program has them. In a program without them that register may hold anything, and doesn't lead to
/// a chain of frames. Then we copy a piece of the stack, for the reader to unwind. The kernel reads the memory, since it reports an
/// error instead of faulting. A process that may not ask the kernel gets no stacks.
#[cold]
fn stack(segment: &Segment, call: Call) -> u32 {
    /// Fewer frames don't count as a chain.
    const CHAIN: usize = 3;
    if call.from == 0 || !is_full() || access::is_fenced() || access::is_confined() {
        return 0;
    }
    let mut frames = [0_u64; DEPTH];
    let depth = by_frame_pointers(call, &mut frames);
    if depth < CHAIN && call.stack != 0 {
        let copied = thread::leaving_errno(|| {
            segment.piece(call.key() | 1, call.registers(), |to| call.copy_stack(to))
        });
        if copied != 0 {
            return copied;
        }
    }
    segment.stack(&frames[..depth])
}

/// Writes return addresses, the call's own first; returns how many.
fn by_frame_pointers(call: Call, frames: &mut [u64; DEPTH]) -> usize {
    /// How many bytes to copy at a time, and how far apart frames may lie.
    const CHUNK: usize = 1024;
    const FAR: usize = 1 << 20;
    frames[0] = call.from as u64;
    let mut depth = 1;
    let mut copy = [0_usize; CHUNK / size_of::<usize>()];
    let (mut base, mut len, mut at) = (0, 0, call.frame);
    // Callers' frames lie above the call's own.
    if at.checked_sub(call.stack).is_none_or(|far| far > FAR && call.stack != 0) {
        return depth;
    }
    while depth < DEPTH && at.is_multiple_of(size_of::<usize>()) && at != 0 {
        let pair = 2 * size_of::<usize>();
        if at < base || at + pair > base + len {
            base = at;
            len = read_memory(at, &mut copy);
            if len < pair {
                break;
            }
        }
        let index = (at - base) / size_of::<usize>();
        let (next, caller) = (copy[index], copy[index + 1]);
        if caller < 4096 {
            break;
        }
        frames[depth] = caller as u64;
        depth += 1;
        if next <= at || next - at > FAR {
            break;
        }
        at = next;
    }
    depth
}

/// Copies memory of our own process that may not exist; returns how many bytes it got.
fn read_memory(at: usize, into: &mut [usize]) -> usize {
    let to = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: size_of_val(into) };
    // Not beyond the page's end: the next page may not exist.
    let here = 4096 - at % 4096;
    let from = libc::iovec {
        iov_base: core::ptr::without_provenance_mut(at),
        iov_len: here.min(size_of_val(into)),
    };
    let got = thread::leaving_errno(|| {
        // SAFETY: the kernel writes at most its length into our own buffer, and checks what it reads.
        unsafe {
            let pid: c_int = libc::getpid();
            // Each as wide as a register, since the last one is passed on the stack.
            let (one, none) = (1 as c_ulong, 0 as c_ulong);
            let (to, from) = (&raw const to, &raw const from);
            libc::syscall(libc::SYS_process_vm_readv, pid, to, one, from, one, none)
        }
    });
    usize::try_from(got).unwrap_or(0)
}
