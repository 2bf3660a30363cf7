//! Handles Ctrl-C during long work on other threads.

use crate::output::say;
use indicatif::ProgressBar;
use lockwright_bench::{catch_interrupts, interrupted};
use std::process;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// The shells' exit code for SIGINT.
pub(crate) const INTERRUPTED: u8 = 130;

/// The shells' exit code for the signal that ended the work: Ctrl-C, SIGHUP or SIGTERM.
pub(crate) fn ended_by() -> process::ExitCode {
    lockwright_bench::ending_signal().map_or(INTERRUPTED, |signal| 128 + signal as u8).into()
}

/// How often we check for Ctrl-C.
const LOOK: Duration = Duration::from_millis(50);

/// From its creation until [`over`](Self::over), Ctrl-C ends the command with a message and exit code 130. Work in
/// progress is abandoned, because a run may take minutes.
pub(crate) struct Watch(Arc<Mutex<Watched>>);

struct Watched {
    bar: ProgressBar,
    /// Describes the work done so far.
    done: fn(&ProgressBar) -> String,
    /// The command that continues the work, if its results are kept.
    resume: Option<String>,
    is_over: bool,
}

impl Watch {
    /// `done` describes the work done so far, from the progress bar. `resume` is the command that continues it, if
    /// results are kept.
    pub(crate) fn new(
        bar: &ProgressBar,
        done: fn(&ProgressBar) -> String,
        resume: Option<String>,
    ) -> Self {
        catch_interrupts();
        let watched = Watched { bar: bar.clone(), done, resume, is_over: false };
        let watch = Self(Arc::new(Mutex::new(watched)));
        let seen = Arc::clone(&watch.0);
        thread::spawn(move || {
            loop {
                thread::sleep(LOOK);
                // Holding this lock keeps `over` from returning.
                let watched = seen.lock().unwrap_or_else(PoisonError::into_inner);
                if watched.is_over {
                    return;
                }
                watched.look();
            }
        });
        watch
    }

    /// The work is done; its results are about to be written.
    pub(crate) fn over(self) {
        let mut watched = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        watched.look();
        watched.is_over = true;
    }
}

impl Watched {
    fn look(&self) {
        if interrupted() {
            let done = (self.done)(&self.bar); // before the bar is cleared
            self.bar.finish_and_clear();
            say(&match &self.resume {
                Some(command) => format!("interrupted: {done}, which are kept\nhint: {command}\n"),
                None => format!("interrupted: {done}, nothing written\n"),
            });
            process::exit(INTERRUPTED.into());
        }
    }
}
