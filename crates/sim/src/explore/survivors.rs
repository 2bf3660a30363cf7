//! Why some mutants survive: the sources' own reasons (`// SURVIVES: reason`, as for `cargo xtask weaken`), and those
//! that apply only to explorations.

use super::mutant::{Mutation, Op, Site};
use lockwright_locks::spec::GLIBC;

/// The locks' files that say so of some of their lines.
const SOURCES: [(&str, &str); 11] = [
    ("condvar/mod.rs", include_str!("../../../locks/src/condvar/mod.rs")),
    ("front/mod.rs", include_str!("../../../locks/src/front/mod.rs")),
    ("front/line.rs", include_str!("../../../locks/src/front/line.rs")),
    ("front/rule.rs", include_str!("../../../locks/src/front/rule.rs")),
    ("front/grant.rs", include_str!("../../../locks/src/front/grant.rs")),
    ("front/waiter.rs", include_str!("../../../locks/src/front/waiter.rs")),
    ("front/leaving.rs", include_str!("../../../locks/src/front/leaving.rs")),
    ("torn.rs", include_str!("../../../locks/src/torn.rs")),
    ("posix/mod.rs", include_str!("../../../locks/src/posix/mod.rs")),
    ("posix/mutex.rs", include_str!("../../../locks/src/posix/mutex.rs")),
    ("posix/places.rs", include_str!("../../../locks/src/posix/places.rs")),
];

/// Why nobody notices this mutation of a site of `lock`, if that is known.
pub fn why_it_survives(lock: &str, site: &Site, mutation: Mutation) -> Option<String> {
    // The reasons are about orderings, wakes and sleeps.
    let may_be_said = matches!(
        mutation,
        Mutation::Order(_) | Mutation::Failure(_) | Mutation::NoWake | Mutation::NoCompare
    );
    if let Some(said) = said(site).filter(|_| may_be_said) {
        return Some(said.to_owned());
    }
    let in_line = ["front/line.rs", "front/mod.rs"].contains(&site.place.file);
    let why = match (site.op, mutation) {
        (Op::Park, Mutation::NoCompare) if site.place.file == "amp/standby.rs" => {
            "the word is the sleeper's own, and never changes"
        }
        (_, Mutation::Order(_) | Mutation::NoStore) if lock == GLIBC && in_line => {
            "nobody joins a line: there is no head to see"
        }
        _ => return None,
    };
    Some(why.to_owned())
}

/// What the source says, on the line or in the comment right above.
fn said(site: &Site) -> Option<&'static str> {
    let (_, text) = SOURCES.iter().find(|(file, _)| *file == site.place.file)?;
    let mut above =
        text.lines().take(site.place.line as usize).collect::<Vec<_>>().into_iter().rev();
    let reason = |line: &'static str| line.split_once("SURVIVES:").map(|(_, why)| why.trim());
    let own = above.next()?;
    let comments = above.take_while(|line| line.trim_start().starts_with("//"));
    reason(own).or_else(|| comments.into_iter().find_map(reason))
}

#[cfg(test)]
mod tests {
    use super::SOURCES;
    use std::path::{Path, PathBuf};

    fn files(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { files(&path, found) } else { found.push(path) }
        }
    }

    #[test]
    fn every_file_that_says_what_survives_is_known() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../locks/src");
        let mut all = Vec::new();
        files(&root, &mut all);
        for path in all {
            let name = path.strip_prefix(&root).unwrap().to_str().unwrap();
            // Readers-writer locks are not in the catalogue.
            if !name.starts_with("rw/")
                && std::fs::read_to_string(&path).unwrap().contains("SURVIVES:")
            {
                assert!(SOURCES.iter().any(|(file, _)| *file == name), "{name}");
            }
        }
    }
}
