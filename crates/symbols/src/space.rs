//! A process's memory map.

use crate::thread;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::{fs, io};

/// A piece of a file, or of memory without a file, in a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mapping {
    /// Its first address.
    pub start: u64,
    /// The first address after it.
    pub end: u64,
    /// Where it begins in the file, bytes.
    pub offset: u64,
    /// The file as the process sees it, or `[heap]` and the like; empty: none.
    pub path: PathBuf,
    /// Is it executable?
    pub is_code: bool,
    /// May the process write there?
    #[serde(default)]
    pub is_writable: bool,
    /// The file was removed, or replaced, while the process used it.
    #[serde(default)]
    pub is_deleted: bool,
    /// The file's build id in hexadecimal, if it was noted. If the file now has another id, it isn't used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build_id: Option<String>,
}

impl Mapping {
    /// Is it a mapping of a file?
    pub fn is_file(&self) -> bool {
        self.path.is_absolute()
    }

    pub(crate) fn contains(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }
}

/// All mappings of a process, or of a thread's process, by address.
///
/// # Errors
///
/// There is no such process, or we may not look at its memory.
pub fn mappings(pid: libc::pid_t) -> io::Result<Vec<Mapping>> {
    Ok(mappings_in(&proc_text(format!("/proc/{pid}/maps"))?))
}

/// A text under `/proc`. It may contain the name of a process or a thread, which is any bytes: what isn't UTF-8 is replaced.
///
/// # Errors
///
/// The file can't be read.
pub fn proc_text(path: impl AsRef<Path>) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&fs::read(path)?).into_owned())
}

/// The mappings in a text like `/proc/PID/maps`. Other lines are left out.
pub fn mappings_in(text: &str) -> Vec<Mapping> {
    text.lines().filter_map(parse).collect()
}

/// `7f..-7f.. r-xp 00026000 08:01 1234    /usr/lib/a name with blanks.so (deleted)`
fn parse(line: &str) -> Option<Mapping> {
    let mut words = line.splitn(6, ' ');
    let (start, end) = words.next()?.split_once('-')?;
    let rights = words.next()?;
    let offset = words.next()?;
    let path = words.nth(2).unwrap_or_default().trim_start();
    let kept = path.strip_suffix(" (deleted)");
    Some(Mapping {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        offset: u64::from_str_radix(offset, 16).ok()?,
        path: kept.unwrap_or(path).into(),
        is_code: rights.contains('x'),
        is_writable: rights.contains('w'),
        is_deleted: kept.is_some(),
        build_id: None,
    })
}

/// What addresses need to know about a thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadPointers {
    /// Its id, as the machine's tools show it.
    pub tid: libc::pid_t,
    /// An address on its stack; 0: unknown.
    pub stack_pointer: u64,
    /// Where its thread-local variables end (x86-64) or begin; 0: unknown.
    #[serde(default)]
    pub thread_pointer: u64,
}

/// A process's memory map. It can be stored, and outlives the process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressSpace {
    /// The process; 0: unknown.
    pub pid: libc::pid_t,
    /// Sorted by address.
    pub mappings: Vec<Mapping>,
    /// The threads that existed at the last look.
    #[serde(default)]
    pub threads: Vec<ThreadPointers>,
}

impl AddressSpace {
    /// The current memory map of a process, without its threads.
    ///
    /// # Errors
    ///
    /// As [`mappings`].
    pub fn of_process(pid: libc::pid_t) -> io::Result<Self> {
        Ok(Self { pid, mappings: mappings(pid)?, threads: Vec::new() })
    }

    /// Looks where the stacks of the process's threads are. Those of running threads stay unknown, or as they were.
    pub fn learn_threads(&mut self) {
        for tid in thread::threads(self.pid).unwrap_or_default() {
            let Ok(Some(blocked)) = thread::blocked(self.pid, tid) else { continue };
            self.learn_thread(tid, blocked.stack_pointer);
        }
    }

    /// Notes a thread, by an address on its stack.
    pub fn learn_thread(&mut self, tid: libc::pid_t, stack_pointer: u64) {
        if self.threads.iter().any(|known| known.tid == tid) {
            return;
        }
        let end = self.mapping(stack_pointer).map_or(0, |stack| stack.end);
        let thread_pointer = thread::thread_pointer(self.pid, tid, end).unwrap_or(0);
        self.threads.push(ThreadPointers { tid, stack_pointer, thread_pointer });
    }

    /// The mapping at an address.
    pub fn mapping(&self, address: u64) -> Option<&Mapping> {
        self.index(address).map(|at| &self.mappings[at])
    }

    pub(crate) fn index(&self, address: u64) -> Option<usize> {
        let after = self.mappings.partition_point(|mapping| mapping.start <= address);
        let at = after.checked_sub(1)?;
        self.mappings[at].contains(address).then_some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_maps_are_read() {
        let line = "7f1000-7f3000 r-xp 00026000 08:01 1234    /usr/lib/a name.so (deleted)";
        let mapping = parse(line).unwrap();
        assert_eq!((mapping.start, mapping.end, mapping.offset), (0x7f1000, 0x7f3000, 0x26000));
        assert_eq!(mapping.path.to_str(), Some("/usr/lib/a name.so"));
        assert!(mapping.is_code && mapping.is_deleted && mapping.is_file() && !mapping.is_writable);
        let heap =
            parse("55d0-55f0 rw-p 00000000 00:00 0                          [heap]").unwrap();
        assert!(!heap.is_file() && heap.is_writable && heap.path.to_str() == Some("[heap]"));
        assert_eq!(parse(""), None);
    }

    #[test]
    fn it_can_be_stored() {
        let mut space = AddressSpace::of_process(std::process::id().cast_signed()).unwrap();
        space.threads.push(ThreadPointers { tid: 7, stack_pointer: 8, thread_pointer: 9 });
        let text = serde_json::to_string(&space).unwrap();
        assert_eq!(serde_json::from_str::<AddressSpace>(&text).unwrap(), space);
    }
}
