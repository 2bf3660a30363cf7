//! The instruction with which spinning waiters pause: those that this processor has, and the one that the user chose.

use crate::hints::{Failure, warn};
use crate::machine;
use lockwright_native::pause::Pause;
use std::env;

/// The variable that the library reads.
pub(crate) const VARIABLE: &str = "LOCKWRIGHT_PAUSE";

/// The kind of pause with that name, if this processor has it. `who` names the source of the request.
fn checked(name: &str, who: &str) -> Result<Pause, Failure> {
    let names = |kinds: &mut dyn Iterator<Item = Pause>| {
        kinds.map(Pause::name).collect::<Vec<_>>().join(", ")
    };
    let Some(kind) = Pause::named(name.as_bytes()) else {
        let known = names(&mut Pause::ALL.into_iter());
        return Err(Failure::new(format!("unknown pause '{name}' ({who})"))
            .hint(format!("one of {known}; lockwright doctor --topology")));
    };
    if kind.is_here() {
        return Ok(kind);
    }
    let here = names(&mut Pause::ALL.into_iter().filter(|kind| kind.is_here()));
    Err(Failure::new(format!("this processor lacks '{name}' ({who})"))
        .hint(format!("one of {here}; lockwright doctor --topology")))
}

/// The pause that a program should use: from the option, or else from the inherited variable, or else from the
/// machine's file. `None`: none of them names one.
pub(crate) fn wanted(asked: Option<&str>) -> Result<Option<Pause>, Failure> {
    if let Some(name) = asked {
        return checked(name, "--pause").map(Some);
    }
    if let Some(name) = env::var_os(VARIABLE).filter(|name| !name.is_empty()) {
        return checked(&name.to_string_lossy(), VARIABLE).map(Some);
    }
    let Some(name) = machine::MachineFile::here().and_then(|machine| machine.pause) else {
        return Ok(None);
    };
    // Home folders may be shared between machines, so a file that doesn't fit only causes a warning.
    let ignored = |failure: Failure| {
        let text = failure.to_string();
        let why = text.lines().next().unwrap_or_default().to_owned();
        warn(
            format!("{why}: ignored"),
            "lockwright sim --calibrate --write; lockwright doctor --topology",
        );
    };
    Ok(checked(&name, "machine.toml").map_err(ignored).ok())
}

/// One line with this processor's pauses: `pause, mfence; not on this processor, untested here: tpause, ...`.
pub(crate) fn words() -> String {
    let of = |is_here: bool| {
        let kinds = Pause::ALL.into_iter().filter(|kind| kind.is_here() == is_here);
        let names = kinds.map(|kind| match is_here && !kind.is_tested() {
            true => format!("{} (untested)", kind.name()),
            false => kind.name().to_owned(),
        });
        names.collect::<Vec<_>>().join(", ")
    };
    format!("{}; not on this processor, untested here: {}", of(true), of(false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_that_nobody_knows_or_that_are_not_here_are_refused() {
        let said = |name: &str| match checked(name, "--pause") {
            Ok(kind) => kind.name().to_owned(),
            Err(failure) => failure.to_string(),
        };
        assert_eq!(said("mfence"), "mfence");
        assert!(said("nap").contains("unknown pause 'nap' (--pause)"), "{}", said("nap"));
        for kind in Pause::ALL.into_iter().filter(|kind| !kind.is_here()) {
            assert!(said(kind.name()).contains("this processor lacks"), "{}", said(kind.name()));
        }
        let words = words();
        assert!(words.starts_with("pause, mfence"), "{words}");
        assert!(Pause::ALL.into_iter().all(|kind| words.contains(kind.name())), "{words}");
    }
}
