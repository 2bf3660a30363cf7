//! One turn of waiting, awake.

use crate::futex::{self, Deadline, Sleeper};
use crate::pause;
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::Relaxed;

/// The number of yields between two naps: enough that a queue lock's waiters are seldom asleep when their turn comes.
const YIELDS: u32 = 512;

/// How long a nap takes, ns.
const NAP_NS: u64 = 50_000;

/// How long a thread sleeps at most, if it is to [ask](ask_now_and_then) now and then, ns.
pub(crate) const ASK_NS: u64 = 20_000_000;

/// What waiting threads ask now and then; null: nothing.
static ASK: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// From now on threads that wait for long, awake or asleep, call this now and then. It may not return.
pub fn ask_now_and_then(ask: fn()) {
    ASK.store(ask as *mut (), Relaxed); // a function, which was there before
}

/// Asks. `false`: nobody wants that.
#[inline(always)]
pub(crate) fn ask() -> bool {
    let ask = ASK.load(Relaxed);
    if !ask.is_null() {
        // SAFETY: stored above, as a function of this type.
        unsafe { core::mem::transmute::<*mut (), fn()>(ask)() };
    }
    !ask.is_null()
}

/// One turn of an unbounded wait for a change of the word at `address`; from look `limit` on it yields the CPU.
#[inline(always)]
pub(crate) fn or_yield(
    looks: &mut u32,
    limit: u32,
    address: *const u8,
    is_same: impl Fn() -> bool,
) {
    if *looks < limit {
        *looks += pause::looks();
        pause::once(address, is_same);
    } else {
        give_away(looks, limit);
    }
}

/// One turn of an unbounded wait for a thread that only needs the CPU. `turns` begins at 0.
pub fn give_cpu(turns: &mut u32) {
    give_away(turns, 0);
}

/// Yields to threads of our priority; and now and then, by a nap, to threads of lower priority, which a real-time thread's
/// yield doesn't let run. The thread that we wait for may be one of these, and may be bound to this CPU.
#[cold]
fn give_away(looks: &mut u32, limit: u32) {
    ask();
    // The last turn may have counted for more than one look.
    if looks.saturating_sub(limit) < YIELDS {
        *looks += 1;
        return futex::yield_cpu();
    }
    *looks = limit;
    // We nap on a futex that nobody wakes: even a program that confines itself allows that system call.
    futex::wait(&0, 0, Some(Deadline::after(NAP_NS)), Sleeper::Own);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often the calling thread has fallen asleep. (A yield doesn't count.)
    fn sleeps() -> i64 {
        // SAFETY: zeroes are a valid value, and the kernel may write to it.
        unsafe {
            let mut usage = core::mem::zeroed();
            assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, &mut usage), 0);
            usage.ru_nvcsw
        }
    }

    #[test]
    fn a_wait_without_bound_sleeps_now_and_then() {
        let (mut looks, word, before) = (0, 0_u32, sleeps());
        // On a busy machine a nap may be over before the thread falls asleep.
        for _ in 0..1000 * (YIELDS + 1) {
            or_yield(&mut looks, 0, (&raw const word).cast(), || true);
            if sleeps() - before >= 10 {
                return;
            }
        }
        panic!("it sleeps seldom, or never");
    }
}
