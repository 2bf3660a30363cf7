//! Finds `liblockwright.so`.

use crate::hints::{Failure, cause};
#[cfg(feature = "embed")]
use lockwright_library::Error;
use std::env;
use std::path::{Path, PathBuf};

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
    let folder = env::current_exe()
        .and_then(|path| path.canonicalize())
        .ok()
        .and_then(|path| path.parent().map(Path::to_owned));
    let places = folder.iter().flat_map(|folder| PLACES.map(|place| folder.join(place).join(FILE)));
    match places.into_iter().find_map(|place| place.canonicalize().ok()) {
        Some(found) => usable(found),
        None => embedded(),
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
