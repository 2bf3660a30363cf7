//! Calls from functions that only pass a lock on count where those functions were called.
//!
//! Commands fill the table ([`lockwright_contract::counters::wrappers`]). It is looked at only when something is recorded, which is
//! seldom. Beyond our own page of the stack the kernel reads it for us, since a table that is out of date may lead anywhere.

use crate::access;
use crate::caller::Call;
use core::ptr::{from_mut, with_exposed_provenance, without_provenance_mut};
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use lockwright_contract::counters::wrappers::{BackSlot, Base, WRAPPERS, Wrapper, Wrappers};

/// Wrappers may be nested this deeply.
const DEEPEST: usize = 4;

/// The program's wrappers.
#[unsafe(no_mangle)]
#[used]
pub(crate) static lockwright_wrappers: Wrappers = Wrappers::new();

/// Has a command told us of any?
#[inline(always)]
pub(crate) fn are_known() -> bool {
    lockwright_wrappers.count.load(Relaxed) != 0 // a hint
}

/// The call of the outermost wrapper, if this one came from wrappers.
#[inline]
pub(super) fn beyond(call: Call) -> Call {
    // ORDERING: Acquire, pairs with the command's write of the count, which comes after that of the entries. (The kernel orders the
    // command's writes.)
    match lockwright_wrappers.count.load(Acquire) {
        0 => call,
        count => look_beyond(call, (count as usize).min(WRAPPERS)),
    }
}

#[cold]
fn look_beyond(mut call: Call, count: usize) -> Call {
    for _ in 0..DEEPEST {
        // Relaxed: published by the count.
        let is_its = |one: &&Wrapper| one.from.load(Relaxed) == call.from as u64;
        let all = &lockwright_wrappers.all[..count];
        let Some(found) = all.iter().find(is_its) else { return call };
        let slot = BackSlot::unpack(found.slot.load(Relaxed)); // as above
        let place = |(base, distance): (Base, u16)| {
            let base = if base == Base::Stack { call.stack } else { call.frame };
            base.wrapping_add(distance.into())
        };
        let back = place(slot.back);
        let Some(from) = word(back) else { return call };
        let frame = match slot.frame {
            None => call.frame,
            Some(at) => word(place(at)).unwrap_or(0),
        };
        call = Call { from, frame, stack: back.wrapping_add(size_of::<usize>()) };
    }
    call
}

/// A word of the thread's stack; `None`: there is none, or this process may not ask the kernel. No call where the word's page is the
/// one that our own frame ends in, as it is mostly: callers' frames lie above, and that page exists.
#[inline(never)] // so that the frame is a small one
fn word(at: usize) -> Option<usize> {
    const PAGE: usize = 4096;
    let mut word = 0_usize;
    let here = (&raw mut word).addr();
    if at > here && at / PAGE == here / PAGE && at.is_multiple_of(size_of::<usize>()) {
        // SAFETY: in the page of our own variable, above it: an aligned word of the callers' frames, which nobody else writes now.
        return Some(unsafe { with_exposed_provenance::<usize>(at).read_volatile() });
    }
    let theirs = libc::iovec { iov_base: without_provenance_mut(at), iov_len: size_of::<usize>() };
    // SAFETY: room for one word.
    let got = unsafe { access::copy(from_mut(&mut word).cast(), &[theirs]) };
    (got == size_of::<usize>()).then_some(word)
}
