//! For checkers: a wait in a front lock's line that is torn.

use crate::front::{ASLEEP, Note, PROMOTED, Parts, Tuning, WAITED, WAITING, Waiter};
use crate::front::{join, leave_line, mark, unlock_slow};
use lockwright_platform::Platform;

/// Joins the line, is torn out of its wait, and leaves. `asleep`: once it has made sure that it would be
/// woken; with a deadline, after it has slept until then.
pub fn torn_wait<P: Platform>(
    parts: Parts<'_, P>,
    tuning: &Tuning,
    asleep: bool,
    deadline: Option<P::Deadline>,
) {
    let node = Waiter::<P>::take(&parts, Note::default());
    let behind = join(&parts, node, tuning);
    let mut holds = false;
    let (word, value) = if behind { (&node.gate, ASLEEP) } else { (parts.word, WAITED) };
    if asleep {
        let sleeps = if !behind {
            holds = mark::<P>(parts.word);
            !holds
        } else {
            let may = node.turn(WAITING, ASLEEP).is_ok();
            let is_first = may && node.tell_before();
            may && !(is_first && node.turn(ASLEEP, PROMOTED).is_ok())
        };
        if sleeps && deadline.is_some() {
            // SURVIVES: it is torn out of this sleep anyway.
            P::park(word, value, deadline);
        }
    }
    // SAFETY: our own, and in the line.
    unsafe { leave_line(parts, tuning, node) };
    if holds {
        unlock_slow(parts, tuning);
    }
}
