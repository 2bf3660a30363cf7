//! Which functions' calls are epochs, and what else the patched words lead to.

use crate::epoch;
use core::cell::UnsafeCell;
use core::sync::atomic::Ordering::Acquire;
use core::sync::atomic::{AtomicBool, AtomicUsize};

/// Room for this many functions.
pub(super) const FUNCTIONS: usize = 32;
/// Room for this many bytes of LOCKWRIGHT_EPOCHS.
pub(super) const TEXT: usize = 16 * 1024;
const _: () = assert!(FUNCTIONS <= epoch::FUNCTIONS);

/// A function whose calls are epochs.
#[derive(Clone, Copy)]
pub(super) struct Function {
    /// Where its name lies in the text.
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) epoch: u32,
}

pub(super) struct Store {
    pub(super) text: [u8; TEXT],
    pub(super) functions: [Option<Function>; FUNCTIONS],
}

pub(super) struct StoreCell(pub(super) UnsafeCell<Store>);
// SAFETY: written by `load`, once, before `ON`; read after that.
unsafe impl Sync for StoreCell {}
pub(super) static STORE: StoreCell =
    StoreCell(UnsafeCell::new(Store { text: [0; TEXT], functions: [None; FUNCTIONS] }));
/// Is there any function?
pub(super) static ON: AtomicBool = AtomicBool::new(false);

/// Stand-ins for the functions, in a program whose code takes their addresses at fixed places: its own linkage
/// table's entries. Calls to them reach the trampoline by the program's slot.
pub(super) static STAND_INS: [AtomicUsize; FUNCTIONS] = [const { AtomicUsize::new(0) }; FUNCTIONS];
/// Does some library (not the program) have the old kind of path (DT_RPATH), which also applies to its libraries'
/// libraries?
pub(super) static OLD_PATHS: AtomicBool = AtomicBool::new(false);
/// The real functions. Written before any slot leads to their hooks.
pub(super) static DLSYM: AtomicUsize = AtomicUsize::new(0);
pub(super) static DLOPEN: AtomicUsize = AtomicUsize::new(0);

/// What a name stands for.
#[derive(Clone, Copy)]
pub(super) enum Wanted {
    Function(usize),
    Dlsym,
    Dlopen,
}

pub(super) fn store() -> Option<&'static Store> {
    // ORDERING: Acquire, pairs with `load`.
    // SAFETY: ON: nobody writes any more.
    ON.load(Acquire).then(|| unsafe { &*STORE.0.get() })
}

pub(super) fn find(name: &[u8]) -> Option<usize> {
    let store = store()?;
    let mut functions = store.functions.iter().map_while(|function| *function);
    functions.position(|function| &store.text[function.start..function.end] == name)
}
