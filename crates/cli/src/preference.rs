//! Who goes first at readers-writer locks: `--rwlock WHO`, and its variable. (`rwlock:prefer=WHO` in a rule: `catalog`.)

use crate::hints::{Failure, nearest};
use lockwright_contract::mailbox::RWLOCK;
use lockwright_locks::rw::Prefer;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_names_of_preferences_are_taken() {
        for name in [OWN].into_iter().chain(Prefer::NAMES) {
            checked(name, "--rwlock").unwrap();
        }
        let failure = checked("pacient", "--rwlock").unwrap_err();
        assert_eq!(failure.message(), "unknown preference 'pacient' (--rwlock)");
    }
}
