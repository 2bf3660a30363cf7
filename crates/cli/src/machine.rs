//! What `lockwright calibrate --write` has found out about this machine: `machine.toml` in the user's configuration.
//!
//! Commands read it and pass on what it says, as options of locks. The library in the program reads no file: no program
//! starts later because of it.

use crate::hints::{Failure, cause, warn};
use crate::{launch, output};
use comfy_table::Table;
use lockwright_calibrate::{Calibration, Waits, waits};
use lockwright_energy::Watts;
use lockwright_locks::entry::OptionSpec;
use lockwright_locks::spec::Spec;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::env;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Machine {
    /// The processor that it is of: homes are shared, and programs move.
    pub(crate) cpu: String,
    /// By which instruction waiters pass the time, if a user has written it there: `pause`, `mfence`, ...
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pause: Option<String>,
    /// How long a turn of each takes on the fastest class, ns.
    #[serde(default)]
    pub(crate) pause_ns: BTreeMap<String, f64>,
    /// By class of cores, the fastest first.
    pub(crate) class: Vec<Waits>,
    /// Options that locks have here, unless others are asked for: by lock and key.
    #[serde(default)]
    pub(crate) lock: BTreeMap<String, BTreeMap<String, u32>>,
    /// What the machine draws.
    pub(crate) power: Option<Watts>,
}

/// Where it is: in `$XDG_CONFIG_HOME`, else in `~/.config`.
pub(crate) fn file() -> Result<PathBuf, Failure> {
    let variable = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let config = variable("XDG_CONFIG_HOME").or_else(|| Some(variable("HOME")?.join(".config")));
    config.map(|config| config.join("lockwright/machine.toml")).ok_or_else(|| {
        Failure::new("no place for machine.toml: neither XDG_CONFIG_HOME nor HOME is set")
            .hint("XDG_CONFIG_HOME=~/.config lockwright calibrate --write")
    })
}

impl Machine {
    /// What was measured.
    pub(crate) fn of(calibration: &Calibration) -> Self {
        let class = waits(&calibration.profile);
        // One budget for all: on no class of cores may it end before a sleeper would run.
        let spin = class.iter().map(|class| class.spin_ns).max().unwrap_or(0);
        // What isn't measured was chosen by whoever wrote it there.
        let (pause, mut lock) =
            Self::here().map_or_else(Default::default, |it| (it.pause, it.lock));
        lock.entry("mutexee".to_owned()).or_default().insert("spin".to_owned(), spin);
        Self {
            cpu: lockwright_bench::Machine::here().cpu,
            pause,
            pause_ns: calibration.pauses.iter().cloned().collect(),
            class,
            lock,
            power: lockwright_calibrate::watts(&calibration.profile),
        }
    }

    /// For people.
    pub(crate) fn table(&self) -> Table {
        let mut table = output::table(&["class", "spin", "wait after unlock", "mutex mode"]);
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

    /// How long waiters' turns take, a line.
    pub(crate) fn pauses(&self) -> String {
        let of = |(name, ns): (&String, &f64)| format!("{name} {ns} ns");
        self.pause_ns.iter().map(of).collect::<Vec<_>>().join(", ")
    }

    /// What was found out about the machine that we are on, if anything was. A file that can't be read is one warning.
    pub(crate) fn here() -> Option<Self> {
        static HERE: OnceLock<Option<Machine>> = OnceLock::new();
        HERE.get_or_init(Self::read).clone()
    }

    fn read() -> Option<Self> {
        let file = file().ok()?;
        let shown = file.display();
        let text = match std::fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return None,
            Err(error) => {
                warn(format!("cannot read '{shown}': {}", cause(&error)), format!("rm '{shown}'"));
                return None;
            }
        };
        match toml::from_str::<Self>(&text) {
            Ok(machine) => {
                (machine.cpu == lockwright_bench::Machine::here().cpu).then_some(machine)
            }
            Err(error) => {
                let words = error.message().lines().collect::<Vec<_>>().join(" ");
                warn(format!("'{shown}' is ignored: {words}"), "lockwright calibrate --write");
                None
            }
        }
    }

    /// Writes it, and says where.
    pub(crate) fn write(&self) -> Result<PathBuf, Failure> {
        let file = file()?;
        self.write_to(&file)?;
        Ok(file)
    }

    fn write_to(&self, file: &Path) -> Result<(), Failure> {
        if let Some(dir) = file.parent() {
            std::fs::create_dir_all(dir).map_err(|error| launch::unwritable(file, &error))?;
        }
        // What somebody wrote by hand, and mistyped, isn't lost.
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
        let text = format!("# Written by lockwright calibrate --write; docs/calibrate.md\n{text}");
        std::fs::write(file, text).map_err(|error| launch::unwritable(file, &error))
    }

    /// A lock with this machine's options, as far as the lock has them and `spec` does not say otherwise.
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

/// A lock with the options that it has on this machine.
pub(crate) fn tuned(spec: &str) -> String {
    Machine::here().map_or_else(|| spec.to_owned(), |machine| machine.tuned(spec))
}

/// What this machine draws, should nothing measure it: by its file, else assumed.
pub(crate) fn watts() -> Watts {
    Machine::here().and_then(|machine| machine.power).unwrap_or_else(Watts::assumed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_measured_is_stored_and_read_back() {
        let calibration = Calibration {
            profile: lockwright_sim::profile::builtin("m1").unwrap(),
            figures: Vec::new(),
            regimes: Vec::new(),
            regime: None,
            notes: Vec::new(),
            pauses: vec![("mfence".to_owned(), 12.5)],
        };
        let machine = Machine::of(&calibration);
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
        assert_eq!(toml::from_str::<Machine>(&text).unwrap(), machine);

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
        let machine = Machine {
            cpu: "x".into(),
            pause: None,
            pause_ns: BTreeMap::new(),
            class: Vec::new(),
            lock: [("fifo".to_owned(), options.into())].into(),
            power: None,
        };
        // It has no wings, and its `bypass` ends below.
        assert_eq!(machine.tuned("fifo"), "fifo:spin=6300");
        assert_eq!(machine.tuned("fifo:bypass=7"), "fifo:bypass=7,spin=6300");
        assert_eq!(machine.tuned("fifo:spin=1"), "fifo:spin=1");
        for other in ["barging", "glibc", "nonsense"] {
            assert_eq!(machine.tuned(other), other);
        }
    }
}
