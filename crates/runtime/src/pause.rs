//! `LOCKWRIGHT_PAUSE=mfence`: by which instruction waiters that stay awake pass the time.

use crate::env::{say, variable};
use lockwright_native::pause::Pause;

/// Reads the variable. A kind that nobody knows, or that this processor lacks, is reported, and nothing changes.
pub(crate) fn load() {
    let Some(text) = variable(c"LOCKWRIGHT_PAUSE") else { return };
    match Pause::named(text) {
        None => say(&[
            b"unknown LOCKWRIGHT_PAUSE '",
            text,
            b"': waiters use pause\nhint: lockwright topology lists what this processor has\n",
        ]),
        Some(kind) if !kind.publish() => say(&[
            b"LOCKWRIGHT_PAUSE: this processor lacks '",
            text,
            b"': waiters use pause\nhint: lockwright topology lists what it has\n",
        ]),
        Some(_) => {}
    }
}
