//! Does delegation pay for a lock? RCL's question, and what is known about this machine.

use lockwright_calibrate::{Delegation, in_words};

/// RCL (Lozi et al., USENIX ATC 2012): on its authors' machine of 48 cores, delegation beat POSIX locks if threads spent at
/// least this share of their time in a lock's critical sections or waiting for them.
const RCL: f64 = 0.15;
/// The same value for messages.
const RCL_SHOWN: &str = "15 %";

/// What to say about a lock in whose sections, or waiting for them, threads spend this share (0 to 1) of their time; `None`:
/// nothing. `here` is what `lockwright sim --calibrate --write` measured on this machine.
pub(crate) fn delegate(share: f64, here: Option<&Delegation>) -> Option<String> {
    let theirs = format!(
        "on the RCL authors' machine of 48 cores, delegation beat POSIX locks from {RCL_SHOWN} on"
    );
    match here {
        Some(here) => match here.over_glibc {
            Some(least) if share >= least => {
                Some(format!("delegate this one (docs/delegation.md): {}", in_words(here)))
            }
            Some(_) => None,
            None if share >= RCL => Some(format!("{}; {theirs}", in_words(here))),
            None => None,
        },
        None if share >= RCL => Some(format!(
            "{theirs} (docs/delegation.md). This machine's threshold isn't known: lockwright sim --calibrate --write"
        )),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_to_be_delegated_only_by_a_threshold_of_this_machine() {
        let here = |over_glibc| Delegation {
            threads: 8,
            lines: 1,
            up_to: 0.9,
            over_glibc,
            over_all: None,
        };
        let says = |share, here: Option<&Delegation>| delegate(share, here).unwrap_or_default();
        let known = here(Some(0.4));
        assert!(says(0.4, Some(&known)).starts_with("delegate this one"));
        assert_eq!(delegate(0.39, Some(&known)), None, "whatever the paper's machine did");
        let never = says(0.5, Some(&here(None)));
        assert!(
            never.starts_with("delegation never overtook glibc for good here (up to 90 %"),
            "{never}"
        );
        assert_eq!(delegate(0.14, Some(&here(None))), None);
        let unknown = says(0.15, None);
        assert!(unknown.starts_with("on the RCL authors' machine of 48 cores, "), "{unknown}");
        assert!(unknown.contains("This machine's threshold isn't known"), "{unknown}");
        assert_eq!(delegate(0.14, None), None);
    }
}
