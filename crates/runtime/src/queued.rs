//! Waits in a textbook lock's queue. Nobody can leave such a queue, and the algorithms know no way to wake a thread from it early.
//!
//! But programs leave waits (leave.rs), and nobody gets past the one that has left. Word 0 alone excludes, so nobody needs the queue:
//! if a thread is torn out of one, all give up their places in all queues of the process, for good, and wait as glibc's algorithm does. One
//! line on stderr says so.
//!
//! ```text
//!   wait ─► escapable ─► the lock's own code, waits for long ─► asks now and then (native's relax.rs): are queues given up?
//!              ▲                                                                     │ yes
//!              └───────────────────────── escape ◄───────────────────────────────────┘
//! ```
//!
//! To give up its place, a thread goes back to where it entered the lock's code, and drops that code's frames, as `longjmp` would. They
//! own nothing: nodes lie in the pool, and stay there. The lock's memory in the mutex is left as it is, and nobody looks at it again.
//!
//! A signal handler that interrupts the lock's code may itself wait, by other functions of ours. It must not go back past the program's
//! handler. So a thread gives up its place only from close by: a signal's frame is larger than [`NEAR`].

use crate::env::say;
use crate::layout::Mutex;
use crate::leave::{self, Wait};
use crate::thread;
use core::arch::naked_asm;
use core::ffi::c_void;
use core::ptr::{from_ref, null_mut};
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicPtr};
use lockwright_locks::front::{Seat, Tuning, View};
use lockwright_native::{Native, ask_now_and_then};

/// Are all queues given up? Never taken back.
static GIVEN_UP: AtomicBool = AtomicBool::new(false);

/// The frames of a textbook lock's code are smaller than this, and a signal's frame is larger, bytes. (On x86-64 the kernel writes 128 bytes
/// that it skips, `siginfo_t`, `ucontext_t` and at least 512 bytes of registers.)
const NEAR: usize = 1024;

/// Where the calling thread goes on if it gives up its place.
fn queue() -> &'static AtomicPtr<c_void> {
    // SAFETY: the calling thread's own memory, of which it sees no end.
    unsafe { &(*thread::this()).queue }
}

/// One wait.
struct Queued<'a> {
    mutex: &'a Mutex,
    tuning: &'a Tuning,
    seat: Seat<Native>,
    /// A signal handler that interrupted a wait waits, too: that wait's.
    before: *mut c_void,
}

impl Wait for Queued<'_> {
    fn leave(&self) {
        queue().store(self.before, Relaxed); // own thread only
        give_up();
        // SAFETY: this wait's own seat, and the wait doesn't go on.
        if unsafe { self.seat.leave(&View::new(&self.mutex.parts(), self.tuning)) } {
            leave::release(self.mutex);
        }
    }
}

/// All queues are given up: says so, once.
fn give_up() {
    if GIVEN_UP.swap(true, Relaxed) {
        return; // Relaxed: sooner or later everybody sees it
    }
    say(&[b"a thread has left a textbook lock's queue without the lock (by cancellation, or in a signal handler): from now on all \
            mutexes use glibc's algorithm; hint: 'lockwright list' says which locks are for programs\n"]);
}

/// Runs `wait`, which acquires word 0 through a textbook lock's queue and notes that in the seat, and then `has_it`. `false`: queues are given
/// up, and it has not acquired.
pub(crate) fn wait(
    mutex: &Mutex,
    tuning: &Tuning,
    wait: impl FnOnce(&Seat<Native>),
    has_it: impl FnOnce(),
) -> bool {
    if GIVEN_UP.load(Relaxed) {
        return false;
    }
    ask_now_and_then(escape_if_given_up);
    let queued = Queued { mutex, tuning, seat: Seat::default(), before: queue().load(Relaxed) };
    leave::guarded(&queued, || {
        escapable(|| wait(&queued.seat));
        queue().store(queued.before, Relaxed); // own thread only, like all of these
        let has = queued.seat.has_it();
        if has {
            has_it();
        }
        has
    })
}

/// Called now and then by threads that wait.
fn escape_if_given_up() {
    if !GIVEN_UP.load(Relaxed) {
        return;
    }
    let place = queue().load(Relaxed);
    let here = from_ref(&place).addr(); // on our stack, below the lock's code
    if !place.is_null() && place.addr().checked_sub(here).is_some_and(|far| far < NEAR) {
        queue().store(null_mut(), Relaxed);
        // SAFETY: `enter`'s frame is there, as long as the wait is: whoever ends the wait takes its place away.
        unsafe { escape(place) };
    }
}

/// Runs `wait`; or returns without that, when its thread escapes.
fn escapable<W: FnOnce()>(wait: W) {
    unsafe extern "C" fn run<W: FnOnce()>(wait: *mut c_void) {
        // SAFETY: passed below, and taken once.
        unsafe { (*wait.cast::<Option<W>>()).take().map(|wait| wait()) };
    }
    const { assert!(!core::mem::needs_drop::<W>()) };
    let mut wait = Some(wait);
    // SAFETY: `run` runs once, with what it expects. If it doesn't return, its frames own nothing.
    unsafe { enter((&raw mut wait).cast(), run::<W>, queue().as_ptr()) };
}

/// Writes where [`escape`] goes on, and calls `run` with `argument`. Returns after `run`, or after `escape`. Unwinders know its frame: a
/// cancelled thread's own frames lie behind it, with what they have to clean up.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn enter(
    argument: *mut c_void,
    run: unsafe extern "C" fn(*mut c_void),
    place: *mut *mut c_void,
) {
    naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_rel_offset rbp, 0",
        "push rbx",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_rel_offset rbx, 0",
        "push r12",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_rel_offset r12, 0",
        "push r13",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_rel_offset r13, 0",
        "push r14",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_rel_offset r14, 0",
        "push r15",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_rel_offset r15, 0",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "mov qword ptr [rdx], rsp",
        "call rsi",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "pop r15",
        ".cfi_adjust_cfa_offset -8",
        ".cfi_restore r15",
        "pop r14",
        ".cfi_adjust_cfa_offset -8",
        ".cfi_restore r14",
        "pop r13",
        ".cfi_adjust_cfa_offset -8",
        ".cfi_restore r13",
        "pop r12",
        ".cfi_adjust_cfa_offset -8",
        ".cfi_restore r12",
        "pop rbx",
        ".cfi_adjust_cfa_offset -8",
        ".cfi_restore rbx",
        "pop rbp",
        ".cfi_adjust_cfa_offset -8",
        ".cfi_restore rbp",
        "ret",
        ".cfi_endproc",
    )
}

/// Goes on at the end of [`enter`].
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn escape(place: *mut c_void) -> ! {
    naked_asm!(
        "lea rsp, [rdi + 8]",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
    )
}

/// As above. Untested on this architecture.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
unsafe extern "C" fn enter(
    argument: *mut c_void,
    run: unsafe extern "C" fn(*mut c_void),
    place: *mut *mut c_void,
) {
    naked_asm!(
        ".cfi_startproc",
        "stp x29, x30, [sp, #-160]!",
        ".cfi_def_cfa_offset 160",
        ".cfi_offset x29, -160",
        ".cfi_offset x30, -152",
        "stp x19, x20, [sp, #16]",
        ".cfi_offset x19, -144",
        ".cfi_offset x20, -136",
        "stp x21, x22, [sp, #32]",
        ".cfi_offset x21, -128",
        ".cfi_offset x22, -120",
        "stp x23, x24, [sp, #48]",
        ".cfi_offset x23, -112",
        ".cfi_offset x24, -104",
        "stp x25, x26, [sp, #64]",
        ".cfi_offset x25, -96",
        ".cfi_offset x26, -88",
        "stp x27, x28, [sp, #80]",
        ".cfi_offset x27, -80",
        ".cfi_offset x28, -72",
        "stp d8, d9, [sp, #96]",
        "stp d10, d11, [sp, #112]",
        "stp d12, d13, [sp, #128]",
        "stp d14, d15, [sp, #144]",
        "mov x9, sp",
        "str x9, [x2]",
        "blr x1",
        "ldp x19, x20, [sp, #16]",
        "ldp x21, x22, [sp, #32]",
        "ldp x23, x24, [sp, #48]",
        "ldp x25, x26, [sp, #64]",
        "ldp x27, x28, [sp, #80]",
        "ldp d8, d9, [sp, #96]",
        "ldp d10, d11, [sp, #112]",
        "ldp d12, d13, [sp, #128]",
        "ldp d14, d15, [sp, #144]",
        "ldp x29, x30, [sp], #160",
        "ret",
        ".cfi_endproc",
    )
}

/// As above. Untested on this architecture.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
unsafe extern "C" fn escape(place: *mut c_void) -> ! {
    naked_asm!(
        "mov sp, x0",
        "ldp x19, x20, [sp, #16]",
        "ldp x21, x22, [sp, #32]",
        "ldp x23, x24, [sp, #48]",
        "ldp x25, x26, [sp, #64]",
        "ldp x27, x28, [sp, #80]",
        "ldp d8, d9, [sp, #96]",
        "ldp d10, d11, [sp, #112]",
        "ldp d12, d13, [sp, #128]",
        "ldp d14, d15, [sp, #144]",
        "ldp x29, x30, [sp], #160",
        "ret",
    )
}
