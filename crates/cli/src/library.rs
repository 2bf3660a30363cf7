//! Finds `liblockwright.so`.

use crate::hints::{Failure, cause};
#[cfg(feature = "embed")]
use lockwright_library::Error;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{env, fs};

pub(crate) const FILE: &str = "liblockwright.so";
const VARIABLE: &str = "LOCKWRIGHT_LIBRARY";

/// Where a package may install it, relative to the command's folder.
const PLACES: [&str; 3] = [".", "../lib/lockwright", "../lib"];

/// The path of the library: from `flag`, else from the variable, else in one of `PLACES`, else the embedded copy in the
/// user's cache.
pub(crate) fn find(flag: Option<&Path>) -> Result<PathBuf, Failure> {
    let said = flag.map(|path| ("--library", path.to_owned())).or_else(|| {
        let path = env::var_os(VARIABLE).filter(|path| !path.is_empty())?;
        Some((VARIABLE, PathBuf::from(path)))
    });
    if let Some((who, path)) = said {
        let found = path.canonicalize().map_err(|error| {
            Failure::new(format!("cannot use '{}' ({who}): {}", path.display(), cause(&error)))
                .hint(format!("leave {who} out to use the one beside this command"))
        })?;
        return usable(found);
    }
    let command = env::current_exe().and_then(|path| path.canonicalize()).ok();
    let folder = command.as_deref().and_then(Path::parent);
    let places = folder.iter().flat_map(|folder| PLACES.map(|place| folder.join(place).join(FILE)));
    match places.into_iter().find_map(|place| place.canonicalize().ok()) {
        Some(found) => ours(usable(found)?, command.as_deref()),
        None => embedded(),
    }
}

/// The library that nobody named, if no stranger put it there, nor can write to it: programs will run it.
fn ours(found: PathBuf, command: Option<&Path>) -> Result<PathBuf, Failure> {
    let shown = found.display();
    let refused = |why: String, way: String| {
        Failure::new(format!("'{shown}' is not preloaded: {why}"))
            .hint(format!("{way}, or name it, if you trust it: --library '{shown}'"))
    };
    let file = fs::metadata(&found).map_err(|error| {
        Failure::new(format!("cannot read '{shown}': {}", cause(&error)))
            .hint(format!("ls -l '{shown}'"))
    })?;
    let owner = command.and_then(|command| fs::metadata(command).ok()).map(|about| about.uid());
    // SAFETY: no preconditions.
    let user = unsafe { libc::geteuid() };
    match stranger(&file, &[Some(0), Some(user), owner]) {
        None => Ok(found),
        Some(Stranger::Owner) => Err(refused(
            "it belongs to another user".into(),
            format!("sudo chown root:root '{shown}'"),
        )),
        Some(Stranger::Mode) => {
            Err(refused("others may write to it".into(), format!("chmod go-w '{shown}'")))
        }
    }
}

/// Why a file is not to be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stranger {
    /// Whoever owns it can write it.
    Owner,
    /// Its mode lets others.
    Mode,
}

/// Can anybody but these users write to the file? They are root, we, and the owner of the command itself, who could have changed
/// that as well. (In a user namespace, root's files may seem to be nobody's: the command's, too.)
fn stranger(file: &Metadata, trusted: &[Option<u32>]) -> Option<Stranger> {
    // A group with the number of a user is that user's alone, and under their umask files are its to write.
    let is_own = [0, file.uid()].contains(&file.gid());
    let others = if is_own { libc::S_IWOTH } else { libc::S_IWOTH | libc::S_IWGRP };
    match () {
        () if !trusted.contains(&Some(file.uid())) => Some(Stranger::Owner),
        () if file.mode() & others != 0 => Some(Stranger::Mode),
        () => None,
    }
}

/// The embedded library, as a file in the user's cache.
#[cfg(feature = "embed")]
fn embedded() -> Result<PathBuf, Failure> {
    if !lockwright_library::is_embedded() {
        return Err(missing());
    }
    let variable = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")));
    let Some(cache) = cache else {
        return Err(Failure::new(format!(
            "no place for '{FILE}': neither XDG_CACHE_HOME nor HOME is set"
        ))
        .hint("XDG_CACHE_HOME=~/.cache lockwright run ..."));
    };
    match lockwright_library::write_in(&cache) {
        Ok(Some(file)) => usable(file),
        Ok(None) => Err(missing()),
        Err(error) => {
            let why = match &error {
                Error::Io(path, error) => format!("'{}': {}", path.display(), cause(error)),
                Error::Owner(_) | Error::Mode(_) => error.to_string(),
            };
            let hint = match &error {
                Error::Mode(path) => format!("chmod go-w '{}', or ", path.display()),
                Error::Io(..) | Error::Owner(_) => String::new(),
            };
            Err(Failure::new(format!("cannot keep '{FILE}' in the cache: {why}")).hint(format!(
                "{hint}XDG_CACHE_HOME=DIR lockwright run ..., with a folder of your own"
            )))
        }
    }
}

#[cfg(not(feature = "embed"))]
fn embedded() -> Result<PathBuf, Failure> {
    Err(missing())
}

fn missing() -> Failure {
    Failure::new(format!(
        "cannot find '{FILE}' beside this command, in '../lib/lockwright', '../lib', or by \
         --library and {VARIABLE}"
    ))
    .hint("cargo build --release")
}

/// Checks that the path can be preloaded: the dynamic linker splits `LD_PRELOAD` at blanks and colons.
fn usable(path: PathBuf) -> Result<PathBuf, Failure> {
    match path.to_str() {
        Some(text) if !text.contains([' ', ':', '\t', '\n']) => Ok(path),
        text => {
            let why = match text {
                Some(_) => "the dynamic linker splits paths at blanks and colons",
                None => "its path is not UTF-8",
            };
            let shown = path.display();
            Err(Failure::new(format!("cannot preload '{shown}': {why}")).hint(format!(
                "copy it to a folder of yours with a plain name, and lockwright run --library DIR/{FILE} ..."
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_file_that_others_own_or_can_write_is_a_strangers() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(FILE);
        fs::write(&file, "").unwrap();
        let owner = fs::metadata(&file).unwrap().uid();
        let of = |mode, trusted: &[Option<u32>]| {
            fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
            stranger(&fs::metadata(&file).unwrap(), trusted)
        };
        assert_eq!(of(0o755, &[Some(owner)]), None);
        assert_eq!(of(0o755, &[Some(owner + 1), None, Some(owner)]), None);
        assert_eq!(of(0o755, &[Some(owner + 1), None]), Some(Stranger::Owner));
        assert_eq!(of(0o757, &[Some(owner)]), Some(Stranger::Mode));
    }

    #[test]
    fn what_is_refused_is_told_with_a_way_out() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(FILE);
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        assert_eq!(ours(file.clone(), None).unwrap(), file);
        fs::set_permissions(&file, Permissions::from_mode(0o646)).unwrap();
        let why = ours(file.clone(), None).unwrap_err().to_string();
        let shown = file.display();
        assert_eq!(
            why,
            format!(
                "'{shown}' is not preloaded: others may write to it\n\
                 hint: chmod go-w '{shown}', or name it, if you trust it: --library '{shown}'"
            )
        );
    }
}
