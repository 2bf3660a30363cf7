//! The watcher: a section that runs elsewhere for too long goes home.
//!
//! A section may wait for its carrier's own context in ways that no hook sees: it spins on a flag, or waits for a lock inside of libc. That
//! context can't go on before the section ends. So a thread of ours looks at all carriers now and then, and sends a signal to one that
//! has been in the same section for two looks. The handler interrupts the section, and suspends it right there; it goes on at home, in
//! the handler's end.

use crate::account::account;
use crate::behind::real;
use crate::list::{HOOKS, Hook};
use crate::section::{is_away, is_sent_home};
use crate::switch::system_call;
use crate::thread::{IS_WATCHED, SIGNAL, this};
use core::ffi::{c_int, c_void};
use core::mem::{MaybeUninit, transmute, zeroed};
use core::ptr::null_mut;
use core::sync::atomic::Ordering::Relaxed;

/// How long a look is, ns.
const LOOK_NS: i64 = 5_000_000;

/// Takes a signal that the program doesn't use. `false`: none is left.
pub(crate) fn prepare() -> bool {
    for signal in (libc::SIGRTMIN() + 8..=libc::SIGRTMAX() - 2).rev() {
        // SAFETY: all zeroes is an action, which is then filled in.
        unsafe {
            let mut old: libc::sigaction = zeroed();
            if libc::sigaction(signal, null_mut(), &mut old) != 0
                || old.sa_sigaction != libc::SIG_DFL
            {
                continue;
            }
            let mut action: libc::sigaction = zeroed();
            action.sa_sigaction = rescue as *const () as usize;
            // The signal mask stays as it is: the carrier leaves the handler without its end.
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_NODEFER;
            if libc::sigaction(signal, &action, null_mut()) == 0 {
                SIGNAL.store(signal, Relaxed);
                return true;
            }
        }
    }
    false
}

/// On the kernel thread that runs the section, in the section.
unsafe extern "C" fn rescue(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    let thread = this();
    if !is_away(thread) || !is_sent_home(thread) {
        return;
    }
    account().home[HOOKS].fetch_add(1, Relaxed);
    // At home, whose mask and alternate stack the handler's end must set.
    let context = context.cast::<libc::ucontext_t>();
    // SAFETY: the kernel's, on our stack; its mask has 64 bits.
    unsafe {
        (&raw mut (*context).uc_sigmask).cast::<u64>().write(thread.mask.get());
        let stack = &raw mut (*context).uc_stack;
        system_call(libc::SYS_sigaltstack, [0, stack.addr(), 0, 0]);
    }
}

/// Starts the watcher, if this process has none: before its first thread.
pub(crate) fn begin() {
    if SIGNAL.load(Relaxed) == 0 || IS_WATCHED.swap(true, Relaxed) {
        return;
    }
    type Create = unsafe extern "C" fn(
        *mut libc::pthread_t,
        *const libc::pthread_attr_t,
        extern "C" fn(*mut c_void) -> *mut c_void,
        *mut c_void,
    ) -> c_int;
    // SAFETY: the functions of these names have these types. The thread blocks all signals, and is never joined.
    unsafe {
        let create: Create = transmute(real(Hook::pthread_create as usize));
        let mut thread = MaybeUninit::uninit();
        let mut attributes = MaybeUninit::uninit();
        let (all, mut before) = (u64::MAX, 0_u64);
        system_call(
            libc::SYS_rt_sigprocmask,
            [2, (&raw const all).addr(), (&raw mut before).addr(), 8],
        );
        libc::pthread_attr_init(attributes.as_mut_ptr());
        libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), 128 << 10);
        libc::pthread_attr_setdetachstate(attributes.as_mut_ptr(), libc::PTHREAD_CREATE_DETACHED);
        if create(thread.as_mut_ptr(), attributes.as_ptr(), watch, null_mut()) != 0 {
            IS_WATCHED.store(false, Relaxed);
        }
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        system_call(libc::SYS_rt_sigprocmask, [2, (&raw const before).addr(), 0, 8]);
    }
}

/// A forked child has no watcher yet.
pub(crate) fn forget() {
    IS_WATCHED.store(false, Relaxed);
}

extern "C" fn watch(_: *mut c_void) -> *mut c_void {
    let mut seen = [0_u32; crate::account::ROWS];
    loop {
        let time = [0_i64, LOOK_NS];
        // SAFETY: a time.
        unsafe { system_call(libc::SYS_nanosleep, [time.as_ptr().addr(), 0, 0, 0]) };
        for (row, seen) in account().rows.iter().zip(&mut seen) {
            let (tid, serial) = (row.tid.load(Relaxed), row.serial.load(Relaxed));
            if tid != 0 && serial % 2 == 1 && serial == *seen {
                let signal = SIGNAL.load(Relaxed) as usize;
                // SAFETY: at worst that thread isn't in a section any more, and ignores it; or has ended, and its id is another thread's of
                // this process, which ignores it, too.
                unsafe {
                    let process = libc::getpid() as usize;
                    system_call(libc::SYS_tgkill, [process, tid as usize, signal, 0]);
                }
            }
            *seen = serial;
        }
    }
}
