//! LOCKWRIGHT_ORDER=DIR: the order in which threads take locks, in one file for each process.
//!
//! A thread that asks for a lock while it holds another makes an edge, from the held lock to the other one. If the edges form a
//! cycle, threads that follow them at a bad moment wait for each other forever. So the edges tell of deadlocks that have not happened
//! yet. We only note edges; the command looks for cycles.
//!
//! * An edge is noted before the thread waits: if the deadlock does happen, its edge is in the file.
//! * A lock that is only tried, or waited for until a deadline, gets no edges to it, but edges from it once it is held. The same goes
//!   for a lock that the thread already holds.
//! * A condition variable's waiter asks for its mutex again, while it holds its other locks.
//! * Stacks are copied raw, when a call is first seen; the command unwinds them. If other locks are taken under a lock, its place gets
//!   a piece for each depth of the stack, which tells different callers apart.
//! * When this is off, as it normally is, it costs nothing: see `fast`.

use crate::access::{self, Access};
use crate::caller::Call;
use crate::env::{refused, say, variable};
use crate::files;
use crate::fork::{self, When};
use crate::observe::maps;
use crate::thread::{self, leaving_errno};
use crate::watch::{self, Taking};
use core::cell::{Cell, UnsafeCell};
use core::ffi::c_int;
use core::ptr::{null, null_mut};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64};
use lockwright_contract::Refused;
use lockwright_contract::order::{AGAIN, HELD, KIND_SHIFT, Order, PATIENCE, Pair, READ, Thread};
use lockwright_native::futex::{self, Clock};
use lockwright_native::{kernel, system_call};

/// A thread's account. Zeroes are the account of a thread that has taken nothing.
#[repr(C)]
struct Account {
    /// Its place in the file; null: it has none yet.
    thread: Cell<*const Thread>,
    /// The lock that it released last, for a condition variable's waiter.
    released: Cell<u64>,
    /// The slot in which it held that lock.
    slot: Cell<u32>,
    /// Not 0: the file had no place left for the thread.
    is_lost: Cell<u32>,
}

fn account() -> &'static Account {
    // SAFETY: the calling thread's own memory, always of this type.
    unsafe { (*thread::this()).ordered.account() }
}

/// What the environment said at the start: the program may have changed it by the time that a child makes its file.
struct Said {
    folder: [u8; 4096],
    folder_len: usize,
    lock: [u8; 128],
    lock_len: usize,
    emulated: &'static [u8],
}

struct SaidCell(UnsafeCell<Said>);
// SAFETY: written by the constructor.
unsafe impl Sync for SaidCell {}
static SPEC: SaidCell = SaidCell(UnsafeCell::new(Said {
    folder: [0; 4096],
    folder_len: 0,
    lock: [0; 128],
    lock_len: 0,
    emulated: b"",
}));

/// The file's [`Order::base`]; null: none.
static BASE: AtomicPtr<u8> = AtomicPtr::new(null_mut());
/// [`SHUT`] and so on.
static STATE: AtomicU32 = AtomicU32::new(SHUT);
/// The process has no file yet.
const SHUT: u32 = 0;
/// A thread is making it.
const BUSY: u32 = 1;
/// The process has a file, or can't have one.
const DONE: u32 = 2;

static HOOKS: watch::Order = watch::Order { asks, answered, released, destroyed };

/// Reads LOCKWRIGHT_ORDER. The file will say what is emulated.
///
/// # Safety
/// Called once, by the constructor.
pub(crate) unsafe fn load(emulated: &'static [u8]) {
    let Some(folder) = variable(c"LOCKWRIGHT_ORDER") else { return };
    // SAFETY: called once, before anybody reads it.
    let said = unsafe { &mut *SPEC.0.get() };
    match said.folder.get_mut(..folder.len()) {
        Some(place) if folder[0] == b'/' => place.copy_from_slice(folder),
        _ => {
            let why = b"' is no absolute path of at most 4096 bytes: nothing is noted\n";
            return say(&[b"LOCKWRIGHT_ORDER='", folder, why]);
        }
    }
    said.folder_len = folder.len();
    let lock = variable(c"LOCKWRIGHT_LOCK").unwrap_or(b"auto");
    said.lock_len = lock.len().min(said.lock.len());
    said.lock[..said.lock_len].copy_from_slice(&lock[..said.lock_len]);
    said.emulated = emulated;
    fork::tell_child(When::Unseen, in_child);
    watch::begin_order(&HOOKS);
}

/// In the child of a fork: the file is the parent's, and so is the thread's place in it.
fn in_child() {
    // Relaxed: there is one thread.
    BASE.store(null_mut(), Relaxed);
    STATE.store(SHUT, Relaxed);
    TOLD.store(0, Relaxed);
    IS_TELLING.store(false, Relaxed);
    let account = account();
    account.thread.set(null());
    account.is_lost.set(0);
}

/// The file; makes it if this process has none.
#[inline]
fn file() -> Option<Order> {
    // ORDERING: Acquire, pairs with the Release in `open`: the file is complete.
    let base = BASE.load(Acquire);
    // SAFETY: `open` got it from one.
    if base.is_null() { made() } else { Some(unsafe { Order::at(base) }) }
}

#[cold]
fn made() -> Option<Order> {
    // Another thread may be making it, which takes about 100 us. We wait for that, so as not to miss what this thread does now,
    // but not without a bound: the maker may be a thread that a signal handler tore away.
    let mine = busy();
    for _ in 0..PATIENCE {
        // ORDERING: Acquire, pairs with the Release in `open`: the address is set.
        match STATE.load(Acquire) {
            SHUT => {
                if let Some(order) = leaving_errno(open) {
                    return Some(order);
                }
            }
            // A signal handler, which interrupted the maker.
            state if state == mine => return None,
            DONE => break,
            _ => {
                futex::yield_cpu();
            }
        }
    }
    // ORDERING: Acquire, as in `file`.
    let base = BASE.load(Acquire);
    // SAFETY: as in `file`.
    (!base.is_null()).then(|| unsafe { Order::at(base) })
}

/// The state in which the calling thread makes the file.
fn busy() -> u32 {
    thread::id() << 2 | BUSY
}

#[cold]
fn open() -> Option<Order> {
    // ORDERING: Acquire, pairs with nothing: all that is read here was written by the constructor.
    STATE.compare_exchange(SHUT, busy(), Acquire, Relaxed).ok()?;
    // SAFETY: written by the constructor.
    let said = unsafe { &*SPEC.0.get() };
    let folder = &said.folder[..said.folder_len];
    let mut room = files::AboutRoom::new();
    let made = access::asking(|access| match access {
        // Even under a filter that is older than the program, since somebody has asked for this.
        Access::All | Access::Files => {
            let lock = &said.lock[..said.lock_len];
            Order::create(folder, &files::about(&mut room, lock, said.emulated))
        }
        Access::None => Err(Refused::System(libc::EPERM)), // a filter may kill for asking
    });
    match made {
        // ORDERING: Release, pairs with the Acquire in `file`.
        Ok(order) => BASE.store(order.base(), Release),
        Err(why) => refused(b"LOCKWRIGHT_ORDER", folder, why),
    }
    // ORDERING: Release, pairs with the Acquire in `made`: the address is set.
    STATE.store(DONE, Release);
    made.ok()
}

/// The file, and the calling thread's place in it.
fn here() -> Option<(Order, &'static Account, &'static Thread)> {
    fork::era(); // so that a child notices the fork even if no fork handler ran
    let (order, account) = (file()?, account());
    // SAFETY: null, or a place in the file, which is mapped forever.
    if let Some(thread) = unsafe { account.thread.get().as_ref() } {
        return Some((order, account, thread));
    }
    if account.is_lost.get() != 0 || access::is_confined() {
        return None; // a hint
    }
    let find = || order.thread(thread::id(), is_alive);
    let thread =
        leaving_errno(|| access::asking(|access| (access != Access::None).then(find)).flatten());
    match thread {
        Some(thread) => account.thread.set(thread),
        None => account.is_lost.set(1),
    }
    Some((order, account, thread?))
}

/// Is this thread of our process still running?
fn is_alive(tid: u32) -> bool {
    // SAFETY: no preconditions; signal 0 only asks.
    unsafe { system_call!(libc::SYS_tgkill, kernel::process_id(), tid as c_int, 0) == 0 }
}

/// The slot in which the thread holds this lock.
fn held(thread: &Thread, lock: u64) -> Option<usize> {
    thread.held.iter().position(|held| held.load(Relaxed) == lock) // own thread only, except for `release_for_another`
}

/// Half of an edge's flags.
fn flags(taking: &Taking) -> u32 {
    let read = if taking.how.reads { READ } else { 0 };
    let again = if taking.how.again { AGAIN } else { 0 };
    read | again | taking.how.kind << KIND_SHIFT
}

/// Where a thread takes a lock, and its stack there.
struct At {
    site: u64,
    stack: u32,
}

/// The place and stack of this call. A condition variable's waiter keeps those of its first acquisition.
fn at(order: Order, account: &Account, thread: &Thread, taking: &Taking, nests: bool) -> At {
    if taking.how.again && account.released.get() == taking.lock as u64 {
        let about = &thread.about[account.slot.get() as usize % HELD];
        return At { site: about.site.load(Relaxed), stack: about.stack.load(Relaxed) }; // own thread only
    }
    At { site: taking.call.from as u64, stack: stack(order, taking.call, nests) }
}

fn asks(taking: &Taking) {
    let Some((order, account, thread)) = here() else { return };
    let lock = taking.lock as u64;
    if taking.is_new {
        order.retire(lock);
    }
    if taking.how.tries {
        return;
    }
    thread.waits_at.store(taking.call.from as u64, Relaxed); // for people who look at a program that hangs
    thread.waits_for.store(lock, Relaxed);
    let others = thread.held.iter().filter(|held| held.load(Relaxed) != 0).count(); // own thread only
    if others > 0 && held(thread, lock).is_none() {
        nested(order, account, thread, taking);
    }
}

/// A thread that already holds locks asks for another one.
#[cold]
#[inline(never)]
fn nested(order: Order, account: &Account, thread: &Thread, taking: &Taking) {
    if !leaving_errno(|| order.has_tables()) {
        return;
    }
    let mut ids = [0; HELD];
    for (place, id) in ids.iter_mut().enumerate() {
        let lock = thread.held[place].load(Relaxed); // own thread only, all of it
        if lock == 0 {
            continue;
        }
        *id = thread.about[place].id.load(Relaxed);
        if *id == 0 {
            *id = order.lock(lock);
            thread.about[place].id.store(*id, Relaxed);
        }
    }
    let to = order.lock(taking.lock as u64);
    if to == 0 {
        return;
    }
    // A lock that is held for reading doesn't keep other readers out.
    let is_gate = |place: usize| thread.about[place].flags.load(Relaxed) & READ == 0;
    let gates = core::array::from_fn(|place| if is_gate(place) { ids[place] } else { 0 });
    let mut here = None;
    for (place, &from) in ids.iter().enumerate().filter(|(_, id)| **id != 0) {
        let about = &thread.about[place];
        let mut others: [u32; HELD] = gates;
        others[place] = 0;
        let pair = Pair {
            from: (from, about.flags.load(Relaxed)),
            to: (to, flags(taking)),
            others: &others,
            thread: thread.number.load(Relaxed),
        };
        let Some((edge, key)) = order.pass(&pair) else { continue };
        let At { site, stack } =
            *here.get_or_insert_with(|| at(order, account, thread, taking, true));
        let from_stack = about.stack.load(Relaxed);
        order.nests(from_stack);
        // All of this is published with the key.
        edge.from.store(thread.held[place].load(Relaxed), Relaxed);
        edge.from_site.store(about.site.load(Relaxed), Relaxed);
        edge.from_stack.store(from_stack, Relaxed);
        edge.to.store(taking.lock as u64, Relaxed);
        edge.to_site.store(site, Relaxed);
        edge.to_stack.store(stack, Relaxed);
        edge.tid.store(thread.tid.load(Relaxed), Relaxed);
        edge.publish(key);
    }
    if here.is_some() {
        leaving_errno(|| tell(order));
    }
}

fn answered(taking: &Taking, has_it: bool) {
    let Some((order, account, thread)) = here() else { return };
    thread.waits_for.store(0, Relaxed); // own thread only, all of it
    if !has_it {
        return;
    }
    let lock = taking.lock as u64;
    if let Some(place) = held(thread, lock) {
        let again = &thread.about[place].again;
        again.store(again.load(Relaxed) + 1, Relaxed);
        return;
    }
    let Some(place) = held(thread, 0) else {
        order.header().held_lost.fetch_add(1, Relaxed); // a counter
        return;
    };
    let At { site, stack } = at(order, account, thread, taking, false);
    let about = &thread.about[place];
    about.site.store(site, Relaxed);
    about.stack.store(stack, Relaxed);
    about.id.store(0, Relaxed);
    about.again.store(0, Relaxed);
    about.flags.store(flags(taking) & !AGAIN, Relaxed);
    // ORDERING: Release, pairs with the reader: the lock and its place belong together.
    thread.held[place].store(lock, Release);
}

fn released(lock: usize) {
    let Some((order, account, thread)) = here() else { return };
    let lock = lock as u64;
    let Some(place) = held(thread, lock) else { return order.release_for_another(lock) };
    let again = &thread.about[place].again;
    match again.load(Relaxed) {
        // Own thread only, all of it.
        0 => {
            thread.held[place].store(0, Relaxed);
            account.released.set(lock);
            account.slot.set(place as u32);
        }
        more => again.store(more - 1, Relaxed),
    }
}

fn destroyed(lock: usize) {
    // If the process has no file, this is no reason to make one.
    if !BASE.load(Relaxed).is_null()
        && let Some(order) = file()
    {
        order.retire(lock as u64);
    }
}

/// The stack of a call; `nests`: the thread holds another lock. 0: the file has no room for it.
fn stack(order: Order, call: Call, nests: bool) -> u32 {
    if call.from == 0 {
        return 0;
    }
    let put = |key: u64| {
        leaving_errno(|| order.stack(key | 1, call.registers(), |to| call.copy_stack(to)))
    };
    let deep = || put(call.key());
    if nests {
        return deep();
    }
    let known = put(call.site_key());
    if order.does_nest(known) { deep() } else { known }
}

/// How often the memory map was recorded.
static TOLD: AtomicU32 = AtomicU32::new(0);
/// When to record it next, ns of `CLOCK_MONOTONIC`.
static NEXT_NS: AtomicU64 = AtomicU64::new(0);
/// Some thread is recording it.
static IS_TELLING: AtomicBool = AtomicBool::new(false);
/// What that thread reads into.
static BUFFER: maps::MapsBuffer = maps::MapsBuffer::new();

/// Records our memory map, at each of the first edges, and later at most once a second: new edges may come from new libraries.
fn tell(order: Order) {
    const OFTEN: u32 = 64;
    let now = futex::now(Clock::Monotonic);
    if TOLD.load(Relaxed) > OFTEN && now < NEXT_NS.load(Relaxed) {
        return; // a hint
    }
    // ORDERING: Acquire, pairs with the Release below: the last one has finished.
    if IS_TELLING.swap(true, Acquire) {
        return;
    }
    NEXT_NS.store(now + 1_000_000_000, Relaxed);
    TOLD.fetch_add(1, Relaxed);
    access::asking(|access| {
        if access != Access::None {
            // SAFETY: IS_TELLING is ours.
            order.map(|push| unsafe { maps::read(&BUFFER, push) });
        }
    });
    // ORDERING: Release, as above.
    IS_TELLING.store(false, Release);
}
