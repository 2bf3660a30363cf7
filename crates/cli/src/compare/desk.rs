//! The terminal's side of a run.

use crate::signals::Watch;
use indicatif::ProgressBar;

/// It handles signals and shows progress.
pub(crate) struct Desk<'a> {
    pub(crate) watch: &'a Watch,
    pub(crate) bar: &'a ProgressBar,
}
