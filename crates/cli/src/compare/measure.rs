//! Rounds of runs. Each round runs every setting once, in an order that rotates. Rounds end when every comparison is
//! clear.

use super::Setting;
use super::desk::Desk;
use super::outcome::Comparison;
use super::run::{Figures, Run, Trial, once};
use crate::hints::Failure;
use crate::signals::Watch;
use lockwright_bench::is_look;
use std::time::{Duration, Instant};

/// Maximum number of rounds of long programs.
const ROUNDS: usize = 60;

/// Maximum number of rounds of any program: sorting more isn't worth it.
pub(super) const MOST: usize = 2000;

/// Short programs run for more rounds: at least until the comparison has taken this long.
const AWHILE: Duration = Duration::from_secs(60);

/// How much is measured.
pub(crate) struct Extent {
    /// Maximum number of rounds. `None`: [`ROUNDS`], or more until [`AWHILE`] has passed.
    pub(crate) rounds: Option<usize>,
    /// Warm-up runs of each setting, which don't count.
    pub(crate) warm_up: usize,
    /// Smaller differences don't count: 0.05 is five per cent.
    pub(crate) margin: f64,
    pub(crate) quiet: bool,
}

/// The result.
#[derive(Default)]
pub(crate) struct Measured {
    /// The runs of complete rounds.
    pub(crate) runs: Vec<Run>,
    /// Number of rounds.
    pub(crate) rounds: usize,
    /// Did they end because everything was clear?
    pub(crate) stopped: bool,
    /// The first run of each setting, as its warm-up.
    pub(crate) first: Vec<Run>,
    /// Did Ctrl-C, or another signal that ends this command, arrive?
    pub(crate) interrupted: bool,
    /// The failure that ended the measurement.
    pub(crate) failure: Option<Failure>,
}

pub(crate) fn measure(what: &Trial<'_>, settings: &[Setting], extent: &Extent) -> Measured {
    let watch = Watch::new();
    let bar = lockwright_bench::progress(0, "runs at most", extent.quiet);
    let mut measured = Measured::default();
    let desk = Desk { watch: &watch, bar: &bar };
    match rounds(what, settings, extent, &desk, &mut measured) {
        Ok(interrupted) => measured.interrupted = interrupted,
        Err(failure) => measured.failure = Some(failure),
    }
    bar.finish_and_clear();
    measured
}

/// Was it interrupted?
fn rounds(
    what: &Trial<'_>,
    settings: &[Setting],
    extent: &Extent,
    desk: &Desk<'_>,
    measured: &mut Measured,
) -> Result<bool, Failure> {
    let (many, bar) = (settings.len(), desk.bar);
    let mut most = extent.rounds.unwrap_or(ROUNDS);
    let steps = |rounds: usize| (many * (rounds + extent.warm_up)) as u64;
    bar.set_length(steps(most));
    for turn in 0..many * extent.warm_up {
        let setting = turn % many;
        bar.set_message(format!("warming up: {}", settings[setting].name));
        bar.tick();
        let is_first = turn < many;
        let mut findings = Vec::new();
        let Some(figures) = once(what, &settings[setting], is_first, desk, &mut findings)? else {
            return Ok(true);
        };
        if is_first {
            something_decides(&figures)?;
            measured.first.push(Run { setting, round: 0, figures, findings });
        }
        bar.inc(1);
    }
    let began = Instant::now();
    let mut round = 0;
    while round < most {
        round += 1;
        let mut runs = Vec::with_capacity(many);
        for turn in 0..many {
            let setting = in_turn(turn, round, many);
            bar.set_message(format!("round {round}: {}", settings[setting].name));
            bar.tick();
            let is_first = round == 1 && extent.warm_up == 0;
            let mut findings = Vec::new();
            let Some(figures) = once(what, &settings[setting], is_first, desk, &mut findings)?
            else {
                return Ok(true);
            };
            something_decides(&figures)?;
            runs.push(Run { setting, round, figures, findings });
            bar.inc(1);
        }
        measured.runs.append(&mut runs);
        measured.rounds = round;
        if is_look(round) && Comparison::of(settings, &measured.runs, extent.margin).is_clear() {
            measured.stopped = true;
            break;
        }
        let taken = began.elapsed();
        if round == most && most < MOST && extent.rounds.is_none() && taken < AWHILE {
            let pace = AWHILE.as_secs_f64() / taken.as_secs_f64().max(1e-3);
            most = ((round as f64 * pace) as usize).clamp(round + 1, MOST);
            bar.set_length(steps(most));
        }
    }
    Ok(false)
}

/// Which setting comes next? The order rotates, and every second round goes backwards, so no setting always runs after
/// the same one.
fn in_turn(turn: usize, round: usize, many: usize) -> usize {
    let turn = if round.is_multiple_of(2) { many - 1 - turn } else { turn };
    (turn + round / 2) % many
}

/// Does the run have a figure that allows a comparison?
fn something_decides(figures: &Figures) -> Result<(), Failure> {
    match figures.first() {
        Some((figure, _)) if !figure.is_cost => Ok(()),
        _ => Err(Failure::new(
            "the runs used up their --time and had no epochs: nothing is left to compare",
        )
        .hint("compare a figure of the program's output: --more 'rate: (?<rate>[0-9.]+)'")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_has_a_turn_and_nobody_always_follows_the_same_one() {
        for many in 2..6 {
            let mut after = vec![vec![0_i32; many]; many];
            for round in 1..=4 * many {
                let order: Vec<_> = (0..many).map(|turn| in_turn(turn, round, many)).collect();
                let mut all = order.clone();
                all.sort_unstable();
                assert_eq!(all, (0..many).collect::<Vec<_>>());
                for pair in order.windows(2) {
                    after[pair[1]][pair[0]] += 1;
                }
            }
            for one in 0..many {
                for other in 0..many {
                    assert!(
                        after[one][other].abs_diff(after[other][one]) <= 2,
                        "{many}: {after:?}"
                    );
                }
            }
        }
    }
}
