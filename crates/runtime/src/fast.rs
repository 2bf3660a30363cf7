//! The plain mutex's fast paths: what they depend on (does the process have one thread, and is it watched?), and their steps. Some
//! are written instruction by instruction, and probes stand at them.

use crate::layout::Mutex;
#[cfg(not(target_arch = "x86_64"))]
use crate::probes::fire;
#[cfg(target_arch = "x86_64")]
use crate::probes::note;
use core::ffi::c_int;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicPtr, AtomicU8};
use lockwright_locks::front::{FREE, HELD};
use lockwright_native::symbol;
use lockwright_platform::Ptr;
#[cfg(not(target_arch = "x86_64"))]
use lockwright_platform::Word as _;

/// The byte that is 1 while the process has one thread: glibc's (2.32 and later). Until [`begin`], and with another libc, it is
/// one of ours that says SEVERAL.
#[unsafe(link_section = ".lockwright.start")]
static SINGLE_THREADED: AtomicPtr<AtomicU8> =
    AtomicPtr::new((&raw const ALWAYS_SEVERAL).cast_mut());

/// Finds glibc's byte. Called by the constructor.
pub(crate) fn begin() {
    let glibcs = symbol::single_threaded().cast::<AtomicU8>().cast_mut();
    if glibcs.is_null() {
        return;
    }
    let ours = SINGLE_THREADED.load(Relaxed);
    SINGLE_THREADED.store(glibcs, Relaxed); // a thread that reads the other byte acts correctly, too
    // SAFETY: our variable. It may say WATCHED or GRANTING by now.
    let _ = unsafe { MODE.compare_exchange(ours, glibcs, Relaxed, Relaxed) };
}

/// Does the process have one thread, this one?
#[inline(always)]
pub(crate) fn is_single_threaded() -> bool {
    // SAFETY: glibc's variable, a `char` that is written before a second thread starts; or our own.
    unsafe { (*SINGLE_THREADED.load(Relaxed)).load(Relaxed) != 0 }
}

/// [`mode`]: the process has several threads.
pub(crate) const SEVERAL: u32 = 0;
/// [`mode`]: it has one.
pub(crate) const SINGLE: u32 = 1;
/// [`mode`]: it has several, and threads hold mutexes by nodes: unlock looks at those first.
pub(crate) const GRANTING: u32 = 8;
/// [`mode`]: operations are watched, however many threads there are.
const WATCHED: u32 = 4;

// The address of the byte that `mode` reads: glibc's byte, or one of ours that says WATCHED, GRANTING or SEVERAL. The byte is read
// anyway, so emulation and traces cost nothing in a process that doesn't use them. In assembly, because reaching a Rust
// static would take one more load.
core::arch::global_asm!(
    ".pushsection .lockwright.start,\"aw\",@progbits",
    ".balign 8",
    ".hidden lockwright_mode",
    ".globl lockwright_mode",
    ".type lockwright_mode, @object",
    ".size lockwright_mode, 8",
    "lockwright_mode:",
    ".quad {several}",
    ".popsection",
    several = sym ALWAYS_SEVERAL,
);
static ALWAYS_SEVERAL: AtomicU8 = AtomicU8::new(SEVERAL as u8);
static ALWAYS_WATCHED: AtomicU8 = AtomicU8::new(WATCHED as u8);
static ALWAYS_GRANTING: AtomicU8 = AtomicU8::new(GRANTING as u8);

unsafe extern "C" {
    #[link_name = "lockwright_mode"]
    static MODE: AtomicPtr<AtomicU8>;
}

/// What the plain kinds' fast paths depend on.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn mode() -> u32 {
    let mode: u32;
    // SAFETY: reads our variable, and the byte that it points to, which lives forever.
    unsafe {
        core::arch::asm!(
            "mov {at}, qword ptr [rip + lockwright_mode]",
            "movzx {mode:e}, byte ptr [{at}]",
            at = out(reg) _, mode = out(reg) mode, options(nostack, readonly, preserves_flags),
        );
    }
    mode
}

/// What the plain kinds' fast paths depend on. Untested on this architecture.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub(crate) fn mode() -> u32 {
    // SAFETY: our variable, and the byte that it points to, which lives forever.
    unsafe { u32::from((*MODE.load(Relaxed)).load(Relaxed)) }
}

/// Runs `several`, `single`, or `other` where [`mode`] is neither. (With one comparison; a compiler would make two.)
#[inline(always)]
pub(crate) fn by_mode<R>(
    several: impl FnOnce() -> R,
    single: impl FnOnce() -> R,
    other: impl FnOnce() -> R,
) -> R {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as in `mode`.
    unsafe {
        core::arch::asm!(
            "mov {at}, qword ptr [rip + lockwright_mode]",
            "cmp byte ptr [{at}], {SINGLE}",
            "ja {other}",
            "je {single}",
            at = out(reg) _,
            SINGLE = const SINGLE,
            other = label { return other() },
            single = label { return single() },
            options(nostack, readonly),
        );
        several()
    }
    #[cfg(not(target_arch = "x86_64"))]
    match mode() {
        SEVERAL => several(),
        SINGLE => single(),
        _ => other(),
    }
}

/// From now on [`mode`] says GRANTING, if operations are not watched. A thread that doesn't see that yet finds out from
/// the mutex.
#[inline]
pub(crate) fn grants() {
    let (glibcs, ours) = (SINGLE_THREADED.load(Relaxed), &raw const ALWAYS_GRANTING);
    // SAFETY: our variable. Relaxed: whichever of the two bytes a thread reads, it acts correctly.
    unsafe {
        if core::ptr::eq(MODE.load(Relaxed), glibcs) {
            let _ = MODE.compare_exchange(glibcs, ours.cast_mut(), Relaxed, Relaxed);
        }
    }
}

/// From now on [`mode`] says WATCHED, or not any more.
pub(crate) fn watch(is_watched: bool) {
    let watched = (&raw const ALWAYS_WATCHED).cast_mut();
    let byte = if is_watched { watched } else { SINGLE_THREADED.load(Relaxed) };
    // SAFETY: our variable. Relaxed: it changes only before the program's main, and in a process with one thread.
    unsafe { MODE.store(byte, Relaxed) };
}

/// Takes word 0 if it is free and nobody queues; never if this mode says that operations are watched.
#[inline(always)]
pub(crate) fn fast_take(mutex: &Mutex, mode: impl Fn() -> u32) -> bool {
    // An arrival must not overtake a line without noticing.
    mutex.tail.load(Relaxed).is_null() && take_word(mutex, mode())
}

/// The same, for a mutex at which nobody queues.
#[inline(always)]
pub(crate) fn take_word(mutex: &Mutex, mode: u32) -> bool {
    if mode & !GRANTING == SEVERAL {
        return mutex.word.take(false);
    }
    let free = mutex.word.now() + mode == FREE + SINGLE;
    if free {
        mutex.word.take_alone();
    }
    free
}

/// The mode, ignoring watchers.
#[inline(always)]
pub(crate) fn threads() -> u32 {
    u32::from(is_single_threaded())
}

/// Releases word 0 if nobody needs a wake; never if this mode says that operations are watched. After the write that releases, the
/// mutex may be gone.
#[inline(always)]
pub(crate) fn fast_give(mutex: &Mutex, mode: u32) -> bool {
    if mode == SEVERAL {
        return mutex.word.give();
    }
    let held = mutex.word.now() + mode == HELD + SINGLE;
    if held {
        mutex.word.give_alone();
    }
    held
}

/// Is it of the plain kind? Its cache line is read now and written soon: fetched for writing at once, it moves between cores
/// once, not twice. (This takes as many instructions as Rust's own load, test and jump.)
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn is_plain(m: &Mutex) -> bool {
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
pub(crate) fn is_plain(m: &Mutex) -> bool {
    m.kind.load(Relaxed) == 0
}

// The fast paths' probes stand at instructions that are needed anyway. (Each `nop` took 1 to 2 % of the time of a lock and unlock
// pair, wherever it stood.)

/// Is the line empty? The comparison is the probe `mutex_entry`. (An arrival must not overtake a line without noticing.)
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn nobody_queues_and_say(m: &Mutex) -> bool {
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
pub(crate) fn nobody_queues_and_say(m: &Mutex) -> bool {
    fire!(mutex_entry, m);
    m.tail.load(Relaxed).is_null()
}

/// The answer 0. The instruction that makes it is the probe `mutex_release`.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn released(m: *mut Mutex) -> c_int {
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
pub(crate) fn released(m: *mut Mutex) -> c_int {
    fire!(mutex_release, m);
    0
}

/// Notes the holder. The store is the probe `mutex_acquired`: a tracer that stops here sees that the lock is taken, but not yet
/// by whom.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn own_and_say(m: &Mutex, id: u32) {
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
pub(crate) fn own_and_say(m: &Mutex, id: u32) {
    m.owner.store(id, Relaxed);
    fire!(mutex_acquired, m);
}
