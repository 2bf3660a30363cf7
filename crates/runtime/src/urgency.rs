//! Which threads have a real-time policy (`SCHED_FIFO`, `SCHED_RR`, `SCHED_DEADLINE`).
//!
//! Nothing announces that a thread gets another policy: another process may set it. So a thread that has to wait anyway asks the kernel,
//! once in 17 ms at most. A process that confines itself, or is started confined, is not asked for, and has ordinary threads only.

use crate::access::{self, Access};
use crate::thread;
use core::sync::atomic::Ordering::Relaxed;
use lockwright_native::futex::{self, Clock};
use lockwright_native::{system_call, urgency};

/// An answer serves for 1 << this, ns.
const STAYS: u32 = 24;
/// In a thread's word: it has a real-time policy.
const URGENT: u32 = 1;
/// In a thread's word: the rest says when it asked, and isn't 0.
const KNOWN: u32 = 2;
/// A moment's place in a thread's word.
const MOMENT: u32 = 4;

/// Called by the constructor.
pub(crate) fn begin() {
    urgency::ask_by(is_urgent);
}

/// Has the calling thread a real-time policy? `now`: what the clock says; 0: the caller hasn't looked.
fn is_urgent(now: u64) -> bool {
    let now = if now == 0 { futex::now(Clock::Monotonic) } else { now };
    // SAFETY: the calling thread's own memory.
    let own = unsafe { &(*thread::this()).urgency };
    let moment = ((now >> STAYS) as u32).wrapping_mul(MOMENT) | KNOWN;
    let mut known = own.load(Relaxed); // own thread only
    if known & !URGENT != moment {
        known = moment | if asks() { URGENT } else { 0 };
        own.store(known, Relaxed); // own thread only
    }
    known & URGENT != 0
}

#[cold]
#[inline(never)]
fn asks() -> bool {
    access::asking(|access| {
        if access != Access::All {
            return false;
        }
        // SAFETY: a number.
        let class = unsafe { system_call!(libc::SYS_sched_getscheduler, 0) } as i32;
        let class = class & !libc::SCHED_RESET_ON_FORK;
        class >= 0 && [libc::SCHED_FIFO, libc::SCHED_RR, libc::SCHED_DEADLINE].contains(&class)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_changes_its_policy_is_asked_again() {
        std::thread::spawn(|| {
            let set = |class, priority| {
                // SAFETY: a number that the kernel reads; it is this thread's own policy.
                unsafe { system_call!(libc::SYS_sched_setscheduler, 0, class, &raw const priority) }
            };
            let (start, later) = (1 << STAYS, 2 << STAYS);
            assert!(!is_urgent(start));
            if set(libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, 1_i32) != 0 {
                return std::println!("not permitted here: real-time policies");
            }
            let seen = [start + 5, later, later + 7].map(is_urgent);
            assert_eq!((set(libc::SCHED_OTHER, 0), seen), (0, [false, true, true]));
        })
        .join()
        .unwrap();
    }
}
