//! Removes what killed processes left in memory: the folders of commands in which programs record (`launch::folder`),
//! and the files in which observed programs count (`runtime/observe.rs`).

use lockwright_contract::counters::layout::{CountersHeader, FOLDERS};
use lockwright_contract::header::{Foreign, Header, Layout};
use lockwright_files::open_entry;
use lockwright_observer::process::{is_running, started};
use std::fs::{self, File, Metadata};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

const PREFIX: &str = "lockwright-";
/// How many files of a folder we look at: another user may have filled it. What is left, a later command removes.
const MOST: usize = 2000;

/// The prefix of the names of this process's folders for `name`, which has no hyphen. It identifies the owner.
pub(crate) fn prefix(name: &str) -> String {
    format!("{PREFIX}{name}-{}-{}-", namespace(), std::process::id())
}

/// The PID namespace of this process. Containers may share memory without sharing processes.
fn namespace() -> u64 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |metadata| metadata.ino())
}

/// Removes this user's folders in `dir` whose owners have ended, unless a program still records there. Ignores errors.
pub(crate) fn remove(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten().take(MOST) {
        let name = entry.file_name();
        let is_left = name.to_str().and_then(owner).is_some_and(|pid| !is_running(pid));
        if is_left && entry.metadata().is_ok_and(is_ours) && running(&entry.path()) == 0 {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// The process in our namespace that owns the folder with this name.
fn owner(name: &str) -> Option<u32> {
    let mut parts = name.strip_prefix(PREFIX)?.split('-').skip(1);
    let (space, pid) = (parts.next()?, parts.next()?);
    parts.next()?;
    if space == namespace().to_string() { pid.parse().ok() } else { None }
}

/// Removes the counts of this user's processes that ended without removing them.
pub(crate) fn remove_counts() {
    // SAFETY: no preconditions.
    let user = unsafe { libc::geteuid() };
    for (before, after) in FOLDERS {
        remove_counts_in(Path::new(&format!("{before}{user}{after}")), user);
    }
    // Root also removes those of other users, whose servers root may have started.
    let memory = if user == 0 { fs::read_dir("/dev/shm").ok() } else { None };
    for entry in memory.into_iter().flatten().flatten().take(MOST) {
        let name = entry.file_name();
        let user = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.parse().ok());
        if let Some(user) = user {
            remove_counts_in(&entry.path(), user);
        }
    }
}

/// Anyone may have created such a folder, with links or pipes in it. We enter it only if it belongs to that user and
/// isn't a link, and open files relative to its descriptor.
fn remove_counts_in(dir: &Path, user: libc::uid_t) {
    let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
    let Ok(folder) = File::options().read(true).custom_flags(flags).open(dir) else { return };
    if !folder.metadata().is_ok_and(|about| about.is_dir() && about.uid() == user) {
        return;
    }
    let dir = format!("/proc/self/fd/{}", folder.as_raw_fd());
    for entry in fs::read_dir(dir).into_iter().flatten().flatten().take(MOST) {
        let path = entry.path();
        if path.to_str().is_some_and(|path| path.ends_with(CountersHeader::ENDING))
            && is_dead(&path) == Some(true)
        {
            let _ = fs::remove_file(path);
        }
    }
}

/// Creating such a file takes much less time.
const MAKING: Duration = Duration::from_secs(60);

/// Has the process in our namespace that counts in this file ended? `None`: unknown.
fn is_dead(file: &Path) -> Option<bool> {
    let mut head = [0; size_of::<Header>()];
    let mut file = open_entry(file).ok()?;
    let about = file.metadata().ok()?;
    file.read_exact(&mut head).ok()?;
    let header = Header::read(&head)?;
    match header.check::<CountersHeader>() {
        // The process was killed while it created the file.
        Err(Foreign::Incomplete) => {
            return about.modified().ok()?.elapsed().ok().map(|age| age > MAKING);
        }
        Err(Foreign::Short | Foreign::NotOurs) => return None,
        // In the version before, what we look at here lay at the same places.
        Ok(()) | Err(Foreign::Version(_)) => {}
    }
    let is_known = header.namespace == namespace() && header.started != 0;
    is_known.then(|| started(header.pid) != Some(header.started))
}

fn is_ours(metadata: Metadata) -> bool {
    // SAFETY: no preconditions.
    metadata.is_dir() && metadata.uid() == unsafe { libc::geteuid() }
}

/// Number of processes that record in this folder and still run.
pub(crate) fn running(folder: &Path) -> usize {
    let names = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let pids = names.filter_map(|name| name.to_str()?.split('-').next()?.parse().ok());
    pids.filter(|&pid| is_running(pid)).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;
    use std::process;
    use std::time::SystemTime;

    #[test]
    fn counts_of_ended_processes_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let begun = started(process::id()).unwrap();
        let make = |name: &str, pid: u32, namespace: u64, started: u64| {
            let mut head = vec![0_u8; size_of::<Header>()];
            let mut put =
                |at: usize, bytes: &[u8]| head[at..at + bytes.len()].copy_from_slice(bytes);
            put(offset_of!(Header, magic), &CountersHeader::MAGIC.to_le_bytes());
            put(offset_of!(Header, pid), &pid.to_le_bytes());
            put(offset_of!(Header, namespace), &namespace.to_le_bytes());
            put(offset_of!(Header, started), &started.to_le_bytes());
            let file = dir.path().join(format!("{name}.observe"));
            fs::write(&file, head).unwrap();
            file
        };
        let (space, own) = (namespace(), process::id());
        let half = |name: &str, age: Duration| {
            let path = dir.path().join(format!("{name}.observe"));
            let file = File::create(&path).unwrap();
            file.set_len(2 * size_of::<Header>() as u64).unwrap();
            file.set_modified(SystemTime::now() - age).unwrap();
            path
        };
        let left = [
            make("gone", u32::MAX, space, begun),
            make("reused", own, space, begun + 1),
            half("killed", 2 * MAKING),
        ];
        let needed = [
            make("runs", own, space, begun),
            make("elsewhere", u32::MAX, space + 1, begun),
            make("unknown", u32::MAX, space, 0),
            half("making", Duration::ZERO),
            make("other", u32::MAX, space, begun).with_extension("stats"),
        ];
        fs::rename(dir.path().join("other.observe"), &needed[4]).unwrap();
        // SAFETY: no preconditions.
        remove_counts_in(dir.path(), unsafe { libc::geteuid() });
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
