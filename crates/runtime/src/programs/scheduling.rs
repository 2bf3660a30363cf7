//! How the kernel schedules a thread.

use crate::access::{self, Access};
use lockwright_native::system_call;

/// A thread's class and priorities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scheduling {
    /// `SCHED_OTHER` and its like, with or without `SCHED_RESET_ON_FORK`.
    class: i32,
    /// Of real-time classes: 1 to 99; else 0.
    priority: i32,
    /// The nice value, which a thread also has while it is in a real-time class.
    nice: i32,
}

impl Scheduling {
    /// Asks the kernel about a thread; 0: the calling thread. `None`: we may not ask, or there is no such thread.
    #[cold]
    pub(super) fn of(tid: u32) -> Option<Self> {
        access::asking(|access| {
            if access != Access::All {
                return None;
            }
            let mut priority = 0_i32;
            // SAFETY: writes a number.
            let (class, nice) = unsafe {
                let class = system_call!(libc::SYS_sched_getscheduler, tid) as i32;
                system_call!(libc::SYS_sched_getparam, tid, &raw mut priority);
                // The kernel says 20 minus the nice value.
                (class, 20 - system_call!(libc::SYS_getpriority, libc::PRIO_PROCESS, tid) as i32)
            };
            (class >= 0).then_some(Self { class, priority, nice })
        })
    }

    /// As `hooks::Node::prio` has it.
    pub(super) fn prio(self) -> i32 {
        match self.class & !libc::SCHED_RESET_ON_FORK {
            libc::SCHED_FIFO | libc::SCHED_RR => self.priority,
            libc::SCHED_DEADLINE => 99,
            libc::SCHED_IDLE => -19,
            _ => -self.nice.clamp(0, 19),
        }
    }

    /// This priority, for a while: threads and processes that begin meanwhile don't inherit it.
    pub(super) fn for_a_while(prio: i32) -> Self {
        let class = if prio > 0 { libc::SCHED_FIFO } else { libc::SCHED_OTHER };
        let class = class | libc::SCHED_RESET_ON_FORK;
        Self { class, priority: prio.max(0), nice: (-prio).max(0) }
    }

    /// A thread is scheduled so from now on. `false`: the kernel refuses, or we may not ask.
    pub(super) fn set(self, tid: u32) -> bool {
        let set = |class| {
            let priority = &raw const self.priority;
            // SAFETY: numbers, and one that the kernel reads.
            unsafe { system_call!(libc::SYS_sched_setscheduler, tid, class, priority) == 0 }
        };
        // SAFETY: numbers.
        let set_nice = || unsafe {
            system_call!(libc::SYS_setpriority, libc::PRIO_PROCESS, tid, self.nice) == 0
        };
        // Only CAP_SYS_NICE may take the flag away.
        access::asking(|access| {
            access == Access::All
                && (set(self.class) || set(self.class | libc::SCHED_RESET_ON_FORK))
                && (self.priority > 0 || set_nice())
        })
    }

    /// In 32 bits.
    pub(super) fn pack(self) -> u32 {
        let flag = u32::from(self.class & libc::SCHED_RESET_ON_FORK != 0);
        let bytes = [self.class as u8, flag as u8, self.priority as u8, self.nice as u8];
        u32::from_ne_bytes(bytes)
    }

    /// As it was [packed](Self::pack).
    pub(super) fn unpack(packed: u32) -> Self {
        let [class, flag, priority, nice] = packed.to_ne_bytes();
        let flag = if flag == 0 { 0 } else { libc::SCHED_RESET_ON_FORK };
        Self {
            class: i32::from(class) | flag,
            priority: priority.into(),
            nice: i32::from(nice as i8),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_comes_back() {
        let flag = libc::SCHED_RESET_ON_FORK;
        for class in [libc::SCHED_OTHER, libc::SCHED_RR | flag, libc::SCHED_IDLE] {
            for (priority, nice) in [(0, -20), (99, 19), (1, 0)] {
                let one = Scheduling { class, priority, nice };
                assert_eq!(Scheduling::unpack(one.pack()), one);
            }
        }
        let own = Scheduling::of(0).unwrap();
        assert!(own.set(0) && Scheduling::of(0) == Some(own));
    }
}
