//! Policies that nobody has checked yet: their names, where they come from, their bytes.

use crate::hints::{Failure, cause};
use lockwright_contract::programs::image::NAME;
use lockwright_files::read_file;
use lockwright_policy::object::{LARGEST_FILE, Object};
use lockwright_policy::shipped::{Shipped, shipped};
use std::path::{Path, PathBuf};

/// Where a policy comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum From {
    /// A file: an object, or C that we have compiled.
    File(PathBuf),
    /// This command brings it along.
    Shipped,
    /// The user's store.
    Stored,
}

/// A policy, before anybody has checked it.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    pub(crate) name: String,
    /// Its version in the store; 0: it isn't from there.
    pub(crate) version: u32,
    pub(crate) from: From,
    /// The object file.
    pub(crate) object: Vec<u8>,
    /// Its source, if that is known.
    pub(crate) source: Option<String>,
}

impl Named {
    /// Its name, with its version in the store.
    pub(crate) fn title(&self) -> String {
        title(&self.name, self.version)
    }

    /// Reads the object file.
    pub(crate) fn read(&self) -> Result<Object, Failure> {
        Object::read(&self.object).map_err(|error| {
            // A message is one line.
            let said = error.to_string().replace("\n  at ", ", at ");
            let (why, hint) = said
                .split_once("\nhint: ")
                .unwrap_or((&said, "to see how one is written: lockwright policy new NAME"));
            Failure::no(format!("{} isn't a policy: {why}", self.shown())).hint(hint)
        })
    }

    /// Where it is from, for messages.
    pub(crate) fn shown(&self) -> String {
        match &self.from {
            From::File(path) => format!("'{}'", path.display()),
            From::Shipped | From::Stored => format!("'{}'", self.title()),
        }
    }
}

/// A policy's name, and its version in the store if it has one (not 0).
pub(super) fn title(name: &str, version: u32) -> String {
    match version {
        0 => name.to_owned(),
        version => format!("{name}@{version}"),
    }
}

/// The policy of ours with this name.
pub(crate) fn of_ours(name: &str) -> Option<&'static Shipped> {
    shipped().iter().find(|shipped| shipped.name == name)
}

/// Checks a policy's name: it becomes part of paths, of rules, and of the process's memory.
pub(crate) fn check(name: &str) -> Result<(), Failure> {
    let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    if !name.is_empty() && name.len() < NAME && name.bytes().all(is_fine) {
        return Ok(());
    }
    Err(Failure::new(format!("bad name '{name}' of a policy"))
        .hint(format!("up to {} letters, digits, _ and -, as in big_first", NAME - 1)))
}

/// A regular file of at most [`LARGEST_FILE`] bytes: a device or a pipe might never end.
pub(super) fn contents(path: &Path) -> Result<Vec<u8>, Failure> {
    let shown = path.display();
    let source = path.with_extension("c");
    let fail = |why: &str| {
        let failure = Failure::new(format!("cannot read '{shown}': {why}"));
        match source != path && source.is_file() {
            true => failure.hint(format!("commands take its source, too: '{}'", source.display())),
            false => failure.hint("policies that are shipped or stored: lockwright policy list"),
        }
    };
    read_file(path, LARGEST_FILE as u64).map_err(|error| fail(&cause(&error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain_words() {
        for name in ["big_first", "numa-2", "X"] {
            assert!(check(name).is_ok(), "{name}");
        }
        for name in ["", "a b", "../a", "a@1", "a.b", "é", &"x".repeat(NAME)] {
            assert!(check(name).is_err(), "{name}");
        }
    }
}
