//! What all threads share about an epoch: its SLO, its percentile, its name. Each is an independent hint.

use core::ptr::null_mut;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use lockwright_contract::epochs::Epochs;
pub use lockwright_contract::epochs::FUNCTIONS;
pub(crate) use lockwright_contract::epochs::{Common, IDS, NAME, NUMBERED};
use lockwright_contract::text::unpadded;
use lockwright_locks::amp::feedback::Percentile;
use lockwright_native::arena;

/// This process's epochs. Commands look here (`lockwright switch`).
#[unsafe(no_mangle)]
#[used]
pub(crate) static lockwright_epochs: Epochs = Epochs::new(Percentile::P99.millionths());

/// What all threads share about each epoch.
#[inline(always)]
pub(crate) fn common() -> &'static [Common; IDS] {
    &lockwright_epochs.common
}

/// Names an epoch.
pub(crate) fn set_name(id: u32, name: &[u8]) {
    const _: () = assert!(NAME <= arena::LINE);
    let place = &lockwright_epochs.names[id as usize];
    // ORDERING: Acquire, pairs with the AcqRel below: the name's memory is zeroed.
    let mut line = place.load(Acquire);
    if line.is_null() {
        let fresh = arena::take().cast();
        // ORDERING: AcqRel, pairs with the Acquires here and in `name`: the memory is zeroed before it is seen.
        match place.compare_exchange(null_mut(), fresh, AcqRel, Acquire) {
            Ok(_) => line = fresh,
            Err(first) => {
                // SAFETY: taken above, and nobody has seen it.
                unsafe { arena::give(fresh.cast()) };
                line = first;
            }
        }
    }
    // SAFETY: it stays readable forever, and the bytes are atomic.
    let line = unsafe { &*line };
    for (at, byte) in line[..NAME - 1].iter().enumerate() {
        // People will read it on a terminal: no control characters.
        let shown = |byte: u8| if byte < b' ' || byte == 0x7f { b' ' } else { byte };
        byte.store(name.get(at).copied().map_or(0, shown), Relaxed);
    }
}

/// The name of an epoch; empty if it has none.
pub(crate) fn name(id: u32, buffer: &mut [u8; NAME]) -> &[u8] {
    // ORDERING: Acquire, pairs with `set_name`.
    let line = lockwright_epochs.names[id as usize].load(Acquire);
    // SAFETY: null, or memory that stays readable forever.
    let Some(line) = (unsafe { line.as_ref() }) else { return &[] };
    for (to, from) in buffer.iter_mut().zip(line) {
        *to = from.load(Relaxed); // only people read it
    }
    unpadded(buffer)
}

/// The percentile of an epoch.
#[inline(always)]
pub(crate) fn percentile(id: u32) -> Percentile {
    let own = common()[id as usize].percentile.load(Relaxed); // guard no other data, both
    let millionths = if own != 0 { own } else { lockwright_epochs.percentile.load(Relaxed) };
    Percentile::from_millionths(millionths).unwrap_or(Percentile::P99)
}
