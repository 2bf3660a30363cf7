//! Joules between two moments, of the processors or of the whole machine, from whatever source this machine has.
//!
//! ```text
//!  find: the first that can be read        start ─► Running ─► stop: joules
//!  rapl ─ perf ─ hwmon ─ battery ─ model            └ sums up what its gauges show
//! ```
//!
//! All files are under one root, `/sys` or the folder in `LOCKWRIGHT_ENERGY_SYS`, so that tests can use their own tree.
//! docs/bench.md says what each source counts, and what it leaves out.

mod battery;
mod gauge;
mod hwmon;
mod model;
mod perf;
mod rapl;

pub use model::Watts;

use gauge::{Gauge, Sum};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The variable that names a folder to use instead of `/sys`.
pub const VARIABLE: &str = "LOCKWRIGHT_ENERGY_SYS";

/// Where joules come from, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SourceKind {
    /// The processor's energy counters, by Linux's powercap files.
    Rapl,
    /// The same counters, by perf events.
    Perf,
    /// A sensor: energy, or power that is summed up.
    Hwmon,
    /// Energy from a battery.
    Battery,
    /// Nothing measures on this machine: watts of each state, times the time spent in it.
    Model,
}

impl SourceKind {
    /// `rapl`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Rapl => "rapl",
            Self::Perf => "perf",
            Self::Hwmon => "hwmon",
            Self::Battery => "battery",
            Self::Model => "model",
        }
    }
}

/// The result of looking for one kind of source.
enum Found {
    /// These gauges, and their names.
    Gauges(Vec<Gauge>, String),
    /// It exists, but can't be read: the reason, and the command that fixes it.
    Locked(String),
    /// There is none.
    None,
}

/// The source of joules on this machine.
#[derive(Debug)]
pub struct Source {
    kind: SourceKind,
    gauges: Arc<Vec<Gauge>>,
    what: String,
    notes: Vec<String>,
    watts: Watts,
}

impl Source {
    /// The first readable source under the root, or else the model with these watts.
    pub fn here(watts: Watts) -> Self {
        Self::find(&root(), watts)
    }

    /// The same under `root`.
    pub fn find(root: &Path, watts: Watts) -> Self {
        type Probe = fn(&Path) -> Found;
        let probes: [(SourceKind, Probe); 4] = [
            (SourceKind::Rapl, rapl::find),
            (SourceKind::Perf, perf::find),
            (SourceKind::Hwmon, hwmon::find),
            (SourceKind::Battery, battery::find),
        ];
        let mut notes = Vec::new();
        for (kind, probe) in probes {
            match probe(root) {
                Found::Gauges(gauges, what) => {
                    return Self { kind, gauges: Arc::new(gauges), what, notes, watts };
                }
                Found::Locked(why) => notes.push(format!("no {}: {why}", kind.word())),
                Found::None => {}
            }
        }
        if !root.is_dir() {
            notes.push(format!("no folder '{}' (/sys, or what {VARIABLE} names)", root.display()));
        }
        if notes.is_empty() {
            notes.push(model::why_nothing_measures().to_owned());
        }
        let (what, gauges) = (watts.words(), Arc::default());
        Self { kind: SourceKind::Model, gauges, what, notes, watts }
    }

    /// Which it is.
    pub fn kind(&self) -> SourceKind {
        self.kind
    }

    /// Is it the processor's own counter?
    pub fn is_counter(&self) -> bool {
        matches!(self.kind, SourceKind::Rapl | SourceKind::Perf)
    }

    /// The tag of each figure: `joules (rapl)`.
    pub fn tag(&self) -> String {
        format!("joules ({})", self.kind.word())
    }

    /// Where exactly: the files, or the model's watts.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// Why there is no better source, one line each, with the command that fixes it.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// All of that, one line each.
    pub fn lines(&self) -> Vec<String> {
        let first = format!("{}: {}", self.tag(), self.what);
        std::iter::once(first).chain(self.notes.iter().cloned()).collect()
    }

    /// Starts counting.
    pub fn start(&self) -> Running {
        let shared = Arc::new((Arc::clone(&self.gauges), Mutex::new(Sum::begin(&self.gauges))));
        let (stop, stopped) = channel::<()>();
        let thread = Sum::period(&self.gauges).and_then(|period| {
            let shared = Arc::clone(&shared);
            let sample = move || {
                while stopped.recv_timeout(period) == Err(RecvTimeoutError::Timeout) {
                    let (gauges, sum) = &*shared;
                    sum.lock().unwrap_or_else(PoisonError::into_inner).add(gauges);
                }
            };
            std::thread::Builder::new().name("energy".into()).spawn(sample).ok()
        });
        let watts = (self.kind == SourceKind::Model).then(|| self.watts.clone());
        Running {
            shared,
            sampler: thread.map(|thread| (stop, thread)),
            watts,
            start: Instant::now(),
        }
    }
}

/// The folder with the kernel's files.
pub fn root() -> PathBuf {
    let named = std::env::var_os(VARIABLE).filter(|root| !root.is_empty());
    named.map_or_else(|| "/sys".into(), PathBuf::from)
}

/// A measurement that has begun.
#[derive(Debug)]
pub struct Running {
    shared: Arc<(Arc<Vec<Gauge>>, Mutex<Sum>)>,
    /// Reads the gauges now and then, because some show power and others wrap around.
    sampler: Option<(Sender<()>, JoinHandle<()>)>,
    /// The model's watts.
    watts: Option<Watts>,
    start: Instant,
}

impl Running {
    /// Joules since it began. `cpu`, the CPU time spent meanwhile, is for the model. `None`: a gauge could no longer be
    /// read.
    pub fn stop(mut self, cpu: Duration) -> Option<f64> {
        let elapsed = self.start.elapsed();
        if let Some(watts) = &self.watts {
            return Some(watts.joules(elapsed, cpu));
        }
        let (gauges, sum) = &*self.shared;
        let joules = {
            let mut sum = sum.lock().unwrap_or_else(PoisonError::into_inner);
            sum.add(gauges);
            sum.joules()
        };
        self.end();
        joules
    }

    fn end(&mut self) {
        if let Some((stop, thread)) = self.sampler.take() {
            drop(stop); // the sampler waits for this
            let _ = thread.join();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

/// The folders in `dir`, sorted by name.
fn folders(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut all: Vec<_> = entries.map(|entry| entry.path()).collect();
    all.sort();
    all
}

/// A file's text.
fn text(path: &Path) -> Option<String> {
    Some(std::fs::read_to_string(path).ok()?.trim().to_owned())
}

/// A file's number, without its sign (on some machines a battery's current is negative while it is used). The error
/// distinguishes a missing file from a forbidden one.
fn number(path: &Path) -> std::io::Result<u64> {
    let text = std::fs::read_to_string(path)?;
    let number = text.trim().parse().map(i64::unsigned_abs);
    number.map_err(|_| std::io::ErrorKind::InvalidData.into())
}

/// The command that lets everybody read these files.
fn allow(paths: &[PathBuf]) -> String {
    let paths: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
    format!("sudo chmod a+r {}", paths.join(" "))
}
