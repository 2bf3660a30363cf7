//! How `lockwright switch` and `lockwright ctl` give a running process another table of locks: memory of the process,
//! which the command writes as a debugger would. The process looks at one word of it when a thread has to wait for a
//! mutex.
//!
//! ```text
//!   EMPTY, DONE, REFUSED ──command: text, then──► POSTED ──a thread that waits──► TAKEN ──► DONE │ REFUSED: says why
//!         ▲─────────command, to post another───────┘
//! ```
//!
//! The state's upper bits count the posts, so that a text that is replaced while it is being read isn't mistaken for
//! the new one.
//!
//! A table as text: the default lock, a newline, and rules as in `LOCKWRIGHT_RULES`.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};

/// The symbol of a process's [`Mailbox`].
pub const SYMBOL: &str = "lockwright_mailbox";
/// How a mailbox begins. Changes with its layout, and with what a table means.
pub const MAGIC: u64 = u64::from_le_bytes(*b"lockwr.4");
/// The kinds of mutexes by their `PTHREAD_MUTEX_*`, as rules name them.
pub const KINDS: [&str; 4] = ["normal", "recursive", "errorcheck", "adaptive"];
/// What rules call readers-writer locks where others name a kind of mutexes, and the lock that such rules give.
pub const RWLOCK: &str = "rwlock";
/// Rules that a table can have.
pub const RULES: usize = 29;
/// Bytes of a table as text.
pub const TEXT: usize = 16 * 1024 + 384;

/// The state's lower bits.
pub const STATE: u32 = 7;
/// One more post, in the state's upper bits.
pub const POST: u32 = STATE + 1;
/// Nothing has been posted.
pub const EMPTY: u32 = 0;
/// A table is ready to be taken.
pub const POSTED: u32 = 1;
/// A thread is reading it.
pub const TAKEN: u32 = 2;
/// It is the process's table now.
pub const DONE: u32 = 3;
/// It was refused; the text says why.
pub const REFUSED: u32 = 4;

/// The memory.
#[repr(C)]
#[derive(Debug)]
pub struct Mailbox {
    /// [`MAGIC`].
    pub magic: u64,
    /// Its own size, in bytes.
    pub size: u32,
    /// One of [`EMPTY`], [`POSTED`], [`TAKEN`], [`DONE`], [`REFUSED`], and a number.
    pub state: AtomicU32,
    /// Bytes of the text.
    pub len: AtomicU32,
    /// Bytes of the current table as text.
    pub now_len: AtomicU32,
    /// The current table as text; null: the process has none yet.
    pub now: AtomicPtr<u8>,
    /// The places of its rules, [`RULES`] bytes in the rules' order: what a mutex's counts word says about its rule.
    pub places: AtomicPtr<u8>,
    /// When the current table came into force, ns of `CLOCK_MONOTONIC`; 0: it is the first one.
    pub since_ns: AtomicU64,
    /// What is posted, or the answer to it.
    pub text: UnsafeCell<[u8; TEXT]>,
}

// SAFETY: the process may read while the command writes, and checks afterwards whether it did. It writes only with
// TAKEN set, when the command keeps out.
unsafe impl Sync for Mailbox {}

impl Default for Mailbox {
    fn default() -> Self {
        Self::new()
    }
}

impl Mailbox {
    /// An empty mailbox.
    pub const fn new() -> Self {
        Self {
            magic: MAGIC,
            size: size_of::<Self>() as u32,
            state: AtomicU32::new(EMPTY),
            len: AtomicU32::new(0),
            now_len: AtomicU32::new(0),
            now: AtomicPtr::new(core::ptr::null_mut()),
            places: AtomicPtr::new(core::ptr::null_mut()),
            since_ns: AtomicU64::new(0),
            text: UnsafeCell::new([0; TEXT]),
        }
    }
}
