//! Gauges that can be read repeatedly, and the joules between two readings.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Where a number comes from.
#[derive(Debug)]
pub(crate) enum Reader {
    /// A file of text.
    Text(PathBuf),
    /// Two text files, whose product divided by a million it is: microvolts and microamperes.
    Product(PathBuf, PathBuf),
    /// A perf event: each read gives eight bytes.
    Event(File),
}

impl Reader {
    fn read(&self) -> Option<u64> {
        match self {
            Self::Text(path) => crate::number(path).ok(),
            Self::Product(one, other) => {
                let (one, other) = (crate::number(one).ok()?, crate::number(other).ok()?);
                Some((f64_of(one) * f64_of(other) / 1e6) as u64)
            }
            Self::Event(file) => {
                let mut bytes = [0; 8];
                (&*file).read_exact(&mut bytes).ok()?;
                Some(u64::from_ne_bytes(bytes))
            }
        }
    }
}

/// What a reading means.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Unit {
    /// Energy used, in units of this many joules (negative: energy that is left).
    Energy(f64),
    /// The same, but after this largest value the count begins at 0 again.
    Wrapping(f64, u64),
    /// Power at this moment, microwatts.
    Power,
}

/// A counter or a sensor.
#[derive(Debug)]
pub(crate) struct Gauge {
    pub(crate) reader: Reader,
    pub(crate) unit: Unit,
}

fn f64_of(number: u64) -> f64 {
    number as f64 // 52 bits are enough
}

/// What the gauges have shown since the beginning.
#[derive(Debug)]
pub(crate) struct Sum {
    at: Instant,
    last: Vec<Option<u64>>,
    joules: f64,
}

impl Sum {
    pub(crate) fn begin(gauges: &[Gauge]) -> Self {
        let last = gauges.iter().map(|gauge| gauge.reader.read()).collect();
        Self { at: Instant::now(), last, joules: 0.0 }
    }

    /// How often they must be read between beginning and end; `None`: never.
    pub(crate) fn period(gauges: &[Gauge]) -> Option<Duration> {
        let period = |gauge: &Gauge| match gauge.unit {
            Unit::Energy(_) => None,
            // No machine uses 2^32 uJ, the smallest range, within a few seconds.
            Unit::Wrapping(..) => Some(Duration::from_secs(5)),
            Unit::Power => Some(Duration::from_millis(50)),
        };
        gauges.iter().filter_map(period).min()
    }

    /// Adds the energy used since the last reading.
    pub(crate) fn add(&mut self, gauges: &[Gauge]) {
        let now = Instant::now();
        let seconds = now.duration_since(self.at).as_secs_f64();
        self.at = now;
        for (gauge, last) in gauges.iter().zip(&mut self.last) {
            let next = gauge.reader.read();
            if let Some((before, after)) = last.zip(next) {
                self.joules += between(gauge.unit, before, after, seconds);
            }
            // Once a gauge couldn't be read, the sum stays unknown.
            *last = last.and(next);
        }
    }

    /// The sum; `None`: a gauge couldn't be read.
    pub(crate) fn joules(&self) -> Option<f64> {
        self.last.iter().all(Option::is_some).then_some(self.joules)
    }
}

/// Joules between two readings.
fn between(unit: Unit, before: u64, after: u64, seconds: f64) -> f64 {
    match unit {
        Unit::Energy(each) => (f64_of(after) - f64_of(before)) * each,
        Unit::Wrapping(each, _) if after >= before => f64_of(after - before) * each,
        Unit::Wrapping(each, most) => f64_of(most.saturating_sub(before) + after) * each,
        Unit::Power => (f64_of(before) + f64_of(after)) / 2.0 * 1e-6 * seconds,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::float_cmp, reason = "exact in binary")]
    fn a_counter_that_begins_anew_loses_nothing() {
        let unit = Unit::Wrapping(0.5, 1000);
        assert_eq!(between(unit, 100, 300, 9.0), 100.0);
        assert_eq!(between(unit, 900, 300, 9.0), 200.0);
        assert_eq!(between(unit, 1000, 0, 9.0), 0.0, "its largest value is its 0");
        // A battery's remaining energy falls, and rises while it is being charged.
        assert_eq!(between(Unit::Energy(-0.5), 900, 300, 9.0), 300.0);
        assert_eq!(between(Unit::Energy(-0.5), 300, 900, 9.0), -300.0);
        assert_eq!(between(Unit::Power, 1_000_000, 3_000_000, 2.0), 4.0);
    }
}
