//! Copied pieces of stacks, for a reader to unwind: a hash table in a mapped file. So programs need no frame pointers.
//!
//! ```text
//!   keys      one for each piece: looked for without reading the pieces; 0: free
//!   stacks    the pieces; holes until used
//! ```

use crate::file;
use crate::hash::{MOVING, ways};
use crate::header::PAGE;
use core::mem::offset_of;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64};

/// Bytes of each piece.
pub const PIECE: usize = 2 * PAGE - 48;

/// A piece of a stack, as it was at the time of the call.
#[repr(C)]
#[derive(Debug)]
pub struct Stack {
    /// The writer's own key for the place; 0: free.
    pub key: AtomicU64,
    /// The return address of the call.
    pub site: AtomicU64,
    /// The stack pointer after it.
    pub pointer: AtomicU64,
    /// The frame pointer.
    pub frame: AtomicU64,
    /// The number of bytes, from the stack pointer upwards; 0: none yet.
    pub length: AtomicU32,
    /// Not 0: locks that were taken here were held while others were.
    pub nests: AtomicU32,
    /// Nothing yet.
    pub reserved: u64,
    /// The bytes.
    pub bytes: [u8; PIECE],
}

const _: () = assert!(size_of::<Stack>() == 2 * PAGE);

/// The table.
#[derive(Clone, Copy, Debug)]
pub struct Pieces<'a> {
    keys: &'a [AtomicU64],
    stacks: *mut u8,
}

impl<'a> Pieces<'a> {
    /// # Safety
    /// At `stacks`, which is the start of a page, there is room for as many [`Stack`]s as there are keys, mapped for as
    /// long as `'a`.
    pub unsafe fn new(keys: &'a [AtomicU64], stacks: *mut u8) -> Self {
        Self { keys, stacks }
    }

    /// The index + 1 of the piece with this key, which is neither 0 nor all ones. If the piece is new, `fill` is
    /// called: it writes up to [`PIECE`] bytes and returns their number. `None`: there is no room, or the piece is just
    /// being written.
    pub fn put(
        &self,
        key: u64,
        [site, pointer, frame]: [u64; 3],
        fill: impl FnOnce(*mut u8) -> usize,
    ) -> Option<u32> {
        let keys = self.keys;
        let mut ways = ways(key, keys.len());
        // ORDERING: Acquire, pairs with the Release below.
        if let Some(at) = ways.clone().find(|&at| keys[at].load(Acquire) == key) {
            return Some(at as u32 + 1);
        }
        // ORDERING: Acquire, as above.
        let claim = |&at: &usize| keys[at].compare_exchange(0, MOVING, Acquire, Relaxed).is_ok();
        let at = ways.find(claim)?;
        // SAFETY: `new`'s promise.
        let start = unsafe { self.stacks.add(at * size_of::<Stack>()) };
        // SAFETY: whole pages, mapped.
        unsafe { file::populate(start, size_of::<Stack>()) }.ok()?; // otherwise the place stays MOVING, so nobody tries again
        // SAFETY: it is populated, and zeroes are a valid stack.
        let stack: &Stack = unsafe { &*start.cast() };
        stack.site.store(site, Relaxed); // published below
        stack.pointer.store(pointer, Relaxed); // as above
        stack.frame.store(frame, Relaxed); // as above
        // SAFETY: within the piece.
        let length = fill(unsafe { start.add(offset_of!(Stack, bytes)) });
        stack.length.store(length as u32, Relaxed); // as above
        stack.key.store(key, Relaxed); // as above
        // ORDERING: Release, pairs with the Acquires above.
        keys[at].store(key, Release);
        Some(at as u32 + 1)
    }

    /// The piece of this number.
    pub fn get(&self, number: u32) -> Option<&'a Stack> {
        let at = (number as usize).checked_sub(1).filter(|&at| at < self.keys.len())?;
        // SAFETY: a thread that has a number has seen its key, and the piece was written before the key.
        Some(unsafe { &*self.stacks.add(at * size_of::<Stack>()).cast() })
    }
}
