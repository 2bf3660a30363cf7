//! Units of the machine: times, and threads' numbers.

/// Picoseconds.
pub(crate) type Ps = u64;
/// A thread's number.
pub(crate) type Tid = u32;

/// `ns` in picoseconds.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "profiles are checked")]
pub(crate) fn ps(ns: f64) -> Ps {
    (ns * 1000.0).round() as Ps
}
