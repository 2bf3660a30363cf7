//! Real-time threads: who they are, and on which lock one of them sleeps. A program without a runtime (the command's own benchmarks) has
//! none.

use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::Relaxed;

/// A function that says whether the calling thread has a real-time policy; null: nobody has.
static ASK: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// The word on which an urgent thread sleeps; null: none. Of several such words it is the last one. A hint, which may outlast the thread.
static URGED: AtomicPtr<u32> = AtomicPtr::new(core::ptr::null_mut());

/// From now on this says whether the calling thread has a real-time policy. It is told what `Priorities::is_urgent` is.
pub fn ask_by(tell: fn(u64) -> bool) {
    ASK.store(tell as *mut (), Relaxed); // it points to code, which exists already
}

/// Has the calling thread a real-time policy?
#[inline]
pub(crate) fn is_urgent(now: u64) -> bool {
    let ask = ASK.load(Relaxed); // as above
    // SAFETY: `ask_by` got it as a function of this type.
    !ask.is_null() && unsafe { core::mem::transmute::<*mut (), fn(u64) -> bool>(ask)(now) }
}

/// See `Priorities::urge`.
pub(crate) fn urge(word: *const u32) {
    URGED.store(word.cast_mut(), Relaxed); // only compared
}

/// See `Priorities::urged`.
#[inline(always)]
pub(crate) fn urged() -> *const u32 {
    URGED.load(Relaxed) // as above
}

/// See `Priorities::has_looked`.
pub(crate) fn has_looked(word: *const u32) {
    // Relaxed: as above.
    let _ = URGED.compare_exchange(word.cast_mut(), core::ptr::null_mut(), Relaxed, Relaxed);
}
