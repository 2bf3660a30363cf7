//! Files that processes leave in a folder.

use lockwright_text::{Failure, cause};
use std::fs::{self, File};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Reads the files in a folder whose names end in `ending`, and tells `unread` of those that can't be read.
pub fn files<T>(
    folder: &Path,
    ending: &str,
    read: impl Fn(File, &Path) -> Result<T, Failure>,
    mut unread: impl FnMut(&Failure),
) -> Result<Vec<T>, Failure> {
    let entries = fs::read_dir(folder).map_err(|error| {
        Failure::new(format!("cannot read '{}': {}", folder.display(), cause(&error)))
    })?;
    let mut all = Vec::new();
    for path in entries.flatten().map(|entry| entry.path()) {
        let is_one = path.to_str().is_some_and(|path| path.ends_with(ending));
        if let (true, Some(file)) = (is_one, open_file(&path)) {
            match read(file, &path) {
                Ok(found) => all.push(found),
                Err(failure) => unread(&failure), // the process was killed while it created the file
            }
        }
    }
    Ok(all)
}

/// Opens a file in a folder that other users can write to; `None` if it isn't a regular file.
pub fn open_file(path: &Path) -> Option<File> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = File::options().read(true).custom_flags(flags).open(path).ok()?;
    file.metadata().is_ok_and(|about| about.is_file()).then_some(file)
}
