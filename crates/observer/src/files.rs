//! Files that processes leave in a folder.

use lockwright_files::open_entry;
use lockwright_text::{Failure, cause};
use std::fs::{self, File};
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
        if let (true, Ok(file)) = (is_one, open_entry(&path)) {
            match read(file, &path) {
                Ok(found) => all.push(found),
                Err(failure) => unread(&failure), // the process was killed while it created the file
            }
        }
    }
    Ok(all)
}
