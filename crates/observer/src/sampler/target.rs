//! The process to sample, and why it may not be possible.

use crate::mailbox::Remote;
use crate::process::Process;
use lockwright_symbols::{Symboliser, blocked, mappings, proc_text};
use lockwright_text::{Failure, cause};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

/// A process that we are allowed to read.
pub struct Target {
    /// Its id.
    pub pid: libc::pid_t,
    /// Its name.
    pub name: String,
    /// Does it have our library, so that its mutexes are ours?
    pub has_library: bool,
    /// Names its addresses.
    pub symboliser: Symboliser,
}

impl Target {
    /// Opens the process with this id, or the process of the thread with this id.
    pub fn open(id: libc::pid_t) -> Result<Self, Failure> {
        let fail = |error: io::Error| match error.kind() {
            ErrorKind::NotFound => no_process(id),
            _ => refused(id, &error),
        };
        let status = proc_text(format!("/proc/{id}/status")).map_err(fail)?;
        let pid = field(&status, "Tgid:").and_then(|text| text.parse().ok()).unwrap_or(id);
        let name = field(&status, "Name:").unwrap_or_default().to_owned();
        if field(&status, "State:").is_some_and(|state| state.starts_with(['Z', 'X'])) {
            return Err(Failure::new(format!(
                "process {pid} ({name}) has ended, or its main thread has"
            ))
            .hint(format!("to see which threads are left: ps -L -p {pid}")));
        }
        // Reading where a thread waits needs the same right as reading its memory.
        blocked(pid, pid).map_err(fail)?;
        let all = mappings(pid).map_err(fail)?;
        if all.is_empty() {
            return Err(Failure::new(format!("process {pid} ({name}) is part of the kernel"))
                .hint("pgrep --list-name SERVER"));
        }
        let is_ours = |path: &Path| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("liblockwright"))
        };
        let has_library = all.iter().any(|mapping| is_ours(&mapping.path)) && !is_detached(pid);
        let symboliser = Symboliser::of_process(pid).map_err(fail)?;
        Ok(Self { pid, name, has_library, symboliser })
    }
}

/// Did `lockwright detach` give the process glibc's locks back? The library stays loaded.
fn is_detached(pid: libc::pid_t) -> bool {
    Process::open(pid).is_ok_and(|process| {
        Remote::find(&process).and_then(|mailbox| mailbox.is_detached()).unwrap_or(false)
    })
}

/// The value of a line in a `status` file.
pub fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| Some(line.strip_prefix(name)?.trim()))
}

fn no_process(id: libc::pid_t) -> Failure {
    Failure::new(format!("no process {id}")).hint("pgrep --list-name SERVER")
}

fn refused(id: libc::pid_t, error: &io::Error) -> Failure {
    let failure = Failure::new(format!("may not look into process {id}: {}", cause(error)));
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    // SAFETY: the call has no preconditions and can't fail.
    let user = unsafe { libc::geteuid() };
    let status = proc_text(format!("/proc/{id}/status")).unwrap_or_default();
    let is_own = field(&status, "Uid:").and_then(|ids| ids.split_whitespace().next())
        == Some(user.to_string().as_str());
    failure.hint(match scope.trim() {
        "1" | "2" if is_own => "sudo sysctl kernel.yama.ptrace_scope=0".to_owned(),
        "3" => "nobody may until the machine boots with kernel.yama.ptrace_scope below 3".into(),
        _ if user == 0 => "in a container: docker run --cap-add SYS_PTRACE ...".to_owned(),
        _ => format!("sudo lockwright profile -p {id} --sample"),
    })
}
