//! Units of the machine: times, and threads' numbers.

/// Picoseconds.
pub(crate) type Ps = u64;
/// A thread's number.
pub(crate) type Tid = u32;

/// A time, for a share of it. Times are far below 2^52 ps; signed numbers are converted by one instruction.
#[inline]
#[allow(clippy::cast_precision_loss, reason = "far below 2^52 ps")]
pub(crate) fn real(time: Ps) -> f64 {
    time.cast_signed() as f64
}

/// The whole picoseconds of a time, which isn't negative.
#[inline]
#[allow(clippy::cast_possible_truncation, reason = "a share of a time")]
pub(crate) fn whole(time: f64) -> Ps {
    (time as i64).cast_unsigned()
}

/// `ns` in picoseconds.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "profiles are checked")]
pub(crate) fn ps(ns: f64) -> Ps {
    (ns * 1000.0).round() as Ps
}
