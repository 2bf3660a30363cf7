//! Counts what a process's locks do, in shared memory, while the process runs. There is one record for each contended
//! lock.
//!
//! Readers map the same layout.
//!
//! ```text
//!   byte 0        CountersHeader: who writes it, how, and what was lost
//!   KEYS_AT       LOCKS keys: a lock's address, or a place where locks that are gone were waited for; 0: free
//!   STACKS_AT     STACKS x Stack: each stack once
//!   TAKERS_AT     TAKERS x Taker: who has which semaphore
//!   MAPS_AT       what lies where in the process's memory: addresses get names when it has ended
//!   RECORDS_AT    RECORDS records, one for each key; the last two are for those that found no room. Holes until used
//!   PIECES_AT     PIECES x pieces of stacks, as they were. Holes until used
//! ```
//!
//! Invariants:
//! 1. Every update is one relaxed atomic operation. So the file can be read at any time, and is complete after `kill
//!    -9`.
//! 2. The kernel allocates a record's memory before it is used: a full disk means "not counted", never SIGBUS.
//! 3. The file is bounded ([`layout::LENGTH`]), and so is what an update looks at: [`layout::WAYS`] keys, [`layout::SITES`] sites.
//! 4. A record may be given to another lock at any moment, by [`Segment::retire`] or for want of room. An update in
//!    progress then counts for the other lock. That is rare, and breaks nothing.

mod conditions;
pub mod control;
mod count;
mod drain;
pub mod layout;
mod now;
mod reset;
mod rw;
mod segment;
mod semaphore;
mod tries;
pub mod wrappers;

pub use conditions::Waking;
pub use count::{Blame, LOGARITHM, Wait, stack_hash};
pub use now::WaitedNow;
pub use rw::{Behind, RwWait};
pub use segment::Segment;
pub use semaphore::{Taken, WaitedSemaphore};
