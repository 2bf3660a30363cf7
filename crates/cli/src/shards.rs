//! Connects commands with `lockwright_shards`, and converts its errors.

use crate::hints::Failure;
use lockwright_bench::{Machine, command_line, shown_command};
use lockwright_shards::{Error, Flags, Merge, Merger, Plan, Session};
use std::path::Path;

/// The shards that this command merges.
pub(crate) const MERGER: Merger = Merger {
    program: "lockwright",
    commands: &["sim", "reproduce", "explore", "bench"],
    times: &[("explore", "seconds")],
};

/// The error for shards whose command is not an experiment, or would write where the merge wasn't told to.
pub(crate) fn refused(what: &str) -> Failure {
    Failure::new(format!("the shards are from a command that makes none: {what}"))
        .hint(format!("the commands that make shards: lockwright {}", MERGER.commands.join(", ")))
}

/// Converts an error of `lockwright_shards`.
#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
pub(crate) fn failure(error: Error) -> Failure {
    Failure::new(error.message()).hint(error.hint())
}

/// The session that the flags request, or the merged shards. `inputs` is everything that determines the results.
pub(crate) fn session(
    flags: &Flags,
    output: Option<&Path>,
    merged: Option<Merge>,
    inputs: impl IntoIterator<Item: AsRef<[u8]>>,
) -> Result<Session, Failure> {
    if let Some(merged) = merged {
        let plan = Plan::new("lockwright", merged.words(), inputs);
        return merged.session(&plan).map_err(failure);
    }
    if flags.are_unused() {
        return Ok(Session::transient()); // the inputs may be long
    }
    let plan = Plan::new("lockwright", lockwright_shards::words().map_err(failure)?, inputs);
    flags.open(&plan, output, || Machine::here().host()).map_err(failure)
}

/// The command for reports, as it would be for one machine.
pub(crate) fn command(session: &Session) -> String {
    session.words().map_or_else(command_line, |words| {
        shown_command(std::iter::once("lockwright".to_owned()).chain(words))
    })
}
