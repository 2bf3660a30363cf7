//! Folders in which programs record (`launch::folder`). A killed command leaves its folder behind, in memory; the next
//! command removes it.

use crate::epochs;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const PREFIX: &str = "lockwright-";

/// How the name of this process's folder for `name`, which has no hyphen, begins: it tells the owner.
pub(crate) fn prefix(name: &str) -> String {
    format!("{PREFIX}{name}-{}-{}-", namespace(), std::process::id())
}

/// The namespace that our process id belongs to: containers may share memory, but no processes.
fn namespace() -> u64 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |metadata| metadata.ino())
}

/// Removes the folders of this user in `dir` whose owners have ended, unless a program still records there. What can't
/// be removed stays.
pub(crate) fn remove(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_left = name.to_str().and_then(owner).is_some_and(|pid| !epochs::is_running(pid));
        if is_left && entry.metadata().is_ok_and(is_ours) && running(&entry.path()) == 0 {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// The process of our namespace that owns the folder of this name.
fn owner(name: &str) -> Option<u32> {
    let mut parts = name.strip_prefix(PREFIX)?.split('-').skip(1);
    let (space, pid) = (parts.next()?, parts.next()?);
    parts.next()?;
    if space == namespace().to_string() { pid.parse().ok() } else { None }
}

fn is_ours(metadata: Metadata) -> bool {
    // SAFETY: no preconditions.
    metadata.is_dir() && metadata.uid() == unsafe { libc::geteuid() }
}

/// How many processes that record in this folder have not ended.
pub(crate) fn running(folder: &Path) -> usize {
    let names = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let pids = names.filter_map(|name| name.to_str()?.split('-').next()?.parse().ok());
    pids.filter(|&pid| epochs::is_running(pid)).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process;

    #[test]
    fn only_what_nobody_needs_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let (space, own, gone) = (namespace(), process::id(), u32::MAX);
        let make = |name: String, recorded: u32| {
            let folder = dir.path().join(name);
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join(format!("{recorded}-0.locks")), "").unwrap();
            folder
        };
        let left = [
            make(format!("lockwright-trace-{space}-{gone}-a1"), gone),
            make(format!("lockwright-stats-{space}-{gone}-b2"), gone),
        ];
        let needed = [
            make(format!("{}c3", prefix("trace")), gone),
            make(format!("lockwright-trace-{space}-{gone}-d4"), own),
            make(format!("lockwright-trace-{}-{gone}-e5", space + 1), gone),
            make(format!("lockwright-trace-{gone}"), gone),
            make(format!("other-trace-{space}-{gone}-f6"), gone),
        ];
        let file = dir.path().join(format!("lockwright-trace-{space}-{gone}-file"));
        fs::write(&file, "").unwrap();
        remove(dir.path());
        assert!(left.iter().all(|folder| !folder.exists()));
        assert!(needed.iter().all(|folder| folder.exists()) && file.exists());
    }
}
