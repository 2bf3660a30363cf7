//! The locks that a run compares, as the command line names them.

use crate::names::{LOCKS, advice};
use crate::spec::{Answer, InForce, Lock};
use anyhow::{Error, Result, anyhow, bail};
use lockwright_locks::catalog::{CATALOG, DELEGATED, find_any, find_read_write};
use lockwright_locks::entry::Kind;
use lockwright_locks::spec::{Bad, GLIBC, Spec, Why};
use lockwright_text::cause;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// The lock's role in the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Role {
    /// glibc's own lock, the reference of all ratios.
    Reference,
    /// Ours, through the preload.
    Ours,
    /// From the catalogue, compiled into the worker.
    InProcess,
    /// A lock from another project.
    Peer,
    /// Not a choice for users: shows the maximum rate of a point.
    Ceiling,
}

/// One lock of the comparison.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Subject {
    /// Its name in the reports.
    pub name: String,
    /// Its role in the comparison.
    pub role: Role,
    /// The lock that the worker measures.
    pub lock: Lock,
    /// The library that the worker preloads.
    pub preload: Option<PathBuf>,
    /// The value of LOCKWRIGHT_LOCK.
    pub choice: Option<String>,
    /// For a ceiling: the number of threads, instead of the point's. Each is bound to its own CPU, the fastest first.
    pub alone: Option<u32>,
}

/// The lock of the ceilings: nothing is simpler, and its holder's core retakes it most easily.
const TEST_AND_SET: &str = "tas";

impl Subject {
    /// glibc's lock.
    pub(crate) fn glibc() -> Subject {
        Subject {
            name: GLIBC.into(),
            role: Role::Reference,
            lock: Lock::Pthread,
            preload: None,
            choice: None,
            alone: None,
        }
    }

    /// glibc's algorithm in our library. It can run on emulated little cores, unlike glibc's own code.
    pub(crate) fn glibc_emulated(library: &Path) -> Subject {
        Subject {
            preload: Some(library.to_owned()),
            choice: Some(GLIBC.into()),
            ..Subject::glibc()
        }
    }

    /// The lock called `name`: `glibc`, `parking_lot`, `std`, `in:LOCK` or `LOCK[:key=value,...]`.
    pub(crate) fn parse(name: &str, library: Result<&Path, &str>) -> Result<Subject> {
        let peer = |lock| Subject {
            name: name.into(),
            role: Role::Peer,
            lock,
            preload: None,
            choice: None,
            alone: None,
        };
        match name {
            GLIBC => return Ok(Subject::glibc()),
            "parking_lot" => return Ok(peer(Lock::ParkingLot)),
            "std" => return Ok(peer(Lock::Std)),
            _ => {}
        }
        if let Some(id) = name.strip_prefix("in:") {
            find_any(id).ok_or_else(|| bad(&Bad { text: name, name, why: Why::Name }))?;
            return Ok(Subject { role: Role::InProcess, ..peer(Lock::Catalogue(id.into())) });
        }
        if find_read_write(name).is_some() {
            bail!(
                "'{name}' is a readers-writer lock\nhint: lockwright bench --workload rwlock --lock in:{name}"
            );
        }
        if DELEGATED.iter().any(|entry| entry.id == name) {
            bail!(
                "'{name}' runs sections that a program hands over, so the preload can't serve mutexes by it\nhint: lockwright bench --lock in:{name}"
            );
        }
        Spec::parse(name).map_err(|why| bad(&why))?;
        let library = library.map_err(|why| Error::msg(why.to_owned()))?;
        Ok(Subject {
            role: Role::Ours,
            preload: Some(library.to_owned()),
            choice: Some(name.into()),
            ..peer(Lock::Pthread)
        })
    }

    /// Shows the rate of `threads` pinned threads with a test-and-set lock. The lock is compiled in or, for emulated
    /// cores, run by the `library` that slows them down.
    pub(crate) fn ceiling(threads: u32, library: Option<&Path>) -> Subject {
        let cpus = if threads == 1 { "one CPU".into() } else { format!("{threads} CPUs") };
        let how = if library.is_some() { ", emulated" } else { "" };
        Subject {
            name: format!("ceiling, {cpus}{how}"),
            role: Role::Ceiling,
            lock: match library {
                None => Lock::Catalogue(TEST_AND_SET.into()),
                Some(_) => Lock::Pthread,
            },
            preload: library.map(Path::to_owned),
            choice: library.map(|_| TEST_AND_SET.into()),
            alone: Some(threads),
        }
    }

    /// A peer given as `NAME=/path/lib.so`.
    pub(crate) fn parse_peer(text: &str) -> Result<Subject> {
        let Some((name, path)) =
            text.split_once('=').filter(|(n, p)| !n.is_empty() && !p.is_empty())
        else {
            bail!(
                "'{text}' is not NAME=LIBRARY\nhint: --peer mutexee=/usr/local/lib/libmutexee.so"
            );
        };
        let path = Path::new(path).canonicalize().map_err(|why| {
            anyhow!("cannot use '{path}' as a peer: {}\nhint: ls -l {path}", cause(&why))
        })?;
        Ok(Subject {
            name: name.into(),
            role: Role::Peer,
            lock: Lock::Pthread,
            preload: Some(path),
            choice: None,
            alone: None,
        })
    }

    /// The default subjects: the front locks, and the strongest peers.
    pub(crate) fn defaults(library: Result<&Path, &str>) -> Result<Vec<Subject>> {
        let front = CATALOG.iter().filter(|e| e.kind == Kind::Front).map(|e| e.id);
        front
            .chain(["in:ttas", "parking_lot", "std"])
            .map(|name| Subject::parse(name, library))
            .collect()
    }

    /// Every lock, both in process and through the preload.
    pub(crate) fn all(library: Result<&Path, &str>) -> Result<Vec<Subject>> {
        let ids = || CATALOG.iter().map(|e| e.id.to_owned());
        let mut names: Vec<String> = ids().collect();
        names.extend(ids().map(|id| format!("in:{id}")));
        names.extend(DELEGATED.iter().map(|entry| format!("in:{}", entry.id)));
        names.extend(["parking_lot", "std"].map(String::from));
        names.iter().map(|name| Subject::parse(name, library)).collect()
    }

    /// Did the worker run this subject's lock, according to its `answer`? If not, the reason and a hint.
    pub(crate) fn ran(&self, answer: &Answer) -> Result<(), (String, String)> {
        let Answer { provider, in_force, .. } = answer;
        let is_its_own = match &self.preload {
            Some(library) => library.file_name().is_some_and(|n| n.to_string_lossy() == *provider),
            None => provider.starts_with("libc.") || provider.starts_with("libpthread"),
        };
        let library = self.preload.as_deref().unwrap_or("".as_ref()).display();
        if !is_its_own {
            return Err((
                format!("pthread_mutex_lock came from '{provider}'"),
                match &self.preload {
                    Some(_) => format!("check that the library loads: LD_PRELOAD={library} true"),
                    None => "cat /etc/ld.so.preload".into(),
                },
            ));
        }
        let Some(choice) = &self.choice else { return Ok(()) };
        let build = "cargo build --release -p lockwright-preload";
        match in_force {
            InForce::Locks { default, rules } if default == choice && rules.is_empty() => Ok(()),
            InForce::Locks { default, rules } => Err((
                match rules.is_empty() {
                    true => format!("the library ran '{default}', not '{choice}'"),
                    false => format!("the library ran '{default}' and rules for single mutexes"),
                },
                format!("see what it says: LOCKWRIGHT_LOCK={choice} LD_PRELOAD={library} true"),
            )),
            InForce::Aside => Err((
                "the library stood aside for a tool that knows only glibc's locks".into(),
                "run it without valgrind, and without a sanitizer".into(),
            )),
            InForce::NoLibrary => {
                Err((format!("'{provider}' does not say which locks it runs"), build.into()))
            }
            InForce::OtherVersion => Err((
                format!("'{provider}' is a different version from this command"),
                build.into(),
            )),
        }
    }
}

fn bad(bad: &Bad<'_>) -> Error {
    let names = (LOCKS.0)();
    let (message, hint) = advice(bad, names.iter().map(String::as_str));
    anyhow!("{message}\nhint: {hint}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_where_the_lock_stands() {
        let so = Path::new("/lib/liblockwright.so");
        assert_eq!(Subject::parse("glibc", Err("")).unwrap().role, Role::Reference);
        assert_eq!(Subject::parse("in:mcs", Err("")).unwrap().role, Role::InProcess);
        let ours = Subject::parse("fifo", Ok(so)).unwrap();
        assert_eq!((ours.role, ours.choice.as_deref()), (Role::Ours, Some("fifo")));
    }

    /// A worker's answer about the lock that it ran.
    fn answer(provider: &str, in_force: InForce) -> Answer {
        Answer { provider: provider.into(), in_force, ..Answer::default() }
    }

    #[test]
    fn a_worker_has_run_what_it_was_asked_to_or_is_found_out() {
        let so = Path::new("/lib/liblockwright.so");
        let locks = |default: &str, rules: &str| InForce::Locks {
            default: default.into(),
            rules: rules.into(),
        };
        let fifo = Subject::parse("fifo:bypass=8", Ok(so)).unwrap();
        let why = |subject: &Subject, provider, in_force| {
            subject.ran(&answer(provider, in_force)).err().map(|(why, _)| why)
        };
        let ours = |in_force| why(&fifo, "liblockwright.so", in_force);
        assert_eq!(ours(locks("fifo:bypass=8", "")), None);
        // What the library does with an unknown option or name.
        let glibc = "the library ran 'glibc', not 'fifo:bypass=8'";
        assert_eq!(ours(locks("glibc", "")).as_deref(), Some(glibc));
        assert!(ours(locks("fifo", "")).is_some() && ours(locks("fifo:bypass=8", "x")).is_some());
        for other in [InForce::Aside, InForce::NoLibrary, InForce::OtherVersion] {
            assert!(ours(other.clone()).is_some(), "{other:?}");
        }
        let libc = why(&fifo, "libc.so.6", locks("fifo:bypass=8", ""));
        assert_eq!(libc.as_deref(), Some("pthread_mutex_lock came from 'libc.so.6'"));
        assert_eq!(why(&Subject::glibc(), "libc.so.6", InForce::NoLibrary), None);
        assert!(why(&Subject::glibc(), "liblockwright.so", locks("auto", "")).is_some());
        // Under emulation, the library runs glibc's algorithm and the ceiling's lock.
        let glibc = Subject::glibc_emulated(so);
        assert_eq!(why(&glibc, "liblockwright.so", locks("glibc", "")), None);
        assert!(why(&glibc, "liblockwright.so", locks("auto", "")).is_some());
        let ceiling = Subject::ceiling(2, Some(so));
        assert_eq!(why(&ceiling, "liblockwright.so", locks("tas", "")), None);
        assert_eq!(why(&Subject::ceiling(2, None), "libc.so.6", InForce::NoLibrary), None);
    }

    #[test]
    fn bad_names_get_a_hint() {
        let said = |name| Subject::parse(name, Ok(Path::new("/x.so"))).unwrap_err().to_string();
        let close = |name| format!("hint: did you mean '{name}'? `lockwright list` shows all");
        assert_eq!(said("fifi"), format!("unknown lock 'fifi'\n{}", close("fifo")));
        assert_eq!(said("in:msc"), format!("unknown lock 'in:msc'\n{}", close("in:mcs")));
        assert_eq!(said("in:fifo:spin=1"), "unknown lock 'in:fifo:spin=1'\nhint: lockwright list");
        assert_eq!(said("std:spin=1"), "unknown lock 'std'\nhint: lockwright list");
        let kind = "'bravo' is a readers-writer lock\nhint: lockwright bench --workload rwlock --lock in:bravo";
        assert_eq!(said("bravo"), kind);
        let option = said("fifo:spni=1");
        let start = "lock 'fifo:spni=1': no option 'spni', did you mean 'spin'?\n\
                     hint: for example 'fifo:spin=";
        assert!(option.starts_with(start), "{option}");
        let without = Err("cannot find it\nhint: build it");
        let cause = Subject::parse("auto", without).unwrap_err().to_string();
        assert_eq!(cause, "cannot find it\nhint: build it");
        assert!(Subject::defaults(without).is_err() && Subject::all(without).is_err());
        let peer = Subject::parse_peer("x=/no/such/lib.so").unwrap_err().to_string();
        assert!(peer.starts_with("cannot use '/no/such/lib.so' as a peer: no such file"), "{peer}");
    }
}
