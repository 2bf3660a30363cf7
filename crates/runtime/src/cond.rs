//! `pthread_cond_*` and `cnd_*`: our list, the mutex's kinds, deadlines, cancellation.
//!
//! Cancellation is glibc's own: `pthread_cancel` knows nothing of us. A waiter can be torn out of its wait only while it
//! [rests](Waiting::rest), but there at any point; an earlier request acts when the rest begins. A canceller touches none of
//! the target's memory, since the target may be detached, and gone.
//!
//! A waiter that leaves, by cancellation or otherwise (see `leave`), goes through [`Waiting::leave`], from any stage
//! of its wait. It leaves the list, passes its signal on, and acquires the mutex again. The node lies on the waiter's
//! stack, so a signal handler that interrupts a wait may itself wait for another condvar.

mod list;
mod wakes;

pub use wakes::{broadcast, signal};

use list::{SHARED, held, list};

use crate::caller::{Call, with_frame};
use crate::layout::{Cond, Here, Mutex};
use crate::leave::{self, Wait};
use crate::observe::{self, conditions};
use crate::probes::fire;
use crate::watch::{self, Who};
use crate::{attached, config, fork, guard, mutex, real, thread};
use core::ffi::c_int;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicU32, compiler_fence};
use lockwright_locks::condvar::{Outcome, Sleeper};
use lockwright_locks::posix::{self, Environment, Releasing};
use lockwright_native::{Clock, Deadline, Native, kernel};
use lockwright_platform::{Ptr, Word};

/// `__wrefs`: timed waits are by CLOCK_MONOTONIC.
const MONOTONIC: u32 = 2;

/// The clock of `until`.
#[derive(Clone, Copy, Debug)]
pub enum By {
    /// The condvar's own.
    Own,
    /// This one.
    Clock(libc::clockid_t),
}

/// Behind a naked function that passes on the frame pointer and the stack pointer of the program's call: see [`Call::of_naked`].
///
/// # Safety
/// As POSIX says of `pthread_cond_wait`.
pub unsafe extern "C-unwind" fn wait_from(
    cond: *mut Cond,
    mutex: *mut Mutex,
    _: usize,
    _: usize,
    frame: usize,
    stack: usize,
) -> c_int {
    // SAFETY: the program's promise, and the naked function's.
    unsafe { wait_called(cond, mutex, None, Call::of_naked(frame, stack)) }
}

/// Behind a naked function that passes on the frame pointer and the stack pointer of the program's call: see [`Call::of_naked`].
///
/// # Safety
/// As POSIX says of `pthread_cond_timedwait`.
pub unsafe extern "C-unwind" fn timedwait_from(
    cond: *mut Cond,
    mutex: *mut Mutex,
    until: *const libc::timespec,
    _: usize,
    frame: usize,
    stack: usize,
) -> c_int {
    // SAFETY: as above.
    unsafe { wait_called(cond, mutex, Some((By::Own, until)), Call::of_naked(frame, stack)) }
}

/// Behind a naked function that passes on the frame pointer and the stack pointer of the program's call: see [`Call::of_naked`].
///
/// # Safety
/// As POSIX says of `pthread_cond_clockwait`.
pub unsafe extern "C-unwind" fn clockwait_from(
    cond: *mut Cond,
    mutex: *mut Mutex,
    clock: libc::clockid_t,
    until: *const libc::timespec,
    frame: usize,
    stack: usize,
) -> c_int {
    let until = Some((By::Clock(clock), until));
    // SAFETY: as above.
    unsafe { wait_called(cond, mutex, until, Call::of_naked(frame, stack)) }
}

/// Waits, with or without a deadline, for a call from `call`.
///
/// # Safety
/// The objects are valid and initialised, the caller holds the mutex, and `until`, if given, points to a timespec.
unsafe fn wait_called(
    cond: *mut Cond,
    mutex: *mut Mutex,
    until: Option<(By, *const libc::timespec)>,
    call: Call,
) -> c_int {
    // A thread that is cancelled in here leaves without `start`, so its clean-up handlers are not slowed.
    // SAFETY: the caller's promise.
    let glibc = move || unsafe { wait_by_glibc(cond, mutex, until) };
    // SAFETY: the caller's promise.
    watch::operation_or(glibc, move || unsafe { wait_any(cond, mutex, until, call) })
}

unsafe fn wait_any(
    cond: *mut Cond,
    mutex: *mut Mutex,
    until: Option<(By, *const libc::timespec)>,
    call: Call,
) -> c_int {
    // SAFETY: the caller's promise.
    let c = unsafe { &*cond };
    let flags = c.flags();
    if flags & SHARED != 0 || attached::is_late() {
        // SAFETY: not ours: threads of other processes may run without us. Nor are those of a program that we attached to.
        return unsafe { wait_in_glibc(cond, mutex, until, call) };
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
            let deadline = deadline(clock, at);
            if deadline.is_none() {
                return libc::EINVAL;
            }
            deadline
        }
    };
    fire!(cond_wait, cond, mutex);
    // SAFETY: the caller's promise.
    unsafe { wait_here(c, mutex, deadline, call) }
}

/// `None`: there is no such clock, or no such time.
fn deadline(clock: Option<Clock>, at: libc::timespec) -> Option<Deadline> {
    let is_time = (0..1_000_000_000).contains(&at.tv_nsec);
    clock.filter(|_| is_time).map(|clock| Deadline { clock, at })
}

/// How far a wait has come. A stage is written before the first step of the next stage, so that no step counts as done too early.
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
    /// The thread's own cancellation type. `None`: the wait isn't a cancellation point, and leaves the type
    /// alone.
    kind: Option<c_int>,
    sleeper: Sleeper<Native>,
    stage: AtomicU32,
    /// The program's call, whose section ends here and begins anew.
    call: Call,
}

impl<'a> Waiting<'a> {
    fn new(cond: &'a Cond, mutex: *mut Mutex, kind: Option<c_int>, call: Call) -> Self {
        let stage = AtomicU32::new(stage::NOTHING);
        Self { cond, mutex, kind, sleeper: Sleeper::default(), stage, call }
    }

    /// Notes the stage, for ourselves, in case a signal handler doesn't return.
    fn has_come_to(&self, stage: u32) {
        // ORDERING: SeqCst, for the compiler alone; pairs with our own signal handlers: they see what came before
        // the stage, and nothing that comes after it.
        compiler_fence(SeqCst);
        self.stage.store(stage, Relaxed); // own thread only
        // ORDERING: SeqCst, as above.
        compiler_fence(SeqCst);
    }

    /// The mutex. The waiter holds it, or will hold it again, so it exists.
    fn mutex(&self) -> &'a Mutex {
        // SAFETY: POSIX requires that the mutex exists.
        unsafe { &*self.mutex }
    }

    /// Counts us at the mutex; only `destroy` looks at the count.
    fn count(&self) {
        self.mutex().users.fetch_add(1, Relaxed); // a count
        self.has_come_to(stage::JOINS);
    }

    fn uncount(&self) {
        self.has_come_to(stage::BACK);
        self.mutex().users.fetch_sub(1, Relaxed); // a count
    }

    /// Joins the list next: tells observers.
    fn begins(&self) {
        if observe::is_on() {
            let since_ns = conditions::waits(self.address(), self.mutex.addr());
            self.sleeper.since_ns.store(since_ns, Relaxed); // published by the list's lock
        }
    }

    fn address(&self) -> usize {
        core::ptr::from_ref(self.cond).addr()
    }

    /// Sleeps until the wait is over.
    fn sleep(&self, deadline: Option<Deadline>) -> Outcome {
        let outcome = self.sleep_unseen(deadline);
        let since_ns = self.sleeper.since_ns.load(Relaxed); // our own
        if since_ns != 0 {
            let signalled = outcome != Outcome::TimedOut;
            conditions::has_waited(self.address(), since_ns, signalled, self.call);
        }
        outcome
    }

    /// The mutex is held again; the wait ended so.
    fn has_ended(&self, outcome: Outcome) {
        if outcome != Outcome::TimedOut && self.sleeper.since_ns.load(Relaxed) != 0 {
            conditions::goes_on(self.mutex());
        }
    }

    fn sleep_unseen(&self, deadline: Option<Deadline>) -> Outcome {
        let spin_ns = config::spin_ns(); // may take locks of ours, so it must not be torn: hence before the rest
        let rest = || self.sleeper.rest(spin_ns, deadline);
        let outcome = if self.kind.is_some() { leave::cancellable(rest) } else { rest() };
        if outcome == Outcome::TimedOut {
            list(self.cond).withdraw(&self.sleeper);
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
            let outcome = list(self.cond).leave(&self.sleeper, || held(self.cond));
            moved = outcome == Outcome::Moved;
        }
        // The owner is our id if we hold the mutex by its word, whatever its kind, or by a node and a waiter has named us.
        // (If a thread held three mutexes by nodes, and was torn right here, both questions may get a wrong "no".)
        let by_word = || self.mutex().owner.load(Relaxed) == thread::id();
        let by_node = || Here::with_held(|held| held.has(&self.mutex().word, fork::era()));
        let is_held = || by_word() || by_node();
        if matches!(stage, stage::WAITS | stage::RETURNS) && !is_held() {
            // SAFETY: as in `wait`.
            observe::within(self.call, || unsafe { mutex::lock_again(self.mutex, moved) });
        }
        if let stage::JOINS | stage::WAITS | stage::RETURNS = stage {
            self.uncount();
        }
        leave::let_cancellation_in(self.kind.unwrap_or(now));
    }
}

unsafe fn wait_here(c: &Cond, mutex: *mut Mutex, deadline: Option<Deadline>, call: Call) -> c_int {
    // The wait may be torn only where it rests. A cancellation that is pending already acts there: first the answer, as in glibc.
    let kind = leave::hold_back_cancellation();
    let waiting = Waiting::new(c, mutex, Some(kind), call);
    // SAFETY: the caller's promise.
    let wait = || unsafe { wait_guarded(&waiting, deadline) };
    let result = leave::guarded(&waiting, wait);
    // Only now that the mutex is held again: a pending cancellation may act at once.
    leave::let_cancellation_in(kind);
    match result {
        Ok((0, Outcome::TimedOut)) => libc::ETIMEDOUT,
        Ok((error, _)) | Err(error) => error,
    }
}

/// The result of acquiring the mutex again, and how the wait ended; or the result of releasing it.
unsafe fn wait_guarded(
    waiting: &Waiting<'_>,
    deadline: Option<Deadline>,
) -> Result<(c_int, Outcome), c_int> {
    // SAFETY: the caller's promise.
    let outcome = unsafe { wait_in_list(waiting, deadline) }?;
    // SAFETY: the caller's promise; it is Moved only by a signaller that held this mutex as one of ours.
    let lock = || unsafe { mutex::lock_again(waiting.mutex, outcome == Outcome::Moved) };
    let error = observe::within(waiting.call, lock);
    if error == 0 {
        waiting.has_ended(outcome);
    }
    waiting.uncount();
    Ok((error, outcome))
}

/// How the wait ended; or the result of releasing the mutex.
#[inline(never)] // so a thread that then waits for the mutex doesn't keep what this needs on its stack
unsafe fn wait_in_list(
    waiting: &Waiting<'_>,
    deadline: Option<Deadline>,
) -> Result<Outcome, c_int> {
    let (c, mutex) = (waiting.cond, waiting.mutex);
    waiting.begins();
    waiting.count();
    c.mutex.store(mutex, Relaxed); // published by the list's lock
    // SAFETY: a new node, which stays until we return or have left.
    unsafe { list(c).enlist(&waiting.sleeper) };
    waiting.has_come_to(stage::WAITS);
    // SAFETY: the caller's promise.
    let error = observe::within(waiting.call, || unsafe { mutex::unlock(mutex) });
    if error != 0 {
        list(c).leave(&waiting.sleeper, || held(c));
        waiting.uncount();
        return Err(error); // we don't hold the mutex: EPERM, as unlock said
    }
    Ok(waiting.sleep(deadline))
}

with_frame! {
    /// Waits as [`wait_from`] does, but isn't a cancellation point, and returns EINVAL if others wait with another
    /// mutex. We don't trust the program here, since we look at the waiters' mutex. No deadline if `until` is null.
    ///
    /// # Safety
    /// Both exist until it returns; the caller holds `mutex`, which is of the plain kind; `until` is null or readable.
    "C" pub(crate) wait_linked(
        cond: *mut Cond, mutex: *mut Mutex, clock: libc::clockid_t, until: *const libc::timespec
    ) = wait_linked_from;
}

unsafe extern "C" fn wait_linked_from(
    cond: *mut Cond,
    mutex: *mut Mutex,
    clock: libc::clockid_t,
    until: *const libc::timespec,
    frame: usize,
    stack: usize,
) -> c_int {
    // SAFETY: the naked function's promise.
    let call = unsafe { Call::of_naked(frame, stack) };
    // SAFETY: the caller's promise.
    let at = unsafe { until.as_ref() };
    let deadline = at.and_then(|at| deadline(Clock::from_id(clock), *at));
    if at.is_some() && deadline.is_none() {
        return libc::EINVAL;
    }
    let by = at.map(|_| (By::Clock(clock), until));
    // SAFETY: the caller's promise.
    let glibc = move || unsafe { wait_by_glibc(cond, mutex, by) };
    let ours = move || {
        // SAFETY: the caller's promise.
        let waiting = Waiting::new(unsafe { &*cond }, mutex, None, call);
        // SAFETY: the caller's promise.
        leave::guarded(&waiting, || unsafe { wait_linked_guarded(&waiting, deadline) })
    };
    watch::operation_or(glibc, ours)
}

unsafe fn wait_linked_guarded(waiting: &Waiting<'_>, deadline: Option<Deadline>) -> c_int {
    let (c, mutex) = (waiting.cond, waiting.mutex);
    let may = |is_first: bool| {
        if is_first {
            c.mutex.store(mutex, Relaxed); // under the list's lock
        }
        core::ptr::eq(c.mutex.load(Relaxed), mutex)
    };
    waiting.begins();
    waiting.count();
    // SAFETY: as in `wait_guarded`.
    if !unsafe { list(c).enlist_if(&waiting.sleeper, may) } {
        waiting.uncount();
        return libc::EINVAL;
    }
    waiting.has_come_to(stage::WAITS);
    // SAFETY: the caller's promise.
    observe::within(waiting.call, || unsafe { mutex::unlock(mutex) });
    let outcome = waiting.sleep(deadline);
    // SAFETY: the caller's promise; it is Moved only by a signaller that held this mutex.
    let lock = || unsafe { mutex::lock_again(mutex, outcome == Outcome::Moved) };
    observe::within(waiting.call, lock);
    waiting.has_ended(outcome);
    waiting.uncount();
    if outcome == Outcome::TimedOut { libc::ETIMEDOUT } else { 0 }
}

unsafe fn wait_in_glibc(
    cond: *mut Cond,
    mutex: *mut Mutex,
    until: Option<(By, *const libc::timespec)>,
    call: Call,
) -> c_int {
    if observe::is_on() {
        // glibc's function releases the mutex, which ends the hold that we observe.
        observe::within(call, || observe::released(mutex.addr(), Releasing::default()));
    }
    // SAFETY: the caller's promise.
    posix::forget(unsafe { &*mutex });
    // SAFETY: as above.
    let wait = || unsafe { wait_by_glibc(cond, mutex, until) };
    if watch::is_on() {
        // SAFETY: as above.
        let taking = mutex::taking_again(unsafe { &*mutex });
        watch::elsewhere(mutex, taking, wait)
    } else {
        wait()
    }
}

/// Calls glibc's function.
///
/// # Safety
/// As [`wait_from`].
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
            // C11's condvar, whose clock this is. musl has no function for other clocks.
            Some((By::Clock(libc::CLOCK_REALTIME), at)) if !guard::is_glibc() => {
                real::pthread_cond_timedwait(cond.cast(), mutex.cast(), at)
            }
            Some((By::Clock(id), at)) => {
                real::pthread_cond_clockwait(cond.cast(), mutex.cast(), id, at)
            }
        }
    }
}

/// Destroys. First waits until waiters that have timed out or were cancelled have left the list.
///
/// # Safety
/// A valid, initialised condvar, all of whose waiters have been woken.
pub unsafe fn destroy(cond: *mut Cond) -> c_int {
    // SAFETY: the caller's promise.
    let c = unsafe { &*cond };
    if c.flags() & SHARED != 0 || watch::is_by(Who::Tool) {
        // SAFETY: not ours.
        return unsafe { real::pthread_cond_destroy(cond.cast()) };
    }
    fire!(cond_destroy, cond);
    while list(c).has_waiters() {
        let nap = libc::timespec { tv_sec: 0, tv_nsec: 50_000 };
        // SAFETY: a valid timespec, no remainder wanted. (Not by libc's nanosleep, which is a cancellation point.)
        unsafe {
            kernel::call(
                libc::SYS_nanosleep,
                [(&raw const nap).expose_provenance(), 0, 0, 0, 0, 0],
            );
        }
    }
    if observe::is_on() {
        conditions::retire(cond.addr());
    }
    0
}
