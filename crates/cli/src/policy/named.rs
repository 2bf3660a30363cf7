//! A policy, by the word that names it: a file, or the name of a policy that is shipped or stored.

use super::unchecked::{From, Named, check, contents, of_ours};
use super::{clang, store};
use crate::hints::{Failure, nearest};
use lockwright_policy::shipped::shipped;
use std::path::Path;

/// Finds the policy that this word names: `dir/mine.bpf.o`, `mine.bpf.c`, `numa_grouping`, `mine`, `mine@2`.
pub(crate) fn find(word: &str) -> Result<Named, Failure> {
    if word.contains(',') && !Path::new(word).is_file() {
        return Err(Failure::new(format!("'{word}' is more than the name of a policy")).hint(
            "constants are given by --set NAME=VALUE, options of the lock by --option KEY=VALUE",
        ));
    }
    if is_file(word) {
        return file(Path::new(word));
    }
    if let Some(shipped) = of_ours(word) {
        return Ok(Named {
            name: shipped.name.to_owned(),
            version: 0,
            from: From::Shipped,
            object: shipped.object.to_vec(),
            source: Some(shipped.source.to_owned()),
        });
    }
    let (name, version) = match word.split_once('@') {
        Some((name, version)) => (name, Some(version)),
        None => (word, None),
    };
    match store::read(name, version)? {
        Some(stored) => Ok(stored),
        None => Err(unknown(word)),
    }
}

/// Does the word name a file?
fn is_file(word: &str) -> bool {
    // Names have no dot.
    word.contains(['/', '.'])
}

fn file(path: &Path) -> Result<Named, Failure> {
    let shown = path.display();
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let stem = [".bpf.o", ".bpf.c", ".o", ".c"].iter().find_map(|end| name.strip_suffix(end));
    let Some(stem) = stem else {
        return Err(Failure::new(format!("'{shown}' is neither an object file (.o) nor C (.c)"))
            .hint("lockwright policy new NAME writes a policy in C"));
    };
    check(stem)?;
    let bytes = contents(path)?;
    let (object, source) = match name.ends_with(".c") {
        true => {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            (clang::compile(path)?, Some(text))
        }
        false => (bytes, None),
    };
    let from = From::File(path.to_owned());
    Ok(Named { name: stem.to_owned(), version: 0, from, object, source })
}

/// The error for a word that names no policy.
pub(crate) fn unknown(word: &str) -> Failure {
    let stored = store::all().unwrap_or_default();
    let known = shipped().iter().map(|shipped| shipped.name);
    let known = known.chain(stored.iter().map(|stored| stored.name.as_str()));
    let failure = Failure::new(format!("unknown policy '{word}'"));
    let file = ["bpf.o", "bpf.c"].map(|end| format!("{word}.{end}"));
    if let Some(file) = file.iter().find(|file| Path::new(file).is_file()) {
        return failure.hint(format!("did you mean the file '{file}'?"));
    }
    match nearest(word, known) {
        Some(near) => failure.hint(format!("did you mean '{near}'? lockwright policy list")),
        None => failure.hint(format!(
            "lockwright policy list shows all names; a file needs its ending, as in {word}.bpf.c"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_known_by_its_end() {
        assert!(["a.o", "a.bpf.c", "dir/a"].iter().all(|word| is_file(word)));
        assert!(["a", "a@2", "big_first"].iter().all(|word| !is_file(word)));
    }
}
