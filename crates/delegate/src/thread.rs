//! What this library knows of a thread: in the thread's own static TLS, found by the thread pointer, so it goes where its context goes.

use crate::account::{self, ThreadRow};
use crate::behind::{rseq_offset, rseq_size};
use crate::list::Hook;
use crate::switch::{Context, Extras, system_call, thread_pointer};
use core::cell::Cell;
use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::Ordering::{AcqRel, Relaxed};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU32};
use libc::pthread_mutex_t;

/// `state`: it runs its own code, on its own kernel thread.
pub(crate) const PLAIN: u8 = 0;
/// Its context is suspended, and its kernel thread is on the parking stack, where it waits, or runs others' sections.
pub(crate) const PARKED: u8 = 1;
/// Its context runs a section, on whichever kernel thread.
pub(crate) const RUNNING: u8 = 2;
/// It waits, with its request in the queue, but takes its signals on its own stack: nobody may run its context meanwhile.
pub(crate) const NAPPING: u8 = 4;
/// As PARKED, but the section is over, or nobody may run it; the context goes home.
pub(crate) const OVER: u8 = 3;

/// A thread. All zeroes is a new one.
#[repr(C)]
pub(crate) struct DelegatedThread {
    /// The hooks look at this byte first.
    pub(crate) state: AtomicU8,
    /// It asked to be cancelled at any time.
    is_async: Cell<bool>,
    /// It is about to end: it neither sends nor runs others' sections any more.
    stays_home: Cell<bool>,
    /// It forks: the child must be this thread's copy.
    pub(crate) is_forking: Cell<bool>,
    /// What ended its section: see `section.rs`.
    pub(crate) result: Cell<c_int>,
    /// Its suspended context.
    pub(crate) context: Cell<Context>,
    /// The context that runs its section, on that kernel thread's parking stack.
    pub(crate) back: Cell<Context>,
    /// Where it waits on its parking stack, while it is NAPPING.
    pub(crate) parked: Cell<Context>,
    /// Its context goes on for its signals.
    pub(crate) naps: Cell<bool>,
    /// The thread whose kernel thread that is.
    pub(crate) carrier: Cell<usize>,
    /// The mutex whose section it runs.
    pub(crate) mutex: Cell<*mut pthread_mutex_t>,
    /// The signals that it blocks outside of sections.
    pub(crate) mask: Cell<u64>,
    /// Where its parking stack ends; null: it has none yet.
    parking: Cell<*mut u8>,
    /// Its row of the account.
    row: Cell<*const ThreadRow>,
    pub(crate) extras: Cell<Option<Extras>>,
}

const SIZE: usize = 144;
const _: () = assert!(size_of::<DelegatedThread>() <= SIZE, "as large as the assembly below says");

core::arch::global_asm!(
    ".pushsection .tbss,\"awT\",@nobits",
    ".balign 16",
    ".hidden lockwright_delegate_thread",
    ".globl lockwright_delegate_thread",
    ".type lockwright_delegate_thread, @object",
    ".size lockwright_delegate_thread, 144",
    "lockwright_delegate_thread:",
    ".zero 144",
    ".popsection",
);

/// The calling thread's.
#[inline(always)]
pub(crate) fn this() -> &'static DelegatedThread {
    let at: *const DelegatedThread;
    // SAFETY: the address of our own variable, of which zeroes are a value. It is not used beyond the thread's end.
    unsafe {
        core::arch::asm!(
            "mov {at}, qword ptr fs:[0]",
            "add {at}, qword ptr [rip + lockwright_delegate_thread@GOTTPOFF]",
            at = out(reg) at, options(nostack, readonly),
        );
        &*at
    }
}

/// The watcher's signal; 0: none, so nothing may be sent elsewhere.
pub(crate) static SIGNAL: AtomicI32 = AtomicI32::new(0);
/// The program handles its own faults, uses restartable sequences, or one of its threads is no longer as others to the kernel: nothing is
/// sent from then on.
pub(crate) static SENDS_NOTHING: AtomicBool = AtomicBool::new(false);
/// Does this process have a watcher?
pub(crate) static IS_WATCHED: AtomicBool = AtomicBool::new(false);

/// How large a parking stack is, with a page that nobody may touch at its end. A signal's frame takes up to 12 KiB (AMX).
const PARKING: usize = 64 << 10;
const PAGE: usize = 4096;

/// Signals that a thread causes itself: not blocked, since a blocked fault ends the process without a word.
const FAULTS: u64 = bit(libc::SIGSEGV)
    | bit(libc::SIGBUS)
    | bit(libc::SIGFPE)
    | bit(libc::SIGILL)
    | bit(libc::SIGTRAP)
    | bit(libc::SIGSYS)
    | bit(libc::SIGABRT);

/// glibc's signal by which all threads change their user: any thread may handle it, on any stack.
const SETXID: c_int = 33;

const fn bit(signal: c_int) -> u64 {
    1 << (signal - 1)
}

fn change_mask(how: c_int, mask: u64) -> u64 {
    let mut old = 0_u64;
    let arguments =
        [how as usize, (&raw const mask).addr(), (&raw mut old).addr(), size_of::<u64>()];
    // SAFETY: both are ours. glibc's function would leave its own two signals alone, which must wait, too.
    unsafe { system_call(libc::SYS_rt_sigprocmask, arguments) };
    old
}

impl DelegatedThread {
    pub(crate) fn state(&self) -> u8 {
        self.state.load(Relaxed) // its own; what other threads see, the lock orders
    }

    /// From one state to the other, if it is that; a signal handler of ours may come between, or the thread that hands it the mutex.
    #[inline]
    pub(crate) fn goes(&self, from: u8, to: u8) -> bool {
        // ORDERING: AcqRel, pairs with itself: whoever makes a PARKED thread RUNNING runs its context as it was suspended.
        self.state.compare_exchange(from, to, AcqRel, Relaxed).is_ok()
    }

    /// Holds back all signals but its own faults and `rescue`.
    #[inline]
    pub(crate) fn block_signals(&self) {
        let rescue = SIGNAL.load(Relaxed);
        let open = FAULTS | bit(SETXID) | if rescue == 0 { 0 } else { bit(rescue) };
        // What the program blocks itself stays blocked, but for the watcher's signal.
        let before = change_mask(libc::SIG_BLOCK, !open);
        if rescue != 0 && before & bit(rescue) != 0 {
            change_mask(libc::SIG_UNBLOCK, bit(rescue));
        }
        self.mask.set(before);
    }

    /// Has a signal come that it would not block?
    pub(crate) fn has_signals(&self) -> bool {
        let mut pending = 0_u64;
        // SAFETY: our own.
        unsafe { system_call(libc::SYS_rt_sigpending, [(&raw mut pending).addr(), 8, 0, 0]) };
        pending & !self.mask.get() != 0
    }

    /// Lets them in.
    #[inline]
    pub(crate) fn let_signals_in(&self) {
        change_mask(libc::SIG_SETMASK, self.mask.get());
    }

    /// Its row of the account, if it has one.
    pub(crate) fn row(&self) -> Option<&'static ThreadRow> {
        // SAFETY: null, or a row, which stays.
        unsafe { self.row.get().as_ref() }
    }

    /// Its parking stack, with its row; `None`: it can have none.
    #[inline]
    pub(crate) fn parking(&self) -> Option<*mut u8> {
        if self.parking.get().is_null() { self.furnish() } else { Some(self.parking.get()) }
    }

    #[cold]
    fn furnish(&self) -> Option<*mut u8> {
        let key = KEY.load(Relaxed); // made by our constructor
        if key == 0 {
            return None;
        }
        let row = account::claim()?;
        let protect = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: fresh memory, and a page of it.
        let at = unsafe { libc::mmap(null_mut(), PARKING, protect, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            row.give_back();
            return None;
        }
        // SAFETY: the first page of what was just mapped. If this fails there is no guard.
        unsafe { libc::mprotect(at, PAGE, libc::PROT_NONE) };
        let top = at.cast::<u8>().wrapping_add(PARKING);
        self.parking.set(top);
        self.row.set(row);
        // SAFETY: a key of ours; the value is never null.
        unsafe { libc::pthread_setspecific(key - 1, top.cast()) };
        Some(top)
    }

    /// In a forked child: what its parent's rows and threads were is not there.
    pub(crate) fn forget(&self) {
        self.row.set(core::ptr::null());
        if !self.parking.get().is_null() {
            match account::claim() {
                Some(row) => self.row.set(row),
                None => self.stay_home(),
            }
        }
        self.is_forking.set(false);
    }

    /// May its sections be sent?
    pub(crate) fn may_send(&self) -> bool {
        !(self.is_async.get() || self.stays_home.get() || self.is_forking.get())
            && IS_WATCHED.load(Relaxed)
            && !SENDS_NOTHING.load(Relaxed)
    }

    /// From now on it stays as it is.
    pub(crate) fn stay_home(&self) {
        self.stays_home.set(true);
    }

    /// The program is about to call one of libc's functions: what does that say of the thread?
    pub(crate) fn learn(&self, hook: Hook, first: usize, second: usize) {
        /// System calls that set what the kernel keeps for each thread: the set*id family, capset, unshare, setns, seccomp, personality.
        const OWN: &[usize] =
            &[105, 106, 113, 114, 116, 117, 119, 122, 123, 126, 135, 272, 308, 317];
        /// `prctl`s that say nothing of that: parent's death, dumpable, names.
        const HARMLESS: &[usize] = &[1, 2, 3, 4, 15, 16];
        /// Faults of a thread's own.
        const HANDLED: &[i32] =
            &[libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP];
        match hook {
            Hook::pthread_setcanceltype => self.is_async.set(first == 1), // PTHREAD_CANCEL_ASYNCHRONOUS
            Hook::setfsuid
            | Hook::setfsgid
            | Hook::unshare
            | Hook::setns
            | Hook::capset
            | Hook::personality => SENDS_NOTHING.store(true, Relaxed),
            Hook::prctl if !HARMLESS.contains(&first) => SENDS_NOTHING.store(true, Relaxed),
            Hook::syscall if OWN.contains(&first) => SENDS_NOTHING.store(true, Relaxed),
            // A handler (not SIG_DFL, SIG_IGN, nor a question). A fault's handler may change what it interrupted, and goes back by
            // the carrier's state.
            Hook::sigaction | Hook::__sigaction if HANDLED.contains(&(first as i32)) => {
                let action = core::ptr::with_exposed_provenance::<usize>(second);
                // SAFETY: the program's action, whose handler comes first; null: it only asks.
                if !action.is_null() && unsafe { *action } > 1 {
                    SENDS_NOTHING.store(true, Relaxed);
                }
            }
            Hook::signal
            | Hook::bsd_signal
            | Hook::sysv_signal
            | Hook::__sysv_signal
            | Hook::sigset
            | Hook::ssignal
                if second > 1 && HANDLED.contains(&(first as i32)) =>
            {
                SENDS_NOTHING.store(true, Relaxed);
            }
            _ => {}
        }
    }
}

impl DelegatedThread {
    /// It ends: gives its parking stack and its row back. It is at home.
    pub(crate) fn ends(&self) {
        self.stay_home(); // other keys' destructors may lock, too
        let top = self.parking.replace(null_mut());
        if let Some(row) = self.row() {
            row.give_back();
        }
        self.row.set(core::ptr::null());
        if !top.is_null() {
            // SAFETY: its own, which it is not on.
            unsafe { libc::munmap(top.wrapping_sub(PARKING).cast(), PARKING) };
        }
    }
}

/// The key whose destructor gives a thread's parking stack back, plus 1.
static KEY: AtomicU32 = AtomicU32::new(0);

/// Called by our constructor, with what a thread's end does to a section.
pub(crate) fn prepare(ends: unsafe extern "C" fn(*mut c_void)) {
    let mut key = 0;
    // SAFETY: a writable key.
    if unsafe { libc::pthread_key_create(&mut key, Some(ends)) } == 0 {
        KEY.store(key + 1, Relaxed);
    }
}

/// Does the calling thread use restartable sequences? glibc has registered its area, and whoever uses it leaves a pointer there.
pub(crate) fn uses_rseq() -> bool {
    let Some((offset, size)) = area() else { return false };
    if size == 0 {
        return true; // glibc has none (glibc.pthread.rseq=0): somebody else may have registered one
    }
    /// `rseq_cs` in `struct rseq`.
    const POINTER: usize = 8;
    // SAFETY: glibc says that the area is there.
    unsafe {
        (thread_pointer().wrapping_add_signed(offset) as *const u8)
            .add(POINTER)
            .cast::<u64>()
            .read()
            != 0
    }
}

/// glibc's `__rseq_offset` and `__rseq_size`.
fn area() -> Option<(isize, u32)> {
    let (offset, size) = (rseq_offset(), rseq_size());
    if offset.is_null() || size.is_null() {
        return None; // an older glibc
    }
    // SAFETY: glibc's variables, which don't change.
    unsafe { Some((*offset, *size)) }
}
