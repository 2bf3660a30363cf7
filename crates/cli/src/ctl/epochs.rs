//! A running process's epochs: reads them, and changes their SLOs.

use crate::hints::{Failure, nearest};
use crate::output::{plain, shown, table};
use lockwright_contract::epochs::{
    Common, Epochs, IDS, MAGIC, NAME, NUMBERED, Own, SYMBOL, Windows,
};
use lockwright_contract::post::remote::Memory;
use lockwright_contract::text::unpadded;
use lockwright_locks::amp::feedback::Percentile;
use lockwright_numbers::format::{si, time};
use lockwright_numbers::units;
use lockwright_observer::mailbox;
use lockwright_observer::process::Process;
use serde::Serialize;
use serde_json::{Value, json};
use std::fmt;
use std::mem::offset_of;
use std::str::FromStr;

/// A list with more blocks must contain a cycle.
const BLOCKS: usize = 1 << 16;

/// Where a process keeps its epochs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Remote {
    at: u64,
}

/// An epoch that has an SLO, or that was executed at least once.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Epoch {
    pub(crate) id: usize,
    pub(crate) name: String,
    /// `None`: not known yet.
    pub(crate) slo_ns: Option<u64>,
    /// Was it set by a command or by LOCKWRIGHT_SLO?
    pub(crate) is_set: bool,
    /// As a share.
    pub(crate) percentile: f64,
    /// The smallest and the largest of the threads' windows, ns; `None`: no thread has one.
    pub(crate) windows_ns: Option<(u32, u32)>,
    /// Executions in all threads, in total or since the last look; it wraps.
    #[serde(skip)]
    pub(crate) ended: u32,
    /// How many of them missed the SLO.
    #[serde(skip)]
    pub(crate) missed: u32,
}

/// An SLO that overrides the program's, ns; `None`: restore the program's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slo(pub(crate) Option<u64>);

impl FromStr for Slo {
    type Err = String;

    /// Parses a time, or `own`.
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "own" => Ok(Self(None)),
            text => units::nanoseconds(text).map(|ns| Self(Some(ns))),
        }
    }
}

impl fmt::Display for Slo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(ns) => f.write_str(&units::word(ns)),
            None => f.write_str("the program's own SLO"),
        }
    }
}

/// A process's epochs, read repeatedly.
pub(crate) struct Followed {
    remote: Remote,
    before: Vec<Epoch>,
}

impl Followed {
    pub(crate) fn begin(process: &Process) -> Result<Self, Failure> {
        let remote = Remote::find(process)?;
        Ok(Self { remote, before: remote.read(process)? })
    }

    /// The epochs, with executions and misses since the last look.
    pub(crate) fn look(&mut self, process: &Process) -> Result<Vec<Epoch>, Failure> {
        let mut epochs = self.remote.read(process)?;
        let before = std::mem::replace(&mut self.before, epochs.clone());
        for epoch in &mut epochs {
            if let Some(then) = before.iter().find(|then| then.id == epoch.id) {
                epoch.ended = epoch.ended.wrapping_sub(then.ended);
                epoch.missed = epoch.missed.wrapping_sub(then.missed);
            }
        }
        Ok(epochs)
    }

    /// As [`Remote::set_slo`].
    pub(crate) fn set_slo(
        &self,
        process: &Process,
        wanted: &str,
        slo: Slo,
    ) -> Result<Vec<String>, Failure> {
        self.remote.set_slo(process, wanted, slo)
    }
}

/// A table of what the epochs did in this time.
pub(crate) fn text(epochs: &[Epoch], seconds: f64) -> String {
    let mut drawn =
        table(&["epoch", "ended/s", "missed", "SLO", "set", "windows"]).all_by("--format json");
    for epoch in epochs {
        let percent = format!("{:.4}", 100.0 * epoch.percentile);
        let percent = percent.trim_end_matches('0').trim_end_matches('.');
        drawn.add_row([
            shown(&epoch.name).into_owned(),
            si(f64::from(epoch.ended) / seconds),
            match epoch.ended {
                0 => "-".to_owned(),
                ended => format!("{:.2} %", 100.0 * f64::from(epoch.missed) / f64::from(ended)),
            },
            match epoch.slo_ns {
                Some(slo) => format!("{} at P{percent}", time(slo as f64)),
                None => "not known".to_owned(),
            },
            if epoch.is_set { "from outside" } else { "by the program" }.to_owned(),
            match epoch.windows_ns {
                Some((low, high)) if low == high => time(low.into()),
                Some((low, high)) => format!("{} to {}", time(low.into()), time(high.into())),
                None => "-".to_owned(),
            },
        ]);
    }
    plain(&drawn)
}

/// A JSON array of what the epochs did in this time.
pub(crate) fn json(epochs: &[Epoch], seconds: f64) -> Result<Value, Failure> {
    let one = |epoch: &Epoch| -> Result<Value, Failure> {
        let mut value = serde_json::to_value(epoch).map_err(Failure::new)?;
        value["ended_per_s"] = json!(f64::from(epoch.ended) / seconds);
        value["missed_per_s"] = json!(f64::from(epoch.missed) / seconds);
        Ok(value)
    };
    epochs.iter().map(one).collect()
}

impl Epoch {
    /// Does the user's `name` mean this epoch?
    fn is(&self, name: &str) -> bool {
        self.name == name || self.id < NUMBERED && name.parse() == Ok(self.id)
    }
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

impl Remote {
    /// Finds the epochs of the preloaded library, or of the runtime that is linked into the program.
    pub(crate) fn find(process: &Process) -> Result<Self, Failure> {
        let at = mailbox::symbol_in(process, SYMBOL)?;
        if !process.has::<Epochs>(at, MAGIC)? {
            return Err(mailbox::other_version(process));
        }
        Ok(Self { at })
    }

    /// All epochs, by id.
    pub(crate) fn read(self, process: &Process) -> Result<Vec<Epoch>, Failure> {
        let mut all = vec![0; size_of::<Epochs>()];
        process.read(self.at, &mut all)?;
        let default = u32_at(&all, offset_of!(Epochs, percentile));
        let mut epochs = Vec::with_capacity(IDS);
        for id in 0..IDS {
            let common = offset_of!(Epochs, common) + id * size_of::<Common>();
            let slo = |offset| match u64_at(&all, common + offset) {
                0 => None,
                inverted => Some(!inverted),
            };
            let forced = slo(offset_of!(Common, forced_inverted));
            let percentile = match u32_at(&all, common + offset_of!(Common, percentile)) {
                0 => default,
                own => own,
            };
            let percentile = Percentile::from_millionths(percentile).unwrap_or(Percentile::P99);
            epochs.push(Epoch {
                id,
                name: String::new(),
                slo_ns: forced.or(slo(offset_of!(Common, slo_inverted))),
                is_set: forced.is_some(),
                percentile: f64::from(percentile.millionths()) / 1e6,
                windows_ns: None,
                ended: 0,
                missed: 0,
            });
        }
        let mut at = u64_at(&all, offset_of!(Epochs, newest));
        let mut block = vec![0; size_of::<Windows>()];
        for _ in 0..BLOCKS {
            if at == 0 {
                break;
            }
            process.read(at, &mut block)?;
            for epoch in &mut epochs {
                let own = offset_of!(Windows, own) + epoch.id * size_of::<Own>();
                let number = |offset| u32_at(&block, own + offset);
                epoch.ended = epoch.ended.wrapping_add(number(offset_of!(Own, ended)));
                epoch.missed = epoch.missed.wrapping_add(number(offset_of!(Own, missed)));
                if number(offset_of!(Own, unit_ns)) != 0 {
                    let window = number(offset_of!(Own, window_ns));
                    let (low, high) = epoch.windows_ns.unwrap_or((window, window));
                    epoch.windows_ns = Some((low.min(window), high.max(window)));
                }
            }
            at = u64_at(&block, offset_of!(Windows, older));
        }
        let mut names = [0; NAME];
        epochs.retain(|epoch| {
            let name = u64_at(&all, offset_of!(Epochs, names) + epoch.id * size_of::<u64>());
            // An epoch with an SLO counts even before its first execution, unless a command set that SLO: it may
            // have set the SLOs of all.
            name != 0 || epoch.ended != 0 || (epoch.slo_ns.is_some() && !epoch.is_set)
        });
        for epoch in &mut epochs {
            let name = u64_at(&all, offset_of!(Epochs, names) + epoch.id * size_of::<u64>());
            if name != 0 {
                process.read(name, &mut names)?;
                epoch.name = String::from_utf8_lossy(unpadded(&names)).into_owned();
            } else {
                epoch.name = format!("epoch {}", epoch.id);
            }
        }
        Ok(epochs)
    }

    /// Sets the SLO of the epochs with this name (`all`: every epoch). Returns their names.
    pub(crate) fn set_slo(
        self,
        process: &Process,
        wanted: &str,
        slo: Slo,
    ) -> Result<Vec<String>, Failure> {
        let epochs = self.read(process)?;
        let named: Vec<&Epoch> =
            epochs.iter().filter(|epoch| wanted == "all" || epoch.is(wanted)).collect();
        let pid = process.pid;
        if epochs.is_empty() {
            return Err(Failure::new(format!("process {pid} ({}) has no epochs", process.name()))
                .hint("docs/epochs.md says how to add some, even without changing the source"));
        }
        if named.is_empty() {
            let names: Vec<&str> = epochs.iter().map(|epoch| epoch.name.as_str()).collect();
            let near = nearest(wanted, names.iter().copied()).unwrap_or(names[0]);
            let value = slo.0.map_or_else(|| "own".to_owned(), units::word);
            return Err(Failure::new(format!("process {pid} has no epoch '{wanted}'")).hint(
                format!(
                    "it has {}; lockwright switch {pid} slo '{near}' {value}",
                    names.join(", ")
                ),
            ));
        }
        for epoch in &named {
            let common = offset_of!(Epochs, common) + epoch.id * size_of::<Common>();
            let at = self.at + (common + offset_of!(Common, forced_inverted)) as u64;
            process.write(at, &slo.0.map_or(0, |ns| !ns).to_ne_bytes())?;
        }
        Ok(named.into_iter().map(|epoch| epoch.name.clone()).collect())
    }
}
