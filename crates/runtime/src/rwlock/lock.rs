//! The lock of a `pthread_rwlock_t`: its memory, its operations, and what observers learn of those that don't succeed at once.
//!
//! ```text
//!   read   write   try_read   try_write   release     fast paths, without a frame
//!     │      │         └───┬──────┘          │        tail calls, so that observers learn where the program called us
//!     ▼      ▼             ▼                 ▼
//!   read_waits, write_waits   tried_in_vain  wake     somebody waits, or is refused, or lets waiters in
//! ```

use crate::caller::{Call, with_caller, with_frame};
use crate::leave::{self, Wait};
use crate::observe::{self, rwlocks};
use crate::probes::fire;
use crate::{config, environment, preference, programs, thread};
use core::cell::Cell;
use core::ffi::c_int;
use core::mem::{offset_of, size_of};
use core::ptr::null;
use libc::{clockid_t, timespec};
use lockwright_contract::counters::{Behind, RwWait};
use lockwright_locks::rw::Prefer;
use lockwright_locks::rw::biased::Biased;
use lockwright_locks::rw::rwlock::{Counted, Outcome, Parts, Waiter};
use lockwright_native::{Atomic32, Clock, Deadline, Native};
use lockwright_platform::{Ordering::Relaxed, Word};

/// `pthread_rwlock_t`, as glibc lays it out on 64-bit machines since 2.30.
#[repr(C)]
pub struct RwLock {
    /// glibc's `__readers`, with its meaning of the low bits.
    state: Atomic32,
    writers: Atomic32,
    /// Who may use the table. glibc's `__wrphase_futex`, which `pthread_rwlock_init` makes 0.
    bias: Atomic32,
    _futex: u32,
    _pad: [u32; 2],
    /// glibc's `__cur_writer`, which debuggers read.
    owner: Atomic32,
    pub(super) shared: c_int,
    _elision: u64,
    /// 1: the watcher of lock orders knows this lock. `pthread_rwlock_init` makes it 0.
    pub(super) is_known: Atomic32,
    /// What the program asked for, and which rule applies instead (`preference`). `pthread_rwlock_init` makes it 0.
    rule: Atomic32,
    prefer: Atomic32,
    _end: u32,
}

/// `PTHREAD_RWLOCK_PREFER_WRITER_NP`.
const PREFER_WRITERS: u32 = 1;

const _: () = assert!(size_of::<RwLock>() == 56);
const _: () = assert!(offset_of!(RwLock, owner) == 24);
const _: () = assert!(offset_of!(RwLock, shared) == 28);
const _: () = assert!(offset_of!(RwLock, prefer) == 48);

impl Default for RwLock {
    fn default() -> Self {
        Self::new()
    }
}

impl RwLock {
    /// An unlocked lock that prefers writers: a writer that leaves lets another writer in first, but readers join readers.
    pub const fn new() -> Self {
        Self {
            state: Atomic32::of(0),
            writers: Atomic32::of(0),
            bias: Atomic32::of(0),
            _futex: 0,
            _pad: [0; 2],
            owner: Atomic32::of(0),
            shared: 0,
            _elision: 0,
            is_known: Atomic32::of(0),
            rule: Atomic32::of(0),
            prefer: Atomic32::of(PREFER_WRITERS),
            _end: 0,
        }
    }

    /// Does glibc serve this lock?
    #[inline(always)]
    pub(super) fn is_glibcs(&self) -> bool {
        self.shared != 0 || config::is_glibc_only()
    }

    /// Acquires for reading, or gives up when `clock` reads `until`, a valid time or null.
    ///
    /// # Safety
    /// `until` is null or readable.
    #[inline(always)]
    pub(crate) unsafe fn read(&self, clock: clockid_t, until: *const timespec) -> c_int {
        let lock = core::ptr::from_ref(self).cast_mut();
        match self.begin_read() {
            Ok(()) => 0,
            // SAFETY: the caller's promise.
            Err(begun) => unsafe { read_waits(lock, begun, clock, until) },
        }
    }

    /// Acquires for writing, likewise.
    ///
    /// # Safety
    /// As [`read`](Self::read).
    #[inline(always)]
    pub(crate) unsafe fn write(&self, clock: clockid_t, until: *const timespec) -> c_int {
        let lock = core::ptr::from_ref(self).cast_mut();
        match self.biased().begin_write(thread::id()) {
            Ok(()) => 0,
            // SAFETY: the caller's promise.
            Err(seen) => unsafe { write_waits(lock, seen as usize, clock, until) },
        }
    }

    /// Acquires for reading, for this call, or gives up at the deadline.
    #[inline(always)]
    pub(super) fn read_until(&self, deadline: Option<Deadline>, call: Call) -> c_int {
        match self.begin_read() {
            Ok(()) => 0,
            Err(begun) => self.wait_to_read(begun, deadline, call),
        }
    }

    /// Acquires for writing, likewise.
    #[inline(always)]
    pub(super) fn write_until(&self, deadline: Option<Deadline>, call: Call) -> c_int {
        match self.biased().begin_write(thread::id()) {
            Ok(()) => 0,
            Err(seen) => self.wait_to_write(seen, deadline, call),
        }
    }

    /// The first half of an acquisition for reading. `Err`: it must be finished by [`wait_to_read`](Self::wait_to_read), with this: the state
    /// that it found, and in the upper half who went first then. Only that says whether the thread is registered.
    #[inline(always)]
    fn begin_read(&self) -> Result<(), usize> {
        let biased = self.biased();
        biased.begin_read().map_err(|seen| seen as usize | (biased.parts.prefer as usize) << 32)
    }

    #[cold]
    fn wait_to_read(&self, begun: usize, deadline: Option<Deadline>, call: Call) -> c_int {
        let (seen, mut biased) = (begun as u32, self.biased());
        biased.parts.prefer = (begun >> 32) as u32;
        Waiting::new(self, false, seen, call)
            .run(|waiter| biased.finish_read(seen, |counted| waiter(counted, deadline)))
    }

    #[cold]
    fn wait_to_write(&self, seen: u32, deadline: Option<Deadline>, call: Call) -> c_int {
        let me = thread::id();
        Waiting::new(self, true, seen, call).run(|waiter| {
            let waiter = |counted| {
                let waiter = waiter(counted, deadline);
                Waiter { deadline: deadline.or_else(|| self.look_again()), ..waiter }
            };
            let mut outcome = self.biased().finish_write(me, seen, waiter);
            while outcome == Outcome::TimedOut && deadline.is_none() {
                outcome = self.biased().write(me, waiter);
            }
            outcome
        })
    }

    /// When a writer without a deadline looks again whether a command says who goes first: readers that overlap may keep it asleep for
    /// ever, and never wait themselves. With other preferences new readers wait for it, so it stays.
    #[cold]
    fn look_again(&self) -> Option<Deadline> {
        let overlaps = matches!(Prefer::of(self.parts().prefer), Prefer::Readers | Prefer::Writers);
        overlaps.then(|| Deadline::after(1_000_000_000))
    }

    /// Acquires for reading, and passes the probe of those who have.
    #[inline(always)]
    pub(super) fn read_probed(&self) -> c_int {
        let lock = core::ptr::from_ref(self).cast_mut();
        match self.begin_read() {
            Ok(()) => {
                fire!(rdlock_acquire_read, lock);
                0
            }
            // SAFETY: it exists, and there is no deadline.
            Err(begun) => unsafe { read_waits(lock, begun, PROBED, null()) },
        }
    }

    /// Acquires for writing, likewise.
    #[inline(always)]
    pub(super) fn write_probed(&self) -> c_int {
        let lock = core::ptr::from_ref(self).cast_mut();
        match self.biased().begin_write(thread::id()) {
            Ok(()) => {
                fire!(wrlock_acquire_write, lock);
                0
            }
            // SAFETY: as in `read_probed`.
            Err(seen) => unsafe { write_waits(lock, seen as usize, PROBED, null()) },
        }
    }

    /// Acquires for reading if that needs no waiting.
    #[inline(always)]
    pub(crate) fn try_read(&self) -> c_int {
        self.tried(self.biased().try_read())
    }

    /// Acquires for writing if that needs no waiting.
    #[inline(always)]
    pub(crate) fn try_write(&self) -> c_int {
        self.tried(self.biased().try_write(thread::id()))
    }

    #[inline(always)]
    fn tried(&self, outcome: Outcome) -> c_int {
        if outcome == Outcome::Busy && observe::is_on() {
            // SAFETY: it exists.
            return unsafe { tried_in_vain(core::ptr::from_ref(self).cast_mut()) };
        }
        errno(outcome)
    }

    #[inline(always)]
    fn biased(&self) -> Biased<'_, Native> {
        let (policy, row) = (programs::for_readers(), thread::row());
        Biased { parts: self.parts(), bias: &self.bias, policy, row }
    }

    #[inline(always)]
    fn parts(&self) -> Parts<'_, Native> {
        let prefer = self.prefer.load(Relaxed); // threads may differ
        Parts { state: &self.state, writers: &self.writers, owner: &self.owner, prefer }
    }

    /// Is the calling thread's row of the table in use for this lock?
    #[cfg(test)]
    pub(crate) fn is_read_by_table(&self) -> bool {
        self.biased().has_shown()
    }

    /// Releases. Others may free the lock once it is released. After that nobody looks at it, and a reference to atomics need not
    /// outlive its last use.
    #[inline(always)]
    pub(crate) fn release(&self) -> c_int {
        if self.biased().begin_unlock(thread::id()) {
            return 0;
        }
        // SAFETY: the caller still holds it, so it exists.
        unsafe { wake(core::ptr::from_ref(self).cast_mut()) }
    }
}

// What follows a fast path comes by a tail call: so observers learn where the program called us, and the fast path has no frame. A waiting
// reader may have registered by then.

with_frame! {
    /// Waits for reading. `begun` is what the fast path found ([`RwLock::begin_read`]).
    ///
    /// # Safety
    /// The lock exists, and `until` is null or readable.
    #[cold]
    "C" read_waits(lock: *mut RwLock, begun: usize, clock: clockid_t, until: *const timespec)
        = read_waits_from;
    /// Waits for writing. `seen` is the state that the fast path found.
    ///
    /// # Safety
    /// As [`read_waits`].
    #[cold]
    "C" write_waits(lock: *mut RwLock, seen: usize, clock: clockid_t, until: *const timespec)
        = write_waits_from;
}

with_caller! {
    /// Releases a lock that somebody waits for.
    wake(*mut RwLock) = wake_from;
    /// The lock was busy: EBUSY.
    tried_in_vain(*mut RwLock) = tried_from;
}

/// In place of a clock, without a deadline: who waits has passed a probe, and passes another when it has acquired.
const PROBED: clockid_t = -1;

unsafe extern "C" fn read_waits_from(
    lock: *mut RwLock,
    begun: usize,
    clock: clockid_t,
    until: *const timespec,
    frame: usize,
    stack: usize,
) -> c_int {
    // SAFETY: the caller's promise; and the naked function's.
    let (this, call) = unsafe { (&*lock, Call::of_naked(frame, stack)) };
    // SAFETY: the caller's promise.
    let deadline = unsafe { until.as_ref() }.and_then(|_| unsafe { deadline(clock, until) });
    let answer = this.wait_to_read(begun, deadline, call);
    if answer == 0 && clock == PROBED {
        fire!(rdlock_acquire_read, lock);
    }
    answer
}

unsafe extern "C" fn write_waits_from(
    lock: *mut RwLock,
    seen: usize,
    clock: clockid_t,
    until: *const timespec,
    frame: usize,
    stack: usize,
) -> c_int {
    // SAFETY: the caller's promise; and the naked function's.
    let (this, call) = unsafe { (&*lock, Call::of_naked(frame, stack)) };
    // SAFETY: the caller's promise.
    let deadline = unsafe { until.as_ref() }.and_then(|_| unsafe { deadline(clock, until) });
    let answer = this.wait_to_write(seen as u32, deadline, call);
    if answer == 0 && clock == PROBED {
        fire!(wrlock_acquire_write, lock);
    }
    answer
}

unsafe extern "C" fn wake_from(
    lock: *mut RwLock,
    _: usize,
    from: usize,
    frame: usize,
    stack: usize,
) -> c_int {
    let release = if observe::is_on() { rwlocks::releases(lock.addr()) } else { None };
    // SAFETY: the caller still holds it. After that nobody looks at it, as in `release`.
    unsafe { (*lock).parts().finish_unlock() };
    if let Some(release) = release {
        rwlocks::released(lock.addr(), release, Call { from, frame, stack });
    }
    0
}

unsafe extern "C" fn tried_from(
    lock: *mut RwLock,
    _: usize,
    from: usize,
    frame: usize,
    stack: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    let asks = || unsafe { (*lock).parts().divert() };
    observe::tries::rwlock(lock.addr(), asks, Call { from, frame, stack });
    libc::EBUSY
}

/// One wait, as its thread sees it.
struct Waiting<'a> {
    lock: &'a RwLock,
    counted: Cell<Counted>,
    writes: bool,
    /// The lock's state when the thread asked for it.
    seen: u32,
    call: Call,
    /// An observer counts the wait.
    is_observed: Cell<bool>,
}

impl Wait for Waiting<'_> {
    fn leave(&self) {
        self.lock.parts().leave(self.counted.get());
        if self.is_observed.get() {
            rwlocks::left(core::ptr::from_ref(self.lock).addr());
        }
    }
}

impl<'a> Waiting<'a> {
    fn new(lock: &'a RwLock, writes: bool, seen: u32, call: Call) -> Self {
        let (counted, is_observed) = (Cell::new(Counted::Nowhere), Cell::new(false));
        Self { lock, counted, writes, seen, call, is_observed }
    }

    /// Runs `wait`, which makes a waiter once it has to wait.
    #[inline(always)]
    fn run<'s>(
        &'s self,
        wait: impl FnOnce(&dyn Fn(Counted, Option<Deadline>) -> Waiter<'s, Native>) -> Outcome,
    ) -> c_int {
        let answer = leave::guarded_late(self, |guard| {
            errno(wait(&|counted, deadline| {
                self.counted.set(counted);
                guard();
                self.waiter(deadline)
            }))
        });
        if self.is_observed.get() {
            // Without a state, readers are in by the table.
            let is_written = Parts::<Native>::is_written(self.seen);
            let behind = if is_written { Behind::Writer } else { Behind::Readers };
            // By a rule that has come into force meanwhile, too.
            let prefer = self.lock.prefer.load(Relaxed);
            let rw = RwWait { writes: self.writes, behind, prefer };
            let others = self.lock.parts().has_waiters();
            rwlocks::has_waited(core::ptr::from_ref(self.lock).addr(), answer == 0, rw, others);
        }
        answer
    }

    fn waiter(&self, deadline: Option<Deadline>) -> Waiter<'_, Native> {
        environment::take_up_posts();
        let lock = self.lock;
        preference::adopt(core::ptr::from_ref(lock).addr(), &lock.prefer, &lock.rule);
        let (me, spin_ns) = (thread::id(), config::spin_ns());
        // A thread that holds it for writing is refused at once. (One that still has to look for readers in the table waits.)
        let is_refused =
            || self.lock.owner.load(Relaxed) == me && self.counted.get() != Counted::AsOwner;
        if observe::is_on() && !self.is_observed.get() && !is_refused() {
            let address = core::ptr::from_ref(self.lock).addr();
            self.is_observed.set(rwlocks::waits(address, self.call));
        }
        Waiter { me, spin_ns, deadline, counted: Some(&self.counted) }
    }
}

fn errno(outcome: Outcome) -> c_int {
    match outcome {
        Outcome::Acquired => 0,
        Outcome::Busy => libc::EBUSY,
        Outcome::TimedOut => libc::ETIMEDOUT,
        Outcome::Deadlock => libc::EDEADLK,
        Outcome::TooMany => libc::EAGAIN,
    }
}

/// # Safety
/// `at` is readable.
pub(crate) unsafe fn deadline(clock: clockid_t, at: *const timespec) -> Option<Deadline> {
    // SAFETY: our caller's promise.
    let at = unsafe { *at };
    let clock = Clock::from_id(clock)?;
    (0..1_000_000_000).contains(&at.tv_nsec).then_some(Deadline { clock, at })
}
