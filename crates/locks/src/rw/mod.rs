//! Locks that let readers in together.
//!
//! ```text
//! rwlock   one word of readers, one word of waiting writers: pthread_rwlock_t, all three preferences
//! ```
pub mod rwlock;
mod waiting;
