//! Many runs at once: a machine on each core of the real one.

use crate::outcome::Outcome;
use crate::run::Run;
use rayon::prelude::*;
use std::cmp::Reverse;

/// Runs all of them, on all usable cores. The results are in the order of `runs`, and the same as if they ran one after
/// the other. `done` gets the number of each run when it is over, in any order.
pub fn run_all(runs: &[Run], done: impl Fn(usize) + Sync) -> Vec<Outcome> {
    let one = |number: usize| {
        let outcome = runs[number].outcome();
        done(number);
        (number, outcome)
    };
    let order = longest_first(runs, (0..runs.len()).collect());
    let mut outcomes: Vec<_> = order.into_iter().par_bridge().map(one).collect();
    outcomes.sort_unstable_by_key(|(number, _)| *number);
    outcomes.into_iter().map(|(_, outcome)| outcome).collect()
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
    let order = longest_first(runs, places.to_vec());
    order.into_iter().par_bridge().try_for_each(|place| done(place, runs[place].outcome()))
}

/// Runs differ in length by orders of magnitude. Cores take them one by one, so that none waits behind another, and the
/// longest come first, so that none is left over at the end while the other cores have nothing to do.
fn longest_first(runs: &[Run], mut places: Vec<usize>) -> Vec<usize> {
    places.sort_by_key(|&place| Reverse(length(&runs[place])));
    places
}

/// How long a run takes on the real machine, roughly: the time that its busy CPUs simulate.
fn length(run: &Run) -> u64 {
    let cpus = run.threads.min(run.profile.cpus());
    (run.warmup_ns + run.duration_ns).saturating_mul(cpus.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LockSpec, Placement, profile, workload};
    use std::collections::BTreeMap;
    use std::sync::Arc;

    #[test]
    fn the_longest_runs_come_first() {
        let run = |threads, duration_ns| Run {
            profile: Arc::new(profile::builtin("m1").unwrap()),
            lock: LockSpec::parse("tas").unwrap(),
            workload: workload::find("sections").unwrap(),
            params: BTreeMap::new(),
            threads,
            placement: Placement::Pinned,
            seed: 1,
            warmup_ns: 0,
            duration_ns,
            samples: false,
            timeline: None,
            transfers: false,
        };
        let runs = [run(1, 1000), run(8, 1000), run(80, 1000), run(1, 20_000), run(8, 2000)];
        assert_eq!(longest_first(&runs, (0..5).collect()), [3, 4, 1, 2, 0]);
        assert_eq!(longest_first(&runs, vec![0, 2, 4]), [4, 2, 0]);
    }
}
