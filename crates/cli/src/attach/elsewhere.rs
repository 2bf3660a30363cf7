//! `lockwright attach` on machines where it can't: the calls and the words of x86-64 are all that it knows.

use crate::hints::Failure;
use crate::process::Process;
use std::path::PathBuf;
use std::time::Duration;

/// Where the library lies.
pub(crate) enum From {
    /// For us.
    Here(PathBuf),
    /// For the process.
    Inside(PathBuf),
}

/// What would have been done.
pub(crate) struct Done {
    pub(crate) words: usize,
    pub(crate) files: usize,
    pub(crate) still: Duration,
}

pub(crate) fn attach(
    process: &Process,
    from: &From,
    _lock: Option<&str>,
) -> Result<(Done, String), Failure> {
    let (From::Here(_) | From::Inside(_)) = from;
    Err(refusal(process))
}

pub(crate) fn detach(process: &Process) -> Result<Done, Failure> {
    Err(refusal(process))
}

fn refusal(process: &Process) -> Failure {
    Failure::new(format!("cannot attach to process {}: that needs x86-64", process.pid))
        .hint("start it with `lockwright run -- PROGRAM`")
}
