//! Programs that run as children of this command, and files that they or we write.

use crate::hints::{Failure, cause};
use crate::{leftovers, signals};
use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;
use tempfile::TempDir;

/// The last arguments of most commands that run a program.
#[derive(clap::Args)]
pub(crate) struct Launched {
    /// The library to preload [default: the one beside this command]
    #[arg(long, value_name = "FILE")]
    pub(crate) library: Option<PathBuf>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    pub(crate) command: Vec<OsString>,
}

/// Runs the program to its end, and passes signals on to it.
pub(crate) fn to_end(command: &mut Command, path: &Path) -> Result<ExitStatus, Failure> {
    to_end_and(&signals::Watch::for_program(), command, path, None, || ())
}

/// Runs the program to its end, and calls `each` after every `tick`.
pub(crate) fn to_end_and(
    watch: &signals::Watch,
    command: &mut Command,
    path: &Path,
    tick: Option<Duration>,
    each: impl FnMut(),
) -> Result<ExitStatus, Failure> {
    let mut child = watch.spawn(command).map_err(|error| unstartable(path, &error))?;
    watch.wait_and(&mut child, tick, each).map_err(|error| lost(path, &error))
}

/// The error for a program that can't be waited for.
pub(crate) fn lost(path: &Path, error: &io::Error) -> Failure {
    Failure::new(format!("cannot wait for '{}': {}", path.display(), cause(error)))
}

/// The error for a program that can't be executed.
pub(crate) fn unstartable(path: &Path, error: &io::Error) -> Failure {
    Failure::not_executable(format!("cannot run '{}': {}", path.display(), cause(error)))
}

/// Creates or empties a file for results ([`lockwright_files::create`]).
pub(crate) fn create(file: &Path) -> Result<File, Failure> {
    lockwright_files::create(file).map_err(|error| unwritable(file, &error))
}

/// Refuses to overwrite an existing file of results, unless `force` is set. The message uses `what` for its contents,
/// and `again` for the command that overwrites it.
pub(crate) fn keep(file: &Path, force: bool, what: &str, again: &str) -> Result<(), Failure> {
    // Something other than a regular file, such as /dev/null, can't lose its contents.
    if file.is_file() && !force {
        let shown = file.display();
        return Err(Failure::new(format!("'{shown}' exists already: {what} is not overwritten"))
            .hint(format!("{again}, or --output FILE")));
    }
    Ok(())
}

/// Can the file be written? This check leaves an existing file unchanged, and doesn't leave a new one behind.
pub(crate) fn can_write(file: &Path) -> io::Result<()> {
    let new = file.symlink_metadata().is_err(); // a dangling link stays, and then points to an empty file
    lockwright_files::open_to_write(file)?;
    if new { fs::remove_file(file) } else { Ok(()) }
}

/// Can we write files to that folder? If it doesn't exist, it is created and removed again, together with its missing
/// parents.
pub(crate) fn can_fill(folder: &Path) -> io::Result<()> {
    let is_missing = |above: &&Path| !above.as_os_str().is_empty() && !above.exists();
    let missing: Vec<_> = folder.ancestors().take_while(is_missing).collect();
    let result = fs::create_dir_all(folder).and_then(|()| tempfile::tempfile_in(folder).map(drop));
    for made in missing {
        let _ = fs::remove_dir(made); // some may not exist
    }
    result
}

/// The error for results that can't be written.
pub(crate) fn unwritable(file: &Path, error: &io::Error) -> Failure {
    let file = file.display();
    let failure = Failure::new(format!("cannot write '{file}': {}", cause(error)));
    failure.hint(match error.kind() {
        ErrorKind::NotFound => format!("mkdir -p \"$(dirname '{file}')\""),
        _ => format!("ls -ld '{file}' \"$(dirname '{file}')\""),
    })
}

/// A new folder in which programs record. It is in memory if possible, because a disk's write-back delays writes to the
/// mapping. Also removes the folders of commands that were killed. `command` is for the hint.
pub(crate) fn folder(name: &str, command: &str) -> Result<TempDir, Failure> {
    let memory = Path::new("/dev/shm");
    leftovers::remove(memory);
    leftovers::remove(&std::env::temp_dir());
    let prefix = leftovers::prefix(name);
    let mut builder = tempfile::Builder::new();
    // Recordings contain addresses, so they are private regardless of the umask.
    builder.prefix(&prefix).permissions(Permissions::from_mode(0o700));
    builder.tempdir_in(memory).or_else(|_| builder.tempdir()).map_err(|error| {
        Failure::new(format!("cannot make a temporary folder: {}", cause(&error)))
            .hint(format!("TMPDIR=/var/tmp lockwright {command} -- PROGRAM"))
    })
}

/// Shares root's folder with other users. A server that root starts drops its privileges, so its files belong to
/// another user. Any user can create files in this folder, but can't list it, and can remove only their own files. So
/// readers must be ready for any contents ([`lockwright_files::open_entry`]).
pub(crate) fn share(folder: &TempDir) {
    // SAFETY: no preconditions.
    if unsafe { libc::geteuid() } == 0 {
        let _ = fs::set_permissions(folder.path(), Permissions::from_mode(0o1733)); // on failure it stays private
    }
}
