//! `lockwright attach` and `lockwright attach --undo`: changing the locks of a process that is already running.
//!
//! ```text
//!   refuse ─► image, words: is our library there? ─► call: one thread loads it ─► stop: all stand still ─► words: written
//! ```
//!
//! The words that hold the targets of the program's calls are read from its memory each time; no other state is kept.
//! So a command that is killed at any point leaves a working process, and the next command continues from there.

#[cfg(not(target_arch = "x86_64"))]
mod elsewhere;
#[cfg(target_arch = "x86_64")]
mod live;

use crate::hints::Failure;
use crate::output;
#[cfg(not(target_arch = "x86_64"))]
pub(crate) use elsewhere::{attach, detach};
#[cfg(target_arch = "x86_64")]
pub(crate) use live::{attach, detach};
use lockwright_numbers::format::time;
use lockwright_observer::process::Process;
use std::path::PathBuf;
use std::time::Duration;

/// Where the library's file is.
#[cfg_attr(
    not(target_arch = "x86_64"),
    expect(dead_code, reason = "`elsewhere` refuses every library")
)]
pub(crate) enum From {
    /// A path that we see; the process must see the same file there.
    Here(PathBuf),
    /// A path that the process sees.
    Inside(PathBuf),
}

/// The result of an attach or detach.
pub(crate) struct Done {
    /// Number of words that were redirected.
    pub(crate) words: usize,
    /// Number of files that contain these words.
    pub(crate) files: usize,
    /// How long the threads were stopped.
    pub(crate) still: Duration,
}

impl Done {
    /// Says what `process` has become, and where its calls lead now.
    pub(crate) fn print(&self, process: &Process, what: &str, to: &str) -> Result<(), Failure> {
        output::print(&format!(
            "{} ({}): {what}; {} entries in {} files lead to {to}\nits threads were stopped for {}\n",
            process.pid,
            process.name(),
            self.words,
            self.files,
            time(self.still.as_secs_f64() * 1e9)
        ))
    }
}
