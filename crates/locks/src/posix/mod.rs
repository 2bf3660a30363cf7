//! The semantics of a `pthread_mutex_t`, on any machine. The rest depends on the process: threads' ids, the table of locks, its fastest
//! paths. Each file uses only those below it:
//!
//! ```text
//!   operations.rs   lock, try_lock, lock_until, unlock, destroy, lock_again: kinds, owners and answers
//!   contended.rs    a thread waits, or owes a wake: which lock serves the mutex, and what that does
//!   hooks.rs        policies that are asked at every operation
//!   mutex.rs        the mutex's layout, its lock, its process
//!   held.rs         the locks that a thread holds by nodes
//! ```
//!
//! ```text
//!   0 word │ 4 count │ 8 owner │ 12 users, hints │ 16 kind │ 20 place, counts │ 24 tail │ 32 room
//! ```
//!
//! All-zero memory is an unlocked mutex of the plain kind. The fields that glibc's own code looks at keep glibc's
//! meaning, so glibc may lock and unlock the same mutex at any time.
//!
//! Invariants:
//! 1. The mutex and the process's table say which lock a mutex runs on. They are read each time that a thread has to
//!    wait or owes a wake. They are hints: word 0 alone says whether the mutex is held, and whether somebody needs a wake. So
//!    both may change at any moment, with one exception: a mutex's room only ever serves one textbook lock.
//! 2. Only the holder uses `count`. If `owner` is a thread's own id, that thread wrote it there; or, on a mutex of the plain kind,
//!    the thread holds it by a node, and a waiter that fell asleep behind it wrote the id (`name_holder`).

mod contended;
mod held;
mod hooks;
mod mutex;
mod operations;

pub use contended::{
    acquire, acquisitions, ask, forget, hand_on, is_asked, queue_in_front, release,
};
pub use held::Held;
pub use mutex::{
    AcquireBy, Environment, Front, GENERATIONS, How, Me, Mutex, PLACE_MAX, Policy, Releasing,
    Static, UNDECIDED, waiters,
};
pub use mutex::{ERRORCHECK, KINDS, MARKED, RECURSIVE, TYPE, USERS};
pub use operations::{Refused, destroy, holds, is_ours};
pub use operations::{lock, lock_again, lock_until, try_lock, unlock};
