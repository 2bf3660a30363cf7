//! Was the library loaded into a program that ran already (`lockwright attach`), instead of before it began?
//!
//! Such a program used glibc's functions until then, and will again after `lockwright detach`; some of its calls reach
//! glibc's all the time. So only mutexes are ours in it, because both sides work on them by the same protocol. Its
//! condition variables and readers-writer locks stay glibc's, whose layouts are not ours.

use core::sync::atomic::Ordering::Relaxed;
#[cfg(target_arch = "x86_64")]
use lockwright_record::attached::ATTACHED;
use lockwright_record::attached::{Attached, PRELOADED};

/// This process's.
#[unsafe(no_mangle)]
#[used]
#[expect(unreachable_pub, reason = "the command finds it by its name")]
pub static lockwright_attached: Attached = Attached::new();

/// Finds out. Called by the constructor.
///
/// The dynamic linker lists objects as it loads them: what stands before libc is preloaded, or linked in front of it.
#[cfg(target_arch = "x86_64")]
pub(crate) fn learn() {
    use crate::object::{self, Object};
    let here = (&raw const lockwright_attached).addr();
    object::each(|info, _| {
        let Some(object) = Object::of(info) else { return true };
        let is_libc = object.soname() == Some(c"libc.so.6");
        if is_libc {
            lockwright_attached.how.store(ATTACHED, Relaxed); // before any call leads here
        }
        !is_libc && !object.holds(here)
    });
}

/// `lockwright attach` needs x86-64.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn learn() {}

/// Was it loaded into a program that ran already? Also once it is detached: some calls still lead here.
#[inline(always)]
pub(crate) fn is_late() -> bool {
    lockwright_attached.how.load(Relaxed) != PRELOADED // by itself
}
