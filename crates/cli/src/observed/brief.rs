//! What was found besides waits for mutexes, in a line each: for screens and reports whose tables have no place for it.

use super::{conditions, finding, starved};
use crate::output::shown;
use crate::profile::words;
use lockwright_observer::counts::observation::Observed;

/// Locks that aren't pthread's, condition variables that act as locks or wake in vain, writers that starve, and tries that fail.
pub(crate) fn lines(outcome: &Observed) -> Vec<String> {
    let own = finding::own_locks(outcome).map(|lock| words::own_brief(lock, outcome.threads));
    let conditions = conditions::told(outcome).map(|(one, wakes)| conditions::brief(one, wakes));
    let locks = outcome.locks.iter().filter_map(starved::brief);
    own.chain(conditions).chain(locks).map(|line| shown(&line).into_owned()).collect()
}

/// All that is told of them, as a report of `profile` does; empty: there is no lock that isn't pthread's, and no such condition variable.
pub(crate) fn details(outcome: &Observed) -> String {
    let own = finding::own_locks(outcome).map(|lock| words::own(lock, outcome.threads));
    let conditions = conditions::told(outcome).map(|(one, wakes)| conditions::one(one, wakes));
    own.chain(conditions).collect()
}
