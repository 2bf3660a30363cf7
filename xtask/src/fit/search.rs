//! The search: CMA-ES within bounds, using the figures' logarithms.
//!
//! Hansen, *The CMA Evolution Strategy: A Tutorial*, 2016. It needs no derivatives and tolerates noise. The loss is
//! evaluated with the same seeds for every candidate, so that chance doesn't favour any.

use anyhow::{Result, anyhow};
use cmaes::{CMAESOptions, DVector};
use serde::{Deserialize, Serialize};
use std::time::Instant;

/// A figure to fit.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Param {
    /// Its name.
    pub(crate) name: String,
    /// Where the search starts.
    pub(crate) value: f64,
    /// Its minimum and its maximum, both above 0.
    pub(crate) range: [f64; 2],
}

impl Param {
    /// The position of a value between the bounds: 0 to 1 on a logarithmic scale.
    fn place(&self, value: f64) -> f64 {
        let [low, high] = self.range;
        (value / low).ln() / (high / low).ln()
    }

    /// The value at a position, rounded to three digits, because more would be meaningless.
    pub(crate) fn at(&self, place: f64) -> f64 {
        let [low, high] = self.range;
        let value = low * (high / low).powf(place.clamp(0.0, 1.0));
        let digits: f64 = format!("{value:.2e}").parse().expect("a number was written");
        digits.clamp(low, high)
    }
}

/// The limits of a search.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    /// Maximum number of evaluations.
    pub(crate) evaluations: usize,
    /// The deadline. If it ends a search, the result depends on the machine's speed.
    pub(crate) until: Instant,
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Found {
    /// A value for each param.
    pub(crate) values: Vec<f64>,
    /// The loss for these values.
    pub(crate) loss: f64,
    /// Number of evaluations of the loss.
    pub(crate) evaluations: usize,
    /// Did the search converge?
    pub(crate) converged: bool,
}

/// The initial step of the search, as a share of the ranges.
const FIRST_STEP: f64 = 0.15;

/// The search is over when all figures are known to this share of their ranges, ...
const LAST_STEP: f64 = 0.01;

/// ... or when the loss changes by less than an error of 1 % in one row.
const LAST_GAIN: f64 = 1e-4;

/// The penalty for leaving a range, per squared length of the range. It is far larger than any row's error.
const OUTSIDE: f64 = 100.0;

/// The cost of changing a figure, per squared length of its range. It keeps figures without influence at their old
/// values, and keeps two figures with the same effect from drifting apart.
const MOVED: f64 = 0.01;

/// The values near the start for which `loss` is smallest. The same seed gives the same answer.
///
/// `loss` is called from several threads at once. `progress` gets the number of evaluations and the smallest loss so
/// far.
pub(crate) fn search(
    params: &[Param],
    loss: impl Fn(&[f64]) -> f64 + Sync,
    budget: Budget,
    seed: u64,
    mut progress: impl FnMut(usize, f64),
) -> Result<Found> {
    let start: Vec<f64> = params.iter().map(|param| param.place(param.value)).collect();
    let values = |places: &[f64]| -> Vec<f64> {
        params.iter().zip(places).map(|(param, place)| param.at(*place)).collect()
    };
    let cost = |places: &DVector<f64>| {
        let outside = |place: &f64| (place - place.clamp(0.0, 1.0)).powi(2);
        let moved: f64 = places.iter().zip(&start).map(|(now, first)| (now - first).powi(2)).sum();
        let left: f64 = places.iter().map(outside).sum();
        loss(&values(places.as_slice())) + OUTSIDE * left + MOVED * moved
    };
    let mut strategy = CMAESOptions::new(start.clone(), FIRST_STEP)
        .max_function_evals(budget.evaluations)
        .tol_x(LAST_STEP)
        .tol_fun(LAST_GAIN)
        .seed(seed)
        .build(&cost)
        .map_err(|why| anyhow!("nothing to search for: {why:?}"))?;
    let end = loop {
        let end = strategy.next_parallel();
        let best = strategy.overall_best_individual();
        progress(strategy.function_evals(), best.map_or(f64::INFINITY, |best| best.value));
        if end.is_some() || Instant::now() >= budget.until {
            break end;
        }
    };
    // The best candidate may just have been lucky. The mean of the last candidates is often better.
    let best = strategy.overall_best_individual().map(|best| best.point.clone());
    let candidates = [Some(strategy.mean().clone()), best, Some(DVector::from(start.clone()))];
    let costs = candidates.into_iter().flatten().map(|places| (cost(&places), places));
    let (_, places) = costs.min_by(|a, b| a.0.total_cmp(&b.0)).expect("the start is one");
    let values = values(places.as_slice());
    let out = cmaes::TerminationReason::MaxFunctionEvals;
    Ok(Found {
        loss: loss(&values),
        values,
        evaluations: strategy.function_evals(),
        converged: end.is_some_and(|end| !end.reasons.contains(&out)),
    })
}

/// For every param, one step up and one step down, with the other values unchanged: the param's index, and all values.
pub(crate) fn neighbours(params: &[Param]) -> Vec<(usize, Vec<f64>)> {
    /// As a share of the range.
    const STEP: f64 = 0.05;
    let here: Vec<f64> = params.iter().map(|param| param.value).collect();
    let step = |index: usize, by: f64| {
        let param = &params[index];
        let mut values = here.clone();
        values[index] = param.at(param.place(param.value) + by);
        (values[index] != param.value).then_some((index, values))
    };
    (0..params.len()).flat_map(|n| [step(n, -STEP), step(n, STEP)]).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn params() -> Vec<Param> {
        let param = |name: &str, value, range| Param { name: name.into(), value, range };
        vec![
            param("latency", 40.0, [20.0, 200.0]),
            param("share", 0.5, [0.1, 0.9]),
            param("weight", 3.0, [1.0, 100.0]),
        ]
    }

    fn budget() -> Budget {
        Budget { evaluations: 3000, until: Instant::now() + Duration::from_secs(3600) }
    }

    /// A bowl with its minimum at (80, 0.25, 10). The figures depend on each other, and the surface is rough.
    fn rough(values: &[f64]) -> f64 {
        let [a, b, c] = [values[0] / 80.0, values[1] / 0.25, values[2] / 10.0].map(f64::ln);
        let noise = (values[0] * 1e4).sin() * (values[2] * 1e4).cos() * 1e-3;
        (a + b).powi(2) + (a - c).powi(2) + (b * c).abs() + 3.0 * b * b + noise
    }

    #[test]
    fn a_rough_bowl_s_bottom_is_found() {
        let found = search(&params(), rough, budget(), 1, |_, _| ()).unwrap();
        for (value, bottom) in found.values.iter().zip([80.0, 0.25, 10.0]) {
            assert!((value / bottom).ln().abs() < 0.1, "{found:?}");
        }
        assert!(found.converged && found.loss < rough(&[40.0, 0.5, 3.0]) / 100.0, "{found:?}");
    }

    #[test]
    fn the_same_seed_gives_the_same_answer() {
        let answer = |seed| search(&params(), rough, budget(), seed, |_, _| ()).unwrap();
        assert_eq!(answer(7), answer(7));
        assert_ne!(answer(7).evaluations, 0);
    }

    #[test]
    fn values_stay_within_their_ranges_and_what_does_not_matter_stays_where_it_is() {
        let seen = std::sync::Mutex::new(Vec::new());
        let loss = |values: &[f64]| {
            seen.lock().unwrap().push(values.to_vec());
            values[0].recip() // as large as allowed
        };
        let found = search(&params(), loss, budget(), 1, |_, _| ()).unwrap();
        for values in seen.into_inner().unwrap() {
            for (value, param) in values.iter().zip(params()) {
                assert!(
                    (param.range[0]..=param.range[1]).contains(value),
                    "{} {value}",
                    param.name
                );
            }
        }
        assert!(found.values[0] > 80.0, "{found:?}");
        assert!(
            (found.values[1] / 0.5).ln().abs() < 0.1 && (found.values[2] / 3.0).ln().abs() < 0.2,
            "{found:?}"
        );
    }

    #[test]
    fn it_ends_when_it_is_told() {
        let slow = search(&params(), rough, Budget { evaluations: 20, ..budget() }, 1, |_, _| ());
        let slow = slow.unwrap();
        assert!(!slow.converged && slow.evaluations < 40, "{slow:?}");
        let late = Budget { until: Instant::now(), ..budget() };
        let late = search(&params(), rough, late, 1, |_, _| ()).unwrap();
        assert!(!late.converged && late.evaluations < 40, "{late:?}");
    }

    #[test]
    fn neighbours_differ_in_one_value_and_none_lies_outside() {
        let mut params = params();
        params[0].value = 20.0; // on its bound
        let all = neighbours(&params);
        assert_eq!(all.iter().map(|(index, _)| *index).collect::<Vec<_>>(), [0, 1, 1, 2, 2]);
        for (index, values) in all {
            for (n, (value, param)) in values.iter().zip(&params).enumerate() {
                assert_eq!(n == index, *value != param.value);
                assert!((param.range[0]..=param.range[1]).contains(value));
            }
        }
    }
}
