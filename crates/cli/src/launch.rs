//! Programs that run as our child, and files that they or we write.

use crate::hints::{Failure, cause};
use crate::signals;
use std::fs::File;
use std::io;
use std::path::Path;
use std::process::{Command, ExitStatus};
use tempfile::TempDir;

/// Runs the program to its end; signals that are meant for it are passed on.
pub(crate) fn to_end(command: &mut Command, path: &Path) -> Result<ExitStatus, Failure> {
    let watch = signals::Watch::new();
    let mut child = watch.spawn(command).map_err(|error| unstartable(path, &error))?;
    watch.wait(&mut child).map_err(|error| {
        Failure::new(format!("cannot wait for '{}': {}", path.display(), cause(&error)))
    })
}

/// The program can't be executed.
pub(crate) fn unstartable(path: &Path, error: &io::Error) -> Failure {
    Failure::not_executable(format!("cannot run '{}': {}", path.display(), cause(error)))
}

/// A file for results, empty.
pub(crate) fn create(file: &Path) -> Result<File, Failure> {
    File::create(file).map_err(|error| unwritable(file, &error))
}

/// Results can't be written.
pub(crate) fn unwritable(file: &Path, error: &io::Error) -> Failure {
    let file = file.display();
    Failure::new(format!("cannot write '{file}': {}", cause(error)))
        .hint(format!("ls -ld \"$(dirname '{file}')\""))
}

/// A fresh folder in which programs record: in memory where there is such a place, since a disk's write-back
/// holds up those who write to the mapping. `command` is for the hint.
pub(crate) fn folder(name: &str, command: &str) -> Result<TempDir, Failure> {
    let prefix = format!("lockwright-{name}-");
    let mut builder = tempfile::Builder::new();
    builder.prefix(&prefix);
    builder.tempdir_in("/dev/shm").or_else(|_| builder.tempdir()).map_err(|error| {
        Failure::new(format!("cannot make a temporary folder: {}", cause(&error)))
            .hint(format!("TMPDIR=/var/tmp lockwright {command} -- PROGRAM"))
    })
}
