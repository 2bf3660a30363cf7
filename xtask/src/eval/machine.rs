//! The classes of cores: `big:0,little:1x3.75`, as LOCKWRIGHT_EMULATE has them.

use anyhow::{Result, bail, ensure};
use std::path::Path;

/// One class of cores.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Class {
    pub(super) name: String,
    pub(super) cpus: Vec<usize>,
    /// How many times slower it is made; 1: as it is.
    pub(super) factor: f64,
}

/// The cores that a program finds, fastest class first.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    /// As given.
    pub(super) spec: String,
    pub(super) classes: Vec<Class>,
}

impl Machine {
    /// The library reads the text itself, and is stricter; this is what the figures need to know of it.
    pub(super) fn parse(spec: &str) -> Result<Machine> {
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
        Ok(Machine { spec: spec.to_owned(), classes })
    }

    /// Has this machine these CPUs? Better said before an hour of building than after.
    pub(super) fn check_here(&self) -> Result<()> {
        let exists = |cpu: usize| Path::new(&format!("/sys/devices/system/cpu/cpu{cpu}")).exists();
        let mut cpus = self.classes.iter().flat_map(|class| class.cpus.iter().copied());
        match cpus.find(|&cpu| !exists(cpu)) {
            Some(cpu) => bail!("--emulate '{}': this machine has no cpu {cpu}\n{HINT}", self.spec),
            None => Ok(()),
        }
    }

    /// Place among the classes of the one that `cpu` belongs to.
    pub(super) fn class_of(&self, cpu: usize) -> Option<usize> {
        self.classes.iter().position(|class| class.cpus.contains(&cpu))
    }

    /// Is any class made slower than it is?
    pub(super) fn emulated(&self) -> bool {
        self.classes.iter().any(|class| class.factor != 1.0)
    }

    /// What figures from it are called.
    pub(super) fn tag(&self) -> &'static str {
        if self.emulated() { "emulated" } else { "real" }
    }

    /// Variable and value that make the library see this machine.
    pub(super) fn variable(&self) -> (&'static str, &str) {
        let name = if self.emulated() { "LOCKWRIGHT_EMULATE" } else { "LOCKWRIGHT_TOPOLOGY" };
        (name, &self.spec)
    }

    /// The slowest class: the one whose latency is at stake.
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
        let machine = Machine::parse("big:0-1,4,little:2-3x3.75").unwrap();
        assert_eq!(machine.classes[0].cpus, [0, 1, 4]);
        assert_eq!((machine.classes[1].factor, machine.class_of(3)), (3.75, Some(1)));
        assert_eq!((machine.class_of(4), machine.class_of(5)), (Some(0), None));
        assert_eq!((machine.tag(), machine.variable().0), ("emulated", "LOCKWRIGHT_EMULATE"));
        let real = Machine::parse("big:0,little:1").unwrap();
        assert_eq!((real.tag(), real.variable().0), ("real", "LOCKWRIGHT_TOPOLOGY"));
    }

    #[test]
    fn nonsense_is_refused() {
        for spec in ["", "big", "0,1", "big:0", "big:0,little:", "big:1-0,little:2", "a:0,b:1x0.5"]
        {
            assert!(Machine::parse(spec).is_err(), "{spec}");
        }
    }
}
