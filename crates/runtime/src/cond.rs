//! `pthread_cond_*` and `cnd_*`: our list, the mutex's kinds, deadlines, cancellation.
//!
//! Cancellation without asynchronous cancellation: a canceller (our `pthread_cancel`) first asks glibc, then
//! counts the request in the target's memory, then opens its gate. A waiter compares that count from before
//! its own test for cancellation with the one after it published its gate: a request is seen by one side or
//! the other.
//!
//! Who leaves in another way (see `leave`) goes through [`Waiting::leave`], from any stage of its wait: out of the
//! list, its signal passed on, the mutex acquired again, as after a cancellation.

use crate::layout::{Cond, Mutex};
use crate::leave::{self, Wait};
use crate::watch::{self, Who};
use crate::{config, fork, mutex, real, thread};
use core::ffi::c_int;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicU32, compiler_fence, fence};
use lockwright_locks::condvar::{self, Outcome};
use lockwright_locks::front::Parts;
use lockwright_native::{Clock, Deadline, Native};
use lockwright_platform::{Ptr, Word};

/// `__wrefs`: process-shared.
const SHARED: u32 = 1;
/// `__wrefs`: timed waits are by CLOCK_MONOTONIC.
const MONOTONIC: u32 = 2;

unsafe extern "C-unwind" {
    fn pthread_testcancel();
}

/// By which clock `until` is meant.
#[derive(Clone, Copy, Debug)]
pub enum By {
    /// The condvar's own.
    Own,
    /// This one.
    Clock(libc::clockid_t),
}

/// Waits, for ever or until a time.
///
/// # Safety
/// Valid, initialised objects; the caller holds the mutex; `until` points to a timespec if given.
pub unsafe fn wait(
    cond: *mut Cond,
    mutex: *mut Mutex,
    until: Option<(By, *const libc::timespec)>,
) -> c_int {
    // A thread that is cancelled in here leaves without `start`: its clean-up handlers are not slowed.
    // SAFETY: the caller's promise.
    let glibc = move || unsafe { wait_by_glibc(cond, mutex, until) };
    // SAFETY: the caller's promise.
    watch::operation_or(glibc, move || unsafe { wait_any(cond, mutex, until) })
}

unsafe fn wait_any(
    cond: *mut Cond,
    mutex: *mut Mutex,
    until: Option<(By, *const libc::timespec)>,
) -> c_int {
    // SAFETY: the caller's promise.
    let c = unsafe { &*cond };
    let flags = c.flags();
    if flags & SHARED != 0 {
        // SAFETY: not ours: peers of other processes may run without us.
        return unsafe { wait_in_glibc(cond, mutex, until) };
    }
    let deadline = match until {
        None => None,
        Some((by, at)) => {
            // SAFETY: the caller's promise.
            let at = unsafe { *at };
            let clock = match by {
                By::Clock(id) => Clock::from_id(id),
                By::Own if flags & MONOTONIC != 0 => Some(Clock::Monotonic),
                By::Own => Some(Clock::Realtime),
            };
            let Some(clock) = clock else { return libc::EINVAL };
            if !(0..1_000_000_000).contains(&at.tv_nsec) {
                return libc::EINVAL;
            }
            Some(Deadline { clock, at })
        }
    };
    // SAFETY: the caller's promise.
    unsafe { wait_here(c, mutex, deadline) }
}

/// How far a wait has come. Each is written before the first step that the next one must not take for done.
mod stage {
    /// Nothing has been done.
    pub(super) const NOTHING: u32 = 0;
    /// Counted at the mutex, which is held; maybe listed.
    pub(super) const JOINS: u32 = 1;
    /// Maybe listed, maybe signalled; the mutex is released, or held again.
    pub(super) const WAITS: u32 = 2;
    /// Out of the list without a signal; the mutex is released, or held again.
    pub(super) const RETURNS: u32 = 3;
    /// Done.
    pub(super) const BACK: u32 = 4;
}

/// One wait, as its thread sees it.
struct Waiting<'a> {
    cond: &'a Cond,
    mutex: *mut Mutex,
    /// The thread's cancellation type, if the wait has put another in its place.
    kind: c_int,
    stage: AtomicU32,
}

impl<'a> Waiting<'a> {
    fn new(cond: &'a Cond, mutex: *mut Mutex, kind: c_int) -> Self {
        Self { cond, mutex, kind, stage: AtomicU32::new(stage::NOTHING) }
    }

    /// For ourselves, should a signal handler not return.
    fn has_come_to(&self, stage: u32) {
        // ORDERING: SeqCst, for the compiler alone; pairs with our own signal handlers: they see what came before
        // the stage, and nothing that comes after it.
        compiler_fence(SeqCst);
        self.stage.store(stage, Relaxed); // own thread only
        // ORDERING: SeqCst, as above.
        compiler_fence(SeqCst);
    }

    /// The mutex, which the waiter holds, or will hold again: so it is there.
    fn mutex(&self) -> &'a Mutex {
        // SAFETY: POSIX wants so much of it.
        unsafe { &*self.mutex }
    }

    /// Counts us at the mutex; looked at by `destroy` only.
    fn count(&self) {
        self.mutex().users.fetch_add(1, Relaxed); // a count
        self.has_come_to(stage::JOINS);
    }

    fn uncount(&self) {
        self.has_come_to(stage::BACK);
        self.mutex().users.fetch_sub(1, Relaxed); // a count
    }

    /// Sleeps until the wait is over.
    fn sleep(&self, me: &condvar::Sleeper<Native>, deadline: Option<Deadline>) -> Outcome {
        let outcome = list(self.cond).sleep(me, config::spin_ns(), deadline);
        if matches!(outcome, Outcome::TimedOut | Outcome::Cancelled) {
            self.has_come_to(stage::RETURNS); // the condvar may be destroyed now
        }
        outcome
    }
}

impl Wait for Waiting<'_> {
    fn leave(&self) {
        let now = leave::hold_back_cancellation();
        let stage = self.stage.load(Relaxed); // own writes
        let mut moved = false;
        if let stage::JOINS | stage::WAITS = stage {
            // SAFETY: the calling thread's own memory.
            let me = unsafe { &*thread::this() };
            let outcome = list(self.cond).leave(&me.sleeper, || held(self.cond));
            moved = outcome == Outcome::Moved;
        }
        // Our own id is there if and only if we wrote it, whatever the kind.
        let is_held = || self.mutex().owner.load(Relaxed) == thread::id();
        if matches!(stage, stage::WAITS | stage::RETURNS) && !is_held() {
            // SAFETY: as in `wait`.
            unsafe { mutex::lock_again(self.mutex, moved, 0) };
        }
        if let stage::JOINS | stage::WAITS | stage::RETURNS = stage {
            self.uncount();
        }
        leave::let_cancellation_in(if self.kind == leave::DEFERRED { now } else { self.kind });
    }
}

/// The condvar's list, in this process, for the calling thread.
fn list(c: &Cond) -> condvar::Cond<'_, Native> {
    c.list(thread::id(), fork::era() as u32)
}

unsafe fn wait_here(c: &Cond, mutex: *mut Mutex, deadline: Option<Deadline>) -> c_int {
    // SAFETY: the calling thread's own memory.
    let me = unsafe { &*thread::this() };
    let cancels = me.cancels.load(Relaxed); // compared below, after the fence
    // SAFETY: the mutex is held, as POSIX wants it for the clean-up handlers.
    unsafe { pthread_testcancel() };
    // Not to be torn anywhere: who is cancelled finds the mutex held in its clean-up handlers.
    let kind = leave::hold_back_cancellation();
    let waiting = Waiting::new(c, mutex, kind);
    // SAFETY: the caller's promise.
    let wait = || unsafe { wait_guarded(&waiting, me, cancels, deadline) };
    let result = leave::guarded(&waiting, wait);
    // The mutex is held again, should a cancellation that is pending act at once.
    leave::let_cancellation_in(kind);
    let (error, outcome) = match result {
        Ok(result) => result,
        Err(not_ours) => return not_ours,
    };
    match outcome {
        Outcome::TimedOut if error == 0 => libc::ETIMEDOUT,
        Outcome::Cancelled => {
            // Returns if cancellation is disabled: then it was a spurious wake.
            // SAFETY: the mutex is held again.
            unsafe { pthread_testcancel() };
            error
        }
        _ => error,
    }
}

/// What acquiring the mutex again said, and how the wait ended; or what releasing it said.
unsafe fn wait_guarded(
    waiting: &Waiting<'_>,
    me: &thread::Thread,
    cancels: u32,
    deadline: Option<Deadline>,
) -> Result<(c_int, Outcome), c_int> {
    let (c, mutex) = (waiting.cond, waiting.mutex);
    waiting.count();
    c.mutex.store(mutex, Relaxed); // published by the list's lock
    // SAFETY: a thread waits for one condvar at a time; its memory stays until it is joined.
    unsafe { list(c).enlist(&me.sleeper) };
    waiting.has_come_to(stage::WAITS);
    // SAFETY: the caller's promise.
    let error = unsafe { mutex::unlock(mutex) };
    // [cancel] ORDERING: SeqCst, pairs with the fence in `cancel`: either we see its count, or it sees our
    // gate at WAIT.
    fence(SeqCst);
    if error != 0 || me.cancels.load(Relaxed) != cancels {
        // SAFETY: the calling thread's own memory.
        unsafe { condvar::cancel(&raw const me.sleeper) }; // wakes ourselves
    }
    let outcome = waiting.sleep(&me.sleeper, deadline);
    if error != 0 {
        waiting.uncount();
        return Err(error); // not ours to wait with: EPERM, as unlock said
    }
    // SAFETY: the caller's promise; Moved only by a signaller that held this mutex as ours.
    let error = unsafe { mutex::lock_again(mutex, outcome == Outcome::Moved, 0) };
    waiting.uncount();
    Ok((error, outcome))
}

/// Waits as [`wait`] does, but is no cancellation point, and says EINVAL if somebody waits with another mutex.
/// Programs need not be trusted for that: a waiter's mutex is the one that we look at.
///
/// # Safety
/// Both are there until it returns; the caller holds `mutex`, which is of the plain kind.
pub(crate) unsafe fn wait_plainly(
    c: &Cond,
    mutex: *mut Mutex,
    deadline: Option<Deadline>,
) -> c_int {
    let waiting = Waiting::new(c, mutex, leave::DEFERRED);
    // SAFETY: the caller's promise.
    leave::guarded(&waiting, || unsafe { wait_plainly_guarded(&waiting, deadline) })
}

unsafe fn wait_plainly_guarded(waiting: &Waiting<'_>, deadline: Option<Deadline>) -> c_int {
    let (c, mutex) = (waiting.cond, waiting.mutex);
    // SAFETY: the calling thread's own memory.
    let me = unsafe { &*thread::this() };
    let may = |is_first: bool| {
        if is_first {
            c.mutex.store(mutex, Relaxed); // under the list's lock
        }
        core::ptr::eq(c.mutex.load(Relaxed), mutex)
    };
    waiting.count();
    // SAFETY: a thread waits for one condvar at a time; its memory stays until it is joined.
    if !unsafe { list(c).enlist_if(&me.sleeper, may) } {
        waiting.uncount();
        return libc::EINVAL;
    }
    waiting.has_come_to(stage::WAITS);
    // SAFETY: the caller's promise.
    unsafe { mutex::unlock(mutex) };
    let outcome = waiting.sleep(&me.sleeper, deadline);
    // SAFETY: the caller's promise; Moved only by a signaller that held this mutex.
    unsafe { mutex::lock_again(mutex, outcome == Outcome::Moved, 0) };
    waiting.uncount();
    if outcome == Outcome::TimedOut { libc::ETIMEDOUT } else { 0 }
}

unsafe fn wait_in_glibc(
    cond: *mut Cond,
    mutex: *mut Mutex,
    until: Option<(By, *const libc::timespec)>,
) -> c_int {
    // SAFETY: the caller's promise.
    let wait = || unsafe { wait_by_glibc(cond, mutex, until) };
    if watch::is_on() { watch::elsewhere(mutex, wait) } else { wait() }
}

/// Calls glibc's function.
///
/// # Safety
/// As [`wait`].
pub(crate) unsafe fn wait_by_glibc(
    cond: *mut Cond,
    mutex: *mut Mutex,
    until: Option<(By, *const libc::timespec)>,
) -> c_int {
    // SAFETY: the caller's promise is glibc's contract.
    unsafe {
        match until {
            None => real::pthread_cond_wait(cond.cast(), mutex.cast()),
            Some((By::Own, at)) => real::pthread_cond_timedwait(cond.cast(), mutex.cast(), at),
            Some((By::Clock(id), at)) => {
                real::pthread_cond_clockwait(cond.cast(), mutex.cast(), id, at)
            }
        }
    }
}

/// The mutex of the condvar's waiters, if the calling thread holds it. Asked while somebody is listed.
fn held(c: &Cond) -> Option<Parts<'static, Native>> {
    let mutex = c.mutex.load(Relaxed); // written before its waiter was listed
    // SAFETY: a listed waiter's mutex is there: the waiter can't return before it is unlisted.
    unsafe { if mutex::is_held_by_me(mutex) { Some((*mutex).parts()) } else { None } }
}

/// Wakes one waiter.
///
/// # Safety
/// A valid, initialised condvar.
pub unsafe fn signal(cond: *mut Cond) -> c_int {
    // SAFETY: the caller's promise.
    let glibc = move || unsafe { real::pthread_cond_signal(cond.cast()) };
    // SAFETY: the caller's promise.
    watch::operation_or(glibc, move || unsafe { signal_here(cond) })
}

unsafe fn signal_here(cond: *mut Cond) -> c_int {
    // SAFETY: the caller's promise.
    let c = unsafe { &*cond };
    if c.flags() & SHARED != 0 {
        // SAFETY: not ours.
        return unsafe { real::pthread_cond_signal(cond.cast()) };
    }
    if !c.is_idle() {
        list(c).signal(|| held(c));
    }
    0
}

/// Wakes all waiters.
///
/// # Safety
/// A valid, initialised condvar.
pub unsafe fn broadcast(cond: *mut Cond) -> c_int {
    // SAFETY: the caller's promise.
    let glibc = move || unsafe { real::pthread_cond_broadcast(cond.cast()) };
    // SAFETY: the caller's promise.
    watch::operation_or(glibc, move || unsafe { broadcast_here(cond) })
}

unsafe fn broadcast_here(cond: *mut Cond) -> c_int {
    // SAFETY: the caller's promise.
    let c = unsafe { &*cond };
    if c.flags() & SHARED != 0 {
        // SAFETY: not ours.
        return unsafe { real::pthread_cond_broadcast(cond.cast()) };
    }
    if !c.is_idle() {
        list(c).broadcast(|| held(c));
    }
    0
}

/// Destroys; waits for waiters that have timed out or were cancelled and have yet to leave the list.
///
/// # Safety
/// A valid, initialised condvar for which nobody waits without having been woken.
pub unsafe fn destroy(cond: *mut Cond) -> c_int {
    // SAFETY: the caller's promise.
    let c = unsafe { &*cond };
    if c.flags() & SHARED != 0 || watch::is_by(Who::Tool) {
        // SAFETY: not ours.
        return unsafe { real::pthread_cond_destroy(cond.cast()) };
    }
    while list(c).has_waiters() {
        let nap = libc::timespec { tv_sec: 0, tv_nsec: 50_000 };
        // SAFETY: a valid timespec, no remainder wanted. Not libc's nanosleep: that can be cancelled.
        unsafe { libc::syscall(libc::SYS_nanosleep, &nap, core::ptr::null::<libc::timespec>()) };
    }
    0
}

/// Cancels a thread, also out of a wait of ours.
///
/// # Safety
/// As `pthread_cancel`.
pub unsafe fn cancel(target: libc::pthread_t) -> c_int {
    // SAFETY: the caller's promise.
    let error = unsafe { real::pthread_cancel(target) };
    if error == 0 && !watch::is_by(Who::Tool) {
        // SAFETY: a thread that glibc could cancel has its memory still.
        let target = unsafe { &*thread::of(target) };
        target.cancels.fetch_add(1, Relaxed); // ordered by the fence
        fence(SeqCst); // pairs with [cancel]
        // SAFETY: as above.
        unsafe { condvar::cancel(&raw const target.sleeper) };
    }
    error
}
