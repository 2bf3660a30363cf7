//! How `lockwright policy` gives a running process a policy: memory of the process, which the command writes as a debugger would. The
//! process looks at one word of it when a thread has to wait for a mutex.
//!
//! The image lies in the mailbox itself, and the thread copies it to fresh memory. So the process opens no file, offers no memory that
//! a command which is killed could leave behind, and a command that is late writes only here. A thread that has copied something looks
//! whether the post is still the one that it has taken ([`post`](crate::post)). If not, it has copied a mixture, and drops it.
//!
//! ```text
//!   room:  Request │ image │ pieces of the maps' memory that aren't zero: Piece, its bytes │ Request │ ...       all padded to 8
//! ```
//!
//! An idle process takes nothing up, so requests queue. The command appends one: it writes it behind the others, then their new length,
//! then Posted once more. A thread that comes meanwhile takes up the others alone, or all, and perhaps all once more: then
//! those policies begin anew.

use crate::post::Posts;
use crate::programs::image::NAME;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, AtomicU64};
use lockwright_platform::hooks::Hook;

/// The symbol of a process's [`Programs`].
pub const SYMBOL: &str = "lockwright_programs";
/// How they begin. Changes with the layout.
pub const MAGIC: u64 = u64::from_le_bytes(*b"lockprg4");
/// Slots, of which the first is never used: a lock with slot 0 has no policy.
pub const SLOTS: usize = 16;
/// Bytes for requests.
pub const ROOM: usize = 256 << 10;
/// The number of hooks.
pub const HOOKS: usize = Hook::ALL.len();
/// The longest time that a hook may take, on average, if the command doesn't say, ns.
pub const BUDGET_NS: u32 = 10_000;

/// In [`Request::what`]: nothing. A later request for this slot has replaced it.
pub const VOID: u32 = 0;
/// In [`Request::what`]: the slot gets this policy, whatever it had.
pub const LOAD: u32 = 1;
/// In [`Request::what`]: the slot gets none.
pub const UNLOAD: u32 = 2;

/// A slot's state is below this; above it is a number.
pub const TURN: u32 = 8;
/// In [`SlotState::state`]: there is no policy.
pub const FREE: u32 = 0;
/// In [`SlotState::state`]: locks may ask it.
pub const LOADED: u32 = 1;
/// In [`SlotState::state`]: it took longer than its budget, and isn't asked any more.
pub const TOO_SLOW: u32 = 2;
/// In [`SlotState::state`]: the rest makes no sense now.
pub const CHANGING: u32 = 3;

/// The beginning of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Request {
    /// [`LOAD`], [`UNLOAD`] or [`VOID`].
    pub what: u32,
    /// The slot, from 1.
    pub slot: u32,
    /// [`LOAD`]: bytes of the image.
    pub code_len: u32,
    /// [`LOAD`]: bytes of the pieces, a multiple of 8.
    pub pieces_len: u32,
    /// [`LOAD`]: the longest time that a hook may take on average, ns.
    pub budget_ns: u32,
    /// [`LOAD`]: 1, the slot is on lease ([`crate::mailbox`]); 0, it is not.
    pub leased: u32,
}

/// A request, its image, its pieces, and what is posted behind it.
pub type Posted<'a> = (Request, &'a [u8], &'a [u8], &'a [u8]);

impl Request {
    /// The first request. `None`: nothing is posted, or it isn't whole.
    pub fn first(posted: &[u8]) -> Option<Posted<'_>> {
        let (head, rest) = posted.split_at_checked(size_of::<Self>())?;
        // SAFETY: the same length. Read once: in the process, the command may change them.
        let head = unsafe { head.as_ptr().cast::<[u8; size_of::<Self>()]>().read_volatile() };
        let word =
            |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let request = Self {
            what: word(0),
            slot: word(4),
            code_len: word(8),
            pieces_len: word(12),
            budget_ns: word(16),
            leased: word(20),
        };
        let (code_len, pieces_len) = (request.code_len as usize, request.pieces_len as usize);
        let (code, rest) = rest.split_at_checked(code_len.next_multiple_of(8))?;
        let (pieces, rest) = rest.split_at_checked(pieces_len)?;
        Some((request, code.get(..code_len)?, pieces, rest))
    }

    /// Its bytes.
    pub fn bytes(&self) -> [u8; size_of::<Self>()] {
        let words =
            [self.what, self.slot, self.code_len, self.pieces_len, self.budget_ns, self.leased];
        let mut bytes = [0; size_of::<Self>()];
        for (to, word) in bytes.chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }
}

/// The beginning of a piece.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Piece {
    /// Where it begins in the maps' memory.
    pub at: u32,
    /// Its bytes.
    pub len: u32,
}

/// What can be seen of one slot. Only the process writes it.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct SlotState {
    /// One of [`FREE`], [`LOADED`], [`TOO_SLOW`], [`CHANGING`]; above that, how often something has been loaded here or unloaded.
    pub state: AtomicU32,
    /// The policy's hooks: the sum of their [bits](Hook::bit), and what they read, of [`READS`](lockwright_platform::hooks::READS).
    pub hooks: AtomicU32,
    /// As in the image.
    pub version: AtomicU32,
    /// The longest time that a hook may take on average, ns.
    pub budget_ns: AtomicU32,
    /// Not 0: once the lease is over, the slot stays only if the table asks it ([`crate::mailbox`]).
    pub leased: AtomicU32,
    /// [`TOO_SLOW`]: the [`Hook`] that took so long.
    pub slow_hook: AtomicU32,
    /// [`TOO_SLOW`]: how long it took on average, ns.
    pub slow_ns: AtomicU64,
    /// When it was loaded, ns of `CLOCK_MONOTONIC`.
    pub since_ns: AtomicU64,
    /// Where its code is.
    pub code: AtomicU64,
    /// Bytes there.
    pub code_len: AtomicU64,
    /// Where its maps are.
    pub data: AtomicU64,
    /// Bytes there.
    pub data_len: AtomicU64,
    /// How often each hook was asked: one question in [`SAMPLE`] counts as that many.
    pub asked: [AtomicU64; HOOKS],
    /// How long the sampled questions took together, ns.
    pub sampled_ns: [AtomicU64; HOOKS],
    /// How many were sampled.
    pub samples: [AtomicU64; HOOKS],
    /// Questions that weren't asked, because the thread was in a hook already (a signal handler that locks), or too many threads ask.
    pub unasked: AtomicU64,
    /// The policy's name, in UTF-8, padded with zeroes.
    pub name: [AtomicU64; NAME / 8],
}

/// One question in this many is measured, on average.
pub const SAMPLE: u64 = 251;

/// Room for this many threads' tags.
pub const TAGS: usize = 1024;
/// How many places after its own a thread's tag may lie.
pub const TAG_WAYS: usize = 16;

/// A thread's tag.
#[derive(Debug)]
#[repr(C)]
pub struct Tag {
    /// The kernel's thread id; 0: the place is free.
    pub tid: AtomicU32,
    /// Not used.
    pub unused: u32,
    /// The tag; 0: none.
    pub tag: AtomicU64,
}

/// The places where this thread's tag may lie.
pub fn tag_places(tid: u32) -> impl Iterator<Item = usize> {
    let first = (tid.wrapping_mul(0x9e37_79b9) >> 16) as usize;
    (0..TAG_WAYS).map(move |way| (first + way) % TAGS)
}

/// The memory.
#[derive(Debug)]
#[repr(C)]
pub struct Programs {
    /// [`MAGIC`].
    pub magic: u64,
    /// Its own size, in bytes.
    pub size: u32,
    /// Bytes of the requests in the room.
    pub len: AtomicU32,
    /// What has become of them; and if the last was refused, why.
    pub posts: Posts,
    /// Not 0: somebody has set a tag.
    pub tagged: AtomicU32,
    /// Policies that have been taken away, whose memory isn't free yet: a thread may be in a hook.
    pub retired: AtomicU32,
    /// Holders that have a waiter's priority now.
    pub boosted: AtomicU32,
    /// How often a holder got a waiter's priority.
    pub boosts: AtomicU32,
    /// How often it should have, but the kernel refused, or the holder isn't known.
    pub unboosted: AtomicU32,
    /// Not used.
    pub unused: u32,
    /// Where the tags are, by [`tag_places`].
    pub tags: &'static Tags,
    /// Where what is posted is.
    pub room: &'static PostRoom,
    /// By number; the first is never used.
    pub slots: [SlotState; SLOTS],
}

/// Threads' tags.
#[derive(Debug)]
#[repr(C)]
pub struct Tags(pub [Tag; TAGS]);

/// Room for what is posted.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct PostRoom(pub UnsafeCell<[u8; ROOM]>);

// SAFETY: the process only reads it; the command may write meanwhile, and the process checks afterwards whether it did.
unsafe impl Sync for PostRoom {}

impl SlotState {
    const fn new() -> Self {
        Self {
            state: AtomicU32::new(FREE),
            hooks: AtomicU32::new(0),
            version: AtomicU32::new(0),
            budget_ns: AtomicU32::new(0),
            leased: AtomicU32::new(0),
            slow_hook: AtomicU32::new(0),
            slow_ns: AtomicU64::new(0),
            since_ns: AtomicU64::new(0),
            code: AtomicU64::new(0),
            code_len: AtomicU64::new(0),
            data: AtomicU64::new(0),
            data_len: AtomicU64::new(0),
            asked: [const { AtomicU64::new(0) }; HOOKS],
            sampled_ns: [const { AtomicU64::new(0) }; HOOKS],
            samples: [const { AtomicU64::new(0) }; HOOKS],
            unasked: AtomicU64::new(0),
            name: [const { AtomicU64::new(0) }; NAME / 8],
        }
    }
}

#[allow(clippy::new_without_default, reason = "only statics need them")]
impl Tags {
    /// No thread has one.
    pub const fn new() -> Self {
        Self([const { Tag { tid: AtomicU32::new(0), unused: 0, tag: AtomicU64::new(0) } }; TAGS])
    }
}

#[allow(clippy::new_without_default, reason = "only statics need them")]
impl PostRoom {
    /// Zeroes.
    pub const fn new() -> Self {
        Self(UnsafeCell::new([0; ROOM]))
    }
}

impl Programs {
    /// A process without policies. Tags and room are apart, since zeroes take no room in a file.
    pub const fn new(tags: &'static Tags, room: &'static PostRoom) -> Self {
        Self {
            magic: MAGIC,
            size: size_of::<Self>() as u32,
            len: AtomicU32::new(0),
            posts: Posts::new(),
            tagged: AtomicU32::new(0),
            retired: AtomicU32::new(0),
            boosted: AtomicU32::new(0),
            boosts: AtomicU32::new(0),
            unboosted: AtomicU32::new(0),
            unused: 0,
            tags,
            room,
            slots: [const { SlotState::new() }; SLOTS],
        }
    }
}

const _: () = assert!(
    core::mem::offset_of!(Programs, magic) == 0 && core::mem::offset_of!(Programs, size) == 8
);
