//! For checkers: a thread that is torn out of its wait in a front lock's line.

use crate::front::{
    ASLEEP, Note, PROMOTED, Parts, Tuning, View, WAITING, Waiter, leave_line, near,
};
use lockwright_platform::Machine;

/// Joins the line, is torn out of its wait, and leaves. `asleep`: it first makes sure that somebody would wake it, and sleeps
/// until the deadline if it has one.
pub fn torn_wait<P: Machine>(
    parts: &Parts<'_, P>,
    tuning: &Tuning,
    asleep: bool,
    deadline: Option<P::Deadline>,
) {
    let line = View::new(parts, tuning);
    let may_grant = tuning.grants() && !parts.by.is_null();
    let cluster = may_grant.then(|| near::cluster(&line)).flatten();
    let node =
        Waiter::<P>::take(parts.word, parts.by, parts.thread, Note::default(), None, cluster);
    let behind = near::join(&line, node, cluster);
    let mut holds = false;
    if asleep {
        let sleeps = if !behind {
            holds = parts.word.mark();
            !holds
        } else {
            let may = node.turn(WAITING, ASLEEP).is_ok();
            let is_first = may && node.tell_predecessor();
            may && !(is_first && node.turn(ASLEEP, PROMOTED).is_ok())
        };
        if sleeps && deadline.is_some() {
            if behind {
                // SURVIVES: it is torn out of this sleep anyway.
                P::park(&node.gate, ASLEEP, deadline);
            } else {
                parts.word.sleep(deadline);
            }
        }
    }
    // SAFETY: our own node, and in the line.
    unsafe { leave_line(&line, node) };
    if holds {
        line.release();
    }
}
