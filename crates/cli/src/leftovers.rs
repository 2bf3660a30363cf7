//! What killed processes leave behind, in memory: commands, the folders in which programs record (`launch::folder`); and observed
//! programs, the files in which they count (`runtime/observe.rs`). The next command removes it.

use crate::epochs;
use lockwright_observe::layout::{ENDING, FOLDERS, Header, MAGIC};
use std::fs::{self, File, Metadata};
use std::io::Read;
use std::mem::offset_of;
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

/// Removes the files in which processes of this user have counted that ended without doing so themselves.
pub(crate) fn remove_counts() {
    // SAFETY: no preconditions.
    let user = unsafe { libc::geteuid() };
    for (before, after) in FOLDERS {
        remove_counts_in(Path::new(&format!("{before}{user}{after}")));
    }
}

fn remove_counts_in(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.to_str().is_some_and(|path| path.ends_with(ENDING)) && is_dead(&path) == Some(true)
        {
            let _ = fs::remove_file(path);
        }
    }
}

/// Has the process of our namespace that counts in this file ended? `None`: who knows.
fn is_dead(file: &Path) -> Option<bool> {
    let mut head = [0; size_of::<Header>()];
    File::open(file).ok()?.read_exact(&mut head).ok()?;
    let word = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"));
    let at = offset_of!(Header, pid);
    let pid = u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes"));
    let is_known = word(offset_of!(Header, magic)) == MAGIC
        && word(offset_of!(Header, namespace)) == namespace()
        && word(offset_of!(Header, started)) != 0;
    is_known.then(|| epochs::started(pid) != Some(word(offset_of!(Header, started))))
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
    fn counts_of_ended_processes_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let begun = epochs::started(process::id()).unwrap();
        let make = |name: &str, pid: u32, namespace: u64, started: u64| {
            let mut head = vec![0_u8; size_of::<Header>()];
            let mut put =
                |at: usize, bytes: &[u8]| head[at..at + bytes.len()].copy_from_slice(bytes);
            put(offset_of!(Header, magic), &MAGIC.to_le_bytes());
            put(offset_of!(Header, pid), &pid.to_le_bytes());
            put(offset_of!(Header, namespace), &namespace.to_le_bytes());
            put(offset_of!(Header, started), &started.to_le_bytes());
            let file = dir.path().join(format!("{name}.observe"));
            fs::write(&file, head).unwrap();
            file
        };
        let (space, own) = (namespace(), process::id());
        let left = [make("gone", u32::MAX, space, begun), make("reused", own, space, begun + 1)];
        let needed = [
            make("runs", own, space, begun),
            make("elsewhere", u32::MAX, space + 1, begun),
            make("unknown", u32::MAX, space, 0),
            make("other", u32::MAX, space, begun).with_extension("stats"),
        ];
        fs::rename(dir.path().join("other.observe"), &needed[3]).unwrap();
        remove_counts_in(dir.path());
        assert!(left.iter().all(|file| !file.exists()));
        assert!(needed.iter().all(|file| file.exists()));
    }

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
