//! What `lockwright sim --calibrate --write` measured on this machine: `machine.toml` in the user's configuration.
//!
//! Commands read the file and pass its contents on as options of locks. The library itself reads no file, so the file
//! doesn't slow the start of programs.

use crate::hints::{Failure, cause, warn};
use crate::{launch, output};
use lockwright_calibrate::{Calibration, Delegation, Waits, waits};
use lockwright_energy::Watts;
use lockwright_locks::entry::OptionSpec;
use lockwright_locks::spec::Spec;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::env;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The contents of the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MachineFile {
    /// The processor that was measured: home folders may be shared between machines, and programs move.
    pub(crate) cpu: String,
    /// The instruction with which waiters pause, if a user wrote one into the file: `pause`, `mfence`, ...
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pause: Option<String>,
    /// How long each such pause takes on the fastest class, ns.
    #[serde(default)]
    pub(crate) pause_ns: BTreeMap<String, f64>,
    /// Per class of cores, the fastest first.
    pub(crate) class: Vec<Waits>,
    /// Options of locks on this machine, unless the user gives others: by lock and key.
    #[serde(default)]
    pub(crate) lock: BTreeMap<String, BTreeMap<String, u32>>,
    /// The power that the machine draws.
    pub(crate) power: Option<Watts>,
    /// When delegation beats locks; `None`: not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) delegation: Option<Delegation>,
}

/// The file's path: in `$XDG_CONFIG_HOME`, or else in `~/.config`.
pub(crate) fn file() -> Result<PathBuf, Failure> {
    let variable = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let config = variable("XDG_CONFIG_HOME").or_else(|| Some(variable("HOME")?.join(".config")));
    config.map(|config| config.join("lockwright/machine.toml")).ok_or_else(|| {
        Failure::new("no place for machine.toml: neither XDG_CONFIG_HOME nor HOME is set")
            .hint("XDG_CONFIG_HOME=~/.config lockwright sim --calibrate --write")
    })
}

/// What to do about a file in the configuration, or a folder, that can't be read or written.
pub(crate) fn unreadable(path: &Path, error: &std::io::Error) -> String {
    let shown = path.display();
    match error.kind() {
        // HOME is inherited from another user, as under `sudo -u`.
        ErrorKind::PermissionDenied => {
            "XDG_CONFIG_HOME=DIR lockwright ..., with a folder that you may read: HOME or XDG_CONFIG_HOME is another user's".to_owned()
        }
        ErrorKind::InvalidData => format!("rm '{shown}'"),
        _ => format!("ls -ld '{shown}' \"$(dirname '{shown}')\""),
    }
}

impl MachineFile {
    /// The file's contents from a calibration.
    pub(crate) fn of(calibration: &Calibration) -> Self {
        let class = waits(&calibration.profile);
        // All classes share one budget. On no class may it end before a sleeper could run.
        let spin = class.iter().map(|class| class.spin_ns).max().unwrap_or(0);
        // Keep the values that are not measured: a user wrote them.
        let (pause, mut lock, known) =
            Self::here().map_or_else(Default::default, |it| (it.pause, it.lock, it.delegation));
        lock.entry("mutexee".to_owned()).or_default().insert("spin".to_owned(), spin);
        Self {
            cpu: lockwright_bench::Machine::here().cpu,
            pause,
            pause_ns: calibration.pauses.iter().cloned().collect(),
            class,
            lock,
            power: lockwright_calibrate::watts(&calibration.profile),
            delegation: calibration.profile.delegation.clone().or(known), // --quick leaves it out
        }
    }

    /// A table for people.
    pub(crate) fn table(&self) -> output::Table {
        let mut table = output::table(&["class", "spin", "wait after unlock", "mutex mode"])
            .all_by("--format json");
        for class in &self.class {
            table.add_row([
                class.name.clone(),
                format!("{} ns", class.spin_ns),
                format!("{} ns", class.wait_ns),
                format!("{} ns, {} ns", class.mutex_spin_ns, class.mutex_wait_ns),
            ]);
        }
        table
    }

    /// One line with the duration of each pause instruction.
    pub(crate) fn pauses(&self) -> String {
        let of = |(name, ns): (&String, &f64)| format!("{name} {ns} ns");
        self.pause_ns.iter().map(of).collect::<Vec<_>>().join(", ")
    }

    /// The data for this machine, if the file has any. A file that can't be read causes one warning.
    pub(crate) fn here() -> Option<Self> {
        static HERE: OnceLock<Option<MachineFile>> = OnceLock::new();
        HERE.get_or_init(Self::read).clone()
    }

    fn read() -> Option<Self> {
        let file = file().ok()?;
        let shown = file.display();
        let text = match lockwright_files::read_text(&file, 1 << 20) {
            Ok(text) => text,
            // HOME may be /dev/null.
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                return None;
            }
            Err(error) => {
                warn(
                    format!("cannot read '{shown}': {}", cause(&error)),
                    unreadable(&file, &error),
                );
                return None;
            }
        };
        match toml::from_str::<Self>(&text) {
            Ok(machine) => {
                (machine.cpu == lockwright_bench::Machine::here().cpu).then_some(machine)
            }
            Err(error) => {
                let words = error.message().lines().collect::<Vec<_>>().join(" ");
                warn(
                    format!("'{shown}' is ignored: {words}"),
                    "lockwright sim --calibrate --write",
                );
                None
            }
        }
    }

    /// Writes the file, and returns its path.
    pub(crate) fn write(&self) -> Result<PathBuf, Failure> {
        let file = file()?;
        self.write_to(&file)?;
        Ok(file)
    }

    fn write_to(&self, file: &Path) -> Result<(), Failure> {
        if let Some(dir) = file.parent() {
            std::fs::create_dir_all(dir).map_err(|error| launch::unwritable(file, &error))?;
        }
        // Keep a copy of a file that doesn't parse: a user may have edited it by hand.
        let is_broken = |text: String| toml::from_str::<Self>(&text).is_err();
        if std::fs::read_to_string(file).is_ok_and(is_broken) {
            let old = file.with_extension("toml.old");
            std::fs::rename(file, &old).map_err(|error| launch::unwritable(&old, &error))?;
            let (old, new) = (old.display(), file.display());
            warn(
                format!("the file that couldn't be read is now '{old}'"),
                format!("diff '{old}' '{new}'"),
            );
        }
        let text = toml::to_string(self).expect("a machine has no maps with keys that TOML lacks");
        let text =
            format!("# Written by lockwright sim --calibrate --write; docs/calibrate.md\n{text}");
        lockwright_files::write(file, text).map_err(|error| launch::unwritable(file, &error))
    }

    /// Adds this machine's options to a lock, as far as the lock has them and `spec` doesn't set them.
    pub(crate) fn tuned(&self, spec: &str) -> String {
        let Ok(Spec { name, entry: Some(entry), .. }) = Spec::parse(spec) else {
            return spec.to_owned();
        };
        let said = |key: &str| {
            let options = spec.split([':', ',']).skip(1);
            options.filter_map(|option| option.split_once('=')).any(|(known, _)| known == key)
        };
        let fits = |(key, value): &(&String, &u32)| {
            let is = |option: &&OptionSpec| option.key == key.as_str();
            let option = entry.options.iter().find(is);
            option.is_some_and(|option| (option.min..=option.max).contains(value)) && !said(key)
        };
        let own = self.lock.get(name).into_iter().flatten().filter(fits);
        own.fold(spec.to_owned(), |spec, (key, value)| {
            let sign = if spec.contains(':') { ',' } else { ':' };
            format!("{spec}{sign}{key}={value}")
        })
    }
}

/// The lock with the options for this machine.
pub(crate) fn tuned(spec: &str) -> String {
    MachineFile::here().map_or_else(|| spec.to_owned(), |machine| machine.tuned(spec))
}

/// The power that this machine draws, for use when nothing measures it: from the file, else assumed.
pub(crate) fn watts() -> Watts {
    MachineFile::here().and_then(|machine| machine.power).unwrap_or_else(Watts::assumed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockwright_sim::profile::{self, Profile};

    #[test]
    fn what_another_user_owns_is_not_to_be_removed() {
        let path = Path::new("/home/eve/.config/lockwright/machine.toml");
        let hint = |kind: ErrorKind| unreadable(path, &kind.into());
        assert!(hint(ErrorKind::PermissionDenied).starts_with("XDG_CONFIG_HOME=DIR lockwright"));
        assert!(hint(ErrorKind::IsADirectory).starts_with("ls -ld '/home/eve/"));
        assert!(hint(ErrorKind::InvalidData).starts_with("rm '/home/eve/"));
    }

    #[test]
    fn what_was_measured_is_stored_and_read_back() {
        let delegation =
            Delegation { threads: 8, lines: 1, up_to: 0.9, over_glibc: Some(0.25), over_all: None };
        let calibration = Calibration {
            profile: Profile { delegation: Some(delegation), ..profile::builtin("m1").unwrap() },
            figures: Vec::new(),
            regimes: Vec::new(),
            regime: None,
            notes: Vec::new(),
            pauses: vec![("mfence".to_owned(), 12.5)],
            delegation: Vec::new(),
        };
        let machine = MachineFile::of(&calibration);
        let [big, little] = &machine.class[..] else { panic!("two classes") };
        assert_eq!(machine.pause_ns["mfence"].to_bits(), 12.5_f64.to_bits());
        assert_eq!(machine.lock["mutexee"]["spin"], little.spin_ns.max(big.spin_ns));
        let table = output::plain(&machine.table());
        assert!(
            table.contains("little") && table.contains(&format!("{} ns", big.spin_ns)),
            "{table}"
        );
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("lockwright/machine.toml");
        machine.write_to(&file).map_err(|failure| failure.to_string()).unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        assert_eq!(toml::from_str::<MachineFile>(&text).unwrap(), machine);
        assert_eq!(machine.delegation.as_ref().and_then(|known| known.over_glibc), Some(0.25));

        let mistyped = "pause = mfence";
        std::fs::write(&file, mistyped).unwrap();
        machine.write_to(&file).map_err(|failure| failure.to_string()).unwrap();
        let old = std::fs::read_to_string(file.with_extension("toml.old")).unwrap();
        assert_eq!(old, mistyped);
    }

    #[test]
    fn locks_get_the_machines_options_where_nothing_else_is_asked_for() {
        let options = [("spin", 6300), ("bypass", 100_000), ("wings", 2)];
        let options = options.map(|(key, value)| (key.to_owned(), value));
        let machine = MachineFile {
            cpu: "x".into(),
            pause: None,
            pause_ns: BTreeMap::new(),
            class: Vec::new(),
            lock: [("fifo".to_owned(), options.into())].into(),
            power: None,
            delegation: None,
        };
        // The lock has no `wings`, and its `bypass` has a smaller maximum.
        assert_eq!(machine.tuned("fifo"), "fifo:spin=6300");
        assert_eq!(machine.tuned("fifo:bypass=7"), "fifo:bypass=7,spin=6300");
        assert_eq!(machine.tuned("fifo:spin=1"), "fifo:spin=1");
        for other in ["barging", "glibc", "nonsense"] {
            assert_eq!(machine.tuned(other), other);
        }
    }
}
