//! The locks that a run compares, as the command line names them.

use crate::format::plain;
use crate::names::{LOCKS, advice};
use crate::spec::Lock;
use anyhow::{Error, Result, anyhow, bail};
use lockwright_locks::catalog::{CATALOG, find};
use lockwright_locks::entry::Kind;
use lockwright_locks::spec::{Bad, GLIBC, Spec, Why};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// What a lock is to the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Role {
    /// glibc's own: what all ratios refer to.
    Reference,
    /// Ours, through the preload.
    Ours,
    /// From the catalogue, compiled into the worker.
    InProcess,
    /// Somebody else's.
    Peer,
}

/// One lock of the comparison.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Subject {
    /// Its name in the reports.
    pub name: String,
    /// What it is to the comparison.
    pub role: Role,
    /// What the worker measures.
    pub lock: Lock,
    /// The library that the worker gets by LD_PRELOAD.
    pub preload: Option<PathBuf>,
    /// The value of LOCKWRIGHT_LOCK.
    pub choice: Option<String>,
}

impl Subject {
    /// glibc's lock.
    pub(crate) fn glibc() -> Subject {
        Subject {
            name: GLIBC.into(),
            role: Role::Reference,
            lock: Lock::Pthread,
            preload: None,
            choice: None,
        }
    }

    /// glibc's algorithm on our code: it can be emulated on little cores, which glibc's own code can't.
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
        };
        match name {
            GLIBC => return Ok(Subject::glibc()),
            "parking_lot" => return Ok(peer(Lock::ParkingLot)),
            "std" => return Ok(peer(Lock::Std)),
            _ => {}
        }
        if let Some(id) = name.strip_prefix("in:") {
            find(id).ok_or_else(|| bad(&Bad { text: name, name, why: Why::Name }))?;
            return Ok(Subject { role: Role::InProcess, ..peer(Lock::Catalogue(id.into())) });
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

    /// A peer given as `NAME=/path/lib.so`.
    pub(crate) fn parse_peer(text: &str) -> Result<Subject> {
        let Some((name, path)) =
            text.split_once('=').filter(|(n, p)| !n.is_empty() && !p.is_empty())
        else {
            bail!(
                "'{text}' is not NAME=LIBRARY\nhint: --peer mutexee=/usr/local/lib/libmutexee.so"
            );
        };
        let path = Path::new(path).canonicalize().map_err(|cause| {
            anyhow!("cannot use '{path}' as a peer: {}\nhint: ls -l {path}", plain(&cause))
        })?;
        Ok(Subject {
            name: name.into(),
            role: Role::Peer,
            lock: Lock::Pthread,
            preload: Some(path),
            choice: None,
        })
    }

    /// What is compared if nobody says: the front locks, and the strongest peers.
    pub(crate) fn defaults(library: Result<&Path, &str>) -> Result<Vec<Subject>> {
        let front = CATALOG.iter().filter(|e| e.kind == Kind::Front).map(|e| e.id);
        front
            .chain(["in:ttas", "parking_lot", "std"])
            .map(|name| Subject::parse(name, library))
            .collect()
    }

    /// Every lock, in process and through the preload.
    pub(crate) fn all(library: Result<&Path, &str>) -> Result<Vec<Subject>> {
        let ids = || CATALOG.iter().map(|e| e.id.to_owned());
        let mut names: Vec<String> = ids().collect();
        names.extend(ids().map(|id| format!("in:{id}")));
        names.extend(["parking_lot", "std"].map(String::from));
        names.iter().map(|name| Subject::parse(name, library)).collect()
    }

    /// Does `provider` (a file name) look like what this subject should run on?
    pub(crate) fn provided_by(&self, provider: &str) -> bool {
        match &self.preload {
            Some(library) => library.file_name().is_some_and(|n| n.to_string_lossy() == provider),
            None => provider.starts_with("libc.") || provider.starts_with("libpthread"),
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
        assert!(ours.provided_by("liblockwright.so") && !ours.provided_by("libc.so.6"));
        assert!(Subject::glibc().provided_by("libc.so.6"));
    }

    #[test]
    fn bad_names_get_a_hint() {
        let said = |name| Subject::parse(name, Ok(Path::new("/x.so"))).unwrap_err().to_string();
        let close = |name| format!("hint: did you mean '{name}'? `lockwright list` shows all");
        assert_eq!(said("fifi"), format!("unknown lock 'fifi'\n{}", close("fifo")));
        assert_eq!(said("in:msc"), format!("unknown lock 'in:msc'\n{}", close("in:mcs")));
        assert_eq!(said("in:fifo:spin=1"), "unknown lock 'in:fifo:spin=1'\nhint: lockwright list");
        assert_eq!(said("std:spin=1"), "unknown lock 'std'\nhint: lockwright list");
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
