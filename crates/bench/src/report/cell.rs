//! Texts of single cells.

use crate::measured::Status;

/// How a measurement ended; nothing if it was well.
pub(super) fn status(status: Status) -> &'static str {
    match status {
        Status::Ok => "",
        Status::Unsupported => "not offered",
        Status::Hung => "hung",
        Status::Failed => "failed",
    }
}
