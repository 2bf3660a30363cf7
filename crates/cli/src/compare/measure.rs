//! Rounds of runs: each has every setting once, in an order that rotates. They end when every comparison is clear.

use super::Setting;
use super::outcome::Outcome;
use super::run::{Desk, Figures, What, once};
use crate::hints::Failure;
use crate::signals::Watch;
use lockwright_bench::is_look;
use serde::Serialize;
use std::time::{Duration, Instant};

/// Rounds of programs that take long.
const ROUNDS: usize = 60;

/// More of them than this are not worth their sorting.
const MOST: usize = 2000;

/// Programs that end soon run more often: as long as a comparison has not taken this long.
const AWHILE: Duration = Duration::from_secs(60);

/// How much is measured.
pub(crate) struct Extent {
    /// Rounds, at most; `None`: [`ROUNDS`], and on for as long as it has not taken [`AWHILE`].
    pub(crate) rounds: Option<usize>,
    /// Runs of each setting before them, which don't count.
    pub(crate) warm_up: usize,
    /// A smaller difference doesn't count: 0.05 is five per cent.
    pub(crate) margin: f64,
    pub(crate) quiet: bool,
}

/// A run that came to its end.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Run {
    pub(crate) setting: usize,
    /// 1, 2, ...
    pub(crate) round: usize,
    pub(crate) figures: Figures,
}

/// The result.
#[derive(Default)]
pub(crate) struct Measured {
    /// Of whole rounds.
    pub(crate) runs: Vec<Run>,
    /// How many.
    pub(crate) rounds: usize,
    /// Did they end because all was clear?
    pub(crate) is_clear: bool,
    /// Was there a Ctrl-C, or another signal that ends us?
    pub(crate) interrupted: bool,
    /// What kept us from finishing.
    pub(crate) failure: Option<Failure>,
}

pub(crate) fn measure(what: &What<'_>, settings: &[Setting], extent: &Extent) -> Measured {
    let watch = Watch::new();
    let many = settings.len();
    let mut most = extent.rounds.unwrap_or(ROUNDS);
    let steps = |rounds: usize| (many * (rounds + extent.warm_up)) as u64;
    let bar = lockwright_bench::progress(steps(most), extent.quiet);
    let desk = Desk { watch: &watch, bar: &bar };
    let mut measured = Measured::default();
    for turn in 0..many * extent.warm_up {
        let setting = &settings[turn % many];
        bar.set_message(format!("warming up: {}", setting.name));
        bar.tick();
        match once(what, setting, turn < many, &desk) {
            Ok(Some(_)) => bar.inc(1),
            Ok(None) => measured.interrupted = true,
            Err(failure) => measured.failure = Some(failure),
        }
        if measured.is_over() {
            return measured;
        }
    }
    let began = Instant::now();
    let mut round = 0;
    while round < most {
        round += 1;
        let mut runs = Vec::with_capacity(many);
        for turn in 0..many {
            let at = (turn + round - 1) % many;
            bar.set_message(format!("round {round}: {}", settings[at].name));
            bar.tick();
            match once(what, &settings[at], false, &desk) {
                Ok(Some(figures)) => runs.push(Run { setting: at, round, figures }),
                Ok(None) => measured.interrupted = true,
                Err(failure) => measured.failure = Some(failure),
            }
            if measured.is_over() {
                return measured;
            }
            bar.inc(1);
        }
        measured.runs.append(&mut runs);
        measured.rounds = round;
        if is_look(round) && Outcome::of(settings, &measured.runs, extent.margin).is_clear() {
            measured.is_clear = true;
            break;
        }
        let taken = began.elapsed();
        if round == most && most < MOST && extent.rounds.is_none() && taken < AWHILE {
            let pace = AWHILE.as_secs_f64() / taken.as_secs_f64().max(1e-3);
            most = ((round as f64 * pace) as usize).clamp(round + 1, MOST);
            bar.set_length(steps(most));
        }
    }
    bar.finish_and_clear();
    measured
}

impl Measured {
    fn is_over(&self) -> bool {
        self.interrupted || self.failure.is_some()
    }
}
