//! Functions of a program that only pass a lock on (`my_mutex_lock`). A command tells the process which these are. Then the process
//! counts waits and holds at the places that call them.
//!
//! ```text
//!   from     the address in such a function to which our function returns
//!   slot     where that function's own return address lies, as seen when our function was called: at this distance from the
//!            stack pointer, or from the frame pointer; and likewise where its caller's frame pointer is
//! ```
//!
//! A command writes an entry, and then `count`. Entries never change: another library at an old one's address gets none, as long as
//! the table has the old one.

use core::sync::atomic::{AtomicU32, AtomicU64};

/// The symbol of a process's [`Wrappers`].
pub const SYMBOL: &str = "lockwright_wrappers";
/// How they begin. Changes with the layout.
pub const MAGIC: u64 = u64::from_le_bytes(*b"lockwrp1");
/// Maximum number of entries.
pub const WRAPPERS: usize = 64;

/// An entry.
#[repr(C)]
#[derive(Debug)]
pub struct Wrapper {
    /// A return address within the function.
    pub from: AtomicU64,
    /// A [`BackSlot`], packed.
    pub slot: AtomicU64,
}

/// The memory.
#[repr(C)]
#[derive(Debug)]
pub struct Wrappers {
    /// [`MAGIC`].
    pub magic: u64,
    /// Its own size, in bytes.
    pub size: u32,
    /// Number of entries.
    pub count: AtomicU32,
    /// The entries.
    pub all: [Wrapper; WRAPPERS],
}

impl Default for Wrappers {
    fn default() -> Self {
        Self::new()
    }
}

impl Wrappers {
    /// An empty table.
    pub const fn new() -> Self {
        Self {
            magic: MAGIC,
            size: size_of::<Self>() as u32,
            count: AtomicU32::new(0),
            all: [const { Wrapper { from: AtomicU64::new(0), slot: AtomicU64::new(0) } }; WRAPPERS],
        }
    }
}

/// What an address is relative to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// The stack pointer, after our function's return.
    Stack,
    /// The frame pointer.
    Frame,
}

/// Where a function's return address lies, and where its caller's frame pointer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackSlot {
    /// The return address: base, and distance in bytes.
    pub back: (Base, u16),
    /// The frame pointer: likewise; `None`: it is still in its register.
    pub frame: Option<(Base, u16)>,
}

impl BackSlot {
    /// Distances above this can't be packed.
    pub const MOST: u16 = 0x3fff;

    /// As one word.
    pub const fn pack(self) -> u64 {
        const fn place((base, distance): (Base, u16)) -> u64 {
            (distance as u64) << 1 | matches!(base, Base::Frame) as u64
        }
        let frame = match self.frame {
            None => 0,
            Some(frame) => place(frame) << 1 | 1,
        };
        place(self.back) | frame << 16
    }

    /// From a word.
    pub const fn unpack(word: u64) -> Self {
        const fn place(word: u64) -> (Base, u16) {
            let base = if word & 1 == 0 { Base::Stack } else { Base::Frame };
            (base, (word >> 1) as u16 & BackSlot::MOST)
        }
        let frame = word >> 16;
        let frame = if frame & 1 == 0 { None } else { Some(place(frame >> 1)) };
        Self { back: place(word), frame }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_packed_without_loss() {
        let bases = [Base::Stack, Base::Frame];
        for back in bases.map(|base| (base, 24)).into_iter().chain([(Base::Frame, BackSlot::MOST)])
        {
            for frame in [None, Some((Base::Stack, 16)), Some((Base::Frame, 0))] {
                let slot = BackSlot { back, frame };
                assert_eq!(BackSlot::unpack(slot.pack()), slot);
            }
        }
    }
}
