//! Why some mutants survive: the sources' own reasons (`// SURVIVES: reason`, as for `cargo xtask weaken`, about
//! orderings, wakes and sleeps; `// SURVIVES MUTATION: reason`, about that mutation alone), and those that apply only to
//! explorations.

use super::memory::Explored;
use super::mutant::{Mutation, Op, Site};
use lockwright_locks::catalog::{FrontVisitor, find, visit_front};
use lockwright_locks::entry::{Entry, Kind, Promise};
use lockwright_locks::front::{Rule, Tuning};
use lockwright_locks::sources::SOURCES;
use lockwright_locks::spec::GLIBC;

/// Why nobody notices this mutation of a site of `lock`, if that is known.
pub fn why_it_survives(lock: &str, site: &Site, mutation: Mutation) -> Option<String> {
    // The reasons are about orderings, wakes and sleeps.
    let may_be_said = matches!(
        mutation,
        Mutation::Order(_) | Mutation::Failure(_) | Mutation::NoWake | Mutation::NoCompare
    );
    let said = |mark: &str| {
        let after = |line: &'static str| line.split_once(mark).map(|(_, why)| why.trim());
        notes(site).find_map(after).map(str::to_owned)
    };
    let own = said(&format!("SURVIVES {mutation}:"));
    if let Some(why) = own.or_else(|| said("SURVIVES:").filter(|_| may_be_said)) {
        return Some(why);
    }
    if matches!(mutation, Mutation::Order(_) | Mutation::NoStore)
        && notes(site).any(|line| FOR_GRANTS.iter().any(|what| line.contains(what)))
        && !grants(lock)
    {
        return Some("this lock is never granted at a gate, and it serves nothing else".to_owned());
    }
    let in_line = site.place.file == "front/line.rs";
    let why = match (site.op, mutation) {
        (Op::Park, Mutation::NoCompare) if site.place.file == "amp/standby.rs" => {
            "the word is the sleeper's own, and never changes"
        }
        (Op::Unpark, Mutation::NoWake) if site.place.file == "front/line.rs" && !queues(lock) => {
            "only torn waiters join its line, and they don't sleep on there"
        }
        (_, Mutation::NoStore)
            if lock.starts_with("rcl") && site.place.file == "delegation/mailbox.rs" =>
        {
            "a server that doesn't find the mailbox doesn't answer: its client goes home"
        }
        _ if lock == "dynamic" && site.place.file.starts_with("front/") => {
            "it is auto's, and auto's own explorations look for it"
        }
        (_, Mutation::Order(_))
            if lock == "dynamic" && notes(site).any(|line| line.contains("[free]")) =>
        {
            "the lock below orders the sections"
        }
        (_, Mutation::Order(_) | Mutation::NoStore) if lock == GLIBC && in_line => {
            "nobody joins a line: there is no head to see"
        }
        _ => return None,
    };
    Some(why.to_owned())
}

/// Do waiters of this lock queue? A front lock that promises no order has no use for its line.
fn queues(lock: &str) -> bool {
    let entry = lock.split(':').next().and_then(find);
    entry.is_none_or(|entry| entry.kind != Kind::Front || entry.promise != Promise::Nothing)
}

/// What the source says where an operation only serves waiters that are granted the lock.
const FOR_GRANTS: [&str; 3] = ["if we are GRANTED", "[predecessor] ORDERING", "[tell] ORDERING"];

/// Does this lock grant itself to waiters in its line? As far as is known: a lock without a rule of its own may.
fn grants(lock: &str) -> bool {
    struct Asked<'a>(&'a str, bool);
    impl FrontVisitor<Explored> for Asked<'_> {
        fn visit<R: Rule<Explored>>(
            &mut self,
            entry: &'static Entry,
            defaults: fn(Tuning) -> Tuning,
        ) {
            if self.0.split(':').next() == Some(entry.id) {
                self.1 = defaults(Tuning::for_cpus(64)).grants();
            }
        }
    }
    let mut asked = Asked(lock, true);
    visit_front::<Explored>(&mut asked);
    asked.1
}

/// The line of the source, and the comment right above it, from the bottom up.
fn notes(site: &Site) -> impl Iterator<Item = &'static str> + use<> {
    let text =
        SOURCES.iter().find(|(file, _)| *file == site.place.file).map_or("", |(_, text)| text);
    let lines: Vec<_> = text.lines().take(site.place.line as usize).collect();
    let mut above = lines.into_iter().rev();
    let own = above.next();
    own.into_iter().chain(above.take_while(|line| line.trim_start().starts_with("//")))
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
            if std::fs::read_to_string(&path).unwrap().contains("SURVIVES") {
                assert!(SOURCES.iter().any(|(file, _)| *file == name), "{name}");
            }
        }
    }
}
