//! The results, and the file that keeps them. All figures are integers, so that reading returns exactly what was
//! written.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// A file of results.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Results {
    /// Results on virtual machines.
    pub(super) simulated: Option<Part>,
    /// Results on a real machine.
    pub(super) real: Option<Part>,
}

/// The results of one measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Part {
    /// `simulated` or `real`.
    pub(super) origin: String,
    /// lockwright's version and commit.
    pub(super) version: String,
    /// The command line.
    pub(super) command: String,
    /// The seed of random draws.
    pub(super) seed: u64,
    /// Measured time of a run, ms.
    pub(super) run_ms: f64,
    /// Interleaved rounds; 1 if the same seed gives the same figures.
    pub(super) rounds: u32,
    /// Is it too short to be published?
    pub(super) quick: bool,
    /// The names of the locks, glibc first.
    pub(super) locks: Vec<String>,
    pub(super) machines: Vec<Machine>,
}

/// A machine with all its points.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Machine {
    pub(super) name: String,
    pub(super) title: String,
    /// The number of CPUs in each class, the fastest first.
    pub(super) classes: Vec<(String, u32)>,
    pub(super) points: Vec<Point>,
}

impl Machine {
    pub(super) fn cpus(&self) -> u32 {
        self.classes.iter().map(|(_, cpus)| cpus).sum()
    }

    /// Does it have several classes of cores?
    pub(super) fn is_unequal(&self) -> bool {
        self.classes.len() > 1
    }
}

/// What the threads did, with the results for each lock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Point {
    pub(super) threads: u32,
    /// Computation in a critical section, ns; `None`: epochs have sections of different lengths.
    pub(super) section_ns: Option<u32>,
    /// Gap between two sections, ns; for epochs: NOPs.
    pub(super) gap: u32,
    /// The epochs' SLO, if the point has epochs.
    pub(super) slo_us: Option<u32>,
    /// By the lock's name. A lock whose run failed is missing.
    pub(super) of: BTreeMap<String, Figures>,
}

/// The figures of one lock at one point.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "[u64; 8]", into = "[u64; 8]")]
pub(super) struct Figures {
    /// Operations per second.
    pub(super) rate: u64,
    /// P99 of all operations (simulated) or of waits (real), ns.
    pub(super) p99_ns: u64,
    /// P99 of the threads on the slowest class of cores, ns; 0: no operation ended there.
    pub(super) slow_p99_ns: u64,
    /// The longest time from requesting to getting a lock, ns.
    pub(super) longest_ns: u64,
    /// CPU time per operation, ns.
    pub(super) cpu_ns: u64,
    /// Energy per operation, nJ; 0: not measured.
    pub(super) energy_nj: u64,
    /// Throughput relative to glibc, in millionths: the median of the rounds' ratios.
    pub(super) of_glibc: u64,
    /// Threads that never got the lock in the measured time. Real runs don't count them: 0.
    pub(super) starved: u64,
}

impl From<[u64; 8]> for Figures {
    fn from(all: [u64; 8]) -> Self {
        let [rate, p99_ns, slow_p99_ns, longest_ns, cpu_ns, energy_nj, of_glibc, starved] = all;
        Self { rate, p99_ns, slow_p99_ns, longest_ns, cpu_ns, energy_nj, of_glibc, starved }
    }
}

impl From<Figures> for [u64; 8] {
    fn from(all: Figures) -> Self {
        let Figures { rate, p99_ns, slow_p99_ns, longest_ns, cpu_ns, energy_nj, of_glibc, starved } =
            all;
        [rate, p99_ns, slow_p99_ns, longest_ns, cpu_ns, energy_nj, of_glibc, starved]
    }
}

/// The meaning of the numbers of a lock at a point, in order.
const COLUMNS: &str = "operations a second; P99, ns; P99 on the slowest class, ns; longest wait, ns; \
CPU time an operation, ns; energy an operation, nJ; millionths of glibc's throughput; \
threads that never got the lock";

impl Results {
    pub(super) fn read(text: &str) -> Result<Self> {
        serde_json::from_str(text).context("these are not results of 'cargo xtask choosing'")
    }

    /// JSON with one line per point.
    pub(super) fn write(&self) -> Result<String> {
        let mut text = format!("{{\n\"columns\": {}", serde_json::to_string(COLUMNS)?);
        for (key, part) in [("simulated", &self.simulated), ("real", &self.real)] {
            let _ = write!(text, ",\n\"{key}\": ");
            match part {
                None => text += "null",
                Some(part) => part.write(&mut text)?,
            }
        }
        Ok(text + "\n}\n")
    }
}

impl Part {
    fn write(&self, text: &mut String) -> Result<()> {
        let head = Self { machines: Vec::new(), ..self.clone() };
        let head = serde_json::to_string(&head)?;
        let open = head.strip_suffix("]}").context("a part ends with its machines")?;
        text.push_str(open);
        for (number, machine) in self.machines.iter().enumerate() {
            let head = Machine { points: Vec::new(), ..machine.clone() };
            let head = serde_json::to_string(&head)?;
            let open = head.strip_suffix("]}").context("a machine ends with its points")?;
            let _ = write!(text, "{}\n{open}", if number > 0 { "," } else { "" });
            for (number, point) in machine.points.iter().enumerate() {
                let comma = if number > 0 { "," } else { "" };
                let _ = write!(text, "{comma}\n{}", serde_json::to_string(point)?);
            }
            text.push_str("]}");
        }
        text.push_str("]}");
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::choosing) fn figures(rate: u64, longest_ns: u64) -> Figures {
        let starved = u64::from(longest_ns >= 20_000_000);
        Figures::from([rate, longest_ns / 2, longest_ns, longest_ns, 900, 40, rate, starved])
    }

    /// A machine with a big and a little core, two points without epochs and one with epochs.
    pub(in crate::choosing) fn part(of: &[(&str, [u64; 3], u64)]) -> Part {
        let point = |threads, slo_us: Option<u32>, place: usize| Point {
            threads,
            section_ns: slo_us.is_none().then_some(100),
            gap: 400,
            slo_us,
            of: of
                .iter()
                .map(|(lock, rates, longest)| ((*lock).into(), figures(rates[place], *longest)))
                .collect(),
        };
        Part {
            origin: "simulated".into(),
            version: "0.0.0".into(),
            command: "cargo xtask choosing".into(),
            seed: 7,
            run_ms: 20.0,
            rounds: 1,
            quick: false,
            locks: of.iter().map(|(lock, ..)| (*lock).into()).collect(),
            machines: vec![Machine {
                name: "m0".into(),
                title: "a machine".into(),
                classes: vec![("big".into(), 1), ("little".into(), 1)],
                points: vec![point(2, None, 0), point(4, None, 1), point(2, Some(50), 2)],
            }],
        }
    }

    /// The same part with three locks. The default lock is the best only at the first point.
    pub(in crate::choosing) fn three() -> Part {
        part(&[
            ("glibc", [100, 400, 900], 900_000),
            ("auto", [200, 100, 450], 3_000_000),
            ("mcs", [50, 500, 1800], 19_000_000),
        ])
    }

    #[test]
    fn what_is_written_is_read() {
        let part = part(&[("glibc", [1000, 900, 5], 1), ("a", [10, 20, 30], 2)]);
        let mut results = Results { simulated: Some(part.clone()), real: None };
        let text = results.write().unwrap();
        assert_eq!(Results::read(&text).unwrap(), results);
        assert_eq!(text.lines().filter(|line| line.contains("\"of\"")).count(), 3, "{text}");
        results.real = Some(Part { origin: "real".into(), ..part });
        assert_eq!(Results::read(&results.write().unwrap()).unwrap(), results);
        assert!(Results::read("{\"simulated\": 3}").is_err());
    }
}
