//! Every figure, and how it was obtained.

use crate::stats::{Estimate, Rejected, round};
use lockwright_numbers::format::digits;
use lockwright_sim::profile::{Origin, Provenance};
use serde::Serialize;
use std::collections::BTreeMap;

/// One figure of the profile.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProfileFigure {
    /// Its path in the profile: `memory.occupancy`.
    pub path: String,
    /// The figure.
    pub value: f64,
    /// `ns`, `W`, `GHz`, or nothing.
    pub unit: &'static str,
    /// Measured or assumed.
    pub kind: Origin,
    /// 10th and 90th percentile of the samples that counted.
    pub spread: Option<(f64, f64)>,
    /// The two tried values between which the figure lies, if it was found by trying.
    pub between: Option<(f64, f64)>,
    /// Samples that counted; 0 for a measured figure means that none was steady.
    pub samples: usize,
    /// Samples that didn't count.
    pub rejected: Rejected,
    /// How it was obtained, or why it wasn't.
    pub source: String,
}

/// The probe that shows whether the machine was steady during a measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Probe {
    /// Length of a cycle.
    Cycle,
    /// Line transfer.
    Line,
}

impl Probe {
    fn name(self) -> &'static str {
        match self {
            Self::Cycle => "the core's speed",
            Self::Line => "the line transfer",
        }
    }
}

/// The figures, in the order in which they were obtained.
#[derive(Debug, Default)]
pub(crate) struct Ledger(Vec<ProfileFigure>);

impl Ledger {
    /// Enters a measured figure, and returns it.
    pub(crate) fn measured(
        &mut self,
        path: &str,
        estimate: &Estimate,
        probe: Probe,
        how: &str,
    ) -> f64 {
        let unit = unit(path);
        let source = format!("{how}: {}", estimate.words(unit, probe.name()));
        let value = round(estimate.median.max(0.0));
        self.0.push(ProfileFigure {
            path: path.into(),
            value,
            unit,
            kind: Origin::Measured,
            spread: Some((round(estimate.p10), round(estimate.p90))),
            between: None,
            samples: estimate.kept,
            rejected: estimate.rejected,
            source,
        });
        value
    }

    /// Enters a figure from the machine or the kernel.
    pub(crate) fn told(&mut self, path: &str, value: f64, how: &str) -> f64 {
        self.enter(path, value, Origin::Measured, how)
    }

    /// Enters a figure that lies between two tried values.
    pub(crate) fn between(&mut self, path: &str, value: f64, tried: (f64, f64), how: &str) -> f64 {
        let value = self.told(path, value, how);
        self.0.last_mut().expect("just entered").between = Some(tried);
        value
    }

    /// Enters a figure that could not be measured here.
    pub(crate) fn assumed(&mut self, path: &str, value: f64, why: &str) -> f64 {
        self.enter(path, value, Origin::Assumed, why)
    }

    /// Enters a published figure.
    pub(crate) fn published(&mut self, path: &str, value: f64, by: &str) -> f64 {
        self.enter(path, value, Origin::Published, by)
    }

    /// The measured figure, or else the assumed one.
    pub(crate) fn or_assumed(
        &mut self,
        path: &str,
        estimate: Option<&Estimate>,
        probe: Probe,
        how: &str,
        assumed: (f64, &str),
    ) -> f64 {
        match estimate {
            Some(estimate) => self.measured(path, estimate, probe, how),
            None => self.assumed(path, assumed.0, assumed.1),
        }
    }

    fn enter(&mut self, path: &str, value: f64, kind: Origin, source: &str) -> f64 {
        let figure = ProfileFigure {
            path: path.into(),
            value: round(value),
            unit: unit(path),
            kind,
            spread: None,
            between: None,
            samples: 0,
            rejected: Rejected::default(),
            source: source.into(),
        };
        self.0.push(figure);
        round(value)
    }

    pub(crate) fn figures(self) -> Vec<ProfileFigure> {
        self.0
    }

    /// The figures' origins, in the profile's form. The cells of a matrix share a path, so their
    /// texts are joined.
    pub(crate) fn provenance(&self) -> BTreeMap<String, Provenance> {
        let mut all = BTreeMap::<String, Provenance>::new();
        for figure in &self.0 {
            let (path, cell) =
                figure.path.split_once('[').map_or((&*figure.path, None), |(p, c)| (p, Some(c)));
            let source = match cell {
                Some(cell) => format!("[{cell} {}: {}", digits(figure.value), figure.source),
                None => figure.source.clone(),
            };
            all.entry(path.into())
                .and_modify(|known| {
                    known.source = format!("{}; {source}", known.source);
                    if figure.kind != Origin::Measured {
                        known.kind = figure.kind;
                    }
                })
                .or_insert(Provenance {
                    kind: figure.kind,
                    source,
                    targets: Vec::new(),
                    range: None,
                });
        }
        all
    }
}

fn unit(path: &str) -> &'static str {
    let path = path.split('[').next().unwrap_or(path);
    match path.rsplit_once('_') {
        Some((_, "ns")) => "ns",
        Some((_, "w")) => "W",
        _ if path.ends_with(".ghz") => "GHz",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Sample;

    #[test]
    fn a_figure_says_how_it_was_got() {
        let mut ledger = Ledger::default();
        let samples = [1.0, 2.0, 3.0].map(|value| Sample { before: 1.0, value, after: 1.0 });
        let estimate = Estimate::of(&samples, None).unwrap();
        assert_eq!(ledger.measured("memory.cold_ns", &estimate, Probe::Cycle, "flushed"), 2.0);
        assert_eq!(ledger.assumed("memory.jitter", 0.05, "a round figure"), 0.05);
        ledger.measured("memory.latency_ns[0][0]", &estimate, Probe::Line, "walk");
        ledger.assumed("memory.latency_ns[0][1]", 4.0, "no such pair");
        let provenance = ledger.provenance();
        assert_eq!(
            provenance["memory.cold_ns"].source,
            "flushed: median of 3 samples, 1.20 ns .. 2.80 ns (p10 .. p90)"
        );
        let latency = &provenance["memory.latency_ns"];
        assert_eq!(latency.kind, Origin::Assumed, "a matrix is measured if all of it is");
        assert!(latency.source.contains("[0][1] 4.00: no such pair"), "{}", latency.source);
        assert_eq!(ledger.figures().len(), 4);
    }
}
