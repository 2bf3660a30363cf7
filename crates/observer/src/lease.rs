//! A table that a command tries: on lease, which a thread of the command renews. If the command ends, however it does, the process is back
//! at its last table within [`LEASE`](lockwright_contract::mailbox::LEASE).

use crate::mailbox::{self, MailboxPlace, PATIENCE, Remote};
use crate::process::Process;
use crate::table::Table;
use lockwright_contract::mailbox::{DROPS, LEASE, ON_LEASE, TABLE};
use lockwright_contract::post::Post;
use lockwright_text::Failure;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How often the lease is renewed: a command on a busy machine may be late several times.
const EACH: Duration = Duration::from_millis(500);

/// A lease. While it exists, a table may be tried; when it is dropped, the process goes back.
pub struct Lease {
    held: Arc<LeaseHeld>,
    renewer: Option<JoinHandle<()>>,
}

struct LeaseHeld {
    /// The process, not locked: the lease is one word.
    process: Process,
    place: MailboxPlace,
    /// Our last post.
    post: AtomicU32,
    /// A table of ours has been put in force on lease.
    has_table: AtomicBool,
    is_over: AtomicBool,
    /// Why the lease is lost.
    lost: Mutex<Option<Failure>>,
}

impl Lease {
    /// Begins one. `process` is locked. What was posted for good before is in force first: it must not be lost.
    pub fn begin(process: &Process, place: MailboxPlace) -> Result<Self, Failure> {
        let pid = process.pid;
        let mailbox = place.of(process);
        if mailbox.leased()? != 0 && !mailbox.is_lease_over()? {
            return Err(Failure::new(format!(
                "another command tries other locks in process {pid}: one at a time"
            ))
            .hint(format!("fuser -v /proc/{pid}/mem")));
        }
        // What an earlier command left on lease must not have it renewed.
        mailbox.await_end(PATIENCE)?;
        if mailbox.leased()? != 0 {
            return Err(nobody_waits(pid));
        }
        if let Some(posted) = mailbox.posted()?
            && !mailbox::post(process, &mailbox, &posted)?
        {
            return Err(nobody_waits(pid));
        }
        mailbox.renew_lease()?;
        let held = Arc::new(LeaseHeld {
            process: Process::open_unlocked(pid)?,
            place,
            post: AtomicU32::new(mailbox.seen()?.word()),
            has_table: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            lost: Mutex::new(None),
        });
        let renewing = Arc::clone(&held);
        let renewer = thread::Builder::new().spawn(move || {
            while !renewing.is_over.load(Relaxed) && renewing.renew().is_ok() {
                thread::park_timeout(EACH);
            }
        });
        let renewer = renewer.map_err(|error| {
            Failure::new(format!("no thread to renew a lease: {}", lockwright_text::cause(&error)))
        })?;
        Ok(Self { held, renewer: Some(renewer) })
    }

    /// Puts a table in force on lease. Returns whether it is in force. `process` is locked.
    pub fn try_out(&self, process: &Process, table: &Table) -> Result<bool, Failure> {
        let is_there = self.post(process, table, ON_LEASE)?;
        self.held.has_table.fetch_or(is_there, Relaxed); // this thread's, here and below
        Ok(is_there)
    }

    /// Puts a table in force for good; of these slots, those go that it doesn't ask. Returns whether it is in force. `process` is locked.
    pub fn keep(&self, process: &Process, table: &Table, slots: u32) -> Result<bool, Failure> {
        let is_there = self.post(process, table, slots << DROPS)?;
        self.held.has_table.store(false, Relaxed);
        Ok(is_there)
    }

    fn post(&self, process: &Process, table: &Table, terms: u32) -> Result<bool, Failure> {
        self.check()?;
        let mailbox = self.held.place.of(process);
        // Nobody else posts now. The renewer takes both for ours, the one before and this.
        self.held.post.store(mailbox.seen()?.next().word(), Relaxed);
        mailbox::post_for(process, &mailbox, table, terms, PATIENCE)
    }

    /// Fails if the lease is lost. Else it is as long again.
    pub fn check(&self) -> Result<(), Failure> {
        self.held.renew()
    }

    /// Ends the lease, and waits a while until the process is back.
    pub fn end(mut self) -> Result<(), Failure> {
        self.stop();
        self.held.mailbox().await_end(PATIENCE)
    }

    fn stop(&mut self) {
        let Some(renewer) = self.renewer.take() else { return };
        self.held.is_over.store(true, Relaxed); // joined
        renewer.thread().unpark();
        let _ = renewer.join(); // it panicked: that has been said
        // Another command's lease is its own.
        if self.held.is_ours().unwrap_or(false) {
            let _ = self.held.mailbox().end_lease(); // on failure it runs out, or the process is gone
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.stop();
    }
}

impl LeaseHeld {
    fn mailbox(&self) -> Remote<'_> {
        self.place.of(&self.process)
    }

    /// Is the last post ours?
    fn is_ours(&self) -> Result<bool, Failure> {
        let number = |post: Post| post.with(lockwright_contract::post::PostState::Empty);
        let (seen, own) =
            (number(self.mailbox().seen()?), number(Post::of(self.post.load(Relaxed))));
        Ok(seen == own || seen.next() == own)
    }

    fn renew(&self) -> Result<(), Failure> {
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(why) = &*lost {
            return Err(why.clone());
        }
        let renewed = self.renew_once();
        *lost = renewed.as_ref().err().cloned();
        renewed
    }

    fn renew_once(&self) -> Result<(), Failure> {
        let (pid, mailbox) = (self.process.pid, self.mailbox());
        if !self.is_ours()? {
            return Err(Failure::new(format!(
                "another command has switched the locks of process {pid}: they stay as they are now"
            ))
            .hint(format!("lockwright switch {pid}")));
        }
        let is_back = self.has_table.load(Relaxed) && mailbox.leased()? & TABLE == 0;
        if is_back || mailbox.is_lease_over()? {
            return Err(Failure::new(format!(
                "this command was stopped for longer than {} s: process {pid} is back at its old locks",
                LEASE.as_secs()
            ))
            .hint("try again"));
        }
        mailbox.renew_lease()
    }
}

/// The error for a process in which no thread waits.
pub fn nobody_waits(pid: libc::pid_t) -> Failure {
    Failure::new(format!(
        "no thread of process {pid} has waited for a mutex since the switch: nothing to compare"
    ))
    .hint("without --guard, the switch takes effect as soon as a thread waits")
}
