//! The figures to compare: those that every run has, and those that the program prints.

use crate::hints::Failure;
use lockwright_numbers::format::{si, small, time};
use regex_lite::Regex;
use serde::Serialize;

/// One figure of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Figure {
    /// `time`, `CPU time`, `rps`.
    pub(crate) name: String,
    /// Is more better? Else less is.
    pub(crate) more: bool,
    /// Are its values nanoseconds?
    pub(crate) is_time: bool,
    /// Does it measure what the run used? Then it is shown, but doesn't affect the verdict.
    pub(crate) is_cost: bool,
}

impl Figure {
    /// A time in nanoseconds; less is better.
    pub(crate) fn time(name: impl Into<String>) -> Self {
        Self { name: name.into(), more: false, is_time: true, is_cost: false }
    }

    /// A number; less is better.
    pub(crate) fn count(name: impl Into<String>) -> Self {
        Self { name: name.into(), more: false, is_time: false, is_cost: false }
    }

    /// A number per second; more is better.
    pub(crate) fn rate(name: impl Into<String>) -> Self {
        Self { name: name.into(), more: true, is_time: false, is_cost: false }
    }

    /// Marks it as a cost, which doesn't affect the verdict.
    pub(crate) fn into_cost(self) -> Self {
        Self { is_cost: true, ..self }
    }

    /// Formats a value.
    pub(crate) fn shown(&self, value: f64) -> String {
        match value {
            _ if self.is_time => time(value),
            // How many: of context switches, for example.
            0.0..1000.0 if value.fract() == 0.0 => format!("{value}"),
            0.0995.. => si(value),
            _ => small(value),
        }
    }

    /// How many times as good as `base` `value` is.
    pub(crate) fn ratio(&self, value: f64, base: f64) -> f64 {
        if self.more { value / base } else { base / value }
    }
}

/// Finds a figure in the program's output.
#[derive(Debug)]
pub(crate) struct Pattern {
    pub(crate) figure: Figure,
    regex: Regex,
    /// The index of the group that matches the number.
    group: usize,
}

impl Pattern {
    /// Parses a regular expression with a group that matches the number. The group's name, if any, becomes the figure's
    /// name.
    pub(crate) fn read(text: &str, more: bool, number: usize) -> Result<Self, Failure> {
        let flag = if more { "--more" } else { "--less" };
        let example = format!(r"for example {flag} 'rate: (?<rate>[0-9.]+)'");
        let regex = Regex::new(text).map_err(|error| {
            Failure::new(format!("bad regular expression '{text}' ({flag}): {error}"))
                .hint(&example)
        })?;
        let names: Vec<_> = regex.capture_names().collect();
        let named = names.iter().enumerate().find_map(|(at, name)| Some((at, (*name)?)));
        let (group, name) = match named {
            Some((at, name)) => (at, name.to_owned()),
            None if names.len() > 1 && number == 0 => (1, "figure".to_owned()),
            None if names.len() > 1 => (1, format!("figure {}", number + 1)),
            None => {
                return Err(Failure::new(format!(
                    "no group in the regular expression '{text}' ({flag}): which part is the number?"
                ))
                .hint(example));
            }
        };
        let figure = if more { Figure::rate(name) } else { Figure::count(name) };
        Ok(Self { figure, regex, group })
    }

    /// The last match, because programs print their progress before the result. `Ok(None)`: no match; `Err`: the text
    /// isn't a number above 0, so it has no ratio.
    pub(crate) fn find(&self, output: &str) -> Result<Option<f64>, String> {
        let found = self.regex.captures_iter(output).filter_map(|groups| groups.get(self.group));
        let Some(text) = found.last().map(|group| group.as_str()) else { return Ok(None) };
        let plain = if has_thousands(text) { text.replace(',', "") } else { text.to_owned() };
        match plain.parse::<f64>() {
            Ok(value) if value.is_finite() && value > 0.0 => Ok(Some(value)),
            _ => Err(text.to_owned()),
        }
    }

    pub(crate) fn text(&self) -> &str {
        self.regex.as_str()
    }
}

/// Matches `1,234,567.8`, but not a decimal comma.
fn has_thousands(text: &str) -> bool {
    let whole = text.split('.').next().unwrap_or(text);
    let mut groups = whole.split(',');
    let first = groups.next().map_or(0, str::len);
    let mut others = groups.peekable();
    others.peek().is_some() && (1..=3).contains(&first) && others.all(|group| group.len() == 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_match_is_the_figure_and_its_group_the_name() {
        let pattern = |text: &str| Pattern::read(text, true, 0).unwrap();
        let rate = pattern(r"(\w+): (?<rps>[\d,.]+)/s");
        assert_eq!((rate.figure.name.as_str(), rate.figure.more), ("rps", true));
        assert_eq!(rate.find("so far: 12.5/s\nall: 1,234.5/s\n"), Ok(Some(1234.5)));
        assert_eq!(rate.find("nothing"), Ok(None));
        for wrong in ["0", "12,5", "1,23", ","] {
            assert_eq!(rate.find(&format!("all: {wrong}/s")), Err(wrong.to_owned()));
        }
        let plain = pattern("took ([0-9.]+)");
        assert_eq!((plain.figure.name.as_str(), plain.find("took 3\n")), ("figure", Ok(Some(3.0))));
        assert_eq!(Pattern::read("(.)", false, 1).unwrap().figure.name, "figure 2");
        let said = |text: &str| Pattern::read(text, false, 0).unwrap_err().to_string();
        assert!(said("rate: [0-9]").contains("no group in the regular expression"));
        assert!(said("(").contains("bad regular expression '(' (--less)"));
    }

    #[test]
    fn ratios_above_one_are_better() {
        assert_eq!(Figure::time("time").ratio(1.0, 2.0), 2.0);
        assert_eq!(Figure::rate("rate").ratio(1.0, 2.0), 0.5);
        assert_eq!(Figure::time("time").shown(1.5e9), "1.50 s");
        assert_eq!(Figure::count("switches").shown(1500.0), "1.50 k");
        assert_eq!(Figure::count("errors").shown(0.0042), "0.00420");
    }
}
