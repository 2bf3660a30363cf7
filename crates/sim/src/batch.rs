//! Many runs at once: a machine on each core of the real one.

use crate::outcome::Outcome;
use crate::run::Run;
use rayon::prelude::*;

/// Runs all of them, on all usable cores. The results are in the order of `runs`, and the same as if they ran one after
/// the other. `done` gets the number of each run when it is over, in any order.
pub fn run_all(runs: &[Run], done: impl Fn(usize) + Sync) -> Vec<Outcome> {
    let one = |(number, run): (usize, &Run)| {
        let outcome = run.outcome();
        done(number);
        outcome
    };
    // Runs differ in length by orders of magnitude: none waits behind another.
    runs.par_iter().enumerate().with_max_len(1).map(one).collect()
}

/// Runs those at `places`, likewise, and hands each outcome to `done` with its place, from any thread. The first error ends it.
///
/// # Errors
/// What `done` returned.
pub fn try_each<E: Send>(
    runs: &[Run],
    places: &[usize],
    done: impl Fn(usize, Outcome) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let one = |place: &usize| done(*place, runs[*place].outcome());
    places.par_iter().with_max_len(1).try_for_each(one)
}
