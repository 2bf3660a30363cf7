//! Was the library loaded into a program that was already running (`lockwright attach`), or before the program began?
//!
//! A program that we attach to used glibc's functions until then, and will again after `lockwright attach --undo`. Some of its calls
//! reach glibc's functions all the time. So only its mutexes become ours: both sides work on them by the same protocol. Its
//! condition variables and readers-writer locks stay glibc's, since the two sides' layouts differ.

use core::sync::atomic::Ordering::Relaxed;
#[cfg(target_arch = "x86_64")]
use lockwright_contract::attached::ATTACHED;
use lockwright_contract::attached::{Attached, PRELOADED};

/// How the library came into this process.
#[unsafe(no_mangle)]
#[used]
#[expect(unreachable_pub, reason = "the command finds it by its name")]
#[unsafe(link_section = ".lockwright.start")]
pub static lockwright_attached: Attached = Attached::new();

/// Finds out. Called by the constructor.
///
/// The dynamic linker lists objects in the order in which it loads them: those before libc are preloaded, or linked in front
/// of it.
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

/// Was it loaded into a program that was already running? True even after detaching, since some calls still lead here.
#[inline(always)]
pub(crate) fn is_late() -> bool {
    lockwright_attached.how.load(Relaxed) != PRELOADED // guards no other data
}
