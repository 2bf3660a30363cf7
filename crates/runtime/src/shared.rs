//! What all threads share about an epoch: its SLO, its percentile, its name. Each is an independent
//! hint.

use core::ptr::null_mut;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64};
use lockwright_locks::amp::feedback::Percentile;
use lockwright_native::arena;

/// A program's numbers for its epochs are below this.
pub(crate) const NUMBERED: usize = 1024;
/// Epochs that are calls of functions; their ids follow.
pub const FUNCTIONS: usize = 64;
/// All ids.
pub(crate) const IDS: usize = NUMBERED + FUNCTIONS;
/// Bytes of an epoch's name.
pub(crate) const NAME: usize = 64;

/// What all threads share of an epoch.
pub(crate) struct Common {
    /// The SLO that it had last, ns, inverted: 0 means that none is known.
    pub(crate) slo_inverted: AtomicU64,
    /// Millionths; 0: the default.
    pub(crate) percentile: AtomicU32,
    /// The window with which the last thread ended, ns, + 1; 0: none did.
    pub(crate) seed: AtomicU32,
}

pub(crate) static COMMON: [Common; IDS] = [const {
    Common {
        slo_inverted: AtomicU64::new(0),
        percentile: AtomicU32::new(0),
        seed: AtomicU32::new(0),
    }
}; IDS];

/// Names, each in a line of the arena; null: none.
static NAMES: [AtomicPtr<[AtomicU8; NAME]>; IDS] = [const { AtomicPtr::new(null_mut()) }; IDS];

/// The default, millionths.
pub(crate) static DEFAULT_PERCENTILE: AtomicU32 = AtomicU32::new(Percentile::P99.millionths());

/// Names an epoch.
pub(crate) fn set_name(id: u32, name: &[u8]) {
    const _: () = assert!(NAME <= arena::LINE);
    let place = &NAMES[id as usize];
    // ORDERING: Acquire, pairs with the AcqRel below: the line is zeroed.
    let mut line = place.load(Acquire);
    if line.is_null() {
        let fresh = arena::take().cast();
        // ORDERING: AcqRel, pairs with the Acquires here and in `name`: the line is zeroed before it is seen.
        match place.compare_exchange(null_mut(), fresh, AcqRel, Acquire) {
            Ok(_) => line = fresh,
            Err(first) => {
                // SAFETY: taken above, and nobody has seen it.
                unsafe { arena::give(fresh.cast()) };
                line = first;
            }
        }
    }
    // SAFETY: lines stay readable forever; the bytes are atomic.
    let line = unsafe { &*line };
    for (at, byte) in line[..NAME - 1].iter().enumerate() {
        // For people's eyes, on a terminal: no control characters.
        let shown = |byte: u8| if byte < b' ' || byte == 0x7f { b' ' } else { byte };
        byte.store(name.get(at).copied().map_or(0, shown), Relaxed);
    }
}

/// The name of an epoch; empty if it has none.
pub(crate) fn name(id: u32, buffer: &mut [u8; NAME]) -> &[u8] {
    // ORDERING: Acquire, pairs with `set_name`.
    let line = NAMES[id as usize].load(Acquire);
    // SAFETY: null, or a line, which stays readable forever.
    let Some(line) = (unsafe { line.as_ref() }) else { return &[] };
    for (to, from) in buffer.iter_mut().zip(line) {
        *to = from.load(Relaxed); // for people's eyes
    }
    let len = buffer.iter().position(|&byte| byte == 0).unwrap_or(NAME);
    &buffer[..len]
}

/// The percentile of an epoch.
#[inline(always)]
pub(crate) fn percentile(id: u32) -> Percentile {
    let own = COMMON[id as usize].percentile.load(Relaxed); // numbers by themselves, both
    let millionths = if own != 0 { own } else { DEFAULT_PERCENTILE.load(Relaxed) };
    Percentile::from_millionths(millionths).unwrap_or(Percentile::P99)
}
