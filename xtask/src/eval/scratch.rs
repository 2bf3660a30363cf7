//! The folder for the data of an evaluation's programs. It is removed in the end, however the evaluation ends: by a process that
//! waits for that, since a killed one can't.

use anyhow::{Context, Result};
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{self, Child, ChildStdin, Command, Stdio};
use tempfile::TempDir;

/// The prefix of our folders' names; the process's id follows.
const PREFIX: &str = "lockwright-eval-";

/// Removes the folder `$0` when its standard input ends. Programs that are being killed may write to it meanwhile.
const KEEPER: &str = r#"cat; for turn in 1 2 3 4 5; do rm -rf -- "$0" && exit; sleep 1; done"#;

/// A folder of this process.
pub(super) struct Scratch {
    folder: TempDir,
    keeper: Child,
    /// Ends with us.
    life: Option<ChildStdin>,
}

impl Scratch {
    /// A new folder in `parent`. What evaluations left there that were killed with their keepers is removed.
    pub(super) fn new(parent: &Path) -> Result<Self> {
        remove_stale(parent);
        let folder = tempfile::Builder::new()
            .prefix(&format!("{PREFIX}{}-", process::id()))
            .tempdir_in(parent)
            .with_context(|| format!("cannot make a folder in '{}'", parent.display()))?;
        let mut keeper = Command::new("sh")
            .args(["-c", KEEPER])
            .arg(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Ctrl-C is not for it.
            .process_group(0)
            .spawn()
            .context("cannot start 'sh'")?;
        let life = keeper.stdin.take();
        Ok(Self { folder, keeper, life })
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(self.life.take());
        // The folder's own drop removes what it couldn't.
        let _ = self.keeper.wait();
    }
}

/// Removes the folders of processes that are no more.
fn remove_stale(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(rest) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)) else {
            continue;
        };
        let pid = rest.split('-').next().unwrap_or_default();
        if pid.parse::<u32>().is_ok() && !Path::new("/proc").join(pid).exists() {
            // Ignores errors: another user's folder can't be removed.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::ManuallyDrop;
    use std::thread;
    use std::time::{Duration, Instant};

    #[test]
    fn folders_of_the_dead_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        // No process can have this id (PID_MAX_LIMIT is 2^22).
        let folders = [process::id(), 1 << 23].map(|pid| {
            let folder = parent.path().join(format!("{PREFIX}{pid}-x"));
            fs::create_dir(&folder).unwrap();
            folder
        });
        remove_stale(parent.path());
        assert_eq!(folders.map(|folder| folder.exists()), [true, false]);
    }

    #[test]
    fn a_folder_is_removed_when_its_process_is_killed() {
        let parent = tempfile::tempdir().unwrap();
        // As a killed process leaves it: nothing is dropped, its files are closed.
        let mut killed = ManuallyDrop::new(Scratch::new(parent.path()).unwrap());
        let folder = killed.path().to_owned();
        fs::create_dir(folder.join("data")).unwrap();
        fs::write(folder.join("data/file"), "x").unwrap();
        drop(killed.life.take());
        let start = Instant::now();
        while folder.exists() {
            assert!(
                start.elapsed() < Duration::from_secs(60),
                "'{}' is still there",
                folder.display()
            );
            thread::sleep(Duration::from_millis(5));
        }
        killed.keeper.wait().unwrap();
    }
}
