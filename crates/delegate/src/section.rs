//! A section, from lock to unlock, on whichever kernel thread.
//!
//! 1. A thread's context is suspended, or runs on exactly one kernel thread. It is away only between the return of `lock` and the call of
//!    `unlock` for one mutex.
//! 2. Whoever runs a context has its thread pointer: thread-local variables, `errno`, `pthread_self` and malloc's caches go with it.
//! 3. A context that goes home with its mutex locked holds the mutex as if it had never been sent. Its carrier holds nothing any more.

use crate::account::{Refused, account, one_more};
use crate::behind::try_lock;
use crate::list::Hook;
use crate::switch::{Extras, leave_stack, switch, system_call, thread_pointer};
use crate::thread::{DelegatedThread, NAPPING, OVER, PARKED, PLAIN, RUNNING, this};
use crate::{choice, thread};
use core::ffi::{c_int, c_void};
use core::ptr::from_ref;
use core::sync::atomic::Ordering::{AcqRel, Relaxed};
use core::sync::atomic::{AtomicU8, AtomicUsize};
use libc::pthread_mutex_t;

/// `result`: the section has unlocked.
const UNLOCKED: c_int = 0;
/// `result`: the thread keeps the mutex, and goes on at home.
const KEPT: c_int = 1;

/// How a call goes on: it returns 0.
const DONE: c_int = 0;
/// It calls the function that it stands for.
const REAL: c_int = 1;

/// `lockwright_section_on_its_stack` of `liblockwright.so`.
type OnItsStack = unsafe extern "C" fn(
    *mut pthread_mutex_t,
    unsafe extern "C" fn(*mut c_void) -> c_int,
    *mut c_void,
    unsafe extern "C" fn(*const u32, u32, u32),
) -> c_int;

/// `lockwright_section_is_combining` there.
type IsCombining = unsafe extern "C" fn(*mut pthread_mutex_t) -> c_int;

/// The address of `lockwright_section_is_combining`.
pub(crate) static IS_COMBINING: AtomicUsize = AtomicUsize::new(0);
/// The address of `lockwright_section_on_its_stack`; 0: nothing is delegated.
pub(crate) static ON_ITS_STACK: AtomicUsize = AtomicUsize::new(0);
/// Not 0: the kernel has switched protection keys on.
pub(crate) static HAS_KEYS: AtomicU8 = AtomicU8::new(0);

/// Does somebody run this mutex's sections? `None`: its kind lets no other thread run them.
///
/// # Safety
/// The mutex is initialized, and ON_ITS_STACK is not 0.
unsafe fn is_combining(mutex: *mut pthread_mutex_t) -> Option<bool> {
    // SAFETY: our constructor has found it before ON_ITS_STACK, and it has this type.
    let answer = unsafe {
        let ask: IsCombining = core::mem::transmute(IS_COMBINING.load(Relaxed));
        ask(mutex)
    };
    (answer >= 0).then_some(answer != 0)
}

/// May another thread have locked it for this one?
///
/// # Safety
/// As for [`is_combining`]: a section runs.
unsafe fn is_normal(mutex: *mut pthread_mutex_t) -> bool {
    // SAFETY: the caller's promise.
    unsafe { is_combining(mutex) }.is_some()
}

/// A call of `pthread_mutex_lock`, which returns to `caller`. [`DONE`]: locked.
pub(crate) unsafe extern "C" fn lock(mutex: *mut pthread_mutex_t, caller: usize) -> c_int {
    let thread = this();
    match thread.state() {
        PLAIN => {
            if ON_ITS_STACK.load(Relaxed) == 0 || !choice::allows(caller) {
                return REAL;
            }
            // SAFETY: the program's own mutex; ON_ITS_STACK isn't 0.
            let Some(is_combining) = (unsafe { is_combining(mutex) }) else {
                return refuse(thread, Refused::Kind);
            };
            // SAFETY: as the program's call of `lock`.
            if choice::takes_free() && !is_combining && unsafe { try_lock(mutex) } == 0 {
                if let Some(row) = thread.row() {
                    one_more(&row.free);
                }
                return DONE;
            }
            // SAFETY: the program's own mutex, which this thread doesn't hold by a section.
            unsafe { delegate(thread, mutex) }
        }
        RUNNING => {
            // A section that has to wait for another mutex does so at home: the carrier's own context may hold that mutex. And the kernel
            // knows who holds some kinds of mutexes.
            // SAFETY: the program's own mutex.
            if unsafe { is_normal(mutex) && try_lock(mutex) == 0 } {
                return DONE;
            }
            go_home(thread, Hook::pthread_mutex_lock as usize);
            REAL
        }
        _ => REAL, // our own, on a parking stack; or a signal's handler
    }
}

/// A call of `pthread_mutex_trylock`, which is the function behind's to answer.
pub(crate) unsafe extern "C" fn before_try_lock(mutex: *mut pthread_mutex_t) -> c_int {
    let thread = this();
    // SAFETY: the program's own mutex.
    if thread.state() == RUNNING && !unsafe { is_normal(mutex) } {
        go_home(thread, Hook::pthread_mutex_trylock as usize);
    }
    REAL
}

/// A call of `pthread_mutex_unlock`. [`DONE`]: unlocked.
pub(crate) unsafe extern "C" fn unlock(mutex: *mut pthread_mutex_t) -> c_int {
    let thread = this();
    if thread.state() != RUNNING {
        return REAL;
    }
    if thread.mutex.get() == mutex {
        if leave(thread, UNLOCKED) {
            thread.let_signals_in();
            return DONE;
        }
    // SAFETY: the program's own mutex, which it holds.
    } else if !unsafe { is_normal(mutex) } {
        // Counted as its lock: both are rare in a section.
        go_home(thread, Hook::pthread_mutex_lock as usize);
    }
    REAL
}

/// A section that is not sent; returns how the call goes on.
fn refuse(thread: &DelegatedThread, why: Refused) -> c_int {
    account().refuse(why);
    if let Some(row) = thread.row() {
        one_more(&row.refused);
    }
    REAL
}

/// Has the section that begins now run by whichever thread. Returns as `lock` does, there.
#[cold]
#[inline(never)]
unsafe fn delegate(thread: &'static DelegatedThread, mutex: *mut pthread_mutex_t) -> c_int {
    let extras = Extras::now(HAS_KEYS.load(Relaxed) != 0);
    if !thread.may_send() || !extras.may_move() {
        return refuse(thread, Refused::Thread);
    }
    if thread::uses_rseq() {
        // The kernel clears that sign now and then; whoever has used one sequence uses others.
        thread::SENDS_NOTHING.store(true, Relaxed);
        return refuse(thread, Refused::Rseq);
    }
    let Some(parking) = thread.parking() else { return refuse(thread, Refused::Thread) };
    thread.mutex.set(mutex);
    thread.extras.set(Some(extras));
    thread.block_signals();
    thread.state.store(PARKED, Relaxed); // its own
    let at = from_ref(thread).cast_mut().cast();
    // SAFETY: nobody is on its parking stack, since its state was PLAIN.
    unsafe { leave_stack(thread.context.as_ptr(), parking, park, at) };
    // Here the context goes on: in its section, at home, or for its signals.
    while thread.naps.replace(false) {
        // Handlers run now: on this stack, where the program expects them.
        thread.let_signals_in();
        thread.block_signals();
        // SAFETY: suspended by `nap`.
        unsafe { switch(thread.context.as_ptr(), thread.parked.get(), thread_pointer()) };
    }
    if thread.state() == RUNNING {
        if let Some(row) = thread.row() {
            let is_own = thread.carrier.get() == from_ref(thread).addr();
            one_more(if is_own { &row.own } else { &row.sent });
        }
        return DONE;
    }
    let kept = thread.result.get() == KEPT;
    thread.state.store(PLAIN, Relaxed);
    thread.let_signals_in();
    if !kept {
        return refuse(thread, Refused::Kind);
    }
    if let Some(row) = thread.row() {
        one_more(&row.own);
    }
    DONE
}

/// Sleeps on the word while it is this, for at most `ns`.
fn sleep(word: *const u32, while_it_is: u32, ns: u32) {
    let time = [i64::from(ns / 1_000_000_000), i64::from(ns % 1_000_000_000)];
    let operation = (libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG) as usize;
    let arguments = [word.addr(), operation, while_it_is as usize, time.as_ptr().addr()];
    // SAFETY: a word of our own library's, whose memory stays.
    unsafe { system_call(libc::SYS_futex, arguments) };
}

/// Sleeps, for a thread that waits: on its parking stack, or as ever. If a signal has come meanwhile, and nobody runs the thread's context
/// yet, the thread goes back to its own stack for the signal. A section that comes to its turn meanwhile goes home.
unsafe extern "C" fn nap(word: *const u32, while_it_is: u32, ns: u32) {
    let thread = this();
    if !word.is_null() {
        sleep(word, while_it_is, ns);
    }
    if thread.state() != PARKED || !thread.has_signals() || !thread.goes(PARKED, NAPPING) {
        return;
    }
    thread.naps.set(true);
    // SAFETY: its own context, which nobody else runs: it is NAPPING, and then PARKED again, or OVER.
    unsafe { switch(thread.parked.as_ptr(), thread.context.get(), thread_pointer()) };
    // Its context is suspended again, so others may run it, if nobody has handed it the mutex meanwhile.
    thread.goes(NAPPING, PARKED);
}

/// On the parking stack: waits until the section is over, and runs others' meanwhile. Then the thread's context goes on.
unsafe extern "C" fn park(at: *mut u8) -> ! {
    // SAFETY: `delegate`'s own.
    let thread = unsafe { &*at.cast::<DelegatedThread>() };
    // SAFETY: our constructor has found it, and it has this type.
    let on_its_stack: OnItsStack = unsafe { core::mem::transmute(ON_ITS_STACK.load(Relaxed)) };
    // SAFETY: the program's mutex, and a context that is suspended.
    if unsafe { on_its_stack(thread.mutex.get(), resume, at.cast(), nap) } == 0 {
        thread.result.set(UNLOCKED);
        thread.state.store(OVER, Relaxed); // nobody else runs it
    }
    let mut nowhere = core::ptr::null_mut();
    loop {
        // SAFETY: suspended by `leave` or by `delegate`, and seen by us: `on_its_stack` has returned.
        unsafe { switch(&raw mut nowhere, thread.context.get(), thread_pointer()) };
    }
}

/// On a carrier's parking stack, with the mutex locked: runs the section of the thread at `at`. Not 0: that thread keeps the mutex.
unsafe extern "C" fn resume(at: *mut c_void) -> c_int {
    // SAFETY: a thread that waits for this.
    let thread = unsafe { &*at.cast::<DelegatedThread>() };
    let carrier = this();
    let is_away = !core::ptr::eq(thread, carrier);
    let differs = is_away && thread.extras.get() != Some(Extras::now(HAS_KEYS.load(Relaxed) != 0));
    thread.carrier.set(from_ref(carrier).addr());
    // A thread that naps is at home, and goes on there.
    if differs || !thread.goes(PARKED, RUNNING) {
        if differs {
            account().refuse(Refused::Differs);
        }
        thread.result.set(KEPT);
        // Not a store: it may be about to nap, or to wake. From here on it does neither.
        thread.state.swap(OVER, AcqRel);
        return KEPT;
    }
    let row = carrier.row();
    if let Some(row) = row {
        row.serial.store(row.serial.load(Relaxed) + 1, Relaxed); // only this thread writes it
    }
    let offset = from_ref(carrier).addr().wrapping_sub(thread_pointer());
    // SAFETY: the thread's own, suspended by `delegate`; each thread's variable is at the same distance.
    unsafe {
        switch(
            thread.back.as_ptr(),
            thread.context.get(),
            from_ref(thread).addr().wrapping_sub(offset),
        )
    };
    if let Some(row) = row {
        row.serial.store(row.serial.load(Relaxed) + 1, Relaxed);
    }
    thread.result.get()
}

/// Ends the section on this kernel thread; returns at home. `false`: it had ended before.
fn leave(thread: &DelegatedThread, result: c_int) -> bool {
    if !thread.goes(RUNNING, OVER) {
        return false;
    }
    thread.result.set(result);
    let own = from_ref(thread).addr().wrapping_sub(thread_pointer());
    let carrier = thread.carrier.get().wrapping_sub(own);
    // SAFETY: suspended by `resume`, on the kernel thread that we are on.
    unsafe { switch(thread.context.as_ptr(), thread.back.get(), carrier) };
    thread.state.store(PLAIN, Relaxed);
    true
}

/// The section goes on at home, with its mutex locked, since a hook said so.
pub(crate) fn go_home(thread: &DelegatedThread, why: usize) {
    if leave(thread, KEPT) {
        account().home[why].fetch_add(1, Relaxed);
        thread.let_signals_in();
    }
}

/// A thread ends: a key's destructor. It may hold a mutex, by a section.
pub(crate) unsafe extern "C" fn end(_: *mut c_void) {
    let thread = this();
    if thread.state() == NAPPING {
        return; // a handler ends it, and its request is still there: what that needs stays
    }
    go_home(thread, Hook::pthread_exit as usize);
    thread.ends();
}

/// As [`go_home`], in a signal handler, whose end sets the signal mask. `true`: it went.
pub(crate) fn is_sent_home(thread: &DelegatedThread) -> bool {
    leave(thread, KEPT)
}
