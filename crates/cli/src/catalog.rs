//! Locks on the command line, `NAME[:key=value,...]`, and messages about wrong ones.

use crate::hints::{Failure, warn};
pub(crate) use lockwright_bench::split;
use lockwright_bench::{Names, advice};
use lockwright_locks::catalog::{CATALOG, find};
use lockwright_locks::entry::{Entry, Kind};
use lockwright_locks::spec::{Bad, GLIBC, Spec, Why};
use lockwright_native::cpus::Usable;
use lockwright_sim::explore::RUNTIME;

/// The entry called `name`, or the nearest one in a hint.
pub(crate) fn entry(name: &str) -> Result<&'static Entry, Failure> {
    find(name).ok_or_else(|| failure(&Bad { text: name, name, why: Why::Name }))
}

/// What the user can ask for.
fn names() -> impl Iterator<Item = &'static str> {
    CATALOG.iter().map(|entry| entry.id).chain([GLIBC])
}

fn failure(bad: &Bad<'_>) -> Failure {
    let (message, hint) = advice(bad, names());
    Failure::new(message).hint(hint)
}

/// For the shell's completion.
pub(crate) const SPEC: Names = Names(|| names().map(str::to_owned).collect());

/// Every lock.
pub(crate) const ALL: &str = "all";

/// The same, and those that only explorations have.
pub(crate) const SUBJECT: Names =
    Names(|| names().chain([ALL, RUNTIME]).map(str::to_owned).collect());

/// One warning if any of these specifications names a textbook lock: its slowness looks like a hang. `instead`: the
/// command with another lock.
pub(crate) fn warn_of_textbook<'a>(specs: impl IntoIterator<Item = &'a str>, instead: &str) {
    let textbook = specs
        .into_iter()
        .filter_map(|spec| find(spec.split(':').next().unwrap_or(spec)))
        .find(|entry| entry.kind == Kind::Whole);
    if let Some(entry) = textbook {
        warn(
            format!(
                "'{}' is a textbook lock: with more threads than CPUs ({}) it can be a hundred times slower than auto",
                entry.id,
                Usable::read().cpus()
            ),
            format!("{instead}; lockwright explain {}", entry.id),
        );
    }
}

/// The lock, with its options, or what is wrong with it.
pub(crate) fn check(spec: &str) -> Result<Spec<'_>, Failure> {
    Spec::parse(spec).map_err(|bad| failure(&bad))
}
