//! LOCKWRIGHT_STATS=DIR: the results of epochs, in a file for each process.
//!
//! Our constructor makes the file; a forked child makes its own when its first epoch ends. A process that
//! can't have one goes on without it.

use crate::access::{self, Access};
use crate::env::{refused, say, variable};
use crate::files;
use crate::fork::{self, When};
use crate::shared::{self, IDS};
use crate::thread;
use crate::watch::{self, Epochs};
use core::cell::UnsafeCell;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32};
use lockwright_contract::{Execution, Refused, Slot, Writer};
use lockwright_native::futex::{self, Clock};
use lockwright_native::system_call;

struct Store {
    dir: [u8; 4096],
    dir_len: usize,
    /// LOCKWRIGHT_LOCK, kept for children: the program may change its environment.
    lock: [u8; 128],
    lock_len: usize,
    emulated: &'static [u8],
    writer: Option<Writer>,
}

struct StoreCell(UnsafeCell<Store>);
// SAFETY: the constructor writes everything except `writer`, before STATE leaves OFF. The thread that has made STATE BUSY
// writes `writer`, which is read while STATE is OPEN.
unsafe impl Sync for StoreCell {}
static STORE: StoreCell = StoreCell(UnsafeCell::new(Store {
    dir: [0; 4096],
    dir_len: 0,
    lock: [0; 128],
    lock_len: 0,
    emulated: b"",
    writer: None,
}));

/// [`OFF`] and so on.
static STATE: AtomicU32 = AtomicU32::new(OFF);
/// Nothing is recorded.
const OFF: u32 = 0;
/// The process has a folder, but no file yet.
const SHUT: u32 = 1;
/// Some thread is making the file.
const BUSY: u32 = 2;
/// The process has a file.
const OPEN: u32 = 3;

static SAID_FULL: AtomicBool = AtomicBool::new(false);
static SAID_MANY: AtomicBool = AtomicBool::new(false);

/// The place of each epoch in the file, + 1; 0: it has none yet.
static SLOTS: [AtomicU8; IDS] = [const { AtomicU8::new(0) }; IDS];
/// In [`SLOTS`]: all places were taken.
const FULL: u8 = u8::MAX;

/// What to do at the end of an epoch.
static HOOKS: Epochs = Epochs { ended: record, changed };

/// Reads LOCKWRIGHT_STATS. The file will say what is emulated.
///
/// # Safety
/// Called once, by the constructor.
pub(crate) unsafe fn load(emulated: &'static [u8]) {
    let Some(dir) = variable(c"LOCKWRIGHT_STATS") else { return };
    // SAFETY: nobody reads it while STATE is OFF.
    let store = unsafe { &mut *STORE.0.get() };
    let mut len = 0;
    if dir[0] != b'/' {
        // Make it absolute: a child may have another working directory.
        // SAFETY: a buffer of that size.
        let got =
            unsafe { system_call!(libc::SYS_getcwd, store.dir.as_mut_ptr(), store.dir.len() - 1) };
        // As libc's: a folder that can't be reached from our root has no name.
        if got > 0 && store.dir[0] == b'/' {
            len = store.dir.iter().position(|&byte| byte == 0).unwrap_or(0);
            store.dir[len] = b'/';
            len += 1;
        }
    }
    let Some(rest) = store.dir.get_mut(len..len + dir.len()) else {
        return refused(b"LOCKWRIGHT_STATS", dir, Refused::System(libc::ENAMETOOLONG));
    };
    rest.copy_from_slice(dir);
    store.dir_len = len + dir.len();
    let lock = variable(c"LOCKWRIGHT_LOCK").unwrap_or(b"auto");
    store.lock_len = lock.len().min(store.lock.len());
    store.lock[..store.lock_len].copy_from_slice(&lock[..store.lock_len]);
    store.emulated = emulated;
    fork::tell_child(When::Unseen, in_child);
    // ORDERING: Release, pairs with the Acquire in `writer`: the folder is set.
    STATE.store(SHUT, Release);
    watch::watch_epochs(Some(&HOOKS));
    if let Some(Err(why)) = open() {
        refused(b"LOCKWRIGHT_STATS", dir, why);
    }
}

/// Makes the file, if no other thread does; if that fails, recording is OFF.
#[cold]
fn open() -> Option<Result<(), Refused>> {
    access::asking(|access| match access {
        Access::None => None, // the child of a process that may not open files
        _ => make(),
    })
}

fn make() -> Option<Result<(), Refused>> {
    // ORDERING: Acquire, pairs with `load`: the folder is set.
    STATE.compare_exchange(SHUT, busy(), Acquire, Relaxed).ok()?;
    // SAFETY: BUSY: nobody else reads or writes it.
    let store = unsafe { &mut *STORE.0.get() };
    let mut room = files::AboutRoom::new();
    let about = files::about(&mut room, &store.lock[..store.lock_len], store.emulated);
    let made = Writer::create(&store.dir[..store.dir_len], &about);
    store.writer = made.ok();
    // ORDERING: Release, pairs with the Acquire in `writer`: the file is complete.
    STATE.store(if made.is_ok() { OPEN } else { OFF }, Release);
    if made.is_err() {
        watch::watch_epochs(None);
    }
    Some(made.map(drop))
}

/// The state in which the calling thread makes the file.
fn busy() -> u32 {
    thread::id() << 2 | BUSY
}

/// The file; makes it if this is a forked child that has none yet.
fn writer() -> Option<Writer> {
    fork::era(); // so that a child notices the fork even if no fork handler ran
    // Making it takes about 50 us. We wait with a bound: the maker may be a thread that a signal handler tore away.
    let mine = busy();
    for _ in 0..1000 {
        // ORDERING: Acquire, pairs with the Release in `open`.
        match STATE.load(Acquire) {
            // SAFETY: OPEN: nobody writes any more.
            OPEN => return unsafe { (*STORE.0.get()).writer },
            SHUT => drop(open()),
            OFF => return None,
            // A signal handler, which interrupted the maker.
            state if state == mine => return None,
            _ => {
                futex::yield_cpu();
            }
        }
    }
    None
}

/// In the child of a fork: the file is the parent's.
fn in_child() {
    // Relaxed, all of it: there is one thread. A thread that made it BUSY does not exist here.
    if STATE.load(Relaxed) != OFF {
        for slot in &SLOTS {
            slot.store(0, Relaxed);
        }
        STATE.store(SHUT, Relaxed);
    }
}

/// Records one execution of the epoch `id`.
#[cold]
#[inline(never)]
fn record(id: u32, sample: &Execution) {
    // SAFETY: the calling thread's own `errno`.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let kept = unsafe { *errno };
    if let Some(writer) = writer()
        && let Some(slot) = slot(&writer, id)
    {
        let is_recorded = writer.record(slot, sample, futex::now(Clock::Monotonic));
        if !is_recorded && !SAID_FULL.swap(true, Relaxed) {
            say(&[b"no room for LOCKWRIGHT_STATS on the disk: not all epochs are recorded\n"]);
        }
    }
    // SAFETY: as above.
    unsafe { *errno = kept };
}

fn slot(writer: &Writer, id: u32) -> Option<Slot> {
    let known = SLOTS.get(id as usize)?;
    match known.load(Relaxed) {
        // Relaxed: a place belongs to its epoch forever.
        0 => {
            let slot = writer.slot(id);
            match slot {
                Some(slot) => describe(writer, slot, id),
                None if SAID_MANY.swap(true, Relaxed) => {}
                None => say(&[b"more than 128 epochs: those that come later are not recorded\n"]),
            }
            known.store(slot.map_or(FULL, |slot| slot.0 + 1), Relaxed);
            slot
        }
        FULL => None,
        number => Some(Slot(number - 1)),
    }
}

fn describe(writer: &Writer, slot: Slot, id: u32) {
    let mut name = [0; shared::NAME];
    writer.name(slot, shared::name(id, &mut name));
    writer.percentile(slot, shared::percentile(id).millionths());
}

/// The name or the percentile of the epoch `id` has changed.
fn changed(id: u32) {
    // Relaxed: as in `slot`. An epoch without a place will be described when it gets one.
    let number = SLOTS.get(id as usize).map_or(0, |slot| slot.load(Relaxed));
    if number != 0
        && number != FULL
        && let Some(writer) = writer()
    {
        describe(&writer, Slot(number - 1), id);
    }
}
