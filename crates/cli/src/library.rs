//! Where `liblockwright.so` is.

use crate::hints::{Failure, cause};
use std::env;
use std::path::{Path, PathBuf};

pub(crate) const FILE: &str = "liblockwright.so";
const VARIABLE: &str = "LOCKWRIGHT_LIBRARY";

/// The library: `flag`, else the variable, else beside this executable or in `../lib`.
pub(crate) fn find(flag: Option<&Path>) -> Result<PathBuf, Failure> {
    let said = flag
        .map(|path| ("--library", path.to_owned()))
        .or_else(|| env::var_os(VARIABLE).map(|path| (VARIABLE, PathBuf::from(path))));
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
    let places =
        folder.iter().flat_map(|folder| [folder.join(FILE), folder.join("../lib").join(FILE)]);
    match places.into_iter().find_map(|place| place.canonicalize().ok()) {
        Some(found) => usable(found),
        None => Err(Failure::new(format!(
            "cannot find '{FILE}' beside this command, in '../lib', or by --library and {VARIABLE}"
        ))
        .hint("cargo build --release")),
    }
}

/// The dynamic linker splits `LD_PRELOAD` at blanks and colons, and takes it as bytes.
fn usable(path: PathBuf) -> Result<PathBuf, Failure> {
    match path.to_str() {
        Some(text) if !text.contains([' ', ':', '\t', '\n']) => Ok(path),
        _ => Err(Failure::new(format!(
            "cannot preload '{}': the dynamic linker splits paths at blanks and colons",
            path.display()
        ))
        .hint(format!(
            "cp '{}' /tmp/ && lockwright run --library /tmp/{FILE} ...",
            path.display()
        ))),
    }
}
