//! The counting of a running process: its level, and its segment.

use super::reader;
use super::snapshot::Snapshot;
use crate::mailbox;
use crate::process::Process;
use lockwright_contract::counters::control::{
    BUSY, Control, FAILED, FOREIGN, LEASED, LINK, Level, MAGIC, NONE, OPEN, SYMBOL, asked,
};
use lockwright_contract::post::remote::Memory;
use lockwright_files::{open_entry, open_entry_to_write};
use lockwright_native::futex::Clock;
use lockwright_symbols::mappings;
use lockwright_text::{Failure, cause};
use std::fmt::Display;
use std::fs::{self, File, Metadata};
use std::io;
use std::mem::offset_of;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The address of a process's [`Control`].
#[derive(Clone, Copy, Debug)]
pub struct Live {
    /// Its id.
    pub pid: libc::pid_t,
    at: u64,
}

/// The offset in `Control` of the time until which a level is requested.
fn place_of(level: Level) -> Option<usize> {
    (level as usize).checked_sub(1)
}

/// The time by the monotonic clock, ns.
pub fn now_ns() -> u64 {
    lockwright_native::futex::now(Clock::Monotonic)
}

/// The state of the segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// There is none yet: no thread has had to wait.
    None,
    /// It is there.
    Open,
    /// It couldn't be created: the system's error number, [`LINK`] or [`FOREIGN`].
    Failed(u32),
}

impl Live {
    /// Finds the control of the preloaded library, or of the runtime that is linked into the program.
    pub fn find(process: &Process) -> Result<Self, Failure> {
        let at = mailbox::symbol_in(process, SYMBOL)?;
        let live = Self { pid: process.pid, at };
        if !live.is_there(process)? {
            return Err(mailbox::other_version(process));
        }
        Ok(live)
    }

    /// Is it still the same control? The process may have started another program.
    fn is_there(&self, process: &Process) -> Result<bool, Failure> {
        process.has::<Control>(self.at, MAGIC)
    }

    /// Fails if it isn't, so that we never write anywhere else.
    fn check(&self, process: &Process) -> Result<(), Failure> {
        match self.is_there(process)? {
            true => Ok(()),
            false => Err(process.gone(&std::io::ErrorKind::UnexpectedEof.into())),
        }
    }

    fn word(&self, process: &Process, offset: usize) -> Result<u32, Failure> {
        process.word(self.at + offset as u64)
    }

    /// The level in force.
    pub fn level(&self, process: &Process) -> Result<Level, Failure> {
        let number = self.word(process, offset_of!(Control, level))?;
        Ok(Level::from_number(number).unwrap_or(Level::Off))
    }

    /// Requests a level for this long from now on. Renew the request before it expires. Other commands may request a
    /// higher level.
    pub fn ask(&self, process: &Process, level: Level, lease: Duration) -> Result<(), Failure> {
        self.check(process)?;
        let now_ns = now_ns();
        if let Some(at) = place_of(level) {
            let until_ns = now_ns.saturating_add(lease.as_nanos() as u64);
            if self.until_ns(process)?[at] < until_ns {
                process.write(self.until_at(at), &until_ns.to_le_bytes())?;
            }
        }
        self.set_level(process, now_ns)
    }

    /// Withdraws the request. If another command requested the same level, its next renewal restores it.
    pub fn leave(&self, process: &Process, level: Level) -> Result<(), Failure> {
        self.check(process)?;
        if let Some(at) = place_of(level) {
            process.write(self.until_at(at), &0_u64.to_le_bytes())?;
        }
        self.set_level(process, now_ns())
    }

    /// Sets the level that applies when no command requests a higher one.
    pub fn begin(&self, process: &Process, level: Level) -> Result<(), Failure> {
        self.check(process)?;
        let own = || {
            let at = self.at + offset_of!(Control, own) as u64;
            process.write(at, &(level as u32).to_le_bytes())
        };
        // If this command ends in between, the level lies above the process's own, and sinks by itself.
        if self.level(process)? < level {
            self.set_level_to(process, level as u32, now_ns())?;
        }
        own()?;
        self.set_level(process, now_ns())
    }

    /// Sets the highest level that anyone requests. (Only one command at a time does this for a process.)
    fn set_level(&self, process: &Process, now_ns: u64) -> Result<(), Failure> {
        let own = self.word(process, offset_of!(Control, own))?;
        self.set_level_to(process, asked(own, self.until_ns(process)?, now_ns), now_ns)
    }

    fn set_level_to(&self, process: &Process, level: u32, now_ns: u64) -> Result<(), Failure> {
        if self.level(process)? == Level::Off && level != Level::Off as u32 {
            let at = self.at + offset_of!(Control, since_ns) as u64;
            process.write(at, &now_ns.to_le_bytes())?;
        }
        process.write(self.at + offset_of!(Control, level) as u64, &level.to_le_bytes())
    }

    fn until_at(&self, at: usize) -> u64 {
        self.at + (offset_of!(Control, until_ns) + at * size_of::<u64>()) as u64
    }

    fn until_ns(&self, process: &Process) -> Result<[u64; LEASED], Failure> {
        let mut until_ns = [0; LEASED];
        for (at, until) in until_ns.iter_mut().enumerate() {
            *until = process.word64(self.until_at(at))?;
        }
        Ok(until_ns)
    }

    /// The state of the segment.
    pub fn state(&self, process: &Process) -> Result<State, Failure> {
        Ok(match self.word(process, offset_of!(Control, state))? {
            NONE | BUSY => State::None,
            OPEN => State::Open,
            FAILED => State::Failed(self.word(process, offset_of!(Control, error))?),
            _ => return Err(mailbox::other_version(process)),
        })
    }

    /// The error for a process that can't count.
    fn without(&self, process: &Process, error: u32) -> Failure {
        let user = fs::metadata(format!("/proc/{}", process.pid)).map_or(0, |about| about.uid());
        let folder = format!("/dev/shm/lockwright-{user}");
        let (why, look) = match error {
            LINK => (format!("'{folder}' is a symbolic link"), "ls -ld"),
            FOREIGN => (format!("'{folder}' is another user's"), "ls -ld"),
            error => (cause(&io::Error::from_raw_os_error(error as i32)), "df"),
        };
        let pid = self.pid;
        Failure::new(format!("process {pid} has no shared memory to count locks in: {why}")).hint(format!(
            "{look} {folder}; it needs a restart, perhaps with LOCKWRIGHT_OBSERVE_DIR=DIR, a folder of its user's"
        ))
    }

    /// Waits a while until it is known whether the process can count: its next thread that has to wait finds out. `false`: not known yet.
    pub fn counts(&self, process: &Process) -> Result<bool, Failure> {
        for _ in 0..200 {
            match self.state(process)? {
                State::Open => return Ok(true),
                State::Failed(error) => return Err(self.without(process, error)),
                State::None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
        Ok(false)
    }

    /// The segment's file; `None`: no thread has had to wait yet.
    pub fn file(&self, process: &Process) -> Result<Option<(File, PathBuf)>, Failure> {
        match self.state(process)? {
            State::None => return Ok(None),
            State::Open => {}
            State::Failed(error) => return Err(self.without(process, error)),
        }
        let base = process.word64(self.at + offset_of!(Control, base) as u64)?;
        let maps = mappings(self.pid).map_err(|error| process.gone(&error))?;
        let Some(map) = maps.iter().find(|map| map.start == base) else { return Ok(None) };
        // The path as the process sees it, which may be in a container.
        let root = PathBuf::from(format!("/proc/{}/root", self.pid));
        let path = root.join(map.path.strip_prefix("/").unwrap_or(&map.path));
        open(process, &path, false).map(|file| Some((file, path)))
    }

    /// The counts so far; `None`: there are none.
    pub fn snapshot(&self, process: &Process) -> Result<Option<Snapshot>, Failure> {
        let Some((file, path)) = self.file(process)? else { return Ok(None) };
        reader::read(&file, &path).map(Some)
    }
}

/// Opens a process's segment. The process supplies the path and may be malicious, so we open neither links nor devices
/// nor other users' files.
pub fn open(process: &Process, path: &Path, to_write: bool) -> Result<File, Failure> {
    let fail = |why: &dyn Display| Failure::new(format!("cannot open '{}': {why}", path.display()));
    let file = if to_write { open_entry_to_write(path) } else { open_entry(path) };
    let file = file.map_err(|error| fail(&cause(&error)))?;
    let of = |metadata: io::Result<Metadata>| metadata.map_err(|error| fail(&cause(&error)));
    let (about, owner) =
        (of(file.metadata())?, of(fs::metadata(format!("/proc/{}", process.pid)))?);
    if about.uid() != owner.uid() {
        return Err(fail(&"it is not a file of the process's user"));
    }
    Ok(file)
}
