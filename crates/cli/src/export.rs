//! `lockwright top --export`: reports what locks do to Prometheus.

mod metrics;
mod serve;

use crate::hints::{Failure, cause};
use crate::output::say;
use crate::signals::Watch;
use crate::top::batch::wait;
use crate::top::list::lease;
use lockwright_contract::counters::control::Level;
use lockwright_observer::counts::observation::Observed;
use lockwright_observer::counts::processes::Finder;
use lockwright_observer::counts::snapshot::Lock;
use lockwright_observer::counts::watched::Watched;
use lockwright_observer::standing::StandingWatch;
use metrics::Told;
use serve::{CLIENTS, Page, Server};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::NamedTempFile;

/// The default address.
pub(crate) const HERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9464);

/// Where the samples go.
pub(crate) enum Sink {
    Http(SocketAddr),
    File(PathBuf),
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
            subject.watched.insert(pid, watch(pid, subject.lease, interval)?);
        }
    }
    page.set(subject.look()?);
    if let Sink::Http(address) = &sink {
        let server = Server::bind(*address)?;
        say(&format!("serves http://{}/metrics\n", server.address()));
        if !address.ip().is_loopback() {
            say("warning: anyone who can reach this address can read it\n");
        }
        let server = Arc::new(server);
        for _ in 0..CLIENTS {
            let (server, page) = (Arc::clone(&server), page.clone());
            std::thread::spawn(move || server.run(&page));
        }
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
    watched: BTreeMap<libc::pid_t, (Watched, StandingWatch)>,
    /// Processes that can't be observed. Each gets one warning.
    refused: BTreeSet<libc::pid_t>,
    lease: Duration,
    interval: Duration,
    most: usize,
}

/// Begins to observe a process.
fn watch(
    pid: libc::pid_t,
    lease: Duration,
    interval: Duration,
) -> Result<(Watched, StandingWatch), Failure> {
    let watched = Watched::open(pid, Level::Counters, lease)?;
    let standing = StandingWatch::every(watched.pid, interval);
    Ok((watched, standing))
}

impl ObservedProcesses {
    pub(crate) fn new(pids: Vec<libc::pid_t>, interval: Duration, most: usize) -> Self {
        Self {
            named: (!pids.is_empty()).then_some(pids),
            finder: Finder::default(),
            watched: BTreeMap::new(),
            refused: BTreeSet::new(),
            lease: lease(interval),
            interval,
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
                match watch(pid, self.lease, self.interval) {
                    Ok(watched) => drop(self.watched.insert(pid, watched)),
                    Err(failure) => {
                        self.refused.insert(pid);
                        say(&format!("warning: left out: {}\n", failure.message()));
                    }
                }
            }
        }
        let mut told = Vec::new();
        for (watched, standing) in self.watched.values_mut() {
            // A process that can't be read (no shared memory) must not hide the others.
            match watched.look() {
                Ok(look) => {
                    if watched.has_ended {
                        continue;
                    }
                    // Show the same locks each time, as far as possible: those with the longest total wait. A process that
                    // has counted nothing may wait for ever.
                    let (named, locks, conditions) = match &look.total {
                        Some(total) => (
                            watched.named(total, &look, self.most, Lock::rank),
                            watched.told_apart(&total.locks),
                            watched.told_apart(&total.conditions),
                        ),
                        None => {
                            let pid = watched.pid.cast_unsigned();
                            (Observed { pid, ..Observed::default() }, Vec::new(), Vec::new())
                        }
                    };
                    let (now, name) = (standing.latest(), watched.name());
                    told.push(Told::new(&named, &locks, &conditions, &now, &name));
                }
                Err(failure) => {
                    watched.has_ended = true;
                    say(&format!("warning: left out: {}\n", failure.message()));
                }
            }
        }
        self.watched.retain(|_, (watched, _)| !watched.has_ended);
        metrics::text(told)
    }
}
