//! A thread's block: where it comes from, and where it goes when its thread ends. (glibc's key destructor hands it on.)

use crate::access::{self, Access};
use crate::fork::{self, When};
use crate::shared::{IDS, common, lockwright_epochs};
use crate::thread;
use core::ffi::c_void;
use core::ptr::null_mut;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64};
use lockwright_contract::epochs::{Own, Windows};
use lockwright_locks::amp::feedback::{Feedback, WINDOW_MAX_NS};
use lockwright_native::kernel;

/// How deep a thread's epochs can be nested; epochs beyond that depth count as part of the innermost one.
pub(super) const DEPTH: usize = 64;
const _: () = assert!(size_of::<Own>() <= 24, "the paper's space for each thread and epoch");

/// A running epoch.
#[repr(C)]
pub(super) struct Entry {
    pub(super) id: AtomicU32,
    /// Was `started` read in ticks?
    pub(super) in_ticks: AtomicU32,
    pub(super) started: AtomicU64,
    /// The frame of the function whose call is the epoch; 0: the program itself marks the epoch's end.
    pub(super) frame: AtomicU64,
}

/// A thread's epochs. All fields except the two links belong to the thread. Zeroes are right for a new thread.
#[repr(C)]
pub(super) struct Block {
    /// The windows, and the block that was mapped before this one. Commands read both.
    pub(super) windows: Windows,
    /// The number of running epochs.
    pub(super) depth: AtomicU32,
    /// The number of epochs beyond [`DEPTH`].
    pub(super) beyond: AtomicU32,
    /// The next free block, while this one is free.
    free: AtomicU64,
    pub(super) stack: [Entry; DEPTH],
    /// One bit for each epoch that this thread has run.
    pub(super) used: [AtomicU64; IDS / 64],
}

const _: () = assert!(IDS.is_multiple_of(64) && size_of::<Block>() <= 5 * 4096);

/// The stack of free blocks: page number of the top one in the lower 36 bits, a tag against ABA above.
static FREE: AtomicU64 = AtomicU64::new(0);
const PAGE_BITS: u32 = 36;
/// glibc's key whose destructor gives a thread's block back, + 1; 0: none yet.
static KEY: AtomicU32 = AtomicU32::new(0);

#[inline(always)]
pub(super) fn narrow(window_ns: u32) {
    // SAFETY: the calling thread's own memory.
    unsafe { (*thread::this()).narrowed_ns.store(WINDOW_MAX_NS - window_ns, Relaxed) } // own thread only
}

/// The calling thread's block; null: it has none yet.
#[inline(always)]
pub(super) fn block() -> *mut Block {
    // SAFETY: the calling thread's own memory.
    unsafe { (*thread::this()).epochs.load(Relaxed).cast() } // own thread only
}

#[inline(always)]
pub(super) fn set(own: &Own, feedback: Feedback) {
    own.window_ns.store(feedback.window_ns, Relaxed); // own thread only
    own.unit_ns.store(feedback.unit_ns, Relaxed);
}

/// Gives the calling thread a block; null if there is no memory.
#[cold]
#[inline(never)]
pub(super) fn attach() -> *mut Block {
    // SAFETY: the calling thread's own memory.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let kept = unsafe { *errno };
    fork::tell_child(When::Seen, in_child);
    let fresh = take().unwrap_or_else(map);
    if !fresh.is_null() {
        // SAFETY: as above. This comes first: the call below may run `calloc`, which may run epochs.
        unsafe { (*thread::this()).epochs.store(fresh.cast(), Relaxed) }; // own thread only
        // SAFETY: a key of ours; the value is not null.
        unsafe { libc::pthread_setspecific(key(), fresh.cast()) };
    }
    // SAFETY: as above.
    unsafe { *errno = kept };
    fresh
}

/// The key; the first thread makes it.
fn key() -> libc::pthread_key_t {
    let known = KEY.load(Relaxed); // guards no other data
    if known != 0 {
        return known - 1;
    }
    let mut fresh = 0;
    // SAFETY: our destructor stays loaded (-z nodelete).
    if unsafe { libc::pthread_key_create(&mut fresh, Some(detach)) } != 0 {
        return libc::pthread_key_t::MAX; // no key left: blocks are not given back
    }
    match KEY.compare_exchange(0, fresh + 1, Relaxed, Relaxed) {
        Ok(_) => fresh,
        Err(first) => {
            // SAFETY: made above, and nobody uses it.
            unsafe { libc::pthread_key_delete(fresh) };
            first - 1
        }
    }
}

/// The calling thread ends. If a later destructor runs epochs, the thread gets a block again, and glibc calls us again.
unsafe extern "C" fn detach(block: *mut c_void) {
    // SAFETY: `block` is the value that `attach` set: this thread's own block. Nobody else uses it.
    unsafe {
        (*thread::this()).epochs.store(null_mut(), Relaxed); // own thread only
        narrow(WINDOW_MAX_NS);
        (*block.cast::<Block>()).clear();
        give(block.cast());
    }
}

impl Block {
    /// Resets it, and hands its windows on to later threads.
    fn clear(&self) {
        // Relaxed: own thread only, and hints.
        self.depth.store(0, Relaxed);
        self.beyond.store(0, Relaxed);
        for (word, used) in self.used.iter().enumerate() {
            let mut bits = used.swap(0, Relaxed);
            while bits != 0 {
                let id = word * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                let own = &self.windows.own[id];
                if own.unit_ns.load(Relaxed) != 0 {
                    common()[id].seed.store(own.window_ns.load(Relaxed) + 1, Relaxed);
                }
                set(own, Feedback { window_ns: 0, unit_ns: 0 });
            }
        }
    }
}

/// A fresh block.
fn map() -> *mut Block {
    let block = access::asking(|access| match access {
        Access::None => None, // a filter may kill for asking
        _ => kernel::map(size_of::<Block>()),
    });
    let Some(block) = block else { return null_mut() };
    let block: *mut Block = block.cast(); // zeroes are a block
    let mut newest = lockwright_epochs.newest.load(Relaxed); // checked by the exchange
    loop {
        // SAFETY: ours alone until the exchange succeeds.
        unsafe { (*block).windows.older.store(newest, Relaxed) };
        // ORDERING: Release, pairs with a fork by this thread, which reads `older` in the child, and with commands.
        match lockwright_epochs.newest.compare_exchange(newest, block.cast(), Release, Relaxed) {
            Ok(_) => return block,
            Err(seen) => newest = seen,
        }
    }
}

/// Takes a block that an ended thread has left.
fn take() -> Option<*mut Block> {
    let mut top = FREE.load(Acquire); // ORDERING: pairs with the Release in `give`.
    loop {
        let block = at_page(top);
        // SAFETY: null, or a block, which is never unmapped; a stale link is refused by the tag.
        let next = unsafe { block.as_ref() }?.free.load(Relaxed);
        // ORDERING: Acquire, pairs with the Release in `give`: the block is cleared, and its link is written.
        match FREE.compare_exchange(top, tagged(top, next), Acquire, Acquire) {
            Ok(_) => return Some(block),
            Err(seen) => top = seen,
        }
    }
}

/// Leaves a block to other threads.
///
/// # Safety
/// The block is cleared, and nobody uses it.
unsafe fn give(block: *mut Block) {
    let page = block.addr() as u64 >> 12;
    let mut top = FREE.load(Relaxed); // checked by the exchange
    loop {
        // SAFETY: a block is never unmapped, and ours until the exchange succeeds.
        unsafe { (*block).free.store(top & ((1 << PAGE_BITS) - 1), Relaxed) };
        // ORDERING: Release, pairs with the Acquires in `take`.
        match FREE.compare_exchange(top, tagged(top, page), Release, Relaxed) {
            Ok(_) => return,
            Err(seen) => top = seen,
        }
    }
}

fn tagged(top: u64, page: u64) -> u64 {
    ((top >> PAGE_BITS) + 1) << PAGE_BITS | page
}

fn at_page(top: u64) -> *mut Block {
    core::ptr::with_exposed_provenance_mut(((top & ((1 << PAGE_BITS) - 1)) << 12) as usize)
}

/// In the child of a fork: the other threads' blocks are free.
fn in_child() {
    FREE.store(0, Relaxed); // one thread
    // From here on a signal handler's epoch finds only fresh blocks, and blocks that we have given back.
    let own = block();
    let mut block: *mut Block = lockwright_epochs.newest.load(Relaxed).cast();
    // SAFETY: blocks are never unmapped; nobody but us uses them.
    while let Some(other) = unsafe { block.as_ref() } {
        if block != own {
            other.clear();
            // SAFETY: cleared, and its thread does not exist here.
            unsafe { give(block) };
        }
        block = other.windows.older.load(Relaxed).cast();
    }
}
