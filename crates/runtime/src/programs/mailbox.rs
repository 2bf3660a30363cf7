//! This process's mailbox for policies, and what all parts know of it.

use crate::access::{self, Access};
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;
use lockwright_contract::programs::mailbox::{PostRoom, Programs, Tags};
use lockwright_native::kernel;

/// This process's policies.
#[unsafe(no_mangle)]
#[used]
#[unsafe(link_section = ".lockwright.programs")]
pub static lockwright_programs: Programs = Programs::new(&TAGS, &ROOM);

static TAGS: Tags = Tags::new();
static ROOM: PostRoom = PostRoom::new();

/// How often a policy came or went.
pub(super) static CHANGES: AtomicU32 = AtomicU32::new(0);
/// This process; 0: no policy has been loaded yet.
pub(super) static PID: AtomicU32 = AtomicU32::new(0);

/// This process's id. As a rule it isn't asked for: a child of `vfork` would get its own, and has none of the threads in our memory.
pub(super) fn pid() -> u32 {
    match PID.load(Relaxed) {
        0 => kernel::process_id(),
        known => known, // changes only in a child, which has one thread
    }
}

/// This process is a new one, or gets its first policy.
pub(super) fn learn_pid() {
    access::asking(|access| {
        // SAFETY: no preconditions.
        let pid = || unsafe { libc::getpid() } as u32;
        PID.store(if access == Access::None { 0 } else { pid() }, Relaxed); // our callers' business
    });
}

/// A slot's hooks, as `policies` keeps them.
pub(super) fn hooks_word(hooks: u32, turn: u32) -> u32 {
    hooks | turn << 16
}
