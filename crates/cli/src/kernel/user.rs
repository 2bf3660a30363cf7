//! Names the functions and variables of processes by address, for the stacks of futex waits.

use lockwright_observer::elf::ObjectFile;
use lockwright_observer::process::{self, Mapping};
use lockwright_observer::written;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The known processes. Some may have ended.
#[derive(Default)]
pub(crate) struct Processes {
    known: BTreeMap<u32, Process>,
    objects: HashMap<PathBuf, Option<ObjectFile>>,
}

struct Process {
    name: String,
    mappings: Vec<Mapping>,
    /// When the next look is due, and the pause after it.
    due: Instant,
    pause: Duration,
}

/// The first pause between two looks; each later pause is twice as long. A process may load libraries at any time, and
/// a shell may be about to become another program.
const PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(3);

impl Processes {
    /// Reads a process's mappings while it exists.
    pub(crate) fn look(&mut self, pid: u32) {
        let now = Instant::now();
        let known = self.known.get(&pid);
        if known.is_some_and(|known| now < known.due) {
            return;
        }
        let pause = known.map_or(PAUSE, |known| (known.pause * 2).min(LONGEST_PAUSE));
        let mappings = process::mappings(pid as libc::pid_t).unwrap_or_default();
        let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
        // A process that is about to end no longer has mappings: keep what we know.
        if !mappings.is_empty() {
            let name = String::from_utf8_lossy(&name).trim_end().to_owned();
            self.known.insert(pid, Process { name, mappings, due: now + pause, pause });
        }
    }

    /// `storm (4242)`.
    pub(crate) fn process(&self, pid: u32) -> String {
        self.known
            .get(&pid)
            .map_or_else(|| format!("process {pid}"), |process| format!("{} ({pid})", process.name))
    }

    /// The function that contains a return address, or else the file, or else the address.
    pub(crate) fn function(&mut self, pid: u32, address: u64) -> String {
        let call = address.saturating_sub(1);
        self.within(pid, call, |object, offset| {
            let has = |at: &&lockwright_observer::elf::Symbol| {
                at.is_function && (at.offset..at.offset + at.size).contains(&offset)
            };
            object.symbols.iter().rfind(has).map(|found| written::written(&found.name))
        })
    }

    /// The variable at an address, else the file, else the address.
    pub(crate) fn variable(&mut self, pid: u32, address: u64) -> String {
        self.within(pid, address, |object, offset| object.variable(offset))
    }

    fn within(
        &mut self,
        pid: u32,
        address: u64,
        name: impl Fn(&ObjectFile, u64) -> Option<String>,
    ) -> String {
        let place = || {
            let all = &self.known.get(&pid)?.mappings;
            let mut nearest = None;
            for map in all.iter().take_while(|map| map.start <= address) {
                // A zero-initialized variable lies behind its file's pages.
                if map.path.as_os_str().is_empty() && map.end > address {
                    break;
                }
                if !map.path.as_os_str().is_empty() {
                    nearest = Some(map);
                }
            }
            let path = &nearest?.path;
            let base = all.iter().find(|map| map.path == *path)?.start;
            path.is_absolute().then(|| (path.clone(), address - base))
        };
        let Some((path, offset)) = place() else { return format!("{address:#x}") };
        let object = self
            .objects
            .entry(path.clone())
            .or_insert_with(|| ObjectFile::read(&path, String::new()).ok());
        let found = object.as_ref().and_then(|object| name(object, offset));
        let is_inside = self.known[&pid]
            .mappings
            .iter()
            .any(|map| map.path == path && (map.start..map.end).contains(&address));
        found.unwrap_or_else(|| match is_inside {
            true => format!("{}+{offset:#x}", file(&path)),
            false => format!("{address:#x}"),
        })
    }
}

fn file(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    static COUNTER: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

    #[test]
    fn our_own_functions_and_variables_have_names() {
        let mut processes = Processes::default();
        let pid = std::process::id();
        processes.look(pid);
        let function = processes.function(pid, file as *const () as u64 + 1);
        assert!(function.contains("file"), "{function}");
        let variable = processes.variable(pid, &raw const COUNTER as u64);
        assert!(variable.contains("COUNTER"), "{variable}");
        assert_eq!(processes.variable(pid, 17), "0x11");
        assert_eq!(processes.process(0), "process 0");
    }
}
