//! Ctrl-C while other threads work for long.

use crate::output::say;
use indicatif::ProgressBar;
use lockwright_bench::{catch_interrupts, interrupted};
use std::process;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// The shells' exit code for SIGINT.
pub(crate) const INTERRUPTED: u8 = 130;

/// How often we check for Ctrl-C.
const LOOK: Duration = Duration::from_millis(50);

/// From its making until [`over`](Self::over) Ctrl-C ends the command with a line and the exit code 130. What threads have
/// begun is given up: a run may take minutes.
pub(crate) struct Watch(Arc<Mutex<Watched>>);

struct Watched {
    bar: ProgressBar,
    /// What had been done, in words.
    done: fn(&ProgressBar) -> String,
    /// The command that goes on from there, if what was done is kept.
    resume: Option<String>,
    is_over: bool,
}

impl Watch {
    /// `done` says what had been done, by the bar; `resume` is the command that goes on from there, if it is kept.
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
                // Nobody gets past `over` meanwhile.
                let watched = seen.lock().unwrap_or_else(PoisonError::into_inner);
                if watched.is_over {
                    return;
                }
                watched.look();
            }
        });
        watch
    }

    /// The work is done, and its results are being written.
    pub(crate) fn over(self) {
        let mut watched = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        watched.look();
        watched.is_over = true;
    }
}

impl Watched {
    fn look(&self) {
        if interrupted() {
            let done = (self.done)(&self.bar); // before the bar forgets it
            self.bar.finish_and_clear();
            say(&match &self.resume {
                Some(command) => format!("interrupted: {done}, which are kept\nhint: {command}\n"),
                None => format!("interrupted: {done}, nothing written\n"),
            });
            process::exit(INTERRUPTED.into());
        }
    }
}
