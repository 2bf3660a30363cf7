//! How long each step took when it last ran here: a file in the target folder, updated as steps end.

use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The time of each step's last run on this machine, in seconds.
#[derive(Default)]
pub(crate) struct Times(BTreeMap<String, u64>);

impl Times {
    /// Reads `file`. If it is missing, or a line is invalid, nothing has run yet.
    pub(crate) fn read(file: &Path) -> Self {
        let text = fs::read_to_string(file).unwrap_or_default();
        let line = |line: &str| {
            let (name, seconds) = line.split_once('\t')?;
            Some((name.to_owned(), seconds.parse().ok()?))
        };
        Self(text.lines().filter_map(line).collect())
    }

    /// Records a step that ended, and keeps the other entries.
    pub(crate) fn note(file: &Path, name: &str, seconds: u64) -> Result<()> {
        let mut times = Self::read(file);
        times.0.insert(name.to_owned(), seconds);
        let lines = times.0.iter().map(|(name, seconds)| format!("{name}\t{seconds}\n"));
        fs::write(file, lines.collect::<String>())
            .with_context(|| format!("cannot write '{}'", file.display()))
    }

    /// How long this step took, in seconds.
    pub(crate) fn of(&self, name: &str) -> Option<u64> {
        self.0.get(name).copied()
    }
}

/// A short form of a time: `42 s`, `12 min`, `3.4 h`.
pub(crate) fn short(seconds: u64) -> String {
    match seconds {
        0..100 => format!("{seconds} s"),
        100..6000 => format!("{} min", (seconds + 30) / 60),
        _ => {
            let tenths = (seconds + 180) / 360;
            format!("{}.{} h", tenths / 10, tenths % 10)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_time_of_each_step_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("times.tsv");
        assert_eq!(Times::read(&file).of("build"), None);
        for (name, seconds) in [("build", 300), ("unit", 40), ("build", 7)] {
            Times::note(&file, name, seconds).unwrap();
        }
        let times = Times::read(&file);
        assert_eq!(
            [times.of("build"), times.of("unit"), times.of("cli")],
            [Some(7), Some(40), None]
        );
        fs::write(&file, "build\tx\nno tab\nunit\t3\n").unwrap();
        assert_eq!(
            [Times::read(&file).of("build"), Times::read(&file).of("unit")],
            [None, Some(3)]
        );
    }

    #[test]
    fn times_are_short() {
        for (seconds, said) in [
            (0, "0 s"),
            (99, "99 s"),
            (100, "2 min"),
            (1680, "28 min"),
            (6000, "1.7 h"),
            (7020, "2.0 h"),
        ] {
            assert_eq!(short(seconds), said);
        }
    }
}
