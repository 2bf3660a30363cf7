//! Sweeps: one parameter of a run takes several values.

use crate::Run;
use crate::lock::LockError;
use crate::profile::ProfileError;
use std::sync::Arc;
use thiserror::Error;

/// What a sweep varies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Knob {
    /// How many threads.
    Threads,
    /// An option of the workload.
    Param(String),
    /// An option of the lock; locks that lack it stay as they are.
    LockOption(String),
    /// A figure of the machine, by its path.
    Figure(String),
}

/// Why a run can't have that value.
#[derive(Debug, Error)]
pub enum KnobError {
    /// Numbers of threads and options of locks must be whole.
    #[error("a whole number is wanted")]
    NotWhole,
    /// The workload does not declare the option.
    #[error("workload '{workload}' has no option '{key}'")]
    NoParam {
        /// Its name.
        workload: &'static str,
        /// The option.
        key: String,
    },
    /// Out of the option's range.
    #[error("not within {min} to {max}")]
    Range {
        /// Smallest legal value.
        min: f64,
        /// Largest legal value.
        max: f64,
    },
    /// The lock refuses the value.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The machine refuses the value.
    #[error(transparent)]
    Machine(#[from] ProfileError),
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked")]
fn whole(value: f64) -> Result<u32, KnobError> {
    if value.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&value) {
        Ok(value as u32)
    } else {
        Err(KnobError::NotWhole)
    }
}

impl Run {
    /// The same run, with this one thing changed.
    pub fn with(&self, knob: &Knob, value: f64) -> Result<Self, KnobError> {
        let mut run = self.clone();
        match knob {
            Knob::Threads => run.threads = whole(value)?,
            Knob::Param(key) => {
                let spec = run.workload.params.iter().find(|spec| spec.key == key);
                let workload = run.workload.id;
                let none = || KnobError::NoParam { workload, key: key.clone() };
                let (min, max) = spec.map(|spec| (spec.min, spec.max)).ok_or_else(none)?;
                if !(min..=max).contains(&value) {
                    return Err(KnobError::Range { min, max });
                }
                run.params.insert(key.clone(), value);
            }
            Knob::LockOption(key) => {
                if run.lock.option(key).is_some() {
                    run.lock = run.lock.with(key, whole(value)?)?;
                }
            }
            Knob::Figure(path) => Arc::make_mut(&mut run.profile).set(path, value)?,
        }
        Ok(run)
    }
}

/// Why a text isn't a list of values.
#[derive(Debug, Error, PartialEq)]
pub enum ValuesError {
    /// The list is empty.
    #[error("no values")]
    None,
    /// Not a number.
    #[error("'{0}' is not a number")]
    Number(String),
    /// `LOW..HIGH` without a count.
    #[error("'{0}' does not say how many values")]
    Count(String),
    /// Not a count, or too large a count.
    #[error("'{0}' is not 2 to 10000 values")]
    Values(String),
    /// What follows the count isn't a scale.
    #[error("'{0}' is neither 'lin' nor 'log'")]
    Scale(String),
    /// `LOW..HIGH` with `HIGH` below.
    #[error("'{0}' goes backwards")]
    Backwards(String),
    /// A logarithm of nothing.
    #[error("'{0}' is logarithmic and does not start above 0")]
    Logarithm(String),
}

/// The most values of one range; the error message says so.
const MANY: u32 = 10_000;

/// A number; `k`, `M` and `G` may follow it.
pub fn number(text: &str) -> Result<f64, ValuesError> {
    let text = text.trim();
    let factors = [('k', 1e3), ('M', 1e6), ('G', 1e9)];
    let factor = factors.into_iter().find(|(letter, _)| text.ends_with(*letter));
    let digits = if factor.is_some() { &text[..text.len() - 1] } else { text };
    let number: Option<f64> = digits.parse().ok().filter(|number: &f64| number.is_finite());
    let number = number.ok_or_else(|| ValuesError::Number(text.to_owned()))?;
    Ok(number * factor.map_or(1.0, |(_, factor)| factor))
}

/// Reads `A,B,...`, where each may be a range: `LOW..HIGH:COUNT` with even steps, `LOW..HIGH:COUNT:log` with even
/// ratios. Values between the ends of a range have three significant digits. Each value appears once, in the order
/// given.
pub fn values(text: &str) -> Result<Vec<f64>, ValuesError> {
    let mut all: Vec<f64> = Vec::new();
    for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
        let some = match item.split_once("..") {
            None => vec![number(item)?],
            Some((low, rest)) => range(item, low, rest)?,
        };
        for value in some {
            if !all.contains(&value) {
                all.push(value);
            }
        }
    }
    if all.is_empty() { Err(ValuesError::None) } else { Ok(all) }
}

fn range(item: &str, low: &str, rest: &str) -> Result<Vec<f64>, ValuesError> {
    let (high, count) = rest.split_once(':').ok_or_else(|| ValuesError::Count(item.into()))?;
    let (count, scale) = count.split_once(':').unwrap_or((count, "lin"));
    let (low, high) = (number(low)?, number(high)?);
    let few = count.parse::<u32>().ok().filter(|count| (2..=MANY).contains(count));
    let count = few.ok_or_else(|| ValuesError::Values(count.into()))?;
    if high <= low {
        return Err(ValuesError::Backwards(item.into()));
    }
    let log = match scale {
        "lin" => false,
        "log" if low > 0.0 => true,
        "log" => return Err(ValuesError::Logarithm(item.into())),
        other => return Err(ValuesError::Scale(other.into())),
    };
    let value = |step: u32| match step {
        0 => low,
        _ if step == count - 1 => high,
        _ => {
            let share = f64::from(step) / f64::from(count - 1);
            let exact =
                if log { low * (high / low).powf(share) } else { low + (high - low) * share };
            three_digits(exact)
        }
    };
    Ok((0..count).map(value).collect())
}

/// Rounded to three significant digits, but whole numbers below 10,000 stay.
#[allow(clippy::cast_possible_truncation, reason = "an exponent")]
fn three_digits(value: f64) -> f64 {
    if value == 0.0 || (value.fract() == 0.0 && value.abs() < 1e4) {
        return value;
    }
    let digits = 2 - value.abs().log10().floor() as i32;
    // Powers of ten with a positive exponent are exact.
    let power = 10f64.powi(digits.abs());
    if digits >= 0 { (value * power).round() / power } else { (value / power).round() * power }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LockSpec, Placement, profile, workload};
    use std::collections::BTreeMap;

    #[test]
    fn values_are_lists_and_ranges() {
        for (text, expected) in [
            ("1,2,5", &[1.0, 2.0, 5.0][..]),
            ("0.5", &[0.5]),
            (" 3, 3 ,1", &[3.0, 1.0]),
            ("10k,1.5M", &[10e3, 1.5e6]),
            ("0..10:3", &[0.0, 5.0, 10.0]),
            ("1..64:4:log", &[1.0, 4.0, 16.0, 64.0]),
            ("100..10k:5:log", &[100.0, 316.0, 1000.0, 3160.0, 10e3]),
            ("0,1..2:2:lin", &[0.0, 1.0, 2.0]),
            ("0.1..0.3:3", &[0.1, 0.2, 0.3]),
            ("-1..1:2", &[-1.0, 1.0]),
        ] {
            assert_eq!(values(text).unwrap(), expected, "{text}");
        }
        for (text, says) in [
            ("", "no values"),
            (" , ", "no values"),
            ("1,x", "'x' is not a number"),
            ("inf", "not a number"),
            ("k", "not a number"),
            ("1..8", "how many"),
            ("1..8:0", "'0' is not 2 to 10000 values"),
            ("1..8:1", "not 2 to"),
            ("1..8:x", "'x' is not 2 to"),
            ("1..8:99999", "not 2 to"),
            ("8..1:3", "backwards"),
            ("0..1:3:log", "above 0"),
            ("1..8:3:exp", "'exp'"),
            ("..8:3", "not a number"),
        ] {
            let why = values(text).unwrap_err().to_string();
            assert!(why.contains(says), "{text}: {why}");
        }
    }

    #[test]
    fn a_point_changes_in_one_thing_only_and_within_its_range() {
        let run = Run {
            profile: Arc::new(profile::builtin("m1").unwrap()),
            lock: LockSpec::parse("fifo:bypass=3").unwrap(),
            workload: workload::find("sections").unwrap(),
            params: BTreeMap::new(),
            threads: 2,
            placement: Placement::Pinned,
            seed: 1,
            warmup_ns: 0,
            duration_ns: 1000,
            samples: false,
            timeline: None,
            transfers: false,
        };
        let with = |knob: Knob, value| run.with(&knob, value);
        let (param, figure) = (|k: &str| Knob::Param(k.into()), |k: &str| Knob::Figure(k.into()));
        let option = |key: &str| Knob::LockOption(key.into());
        assert_eq!(with(Knob::Threads, 7.0).unwrap().threads, 7);
        assert_eq!(with(param("gap"), 9.0).unwrap().params["gap"], 9.0);
        let changed = with(figure("memory.occupancy"), 0.5).unwrap();
        assert_eq!(changed.profile.memory.occupancy, 0.5);
        assert_eq!(*run.profile, profile::builtin("m1").unwrap());
        assert_eq!(with(option("spin"), 9.0).unwrap().lock.name(), "fifo:bypass=3,spin=9");
        assert_eq!(with(option("bypass"), 9.0).unwrap().lock.name(), "fifo:bypass=9");
        assert_eq!(with(option("window"), 9.0).unwrap().lock.name(), "fifo:bypass=3");
        for (knob, value) in [
            (Knob::Threads, 1.5),
            (Knob::Threads, -1.0),
            (param("gap"), -1.0),
            (param("colour"), 1.0),
            (figure("memory.occupancy"), 2.0),
            (option("spin"), 0.5),
            (option("spin"), 4e9),
        ] {
            with(knob, value).unwrap_err();
        }
    }
}
