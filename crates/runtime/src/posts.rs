//! What commands post while the program runs, and one waiting thread at a time takes up: a table of locks (`switch`), a policy
//! (`programs`). That thread is on the lock path. So it gets memory from the kernel, takes no lock, and says in the mailbox why it
//! refuses something.
//!
//! What is on lease, and when the lease is over, is known here: `lockwright_contract::mailbox` has the rules.

use crate::access::{self, Access};
use core::sync::atomic::Ordering::Relaxed;
use lockwright_contract::mailbox::Mailbox;
use lockwright_native::futex::{self, Clock};
use lockwright_native::kernel;

/// This process's mailbox.
#[unsafe(no_mangle)]
#[used]
#[unsafe(link_section = ".lockwright.mailbox")]
pub static lockwright_mailbox: Mailbox = Mailbox::new();

/// Is it on lease, [`TABLE`](lockwright_contract::mailbox::TABLE) or [`SLOTS`](lockwright_contract::mailbox::SLOTS), and the lease over?
#[inline(always)]
pub(crate) fn has_run_out(what: u32) -> bool {
    lockwright_mailbox.leased.load(Relaxed) & what != 0 && is_over() // a hint: who goes back looks again
}

/// Has nobody renewed the lease?
#[cold]
#[inline(never)]
pub(crate) fn is_over() -> bool {
    // A command that renews it at this moment looks afterwards whether it was too late.
    futex::now(Clock::Monotonic) > lockwright_mailbox.lease_ns.load(Relaxed)
}

/// Why something comes too late.
pub(crate) const LATE: &[u8] = b"the command was stopped for too long, and its lease is over";

/// Why something is refused.
pub(crate) struct Refusal {
    text: [u8; 256],
    len: usize,
}

impl Refusal {
    /// No reason yet.
    pub(crate) const fn new() -> Self {
        Self { text: [0; 256], len: 0 }
    }

    /// Sets this text, and returns `None`: it is refused.
    pub(crate) fn because<T>(&mut self, pieces: &[&[u8]]) -> Option<T> {
        self.len = 0;
        for byte in pieces.iter().copied().flatten() {
            if let Some(slot) = self.text.get_mut(self.len) {
                *slot = *byte;
                self.len += 1;
            }
        }
        None
    }

    /// The text.
    pub(crate) fn text(&self) -> &[u8] {
        &self.text[..self.len]
    }
}

/// Why there may be no memory: see [`map`].
pub(crate) const NO_MEMORY: &[u8] =
    b"it may ask for no memory (it has confined itself), or there is none";

/// Zeroed memory; `None`: no memory is left, or a filter may kill for asking.
pub(crate) fn map(bytes: usize) -> Option<*mut u8> {
    access::asking(|access| match access {
        Access::None => None,
        _ => kernel::map(bytes),
    })
}

/// Gives it back. It stays mapped if a filter may kill for asking.
///
/// # Safety
/// It came from [`map`] with as many bytes, and nobody uses it any more.
pub(crate) unsafe fn unmap(memory: *mut u8, bytes: usize) {
    access::asking(|access| {
        if access != Access::None {
            // SAFETY: our own mapping, by our caller's promise.
            unsafe { kernel::unmap(memory, bytes) };
        }
    });
}
