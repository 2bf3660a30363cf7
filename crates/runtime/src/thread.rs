//! What we keep for each thread: its reorder window, its epochs, and the watchers' accounts. And what glibc keeps about it:
//! whether it is being cancelled, and its kernel id. (In a child of a raw `clone`, glibc's word is as the program left it, for
//! us as for glibc's own lock code. Chromium's zygote corrects the word.)
//!
//! Our part lies in static TLS with the initial-exec model, reached by one load and the thread pointer. Rust's own
//! `thread_local!` would call `__tls_get_addr` here, which may allocate. But this library must work inside `malloc`.

use core::cell::UnsafeCell;
use core::ffi::{c_char, c_int, c_void};
use core::mem::needs_drop;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize};
use lockwright_locks::amp::standby::WINDOW_MAX_NS;
use lockwright_native::symbol::{self, Scope};
use lockwright_native::{futex, kernel};

/// One thread's memory. Zeroed when the thread starts.
#[repr(C)]
pub(crate) struct Thread {
    /// Kernel thread id, if glibc's copy isn't found; 0: not asked for yet. Own thread only.
    tid: AtomicU32,
    /// 100 ms minus the reorder window of its current epoch, ns. Own thread only.
    pub(crate) narrowed_ns: AtomicU32,
    /// Its epochs, an `epoch::Block`; null: it has run none. Own thread only.
    pub(crate) epochs: AtomicPtr<c_void>,
    /// Contended acquisitions so far, wrapping. Own thread only.
    pub(crate) waits: AtomicU32,
    /// Kernel thread id when it last forked; 0: it hasn't. In the child that is the parent's. Own thread only.
    forked_as: AtomicU32,
    /// The locks that it holds by nodes. Own thread only.
    pub(crate) held: Room<24>,
    /// The emulation's account. Own thread only.
    pub(crate) paced: Room<40>,
    /// The trace's account. Own thread only.
    pub(crate) traced: Room<32>,
    /// The observation's account. Own thread only.
    pub(crate) observed: Room<224>,
    /// The account of the watcher of lock orders. Own thread only.
    pub(crate) ordered: Room<24>,
    /// What policies keep about it, a `programs::cells::ThreadCell`; null: no policy has been asked. Own thread only.
    pub(crate) cell: AtomicPtr<c_void>,
    /// Whether it has a real-time policy, see `urgency`. Own thread only.
    pub(crate) urgency: AtomicU32,
    /// Where it goes on if it gives up its place in a textbook lock's queue, see queued.rs; null: it is in none. Own thread only.
    pub(crate) queue: AtomicPtr<c_void>,
}

const _: () = assert!(size_of::<Thread>() <= 400);

/// Room for an account of an unknown type.
#[repr(C, align(8))]
pub(crate) struct Room<const BYTES: usize>(UnsafeCell<[u8; BYTES]>);

impl<const BYTES: usize> Room<BYTES> {
    /// The account.
    ///
    /// # Safety
    /// The room is the calling thread's. It is used with the same `T` each time, and all zeroes are a `T`.
    #[inline(always)]
    pub(crate) unsafe fn account<T>(&self) -> &T {
        const { assert!(size_of::<T>() == BYTES && align_of::<T>() <= 8 && !needs_drop::<T>()) };
        // SAFETY: large enough, aligned, and a `T`, by our caller's promise.
        unsafe { &*self.0.get().cast() }
    }
}

core::arch::global_asm!(
    ".pushsection .tbss,\"awT\",@nobits",
    ".balign 16",
    ".hidden lockwright_thread",
    ".globl lockwright_thread",
    ".type lockwright_thread, @object",
    ".size lockwright_thread, 400",
    "lockwright_thread:",
    ".zero 400",
    ".popsection",
);

/// The calling thread's memory.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn this() -> *const Thread {
    let at: *const Thread;
    // SAFETY: computes an address: the thread pointer plus this module's static TLS offset.
    unsafe {
        core::arch::asm!(
            "mov {at}, qword ptr fs:[0]",
            "add {at}, qword ptr [rip + lockwright_thread@GOTTPOFF]",
            at = out(reg) at, options(nostack, pure, readonly),
        );
    }
    at
}

/// The calling thread's memory. Untested on this architecture.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub(crate) fn this() -> *const Thread {
    let at: *const Thread;
    // SAFETY: computes an address: the thread pointer plus this module's static TLS offset.
    unsafe {
        core::arch::asm!(
            "mrs {at}, tpidr_el0",
            "adrp {offset}, :gottprel:lockwright_thread",
            "ldr {offset}, [{offset}, :gottprel_lo12:lockwright_thread]",
            "add {at}, {at}, {offset}",
            at = out(reg) at, offset = out(reg) _, options(nostack, pure, readonly),
        );
    }
    at
}

// Where glibc keeps a thread's kernel id (`struct pthread`'s `tid`), by distance from the thread pointer; 0: not known.
// In assembly, because reaching a Rust static would take one more load.
core::arch::global_asm!(
    ".pushsection .lockwright.start,\"aw\",@progbits",
    ".balign 8",
    ".hidden lockwright_tid_at",
    ".globl lockwright_tid_at",
    ".type lockwright_tid_at, @object",
    ".size lockwright_tid_at, 8",
    "lockwright_tid_at:",
    ".quad 0",
    ".popsection",
);

unsafe extern "C" {
    #[link_name = "lockwright_tid_at"]
    static TID_AT: AtomicUsize;
}

/// The calling thread's kernel id, from glibc's copy if we can find it.
#[inline(always)]
pub(crate) fn id() -> u32 {
    known_id().unwrap_or_else(cached_id)
}

/// The same, if we know where glibc keeps it.
#[inline(always)]
pub(crate) fn known_id() -> Option<u32> {
    match tid_at() {
        0 => None,
        // SAFETY: `learn` found it there.
        at => Some(unsafe { tid(at) }),
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn tid_at() -> usize {
    let at: usize;
    // SAFETY: reads our variable.
    unsafe {
        core::arch::asm!(
            "mov {at}, qword ptr [rip + lockwright_tid_at]",
            at = out(reg) at, options(nostack, readonly, preserves_flags),
        );
    }
    at
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn tid_at() -> usize {
    // SAFETY: our variable.
    unsafe { TID_AT.load(Relaxed) } // written once; 0 works, too
}

/// The word at this distance from the thread pointer.
///
/// # Safety
/// It lies in the thread's control block.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn tid(at: usize) -> u32 {
    let tid: u32;
    // SAFETY: the caller's promise.
    unsafe {
        core::arch::asm!(
            "mov {tid:e}, dword ptr fs:[{at}]",
            at = in(reg) at, tid = out(reg) tid, options(nostack, readonly, preserves_flags),
        );
    }
    tid
}

/// The word at this distance from the thread pointer. Untested on this architecture.
///
/// # Safety
/// It lies in the thread's control block.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
unsafe fn tid(at: usize) -> u32 {
    // SAFETY: the caller's promise; nobody writes it while the thread runs.
    unsafe { *(pointer().wrapping_add(at) as *const u32) }
}

/// The thread pointer.
pub(crate) fn pointer() -> usize {
    let at: usize;
    // SAFETY: reads a register, or the word in which the architecture's TLS keeps it.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        core::arch::asm!("mov {}, qword ptr fs:[0]", out(reg) at, options(nostack, readonly));
        #[cfg(target_arch = "aarch64")] // untested
        core::arch::asm!("mrs {}, tpidr_el0", out(reg) at, options(nostack, readonly));
    }
    at
}

/// The calling thread's row of the table in which readers show themselves. A forked child has its parent's thread pointer, but not its id.
#[inline(always)]
pub(crate) fn row() -> usize {
    pointer().wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 48
}

/// Learns where glibc keeps a thread's id. glibc tells debuggers. The kernel knows, too: it is the word that the kernel clears
/// when the thread ends (in a static program this is the only source). We believe either of them if our own id is in that word.
///
/// Called by a constructor. Before that, and if this finds nothing, we keep a copy of our own.
pub(crate) fn learn() {
    // The address of a word in the calling thread's control block, as glibc tells libthread_db.
    let word_of = |name| {
        // {size in bits, elements, distance from the control block}
        let field: *const [u32; 3] = symbol::find(Scope::Process, name).cast();
        if field.is_null() {
            return None;
        }
        // SAFETY: glibc's constant of that layout; its own function has no preconditions.
        let ([bits, count, distance], block) = unsafe { (*field, libc::pthread_self() as usize) };
        (bits == 32 && count == 1).then_some(block.wrapping_add(distance as usize))
    };
    let told = || word_of(c"_thread_db_pthread_tid");
    let cleared = || {
        const PR_GET_TID_ADDRESS: c_int = 40;
        let mut word = 0_usize;
        let to = (&raw mut word).expose_provenance();
        // SAFETY: writes an address to `word`. By a system call, since our own `prctl` is for the program.
        let error =
            unsafe { kernel::call(libc::SYS_prctl, [PR_GET_TID_ADDRESS as usize, to, 0, 0, 0, 0]) };
        (error == 0).then_some(word)
    };
    let own = kernel::thread_id();
    let is_it = |word: &usize| {
        // It must not be one of the program's variables, nor lie at the thread pointer itself.
        (1..NEAR).contains(&word.abs_diff(pointer()))
            && word.is_multiple_of(align_of::<u32>())
            // SAFETY: in the calling thread's control block, or so near to it that it is mapped.
            && unsafe { *(*word as *const u32) } == own
    };
    if let Some(word) = told().filter(is_it).or_else(|| cleared().filter(is_it)) {
        // SAFETY: our variable. Relaxed: until another thread sees it, it uses its copy, which is the same.
        unsafe { TID_AT.store(word.wrapping_sub(pointer()), Relaxed) };
    }
    let cancel = word_of(c"_thread_db_pthread_cancelhandling").filter(|_| has_known_cancellation());
    if let Some(word) = cancel.filter(|word| (1..NEAR).contains(&word.abs_diff(pointer()))) {
        CANCEL_AT.store(word.wrapping_sub(pointer()), Relaxed); // one thread, as a rule; 0 works, too
    }
}

/// Where glibc keeps a thread's cancellation state (`struct pthread`'s `cancelhandling`), as a distance from the
/// thread pointer; 0: not known.
#[unsafe(link_section = ".lockwright.start")]
static CANCEL_AT: AtomicUsize = AtomicUsize::new(0);

/// If a canceller has announced its signal, waits until the signal has arrived.
///
/// It uses two bits of glibc 2.34 to 2.40: "canceling" is set before the signal is sent, "canceled" by its handler.
pub(crate) fn await_canceller() {
    const CANCELING: u32 = 1 << 2;
    const CANCELED: u32 = 1 << 3;
    let at = CANCEL_AT.load(Relaxed); // written once, before there are threads
    if at == 0 {
        return;
    }
    // SAFETY: `learn` found it there; glibc writes it atomically.
    let word = unsafe { AtomicU32::from_ptr(pointer().wrapping_add(at) as *mut u32) };
    loop {
        // Relaxed: the signal's handler runs on this very thread.
        let now = word.load(Relaxed);
        if now & (CANCELING | CANCELED) != CANCELING {
            return;
        }
        // Asleep, so that a canceller of lower priority gets the CPU: the signal ends the sleep, or has changed the word.
        futex::wait(word.as_ptr(), now, None, futex::Sleeper::Own);
    }
}

/// Does this glibc keep a thread's cancellation in the bits that [`await_canceller`] knows?
fn has_known_cancellation() -> bool {
    let version = symbol::libc_version();
    if version.is_null() {
        return false;
    }
    // SAFETY: the function of that name has this type; its result is constant, and ends in a NUL.
    let version = unsafe {
        let version: unsafe extern "C" fn() -> *const c_char = core::mem::transmute(version);
        core::ffi::CStr::from_ptr(version())
    };
    let minor =
        version.to_bytes().strip_prefix(b"2.").and_then(|text| core::str::from_utf8(text).ok());
    minor.and_then(|text| text.parse().ok()).is_some_and(|minor: u32| (34..=40).contains(&minor))
}

/// The largest size of a control block: glibc 2.36's has 2304 bytes, with the id at 720.
const NEAR: usize = 2048;

/// Our own copy of the id.
#[cold]
#[inline(never)]
fn cached_id() -> u32 {
    // SAFETY: no preconditions; and the calling thread's own memory.
    unsafe {
        let known = (*this()).tid.load(Relaxed); // own thread only
        if known != 0 {
            return known;
        }
        let tid = kernel::thread_id();
        (*this()).tid.store(tid, Relaxed); // own thread only
        tid
    }
}

/// The calling thread is about to fork.
pub(crate) fn forks() {
    // SAFETY: the calling thread's own memory.
    unsafe { (*this()).forked_as.store(id(), Relaxed) } // own thread only
}

/// In the child of a fork: the kernel id that its thread had in the parent; 0: not known.
pub(crate) fn id_in_parent() -> u32 {
    // SAFETY: the calling thread's own memory.
    unsafe { (*this()).forked_as.load(Relaxed) } // own thread only
}

/// In the child of a fork: the thread has another kernel id. (glibc updates its own word.)
pub(crate) fn forget_id() {
    // SAFETY: the calling thread's own memory.
    unsafe { (*this()).tid.store(0, Relaxed) } // own thread only
}

/// Runs `run`, and restores the program's `errno`: lock operations leave it alone.
pub(crate) fn leaving_errno<R>(run: impl FnOnce() -> R) -> R {
    // SAFETY: the calling thread's own word.
    unsafe {
        let errno = libc::__errno_location();
        let kept = *errno;
        let result = run();
        *errno = kept;
        result
    }
}

/// The reorder window of the calling thread's innermost epoch, ns; 100 ms outside epochs.
#[inline(always)]
pub(crate) fn window_ns() -> u32 {
    // SAFETY: the calling thread's own memory.
    unsafe { (*this()).window_ns() }
}

impl Thread {
    /// As [`window_ns`]. For the thread itself.
    #[inline(always)]
    pub(crate) fn window_ns(&self) -> u32 {
        WINDOW_MAX_NS - self.narrowed_ns.load(Relaxed) // own thread only
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn glibcs_id_is_found_and_right_in_every_thread() {
        let own = kernel::thread_id;
        assert_eq!((id(), cached_id()), (own(), own()));
        learn();
        assert_ne!(tid_at(), 0);
        assert_eq!(id(), own());
        std::thread::spawn(move || assert_eq!((id(), cached_id()), (own(), own()))).join().unwrap();
    }
}
