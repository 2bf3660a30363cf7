//! `lockwright attach` on other machines: it refuses, because it knows only the calls and words of x86-64.

use super::{Done, From};
use crate::hints::Failure;
use lockwright_observer::process::Process;

pub(crate) fn attach(
    process: &Process,
    _from: &From,
    _lock: Option<&str>,
) -> Result<(Done, String), Failure> {
    Err(refusal(process))
}

pub(crate) fn detach(process: &Process) -> Result<Done, Failure> {
    Err(refusal(process))
}

fn refusal(process: &Process) -> Failure {
    Failure::new(format!("cannot attach to process {}: that needs x86-64", process.pid))
        .hint("start it with `lockwright run -- PROGRAM`")
}
