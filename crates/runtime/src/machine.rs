//! What may change under a running program: the CPUs that it may use (`taskset`, cpusets, quotas), and those that are
//! online, with their classes.
//!
//! Looked at about once a second, by a thread that has to wait for a lock anyway. Reading takes some tens of
//! microseconds; nobody waits for the thread that does it.
//!
//! Whoever looks may have little stack left, and the process no descriptor: what is large is static, and what can't be read
//! stays as it was last seen.
//!
//! It stops for good when the process is about to confine itself: a seccomp filter may kill whoever opens a file.
//! Without privileges that takes `prctl` (no new privileges, or the filter itself), which the preloaded library has.

use crate::thread;
use core::cell::UnsafeCell;
use core::ffi::{c_int, c_long, c_ulong};
use core::sync::atomic::Ordering::{Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use lockwright_native::cpus::{Reach, Room};
use lockwright_native::{place, topology};

/// A thread looks at the clock once in so many contended acquisitions.
const WAITS_PER_LOOK: u32 = 64;

/// CPUs that the program may keep busy; 0: not read yet.
static CPUS: AtomicU32 = AtomicU32::new(0);
/// When somebody last looked, in seconds of the coarse monotonic clock.
static LOOKED: AtomicU32 = AtomicU32::new(0);
/// The list of CPUs that are online, as a hash of the kernel's text; 0: not read yet.
static ONLINE: AtomicU64 = AtomicU64::new(0);
/// Somebody looks.
static LOOKING: AtomicBool = AtomicBool::new(false);
/// Where whoever looks reads.
static ROOM: Shared = Shared(UnsafeCell::new(Room::new()));
/// The process confines itself: no files are opened any more.
static CONFINED: AtomicBool = AtomicBool::new(false);

struct Shared(UnsafeCell<Room>);
// SAFETY: who has set LOOKING has it alone.
unsafe impl Sync for Shared {}

/// Reads everything for the first time. `has_classes`: the CPUs' classes are known by now; if not, the first look reads
/// them.
///
/// Needs some 8 KB of stack.
pub(crate) fn learn(has_classes: bool) {
    use_reach(Reach::of_thread(&mut Room::new()));
    if has_classes && let Some(online) = topology::online_hash() {
        ONLINE.store(online, Relaxed); // by itself
    }
}

fn use_reach(reach: Reach) {
    CPUS.store(reach.cpus, Relaxed); // a hint, here and below: any value is legal
    place::set_fastest(reach.fastest);
}

/// CPUs that the program may keep busy, as last seen.
pub(crate) fn cpus() -> u32 {
    match CPUS.load(Relaxed) {
        0 => 2, // before our constructor: as early policies
        cpus => cpus,
    }
}

/// Called before each contended acquisition: looks again if it is time to.
#[inline]
pub(crate) fn look_now_and_then() {
    // SAFETY: the calling thread's own memory.
    let waits = unsafe { &(*thread::this()).waits };
    let count = waits.load(Relaxed).wrapping_add(1); // own thread only
    waits.store(count, Relaxed);
    if count.is_multiple_of(WAITS_PER_LOOK) {
        look_if_due();
    }
}

#[cold]
fn look_if_due() {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a writable timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &mut now) };
    let (now, last) = (now.tv_sec as u32, LOOKED.load(Relaxed));
    // Relaxed: it elects one thread a second; what that one reads and writes are hints.
    if now != last
        && !is_confined()
        && CPUS.load(Relaxed) != 0
        && LOOKED.compare_exchange(last, now, Relaxed, Relaxed).is_ok()
    {
        // SAFETY: no preconditions.
        let errno = unsafe { libc::__errno_location() };
        // SAFETY: the calling thread's own word, here and below: waiting for a lock leaves it alone.
        let kept = unsafe { *errno };
        look();
        // SAFETY: as above.
        unsafe { *errno = kept };
    }
}

/// Looks now.
pub(crate) fn look() {
    // ORDERING: SeqCst, pairs with [confine]. Acquire, pairs with the Release below: the topology's memory has one
    // writer at a time.
    if LOOKING.swap(true, SeqCst) {
        return;
    }
    // ORDERING: SeqCst, pairs with [confine]: it sees us looking, or we see it.
    if CONFINED.load(SeqCst) {
        LOOKING.store(false, Release); // ORDERING: as below
        return;
    }
    if let Some(online) = topology::online_hash()
        && ONLINE.load(Relaxed) != online
        // SAFETY: LOOKING is ours.
        && unsafe { crate::config::read_topology() }
    {
        ONLINE.store(online, Relaxed); // who looks next has LOOKING after us
    }
    // SAFETY: LOOKING is ours.
    if let Some(reach) = Reach::of_process(unsafe { &mut *ROOM.0.get() }) {
        use_reach(reach);
    }
    // ORDERING: Release, pairs with the Acquire above.
    LOOKING.store(false, Release);
}

/// Is the process confined, as far as we know?
pub(crate) fn is_confined() -> bool {
    CONFINED.load(Relaxed) // by itself
}

/// `prctl`, as glibc's own. What confines the process makes us stop looking, first.
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
        // [confine] ORDERING: SeqCst, pairs with `look`.
        CONFINED.store(true, SeqCst);
        for _ in 0..1000 {
            // ORDERING: SeqCst, as above: who looks now has ended when we go on, unless we have interrupted it.
            if !LOOKING.load(SeqCst) {
                break;
            }
            // SAFETY: no preconditions.
            unsafe { libc::sched_yield() };
        }
    }
    let number = libc::SYS_prctl;
    // SAFETY: the caller's promise.
    unsafe { libc::syscall(number, c_long::from(operation), second, third, fourth, fifth) as c_int }
}

/// In the child of a fork: whoever looked is not here.
pub(crate) fn in_child() {
    LOOKING.store(false, Relaxed); // the child has one thread
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
            learn(true);
            assert_eq!(cpus(), cpus::usable());
            let bind = |set: &libc::cpu_set_t| {
                for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
                    let id: i32 = task.file_name().to_str().unwrap().parse().unwrap();
                    libc::sched_setaffinity(id, size_of_val(set), set);
                }
            };
            // Other tests start threads meanwhile, which `bind` may miss; and one of them may be looking.
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
            // A thread that binds itself is no reason to think that the program has one CPU.
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
        // SAFETY: the child of a program with threads makes system calls alone; the limit is its own.
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
                    let looks_again = ONLINE.load(Relaxed) == 1 && !LOOKING.load(Relaxed);
                    libc::_exit(if refused && kept && looks_again { 7 } else { 1 })
                }
                child => assert_eq!(libc::waitpid(child, &mut status, 0), child),
            }
        }
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7, "{status:#x}");
    }
}
