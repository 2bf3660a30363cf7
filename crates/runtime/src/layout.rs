//! Our reading of glibc's `pthread_mutex_t` and `pthread_cond_t`.
//!
//! What glibc's own code, gdb and its pretty-printers look at stays true to glibc's meaning; we live in
//! the bytes that private, non-robust objects leave unused. All-zero memory, which is what the static
//! initialisers and glibc's `init` functions leave, is an unlocked mutex and a condvar nobody waits for.

use core::cell::UnsafeCell;
use core::sync::atomic::AtomicU32;
use lockwright_locks::condvar::{self, Sleeper};
use lockwright_locks::front::{Parts, Waiter};
use lockwright_native::{Atomic32, AtomicAddress, Native};
use lockwright_platform::{Ordering, Ptr, Word};

/// `pthread_mutex_t`, `mtx_t`: 40 bytes on x86-64, 48 on aarch64 (the last 8 unused).
#[repr(C)]
pub struct Mutex {
    /// `__lock`: word 0, in glibc's protocol: 0 free, 1 held, 2 held and somebody needs a wake.
    pub(crate) word: Atomic32,
    /// `__count`: how often its holder holds a recursive mutex. The holder's.
    pub(crate) count: AtomicU32,
    /// `__owner`: the holder's kernel thread id, 0 while free. Written by the holder.
    pub(crate) owner: AtomicU32,
    /// `__nusers`: here, the condvar waiters that will come back for this mutex (`destroy`: EBUSY), and in
    /// the upper half the front locks' mood.
    pub(crate) users: Atomic32,
    /// `__kind`: type and flags. Written by `init`, and by `destroy` (-1).
    pub(crate) kind: AtomicU32,
    /// `__spins`, `__elision`: the front locks' side word.
    pub(crate) side: Atomic32,
    /// `__list.__prev`: the line's tail.
    pub(crate) tail: AtomicAddress<Waiter<Native>>,
    /// `__list.__next`: where a textbook lock stands in front of word 0; zeroes on every other mutex.
    pub(crate) room: Room,
}

/// Memory of a textbook lock; see whole.rs. Zeroes are an unlocked one.
#[repr(C, align(8))]
pub(crate) struct Room(pub(crate) UnsafeCell<[u8; 8]>);
// SAFETY: whole.rs alone looks inside, and what it puts there is shared as locks are.
unsafe impl Sync for Room {}

/// Bits of `__kind` that we understand: type (2 bits), elision wanted or not (ignored, as by glibc on
/// machines without it). Any other: robust, PI, PP, process-shared, destroyed. Those are glibc's.
pub(crate) const KINDS: u32 = 0x303;
/// In `__kind`, on a mutex that a textbook lock stands in front of: it sends each operation on this one mutex to the
/// slow functions, at no cost to the others, because the fast path looks at `__kind` anyway. To glibc's code it is
/// PTHREAD_MUTEX_NO_ELISION_NP, which changes nothing; a mutex of the type NORMAL has it from the start.
pub(crate) const MARKED: u32 = 0x200;
/// The condvar waiters in `users`.
pub(crate) const USERS: u32 = 0xffff;
/// The type's bits.
pub(crate) const TYPE: u32 = 3;
/// `PTHREAD_MUTEX_RECURSIVE`.
pub(crate) const RECURSIVE: u32 = libc::PTHREAD_MUTEX_RECURSIVE as u32;
/// `PTHREAD_MUTEX_ERRORCHECK`.
pub(crate) const ERRORCHECK: u32 = libc::PTHREAD_MUTEX_ERRORCHECK as u32;

const _: () = assert!(size_of::<Mutex>() <= size_of::<libc::pthread_mutex_t>());
const _: () = assert!(core::mem::offset_of!(Mutex, owner) == 8);
const _: () = assert!(core::mem::offset_of!(Mutex, kind) == 16);
const _: () = assert!(core::mem::offset_of!(Mutex, tail) == 24);

impl Default for Mutex {
    fn default() -> Self {
        Self::new()
    }
}

impl Mutex {
    /// An unlocked mutex of the plain kind: `PTHREAD_MUTEX_INITIALIZER`.
    pub const fn new() -> Self {
        Self {
            word: Atomic32::of(0),
            count: AtomicU32::new(0),
            owner: AtomicU32::new(0),
            users: Atomic32::of(0),
            kind: AtomicU32::new(0),
            side: Atomic32::of(0),
            tail: AtomicAddress::null(),
            room: Room(UnsafeCell::new([0; 8])),
        }
    }

    /// Does somebody hold it? As stale as any such answer.
    pub fn is_locked(&self) -> bool {
        self.word.load(Ordering::Relaxed) != 0 // a hint
    }

    pub(crate) fn parts(&self) -> Parts<'_, Native> {
        let Self { word, side, users: mood, tail, .. } = self;
        Parts { word, side, mood, tail }
    }
}

/// `pthread_cond_t`, `cnd_t`: 48 bytes.
#[repr(C)]
pub struct Cond {
    /// The list's lock, with the era of the list.
    lock: Atomic32,
    _unused: u32,
    first: AtomicAddress<Sleeper<Native>>,
    last: AtomicAddress<Sleeper<Native>>,
    record: Atomic32,
    /// Bytes 28 to 39: `__wrefs`, wherever this glibc keeps it, and zeroes.
    flags: [AtomicU32; 3],
    /// The mutex that the listed waiters came with. Valid only while somebody is listed.
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
            _unused: 0,
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

    /// As the thread with this id sees it, in a process of this era.
    pub(crate) fn list(&self, me: u32, era: u32) -> condvar::Cond<'_, Native> {
        let Self { lock, first, last, record, .. } = self;
        condvar::Cond { lock, first, last, record, me, era }
    }

    /// Has nobody waited since the last one was signalled? As stale as any such answer.
    pub(crate) fn is_idle(&self) -> bool {
        self.first.load(Ordering::Relaxed).is_null() // who joined before us in the program's own order is seen
    }
}
