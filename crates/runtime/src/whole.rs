//! The textbook locks under the preload. The lock lies in 8 bytes of the mutex that nothing else uses, and its holder
//! may compete for word 0. So trylock, timed locks and condvars need to know only word 0.

use crate::layout::Mutex;
use lockwright_locks::catalog::{WholeVisitor, visit_whole};
use lockwright_locks::entry::Entry;
use lockwright_locks::front::{Seat, Tuning};
use lockwright_locks::posix::queue_in_front;
use lockwright_native::Native;
use lockwright_platform::{InPlace, TryLock};

/// Acquires word 0, queueing in a textbook lock.
pub(crate) type Acquire = fn(&Mutex, &Tuning, &Seat<Native>);

struct Find {
    id: &'static str,
    found: Option<Acquire>,
}

impl WholeVisitor<Native> for Find {
    fn visit<L: TryLock<Native> + InPlace>(&mut self, entry: &'static Entry) {
        if entry.id == self.id {
            self.found = Some(acquire::<L>);
        }
    }
}

/// The textbook lock called `id`.
pub(crate) fn find(id: &'static str) -> Option<Acquire> {
    let mut find = Find { id, found: None };
    visit_whole::<Native>(&mut find);
    find.found
}

fn acquire<L: TryLock<Native> + InPlace>(mutex: &Mutex, tuning: &Tuning, seat: &Seat<Native>) {
    const { assert!(size_of::<L>() <= 8 && align_of::<L>() <= 8 && !core::mem::needs_drop::<L>()) };
    const { assert!(size_of::<L::Node>() <= room::BLOCK && !core::mem::needs_drop::<L::Node>()) };
    // SAFETY: 8 aligned bytes that begin zeroed (an unlocked L, by InPlace). They are an L forever, since a mutex's
    // textbook lock is chosen once.
    let lock = unsafe { &*mutex.room.0.get().cast::<L>() };
    let node = room::take().cast::<L::Node>();
    // SAFETY: a block of our own, large enough and aligned, which stays until nobody uses the node any more. (If this thread is torn away, it
    // is lost.)
    unsafe {
        node.write(L::Node::default());
        queue_in_front(mutex, lock, tuning, seat, node);
        room::give(node.cast());
    }
}

/// Where nodes lie. Not on the waiter's stack: if it is torn out of the queue, others go on using its node for a while.
mod room {
    use core::ptr::null_mut;
    use core::sync::atomic::AtomicPtr;
    use core::sync::atomic::Ordering::{AcqRel, Relaxed, Release};
    use lockwright_native::Native;
    use lockwright_platform::Platform;

    /// Bytes of a block.
    pub(super) const BLOCK: usize = 4096;

    /// Free blocks.
    static FREE: [AtomicPtr<u8>; 64] = [const { AtomicPtr::new(null_mut()) }; 64];

    /// The slots, from one on that depends on the caller's CPU.
    fn slots() -> impl Iterator<Item = &'static AtomicPtr<u8>> {
        let first = Native::place().cpu as usize * 2 % FREE.len();
        FREE[first..].iter().chain(&FREE[..first])
    }

    /// A block. If no memory is left, it waits until there is some.
    pub(super) fn take() -> *mut u8 {
        loop {
            let mut used = slots().filter(|slot| !slot.load(Relaxed).is_null());
            // ORDERING: AcqRel, pairs with the Release in `give`: whoever used it has done so.
            let block = used
                .find_map(|slot| Some(slot.swap(null_mut(), AcqRel)).filter(|at| !at.is_null()));
            if let Some(block) = block {
                return block;
            }
            let (protection, flags) =
                (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            // SAFETY: a fresh anonymous mapping overlaps nothing.
            let fresh = unsafe { libc::mmap(null_mut(), BLOCK, protection, flags, -1, 0) };
            if fresh != libc::MAP_FAILED {
                return fresh.cast();
            }
            Native::give_way();
        }
    }

    /// Gives a block back.
    ///
    /// # Safety
    /// It came from [`take`], and nobody uses it any more.
    pub(super) unsafe fn give(block: *mut u8) {
        // ORDERING: Release, pairs with the Acquire in `take`.
        let put = |slot: &AtomicPtr<u8>| {
            slot.compare_exchange(null_mut(), block, Release, Relaxed).is_ok()
        };
        if !slots().any(put) {
            // SAFETY: our own mapping, by the caller's promise.
            unsafe { libc::munmap(block.cast(), BLOCK) };
        }
    }
}
