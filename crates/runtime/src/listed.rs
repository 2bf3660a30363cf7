//! Which delegated data there are, for commands: they read how each one runs its sections, and may set that by hand.

use crate::layout::Mutex;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use lockwright_contract::delegated::List;

/// The delegated data of this process. Commands look here.
#[unsafe(no_mangle)]
#[used]
static lockwright_delegated: List = List::new();

/// Changes a place from one address to another. `false`: there is none.
fn place(holds: u64, put: u64) -> bool {
    let is_it = |place: &AtomicU64| {
        // Relaxed, all: commands only read it.
        place.load(Relaxed) == holds && place.compare_exchange(holds, put, Relaxed, Relaxed).is_ok()
    };
    lockwright_delegated.places.iter().any(is_it)
}

/// From now on commands know the data that begins with this mutex.
pub(crate) fn begins(at: *mut Mutex) {
    if !place(0, at.addr() as u64) {
        lockwright_delegated.missed.fetch_add(1, Relaxed); // as above
    }
}

/// They end.
pub(crate) fn ends(at: *mut Mutex) {
    place(at.addr() as u64, 0);
}
