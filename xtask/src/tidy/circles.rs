//! Checks that a crate's files don't use each other in a circle. The circles that there still are stand in a list, each with exactly
//! its files. So none is added or grows, and the list can only become shorter.
//!
//! A circle here is a set of files each of which leads to each other one by arrows ([`names`](super::names)). Tests don't count.

mod known;

use super::names::{FileArrows, FirstUse, arrows};
use super::source::sources;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// A crate's circles, each with its files.
type Circles = Vec<BTreeSet<String>>;

/// Complains about circles that are not in the list, and about lines of the list for which there is none.
pub(super) fn check(root: &Path, complaints: &mut Vec<String>) {
    let folders = fs::read_dir(root.join("crates")).into_iter().flatten().flatten();
    let crates = folders.map(|entry| format!("crates/{}", entry.file_name().to_string_lossy()));
    let mut crates: BTreeSet<String> = crates.chain(["tests".into(), "xtask".into()]).collect();
    crates.extend(known::KNOWN.iter().map(|(folder, _)| (*folder).to_owned()));
    for folder in crates {
        let known = known::KNOWN.iter().filter(|(of, _)| **of == folder);
        let known: Vec<&[&str]> = known.map(|(_, files)| *files).collect();
        compare(&folder, &arrows(&sources(&root.join(&folder))), &known, complaints);
    }
}

/// The sets of files that reach each other.
fn circles(arrows: &FileArrows) -> Circles {
    let mut next: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (from, to) in arrows.keys() {
        next.entry(from).or_default().push(to);
    }
    let reach = |from: &str| {
        let mut reached = BTreeSet::new();
        let mut left = vec![from];
        while let Some(file) = left.pop() {
            for to in next.get(file).into_iter().flatten() {
                if reached.insert(*to) {
                    left.push(to);
                }
            }
        }
        reached
    };
    let reached: BTreeMap<&str, BTreeSet<&str>> = next.keys().map(|&f| (f, reach(f))).collect();
    let mut found = Circles::new();
    for (from, to) in &reached {
        let back = |other: &&&str| reached.get(**other).is_some_and(|all| all.contains(from));
        let circle: BTreeSet<String> = to.iter().filter(back).map(|one| (*one).into()).collect();
        if !circle.is_empty() && !found.contains(&circle) {
            found.push(circle);
        }
    }
    found
}

/// Compares a crate's circles with those that are known.
fn compare(folder: &str, arrows: &FileArrows, known: &[&[&str]], complaints: &mut Vec<String>) {
    const LIST: &str = "xtask/src/tidy/circles/known.rs";
    let found = circles(arrows);
    let known: Circles =
        known.iter().map(|files| files.iter().map(|file| (*file).into()).collect()).collect();
    for circle in found.iter().filter(|circle| !known.contains(circle)) {
        let old: BTreeSet<&String> =
            known.iter().filter(|one| !one.is_disjoint(circle)).flatten().collect();
        let new: Vec<&str> =
            circle.iter().filter(|file| !old.contains(file)).map(String::as_str).collect();
        let all: Vec<&str> = circle.iter().map(String::as_str).collect();
        let (count, files) = (all.len(), all.join(", "));
        if old.is_empty() {
            let way = shortest(all[0], circle, arrows);
            complaints.push(format!(
                "{folder}: {count} files use each other in a circle: {files}\n  one way around:{way}\n  \
                 move what they share to a lower file"
            ));
        } else if let Some(first) = new.first() {
            let (new, way) = (new.join(", "), shortest(first, circle, arrows));
            complaints.push(format!(
                "{folder}: a circle of files has grown by {new}\n  one way around:{way}\n  \
                 move what they share to a lower file"
            ));
        } else if known.iter().filter(|one| !one.is_disjoint(circle)).count() > 1 {
            let way = shortest(all[0], circle, arrows);
            complaints.push(format!(
                "{folder}: circles of files have become one: {files}\n  one way around:{way}"
            ));
        } else {
            complaints.push(format!(
                "{folder}: a circle of files has shrunk; in {LIST} it now has these: {files}"
            ));
        }
    }
    for circle in known.iter().filter(|known| found.iter().all(|one| one.is_disjoint(known))) {
        let files: Vec<&str> = circle.iter().map(String::as_str).collect();
        let files = files.join(", ");
        complaints.push(format!("{folder}: no circle any more, strike it from {LIST}: {files}"));
    }
}

/// The shortest way from `file` back to itself within its circle, a line for each arrow.
fn shortest(file: &str, circle: &BTreeSet<String>, arrows: &FileArrows) -> String {
    let mut came: BTreeMap<&str, &str> = BTreeMap::new();
    let mut front = vec![file];
    while !came.contains_key(file) {
        let mut next = Vec::new();
        for (from, to) in arrows.keys().filter(|(_, to)| circle.contains(to)) {
            if front.contains(&from.as_str()) && !came.contains_key(to.as_str()) {
                came.insert(to, from);
                next.push(to.as_str());
            }
        }
        assert!(!next.is_empty(), "'{file}' is in this circle");
        front = next;
    }
    let mut way = Vec::new();
    let mut to = file;
    loop {
        let from = came[to];
        let FirstUse { line, path } = &arrows[&(from.to_owned(), to.to_owned())];
        way.push(format!("\n    {from} -> {to}: src/{from}:{line}: {path}"));
        if from == file {
            break;
        }
        to = from;
    }
    way.reverse();
    way.concat()
}

#[cfg(test)]
mod tests {
    use super::super::source::Sources;
    use super::*;

    fn complaints(files: &[(&str, &str)], known: &[&[&str]]) -> Vec<String> {
        let sources: Sources =
            files.iter().map(|(file, text)| ((*file).into(), (*text).into())).collect();
        let mut complaints = Vec::new();
        compare("crates/x", &arrows(&sources), known, &mut complaints);
        complaints
    }

    /// `a` and `b` through the root's re-export; `p/x` and `p/y` through their parent's.
    const TWO: &[(&str, &str)] = &[
        ("lib.rs", "mod a; mod b; mod p; pub use b::{inner::B}; mod alone;"),
        ("a.rs", "\nuse crate::B; pub struct A;"),
        ("b/mod.rs", "pub mod inner;"),
        ("b/inner.rs", "use crate::{alone, p::{Y}, a::{self, A}}; pub struct B;"),
        ("p.rs", "mod x; mod y; pub use x::X; pub use y::Y;"),
        ("p/x.rs", "use super::Y; pub struct X;"),
        ("p/y.rs", "use super::X; pub struct Y;"),
        ("alone.rs", "use crate::a::A;"),
    ];

    #[test]
    fn a_new_circle_is_told_with_a_way_around() {
        let [one, two] = &complaints(TWO, &[])[..] else { panic!("two circles") };
        let way = "crates/x: 2 files use each other in a circle: a.rs, b/inner.rs\
                   \n  one way around:\
                   \n    a.rs -> b/inner.rs: src/a.rs:2: crate::B\
                   \n    b/inner.rs -> a.rs: src/b/inner.rs:1: crate::a::A\
                   \n  move what they share to a lower file";
        assert_eq!(one, way);
        assert!(two.contains("2 files use each other in a circle: p/x.rs, p/y.rs"), "{two}");
    }

    #[test]
    fn a_known_circle_is_told_only_when_it_changes() {
        let known: &[&[&str]] = &[&["a.rs", "b/inner.rs"], &["p/x.rs", "p/y.rs"]];
        assert_eq!(complaints(TWO, known), [""; 0]);
        let told = |known: &[&[&str]]| complaints(TWO, known).concat();
        let grown = told(&[&["a.rs", "gone.rs"], known[1]]);
        assert!(
            grown.starts_with("crates/x: a circle of files has grown by b/inner.rs"),
            "{grown}"
        );
        let shrunk = told(&[&["a.rs", "b/inner.rs", "gone.rs"], known[1]]);
        assert!(
            shrunk.contains("shrunk") && shrunk.ends_with("these: a.rs, b/inner.rs"),
            "{shrunk}"
        );
        let gone = told(&[known[0], known[1], &["gone.rs", "lib.rs"]]);
        assert!(
            gone.contains("no circle any more") && gone.ends_with(": gone.rs, lib.rs"),
            "{gone}"
        );
    }

    #[test]
    fn two_known_circles_must_not_become_one() {
        let mut files = TWO.to_vec();
        files[6].1 = "use super::X; use crate::a::A; pub struct Y;";
        let told = complaints(&files, &[&["a.rs", "b/inner.rs"], &["p/x.rs", "p/y.rs"]]).concat();
        assert!(told.contains("have become one: a.rs, b/inner.rs, p/x.rs, p/y.rs"), "{told}");
    }

    #[test]
    fn a_way_in_one_direction_is_no_circle() {
        let files = [
            ("lib.rs", "mod a; mod b; pub use a::A; pub use b::B;"),
            ("a.rs", "mod below; pub use below::Below; use crate::B; pub struct A;"),
            ("a/below.rs", "use crate::b::B; pub struct Below;"),
            (
                "b.rs",
                "pub struct B; fn a() -> a::Other {} #[cfg(test)] mod tests { use crate::A; }",
            ),
        ];
        assert_eq!(complaints(&files, &[]), [""; 0]);
    }
}
