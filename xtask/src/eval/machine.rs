//! The classes of cores, in the form of LOCKWRIGHT_EMULATE: `big:0,little:1x3.75`.

use anyhow::{Result, bail, ensure};
use std::path::Path;

/// One class of cores.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Class {
    pub(super) name: String,
    pub(super) cpus: Vec<usize>,
    /// The factor by which it is slowed down; 1: not at all.
    pub(super) factor: f64,
}

/// The cores that a program sees, fastest class first.
#[derive(Clone, Debug)]
pub(super) struct Cores {
    /// The original text.
    pub(super) spec: String,
    pub(super) classes: Vec<Class>,
}

impl Cores {
    /// The library parses the text itself, and more strictly. This reads what the figures need.
    pub(super) fn parse(spec: &str) -> Result<Cores> {
        let mut classes: Vec<Class> = Vec::new();
        for piece in spec.split(',') {
            let cpus = match piece.split_once(':') {
                Some((name, cpus)) => {
                    ensure!(!name.is_empty(), "--emulate '{spec}': a class has no name\n{HINT}");
                    let name = name.to_owned();
                    classes.push(Class { name, cpus: Vec::new(), factor: 1.0 });
                    cpus
                }
                None => piece,
            };
            let Some(class) = classes.last_mut() else {
                bail!("--emulate '{spec}': no class before '{piece}'\n{HINT}");
            };
            let cpus = match cpus.split_once('x') {
                Some((cpus, factor)) => {
                    class.factor = factor.parse().unwrap_or(0.0);
                    ensure!(
                        (1.0..=100.0).contains(&class.factor),
                        "--emulate '{spec}': factor '{factor}': must be from 1 to 100\n{HINT}"
                    );
                    cpus
                }
                None => cpus,
            };
            let (first, last) = cpus.split_once('-').unwrap_or((cpus, cpus));
            match (first.parse::<usize>(), last.parse::<usize>()) {
                (Ok(first), Ok(last)) if first <= last && last < 4096 => {
                    class.cpus.extend(first..=last);
                }
                _ => bail!("--emulate '{spec}': '{cpus}' is no CPU's number, nor a range\n{HINT}"),
            }
        }
        ensure!(classes.len() > 1, "--emulate '{spec}': one class only\n{HINT}");
        Ok(Cores { spec: spec.to_owned(), classes })
    }

    /// Does this machine have these CPUs? It is better to know before building for an hour.
    pub(super) fn check_here(&self) -> Result<()> {
        let exists = |cpu: usize| Path::new(&format!("/sys/devices/system/cpu/cpu{cpu}")).exists();
        let mut cpus = self.classes.iter().flat_map(|class| class.cpus.iter().copied());
        match cpus.find(|&cpu| !exists(cpu)) {
            Some(cpu) => bail!("--emulate '{}': this machine has no cpu {cpu}\n{HINT}", self.spec),
            None => Ok(()),
        }
    }

    /// The index of the class of `cpu`.
    pub(super) fn class_of(&self, cpu: usize) -> Option<usize> {
        self.classes.iter().position(|class| class.cpus.contains(&cpu))
    }

    /// Is any class slowed down?
    pub(super) fn emulated(&self) -> bool {
        self.classes.iter().any(|class| class.factor != 1.0)
    }

    /// The origin of figures from it.
    pub(super) fn tag(&self) -> &'static str {
        if self.emulated() { "emulated" } else { "real" }
    }

    /// The variable, with its value, that makes the library see this machine.
    pub(super) fn variable(&self) -> (&'static str, &str) {
        let name = if self.emulated() { "LOCKWRIGHT_EMULATE" } else { "LOCKWRIGHT_TOPOLOGY" };
        (name, &self.spec)
    }

    /// The slowest class, whose latency matters.
    pub(super) fn little(&self) -> usize {
        self.classes.len() - 1
    }
}

const HINT: &str = "hint: --emulate big:0,little:1x3.75";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_have_their_cpus_and_factors() {
        let machine = Cores::parse("big:0-1,4,little:2-3x3.75").unwrap();
        assert_eq!(machine.classes[0].cpus, [0, 1, 4]);
        assert_eq!((machine.classes[1].factor, machine.class_of(3)), (3.75, Some(1)));
        assert_eq!((machine.class_of(4), machine.class_of(5)), (Some(0), None));
        assert_eq!((machine.tag(), machine.variable().0), ("emulated", "LOCKWRIGHT_EMULATE"));
        let real = Cores::parse("big:0,little:1").unwrap();
        assert_eq!((real.tag(), real.variable().0), ("real", "LOCKWRIGHT_TOPOLOGY"));
    }

    #[test]
    fn nonsense_is_refused() {
        for spec in ["", "big", "0,1", "big:0", "big:0,little:", "big:1-0,little:2", "a:0,b:1x0.5"]
        {
            assert!(Cores::parse(spec).is_err(), "{spec}");
        }
    }
}
