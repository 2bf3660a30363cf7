//! Sets of CPUs, and the kernel's notation for them: `0-3,8`.

use super::cpu_number;
use crate::file::{Exhausted, Path};
use crate::kernel::system_call;
use crate::place::CPUS;

/// A set of CPUs (or of anything else that has small numbers).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuSet([u64; CPUS / 64]);

impl CpuSet {
    /// The empty set.
    pub const EMPTY: Self = Self([0; CPUS / 64]);

    /// The set of these numbers; numbers beyond the table are left out.
    pub fn of(numbers: &[usize]) -> Self {
        let mut set = Self::EMPTY;
        for &number in numbers {
            set.insert(number);
        }
        set
    }

    /// Adds a number; ignores numbers beyond the table.
    pub fn insert(&mut self, number: usize) {
        if let Some(word) = self.0.get_mut(number / 64) {
            *word |= 1 << (number % 64);
        }
    }

    /// Does the set contain this number?
    pub fn has(&self, number: usize) -> bool {
        self.0.get(number / 64).is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    /// Is the set empty?
    pub fn is_empty(&self) -> bool {
        *self == Self::EMPTY
    }

    /// The numbers, in rising order.
    pub fn iter(&self) -> impl Iterator<Item = usize> {
        (0..CPUS).filter(|&number| self.has(number))
    }

    /// Parses the kernel's notation; `None` if it is something else. CPUs beyond the table are left out.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let mut set = Self::EMPTY;
        set.become_parsed(text)?;
        Some(set)
    }

    /// Becomes what the kernel's notation says; `None`: empty, since it is something else. Copies of sets would fill a small
    /// stack.
    fn become_parsed(&mut self, text: &[u8]) -> Option<()> {
        *self = Self::EMPTY;
        let add = |range: &[u8]| {
            let mut ends = range.splitn(2, |&byte| byte == b'-');
            let first = crate::file::number(ends.next()?)?;
            let last = ends.next().map_or(Some(first), crate::file::number)?;
            for number in first as usize..=(last as usize).min(CPUS - 1) {
                self.insert(number);
            }
            (first <= last).then_some(())
        };
        let text = text.trim_ascii();
        let parsed = if text.is_empty() {
            Some(())
        } else {
            text.split(|&byte| byte == b',').try_for_each(add)
        };
        if parsed.is_none() {
            *self = Self::EMPTY;
        }
        parsed
    }

    /// Becomes what a file in the kernel's notation says, using `text` as a buffer; `false`: empty, since the file says something
    /// else, or doesn't exist.
    #[inline(never)]
    pub(crate) fn read(&mut self, path: &Path, text: &mut [u8]) -> Result<bool, Exhausted> {
        *self = Self::EMPTY;
        Ok(path.read(text)?.and_then(|text| self.become_parsed(text)).is_some())
    }

    /// The calling thread's affinity mask.
    pub(super) fn affinity() -> Option<Self> {
        let mut set = Self::EMPTY;
        // SAFETY: the kernel writes at most the size that it is told.
        let written = unsafe {
            system_call!(libc::SYS_sched_getaffinity, 0, size_of_val(&set.0), set.0.as_mut_ptr())
        };
        (written > 0).then_some(set)
    }

    /// Makes this the calling thread's affinity mask.
    pub(super) fn pin(&self) -> bool {
        // SAFETY: the kernel reads the size that it is told.
        unsafe { libc::sched_setaffinity(0, size_of_val(&self.0), self.0.as_ptr().cast()) == 0 }
    }
}

/// `3` or `3-5`, both ends within the table.
pub(super) fn range(text: &[u8]) -> Option<(usize, usize)> {
    let mut ends = text.splitn(2, |&byte| byte == b'-');
    let first = cpu_number(ends.next()?)?;
    let last = ends.next().map_or(Some(first), cpu_number)?;
    Some((first, last))
}
