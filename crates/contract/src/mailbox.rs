//! How `lockwright switch` gives a running process another table of locks: memory of the process,
//! which the command writes as a debugger would. The process looks at one word of it when a thread has to wait for a
//! mutex.
//!
//! `posts` says what has become of the last table ([`post`](crate::post)). A table as text: the default lock, a newline, and rules as in
//! `LOCKWRIGHT_RULES`.
//!
//! # The lease
//!
//! A command that tries a table may be killed at any moment. So the table is put in force on lease: until [`Mailbox::lease_ns`], which the
//! command moves on as long as it runs. A post without [`ON_LEASE`] puts a table in force for good. Once the lease is over, and not before,
//! two rules apply. Who reads the memory from outside goes by them at once, and the process at its next wait:
//!
//! 1. A table on lease is out of force, and the last one that came for good is back.
//! 2. A policy's slot on lease ([`SlotState::leased`](crate::programs::mailbox::SlotState::leased)) is empty, unless that table asks it.
//!
//! A table on lease that no thread has taken up by then is void. So whatever a command changes, one write of a word decides it.

use crate::post::Posts;
use core::cell::UnsafeCell;
use core::mem::offset_of;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};
use core::time::Duration;

/// The symbol of a process's [`Mailbox`].
pub const SYMBOL: &str = "lockwright_mailbox";
/// How a mailbox begins. Changes with its layout, and with what a table means.
pub const MAGIC: u64 = u64::from_le_bytes(*b"lockwr.7");
/// The kinds of mutexes by their `PTHREAD_MUTEX_*`, as rules name them.
pub const KINDS: [&str; 4] = ["normal", "recursive", "errorcheck", "adaptive"];
/// What rules call readers-writer locks where others name a kind of mutexes, and the lock that such rules give.
pub const RWLOCK: &str = "rwlock";
/// Rules that a table can have.
pub const RULES: usize = 29;
/// Bytes of a table as text.
pub const TEXT: usize = 16 * 1024 + 384;

/// How long what is on lease stays when nobody renews it.
pub const LEASE: Duration = Duration::from_secs(3);
/// In [`Mailbox::leased`]: the table in force.
pub const TABLE: u32 = 1;
/// In [`Mailbox::leased`]: policies' slots.
pub const SLOTS: u32 = 2;
/// In [`Mailbox::terms`]: the table comes on lease.
pub const ON_LEASE: u32 = 1;
/// In [`Mailbox::terms`]: from this bit on, the slots that are on lease from then on.
pub const DROPS: u32 = 16;

/// The memory.
#[repr(C)]
#[derive(Debug)]
pub struct Mailbox {
    /// [`MAGIC`].
    pub magic: u64,
    /// Its own size, in bytes.
    pub size: u32,
    /// Bytes of the text.
    pub len: AtomicU32,
    /// The last table that was posted.
    pub text: UnsafeCell<[u8; TEXT]>,
    /// Bytes of the current table as text. (Each process writes this and the next two when it starts. They lie behind the text, near to what
    /// else it writes then.)
    pub now_len: AtomicU32,
    /// The current table as text; null: the process has none yet.
    pub now: AtomicPtr<u8>,
    /// The places of its rules, [`RULES`] bytes in the rules' order: what a mutex's counts word says about its rule.
    pub places: AtomicPtr<u8>,
    /// When the current table came into force, ns of `CLOCK_MONOTONIC`; 0: it is the first one.
    pub since_ns: AtomicU64,
    /// If the table is on lease: the one that is back afterwards, as `now`.
    pub back: AtomicPtr<u8>,
    /// The places of its rules.
    pub back_places: AtomicPtr<u8>,
    /// Bytes of its text.
    pub back_len: AtomicU32,
    /// What is on lease: [`TABLE`], [`SLOTS`]. Only the process writes it.
    pub leased: AtomicU32,
    /// Until when, ns of `CLOCK_MONOTONIC`. Only commands write it.
    pub lease_ns: AtomicU64,
    /// Of the last table that was posted: [`ON_LEASE`], [`DROPS`].
    pub terms: AtomicU32,
    /// What has become of the last table.
    pub posts: Posts,
}

// SAFETY: the process only reads the text; the command may write meanwhile, and the process checks afterwards whether it did.
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
            len: AtomicU32::new(0),
            now_len: AtomicU32::new(0),
            now: AtomicPtr::new(core::ptr::null_mut()),
            places: AtomicPtr::new(core::ptr::null_mut()),
            since_ns: AtomicU64::new(0),
            back: AtomicPtr::new(core::ptr::null_mut()),
            back_places: AtomicPtr::new(core::ptr::null_mut()),
            back_len: AtomicU32::new(0),
            leased: AtomicU32::new(0),
            lease_ns: AtomicU64::new(0),
            terms: AtomicU32::new(0),
            posts: Posts::new(),
            text: UnsafeCell::new([0; TEXT]),
        }
    }
}

// eval/switching.py has these.
const _: () = {
    assert!(offset_of!(Mailbox, magic) == 0 && offset_of!(Mailbox, size) == 8);
    assert!(offset_of!(Mailbox, len) == 12 && offset_of!(Mailbox, since_ns) == 16808);
    assert!(offset_of!(Mailbox, posts) == 16852 && offset_of!(Mailbox, text) == 16);
};
