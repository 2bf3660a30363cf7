//! What locks need to know about the machine: the CPUs that the program may use (`taskset`, cpusets, quotas), and the CPUs
//! that are online, with their classes.
//!
//! The first thread that has to wait for a lock learns the machine, so a program that never contends pays nothing. Until
//! then, and for threads that wait meanwhile, we assume two CPUs of one class. Later a thread that has to wait anyway
//! looks again now and then: about once a second by two system calls, and by the kernel's files when those show a change or
//! a minute has passed. Nobody waits for the thread that does it.
//!
//! The thread that looks may have little stack left, and the process may have no descriptor left. So large things are static,
//! and what can't be read stays as it was last seen.
//!
//! A file is open for some microseconds, and meanwhile it has the lowest free descriptor. That disturbs a thread that
//! just then closes a descriptor and expects to get its number back. So we seldom read files. Keeping them open
//! under a high number would be worse: the first number above 63 makes the kernel enlarge the process's table, which stops
//! a process with threads for 10 ms. And some programs count their descriptors, or close all of them.
//!
//! What we may ask depends on who filters our system calls (`access`). The preloaded library notices when a process confines
//! itself by `prctl` (which an unprivileged process needs: for "no new privileges", or for the filter itself). Right
//! before that, the library learns what it still may.

use crate::access::{self, Access};
use crate::env::{say, variable};
use crate::fork::{self, When};
use crate::leave::Turn;
use crate::urgency;
use core::cell::UnsafeCell;
use core::ffi::{CStr, c_int, c_ulong};
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use lockwright_native::cpus::{Reach, Room};
use lockwright_native::futex;
use lockwright_native::place;
use lockwright_native::system_call;
use lockwright_native::topology::{self, Topology};

/// A thread looks at the clock at its first contended acquisition, and then once in this many.
pub(crate) const WAITS_PER_LOOK: u32 = 64;
/// The files are read again after this many seconds, whatever the system calls say: nothing announces a change of
/// quota.
const FILES_EVERY: u32 = 60;

/// The number of CPUs that the program may keep busy, as last seen. While nobody has looked: as the early policy assumes.
#[unsafe(link_section = ".lockwright.start")]
static CPUS: AtomicU32 = AtomicU32::new(2);
/// When somebody last looked, in seconds of the coarse monotonic clock.
static LOOKED: AtomicU32 = AtomicU32::new(0);
/// When the files were last read, likewise.
static READ: AtomicU32 = AtomicU32::new(0);
/// The list of CPUs that are online, as a hash of the kernel's text; 0: not read yet.
static ONLINE: AtomicU64 = AtomicU64::new(0);
/// Some thread is looking.
static LOOKING: Turn = Turn::new();
/// Nobody has looked yet.
static IS_NEW: AtomicBool = AtomicBool::new(true);
/// Memory to read into.
static ROOM: RoomCell = RoomCell(UnsafeCell::new(Room::new()));

struct RoomCell(UnsafeCell<Room>);
// SAFETY: only the thread whose turn LOOKING is uses it.
unsafe impl Sync for RoomCell {}

/// Called by the constructor.
pub(crate) fn begin() {
    fork::tell_child(When::Seen, in_child);
    place::learn();
    urgency::begin();
}

fn use_reach(reach: Reach) {
    CPUS.store(reach.cpus, Relaxed); // a hint, here and below: any value is legal
    place::set_fastest(reach.fastest);
}

/// The number of CPUs that the program may keep busy, as last seen.
pub(crate) fn cpus() -> u32 {
    CPUS.load(Relaxed) // a hint
}

/// Called before a thread's first contended acquisition, and before each [`WAITS_PER_LOOK`]th after that: looks if nobody has yet, or if
/// it is time to look again.
#[cold]
pub(crate) fn look_now_and_then() {
    learn();
    let (now, last) = (seconds(), LOOKED.load(Relaxed));
    // Relaxed: it elects one thread per second; everything that this thread reads and writes is a hint.
    if now == last || LOOKED.compare_exchange(last, now, Relaxed, Relaxed).is_err() {
        return;
    }
    let is_due = now.wrapping_sub(READ.load(Relaxed)) >= FILES_EVERY;
    if is_due || has_changed() {
        look();
    }
}

/// Reads everything, for a caller that needs it now. `has_classes`: the CPUs' classes are known; if not, the next look
/// reads them. Called by the constructor.
fn know(has_classes: bool) {
    fork::era(); // recordings recognise children by it
    if has_classes && let Some(online) = topology::online_hash() {
        ONLINE.store(online, Relaxed); // guards no other data
    }
    look();
}

/// Looks, if nobody has yet. Called where a thread has to wait.
#[inline]
pub(crate) fn learn() {
    if IS_NEW.load(Relaxed) {
        learn_first(); // a hint: it elects one thread
    }
}

#[cold]
#[inline(never)]
fn learn_first() {
    if IS_NEW.swap(false, Relaxed) {
        // A child must know that nobody looks there, even if no fork handler tells us about the fork.
        fork::tell_child(When::Seen, in_child); // even before our constructor runs
        fork::era();
        LOOKED.store(seconds(), Relaxed); // a hint
        look();
    }
}

/// The coarse monotonic clock.
fn seconds() -> u32 {
    futex::read(libc::CLOCK_MONOTONIC_COARSE).tv_sec as u32
}

/// Do system calls show that affinity has changed?
fn has_changed() -> bool {
    if access::is_fenced() {
        return false; // it may not ask
    }
    let mut has_changed = false;
    alone(|room, access| has_changed = access == Access::All && Reach::may_have_changed(room));
    has_changed
}

/// Looks now.
pub(crate) fn look() {
    alone(|room, access| {
        if let Some(online) = topology::online_hash()
            && ONLINE.load(Relaxed) != online
            // SAFETY: LOOKING is ours.
            && unsafe { read_topology() }
        {
            ONLINE.store(online, Relaxed); // the next thread to look takes LOOKING after us
        }
        let reach = match access {
            Access::Files => Reach::by_files(room),
            _ => Reach::of_process(room),
        };
        if let Some(reach) = reach {
            use_reach(reach);
            READ.store(seconds(), Relaxed); // a hint; if something could not be read, a thread tries again in a second
        }
    });
}

/// The CPUs' classes, as last read.
struct Classes {
    topology: Topology,
    /// LOCKWRIGHT_TOPOLOGY, kept in case CPUs come or go; followed by zeroes.
    wanted: [u8; 512],
    /// The classes are not the machine's own, and don't change.
    are_made_up: bool,
}

struct SharedClasses(UnsafeCell<Classes>);
// SAFETY: only the thread whose turn LOOKING is uses it.
unsafe impl Sync for SharedClasses {}
static CLASSES: SharedClasses = SharedClasses(UnsafeCell::new(Classes {
    topology: Topology::new(),
    wanted: [0; 512],
    are_made_up: false,
}));

/// Variables for which the machine must be known before the program begins: their contents depend on it, or the recordings
/// do.
const NEED_THE_MACHINE: [&CStr; 4] =
    [c"LOCKWRIGHT_TOPOLOGY", c"LOCKWRIGHT_EMULATE", c"LOCKWRIGHT_STATS", c"LOCKWRIGHT_TRACE"];

/// Reads LOCKWRIGHT_TOPOLOGY and everything else, if some variable needs it now. Otherwise the first thread that
/// looks does that. `make_up` may change the classes, and returns whether it did.
///
/// # Safety
/// Called once, by the constructor.
pub(crate) unsafe fn load(make_up: impl FnOnce(&mut Topology) -> bool) {
    if NEED_THE_MACHINE.iter().all(|name| variable(name).is_none()) {
        return;
    }
    IS_NEW.store(false, Relaxed); // a hint: keeps others from looking
    let (mut make_up, mut has_classes) = (Some(make_up), None);
    // A thread that another library started may be looking already.
    for _ in 0..1000 {
        alone(|_, _| {
            // SAFETY: LOOKING is ours.
            let classes = unsafe { &mut *CLASSES.0.get() };
            has_classes = make_up.take().map(|make_up| load_classes(classes, make_up));
        });
        if has_classes.is_some() {
            break;
        }
        futex::yield_cpu();
    }
    know(has_classes == Some(true));
}

/// `false`: the machine's own classes could not be read.
fn load_classes(classes: &mut Classes, make_up: impl FnOnce(&mut Topology) -> bool) -> bool {
    let wanted = variable(c"LOCKWRIGHT_TOPOLOGY").unwrap_or(b"");
    let learnt = learn_topology(&mut classes.topology, wanted);
    if learnt == Err(Unlearnt::BadClasses) {
        let hint: &[u8] =
            b"': the machine's own classes stay\nhint: lockwright doctor --topology --set SPEC\n";
        say(&[b"bad LOCKWRIGHT_TOPOLOGY '", wanted, hint]);
    } else if wanted.len() < classes.wanted.len() {
        classes.wanted[..wanted.len()].copy_from_slice(wanted);
    }
    classes.are_made_up = make_up(&mut classes.topology);
    classes.topology.publish();
    learnt != Err(Unlearnt::Unread)
}

/// Why the locks did not get the right classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unlearnt {
    /// The kernel's files can't be read now: the locks got nothing.
    Unread,
    /// The specification is bad: the locks got the machine's own classes.
    BadClasses,
}

/// Reads the CPUs' classes, and gives them to the locks.
fn learn_topology(topology: &mut Topology, specification: &[u8]) -> Result<(), Unlearnt> {
    if !topology.read(b"/sys") {
        return Err(Unlearnt::Unread);
    }
    let fine = specification.is_empty()
        || core::str::from_utf8(specification).is_ok_and(|spec| topology.set(spec).is_ok());
    topology.publish();
    if fine { Ok(()) } else { Err(Unlearnt::BadClasses) }
}

/// Reads the CPUs' classes again; `false`: they can't be read now, and nothing has changed for the locks.
///
/// # Safety
/// LOOKING is the caller's.
unsafe fn read_topology() -> bool {
    // SAFETY: the caller's promise.
    let Classes { topology, wanted, are_made_up } = unsafe { &mut *CLASSES.0.get() };
    if *are_made_up {
        return true; // not the machine's
    }
    let length = wanted.iter().position(|&byte| byte == 0).unwrap_or(wanted.len());
    learn_topology(topology, &wanted[..length]) != Err(Unlearnt::Unread)
}

/// A signal handler has torn away the thread that looked: the next thread that comes by `look_now_and_then` looks.
fn give_up_looking() {
    IS_NEW.store(true, Relaxed); // a hint
}

/// Runs `look`, if nobody else looks and the process has not confined itself.
fn alone(look: impl FnOnce(&mut Room, Access)) {
    // The topology's memory has one writer at a time.
    LOOKING.take(give_up_looking, || {
        access::asking(|access| {
            if access != Access::None {
                // SAFETY: LOOKING is ours.
                look(unsafe { &mut *ROOM.0.get() }, access);
            }
        });
    });
}

/// `prctl`, like glibc's own. Before a call that confines the process, we look for the last time, and wait until nobody asks the kernel for
/// anything any more.
///
/// # Safety
/// As the system call.
pub unsafe fn prctl(
    operation: c_int,
    second: c_ulong,
    third: c_ulong,
    fourth: c_ulong,
    fifth: c_ulong,
) -> c_int {
    if [libc::PR_SET_NO_NEW_PRIVS, libc::PR_SET_SECCOMP].contains(&operation) {
        learn();
        fork::era(); // who asked in the parent doesn't ask here
        access::confine();
    }
    // SAFETY: the caller's promise; the calling thread's own `errno`.
    unsafe {
        let result =
            system_call!(libc::SYS_prctl, operation, second, third, fourth, fifth) as c_int;
        if result < 0 {
            *libc::__errno_location() = -result;
            return -1;
        }
        result
    }
}

/// In the child of a fork: a thread that was looking does not exist here.
fn in_child() {
    LOOKING.end(); // the child has one thread
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockwright_native::cpus;

    #[test]
    fn a_narrower_affinity_is_noticed() {
        // SAFETY: plain data; the calls get the type's own size. All threads of this process are bound, so that
        // the process as a whole has one CPU; afterwards they get their CPUs back.
        unsafe {
            let mut all: libc::cpu_set_t = core::mem::zeroed();
            assert_eq!(libc::sched_getaffinity(0, size_of_val(&all), &mut all), 0);
            learn();
            look();
            assert_eq!(cpus(), cpus::usable());
            let bind = |set: &libc::cpu_set_t| {
                for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
                    let id: i32 = task.file_name().to_str().unwrap().parse().unwrap();
                    libc::sched_setaffinity(id, size_of_val(set), set);
                }
            };
            // Other tests start threads meanwhile. `bind` may miss them, and one of them may be looking.
            let sees = |set: &libc::cpu_set_t, wanted: &dyn Fn() -> u32| {
                (0..1000).any(|_| {
                    bind(set);
                    look();
                    cpus() == wanted()
                })
            };
            let mut one: libc::cpu_set_t = core::mem::zeroed();
            libc::CPU_SET(libc::sched_getcpu() as usize, &mut one);
            assert!(sees(&one, &|| 1), "{}", cpus());
            assert!(sees(&all, &cpus::usable), "{}", cpus());
            // If one thread binds itself, the program still has more than one CPU.
            if cpus() > 1 {
                std::thread::spawn(move || {
                    libc::sched_setaffinity(0, size_of_val(&one), &one);
                    look();
                    assert!(cpus() > 1);
                })
                .join()
                .unwrap();
            }
        }
    }

    #[test]
    fn what_cannot_be_read_stays_as_it_was() {
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        let mut status = 0;
        // SAFETY: the child of a program with threads makes only system calls; the limit is its own.
        unsafe {
            match libc::fork() {
                0 => {
                    in_child();
                    place::set(0, lockwright_platform::Class(3), 7);
                    CPUS.store(77, Relaxed);
                    ONLINE.store(1, Relaxed); // as if CPUs had come or gone
                    let refused = libc::setrlimit(libc::RLIMIT_NOFILE, &none) == 0;
                    look();
                    let kept = place::class_of(0).0 == 3 && cpus() == 77;
                    let looks_again = ONLINE.load(Relaxed) == 1 && !LOOKING.is_taken();
                    libc::_exit(if refused && kept && looks_again { 7 } else { 1 })
                }
                child => assert_eq!(libc::waitpid(child, &mut status, 0), child),
            }
        }
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7, "{status:#x}");
    }
}
