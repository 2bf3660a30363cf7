//! Locks for a process that runs already: `lockwright attach` and `lockwright detach`.
//!
//! ```text
//!   refuse ─► image, words: is our library there? ─► call: one thread loads it ─► stop: all stand still ─► words: written
//! ```
//!
//! The words that say where the program's calls lead are read from its memory each time, and are all that there is to
//! know. So a command that is killed at any point leaves a process that works, and the next one goes on from there.

#[cfg(not(target_arch = "x86_64"))]
mod elsewhere;
#[cfg(target_arch = "x86_64")]
mod live;

#[cfg(not(target_arch = "x86_64"))]
pub(crate) use elsewhere::{attach, detach};
#[cfg(target_arch = "x86_64")]
pub(crate) use live::{attach, detach};
use std::path::PathBuf;
use std::time::Duration;

/// Where the library lies.
#[cfg_attr(
    not(target_arch = "x86_64"),
    expect(dead_code, reason = "`elsewhere` refuses, wherever it lies")
)]
pub(crate) enum From {
    /// For us; the process must see the same file there.
    Here(PathBuf),
    /// For the process.
    Inside(PathBuf),
}

/// What has been done.
pub(crate) struct Done {
    /// How many words lead elsewhere now.
    pub(crate) words: usize,
    /// How many files they belong to.
    pub(crate) files: usize,
    /// How long its threads stood still.
    pub(crate) still: Duration,
}
