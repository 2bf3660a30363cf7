//! Locks on the command line, `NAME[:key=value,...]`, and messages about wrong ones.

use crate::hints::{Failure, nearest, warn};
use crate::policy::slots;
use crate::policy::unchecked::of_ours;
pub(crate) use lockwright_bench::split;
use lockwright_bench::{Names, advice};
use lockwright_contract::mailbox::RWLOCK;
use lockwright_locks::catalog::{self, CATALOG, find, find_any};
use lockwright_locks::entry::{Entry, Kind};
use lockwright_locks::rw::{PREFER, Prefer};
use lockwright_locks::spec::{Bad, GLIBC, Spec, Why};
use lockwright_native::cpus::Usable;
use lockwright_observer::targets::is_rwlocks;
use lockwright_sim::explore::RUNTIME;

/// The entry called `name`, whatever it locks; otherwise an error whose hint names the nearest one.
pub(crate) fn entry(name: &str) -> Result<&'static Entry, Failure> {
    find_any(name).ok_or_else(|| any_failure(&Bad { text: name, name, why: Why::Name }))
}

/// The locks that a program can run with.
fn names() -> impl Iterator<Item = &'static str> {
    CATALOG.iter().map(|entry| entry.id).chain([GLIBC])
}

/// The locks that can be explained, simulated and explored.
fn any_names() -> impl Iterator<Item = &'static str> {
    catalog::all().map(|entry| entry.id).chain([GLIBC])
}

/// Is it neither a lock or a policy, nor like one?
pub(crate) fn is_no_lock(word: &str) -> bool {
    let name = word.split(':').next().unwrap_or(word);
    find_any(name).is_none() && of_ours(name).is_none() && nearest(name, names()).is_none()
}

fn failure(bad: &Bad<'_>) -> Failure {
    // The name is valid, but not for mutexes.
    if let Some(entry) = find_any(bad.name).filter(|_| bad.why == Why::Name) {
        let kind = match entry.kind {
            Kind::Delegated => "delegated lock, which runs sections that the program hands over",
            _ => "readers-writer lock",
        };
        let hint = match bad.name {
            RWLOCK => {
                "lockwright list; who goes first there: lockwright run --rwlock patient -- PROGRAM"
            }
            _ => "lockwright list",
        };
        return Failure::new(format!("'{}' is a {kind}; it can't serve mutexes", bad.name))
            .hint(hint);
    }
    if let Some((policy, words)) = policy(bad) {
        return Failure::new(format!("'{}' is a policy, not a lock", bad.text)).hint(format!(
            "lockwright run --policy {policy} -- PROGRAM, or lockwright policy load {words} --pid PID"
        ));
    }
    let (message, hint) = advice(bad, names());
    Failure::new(message).hint(hint)
}

/// The policy that is named where a lock should be: for `run --policy`, and in the words of `lockwright policy`.
fn policy<'a>(bad: &Bad<'a>) -> Option<(&'a str, String)> {
    let ours = || of_ours(bad.text).map(|policy| (bad.text, policy.name.to_owned()));
    slots::words(bad.text).or_else(ours).filter(|_| bad.why == Why::Name)
}

fn any_failure(bad: &Bad<'_>) -> Failure {
    if let Some((_, words)) = policy(bad) {
        return Failure::new(format!("'{}' is a policy, not a lock", bad.text))
            .hint(format!("lockwright policy run {words} --machine m1"));
    }
    let (message, hint) = advice(bad, any_names());
    Failure::new(message).hint(hint)
}

/// Names for the shell's completion.
pub(crate) const SPEC: Names = Names(|| names().map(str::to_owned).collect());

/// Names for completion, including readers-writer locks.
pub(crate) const ANY: Names = Names(|| any_names().map(str::to_owned).collect());

/// The word that stands for every lock.
pub(crate) const ALL: &str = "all";

/// Names for completion, including subjects that only `explore` has.
pub(crate) const SUBJECT: Names =
    Names(|| any_names().chain([ALL, RUNTIME]).map(str::to_owned).collect());

/// Prints one warning if any of these specifications names a textbook lock: its slowness looks like a hang. `instead`
/// is the command with another lock.
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

/// The mutex lock with its options, or an error message.
pub(crate) fn check(spec: &str) -> Result<Spec<'_>, Failure> {
    Spec::parse(spec).map_err(|bad| failure(&bad))
}

/// The mutex or readers-writer lock with its options, or an error message.
pub(crate) fn check_any(spec: &str) -> Result<Spec<'_>, Failure> {
    Spec::parse_any(spec).map_err(|bad| any_failure(&bad))
}

/// Checks a rule's lock, and whether the rules' `targets` can have it.
pub(crate) fn check_rule(lock: &str, targets: &[String]) -> Result<(), Failure> {
    let is_kind = |target: &String| target.starts_with(&format!("kind:{RWLOCK}+"));
    if !is_rwlocks(lock) {
        check(lock)?;
        return match targets.iter().any(is_kind) {
            true => Err(Failure::new(format!("'{lock}' serves mutexes, not readers-writer locks"))
                .hint(format!("{RWLOCK}:prefer=WHO, with {}", Prefer::NAMES.join(", ")))),
            false => Ok(()),
        };
    }
    preference(lock)?;
    let fits = |target: &String| target.starts_with("mutex:") || is_kind(target);
    match targets.iter().all(fits) {
        true => Ok(()),
        false => Err(Failure::new(format!(
            "'{lock}' is for readers-writer locks by their names, or for all"
        ))
        .hint(format!("the variable's name, its address, or kind:{RWLOCK}"))),
    }
}

/// The preference of `rwlock:prefer=WHO`.
pub(crate) fn preference(lock: &str) -> Result<&'static str, Failure> {
    let spec = check_any(lock)?;
    match spec.options().collect::<Vec<_>>()[..] {
        [(option, number)] if option.key == PREFER.key => Ok(Prefer::NAMES[number as usize]),
        _ => Err(Failure::new(format!(
            "'{lock}': a program's readers-writer locks have the option prefer"
        ))
        .hint(format!("{RWLOCK}:prefer=WHO, with {}", Prefer::NAMES.join(", ")))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preferences_are_for_readers_writer_locks_and_other_locks_are_not() {
        let targets = |target: &str| [target.to_owned()];
        let all = targets("kind:rwlock+0x0-0xffffffffffffffff");
        let one = targets("mutex:server+0x10-0x48");
        for (lock, targets, is_fine) in [
            ("rwlock:prefer=patient", &all, true),
            ("rwlock:prefer=3", &one, true),
            ("rwlock:prefer=2", &targets("lib:libfoo.so"), false),
            ("rwlock:prefer=2", &targets("kind:normal+0x0-0xff"), false),
            ("rwlock", &all, false),
            ("rwlock:spin=5", &all, false),
            ("rwlock:prefer=nobody", &all, false),
            ("fifo", &all, false),
            ("fifo", &one, true),
        ] {
            assert_eq!(check_rule(lock, targets).is_ok(), is_fine, "{lock} {targets:?}");
        }
    }
}
