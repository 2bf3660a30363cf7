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
    /// Number of words whose calls change sides. The same on the way in and out.
    pub(crate) words: usize,
    /// Number of files that contain these words.
    pub(crate) files: usize,
    /// Of these words, those that lead to us also from now on.
    pub(crate) kept: usize,
    /// How long the threads were stopped.
    pub(crate) still: Duration,
}

impl Done {
    /// Says what has become of `process`, and where its calls lead now.
    pub(crate) fn print(&self, process: &Process, what: &str, to: &str) -> Result<(), Failure> {
        output::print(&self.text(&format!("{} ({}): {what}", process.pid, process.name()), to))
    }

    fn text(&self, what: &str, to: &str) -> String {
        let Self { words, files, kept, still } = self;
        let all = format!("{words} entries in {files} file{}", if *files == 1 { "" } else { "s" });
        let mut text = match kept {
            0 => output::wrapped(&format!("{what}; {all} lead to {to}")),
            _ => {
                output::wrapped(&format!("{what}; of {all}, {} lead to {to}", words - kept))
                    + "\n"
                    + &output::wrapped(&format!(
                        "the other {kept} are calls that destroy mutexes and stay ours: glibc's refuse a mutex \
                         that was locked on one side and unlocked on the other"
                    ))
            }
        };
        text += &format!("\nits threads were stopped for {}\n", time(still.as_secs_f64() * 1e9));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_count_on_the_way_in_and_out() {
        let still = Duration::from_micros(700);
        let done = |kept| Done { words: 34, files: 2, kept, still };
        assert_eq!(
            done(0).text("42 (server): attached, fifo", "our locks"),
            "42 (server): attached, fifo; 34 entries in 2 files lead to our locks\nits threads were stopped for 700 µs\n"
        );
        assert_eq!(
            done(4).text("42 (server): detached", "glibc's locks again"),
            "42 (server): detached; of 34 entries in 2 files, 30 lead to glibc's locks again\n\
             the other 4 are calls that destroy mutexes and stay ours: glibc's refuse a mutex\n  that was locked on one side and unlocked on the other\n\
             its threads were stopped for 700 µs\n"
        );
    }
}
