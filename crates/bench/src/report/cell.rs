//! Texts of single cells.

use crate::measured::Status;

/// A word for how a measurement ended; empty if it succeeded.
pub(super) fn status(status: Status) -> &'static str {
    match status {
        Status::Ok => "",
        Status::Unsupported => "not offered",
        Status::Hung => "hung",
        Status::Failed => "failed",
    }
}
