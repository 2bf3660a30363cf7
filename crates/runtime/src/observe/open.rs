//! The segment: made for the first thread that has to wait, in this user's folder or where a command wants it, and removed at
//! the end.

use super::maps;
use crate::access::{self, Access};
use crate::env::{say, variable};
use crate::files;
use crate::fork::{self, When};
use crate::leave::Turn;
use core::cell::UnsafeCell;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use lockwright_contract::Refused;
use lockwright_contract::counters::Segment;
use lockwright_contract::counters::control::{
    BUSY, Control, FAILED, FOREIGN, LINK, Level, NONE, OPEN,
};
use lockwright_contract::counters::layout::FOLDERS;
use lockwright_contract::file::decimal;
use lockwright_native::futex::{self, Deadline, Sleeper};
use lockwright_native::kernel;
use lockwright_native::system_call;

/// What the environment said at the start: the program may have changed it by the time that the segment is made.
struct Said {
    /// The lock in use.
    lock: [u8; 128],
    lock_len: usize,
    emulated: &'static [u8],
    /// LOCKWRIGHT_OBSERVE_DIR, which replaces [`FOLDERS`]; empty: not set.
    folder: [u8; 256],
    folder_len: usize,
}

struct Spec(UnsafeCell<Said>);
// SAFETY: written by the constructor.
unsafe impl Sync for Spec {}
#[unsafe(link_section = ".lockwright.start")]
static SPEC: Spec = Spec(UnsafeCell::new(Said {
    lock: [0; 128],
    lock_len: 0,
    emulated: b"",
    folder: [0; 256],
    folder_len: 0,
}));

/// The path of the segment's file, if it lies in one of [`FOLDERS`]; ends in NUL. Empty: somebody else removes it.
struct File(UnsafeCell<[u8; 128]>);
// SAFETY: written by the thread that has made the state BUSY, and read while the state is OPEN.
unsafe impl Sync for File {}
static FILE: File = File(UnsafeCell::new([0; 128]));

/// Who makes the segment.
static MAKER: Turn = Turn::new();
/// The maker has taken too long: nobody waits for it any more.
static GAVE_UP: AtomicBool = AtomicBool::new(false);

static HAS_SAID: AtomicBool = AtomicBool::new(false);

/// Reads LOCKWRIGHT_OBSERVE. The segment will say what is emulated.
///
/// # Safety
/// Called once, by the constructor.
pub(crate) unsafe fn load(emulated: &'static [u8]) {
    let lock = variable(c"LOCKWRIGHT_LOCK").unwrap_or(b"auto");
    // SAFETY: called once, before anybody reads it.
    let said = unsafe { &mut *SPEC.0.get() };
    said.lock_len = lock.len().min(said.lock.len());
    said.lock[..said.lock_len].copy_from_slice(&lock[..said.lock_len]);
    said.emulated = emulated;
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

/// What is counted in this process.
#[unsafe(no_mangle)]
#[used]
#[unsafe(link_section = ".lockwright.start")]
pub(crate) static lockwright_observe: Control = Control::new();

/// Is everything counted, with stacks?
pub(super) fn is_full() -> bool {
    lockwright_observe.level.load(Relaxed) == Level::Full as u32 // a hint
}

pub(super) struct Shared(pub(super) UnsafeCell<Option<Segment>>);
// SAFETY: written by the thread that has made the state BUSY, and read while the state is OPEN.
unsafe impl Sync for Shared {}
pub(super) static SEGMENT: Shared = Shared(UnsafeCell::new(None));

/// The segment, if the process has one. For callers that hold a lock, and should not make it now.
#[inline]
pub(super) fn opened() -> Option<Segment> {
    // ORDERING: Acquire, pairs with the Release in `publish`.
    // SAFETY: OPEN: nobody writes any more.
    (lockwright_observe.state.load(Acquire) == OPEN).then(|| unsafe { *SEGMENT.0.get() })?
}

/// Makes the segment, unless another thread does. `in_child` is called in a forked child, and `before_sleep` before any sleep.
#[cold]
pub(super) fn open(in_child: fn(), before_sleep: fn()) -> Option<Segment> {
    fork::tell_child(When::Unseen, in_child); // first: a child that is forked meanwhile has nobody who makes it
    futex::before_sleep(before_sleep);
    // In its turn the maker takes no signals: so no handler runs on that thread, or leaves from there, while the state is BUSY. (In a process that
    // has confined itself the maker does take them, but makes nothing.)
    let undo = || {
        // Relaxed: nothing is published.
        let _ = lockwright_observe.state.compare_exchange(BUSY, NONE, Relaxed, Relaxed);
    };
    MAKER.take(undo, || {
        let state = &lockwright_observe.state;
        // Relaxed: the turn's Acquire pairs with the end of the last one.
        if state.load(Relaxed) == NONE {
            state.store(BUSY, Relaxed); // for commands that ask
            publish(access::asking(make));
        }
    });
    opened()
}

/// Whoever sees OPEN sees the segment.
fn publish(made: Result<Segment, Refused>) {
    let control = &lockwright_observe;
    maps::begin();
    if let Err(refused) = made {
        let why = match refused {
            Refused::System(error) => error as u32,
            Refused::Link => LINK,
            Refused::Foreign => FOREIGN,
        };
        control.error.store(why, Relaxed); // published below
    }
    // SAFETY: BUSY: nobody else reads or writes it.
    unsafe { *SEGMENT.0.get() = made.ok() };
    if let Ok(segment) = made {
        control.base.store(segment.base().addr() as u64, Relaxed); // as above
    } else if !HAS_SAID.swap(true, Relaxed) {
        say(&[b"no shared memory to count locks in: nothing is counted\n"]);
    }
    // ORDERING: Release, pairs with the Acquire in `segment` and in `opened`: the segment is complete.
    control.state.store(if made.is_ok() { OPEN } else { FAILED }, Release);
}

/// The segment, once another thread has made it. For a thread that has to wait for a lock in any case, so that its wait counts. The maker takes no
/// locks, and no signals while it is BUSY, so it never waits for this thread. But the maker may be gone (a filter may kill threads): after 0.2 s
/// nobody waits for it any more.
#[cold]
pub(super) fn opening() -> Option<Segment> {
    const NAPS: u32 = 64;
    const LONGEST_NS: u64 = 3_200_000; // so that many waiters leave the maker its core
    let state = &lockwright_observe.state;
    let mut nap_ns = 100_000;
    // Naps are counted, not the time: a machine may be suspended, a process stopped.
    for _ in 0..NAPS {
        let seen = state.load(Relaxed); // `opened` pairs with who made it
        let is_made = !matches!(seen, NONE | BUSY) || !MAKER.is_taken();
        if is_made || MAKER.is_own() || GAVE_UP.load(Relaxed) {
            return opened();
        }
        // Nobody wakes us: so the maker needs no system call for the many processes in which nobody waits for it.
        futex::wait(state.as_ptr(), seen, Some(Deadline::after(nap_ns)), Sleeper::Own);
        nap_ns = LONGEST_NS.min(2 * nap_ns);
    }
    GAVE_UP.store(true, Relaxed); // a hint
    opened()
}

fn make(access: Access) -> Result<Segment, Refused> {
    // A filter that is older than the program comes from a container or a service manager. Those allow making files; and
    // somebody asked for this one.
    if access == Access::None {
        return Err(Refused::System(libc::EPERM)); // the program's own filter may kill
    }
    // SAFETY: written by the constructor.
    let said = unsafe { &*SPEC.0.get() };
    let mut room = files::AboutRoom::new();
    let about = files::about(&mut room, &said.lock[..said.lock_len], said.emulated);
    if said.folder_len > 0 {
        match Segment::create(&said.folder[..said.folder_len], &about) {
            Err(Refused::System(libc::ENOENT)) => {} // the command that made the folder has ended, but the program goes on
            made => return made,
        }
    }
    let mut why = None;
    for (before, after) in FOLDERS {
        let mut path = [0_u8; 64];
        let len = folder(before.as_bytes(), after.as_bytes(), &mut path);
        // SAFETY: a NUL-terminated path. If the folder is a link, or belongs to somebody else, opening it will be refused. (Not by
        // libc's `mkdir`: a program may define a function of that name.)
        unsafe { system_call!(libc::SYS_mkdirat, libc::AT_FDCWD, path.as_ptr(), 0o700) };
        match Segment::create(&path[..len], &about) {
            Ok(segment) => {
                // SAFETY: no preconditions.
                let name = segment.name(kernel::process_id()).unwrap_or([0; 64]);
                // SAFETY: BUSY: nobody else reads or writes it.
                let file = unsafe { &mut *FILE.0.get() };
                *file = [0; 128];
                file[..len].copy_from_slice(&path[..len]);
                file[len] = b'/';
                file[len + 1..len + 1 + name.len() - 1].copy_from_slice(&name[..name.len() - 1]);
                return Ok(segment);
            }
            Err(refused) => why = why.or(Some(refused)), // of the first folder, which all systems have
        }
    }
    Err(why.unwrap_or(Refused::System(libc::ENOENT)))
}

/// Writes the name of this user's folder; returns its length.
fn folder(before: &[u8], after: &[u8], path: &mut [u8; 64]) -> usize {
    let mut digits = [0_u8; 10];
    // SAFETY: no preconditions.
    let user = decimal(unsafe { kernel::call(libc::SYS_geteuid, [0; 6]) as u32 }, &mut digits);
    let mut len = 0;
    for piece in [before, user, after] {
        path[len..len + piece.len()].copy_from_slice(piece);
        len += piece.len();
    }
    len
}

/// The process ends, and removes its file, which takes memory. (If the process is killed, the next command removes it.)
pub(crate) fn at_exit() {
    let Some(segment) = opened() else { return };
    access::asking(|access| {
        // A child that hasn't noticed its fork yet still has its parent's segment.
        if access != Access::None && segment.name(kernel::process_id()).is_some() {
            // SAFETY: OPEN: nobody writes any more. A NUL-terminated path. Threads that go on running still have the mapping.
            unsafe {
                system_call!(libc::SYS_unlinkat, libc::AT_FDCWD, (*FILE.0.get()).as_ptr(), 0)
            };
        }
    });
}

/// In the child of a fork: the segment is the parent's.
pub(super) fn forget() {
    // Relaxed: there is one thread.
    lockwright_observe.base.store(0, Relaxed);
    lockwright_observe.state.store(NONE, Relaxed);
    GAVE_UP.store(false, Relaxed);
    MAKER.end(); // perhaps a thread that only the parent has
}
