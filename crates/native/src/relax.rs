//! One turn of waiting, awake.

/// Tells the core that we spin.
#[inline(always)]
pub(crate) fn once() {
    core::hint::spin_loop();
}

/// One turn of a wait without bound; gives the CPU away from turn `limit` on.
#[inline(always)]
pub(crate) fn or_yield(looks: &mut u32, limit: u32) {
    if *looks < limit {
        *looks += 1;
        once();
    } else {
        // SAFETY: sched_yield has no preconditions.
        unsafe { libc::sched_yield() };
    }
}
