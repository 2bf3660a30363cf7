//! The steps of the fast paths that are written instruction by instruction, and the probes that stand at them.

use crate::layout::Mutex;
#[cfg(not(target_arch = "x86_64"))]
use crate::probes::fire;
#[cfg(target_arch = "x86_64")]
use crate::probes::note;
use core::ffi::c_int;
#[cfg(not(target_arch = "x86_64"))]
use core::sync::atomic::Ordering::Relaxed;
#[cfg(not(target_arch = "x86_64"))]
use lockwright_platform::{Ptr as _, Word as _};

/// Is it of the plain kind? Its cache line is read now and written soon: fetched for writing at once, it moves between cores
/// once, not twice. (This takes as many instructions as Rust's own load, test and jump.)
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(super) fn is_plain(m: &Mutex) -> bool {
    const KIND: usize = core::mem::offset_of!(Mutex, kind);
    // SAFETY: reads a field of the mutex, which is atomic. A processor without `prefetchw` ignores it.
    unsafe {
        core::arch::asm!(
            "prefetchw byte ptr [{m}]",
            "cmp dword ptr [{m} + {kind}], 0",
            "jne {other}",
            m = in(reg) m,
            kind = const KIND,
            other = label { return false },
            options(nostack, readonly),
        );
    }
    true
}

/// Is it of the plain kind?
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub(super) fn is_plain(m: &Mutex) -> bool {
    m.kind.load(Relaxed) == 0
}

// The fast paths' probes stand at instructions that are needed anyway. (Each `nop` took 1 to 2 % of the time of a lock and unlock
// pair, wherever it stood.)

/// Is the line empty? The comparison is the probe `mutex_entry`. (An arrival must not overtake a line without noticing.)
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(super) fn nobody_queues_and_say(m: &Mutex) -> bool {
    const TAIL: usize = core::mem::offset_of!(Mutex, tail);
    // SAFETY: reads a field of the mutex, which is an atomic, as a relaxed load does.
    unsafe {
        core::arch::asm!(
            note!("cmpq $0, {1}({0})", mutex_entry, "8@{0}"),
            "jne {2}",
            in(reg) m,
            const TAIL,
            label { return false },
            options(att_syntax, nostack, readonly),
        );
    }
    true
}

/// Is the line empty? And the probe `mutex_entry`.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub(super) fn nobody_queues_and_say(m: &Mutex) -> bool {
    fire!(mutex_entry, m);
    m.tail.load(Relaxed).is_null()
}

/// The answer 0. The instruction that makes it is the probe `mutex_release`.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(super) fn released(m: *mut Mutex) -> c_int {
    let answer: c_int;
    // SAFETY: sets a register. It must not be `nomem`, since the release has to come before it.
    unsafe {
        core::arch::asm!(
            note!("xorl %eax, %eax", mutex_release, "8@{0}"),
            in(reg) m,
            lateout("eax") answer,
            options(att_syntax, nostack, readonly)
        );
    }
    answer
}

/// The answer 0, and the probe `mutex_release`.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub(super) fn released(m: *mut Mutex) -> c_int {
    fire!(mutex_release, m);
    0
}

/// Notes the holder. The store is the probe `mutex_acquired`: a tracer that stops here sees that the lock is taken, but not yet
/// by whom.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(super) fn own_and_say(m: &Mutex, id: u32) {
    const OWNER: usize = core::mem::offset_of!(Mutex, owner);
    // SAFETY: writes a field of the mutex, which is an atomic, as a relaxed store does.
    unsafe {
        core::arch::asm!(
            note!("movl {1:e}, {2}({0})", mutex_acquired, "8@{0}"),
            in(reg) m,
            in(reg) id,
            const OWNER,
            options(att_syntax, nostack, preserves_flags)
        );
    }
}

/// Notes the holder.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub(super) fn own_and_say(m: &Mutex, id: u32) {
    m.owner.store(id, Relaxed);
    fire!(mutex_acquired, m);
}
