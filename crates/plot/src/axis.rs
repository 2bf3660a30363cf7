//! Axes: positions of values along a length, and the labels beside them.

use crate::canvas::{SMALL, width};

/// Formats a value.
pub type Show = fn(f64) -> String;

/// A quantity along a length.
#[derive(Clone, Debug)]
pub struct Axis {
    name: String,
    kind: ScaleKind,
    show: Show,
    ends: Option<(f64, f64)>,
    ticks: Option<Vec<f64>>,
}

#[derive(Clone, Debug)]
enum ScaleKind {
    Linear,
    Log,
    /// Shares from 0 to 1, in this many steps. Each step leaves a tenth of the values above it.
    Nines(u8),
    Names(Vec<String>),
}

impl Axis {
    /// An axis on which equal differences have equal lengths.
    pub fn linear(name: impl Into<String>, show: Show) -> Axis {
        Axis { name: name.into(), kind: ScaleKind::Linear, show, ends: None, ticks: None }
    }

    /// An axis on which equal ratios have equal lengths. A 0 is drawn at the low end, behind a break.
    pub fn log(name: impl Into<String>, show: Show) -> Axis {
        Axis { kind: ScaleKind::Log, ..Self::linear(name, show) }
    }

    /// Logarithmic if `log` is set.
    pub fn maybe_log(name: impl Into<String>, show: Show, log: bool) -> Axis {
        if log { Self::log(name, show) } else { Self::linear(name, show) }
    }

    /// Shares of a distribution, from 0 to 1: 90 %, 99 %, 99.9 % are equally far apart.
    pub fn nines(steps: u8) -> Axis {
        Axis { kind: ScaleKind::Nines(steps), ..Self::linear("", percent) }
    }

    /// An axis with names at the positions 0, 1, ...
    pub fn names(name: impl Into<String>, names: Vec<String>) -> Axis {
        Axis { kind: ScaleKind::Names(names), ..Self::linear(name, |value| value.to_string()) }
    }

    /// Fixes the ends of the axis, whatever is drawn.
    #[must_use]
    pub fn within(self, low: f64, high: f64) -> Axis {
        Axis { ends: Some((low, high)), ..self }
    }

    /// Labels only these values.
    #[must_use]
    pub fn named_at(self, ticks: &[f64]) -> Axis {
        Axis { ticks: Some(ticks.to_vec()), ..self }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The axis's title.
    pub(crate) fn title(&self) -> String {
        match (&self.kind, self.name.is_empty()) {
            (ScaleKind::Log, false) => format!("{} (logarithmic)", self.name),
            _ => self.name.clone(),
        }
    }
}

/// Do the values differ so much that they need a logarithmic axis?
pub fn far_apart(values: impl Iterator<Item = f64>) -> bool {
    let (low, high) = ends(values.filter(|value| *value > 0.0));
    high / low >= 20.0
}

fn percent(share: f64) -> String {
    format!("{} %", (share * 1e7).round() / 1e5)
}

/// The number of nines of a share.
fn nines(share: f64) -> f64 {
    -(1.0 - share).max(1e-12).log10()
}

/// An axis with its ends.
#[derive(Debug)]
pub(crate) struct Scale<'a> {
    axis: &'a Axis,
    low: f64,
    high: f64,
    log: bool,
    /// Does a logarithmic axis include 0, drawn at its low end?
    pub(crate) zero: bool,
    /// The values themselves, if there are few.
    few: Option<Vec<f64>>,
}

impl<'a> Scale<'a> {
    /// A scale around values that are exact, such as numbers of threads.
    pub(crate) fn across(axis: &'a Axis, values: impl Iterator<Item = f64> + Clone) -> Scale<'a> {
        let mut scale = Scale::of(axis, values.clone());
        if matches!(axis.kind, ScaleKind::Linear) && axis.ends.is_none() {
            let (low, high) = ends(values.clone());
            let margin = ((high - low) * 0.02).max(high.abs() * 1e-3).max(1e-9);
            (scale.low, scale.high) = (low - margin, high + margin);
            let mut few: Vec<f64> = values.collect();
            few.sort_by(f64::total_cmp);
            few.dedup();
            scale.few = Some(few).filter(|few| few.len() <= 12);
        }
        scale
    }

    /// A scale from 0 to the largest value; if logarithmic, a scale around the values.
    pub(crate) fn of(axis: &'a Axis, values: impl Iterator<Item = f64> + Clone) -> Scale<'a> {
        let (least, most) = ends(values.clone());
        // If no value is above 0, there are no logarithms.
        let log = matches!(axis.kind, ScaleKind::Log) && most > 0.0;
        let mut scale = Scale { axis, low: 0.0, high: 1.0, log, zero: false, few: None };
        (scale.low, scale.high) = match (&axis.kind, axis.ends) {
            (_, Some(ends)) => ends,
            (ScaleKind::Names(names), _) => (-0.5, names.len() as f64 - 0.5),
            (ScaleKind::Nines(steps), _) => (0.0, 1.0 - 10f64.powi(-i32::from(*steps))),
            _ if log => {
                scale.zero = least <= 0.0;
                let (low, high) = ends(values.filter(|value| *value > 0.0));
                // 0 is drawn a factor of 4 below the smallest value.
                (if scale.zero { low / 4.0 } else { low / 1.25 }, high * 1.25)
            }
            _ => (0.0, (most * 1.08).max(1e-12)),
        };
        scale
    }

    /// Where a broken axis continues after its 0.
    pub(crate) fn least(&self) -> f64 {
        self.low * 3.9
    }

    pub(crate) fn holds(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value) || (self.zero && value <= 0.0)
    }

    /// The position of a value, from 0 to 1.
    pub(crate) fn share(&self, value: f64) -> f64 {
        let share = match self.axis.kind {
            ScaleKind::Nines(steps) => nines(value) / f64::from(steps),
            _ if self.log => (value.max(self.low) / self.low).ln() / (self.high / self.low).ln(),
            _ => (value - self.low) / (self.high - self.low),
        };
        share.clamp(0.0, 1.0)
    }

    /// The labelled values and their labels.
    pub(crate) fn ticks(&self) -> Vec<(f64, String)> {
        let values = match (&self.axis.ticks, &self.axis.kind) {
            (Some(ticks), _) => ticks.clone(),
            (_, ScaleKind::Names(names)) => {
                return names
                    .iter()
                    .enumerate()
                    .map(|(n, name)| (n as f64, name.clone()))
                    .collect();
            }
            (_, ScaleKind::Nines(steps)) => {
                let nines = (1..=*steps).map(|n| 1.0 - 10f64.powi(-i32::from(n)));
                [0.0, 0.5].into_iter().chain(nines).collect()
            }
            _ if self.log => self.log_ticks(),
            _ => self.few.clone().unwrap_or_else(|| self.steps()),
        };
        labels(&values, self.axis.show)
    }

    /// Round values at equal distances.
    fn steps(&self) -> Vec<f64> {
        let step = nice_step(self.high - self.low);
        let first = (self.low / step).ceil() as i64;
        (first..=(self.high / step).floor() as i64).map(|n| n as f64 * step).collect()
    }

    /// 1, 2 and 5 times powers of ten, or only the powers if there are many; equal distances if the ends are close.
    fn log_ticks(&self) -> Vec<f64> {
        let decades = (self.high / self.low).log10();
        let factors: &[f64] = if decades > 4.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let first = self.low.log10().floor() as i32;
        let mut ticks: Vec<f64> = (first..=self.high.log10().ceil() as i32)
            .flat_map(|power| factors.iter().map(move |factor| factor * 10f64.powi(power)))
            .filter(|value| (self.low..=self.high).contains(value))
            .collect();
        if ticks.len() < 2 && !self.zero {
            return self.steps();
        }
        if self.zero {
            ticks.retain(|tick| *tick >= self.least());
            ticks.insert(0, 0.0);
        }
        ticks
    }

    /// The width of the widest label.
    pub(crate) fn names_width(&self) -> f64 {
        self.ticks().iter().map(|(_, name)| width(name, SMALL)).fold(0.0, f64::max)
    }

    /// Labels for an axis of length `room`, in pixels. Numbers that would overlap are left out; names use up to three
    /// lines.
    pub(crate) fn placed(&self, room: f64) -> Vec<(f64, Option<(usize, String)>)> {
        let ticks = self.ticks();
        let is_named = matches!(self.axis.kind, ScaleKind::Names(_));
        let mut free = [f64::NEG_INFINITY; 3];
        let lines = if is_named { 3 } else { 1 };
        let place = |(value, name): (f64, String)| {
            let (at, half) = (self.share(value) * room, width(&name, SMALL) / 2.0 + 3.0);
            let line = free[..lines].iter().position(|free| at - half >= *free);
            if let Some(line) = line {
                free[line] = at + half;
            }
            (value, line.map(|line| (line, name)))
        };
        ticks.into_iter().map(place).collect()
    }
}

fn ends(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
        (low.min(value), high.max(value))
    });
    if low.is_finite() { (low, high) } else { (0.0, 1.0) }
}

/// 1, 2 or 5 times a power of ten, at most six of them up to `max`.
fn nice_step(max: f64) -> f64 {
    let power = 10f64.powf((max.max(1e-9) / 6.0).log10().floor());
    let steps = [1.0, 2.0, 5.0].map(|factor| factor * power);
    steps.into_iter().find(|step| max / step <= 6.0).unwrap_or(10.0 * power)
}

/// The values with their labels. Labels that would be equal get more digits.
fn labels(values: &[f64], show: Show) -> Vec<(f64, String)> {
    let mut all: Vec<(f64, String)> =
        values.iter().map(|&value| (value, label(value, show))).collect();
    let is_plain = |text: &str| text.chars().all(|c| "0123456789.-".contains(c));
    let are_equal = all.windows(2).any(|pair| pair[0].1 == pair[1].1);
    if are_equal && all.iter().all(|(_, text)| is_plain(text)) {
        let least = values.windows(2).map(|pair| (pair[1] - pair[0]).abs());
        let least = least.filter(|step| *step > 0.0).fold(f64::INFINITY, f64::min);
        let places = (-least.log10().floor()).clamp(0.0, 12.0) as usize;
        for (value, text) in &mut all {
            *text = if *value == 0.0 { "0".to_owned() } else { format!("{value:.places$}") };
        }
    }
    all
}

/// A value without meaningless digits.
fn label(value: f64, show: Show) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let text = show(value);
    let end = text.find(|c: char| !"0123456789.-".contains(c)).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    match number.contains('.') {
        true => format!("{}{unit}", number.trim_end_matches('0').trim_end_matches('.')),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_hold_their_values_in_order_and_have_ticks_within() {
        for (values, log) in [
            (&[0.0, 10.0, 1000.0, 1e6][..], true),
            (&[0.0, 1.0, 2.0, 30.0], false),
            (&[5.0], false),
            (&[5.0], true),
            (&[0.0], true),
            (&[0.2, 0.21], false),
            (&[-3.0, 4.0], false),
            (&[13e3, 2.6e6], true),
            (&[900.0, 1100.0], true),
            (&[100.0, 5e9], true),
        ] {
            let axis = Axis::maybe_log("", |value| value.to_string(), log);
            let scale = Scale::across(&axis, values.iter().copied());
            let shares: Vec<f64> = values.iter().map(|value| scale.share(*value)).collect();
            assert!(shares.is_sorted(), "{values:?}: {shares:?}");
            let ticks = scale.ticks();
            assert!(!ticks.is_empty() && ticks.len() <= 24, "{values:?}: {ticks:?}");
            assert!(ticks.iter().all(|(tick, _)| scale.holds(*tick)), "{values:?}: {ticks:?}");
        }
        for max in [0.9, 7.0, 123.0, 1.6e6] {
            assert!((2.0..=6.0).contains(&(max / nice_step(max))), "{max}");
        }
    }

    #[test]
    fn labels_have_no_digits_that_say_nothing() {
        let us: Show = |value| format!("{:.2} µs", value / 1e3);
        for (value, expected) in [(0.0, "0"), (20_000.0, "20 µs"), (1500.0, "1.5 µs")] {
            assert_eq!(label(value, us), expected);
        }
        assert_eq!([percent(0.5), percent(0.999)], ["50 %", "99.9 %"]);
        assert_eq!(label(400.0, |value| format!("{value:.0}")), "400");
    }

    #[test]
    fn a_few_values_have_their_own_labels_and_fixed_ends_have_round_ones() {
        let (values, ms): (_, Show) =
            ([51.2e6, 153.6e6, 256e6], |value| format!("{:.1} ms", value / 1e6));
        let texts = |axis: &Axis| {
            let ticks = Scale::across(axis, values.into_iter()).ticks();
            ticks.into_iter().map(|(_, text)| text).collect::<Vec<_>>()
        };
        assert_eq!(texts(&Axis::linear("", ms)), ["51.2 ms", "153.6 ms", "256 ms"]);
        let round = texts(&Axis::linear("", ms).within(0.0, 307.2e6));
        assert_eq!(round, ["0", "100 ms", "200 ms", "300 ms"]);
    }

    #[test]
    fn labels_differ_and_have_no_exponent() {
        let two: Show = |value| format!("{value:.2}");
        let texts = |axis: &Axis, values: &[f64]| {
            let ticks = Scale::of(axis, values.iter().copied()).ticks();
            ticks.into_iter().map(|(_, text)| text).collect::<Vec<_>>()
        };
        let small = texts(&Axis::linear("", two), &[0.01]);
        assert_eq!(small, ["0", "0.002", "0.004", "0.006", "0.008", "0.010"]);
        // No power of ten, and only one of its multiples, lies between these ends.
        let close = texts(&Axis::log("", two), &[2.6, 4.0]);
        assert!(close.len() > 2, "{close:?}");
    }

    #[test]
    fn nines_are_equally_far_apart() {
        let axis = Axis::nines(4);
        let scale = Scale::of(&axis, std::iter::empty());
        let shares = [0.0, 0.9, 0.99, 0.999, 1.0].map(|value| scale.share(value));
        for (share, expected) in shares.iter().zip([0.0, 0.25, 0.5, 0.75, 1.0]) {
            assert!((share - expected).abs() < 1e-9, "{shares:?}");
        }
        assert_eq!(scale.ticks().len(), 6);
    }

    #[test]
    fn names_that_would_touch_stand_in_several_lines() {
        let names = ["a-long-name", "another-name", "third"].map(str::to_owned).to_vec();
        let axis = Axis::names("", names);
        let scale = Scale::of(&axis, std::iter::empty());
        let lines = |room| -> Vec<_> {
            scale.placed(room).into_iter().map(|(_, placed)| placed.map(|(line, _)| line)).collect()
        };
        assert_eq!(lines(600.0), [Some(0), Some(0), Some(0)]);
        assert_eq!(lines(120.0), [Some(0), Some(1), Some(0)]);
        assert_eq!(lines(30.0), [Some(0), Some(1), Some(2)]);
    }
}
