//! The stack of a call of the program's, as far as it can be walked from inside.

use super::open::is_full;
use crate::access::{self, Access};
use crate::caller::Call;
use crate::thread;
use lockwright_contract::counters::Segment;
use lockwright_contract::counters::layout::DEPTH;

/// The stack of the program's call; 0: none, or nobody wants one.
///
/// It follows frame pointers, if the program has them. In a program without them that register may hold anything, and doesn't lead to
/// a chain of frames. Then we copy a piece of the stack, for the reader to unwind. The kernel reads the memory, since it reports an
/// error instead of faulting. A process that may not ask the kernel gets no stacks.
#[cold]
pub(super) fn stack(segment: &Segment, call: Call) -> u32 {
    /// Fewer frames don't count as a chain.
    const CHAIN: usize = 3;
    let may_ask = || access::asking(|access| access == Access::All); // each call below looks again
    if call.from == 0 || !is_full() || !may_ask() {
        return 0;
    }
    let mut frames = [0_u64; DEPTH];
    let depth = by_frame_pointers(call, &mut frames);
    if depth < CHAIN && call.stack != 0 {
        let copied = thread::leaving_errno(|| {
            segment.piece(call.key() | 1, call.registers(), |to| call.copy_stack(to))
        });
        if copied != 0 {
            return copied;
        }
    }
    segment.stack(&frames[..depth])
}

/// Writes return addresses, the call's own first; returns how many.
#[inline(never)] // its copy is too large to keep on a small stack
fn by_frame_pointers(call: Call, frames: &mut [u64; DEPTH]) -> usize {
    /// How many bytes to copy at a time, and how far apart frames may lie.
    const CHUNK: usize = 1024;
    const FAR: usize = 1 << 20;
    frames[0] = call.from as u64;
    let mut depth = 1;
    let mut copy = [0_usize; CHUNK / size_of::<usize>()];
    let (mut base, mut len, mut at) = (0, 0, call.frame);
    // Callers' frames lie above the call's own.
    if at.checked_sub(call.stack).is_none_or(|far| far > FAR && call.stack != 0) {
        return depth;
    }
    while depth < DEPTH && at.is_multiple_of(size_of::<usize>()) && at != 0 {
        let pair = 2 * size_of::<usize>();
        if at < base || at + pair > base + len {
            base = at;
            len = read_memory(at, &mut copy);
            if len < pair {
                break;
            }
        }
        let index = (at - base) / size_of::<usize>();
        let (next, caller) = (copy[index], copy[index + 1]);
        if caller < 4096 {
            break;
        }
        frames[depth] = caller as u64;
        depth += 1;
        if next <= at || next - at > FAR {
            break;
        }
        at = next;
    }
    depth
}

/// Copies memory of our own process that may not exist; returns how many bytes it got.
fn read_memory(at: usize, into: &mut [usize]) -> usize {
    // Not beyond the page's end: the next page may not exist.
    let here = 4096 - at % 4096;
    let from = libc::iovec {
        iov_base: core::ptr::without_provenance_mut(at),
        iov_len: here.min(size_of_val(into)),
    };
    // SAFETY: at most as much as the buffer has room for.
    thread::leaving_errno(|| unsafe { access::copy(into.as_mut_ptr().cast(), &[from]) })
}
