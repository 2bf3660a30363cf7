//! Futexes, private to the process, and the clocks that bound a wait.
//!
//! A program or a library may define `syscall`, `sched_yield` or `clock_gettime`, and take a lock there, so a wait must not call
//! theirs. System calls are made directly, which leaves `errno` alone, too; [`read_clocks_by`] names the kernel's own clock.

use crate::kernel;
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::Relaxed;
use lockwright_platform::Woken;

/// A clock by which a deadline can be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// `CLOCK_REALTIME`, which jumps when somebody sets it.
    Realtime,
    /// `CLOCK_MONOTONIC`.
    Monotonic,
}

impl Clock {
    /// The clock with POSIX number `id`, if a futex can wait by it.
    pub fn from_id(id: libc::clockid_t) -> Option<Self> {
        match id {
            libc::CLOCK_REALTIME => Some(Self::Realtime),
            libc::CLOCK_MONOTONIC => Some(Self::Monotonic),
            _ => None,
        }
    }

    fn id(self) -> libc::clockid_t {
        match self {
            Self::Realtime => libc::CLOCK_REALTIME,
            Self::Monotonic => libc::CLOCK_MONOTONIC,
        }
    }
}

/// An absolute point in time, by one of the two clocks.
#[derive(Clone, Copy)]
pub struct Deadline {
    /// The clock.
    pub clock: Clock,
    /// Seconds and nanoseconds since the clock's zero. May lie in the past. Nanoseconds are in 0..1e9.
    pub at: libc::timespec,
}

impl Deadline {
    /// `ns` nanoseconds from now, by the monotonic clock.
    pub fn after(ns: u64) -> Self {
        let at = now(Clock::Monotonic) + ns;
        let at = libc::timespec {
            tv_sec: (at / 1_000_000_000) as libc::time_t,
            tv_nsec: (at % 1_000_000_000) as libc::c_long,
        };
        Self { clock: Clock::Monotonic, at }
    }

    /// Nanoseconds until then; less than 0: it has passed.
    pub fn left(&self) -> i128 {
        let at = i128::from(self.at.tv_sec) * 1_000_000_000 + i128::from(self.at.tv_nsec);
        at - i128::from(now(self.clock))
    }
}

type ClockGettime = unsafe extern "C" fn(libc::clockid_t, *mut libc::timespec) -> libc::c_int;

/// The function that reads clocks; null: the one that the dynamic linker binds.
#[unsafe(link_section = ".lockwright.start")]
static CLOCKS: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// From now on clocks are read by this `clock_gettime`; null: by the one that the dynamic linker binds.
///
/// # Safety
/// It is null, or the address of a function that does what `clock_gettime` does, and it stays where it is.
#[inline]
pub unsafe fn read_clocks_by(function: *mut ()) {
    CLOCKS.store(function, Relaxed); // it points to code, which exists already
}

/// Reads the clock with POSIX number `id`, which every Linux must have.
pub fn read(id: libc::clockid_t) -> libc::timespec {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let own = CLOCKS.load(Relaxed); // as above
    // SAFETY: `now` is writable; `read_clocks_by` got a function of this type.
    unsafe {
        if own.is_null() {
            libc::clock_gettime(id, &mut now);
        } else {
            core::mem::transmute::<*mut (), ClockGettime>(own)(id, &mut now);
        }
    }
    now
}

/// The same in nanoseconds.
#[inline(never)] // a frame for each place where it is inlined would lie on the stack of a thread that waits
pub fn read_ns(id: libc::clockid_t) -> u64 {
    let now = read(id);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Nanoseconds since the clock's zero.
#[inline(always)]
pub fn now(clock: Clock) -> u64 {
    read_ns(clock.id())
}

/// A futex operation; its result, or the negated error number.
fn futex(
    word: *const u32,
    operation: libc::c_int,
    value: u32,
    fourth: usize,
    other: *const u32,
    last: u32,
) -> libc::c_long {
    let operation = operation as usize;
    let arguments = [
        word.expose_provenance(),
        operation,
        value as usize,
        fourth,
        other.expose_provenance(),
        last as usize,
    ];
    // SAFETY: the kernel checks the addresses, and reports EFAULT instead of faulting.
    unsafe { kernel::call(libc::SYS_futex, arguments) }
}

/// Yields the CPU to another thread of the same priority, if one waits for it. (A SCHED_DEADLINE thread loses the CPU until its
/// next period.)
pub fn yield_cpu() {
    // SAFETY: no preconditions.
    unsafe { kernel::call(libc::SYS_sched_yield, [0; 6]) };
}

/// The kinds of sleepers that a wake can be for: one bit each, of the kernel's 32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleeper {
    /// It sleeps on the word of its choice.
    Own = 1,
    /// Another thread may move it to another word.
    Movable = 2,
    /// Any wake may be for it, and the kernel decides by priority.
    Any = 3,
}

/// A function that each thread calls before it sleeps; null: none.
static BEFORE_SLEEP: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// From now on each thread calls this before it sleeps.
pub fn before_sleep(tell: fn()) {
    BEFORE_SLEEP.store(tell as *mut (), Relaxed); // it points to code, which exists already
}

/// Sleeps while `*word == seen`; see `Platform::park` and `Requeue::park_movable`.
pub fn wait(word: *const u32, seen: u32, deadline: Option<Deadline>, who: Sleeper) -> Woken {
    let tell = BEFORE_SLEEP.load(Relaxed); // as above
    if !tell.is_null() {
        // SAFETY: `before_sleep` got it as a function of this type.
        unsafe { core::mem::transmute::<*mut (), fn()>(tell)() };
    }
    let mut operation = libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG;
    let mut at: *const libc::timespec = core::ptr::null();
    if let Some(deadline) = &deadline {
        if deadline.at.tv_sec < 0 {
            return Woken::TimedOut; // the kernel would say EINVAL
        }
        if deadline.clock == Clock::Realtime {
            operation |= libc::FUTEX_CLOCK_REALTIME;
        }
        at = &raw const deadline.at;
    }
    let null = core::ptr::null();
    let result = futex(word, operation, seen, at.expose_provenance(), null, who as u32);
    if result == -libc::c_long::from(libc::ETIMEDOUT) { Woken::TimedOut } else { Woken::Maybe }
}

/// Wakes at most `count` sleepers; returns how many.
pub fn wake(word: *const u32, count: u32) -> u32 {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    let count = count.min(i32::MAX as u32);
    let woken = futex(word, operation, count, 0, core::ptr::null(), 0);
    u32::try_from(woken).unwrap_or(0)
}

/// Wakes at most `count` movable sleepers; returns how many. (glibc's own sleepers count as every kind.)
pub fn wake_movable(word: *const u32, count: u32) -> u32 {
    let operation = libc::FUTEX_WAKE_BITSET | libc::FUTEX_PRIVATE_FLAG;
    let count = count.min(i32::MAX as u32);
    let woken = futex(word, operation, count, 0, core::ptr::null(), Sleeper::Movable as u32);
    u32::try_from(woken).unwrap_or(0)
}

/// Moves at most `count` sleepers from `from` to `to`, if `from` holds `seen`; wakes none. Returns how many it moved.
pub fn requeue(from: *const u32, seen: u32, to: *const u32, count: u32) -> u32 {
    let operation = libc::FUTEX_CMP_REQUEUE | libc::FUTEX_PRIVATE_FLAG;
    let moved = futex(from, operation, 0, count as usize, to, seen);
    u32::try_from(moved).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::AtomicU32;

    #[test]
    fn a_wait_ends_at_its_deadline() {
        let word = 7;
        let start = now(Clock::Monotonic);
        assert_eq!(wait(&word, 7, Some(Deadline::after(2_000_000)), Sleeper::Own), Woken::TimedOut);
        assert!(now(Clock::Monotonic) - start >= 2_000_000);
    }

    #[test]
    fn a_wait_on_a_changed_word_returns_at_once() {
        assert_eq!(wait(&8, 7, None, Sleeper::Own), Woken::Maybe);
    }

    #[test]
    fn a_deadline_before_the_epoch_has_passed() {
        let at = libc::timespec { tv_sec: -1, tv_nsec: 0 };
        assert_eq!(
            wait(&7, 7, Some(Deadline { clock: Clock::Realtime, at }), Sleeper::Own),
            Woken::TimedOut
        );
    }

    #[test]
    fn waking_nobody_wakes_nobody_and_keeps_errno() {
        // SAFETY: errno's address is valid in every thread.
        unsafe { *libc::__errno_location() = 4711 };
        assert_eq!(wake(core::ptr::null(), 1), 0);
        // SAFETY: as above.
        assert_eq!(unsafe { *libc::__errno_location() }, 4711);
    }

    /// Tries until `what` succeeds, for some seconds; `false`: in vain.
    fn some_time(what: impl Fn() -> bool) -> bool {
        let start = std::time::Instant::now();
        while !what() {
            if start.elapsed().as_secs() >= 10 {
                return false;
            }
            std::thread::yield_now();
        }
        true
    }

    /// `false`: the movable sleeper was not where it had been moved to. If the process is frozen meanwhile (on a suspended
    /// machine), the kernel restarts its wait at the first address. (Locks change the word before they move anybody.)
    fn the_movable_is_woken_alone() -> bool {
        let words = std::sync::Arc::new([AtomicU32::new(7), AtomicU32::new(7)]);
        let sleep = |at: usize, who| {
            let words = words.clone();
            std::thread::spawn(move || {
                wait(words[at].as_ptr(), 7, Some(Deadline::after(60_000_000_000)), who)
            })
        };
        let (first, second) = (words[0].as_ptr(), words[1].as_ptr());
        let own = sleep(0, Sleeper::Own);
        let movable = sleep(1, Sleeper::Movable);
        // Once moved, it sleeps at the first word. The other thread may not have got there yet.
        let moved = some_time(|| requeue(second, 7, first, 1) != 0);
        if !moved || !some_time(|| wake_movable(first, 5) != 0) {
            return false;
        }
        assert_eq!(movable.join().unwrap(), Woken::Maybe);
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert_eq!(wake_movable(first, 5), 0, "the other one is not meant");
        assert!(some_time(|| wake(first, 5) != 0), "the other one sleeps, and is not woken");
        assert_eq!(own.join().unwrap(), Woken::Maybe);
        true
    }

    #[test]
    fn a_wake_for_the_movable_passes_the_others() {
        assert!((0..5).any(|_| the_movable_is_woken_alone()));
    }
}
