//! What happened, for `lockwright run`, `profile` and `top`: a row for each thread that may delegate, and why sections went home.
//!
//! In a file that the command named (LOCKWRIGHT_DELEGATE_ACCOUNT, a folder), else in the library's own memory. Its layout is the
//! command's to read, too: `cli/src/delegate.rs`.

use crate::list::{HOOKS, NAMES};
use core::ffi::{CStr, c_char};
use core::ptr::null_mut;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};

/// How many living threads may have delegated. Others lock as ever.
pub(crate) const ROWS: usize = 256;

/// A thread's row. Its counts are its own, and stay when a new thread takes the row.
#[repr(C, align(64))]
pub(crate) struct ThreadRow {
    /// The kernel's id of the thread; 0: nobody's.
    pub(crate) tid: AtomicU32,
    /// Odd while the thread runs a section that was asked for. Grows by one when one begins or ends.
    pub(crate) serial: AtomicU32,
    /// Sections of this thread that ran elsewhere.
    pub(crate) sent: AtomicU64,
    /// Own sections that it ran itself after it had asked.
    pub(crate) own: AtomicU64,
    /// Sections that found the mutex free.
    pub(crate) free: AtomicU64,
    /// Sections that could not be sent: why is in [`DelegationAccount::refused`].
    pub(crate) refused: AtomicU64,
}

/// Why a section was not sent at all.
#[derive(Clone, Copy)]
#[repr(usize)]
pub(crate) enum Refused {
    /// The mutex is of another kind than normal, or no slot is free.
    Kind,
    /// The thread can't: cancelled at any time, a shadow stack, no row, no memory, forking; or nothing is sent, or watched.
    Thread,
    /// It uses restartable sequences.
    Rseq,
    /// The thread that would have run it differs in GS's base or in protection keys.
    Differs,
}

const REASONS: usize = 4;

/// The room for a hook's name.
pub(crate) const NAME: usize = 32;

/// All of it.
#[repr(C)]
pub(crate) struct DelegationAccount {
    version: AtomicU32,
    /// How many hooks there are, and what they are called: names that end with 0.
    hooks: AtomicU32,
    names: [[u8; NAME]; HOOKS],
    pub(crate) refused: [AtomicU64; REASONS],
    /// By hook: it sent a section home. The last one: it ran for too long.
    pub(crate) home: [AtomicU64; HOOKS + 1],
    pub(crate) rows: [ThreadRow; ROWS],
}

const VERSION: u32 = 1;

/// Zeroes.
struct Own(core::cell::UnsafeCell<[u64; size_of::<DelegationAccount>() / 8 + 8]>);
// SAFETY: used as an account only, which is all atomics.
unsafe impl Sync for Own {}
static OWN: Own = Own(core::cell::UnsafeCell::new([0; size_of::<DelegationAccount>() / 8 + 8]));
static NOW: AtomicPtr<DelegationAccount> = AtomicPtr::new(null_mut());

/// The account of this process.
pub(crate) fn account() -> &'static DelegationAccount {
    // ORDERING: Acquire, pairs with [set]: the file is mapped.
    let now = NOW.load(Acquire);
    // SAFETY: mapped for good; zeroes are an account. The library's own is large enough, to be aligned.
    unsafe {
        if now.is_null() {
            let own = OWN.0.get().cast::<u8>();
            return &*own.add(own.align_offset(64)).cast();
        }
        &*now
    }
}

unsafe extern "C" {
    static environ: *const *const c_char;
}

/// A variable of the environment.
pub(crate) fn variable(name: &[u8]) -> Option<&'static [u8]> {
    // SAFETY: libc's list, whose entries end with 0. We are called before the program runs, or in a forked child, which has one thread.
    unsafe {
        let mut at = environ;
        while !at.is_null() && !(*at).is_null() {
            let entry = CStr::from_ptr(*at).to_bytes();
            if let Some(value) = entry.strip_prefix(name).and_then(|rest| rest.strip_prefix(b"=")) {
                return Some(value);
            }
            at = at.add(1);
        }
    }
    None
}

/// Begins a new account, of a new process: called by our constructor, and in a forked child, with one thread.
pub(crate) fn begin() {
    NOW.store(null_mut(), Relaxed);
    for row in &account().rows {
        row.tid.store(0, Relaxed);
        row.serial.store(0, Relaxed);
        for count in [&row.sent, &row.own, &row.free, &row.refused] {
            count.store(0, Relaxed);
        }
    }
    for count in account().refused.iter().chain(&account().home) {
        count.store(0, Relaxed);
    }
    let Some(folder) = variable(b"LOCKWRIGHT_DELEGATE_ACCOUNT") else { return };
    let mut path = [0_u8; 512];
    let name = b"/delegate.";
    if folder.len() + name.len() + 12 > path.len() {
        return;
    }
    path[..folder.len()].copy_from_slice(folder);
    path[folder.len()..][..name.len()].copy_from_slice(name);
    let mut digits = [0_u8; 10];
    // SAFETY: no preconditions.
    let mut left = unsafe { libc::getpid() } as u32;
    let mut first = digits.len();
    while left > 0 {
        first -= 1;
        digits[first] = b'0' + (left % 10) as u8;
        left /= 10;
    }
    path[folder.len() + name.len()..][..digits.len() - first].copy_from_slice(&digits[first..]);
    // SAFETY: a path that ends with 0; the mapping is fresh, and as large as the file is made.
    unsafe {
        let flags =
            libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC | libc::O_CLOEXEC | libc::O_NOFOLLOW;
        let file =
            libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0o600) as i32;
        if file < 0 {
            return;
        }
        let size = size_of::<DelegationAccount>();
        let protect = libc::PROT_READ | libc::PROT_WRITE;
        let at = match libc::ftruncate(file, size as i64) {
            0 => libc::mmap(null_mut(), size, protect, libc::MAP_SHARED, file, 0),
            _ => libc::MAP_FAILED,
        };
        libc::syscall(libc::SYS_close, file);
        if at != libc::MAP_FAILED {
            let account: *mut DelegationAccount = at.cast();
            (*account).version.store(VERSION, Relaxed);
            (*account).hooks.store(HOOKS as u32, Relaxed);
            for (room, name) in (*account).names.iter_mut().zip(NAMES) {
                room[..name.len()].copy_from_slice(name);
            }
            // ORDERING: Release [set].
            NOW.store(account, Release);
        }
    }
}

/// Takes a row for the calling thread.
pub(crate) fn claim() -> Option<&'static ThreadRow> {
    // SAFETY: no preconditions. Not by `gettid`, which is a hook of ours.
    let tid = unsafe { crate::switch::system_call(libc::SYS_gettid, [0; 4]) } as u32;
    // Relaxed: its counts are atomics, and nothing else is published.
    account().rows.iter().find(|row| row.tid.compare_exchange(0, tid, Relaxed, Relaxed).is_ok())
}

impl ThreadRow {
    /// Its thread ends.
    pub(crate) fn give_back(&self) {
        self.tid.store(0, Relaxed);
    }
}

/// Counts one more in a count that only the calling thread writes.
pub(crate) fn one_more(count: &AtomicU64) {
    count.store(count.load(Relaxed) + 1, Relaxed);
}

impl DelegationAccount {
    /// Counts a section that was not sent.
    pub(crate) fn refuse(&self, why: Refused) {
        self.refused[why as usize].fetch_add(1, Relaxed);
    }
}
