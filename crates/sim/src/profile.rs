//! A machine profile: everything that the simulator needs to know about a machine, as data, with the origin of each
//! figure.
//!
//! ```toml
//! name = "m1"
//! title = "Apple M1: 4 big, 4 little cores"
//!
//! [[class]]            # the fastest first
//! name = "big"
//! ...
//!
//! [[cluster]]          # cores that share a cache; CPUs are numbered cluster by cluster
//! class = "big"
//! cores = 4
//!
//! [memory]
//! latency_ns = [[43.0, 62.9], [62.9, 43.0]]    # cluster x cluster
//! ...
//!
//! [provenance]         # one line for each figure, or for a table of figures
//! "memory.latency_ns" = { kind = "fitted", source = "...", targets = ["libasl-1"],
//!                         range = [30.0, 160.0] }
//! ```

mod limits;

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use thiserror::Error;

/// A machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Its name on the command line.
    pub name: String,
    /// What it is, in one line.
    pub title: String,
    /// Classes of cores, the fastest first.
    pub class: Vec<ClassProfile>,
    /// Groups of cores that share a cache. CPUs are numbered cluster by cluster; SMT siblings follow each other.
    pub cluster: Vec<Cluster>,
    /// Transfers of cache lines between cores.
    pub memory: Memory,
    /// The operating system.
    pub kernel: Kernel,
    /// When delegation beats locks here, if that was measured (`lockwright sim --calibrate`). The simulator has no use for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delegation: Option<Delegation>,
    /// Where each figure comes from, by its path (`memory.occupancy`, `class.big.nop_ns`) or a table's (`class.big`,
    /// `kernel`). A cell of a matrix may have its own line (`memory.latency_ns.0.1`).
    pub provenance: BTreeMap<String, Provenance>,
}

/// One class of cores.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClassProfile {
    /// `big`, `little`, ...
    pub name: String,
    /// Clock rate, GHz: papers give many figures in cycles.
    pub ghz: f64,
    /// One NOP in a long run of them, ns.
    pub nop_ns: f64,
    /// How much longer ordinary computation takes than on the fastest class (Sysbench's mix; 1 on the fastest).
    pub compute: f64,
    /// A load or store that hits in the core's own cache, ns.
    pub load_ns: f64,
    /// An atomic read-modify-write that hits in the core's own cache, ns.
    pub atomic_ns: f64,
    /// How long after a store to a line in the core's own cache such an operation can begin, ns.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub drain_ns: f64,
    /// Reading, modifying and writing a line of data in the core's own cache, within a critical section, ns.
    pub line_ns: f64,
    /// The factor by which line transfers to this class take longer than `memory.latency_ns`.
    pub latency: f64,
    /// One pause instruction, as spin loops use it, ns.
    pub pause_ns: f64,
    /// Reading the clock, ns.
    pub clock_ns: f64,
    /// Chance to win a contended line next, relative to other classes, if attempts are spaced.
    pub weight_spaced: f64,
    /// The same if the line changes hands back to back (see `memory.back_to_back_ns`).
    pub weight_back_to_back: f64,
    /// Hardware threads per core (1: no SMT).
    #[serde(default = "one")]
    pub smt: u32,
    /// Speed of a hardware thread while a sibling computes, too, relative to its speed alone (above 0, at most 1). A
    /// sibling that spins doesn't count.
    #[serde(default = "unit")]
    pub smt_speed: f64,
    /// Do spinning threads execute memory barriers, as MUTEXEE's spinlocks do, instead of pause instructions?
    #[serde(default)]
    pub fences: bool,
    /// Watts.
    pub power: Power,
}

fn one() -> u32 {
    1
}

fn unit() -> f64 {
    1.0
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    clippy::float_cmp,
    reason = "serde's signature; the default itself"
)]
fn is_unit(value: &f64) -> bool {
    *value == 1.0
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(value: &f64) -> bool {
    *value == 0.0
}

/// What one hardware thread of a class draws when it has its core to itself, in watts, beyond [`Kernel::package_w`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Power {
    /// Computes, or waits for a line.
    pub active_w: f64,
    /// Spins on its own copy of a line, with pause instructions.
    pub spin_local_w: f64,
    /// Spins on its own copy of a line, with memory barriers.
    pub spin_fence_w: f64,
    /// Spins by atomic operations on a shared line.
    pub spin_global_w: f64,
    /// Idle, shallow.
    pub idle_w: f64,
    /// Idle for longer than [`Kernel::deep_after_ns`].
    pub deep_w: f64,
    /// The share that each further hardware thread of a core adds: the core draws what its most demanding thread draws,
    /// plus this share of what the others would draw.
    #[serde(default = "unit", skip_serializing_if = "is_unit")]
    pub sibling: f64,
}

/// Cores that share a cache.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cluster {
    /// Their class.
    pub class: String,
    /// How many (each has the class's `smt` hardware threads).
    pub cores: u32,
    /// NUMA node, or socket.
    #[serde(default)]
    pub domain: u16,
}

/// Transfers of cache lines.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// Latency of a transfer to a core of a cluster (row) from a core of another (column), for a requester of the
    /// fastest class, ns.
    pub latency_ns: Vec<Vec<f64>>,
    /// Between the hardware threads of one core, ns.
    #[serde(default)]
    pub sibling_ns: f64,
    /// From memory, for a line that nobody has, ns.
    pub cold_ns: f64,
    /// The share of a transfer during which the line can't start another one (0 to 1).
    pub occupancy: f64,
    /// How much longer a core that got a line for writing keeps it while others ask for it, ns.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub hold_ns: f64,
    /// Does a read of a line that another core has changed move the line, with the right to write it?
    #[serde(default)]
    pub migrates: bool,
    /// How long after one reader a shared line can serve the next, ns.
    pub share_ns: f64,
    /// Misses on data lines that a core has in flight at once, within a critical section.
    pub overlap: f64,
    /// Chance to win a contended line for cores of the cluster that has it, relative to others.
    pub local_weight: f64,
    /// A word that changes at least this often, ns, changes hands back to back.
    pub back_to_back_ns: f64,
    /// All durations vary by this share of themselves, up and down.
    pub jitter: f64,
}

/// The operating system.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kernel {
    /// futex wait: from the call until the core is given up, ns.
    pub sleep_ns: f64,
    /// futex wake: what the call costs the waker, ns.
    pub wake_ns: f64,
    /// From a wake call until the woken thread runs in user space, on an idle core, ns.
    pub turnaround_ns: f64,
    /// A core idle for longer is in a deep idle state, ns.
    pub deep_after_ns: f64,
    /// What leaving deep idle adds to the turnaround, ns.
    pub deep_exit_ns: f64,
    /// How long a futex call holds its hash bucket, ns.
    pub bucket_ns: f64,
    /// The share of `bucket_ns` by which each core that waits for the bucket delays the next hand-over.
    pub bucket_contention: f64,
    /// Does a wake start threads while it holds the bucket? Linux did, until 4.2 introduced wake queues.
    #[serde(default)]
    pub wakes_in_bucket: bool,
    /// Hash buckets.
    pub buckets: u32,
    /// How much too long a timed sleep is, ns (timer slack and interrupt).
    pub timer_slack_ns: f64,
    /// How long a thread runs while another one waits for its core, ns.
    pub slice_ns: f64,
    /// A context switch, ns.
    pub switch_ns: f64,
    /// A woken thread preempts one that has run for longer than this, ns.
    pub wakeup_granularity_ns: f64,
    /// Timer and other interrupts: how often on each core, ns (0: never).
    pub noise_every_ns: f64,
    /// How long each takes, ns.
    pub noise_ns: f64,
    /// What the machine draws in addition to its cores, watts.
    pub package_w: f64,
    /// What a domain (a socket) draws in addition while any of its cores is not idle, watts.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub uncore_w: f64,
}

/// RCL's thresholds (Lozi et al., USENIX ATC 2012) on this machine: the share of the threads' time in critical sections
/// from which on delegation has more throughput than locks.
///
/// A share (0 to 1) is the threads' time from before they ask for a lock until after they have released it, under
/// glibc's lock, divided by their whole time. A threshold is one of the measured shares; delegation is ahead there and
/// at all higher ones.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Delegation {
    /// Number of threads, each on a CPU of its own.
    pub threads: u32,
    /// Cache lines that a section changes.
    pub lines: u32,
    /// The highest share that was measured.
    pub up_to: f64,
    /// The share from which on delegation beats glibc's lock; `None`: it doesn't, up to `up_to`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over_glibc: Option<f64>,
    /// The share from which on it beats each of a few locks, glibc's among them; `None`: it doesn't, up to `up_to`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over_all: Option<f64>,
}

/// Where a figure comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Provenance {
    /// How it was obtained.
    pub kind: Origin,
    /// Who measured it, where, or why it was chosen.
    pub source: String,
    /// For a fitted figure: ids of the figures it was fitted to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<String>,
    /// For a fitted figure: the smallest and the largest value that a real machine might have. The fit stays within
    /// these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<[f64; 2]>,
}

/// How a figure was obtained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// By `lockwright sim --calibrate`, on the machine itself.
    Measured,
    /// Somebody else's measurement or data sheet.
    Published,
    /// Chosen so that the simulator meets the named targets.
    Fitted,
    /// Nobody has published it: taken from the most similar machine, or a round figure.
    Assumed,
}

/// Why a text isn't a profile.
#[derive(Debug, Error)]
pub enum ProfileError {
    /// Not the TOML of a profile.
    #[error("{0}")]
    Syntax(#[from] toml::de::Error),
    /// Figures that contradict each other, or are impossible.
    #[error("{path} = {value}: {why}")]
    Value {
        /// Which figure.
        path: String,
        /// Its value.
        value: String,
        /// What is wrong with it.
        why: String,
    },
    /// A path that leads to no figure, or to several.
    #[error("no figure '{0}'")]
    NoFigure(String),
}

impl Profile {
    /// Reads and checks a profile.
    pub fn parse(text: &str) -> Result<Self, ProfileError> {
        let profile: Self = toml::from_str(text)?;
        profile.check()?;
        Ok(profile)
    }

    /// As TOML.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("a profile has no maps with keys that TOML lacks")
    }

    /// Hardware threads in all.
    pub fn cpus(&self) -> u32 {
        u32::try_from(self.hardware_threads()).unwrap_or(u32::MAX)
    }

    /// The class of that name.
    pub fn class_named(&self, name: &str) -> Option<&ClassProfile> {
        self.class.iter().find(|class| class.name == name)
    }

    /// Every figure with its path, as [`provenance`](Self::provenance) names it; also each figure of a table.
    pub fn figures(&self) -> Vec<(String, f64)> {
        let value = toml::Value::try_from(self).expect("serializable");
        let mut all = Vec::new();
        collect(&value, String::new(), &mut all);
        all
    }

    /// Changes the figure at `path`, as [`figures`](Self::figures) names it; a cell of a matrix by its row and column
    /// (`memory.latency_ns.0.1`). If the result isn't a valid machine, nothing changes.
    pub fn set(&mut self, path: &str, value: f64) -> Result<(), ProfileError> {
        let mut whole = toml::Value::try_from(&*self).expect("serializable");
        let none = || ProfileError::NoFigure(path.to_owned());
        match path.split('.').try_fold(&mut whole, inside).ok_or_else(none)? {
            toml::Value::Float(figure) => *figure = value,
            #[allow(clippy::cast_possible_truncation, reason = "checked to be whole and small")]
            toml::Value::Integer(count) if value.fract() == 0.0 && value.abs() < 1e9 => {
                *count = value as i64;
            }
            toml::Value::Integer(_) => {
                let (path, value) = (path.to_owned(), value.to_string());
                return Err(ProfileError::Value {
                    path,
                    value,
                    why: "a whole number is wanted".into(),
                });
            }
            _ => return Err(none()),
        }
        let changed: Self = whole.try_into()?;
        changed.check()?;
        *self = changed;
        Ok(())
    }

    /// Where the figure at `path` comes from: its own line, or that of its table.
    pub fn provenance_of(&self, path: &str) -> Option<&Provenance> {
        let mut path = path;
        loop {
            if let Some(found) = self.provenance.get(path) {
                return Some(found);
            }
            path = path.rsplit_once('.')?.0;
        }
    }
}

/// What `key` names in a table, a list of tables with names, or a list.
fn inside<'a>(value: &'a mut toml::Value, key: &str) -> Option<&'a mut toml::Value> {
    match value {
        toml::Value::Table(table) => table.get_mut(key),
        toml::Value::Array(items) => {
            let named =
                |item: &toml::Value| item.get("name").and_then(toml::Value::as_str) == Some(key);
            let index = items.iter().position(named).or_else(|| key.parse().ok())?;
            items.get_mut(index)
        }
        _ => None,
    }
}

fn collect(value: &toml::Value, path: String, all: &mut Vec<(String, f64)>) {
    let join = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    match value {
        toml::Value::Float(number) => all.push((path, *number)),
        #[allow(clippy::cast_precision_loss, reason = "counts of cores, buckets")]
        toml::Value::Integer(number) => all.push((path, *number as f64)),
        toml::Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                // Classes go by name, other tables by number; the cells of a matrix share its path.
                let name = item.get("name").and_then(toml::Value::as_str).map(str::to_owned);
                let key = name.unwrap_or_else(|| index.to_string());
                collect(item, if item.is_table() { join(&key) } else { path.clone() }, all);
            }
        }
        toml::Value::Table(table) => {
            for (key, item) in table.iter().filter(|(key, _)| *key != "provenance") {
                collect(item, join(key), all);
            }
        }
        _ => {}
    }
}

/// The built-in profiles: name and text.
pub const BUILTIN: &[(&str, &str)] = &[
    ("m1", include_str!("../profiles/m1.toml")),
    ("i5-13400", include_str!("../profiles/i5-13400.toml")),
    ("i5-13600k", include_str!("../profiles/i5-13600k.toml")),
    ("hikey970", include_str!("../profiles/hikey970.toml")),
    ("xeon-2x10", include_str!("../profiles/xeon-2x10.toml")),
    ("xeon-8x10", include_str!("../profiles/xeon-8x10.toml")),
    ("opteron-4x12", include_str!("../profiles/opteron-4x12.toml")),
    ("intel-dvfs", include_str!("../profiles/intel-dvfs.toml")),
    ("niagara2-128", include_str!("../profiles/niagara2-128.toml")),
    ("xeon-2cpu-vm", include_str!("../profiles/xeon-2cpu-vm.toml")),
];

/// The built-in profile of that name.
pub fn builtin(name: &str) -> Option<Profile> {
    let (_, text) = BUILTIN.iter().find(|(known, _)| *known == name)?;
    Some(Profile::parse(text).expect("tested"))
}

#[cfg(test)]
mod tests;
