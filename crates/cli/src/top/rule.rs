//! Shows and changes the lock algorithm of a process.

use crate::ctl::delegated::Delegated;
use crate::hints::Failure;
use crate::{catalog, machine};
use lockwright_observer::mailbox::{self, Remote};
use lockwright_observer::process::Process;
use lockwright_observer::table::Table;

/// A process's table of locks.
pub(crate) fn read(pid: libc::pid_t) -> Result<Table, Failure> {
    let process = Process::open(pid)?;
    Remote::find(&process)?.table()
}

/// The process's delegated data, as far as it says.
pub(crate) fn delegated(pid: libc::pid_t) -> Delegated {
    let read = || Delegated::read(&Process::open(pid)?);
    read().unwrap_or_default() // shown beside the lock: without it, there is nothing to say
}

/// A description of the lock for mutexes with this place.
pub(crate) fn shown(table: &Table, place: u32) -> String {
    match table.rule_at(place) {
        Some(rule) => format!("{}, by the rule for {}", rule.lock, rule.whose()),
        None => table.default.clone(),
    }
}

/// Changes the process's default lock, but not its rules. Returns a line about the result.
pub(crate) fn switch(pid: libc::pid_t, lock: &str) -> Result<String, Failure> {
    catalog::check(lock)?;
    let lock = machine::tuned(lock);
    let process = Process::open(pid)?;
    let mailbox = Remote::find(&process)?;
    let table = Table { default: lock.clone(), ..mailbox::base(&mailbox)? };
    Ok(match mailbox::post(&process, &mailbox, &table)? {
        true => format!("now on {lock}"),
        false => format!("{lock} is posted; it takes effect when a thread next has to wait"),
    })
}
