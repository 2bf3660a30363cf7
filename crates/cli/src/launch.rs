//! Programs that run as our child, and files that they or we write.

use crate::hints::{Failure, cause};
use crate::{leftovers, signals};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::Duration;
use tempfile::TempDir;

/// Runs the program to its end; signals that are meant for it are passed on.
pub(crate) fn to_end(command: &mut Command, path: &Path) -> Result<ExitStatus, Failure> {
    to_end_and(command, path, None, || ())
}

/// The same; meanwhile it calls `each` after each `tick`.
pub(crate) fn to_end_and(
    command: &mut Command,
    path: &Path,
    tick: Option<Duration>,
    each: impl FnMut(),
) -> Result<ExitStatus, Failure> {
    let watch = signals::Watch::new();
    let mut child = watch.spawn(command).map_err(|error| unstartable(path, &error))?;
    watch.wait_and(&mut child, tick, each).map_err(|error| lost(path, &error))
}

/// The program can't be waited for.
pub(crate) fn lost(path: &Path, error: &io::Error) -> Failure {
    Failure::new(format!("cannot wait for '{}': {}", path.display(), cause(error)))
}

/// The program can't be executed.
pub(crate) fn unstartable(path: &Path, error: &io::Error) -> Failure {
    Failure::not_executable(format!("cannot run '{}': {}", path.display(), cause(error)))
}

/// A file for results, empty.
pub(crate) fn create(file: &Path) -> Result<File, Failure> {
    File::create(file).map_err(|error| unwritable(file, &error))
}

/// Refuses an existing file of results, unless it may be replaced. The message says `what` they are, and `again`, the
/// command that replaces it.
pub(crate) fn keep(file: &Path, force: bool, what: &str, again: &str) -> Result<(), Failure> {
    // Something other than a plain file, such as /dev/null, holds nothing that could be lost.
    if file.is_file() && !force {
        let shown = file.display();
        return Err(Failure::new(format!("'{shown}' exists already: {what} is not overwritten"))
            .hint(format!("{again}, or --output FILE")));
    }
    Ok(())
}

/// Can the file be written? Nothing is written yet: the file stays as it is, or doesn't appear.
pub(crate) fn can_write(file: &Path) -> io::Result<()> {
    let new = file.symlink_metadata().is_err(); // a link to nothing stays, and leads to an empty file from now on
    OpenOptions::new().append(true).create(true).open(file)?;
    if new { fs::remove_file(file) } else { Ok(()) }
}

/// Can files be written to that folder? If it doesn't exist it is made, and removed again, with those above
/// it.
pub(crate) fn can_fill(folder: &Path) -> io::Result<()> {
    let is_missing = |above: &&Path| !above.as_os_str().is_empty() && !above.exists();
    let missing: Vec<_> = folder.ancestors().take_while(is_missing).collect();
    let result = fs::create_dir_all(folder).and_then(|()| tempfile::tempfile_in(folder).map(drop));
    for made in missing {
        let _ = fs::remove_dir(made); // some may not have been made
    }
    result
}

/// Results can't be written.
pub(crate) fn unwritable(file: &Path, error: &io::Error) -> Failure {
    let file = file.display();
    let failure = Failure::new(format!("cannot write '{file}': {}", cause(error)));
    failure.hint(match error.kind() {
        ErrorKind::NotFound => format!("mkdir -p \"$(dirname '{file}')\""),
        _ => format!("ls -ld '{file}' \"$(dirname '{file}')\""),
    })
}

/// A fresh folder in which programs record: in memory if possible, since a disk's write-back delays writes to the
/// mapping. Folders of commands that were killed are removed. `command` is for the hint.
pub(crate) fn folder(name: &str, command: &str) -> Result<TempDir, Failure> {
    let memory = Path::new("/dev/shm");
    leftovers::remove(memory);
    leftovers::remove(&std::env::temp_dir());
    let prefix = leftovers::prefix(name);
    let mut builder = tempfile::Builder::new();
    // Recordings hold addresses, so they are private, whatever the umask allows.
    builder.prefix(&prefix).permissions(Permissions::from_mode(0o700));
    builder.tempdir_in(memory).or_else(|_| builder.tempdir()).map_err(|error| {
        Failure::new(format!("cannot make a temporary folder: {}", cause(&error)))
            .hint(format!("TMPDIR=/var/tmp lockwright {command} -- PROGRAM"))
    })
}

/// A server that root starts gives up its rights, and its files are then another user's: root's folder lets anybody make files, see
/// none, and remove only one's own. So who reads it must expect anything there ([`crate::observed::run::open_file`]).
pub(crate) fn share(folder: &TempDir) {
    // SAFETY: no preconditions.
    if unsafe { libc::geteuid() } == 0 {
        let _ = fs::set_permissions(folder.path(), Permissions::from_mode(0o1733)); // then it is as private as before
    }
}
