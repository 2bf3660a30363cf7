//! Lines that stay readable forever: a lock-free stack of 128-byte pieces, which never shrinks. (In CLH, a waiter looks at its
//! predecessor's cell after that thread may have left; in front locks, a holder stays in the line.) The first 512 lines lie in
//! the library, so that a program that confines itself is not killed for a wait. Further lines are mapped.

use crate::kernel;
use crate::place;
use core::cell::UnsafeCell;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};

/// Bytes of a line.
pub const LINE: usize = 128;
const LINES_PER_CHUNK: usize = 512;
const CHUNKS: usize = 2048;

/// The first chunk. Only used pages take memory.
#[repr(align(128))]
struct First(UnsafeCell<[u8; LINES_PER_CHUNK * LINE]>);
// SAFETY: each line belongs only to the thread that took it.
unsafe impl Sync for First {}
static FIRST: First = First(UnsafeCell::new([0; LINES_PER_CHUNK * LINE]));

/// The other chunks of lines, by number; null until needed.
static CHUNK: [AtomicPtr<u8>; CHUNKS] = [const { AtomicPtr::new(core::ptr::null_mut()) }; CHUNKS];
/// How many lines were ever cut from chunks.
static CUT: AtomicU32 = AtomicU32::new(0);
/// The stack of free lines: a tag in the upper half (against ABA), number + 1 of the top line in the lower half.
static FREE: AtomicU64 = AtomicU64::new(0);
/// How many forks lie between the program's start and this process. (Forks in one another: it would take 4 billion to come round.)
static FORKS: AtomicU32 = AtomicU32::new(0);

/// This process is a child, and has one thread. Its parent's other threads have left lines behind, which nobody gives back.
pub fn forked() {
    FORKS.store(FORKS.load(Relaxed).wrapping_add(1), Relaxed); // one thread
}

/// See `Platform::is_line_ours`.
pub fn is_ours(line: *const u8) -> bool {
    // SAFETY: lines stay readable. Relaxed: the caller has synchronized with the thread that took it.
    unsafe { (*below(line.cast_mut())).load(Relaxed) == FORKS.load(Relaxed) }
}

/// Where line `number` lies, if its chunk exists.
fn address(number: u32) -> *mut u8 {
    let (which, line) = (number as usize / LINES_PER_CHUNK, number as usize % LINES_PER_CHUNK);
    let chunk = match which {
        0 => FIRST.0.get().cast(),
        _ => CHUNK[which].load(Acquire), // pairs with [chunk]
    };
    chunk.wrapping_add(line * LINE)
}

/// The last word of a free line holds the number + 1 of the line below it; of a line in use, the [`FORKS`] when it was taken. (Not the
/// first word: a late waiter may still look at that, and must see what the last owner left.)
fn below(line: *mut u8) -> *const AtomicU32 {
    line.wrapping_add(LINE - 4).cast()
}

/// The last word but one of a line holds its own number.
fn number(line: *mut u8) -> *mut u32 {
    line.wrapping_add(LINE - 8).cast()
}

/// A zeroed line; see `Platform::take_line`. If a million lines are out, or no memory is left, it waits until a line comes back.
pub fn take() -> *mut u8 {
    let mut turns = 0;
    loop {
        let line = at_hand().or_else(pop).or_else(cut);
        if let Some(line) = line {
            // SAFETY: only ours. Relaxed: whoever gets to know the line has synchronized with us. A late look of `pop` finds that the
            // stack has changed.
            unsafe { (*below(line)).store(FORKS.load(Relaxed), Relaxed) };
            return line;
        }
        crate::relax::give_cpu(&mut turns);
    }
}

/// For each CPU, numbers of free lines, or 0. So giving a line back and taking one on the same CPU touches nothing that other
/// CPUs touch.
#[repr(align(128))]
struct Hand([AtomicU32; 4]);
static HANDS: [Hand; 64] = [const { Hand([const { AtomicU32::new(0) }; 4]) }; 64];

/// The slot of the calling thread's CPU. If the thread has moved meanwhile, these lines will do as well.
fn hand() -> &'static Hand {
    &HANDS[place::cpu() as usize % HANDS.len()]
}

fn at_hand() -> Option<*mut u8> {
    // Relaxed: the swap checks it again. Acquire, pairs with [put]: the last owner is done with the line.
    let held = hand().0.iter().find(|held| held.load(Relaxed) != 0)?;
    let number = held.swap(0, Acquire);
    (number != 0).then(|| {
        let line = address(number - 1);
        // SAFETY: by the swap, only ours; we keep the number at its end.
        unsafe { line.write_bytes(0, LINE - 8) };
        line
    })
}

fn pop() -> Option<*mut u8> {
    let mut top = FREE.load(Acquire); // pairs with [push]
    while top as u32 != 0 {
        let line = address(top as u32 - 1);
        // SAFETY: lines are never unmapped; the tag below refuses a stale value.
        let next = unsafe { (*below(line)).load(Relaxed) };
        let tagged = ((top >> 32) + 1) << 32 | u64::from(next);
        // Acquire on both sides: pairs with [push], so that `below` of the new top is visible.
        match FREE.compare_exchange_weak(top, tagged, Acquire, Acquire) {
            Ok(_) => {
                // SAFETY: by the successful pop, only ours; we keep the number at its end.
                unsafe { line.write_bytes(0, LINE - 8) };
                return Some(line);
            }
            Err(seen) => top = seen,
        }
    }
    None
}

#[cold]
fn cut() -> Option<*mut u8> {
    if CUT.load(Relaxed) as usize >= CHUNKS * LINES_PER_CHUNK - 4096 {
        return None; // 4096: more threads than can be between this line and the next
    }
    let at = CUT.fetch_add(1, Relaxed); // just a counter
    let chunk = &CHUNK[at as usize / LINES_PER_CHUNK];
    if at as usize >= LINES_PER_CHUNK && chunk.load(Acquire).is_null() {
        let size = LINES_PER_CHUNK * LINE;
        let fresh = kernel::map(size)?; // none: this number is lost, but never handed out twice
        // [chunk] AcqRel: publishes the mapping; if another thread was first, we use that thread's.
        if chunk.compare_exchange(core::ptr::null_mut(), fresh.cast(), AcqRel, Acquire).is_err() {
            // SAFETY: our own mapping, which nobody has seen.
            unsafe { kernel::unmap(fresh, size) };
        }
    }
    let line = address(at);
    // SAFETY: cut from the chunk for us alone.
    unsafe { number(line).write(at) };
    Some(line)
}

/// Gives a line back.
///
/// # Safety
/// It came from [`take`], and the caller won't write to it any more.
pub unsafe fn give(line: *mut u8) {
    // SAFETY: `cut` wrote it, and nobody has written it since.
    let own = unsafe { number(line).read() } + 1;
    if let Some(free) = hand().0.iter().find(|held| held.load(Relaxed) == 0)
        // [put] Release: pairs with the swap in `at_hand`.
        && free.compare_exchange(0, own, Release, Relaxed).is_ok()
    {
        return;
    }
    let mut top = FREE.load(Relaxed); // the exchange checks it again
    loop {
        // SAFETY: the line is ours until the exchange succeeds.
        unsafe { (*below(line)).store(top as u32, Relaxed) };
        let tagged = ((top >> 32) + 1) << 32 | u64::from(own);
        // [push] Release: publishes `below`, pairs with the loads in `take`.
        match FREE.compare_exchange_weak(top, tagged, Release, Relaxed) {
            Ok(_) => return,
            Err(seen) => top = seen,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn a_line_knows_whether_it_was_taken_before_a_fork() {
        let line = take();
        assert!(is_ours(line));
        // SAFETY: the child makes no call but these, and `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            forked();
            let new = take();
            let is_right = !is_ours(line) && is_ours(new) && new != line;
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(!is_right)) };
        }
        let mut status = 0;
        // SAFETY: our own child.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
        assert!(is_ours(line), "the parent goes on");
        // SAFETY: taken above, not used any more.
        unsafe { give(line) };
    }

    #[test]
    fn lines_are_distinct_zeroed_and_handed_out_again() {
        let lines: Vec<*mut u8> = (0..1500).map(|_| take()).collect();
        let mut sorted = lines.clone();
        sorted.sort();
        sorted.dedup();
        assert_eq!(sorted.len(), lines.len());
        for &line in &lines {
            assert_eq!(line as usize % LINE, 0);
            // SAFETY: ours since `take`.
            unsafe { line.write_bytes(0xff, 64) };
        }
        for &line in &lines {
            // SAFETY: taken above, not used any more.
            unsafe { give(line) };
        }
        // Other tests take and give lines, too, but fewer; and this thread may have moved to another CPU.
        let again: Vec<*mut u8> = (0..lines.len()).map(|_| take()).collect();
        assert!(again.iter().any(|line| sorted.binary_search(line).is_ok()));
        for line in again {
            // SAFETY: ours since `take`.
            assert_eq!(unsafe { line.read() }, 0);
            // SAFETY: taken above, not used any more.
            unsafe { give(line) };
        }
    }
}
