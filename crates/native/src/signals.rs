//! A moment without signals.

use crate::access::{Access, asking, is_confined};
use crate::kernel::system_call;
use core::ptr::{from_ref, null_mut};

/// A set of signals, as the kernel has it.
pub type Set = u64;

/// What a thread causes itself. It stays open: the kernel ends a process that has blocked such a signal when it comes.
pub const AT_ONCE: Set = bit(libc::SIGILL)
    | bit(libc::SIGTRAP)
    | bit(libc::SIGBUS)
    | bit(libc::SIGFPE)
    | bit(libc::SIGSEGV)
    | bit(libc::SIGSYS);

const fn bit(signal: libc::c_int) -> Set {
    1 << (signal - 1)
}

/// Runs `run` while the calling thread takes no signal but its own faults, nor cancellation's; those that come wait. `None`: the process has
/// confined itself, or the kernel refuses, and `run` hasn't run. (Any other filter lets libc's own threads block signals.)
#[cold]
pub(crate) fn blocked<R>(run: impl FnOnce() -> R) -> Option<R> {
    if is_confined() {
        return None; // without a look at what all threads share
    }
    asking(|access| {
        if access == Access::None {
            return None;
        }
        let mut before: Set = 0;
        // SAFETY: sets of the kernel's size, 8 bytes, that outlive the call.
        let result = unsafe {
            let all = from_ref(&!AT_ONCE);
            let size = size_of::<Set>();
            system_call!(libc::SYS_rt_sigprocmask, libc::SIG_BLOCK, all, &raw mut before, size)
        };
        if result != 0 {
            return None;
        }
        let result = run();
        // SAFETY: as the call above, with the set that was.
        unsafe {
            let (before, no_set) = (&raw const before, null_mut::<Set>());
            let size = size_of::<Set>();
            system_call!(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, before, no_set, size);
        }
        Some(result)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    use core::sync::atomic::AtomicU32;
    use core::sync::atomic::Ordering::Relaxed;

    static HANDLED: AtomicU32 = AtomicU32::new(0);

    extern "C" fn handle(_: libc::c_int) {
        HANDLED.fetch_add(1, Relaxed);
    }

    #[test]
    fn a_signal_waits_until_it_is_over() {
        let seen = || HANDLED.load(Relaxed);
        // SAFETY: a handler that only counts; a signal that nobody else here uses, to this thread.
        unsafe {
            libc::signal(libc::SIGUSR2, handle as extern "C" fn(libc::c_int) as libc::sighandler_t);
            let within = blocked(|| {
                libc::raise(libc::SIGUSR2);
                seen()
            });
            assert_eq!((within, seen()), (Some(0), 1));
            libc::raise(libc::SIGUSR2);
        }
        assert_eq!(seen(), 2);
    }

    #[test]
    fn a_threads_own_fault_does_not_wait() {
        static FAULTS: AtomicU32 = AtomicU32::new(0);
        extern "C" fn handle(_: libc::c_int) {
            FAULTS.fetch_add(1, Relaxed);
        }
        // SAFETY: a handler that only counts.
        let within = unsafe {
            libc::signal(libc::SIGTRAP, handle as extern "C" fn(libc::c_int) as libc::sighandler_t);
            blocked(|| {
                libc::raise(libc::SIGTRAP);
                FAULTS.load(Relaxed)
            })
        };
        assert_eq!(within, Some(1));
    }
}
