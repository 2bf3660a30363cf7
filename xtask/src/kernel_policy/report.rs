//! What the machine reports: a line of JSON on its console.

use serde::{Deserialize, Serialize};

/// The whole run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct KernelRun {
    /// The kernel's version.
    pub(super) kernel: String,
    /// The hooks that the module asks, each with the kernel's reason to refuse it.
    pub(super) hooks: Vec<(String, Option<String>)>,
    /// Before the patch, with it, and after it.
    pub(super) phases: [Phase; 3],
    /// Until every thread used the patch.
    pub(super) patched_ms: u64,
    /// Until none did.
    pub(super) unpatched_ms: u64,
    /// The sum of what all threads wrote to the pipe.
    pub(super) written: u64,
    /// The sum of what they read.
    pub(super) read: u64,
}

/// A part of it.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Phase {
    /// How often a thread wrote to the pipe and read from it.
    pub(super) rounds: u64,
    /// The module's counts, all 0 without it.
    pub(super) stats: Stats,
}

/// The module's counts, by its names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Stats {
    pub(super) slow_paths: u64,
    pub(super) no_line: u64,
    pub(super) waits: u64,
    pub(super) asked: u64,
    pub(super) skipped: u64,
    pub(super) chosen: u64,
    pub(super) chosen_big: u64,
    pub(super) refused: u64,
    pub(super) passed_max: u64,
    pub(super) dying: u64,
}

impl Stats {
    /// Reads the module's parameter `stats`: lines of a name and a number.
    pub(super) fn read(text: &str) -> Option<Self> {
        let counts = text.lines().map(|line| {
            let (name, count) = line.split_once(' ')?;
            Some((name.to_owned(), count.parse::<u64>().ok()?.into()))
        });
        let counts = counts.collect::<Option<serde_json::Map<_, _>>>()?;
        serde_json::from_value(counts.into()).ok()
    }

    /// What happened after `earlier`.
    pub(super) fn since(&self, earlier: &Self) -> Self {
        Self {
            slow_paths: self.slow_paths - earlier.slow_paths,
            waits: self.waits - earlier.waits,
            asked: self.asked - earlier.asked,
            chosen: self.chosen - earlier.chosen,
            chosen_big: self.chosen_big - earlier.chosen_big,
            ..Self::default()
        }
    }
}
