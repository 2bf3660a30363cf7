//! `LOCKWRIGHT_PAUSE=mfence`: the instruction that waiters spin with while they stay awake.

use crate::env::{say, variable};
use lockwright_native::pause::Pause;

/// Reads the variable. If the kind is unknown, or this processor lacks it, that is reported, and nothing changes.
pub(crate) fn load() {
    let Some(text) = variable(c"LOCKWRIGHT_PAUSE") else { return };
    match Pause::named(text) {
        None => say(&[
            b"unknown LOCKWRIGHT_PAUSE '",
            text,
            b"': waiters use pause\nhint: lockwright doctor --topology lists what this processor has\n",
        ]),
        Some(kind) if !kind.publish() => say(&[
            b"LOCKWRIGHT_PAUSE: this processor lacks '",
            text,
            b"': waiters use pause\nhint: lockwright doctor --topology lists what it has\n",
        ]),
        Some(_) => {}
    }
}
