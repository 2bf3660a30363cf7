//! Who goes first at readers-writer locks: the checks of `--rwlock WHO` and its variable, and of `rwlock:prefer=WHO` where a rule names a lock.

use crate::catalog;
use crate::hints::{Failure, nearest};
use lockwright_locks::rw::{PREFER, Prefer};
use lockwright_record::mailbox::RWLOCK;
use std::env;

/// The variable that the library reads.
pub(crate) const VARIABLE: &str = "LOCKWRIGHT_RWLOCK";
/// As the program asks.
pub(crate) const OWN: &str = "own";

/// Checks the name of a preference; `who` names the source of the request.
pub(crate) fn checked(name: &str, who: &str) -> Result<(), Failure> {
    let names = || [OWN].into_iter().chain(Prefer::NAMES);
    if names().any(|known| known == name) {
        return Ok(());
    }
    let all = names().collect::<Vec<_>>().join(", ");
    let near = nearest(name, names());
    let near = near.map(|near| format!("did you mean '{near}'? ")).unwrap_or_default();
    Err(Failure::new(format!("unknown preference '{name}' ({who})"))
        .hint(format!("{near}one of {all}; lockwright explain {RWLOCK}")))
}

/// Checks `--rwlock`, or else the inherited variable. `lock`: the lock of mutexes that the user asks for.
pub(crate) fn check(asked: Option<&str>, lock: Option<&str>) -> Result<(), Failure> {
    let Some(name) = asked else {
        let inherited = env::var_os(VARIABLE).filter(|name| !name.is_empty());
        return inherited.map_or(Ok(()), |name| checked(&name.to_string_lossy(), VARIABLE));
    };
    checked(name, "--rwlock")?;
    match lock {
        Some("glibc") => Err(Failure::new("--rwlock: with --lock glibc, glibc serves all locks")
            .hint(format!("lockwright run --rwlock {name} -- PROGRAM"))),
        _ => Ok(()),
    }
}

/// Checks a rule's lock, and whether the rules' `targets` can have it: `catalog` checks the lock of mutexes.
pub(crate) fn check_rule(lock: &str, targets: &[String]) -> Result<(), Failure> {
    let is_kind = |target: &String| target.starts_with(&format!("kind:{RWLOCK}+"));
    if !catalog::is_rwlocks(lock) {
        catalog::check(lock)?;
        return match targets.iter().any(is_kind) {
            true => Err(Failure::new(format!("'{lock}' serves mutexes, not readers-writer locks"))
                .hint(format!("{RWLOCK}:prefer=WHO, with {}", Prefer::NAMES.join(", ")))),
            false => Ok(()),
        };
    }
    who(lock)?;
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
pub(crate) fn who(lock: &str) -> Result<&'static str, Failure> {
    let spec = catalog::check_any(lock)?;
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
