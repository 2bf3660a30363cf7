//! `lockwright export`: reports what locks do to Prometheus.

mod metrics;
mod serve;

use crate::hints::{Failure, cause};
use crate::output::say;
use crate::signals::Watch;
use crate::top::batch::wait;
use crate::top::lease;
use lockwright_contract::counters::control::Level;
use lockwright_observer::counts::processes::Finder;
use lockwright_observer::counts::snapshot::Lock;
use lockwright_observer::counts::watched::Watched;
use metrics::Told;
use serve::Server;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tempfile::NamedTempFile;

/// The default address.
pub(crate) const HERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9464);

/// Where the samples go.
pub(crate) enum Sink {
    Http(SocketAddr),
    File(PathBuf),
}

/// The text to serve.
#[derive(Clone, Default)]
pub(crate) struct Page(Arc<Mutex<String>>);

impl Page {
    pub(crate) fn get(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, text: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }
}

/// Takes samples until a signal or `count` ends it.
pub(crate) fn run(
    mut subject: ObservedProcesses,
    sink: Sink,
    interval: Duration,
    count: Option<u64>,
) -> Result<ExitCode, Failure> {
    let signals = Watch::new(); // before any other thread starts, so that all have these signals blocked
    let page = Page::default();
    if let Some(pids) = &subject.named {
        // A process that can't be observed is an error at the start, but not later, when it may have ended.
        for &pid in pids {
            subject.watched.insert(pid, Watched::open(pid, Level::Counters, subject.lease)?);
        }
    }
    page.set(subject.look()?);
    if let Sink::Http(address) = &sink {
        let server = Server::bind(*address)?;
        say(&format!("serves http://{}/metrics\n", server.address()));
        if !address.ip().is_loopback() {
            say("warning: anyone who can reach this address can read it\n");
        }
        let page = page.clone();
        std::thread::spawn(move || server.run(&page));
    }
    let mut next = Instant::now();
    for look in 0..count.unwrap_or(u64::MAX) {
        if look > 0 {
            next = (next + interval).max(Instant::now());
            if let Some(signal) = wait(&signals, next) {
                return Ok(ExitCode::from(128 + signal as u8));
            }
            page.set(subject.look()?);
        }
        if let Sink::File(file) = &sink {
            write(file, &page.get())?;
        }
        if subject.has_ended() {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Replaces the file atomically: readers find the old text or the new one.
fn write(file: &Path, text: &str) -> Result<(), Failure> {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;
    let fail = |error: std::io::Error| {
        Failure::new(format!("cannot write '{}': {}", file.display(), cause(&error)))
            .hint("its folder must exist, and we must be allowed to write to it")
    };
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    let mut new = NamedTempFile::new_in(folder.unwrap_or(Path::new("."))).map_err(fail)?;
    new.write_all(text.as_bytes()).map_err(fail)?;
    // node_exporter runs as another user.
    new.as_file().set_permissions(Permissions::from_mode(0o644)).map_err(fail)?;
    new.persist(file).map_err(|error| fail(error.error))?;
    Ok(())
}

/// The processes to observe.
pub(crate) struct ObservedProcesses {
    /// `None`: all processes that use our locks.
    named: Option<Vec<libc::pid_t>>,
    finder: Finder,
    watched: BTreeMap<libc::pid_t, Watched>,
    /// Processes that can't be observed. Each gets one warning.
    refused: BTreeSet<libc::pid_t>,
    lease: Duration,
    most: usize,
}

impl ObservedProcesses {
    pub(crate) fn new(pids: Vec<libc::pid_t>, interval: Duration, most: usize) -> Self {
        Self {
            named: (!pids.is_empty()).then_some(pids),
            finder: Finder::default(),
            watched: BTreeMap::new(),
            refused: BTreeSet::new(),
            lease: lease(interval),
            most,
        }
    }

    /// Have all of the named processes ended?
    fn has_ended(&self) -> bool {
        self.named.is_some() && self.watched.is_empty()
    }

    /// Samples all processes, as OpenMetrics.
    fn look(&mut self) -> Result<String, Failure> {
        if self.named.is_none() {
            let found = self.finder.find();
            self.refused.retain(|pid| found.contains(pid));
            for pid in found {
                if self.watched.contains_key(&pid) || self.refused.contains(&pid) {
                    continue;
                }
                match Watched::open(pid, Level::Counters, self.lease) {
                    Ok(watched) => drop(self.watched.insert(pid, watched)),
                    Err(failure) => {
                        self.refused.insert(pid);
                        say(&format!("warning: left out: {}\n", failure.message()));
                    }
                }
            }
        }
        let mut told = Vec::new();
        for watched in self.watched.values_mut() {
            // A process that can't be read (no shared memory) must not hide the others.
            match watched.look() {
                Ok(look) => {
                    if let Some(total) = look.total.as_ref().filter(|_| !watched.has_ended) {
                        // Show the same locks each time, as far as possible: those with the longest total wait.
                        let named = watched.named(total, &look, self.most, Lock::rank);
                        told.push(Told::new(&named, &watched.told_apart(total), watched.name()));
                    }
                }
                Err(failure) => {
                    watched.has_ended = true;
                    say(&format!("warning: left out: {}\n", failure.message()));
                }
            }
        }
        self.watched.retain(|_, watched| !watched.has_ended);
        metrics::text(told)
    }
}
