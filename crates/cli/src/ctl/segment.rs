//! A process's counts: copies them, or resets them.

use crate::hints::{Failure, cause};
use crate::launch;
use lockwright_contract::counters::Segment;
use lockwright_contract::counters::layout::LENGTH;
use lockwright_observer::counts::live::{self, Live, now_ns};
use lockwright_observer::process::Process;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

fn open(process: &Process) -> Result<(File, PathBuf), Failure> {
    let pid = process.pid;
    let file = Live::find(process)?.file(process)?;
    file.ok_or_else(|| {
        Failure::new(format!(
            "process {pid} has counted nothing yet: no thread had to wait for a lock"
        ))
        .hint(format!("if it counts (lockwright switch {pid}), try again later"))
    })
}

/// Copies the process's counts to a file that `profile --read` reads.
pub(crate) fn dump(process: &Process, to: &Path) -> Result<(), Failure> {
    let (from, path) = open(process)?;
    // Opened anew, even if our own output goes there: a segment is written at its own places.
    let target = lockwright_files::open_to_write(to);
    let target = target.map_err(|error| launch::unwritable(to, &error))?;
    let fail = |error: io::Error| {
        Failure::new(format!(
            "cannot copy '{}' to '{}': {}",
            path.display(),
            to.display(),
            cause(&error)
        ))
    };
    copy(&from, &target).map_err(fail)
}

/// Copies only the data: most of a segment consists of holes, and the copy keeps them.
fn copy(from: &File, to: &File) -> io::Result<()> {
    let length = from.metadata()?.len();
    to.set_len(0)?; // its holes are empty
    to.set_len(length)?;
    let mut bytes = [0; 4096];
    let mut at = 0;
    while at < length {
        let count = from.read_at(&mut bytes, at)?;
        if count == 0 {
            break;
        }
        if bytes[..count].iter().any(|&byte| byte != 0) {
            to.write_all_at(&bytes[..count], at)?;
        }
        at += count as u64;
    }
    Ok(())
}

/// Sets all counts to 0 while the process goes on counting. Returns the number of locks that had counts.
pub(crate) fn reset(process: &Process) -> Result<usize, Failure> {
    let (_, path) = open(process)?;
    let fail = |error: &io::Error| {
        Failure::new(format!("cannot write '{}': {}", path.display(), cause(error)))
            .hint("as the process's user, or with sudo")
    };
    let file = live::open(process, &path, true)?;
    if file.metadata().map_err(|error| fail(&error))?.len() < LENGTH as u64 {
        return Err(Failure::new(format!("'{}' is too short", path.display())));
    }
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a fresh mapping overlaps nothing.
    let base = unsafe {
        libc::mmap(std::ptr::null_mut(), LENGTH, protection, libc::MAP_SHARED, file.as_raw_fd(), 0)
    };
    if base == libc::MAP_FAILED {
        return Err(fail(&io::Error::last_os_error()));
    }
    // SAFETY: mapped until this command ends; the file is that long, and its process never shortens it.
    let segment = unsafe { Segment::of_other(base.cast()) };
    segment
        .map(|segment| segment.reset(now_ns()))
        .ok_or_else(|| lockwright_observer::mailbox::other_version(process))
}
