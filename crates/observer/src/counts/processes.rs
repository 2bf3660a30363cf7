//! Finds the processes that use our locks.

use lockwright_contract::counters::layout::CountersHeader;
use lockwright_contract::header::Layout;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

/// A process without our library is checked again after this time: it may have started another program.
const AGAIN: Duration = Duration::from_secs(20);

/// Finds them. Remembers processes without our locks, because checking one takes up to a millisecond.
#[derive(Default)]
pub struct Finder {
    others: BTreeMap<libc::pid_t, Instant>,
}

impl Finder {
    /// This user's processes that have our library, or that count with our locks linked in. For root: all users'
    /// processes.
    pub fn find(&mut self) -> Vec<libc::pid_t> {
        // SAFETY: no preconditions.
        let user = unsafe { libc::geteuid() };
        let own = std::process::id() as libc::pid_t;
        let mut found = Vec::new();
        let mut others = BTreeMap::new();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            let is_ours = || entry.metadata().is_ok_and(|about| user == 0 || about.uid() == user);
            if pid == own || !is_ours() {
                continue;
            }
            match self.others.get(&pid) {
                Some(asked) if asked.elapsed() < AGAIN => drop(others.insert(pid, *asked)),
                _ if has_locks(pid) => found.push(pid),
                _ => drop(others.insert(pid, Instant::now())),
            }
        }
        self.others = others;
        found.sort_unstable();
        found
    }
}

/// Does it map our library, or a segment?
fn has_locks(pid: libc::pid_t) -> bool {
    let maps = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    let mut lines = maps.split(|&byte| byte == b'\n');
    lines.any(|line| {
        let name = line.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        // A command that only reads the library's symbols, such as another `top`, can't execute it.
        let is_code =
            line.split(|&byte| byte == b' ').nth(1).is_some_and(|may| may.contains(&b'x'));
        name.len() < line.len()
            && (is_code && name.starts_with(b"liblockwright.so")
                || name.ends_with(CountersHeader::ENDING.as_bytes()))
    })
}
