//! Parses the values of a study's command line: locks, machines, workloads, threads, CPUs, times.

use crate::catalog;
use crate::hints::{Failure, cause, nearest};
use crate::policy::simulated;
use lockwright_locks::catalog::CATALOG;
use lockwright_locks::spec::GLIBC;
use lockwright_numbers::units;
use lockwright_sim::load::Workload;
use lockwright_sim::profile::{BUILTIN, Profile, builtin};
use lockwright_sim::sweep;
use lockwright_sim::workload::WORKLOADS;
use lockwright_sim::{LockSpec, Placement};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Maximum number of threads in a run.
pub(super) const MANY_THREADS: u32 = 1024;

/// A workload, with values for its options.
pub(crate) type Chosen = (&'static Workload, BTreeMap<String, f64>);

/// The error for an unknown name, with the nearest known one as a hint. `all` is the command that lists them.
pub(super) fn unknown<'a>(
    message: String,
    word: &str,
    known: impl IntoIterator<Item = &'a str>,
    all: &str,
) -> Failure {
    let failure = Failure::new(message);
    match nearest(word, known) {
        Some(close) => failure.hint(format!("did you mean '{close}'? {all}")),
        None => failure.hint(all),
    }
}

/// Shows all machines and workloads.
const LIST: &str = "lockwright sim --list";

/// A duration in ns.
pub(super) fn time(flag: &str, text: &str) -> Result<u64, Failure> {
    units::nanoseconds(text).map_err(|why| {
        Failure::new(format!("bad {flag} '{text}': {why}")).hint(format!("for example {flag} 5ms"))
    })
}

/// The locks of `--lock`.
pub(super) fn locks(words: &[String]) -> Result<Vec<LockSpec>, Failure> {
    let mut all: Vec<LockSpec> = Vec::new();
    for word in words.iter().flat_map(|words| catalog::split(words)) {
        let names = match word.as_str() {
            "all" => {
                CATALOG.iter().map(|entry| entry.id.to_owned()).chain([GLIBC.into()]).collect()
            }
            _ => vec![word],
        };
        for name in names {
            let spec = simulated::lock(&name)?;
            let spec = spec.map_or_else(|| catalog::check_any(&name).map(LockSpec::from), Ok)?;
            if all.iter().all(|lock| lock.name() != name) {
                all.push(spec);
            }
        }
    }
    if all.is_empty() {
        return Err(Failure::new("no lock is named").hint("--lock mcs,asl; lockwright list"));
    }
    Ok(all)
}

/// The machines of `--machine`, each with the word that named it.
pub(crate) fn machines(words: &[String]) -> Result<Vec<(String, Arc<Profile>)>, Failure> {
    let mut all: Vec<(String, Arc<Profile>)> = Vec::new();
    for word in words.iter().flat_map(|words| words.split(',')).map(str::trim) {
        if !word.is_empty() && all.iter().all(|(other, _)| other != word) {
            all.push((word.to_owned(), Arc::new(machine(word)?)));
        }
    }
    if all.is_empty() {
        return Err(Failure::new("no machine is named").hint("lockwright sim --list"));
    }
    Ok(all)
}

/// The name of this machine's profile, as measured by `lockwright sim --calibrate`.
const HERE: &str = "here";

/// The built-in machine with that name, or the machine in that file.
pub(crate) fn machine(word: &str) -> Result<Profile, Failure> {
    if let Some(profile) = builtin(word) {
        return Ok(profile);
    }
    if word == HERE {
        return file("here.toml")
            .map_err(|failure| failure.hint("lockwright sim --calibrate writes it"));
    }
    if !word.contains('/') && !word.ends_with(".toml") {
        let known = BUILTIN.iter().map(|(name, _)| *name);
        return Err(unknown(format!("unknown machine '{word}'"), word, known.chain([HERE]), LIST));
    }
    file(word)
}

/// Maximum size of a profile's file.
const MANY_BYTES: u64 = 1 << 20;

/// The text of a profile's file. Devices and pipes are refused: reading them might never end.
pub(crate) fn text(path: &Path) -> io::Result<String> {
    lockwright_files::read_text(path, MANY_BYTES)
}

fn file(word: &str) -> Result<Profile, Failure> {
    let text = text(Path::new(word)).map_err(|error| {
        Failure::new(format!("cannot read machine '{word}': {}", cause(&error)))
            .hint("lockwright sim --list")
    })?;
    profile(&text).map_err(|why| {
        Failure::new(format!("machine '{word}': {why}"))
            .hint("lockwright sim --machine m1 --list shows every figure that a machine has")
    })
}

/// Parses a profile. The error is one line.
pub(crate) fn profile(text: &str) -> Result<Profile, String> {
    Profile::parse(text).map_err(|error| {
        // TOML's message also shows the place in the file; keep only its first line.
        let text = error.to_string();
        let lines: Vec<_> = text.lines().map(str::trim).collect();
        let why = match lines[..] {
            [place, .., why] if !why.is_empty() => format!("{place}: {why}"),
            _ => lines.join(" "),
        };
        // The message quotes the file. Remove control characters, which a terminal would interpret.
        why.chars().filter(|c| !c.is_control()).collect()
    })
}

/// The workloads of `--workload`, with their options.
pub(super) fn workloads(words: &[String]) -> Result<Vec<Chosen>, Failure> {
    let mut all: Vec<Chosen> = Vec::new();
    for word in words.iter().flat_map(|words| catalog::split(words)) {
        let one = workload(&word)?;
        if all.iter().all(|(what, params)| what.id != one.0.id || *params != one.1) {
            all.push(one);
        }
    }
    if all.is_empty() {
        return Err(Failure::new("no workload is named").hint("lockwright sim --list"));
    }
    Ok(all)
}

/// The workload with this name; otherwise an error whose hint names the nearest one.
pub(crate) fn workload_named(name: &str) -> Result<&'static Workload, Failure> {
    lockwright_sim::workload::find(name).ok_or_else(|| {
        let known = WORKLOADS.iter().map(|workload| workload.id);
        unknown(format!("unknown workload '{name}'"), name, known, LIST)
    })
}

fn workload(word: &str) -> Result<Chosen, Failure> {
    let (name, options) = word.split_once(':').unwrap_or((word, ""));
    let what = workload_named(name)?;
    let mut params = BTreeMap::new();
    for option in options.split(',').filter(|_| word.contains(':')) {
        // The example uses the option that the user meant, if we can tell.
        let bad = |why: String| {
            let key = option.split('=').next().unwrap_or(option);
            let close = nearest(key, what.params.iter().map(|spec| spec.key));
            let meant = what.params.iter().find(|spec| Some(spec.key) == close);
            let example = meant.or(what.params.first()).map_or(name.to_owned(), |spec| {
                let value = if (spec.min..=spec.max).contains(&spec.default) {
                    spec.default
                } else {
                    spec.max
                };
                format!("{name}:{}={value}", spec.key)
            });
            Failure::new(format!("workload '{word}': {why}"))
                .hint(format!("for example '{example}'; lockwright sim --workload {name} --list"))
        };
        let (key, value) = option
            .split_once('=')
            .ok_or_else(|| bad(format!("option '{option}' is not key=value")))?;
        let spec =
            what.params.iter().find(|spec| spec.key == key).ok_or_else(|| {
                match nearest(key, what.params.iter().map(|spec| spec.key)) {
                    Some(close) => bad(format!("no option '{key}', did you mean '{close}'?")),
                    None => bad(format!("no option '{key}'")),
                }
            })?;
        let value = sweep::number(value).map_err(|why| bad(format!("'{key}': {why}")))?;
        if !(spec.min..=spec.max).contains(&value) {
            return Err(bad(format!("'{option}' is not within {} to {}", spec.min, spec.max)));
        }
        params.insert(key.to_owned(), value);
    }
    Ok((what, params))
}

/// Parses `1,4,8`, `1..8` and `max`.
pub(super) fn thread_counts(text: &str, cpus: u32) -> Result<Vec<u32>, Failure> {
    let bad = |why: String| {
        Failure::new(format!("bad --threads '{text}': {why}"))
            .hint("for example --threads 1,4,8, --threads 1..8, --threads max")
    };
    let count = |word: &str| match word.trim().parse::<u32>() {
        _ if word.trim() == "max" => Ok(cpus),
        Ok(count) if (1..=MANY_THREADS).contains(&count) => Ok(count),
        Err(_) if word.trim().parse::<f64>().is_err() => {
            Err(bad(format!("'{}' is not a number", word.trim())))
        }
        _ => Err(bad(format!("'{}' is not within 1 to {MANY_THREADS}", word.trim()))),
    };
    let mut all: Vec<u32> = Vec::new();
    for word in text.split(',').filter(|word| !word.trim().is_empty()) {
        let (first, last) = match word.split_once("..") {
            Some((first, last)) => (count(first)?, count(last)?),
            None => (count(word)?, count(word)?),
        };
        if first > last {
            return Err(bad(format!("'{}' goes backwards", word.trim())));
        }
        all.extend((first..=last).filter(|count| !all.contains(count)).collect::<Vec<_>>());
    }
    if all.is_empty() { Err(bad("no number in it".into())) } else { Ok(all) }
}

/// Parses the placement for all these machines, whose names are given for messages.
pub(super) fn placement(
    text: &str,
    machines: &[Arc<Profile>],
    names: &[String],
) -> Result<Placement, Failure> {
    let bad = |why: String| {
        Failure::new(format!("bad --placement '{text}': {why}")).hint(format!(
            "pinned, free, or CPUs as in 0-3,6; lockwright sim --machine {} --list shows them",
            names[0]
        ))
    };
    match text {
        "pinned" => return Ok(Placement::Pinned),
        "free" => return Ok(Placement::Free),
        _ => {}
    }
    let number = |word: &str| {
        let number = word.trim().parse::<u32>();
        number.map_err(|_| bad(format!("'{}' is no CPU number", word.trim())))
    };
    let mut cpus = Vec::new();
    for word in text.split(',') {
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        let (first, last) = (number(first)?, number(last)?);
        for profile in machines {
            let most = profile.cpus() - 1;
            if first.max(last) > most {
                let far = first.max(last);
                return Err(bad(format!("no CPU {far} on '{}', only 0 to {most}", profile.name)));
            }
        }
        if first > last {
            return Err(bad(format!("'{word}' goes backwards")));
        }
        cpus.extend(first..=last);
    }
    Ok(Placement::Cpus(cpus))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_about_a_file_is_one_line_that_a_terminal_can_show() {
        let why = profile("\"\\u001b[31m\\nred\" = 1\n").unwrap_err();
        assert!(why.contains("red") && !why.contains(char::is_control), "{why:?}");
    }

    #[test]
    fn threads_are_counted() {
        let read = |text| thread_counts(text, 8).map_err(|failure| failure.to_string());
        assert_eq!(read("1,4, 8").unwrap(), [1, 4, 8]);
        assert_eq!(read("1..3,max,2").unwrap(), [1, 2, 3, 8]);
        assert_eq!(read("6..max").unwrap(), [6, 7, 8]);
        for bad in ["", "0", "x", "1025", "3..1", "-1", "1..", "1.5"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
