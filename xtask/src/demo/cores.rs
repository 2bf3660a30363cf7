//! An emulated big and little core: the library slows down computation on one of this machine's equal cores.

use anyhow::{Context, Result};
use std::fs;

/// The slowdown of the little core: that of LibASL's machine, an Apple M1, according to its paper.
pub(super) const FACTOR: &str = "3.75";

/// The two cores. The program pins its threads to them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cores {
    /// In the form of LOCKWRIGHT_EMULATE. Every CPU except the little one is big.
    pub(super) spec: String,
    /// The little core.
    pub(super) little: usize,
}

impl Cores {
    /// The first two CPUs that we may use; `None`: there is only one.
    pub(super) fn here() -> Result<Option<Cores>> {
        let read =
            |path: &str| fs::read_to_string(path).with_context(|| format!("cannot read '{path}'"));
        let status = read("/proc/self/status")?;
        let usable = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        let online = read("/sys/devices/system/cpu/online")?;
        Ok(Cores::of(&numbers(usable.context("no 'Cpus_allowed_list'")?), &numbers(&online)))
    }

    fn of(usable: &[usize], online: &[usize]) -> Option<Cores> {
        let mut both = usable.iter().filter(|cpu| online.contains(cpu));
        let (_, &little) = (both.next()?, both.next()?);
        let big = online.iter().filter(|&&cpu| cpu != little).map(usize::to_string);
        let big = big.collect::<Vec<_>>().join(",");
        Some(Cores { spec: format!("big:{big},little:{little}x{FACTOR}"), little })
    }
}

/// Parses a list in the kernel's format: `0-2,8`.
fn numbers(list: &str) -> Vec<usize> {
    let range = |piece: &str| {
        let (first, last) = piece.split_once('-').unwrap_or((piece, piece));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    list.trim().split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_usable_cpu_is_little_and_all_others_are_big() {
        assert_eq!(numbers(" 0-2,8\n"), [0, 1, 2, 8]);
        let cores = Cores::of(&[0, 1], &[0, 1]).unwrap();
        assert_eq!((&*cores.spec, cores.little), ("big:0,little:1x3.75", 1));
        let bound = Cores::of(&[3, 8], &[0, 1, 2, 3, 8]).unwrap();
        assert_eq!((&*bound.spec, bound.little), ("big:0,1,2,3,little:8x3.75", 8));
        assert_eq!(Cores::of(&[1], &[0, 1]), None);
    }
}
