//! Records our memory map in the segment: when somebody reads the segment, the process may have ended.

use crate::access::{self, Access};
use crate::thread;
use core::cell::UnsafeCell;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU64};
use lockwright_contract::counters::Segment;
use lockwright_native::system_call;

/// When to record it next, ns of `CLOCK_MONOTONIC`: after one second, two, four, and so on, since libraries are loaded early.
static NEXT_NS: AtomicU64 = AtomicU64::new(0);
/// The pause after that, ns.
static PAUSE_NS: AtomicU64 = AtomicU64::new(FIRST_NS);
const FIRST_NS: u64 = 1_000_000_000;
/// Some thread is recording it.
static BUSY: AtomicBool = AtomicBool::new(false);

/// What the thread that has set BUSY reads into.
static BUFFER: MapsBuffer = MapsBuffer::new();

/// Memory to read into, too large for a small stack.
pub(crate) struct MapsBuffer(UnsafeCell<[u8; 4096]>);

// SAFETY: one thread at a time uses it, see [`read`].
unsafe impl Sync for MapsBuffer {}

impl MapsBuffer {
    pub(crate) const fn new() -> Self {
        Self(UnsafeCell::new([0; 4096]))
    }
}

/// Begins anew, in a fresh segment.
pub(super) fn begin() {
    NEXT_NS.store(0, Relaxed); // hints, all of them
    PAUSE_NS.store(FIRST_NS, Relaxed);
    BUSY.store(false, Relaxed);
}

/// Is it time?
#[inline]
pub(super) fn is_due(now_ns: u64) -> bool {
    now_ns >= NEXT_NS.load(Relaxed) // a hint
}

/// Records it, unless another thread does.
#[cold]
pub(super) fn tell(segment: &Segment, now_ns: u64) {
    // ORDERING: Acquire, pairs with the Release below: the last one has finished.
    if BUSY.swap(true, Acquire) {
        return;
    }
    let pause = PAUSE_NS.load(Relaxed); // only the thread that has set BUSY writes it
    NEXT_NS.store(now_ns + pause, Relaxed);
    PAUSE_NS.store(pause.saturating_mul(2), Relaxed);
    access::asking(|access| {
        if access != Access::None {
            // SAFETY: BUSY is ours.
            thread::leaving_errno(|| segment.map(|push| unsafe { read(&BUFFER, push) }));
        }
    });
    // ORDERING: Release, as above.
    BUSY.store(false, Release);
}

/// Where the mapping of this line begins and ends.
fn ends(line: &[u8]) -> (u64, u64) {
    let mut numbers = line.split(|byte| matches!(byte, b'-' | b' ')).map(|digits| {
        let digit = |byte: &u8| char::from(*byte).to_digit(16).map_or(0, u64::from);
        digits.iter().fold(0_u64, |number, byte| number << 4 | digit(byte))
    });
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// Passes on the lines of `/proc/self/maps` that name something. Uses raw system calls: libc's functions are cancellation points.
///
/// # Safety
/// Nobody else uses `memory` meanwhile.
pub(crate) unsafe fn read(memory: &MapsBuffer, push: &mut dyn FnMut(&[u8])) {
    let (path, flags) = (c"/proc/self/maps", libc::O_RDONLY | libc::O_CLOEXEC);
    // SAFETY: a NUL-terminated path.
    let fd = unsafe { system_call!(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags) };
    if fd < 0 {
        return;
    }
    // SAFETY: the caller's promise.
    let buffer = unsafe { &mut *memory.0.get() };
    let mut len = 0;
    // Where the last file's mapping ends: behind it lie the zero-initialised variables (`.bss`).
    let mut behind = 0;
    loop {
        let room = &mut buffer[len..];
        // SAFETY: a buffer of that size; a file that is ours.
        let got = unsafe { system_call!(libc::SYS_read, fd, room.as_mut_ptr(), room.len()) };
        if got <= 0 {
            break;
        }
        len += got as usize;
        let mut start = 0;
        while let Some(end) = buffer[start..len].iter().position(|&byte| byte == b'\n') {
            let line = &buffer[start..=start + end];
            let (from, to) = ends(line);
            let is_file = line.contains(&b'/');
            let is_bss = from == behind && !line.contains(&b'[');
            if is_file || is_bss || line.ends_with(b"[heap]\n") || line.ends_with(b"[stack]\n") {
                push(line);
            }
            behind = if is_file { to } else { 0 };
            start += end + 1;
        }
        if start == 0 && len == buffer.len() {
            start = len; // a line this long names nothing that we could open
        }
        buffer.copy_within(start..len, 0);
        len -= start;
    }
    // SAFETY: our own descriptor, not used any more.
    unsafe { system_call!(libc::SYS_close, fd) };
}
