//! Which figures a machine can have. Anybody may write a profile, so figures that pass here must neither overflow a
//! time nor keep a run from ending.

use super::{Profile, ProfileError};

/// The maximal number of hardware threads of a machine.
const MANY_CPUS: u64 = 128;

/// The least and the most that the figure may be, by the last word of its path.
fn limits(name: &str) -> (f64, f64) {
    match name {
        "cores" | "smt" => (1.0, 128.0),
        "buckets" => (1.0, 1_048_576.0),
        "domain" => (0.0, 1023.0),
        "occupancy" | "jitter" | "up_to" | "over_glibc" | "over_all" => (0.0, 1.0),
        "smt_speed" => (0.001, 1.0),
        "ghz" | "compute" | "latency" | "overlap" => (0.001, 1000.0),
        // Every loop around a lock takes at least this long.
        "atomic_ns" => (0.1, 1e6),
        "latency_ns" => (0.001, 1e6),
        // Intervals between events.
        "slice_ns" | "noise_every_ns" => (1000.0, 1e10),
        "deep_after_ns" | "wakeup_granularity_ns" | "back_to_back_ns" => (0.0, 1e10),
        // Durations of operations, weights, watts.
        _ => (0.0, 1e6),
    }
}

fn wrong(path: &str, value: impl ToString, why: impl Into<String>) -> Result<(), ProfileError> {
    Err(ProfileError::Value { path: path.into(), value: value.to_string(), why: why.into() })
}

impl Profile {
    /// Hardware threads in all, however many.
    pub(super) fn hardware_threads(&self) -> u64 {
        let smt = |class: &str| self.class_named(class).map_or(1, |class| class.smt);
        let of = |(cores, smt): (u32, u32)| u64::from(cores) * u64::from(smt);
        self.cluster.iter().map(|c| of((c.cores, smt(&c.class)))).fold(0, u64::saturating_add)
    }

    pub(super) fn check(&self) -> Result<(), ProfileError> {
        self.check_words()?;
        self.check_shape()?;
        for (path, value) in self.figures() {
            check_figure(&path, value)?;
        }
        let kernel = &self.kernel;
        let every = kernel.noise_every_ns;
        if every > 0.0 && every < 2.0 * kernel.noise_ns {
            return wrong("kernel.noise_every_ns", every, "must be 0, or at least twice noise_ns");
        }
        if kernel.slice_ns < 2.0 * kernel.switch_ns {
            return wrong("kernel.slice_ns", kernel.slice_ns, "must be at least twice switch_ns");
        }
        Ok(())
    }

    /// Words that are printed must have no control characters, which a terminal would obey.
    fn check_words(&self) -> Result<(), ProfileError> {
        let classes = self.class.iter().map(|class| ("class.name", &class.name));
        let clusters = self.cluster.iter().map(|cluster| ("cluster.class", &cluster.class));
        let sources = self.provenance.iter().flat_map(|(path, from)| {
            [("provenance", path), ("provenance.source", &from.source)]
                .into_iter()
                .chain(from.targets.iter().map(|target| ("provenance.targets", target)))
        });
        let own = [("name", &self.name), ("title", &self.title)];
        for (path, word) in own.into_iter().chain(classes).chain(clusters).chain(sources) {
            let shown = || format!("'{}'", word.escape_default());
            if word.chars().any(char::is_control) {
                return wrong(path, shown(), "a control character is in it");
            }
            if word.trim().is_empty() && matches!(path, "name" | "class.name") {
                return wrong(path, shown(), "a name is wanted");
            }
        }
        for (number, class) in self.class.iter().enumerate() {
            if class.name.contains('.') {
                let why = "no '.' in a class's name: it is part of paths, class.NAME.nop_ns";
                return wrong("class.name", format!("'{}'", class.name), why);
            }
            if self.class[..number].iter().any(|other| other.name == class.name) {
                return wrong("class.name", format!("'{}'", class.name), "two classes have it");
            }
        }
        Ok(())
    }

    fn check_shape(&self) -> Result<(), ProfileError> {
        if self.class.is_empty() || self.cluster.is_empty() {
            return wrong("class", "[]", "a machine has at least one class and one cluster");
        }
        if self.class.len() as u64 > MANY_CPUS {
            return wrong("class", self.class.len(), format!("at most {MANY_CPUS} classes"));
        }
        for cluster in &self.cluster {
            if self.class_named(&cluster.class).is_none() {
                return wrong("cluster.class", &cluster.class, "no such class");
            }
            if cluster.cores == 0 {
                return wrong("cluster.cores", 0, "at least one");
            }
        }
        if self.hardware_threads() > MANY_CPUS {
            let why = format!("at most {MANY_CPUS} hardware threads");
            return wrong("cluster.cores", self.hardware_threads(), why);
        }
        let rows = &self.memory.latency_ns;
        let wanted = self.cluster.len();
        if rows.len() != wanted || rows.iter().any(|row| row.len() != wanted) {
            let shown = format!("{} rows", rows.len());
            return wrong("memory.latency_ns", shown, "one row and one column for each cluster");
        }
        Ok(())
    }
}

fn check_figure(path: &str, value: f64) -> Result<(), ProfileError> {
    if !value.is_finite() || value < 0.0 {
        return wrong(path, value, "not a figure that can be");
    }
    let name = path.rsplit('.').next().unwrap_or(path);
    let (least, most) = limits(name);
    if value > most {
        return wrong(path, value, format!("must be at most {most}"));
    }
    if value < least && !(name == "noise_every_ns" && value == 0.0) {
        return wrong(path, value, format!("must be at least {least}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::BUILTIN;
    use super::*;
    use crate::{LockSpec, Placement, Run, workload};
    use std::collections::BTreeMap;
    use std::sync::Arc;

    fn changed(changes: &[(&str, &str)]) -> String {
        let mut text = BUILTIN[0].1.to_owned();
        for (old, new) in changes {
            assert!(text.contains(old), "{old}");
            text = text.replacen(old, new, 1);
        }
        text
    }

    #[test]
    fn hostile_profiles_are_refused_with_figure_value_and_reason() {
        let (cores, smt) = ("cores = 4", "compute = 1.0");
        let domain = |number| format!("cores = 4\ndomain = {number}");
        for (old, new, says) in [
            (cores, domain(65535), "cluster.0.domain = 65535: must be at most 1023"),
            ("buckets = 2048", "buckets = 4294967295".into(), "kernel.buckets = 4294967295: "),
            ("buckets = 2048", "buckets = 0".into(), "kernel.buckets = 0: must be at least 1"),
            (smt, "compute = 1.0\nsmt = 0".into(), "class.big.smt = 0: must be at least 1"),
            (smt, "compute = 1.0\nsmt = 4000000000".into(), "cluster.cores = 16000000004: "),
            ("slice_ns = 3000000.0", "slice_ns = 1e-9".into(), "kernel.slice_ns = 0.000000001: "),
            ("slice_ns = 3000000.0", "slice_ns = 2000.0".into(), "at least twice switch_ns"),
            ("noise_every_ns = 500000.0", "noise_every_ns = 0.001".into(), "must be at least 1000"),
            ("noise_every_ns = 500000.0", "noise_every_ns = 1e3".into(), "at least twice noise_ns"),
            ("load_ns = 1.0", "load_ns = 1e300".into(), "class.big.load_ns = 1000000000"),
            ("load_ns = 1.0", "load_ns = nan".into(), "class.big.load_ns = NaN: "),
            ("atomic_ns = 3.0", "atomic_ns = 0.0".into(), "class.big.atomic_ns = 0: "),
            ("compute = 3.75", "compute = 1e9".into(), "class.little.compute = 1000000000: "),
            ("latency = 1.0", "latency = 1e9".into(), "class.big.latency = 1000000000: "),
            ("[[40.0", "[[1e300".into(), "memory.latency_ns = 1000000000"),
            ("name = \"little\"", "name = \"big\"".into(), "class.name = 'big': two classes"),
            ("name = \"little\"", "name = \" \"".into(), "class.name = ' ': a name is wanted"),
            ("name = \"little\"", "name = \"a.b\"".into(), "class.name = 'a.b': no '.'"),
            ("name = \"m1\"", "name = \"\"".into(), "name = '': a name is wanted"),
            ("name = \"m1\"", "name = \"\\u001b[31m\"".into(), "name = '\\u{1b}[31m': a control"),
            ("title = \"", "title = \"a\\nb".into(), "title = 'a\\nb"),
            ("class = \"big\"", "class = \"\\u001b\"".into(), "cluster.class = '\\u{1b}': "),
            ("source = \"", "source = \"\\r".into(), "provenance.source = '\\r"),
        ] {
            let why = Profile::parse(&changed(&[(old, &new)])).unwrap_err().to_string();
            assert!(why.contains(says), "{new}: {why}");
            assert!(!why.contains(char::is_control), "{why:?}");
        }
        // A product that a u32 can't hold: in 32 bits, 2 x 2147483649 = 2.
        let wraps = [("cores = 4", "cores = 2147483649"), (smt, "compute = 1.0\nsmt = 2")];
        let why = Profile::parse(&changed(&wraps)).unwrap_err().to_string();
        assert!(why.contains("cluster.cores = 4294967302: at most 128"), "{why}");
    }

    #[test]
    fn a_machine_at_the_limits_runs_and_comes_to_an_end() {
        let text = changed(&[
            ("cores = 4", "cores = 4\ndomain = 1023"),
            ("slice_ns = 3000000.0", "slice_ns = 10000.0"),
            ("noise_every_ns = 500000.0", "noise_every_ns = 10000.0"),
            ("cold_ns = 100.0", "cold_ns = 1e5"),
        ]);
        let run = Run {
            profile: Arc::new(Profile::parse(&text).unwrap()),
            lock: LockSpec::parse("mcs").unwrap(),
            workload: workload::find("sections").unwrap(),
            params: BTreeMap::new(),
            threads: 16,
            placement: Placement::Pinned,
            seed: 1,
            warmup_ns: 0,
            duration_ns: 5_000_000,
            samples: false,
            timeline: None,
            transfers: false,
        };
        let outcome = run.outcome();
        assert_eq!(outcome.violation, None);
        assert!(outcome.operations > 0);
    }
}
