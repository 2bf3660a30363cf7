//! The user's policies: `policies/NAME/VERSION.bpf.o` in the configuration, and `VERSION.bpf.c` if the source is known.

use super::unchecked::{From, Named, check, contents, of_ours};
use crate::hints::{Failure, cause};
use crate::machine;
use std::fs;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

/// A policy's versions, the oldest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Versions {
    pub(crate) name: String,
    pub(crate) versions: Vec<u32>,
}

fn folder() -> Result<PathBuf, Failure> {
    Ok(machine::file()?.with_file_name("policies"))
}

fn fail(path: &Path, what: &str, error: &std::io::Error) -> Failure {
    Failure::new(format!("cannot {what} '{}': {}", path.display(), cause(error)))
        .hint(machine::unreadable(path, error))
}

/// The versions in a policy's folder, the oldest first; empty: there is no such folder.
fn versions(folder: &Path) -> Result<Vec<u32>, Failure> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        Err(error) => return Err(fail(folder, "read", &error)),
    };
    let mut all = Vec::new();
    for entry in entries {
        let name = entry.map_err(|error| fail(folder, "read", &error))?.file_name();
        let number = name.to_str().and_then(|name| name.strip_suffix(".bpf.o"));
        all.extend(number.and_then(|number| number.parse::<u32>().ok()).filter(|one| *one > 0));
    }
    all.sort_unstable();
    Ok(all)
}

/// All stored policies, by name.
pub(crate) fn all() -> Result<Vec<Versions>, Failure> {
    let folder = folder()?;
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        Err(error) => return Err(fail(&folder, "read", &error)),
    };
    let mut all = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| fail(&folder, "read", &error))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let versions = versions(&entry.path())?;
        if check(&name).is_ok() && !versions.is_empty() {
            all.push(Versions { name, versions });
        }
    }
    all.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(all)
}

/// A stored policy; `None`: there is none of that name. Without a version, it is the newest.
pub(crate) fn read(name: &str, version: Option<&str>) -> Result<Option<Named>, Failure> {
    check(name)?;
    let Ok(folder) = folder() else { return Ok(None) };
    let folder = folder.join(name);
    let known = versions(&folder)?;
    let Some(&newest) = known.last() else { return Ok(None) };
    let version = match version {
        None => newest,
        Some(text) => {
            let asked = text.parse().ok().filter(|version| known.contains(version));
            asked.ok_or_else(|| {
                Failure::new(format!("policy '{name}' has no version '{text}'"))
                    .hint(format!("it has {}; the newest: {name}@{newest}", listed(&known)))
            })?
        }
    };
    let object = contents(&folder.join(format!("{version}.bpf.o")))?;
    let source = fs::read_to_string(folder.join(format!("{version}.bpf.c"))).ok();
    Ok(Some(Named { name: name.to_owned(), version, from: From::Stored, object, source }))
}

/// Versions, for people: `1, 2, 5`.
pub(crate) fn listed(versions: &[u32]) -> String {
    versions.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

/// Stores a policy, which was verified, under this name. Returns its version.
pub(crate) fn add(name: &str, policy: &Named) -> Result<u32, Failure> {
    check(name)?;
    if of_ours(name).is_some() {
        return Err(Failure::new(format!("'{name}' is the name of a policy that is shipped"))
            .hint(format!("give it another name: --name my_{name}")));
    }
    let folder = folder()?.join(name);
    fs::create_dir_all(&folder).map_err(|error| fail(&folder, "make", &error))?;
    let mut version = versions(&folder)?.last().map_or(1, |newest| newest + 1);
    // Somebody else may store one at the same moment.
    let object = loop {
        match put(&folder, version, &policy.object)? {
            true => break version,
            false => version += 1,
        }
    };
    if let Some(source) = &policy.source {
        let file = folder.join(format!("{object}.bpf.c"));
        fs::write(&file, source).map_err(|error| fail(&file, "write", &error))?;
    }
    Ok(object)
}

/// Writes a version's object, whole or not at all; `false`: that version is there already.
fn put(folder: &Path, version: u32, object: &[u8]) -> Result<bool, Failure> {
    let file = folder.join(format!("{version}.bpf.o"));
    let made = tempfile::NamedTempFile::new_in(folder);
    let mut made = made.map_err(|error| fail(&file, "write", &error))?;
    made.write_all(object).map_err(|error| fail(&file, "write", &error))?;
    match made.persist_noclobber(&file) {
        Ok(_) => Ok(true),
        Err(error) if error.error.kind() == ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(fail(&file, "write", &error.error)),
    }
}

/// Removes a policy with all its versions. Returns them; `None`: there is none of that name.
pub(crate) fn remove(name: &str) -> Result<Option<Vec<u32>>, Failure> {
    check(name)?;
    if of_ours(name).is_some() {
        return Err(Failure::new(format!("'{name}' is shipped: it is not in your store"))
            .hint("what is stored: lockwright policy list"));
    }
    let folder = folder()?.join(name);
    let known = versions(&folder)?;
    if known.is_empty() {
        return Ok(None);
    }
    for version in &known {
        for end in ["o", "c"] {
            let file = folder.join(format!("{version}.bpf.{end}"));
            match fs::remove_file(&file) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(fail(&file, "remove", &error));
                }
                _ => {}
            }
        }
    }
    let _ = fs::remove_dir(&folder); // a file of the user's own may be in it
    Ok(Some(known))
}
