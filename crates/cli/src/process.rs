//! A running process, by its files under `/proc`.

use crate::hints::{Failure, cause};
pub(crate) use lockwright_symbols::{Mapping, mappings};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

/// A process, whose memory can be read and written.
pub(crate) struct Process {
    pub(crate) pid: libc::pid_t,
    memory: File,
    /// The folder of its files. Held locked: one command at a time.
    _folder: File,
}

impl Process {
    /// Opens it.
    pub(crate) fn open(pid: libc::pid_t) -> Result<Self, Failure> {
        let fail = |error: io::Error| match error.kind() {
            ErrorKind::NotFound => {
                Failure::new(format!("no process {pid}")).hint("pgrep --list-name SERVER")
            }
            ErrorKind::PermissionDenied => Failure::new(format!(
                "may not reach into process {pid}: {}",
                cause(&error)
            ))
            .hint("run it as the process's user or with sudo; see sysctl kernel.yama.ptrace_scope"),
            _ => Failure::new(format!("cannot reach process {pid}: {}", cause(&error))),
        };
        // A thread's id will do, too: it is the process's memory.
        let status = fs::read_to_string(format!("/proc/{pid}/status")).map_err(fail)?;
        let group = status.lines().find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok());
        let pid = group.unwrap_or(pid);
        let memory = File::options().read(true).write(true).open(format!("/proc/{pid}/mem"));
        let memory = memory.map_err(fail)?;
        let folder = File::open(format!("/proc/{pid}")).map_err(fail)?;
        for _ in 0..2000 {
            if folder.try_lock().is_ok() {
                return Ok(Self { pid, memory, _folder: folder });
            }
            sleep(Duration::from_millis(1));
        }
        Err(Failure::new(format!("another command is at process {pid}, and does not end"))
            .hint(format!("fuser -v /proc/{pid}")))
    }

    /// What it is called, for people.
    pub(crate) fn name(&self) -> String {
        let name = fs::read(format!("/proc/{}/comm", self.pid)).unwrap_or_default();
        String::from_utf8_lossy(&name).trim_end().to_owned()
    }

    /// The program's file.
    pub(crate) fn program(&self) -> PathBuf {
        let exe = PathBuf::from(format!("/proc/{}/exe", self.pid));
        fs::read_link(&exe).unwrap_or(exe)
    }

    pub(crate) fn read(&self, at: u64, bytes: &mut [u8]) -> Result<(), Failure> {
        self.memory.read_exact_at(bytes, at).map_err(|error| self.gone(&error))
    }

    pub(crate) fn write(&self, at: u64, bytes: &[u8]) -> Result<(), Failure> {
        self.memory.write_all_at(bytes, at).map_err(|error| self.gone(&error))
    }

    /// Why it can no longer be read or written.
    pub(crate) fn gone(&self, error: &io::Error) -> Failure {
        // Reading memory that is gone looks like the end of a file.
        let why = match error.kind() {
            ErrorKind::UnexpectedEof | ErrorKind::WriteZero => {
                "it has ended, or runs another program now".to_owned()
            }
            _ => cause(error).to_string(),
        };
        Failure::new(format!("cannot look into process {}: {why}", self.pid))
            .hint(format!("is it still there? ps -p {}", self.pid))
    }
}
