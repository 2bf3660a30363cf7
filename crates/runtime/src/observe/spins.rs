//! What spin locks do, for observers: who waits. Nobody knows who holds one, and a release isn't seen.

use super::{awaited, begins, ends, place_of};
use crate::caller::Call;
use lockwright_contract::counters::layout::LockKind;

/// The calling thread has to wait for the lock at this address. `false`: the wait isn't counted.
#[cold]
pub(crate) fn waits(lock: usize, call: Call) -> bool {
    let Some(segment) = awaited() else { return false };
    begins(&segment, (lock as u64, LockKind::Spin), || 0, place_of(call));
    true
}

/// The wait has ended.
#[cold]
pub(crate) fn has_waited(lock: usize) {
    if let Some((segment, wait)) = ends(lock as u64, true) {
        segment.waited(&wait);
    }
}
