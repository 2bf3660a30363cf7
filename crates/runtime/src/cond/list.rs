//! A condvar's list of waiters, for the calling thread.

use crate::layout::Cond;
use crate::{fork, mutex, thread};
use core::sync::atomic::Ordering::Relaxed;
use lockwright_locks::condvar;
use lockwright_locks::front::Parts;
use lockwright_native::Native;
use lockwright_platform::Ptr;

/// `__wrefs`: process-shared.
pub(super) const SHARED: u32 = 1;

/// The condvar's list, in this process, for the calling thread.
pub(super) fn list(c: &Cond) -> condvar::Cond<'_, Native> {
    c.list(thread::id(), fork::era() as u32)
}

/// The mutex of the condvar's waiters, if the calling thread holds it. Called only while somebody is in the list.
pub(super) fn held(c: &Cond) -> Option<Parts<'static, Native>> {
    let mutex = c.mutex.load(Relaxed); // written before its waiter was listed
    // SAFETY: a listed waiter's mutex exists: the waiter can't return before it has left the list.
    unsafe { if mutex::is_held_by_me(mutex) { Some((*mutex).parts()) } else { None } }
}
