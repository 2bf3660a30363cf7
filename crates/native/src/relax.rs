//! One turn of waiting, awake.

use crate::futex::{self, Deadline, Sleeper};
use crate::pause;

/// Yields between two naps: so many that a queue lock's waiters are seldom asleep when their turn comes.
const YIELDS: u32 = 512;

/// How long a nap takes, ns.
const NAP_NS: u64 = 50_000;

/// One turn of a wait without bound for a change of the word at `address`; gives the CPU away from look `limit` on.
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

/// Yields to threads of our priority; and now and then to lower ones, which a real-time thread's yield does not let
/// run: the one that we wait for may be among them, with this CPU for its only one.
#[cold]
fn give_away(looks: &mut u32, limit: u32) {
    // The last turn may have counted for more than one look.
    if looks.saturating_sub(limit) < YIELDS {
        *looks += 1;
        return futex::yield_cpu();
    }
    *looks = limit;
    // By a futex that nobody wakes: a program that confines itself allows that system call.
    futex::wait(&0, 0, Some(Deadline::after(NAP_NS)), Sleeper::Own);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often the calling thread has fallen asleep. (A thread that yields goes on.)
    fn sleeps() -> i64 {
        // SAFETY: zeroes are one, and it is written to.
        unsafe {
            let mut usage = core::mem::zeroed();
            assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, &mut usage), 0);
            usage.ru_nvcsw
        }
    }

    #[test]
    fn a_wait_without_bound_sleeps_now_and_then() {
        let (mut looks, word, before) = (0, 0_u32, sleeps());
        for _ in 0..10 * (YIELDS + 1) {
            or_yield(&mut looks, 0, (&raw const word).cast(), || true);
        }
        assert!(sleeps() - before >= 10);
    }
}
