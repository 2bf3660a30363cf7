//! Waits that end abnormally: by asynchronous cancellation, or by `pthread_exit` or `longjmp` in a signal handler
//! that interrupted them. POSIX leaves that undefined; with glibc's own locks programs get away with it.
//!
//! ```text
//!   pthread_mutex_lock ─► guarded: push ─► wait ─► pop          normally
//!                            │               ▲
//!                            │            signal handler ─► pthread_exit ─► unwinder ─► glibc's stop function
//!                            └─ buffer, on our stack ◄──── runs what was pushed ◄────────────────┘
//! ```
//!
//! We push a buffer by `_pthread_cleanup_push`, as glibc's own `pthread_cond_wait` does. Cancellation,
//! `pthread_exit` and `longjmp` run the buffers in the frames that they take down, before that memory is used again. So
//! nothing depends on our frames' unwind tables, or on the program's unwinder. The cost is two calls that store a
//! pointer each, and only threads that have to wait anyway pay it.
//!
//! Not covered: exceptions thrown by a handler through our frames, and handlers that continue on another
//! stack. Nor is a `longjmp` out of a policy's hook outside a mutex's wait (`lock_acquire`, `lock_acquired`, `lock_release`, `rw_bias`):
//! to push a buffer there would cost each operation more than the hook does. The thread stays marked as being in a hook. So it asks no
//! policy any more, its locks do what they do without one, and that policy's memory stays mapped until the thread ends.
//!
//! A clean-up runs on the leaving thread, below the dead frames; their memory is as the interrupted instruction left
//! it. It must not wait for what the thread was waiting for, with one exception: a condvar's waiter acquires the
//! mutex again, because the program's own clean-up handlers expect to hold it.

use crate::layout::Mutex;
use crate::{apart, thread};
use core::cell::{Cell, UnsafeCell};
use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use lockwright_locks::front::{Parts, Seat, Tuning, View};
use lockwright_locks::posix;
use lockwright_native::Native;
use lockwright_platform::Word;

/// glibc's `struct _pthread_cleanup_buffer`.
#[repr(C)]
struct Buffer {
    routine: Option<Routine>,
    argument: *mut c_void,
    kind: c_int,
    previous: *mut Buffer,
}

type Routine = unsafe extern "C-unwind" fn(*mut c_void);

unsafe extern "C" {
    fn _pthread_cleanup_push(buffer: *mut Buffer, routine: Routine, argument: *mut c_void);
    fn _pthread_cleanup_pop(buffer: *mut Buffer, execute: c_int);
}

unsafe extern "C-unwind" {
    fn pthread_setcanceltype(kind: c_int, old: *mut c_int) -> c_int;
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

/// `PTHREAD_CANCEL_DEFERRED`.
const DEFERRED: c_int = 0;
/// `PTHREAD_CANCEL_ASYNCHRONOUS`.
const ASYNCHRONOUS: c_int = 1;
/// `PTHREAD_CANCEL_DISABLE`.
const DISABLED: c_int = 1;

/// A wait that may be left.
pub(crate) trait Wait {
    /// Undoes it, wherever it was interrupted. Called at most once, by its own thread.
    fn leave(&self);
}

/// Runs `run`, which is all or part of the wait.
#[inline(always)]
pub(crate) fn guarded<W: Wait, R>(wait: &W, run: impl FnOnce() -> R) -> R {
    guarded_late(wait, |guard| {
        guard();
        run()
    })
}

/// As [`guarded`], but only from the moment when `run` first calls its argument: a free lock has nothing
/// to guard.
#[inline(always)]
pub(crate) fn guarded_late<W: Wait, R>(wait: &W, run: impl FnOnce(&dyn Fn()) -> R) -> R {
    unsafe extern "C-unwind" fn routine<W: Wait>(wait: *mut c_void) {
        // SAFETY: pushed below, by a frame that exists until we return.
        unsafe { (*wait.cast::<W>()).leave() }
    }
    let buffer = UnsafeCell::new(MaybeUninit::<Buffer>::uninit());
    let is_set = Cell::new(false);
    let argument = ptr::from_ref(wait).cast_mut().cast();
    let result = run(&|| {
        if !is_set.replace(true) {
            // SAFETY: the buffer and `wait` stay until it is popped, or until their frame is taken down, which calls
            // `routine` first.
            unsafe { _pthread_cleanup_push(buffer.get().cast(), routine::<W>, argument) };
        }
    });
    // Not a destructor, which a torn thread would skip.
    if is_set.get() {
        // SAFETY: pushed above, and the one that was pushed last.
        unsafe { _pthread_cleanup_pop(buffer.get().cast(), 0) };
    }
    result
}

/// Holds cancellations back until [`let_cancellation_in`]; returns the thread's cancellation type before that.
pub(crate) fn hold_back_cancellation() -> c_int {
    let mut kind = DEFERRED;
    // SAFETY: a valid kind and a writable word.
    unsafe { pthread_setcanceltype(DEFERRED, &mut kind) };
    if kind != DEFERRED {
        // A canceller that saw the old type has sent a signal, or is about to. The thread must not end before the signal
        // arrives, which would overwrite the thread's result. (glibc's own waits do the same when they end.)
        thread::await_canceller();
    }
    kind
}

/// The thread can't be cancelled until [`enable_cancellation`], not even at a cancellation point; returns the thread's state before that.
pub(crate) fn disable_cancellation() -> c_int {
    let mut before = 0;
    // SAFETY: a valid state and a writable word.
    unsafe { pthread_setcancelstate(DISABLED, &mut before) };
    before
}

/// As before [`disable_cancellation`]. A cancellation that has come meanwhile acts here, if the thread's type is asynchronous.
pub(crate) fn enable_cancellation(before: c_int) {
    // SAFETY: glibc's own value.
    unsafe { pthread_setcancelstate(before, ptr::null_mut()) };
}

/// What must be undone if a thread is torn out of [`undisturbed`].
struct Undone<U>(U);

impl<U: Fn()> Wait for Undone<U> {
    fn leave(&self) {
        (self.0)();
    }
}

/// Holds cancellation back while `run` runs. If a signal handler doesn't return, `undo` is called: at any point of `run`, also
/// before it has done anything, and after it has done all.
pub(crate) fn undisturbed(undo: impl Fn(), run: impl FnOnce()) {
    let kind = hold_back_cancellation();
    guarded(&Undone(undo), run);
    let_cancellation_in(kind);
}

/// What one thread at a time may do: the id of the thread that does it (0: nobody does), and the stack on which it does it.
pub(crate) struct Turn(AtomicU32, apart::SpareStack);

impl Turn {
    /// Nobody's.
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(0), apart::SpareStack::new())
    }

    /// Runs `run`, unless it is another thread's turn. `errno` stays as it is, and cancellation is held back. If a signal handler
    /// doesn't return, `undo` is called. So the turn says whose it is: a thread that is torn away ends no turn but its own.
    pub(crate) fn take(&self, undo: fn(), run: impl FnOnce()) {
        if self.is_own() {
            return; // a signal handler; the thread that it interrupted has the turn
        }
        let leave = || {
            if self.is_own() {
                undo();
                self.end();
            }
        };
        undisturbed(leave, || {
            // ORDERING: Acquire, pairs with the Release in `end`: what the last thread did is complete.
            if self.0.compare_exchange(0, thread::id(), Acquire, Relaxed).is_ok() {
                // SAFETY: it is our turn. (Tests alone end a thread in it, on the thread's own stack.)
                unsafe { self.1.run(|| thread::leaving_errno(run)) };
                self.end();
            }
        });
    }

    /// The next thread may take it. For the thread whose turn it is, or a forked child, which doesn't have that thread.
    pub(crate) fn end(&self) {
        // ORDERING: Release, pairs with the Acquire in `take`.
        self.0.store(0, Release);
    }

    /// Is it somebody's turn? For a forked child, which has one thread; for others, a hint.
    pub(crate) fn is_taken(&self) -> bool {
        self.0.load(Relaxed) != 0 // as the description says
    }

    /// Is it the calling thread's? If so, this is a signal handler.
    pub(crate) fn is_own(&self) -> bool {
        self.0.load(Relaxed) == thread::id() // no other thread writes our id
    }
}

/// Runs `rest`, a sleep in a [`guarded`] wait. A cancellation, even one already pending, tears the thread out of it. So
/// glibc's canceller need not know where the thread sleeps.
pub(crate) fn cancellable<R>(rest: impl FnOnce() -> R) -> R {
    let_cancellation_in(ASYNCHRONOUS);
    let result = rest();
    hold_back_cancellation();
    result
}

/// Restores the thread's cancellation type. If the type is asynchronous, a cancellation that has come meanwhile acts here.
pub(crate) fn let_cancellation_in(kind: c_int) {
    if kind != DEFERRED {
        // SAFETY: glibc's own value.
        unsafe { pthread_setcanceltype(kind, ptr::null_mut()) };
    }
}

/// A wait for word 0, in a front lock's line or beside it.
struct Waits<'a, T> {
    mutex: &'a Mutex,
    tuning: &'a Tuning,
    seat: Seat<Native>,
    /// What the wait's policy must undo, too.
    undo: T,
}

impl<T: Fn()> Wait for Waits<'_, T> {
    fn leave(&self) {
        (self.undo)();
        // SAFETY: this wait's own seat, and the wait doesn't go on.
        if unsafe { self.seat.leave(&View::new(&self.mutex.parts(), self.tuning)) } {
            release(self.mutex);
        }
    }
}

/// Releases a mutex that a thread which was torn away has got, and holds by its word.
pub(crate) fn release(mutex: &Mutex) {
    mutex.owner.store(0, Relaxed); // as in unlock
    posix::release(mutex, mutex.kind.load(Relaxed));
}

/// Runs `wait`, a wait for word 0, which notes in the seat how far it has come. If it is left, `undo` is called, too.
#[inline(always)]
pub(crate) fn in_line<R>(
    mutex: &Mutex,
    parts: Parts<'_, Native>,
    tuning: &Tuning,
    undo: impl Fn(),
    wait: impl FnOnce(&Parts<'_, Native>) -> R,
) -> R {
    let waits = Waits { mutex, tuning, seat: Seat::default(), undo };
    let parts = Parts { seat: Some(&waits.seat), ..parts };
    guarded(&waits, || wait(&parts))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Runs `run` on a thread that may end by `pthread_exit`.
    pub(crate) fn on_a_thread(run: fn()) {
        extern "C-unwind" fn body(run: *mut c_void) -> *mut c_void {
            // SAFETY: passed below.
            unsafe { core::mem::transmute::<*mut c_void, fn()>(run)() };
            ptr::null_mut()
        }
        let mut id = 0;
        // SAFETY: a thread that we join; the same signature but for unwinding.
        unsafe {
            let body = core::mem::transmute::<
                extern "C-unwind" fn(*mut c_void) -> *mut c_void,
                extern "C" fn(*mut c_void) -> *mut c_void,
            >(body);
            assert_eq!(libc::pthread_create(&mut id, ptr::null(), body, run as *mut c_void), 0);
            assert_eq!(libc::pthread_join(id, ptr::null_mut()), 0);
        }
    }

    /// Ends the thread.
    pub(crate) fn exit() {
        // SAFETY: the frames above hold nothing that must be dropped.
        unsafe { libc::pthread_exit(ptr::null_mut()) };
    }

    #[test]
    fn a_turn_ends_with_its_thread_and_no_other_turn_does() {
        static TURN: Turn = Turn::new();
        static UNDONE: AtomicU32 = AtomicU32::new(0);
        fn undo() {
            UNDONE.fetch_add(1, Relaxed); // joined
        }
        let undone = || UNDONE.load(Relaxed);
        thread::learn();
        on_a_thread(|| TURN.take(undo, exit));
        assert_eq!((undone(), TURN.is_taken()), (1, false));
        // It has ended its turn, and this thread has the next one.
        static OWN: AtomicU32 = AtomicU32::new(0);
        OWN.store(thread::id(), Relaxed);
        on_a_thread(|| {
            TURN.take(undo, || {
                TURN.0.store(OWN.load(Relaxed), Relaxed);
                exit();
            });
        });
        assert_eq!((undone(), TURN.is_own()), (1, true));
        // A thread whose turn it isn't, and a signal handler in a turn.
        on_a_thread(|| TURN.take(undo, || panic!("it is another's turn")));
        TURN.take(undo, || panic!("it is under way"));
        TURN.end();
        let mut runs = 0;
        TURN.take(undo, || runs += 1);
        assert_eq!((undone(), runs, TURN.is_taken()), (1, 1, false));
    }
}
