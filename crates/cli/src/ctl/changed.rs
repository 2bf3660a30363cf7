//! How much of something there is now, in the words that a person would use.

use lockwright_numbers::format::thousands;

/// Amount a figure counts or measures.
#[derive(Clone, Copy, Debug)]
pub(super) enum Amount {
    /// `long waits`
    Many(&'static str),
    /// `work per second`
    Much(&'static str),
}

impl Amount {
    /// `37 times as many long waits`, `30 % less work per second`: it is `ratio` times what it was.
    pub(super) fn times(self, ratio: f64) -> String {
        let (name, such, less) = match self {
            Self::Many(name) => (name, "as many", "fewer"),
            Self::Much(name) => (name, "as much", "less"),
        };
        match ratio {
            9.95.. => format!("{} times {such} {name}", thousands(ratio.round() as u64)),
            1.95.. => format!("{ratio:.1} times {such} {name}"),
            1.0.. => format!("{:.0} % more {name}", 100.0 * (ratio - 1.0)),
            0.005.. => format!("{:.0} % {less} {name}", 100.0 * (1.0 - ratio)),
            _ => format!("almost no {name}"),
        }
    }

    /// It was less than half, `times` times in a row.
    pub(super) fn halved(self, times: usize) -> String {
        let (Self::Many(name) | Self::Much(name)) = self;
        format!("less than half the {name}, {times} times in a row")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_told_as_a_person_would() {
        let waits = Amount::Many("long waits");
        let said = |ratio| waits.times(ratio);
        assert_eq!(said(36.8), "37 times as many long waits");
        assert_eq!(said(12_345.0), "12,345 times as many long waits");
        assert_eq!(said(2.0), "2.0 times as many long waits");
        assert_eq!(said(1.3), "30 % more long waits");
        assert_eq!(said(0.0789), "92 % fewer long waits");
        assert_eq!(said(0.0001), "almost no long waits");
        let work = Amount::Much("work per second");
        assert_eq!(work.times(0.7), "30 % less work per second");
        assert_eq!(work.times(3.26), "3.3 times as much work per second");
        assert_eq!(work.halved(4), "less than half the work per second, 4 times in a row");
    }
}
