//! Where a file's debug information is, if not in the file itself: found by its build id, or by the name in the file.

use crate::elf::{Elf, hexadecimal};
use object::Object;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The folder where distributions put it.
const FOLDER: &str = "usr/lib/debug";

/// Debug information, and the part that it shares with other files (`dwz`).
pub(crate) struct Found {
    pub(crate) path: PathBuf,
    pub(crate) elf: Elf,
    pub(crate) shared: Option<Elf>,
}

/// Looks for the debug information of a file at `path` under one of these roots: the process's, which may be in a
/// container, and ours.
pub(crate) fn find(elf: &Elf, path: &Path, roots: &[PathBuf]) -> Option<Found> {
    let object = elf.object()?;
    let is_whole = object.has_debug_symbols();
    if is_whole {
        return None;
    }
    let by_id = elf.build_id.as_ref().and_then(|id| {
        let name = by_build_id(id)?;
        opened(roots.iter().map(|root| root.join(FOLDER).join(&name)))
    });
    let by_link = || {
        let (name, check) = object.gnu_debuglink().ok().flatten()?;
        let name = Path::new(OsStr::from_bytes(name));
        let folder = path.parent()?;
        let inner = folder.strip_prefix("/").unwrap_or(folder);
        let places = roots.iter().flat_map(|root| {
            let folder = root.join(inner);
            [
                folder.join(name),
                folder.join(".debug").join(name),
                root.join(FOLDER).join(inner).join(name),
            ]
        });
        opened(places).filter(|(_, found)| is_meant(found, elf, check))
    };
    let (path, elf) = by_id.or_else(by_link)?;
    let shared = shared(&elf, &path, roots);
    Some(Found { path, elf, shared })
}

/// The part that a file with debug information shares with others.
pub(crate) fn shared(elf: &Elf, path: &Path, roots: &[PathBuf]) -> Option<Elf> {
    let object = elf.object()?;
    let (name, id) = object.gnu_debugaltlink().ok().flatten()?;
    let beside = path.parent()?.join(OsStr::from_bytes(name));
    let by_id = by_build_id(&hexadecimal(id));
    let by_id = roots.iter().filter_map(|root| Some(root.join(FOLDER).join(by_id.as_ref()?)));
    opened(std::iter::once(beside).chain(by_id)).map(|(_, elf)| elf)
}

/// The first that is there.
fn opened(paths: impl IntoIterator<Item = PathBuf>) -> Option<(PathBuf, Elf)> {
    paths.into_iter().find_map(|path| Elf::open(&path).map(|elf| (path, elf)))
}

/// `.build-id/ab/cdef...debug`
fn by_build_id(id: &str) -> Option<String> {
    let (start, rest) = id.split_at_checked(2)?;
    Some(format!(".build-id/{start}/{rest}.debug"))
}

/// A file of that name may belong to another build.
fn is_meant(found: &Elf, elf: &Elf, check: u32) -> bool {
    match (&found.build_id, &elf.build_id) {
        (Some(theirs), Some(ours)) => theirs == ours,
        _ => found.check() == check,
    }
}
