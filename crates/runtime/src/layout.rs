//! Our view of glibc's `pthread_mutex_t`, `pthread_cond_t` and `sem_t`.
//!
//! The fields that glibc's own code, gdb and its pretty-printers look at keep glibc's meaning. We use
//! the bytes that private, non-robust objects leave unused. All-zero memory, as the static initialisers and
//! glibc's `init` functions leave it, is an unlocked mutex, and a condvar that nobody waits for.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, AtomicU64};
use lockwright_locks::condvar::{self, Sleeper};
use lockwright_locks::front::{Waiter, Word0};
use lockwright_locks::posix::{self, Static};
use lockwright_native::{Atomic32, AtomicAddress, Native};
use lockwright_platform::{Ordering, Ptr};

/// What the mutexes of this process depend on: see environment.rs.
#[derive(Debug)]
pub enum Here {}

impl Static for Here {
    const UNLOCKED: Mutex = posix::Mutex {
        word: Word0::of(Atomic32::of(0)),
        count: Atomic32::of(0),
        owner: Atomic32::of(0),
        users: Atomic32::of(0),
        kind: Atomic32::of(0),
        counts: Atomic32::of(0),
        tail: AtomicAddress::null(),
        room: Room(UnsafeCell::new([0; 8])),
    };
}

/// `pthread_mutex_t`, `mtx_t`: 40 bytes on x86-64, 48 on aarch64 (the last 8 unused).
pub type Mutex = posix::Mutex<Here>;

/// Memory of a textbook lock; see whole.rs. Zeroes are an unlocked one.
#[derive(Debug)]
#[repr(C, align(8))]
pub struct Room(pub(crate) UnsafeCell<[u8; 8]>);
// SAFETY: only whole.rs looks inside, and what it puts there may be shared, as locks are.
unsafe impl Sync for Room {}

// A waiter's node is one line.
const _: () = assert!(size_of::<Waiter<Native>>() == 64);
const _: () = assert!(posix::RECURSIVE == libc::PTHREAD_MUTEX_RECURSIVE as u32);
const _: () = assert!(posix::ERRORCHECK == libc::PTHREAD_MUTEX_ERRORCHECK as u32);
const _: () = assert!(size_of::<Mutex>() <= size_of::<libc::pthread_mutex_t>());
const _: () = assert!(core::mem::offset_of!(Mutex, owner) == 8);
const _: () = assert!(core::mem::offset_of!(Mutex, kind) == 16);
const _: () = assert!(core::mem::offset_of!(Mutex, tail) == 24);

/// `pthread_cond_t`, `cnd_t`: 48 bytes.
#[repr(C)]
pub struct Cond {
    /// The list's lock, with the era of the list.
    lock: Atomic32,
    list_era: Atomic32,
    first: AtomicAddress<Sleeper<Native>>,
    last: AtomicAddress<Sleeper<Native>>,
    record: Atomic32,
    /// Bytes 28 to 39: `__wrefs`, wherever this glibc keeps it, and zeroes.
    flags: [AtomicU32; 3],
    /// The mutex of the waiters in the list. Valid only while somebody is in it.
    pub(crate) mutex: AtomicAddress<Mutex>,
}

const _: () = assert!(size_of::<Cond>() == size_of::<libc::pthread_cond_t>());

impl Default for Cond {
    fn default() -> Self {
        Self::new()
    }
}

impl Cond {
    /// A condvar that nobody waits for: `PTHREAD_COND_INITIALIZER`.
    pub const fn new() -> Self {
        Self {
            lock: Atomic32::of(0),
            list_era: Atomic32::of(0),
            first: AtomicAddress::null(),
            last: AtomicAddress::null(),
            record: Atomic32::of(0),
            flags: [const { AtomicU32::new(0) }; 3],
            mutex: AtomicAddress::null(),
        }
    }

    /// `__wrefs`, where this glibc keeps process-shared (bit 0) and clock (bit 1): byte 36, or
    /// 28 in newer ones.
    pub(crate) fn flags(&self) -> u32 {
        use core::sync::atomic::Ordering::Relaxed; // written by `init` only
        self.flags[0].load(Relaxed) | self.flags[2].load(Relaxed)
    }

    /// The list, for the thread with this id in a process of this era.
    pub(crate) fn list(&self, me: u32, era: u32) -> condvar::Cond<'_, Native> {
        let Self { lock, list_era, first, last, record, .. } = self;
        condvar::Cond { lock, list_era, first, last, record, me, era }
    }

    /// Is the list empty? As stale as any such answer.
    pub(crate) fn is_idle(&self) -> bool {
        self.first.load(Ordering::Relaxed).is_null() // sees every waiter that joined before us in the program's own order
    }
}

/// `sem_t`: 32 bytes, of which glibc uses half. We only read it.
#[derive(Debug)]
#[repr(C)]
pub struct Semaphore {
    /// The value, and in the upper half the number of waiting threads. (Since glibc 2.21, on 64-bit machines.)
    data: AtomicU64,
    _private: AtomicU32,
    _pad: AtomicU32,
    _unused: [AtomicU64; 2],
}

const _: () = assert!(size_of::<Semaphore>() == size_of::<libc::sem_t>());
const _: () = assert!(align_of::<Semaphore>() == align_of::<libc::sem_t>());

impl Semaphore {
    /// How many threads could take it now. As stale as any such answer, like the one below.
    pub(crate) fn value(&self) -> u32 {
        self.data.load(Ordering::Relaxed) as u32 // a hint
    }

    /// How many threads wait for it.
    pub(crate) fn waiters(&self) -> u32 {
        (self.data.load(Ordering::Relaxed) >> 32) as u32 // a hint
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::boxed::Box;

    #[test]
    fn a_semaphore_says_what_glibc_wrote() {
        // SAFETY: zeroes are one.
        let s: &'static Semaphore = Box::leak(Box::new(unsafe { core::mem::zeroed() }));
        let theirs = || core::ptr::from_ref(s).cast_mut().cast::<libc::sem_t>();
        // SAFETY: a `sem_t` of our own.
        assert_eq!(unsafe { libc::sem_init(theirs(), 0, 2) }, 0);
        assert_eq!((s.value(), s.waiters()), (2, 0));
        let wait = move || {
            for _ in 0..3 {
                // SAFETY: as above, initialised, here and below.
                assert_eq!(unsafe { libc::sem_wait(theirs()) }, 0);
            }
        };
        let waiting = std::thread::spawn(wait);
        while s.waiters() == 0 {
            std::thread::yield_now();
        }
        assert_eq!((s.value(), s.waiters()), (0, 1));
        // SAFETY: as above.
        assert_eq!(unsafe { libc::sem_post(theirs()) }, 0);
        waiting.join().unwrap();
        assert_eq!((s.value(), s.waiters()), (0, 0));
    }
}
