//! A running process, through its files under `/proc`.

use lockwright_contract::post::remote::Memory;
pub use lockwright_symbols::{Mapping, mappings, proc_text};
use lockwright_text::shown;
use lockwright_text::{Failure, cause};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

/// A process, whose memory can be read and written.
pub struct Process {
    /// Its id.
    pub pid: libc::pid_t,
    /// It is locked, so that only one command at a time works on the process. Who may not reach into the process can't open it,
    /// and so can't lock it.
    memory: File,
}

impl Process {
    /// Opens a process. Until it is dropped, no other command works on it.
    pub fn open(pid: libc::pid_t) -> Result<Self, Failure> {
        Self::open_as(pid, true)
    }

    /// Opens a process beside another command that works on it, to write single words that are this command's own.
    pub(crate) fn open_unlocked(pid: libc::pid_t) -> Result<Self, Failure> {
        Self::open_as(pid, false)
    }

    fn open_as(pid: libc::pid_t, is_locked: bool) -> Result<Self, Failure> {
        let fail = |error: io::Error| match error.kind() {
            ErrorKind::NotFound => {
                Failure::new(format!("no process {pid}")).hint("pgrep --list-name SERVER")
            }
            ErrorKind::PermissionDenied => {
                Failure::new(format!("may not reach into process {pid}: {}", cause(&error)))
                    .hint(crate::rights::hint(pid))
            }
            _ if error.raw_os_error() == Some(libc::ESRCH) => without_memory(pid),
            _ => Failure::new(format!("cannot reach process {pid}: {}", cause(&error))),
        };
        // A thread's id is accepted, too: threads share the process's memory.
        let status = proc_text(format!("/proc/{pid}/status")).map_err(fail)?;
        let group = status.lines().find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok());
        let pid = group.unwrap_or(pid);
        let memory = File::options().read(true).write(true).open(format!("/proc/{pid}/mem"));
        let memory = memory.map_err(fail)?;
        let process = Self { pid, memory };
        if !is_locked {
            return Ok(process);
        }
        for _ in 0..2000 {
            if process.memory.try_lock().is_ok() {
                return Ok(process);
            }
            sleep(Duration::from_millis(1));
        }
        Err(Failure::new(format!("another command is working on process {pid} and doesn't finish"))
            .hint(format!("fuser -v /proc/{pid}/mem")))
    }

    /// Lets other commands work on the process. Open it again before the next write.
    pub fn unlock(&self) {
        let _ = self.memory.unlock(); // on failure, they wait until this command ends
    }

    /// Its name, for messages: it stays within a line.
    pub fn name(&self) -> String {
        let name = proc_text(format!("/proc/{}/comm", self.pid)).unwrap_or_default();
        shown(name.strip_suffix('\n').unwrap_or(&name)).into_owned()
    }

    /// The path of the program's file.
    pub fn program(&self) -> PathBuf {
        let exe = PathBuf::from(format!("/proc/{}/exe", self.pid));
        fs::read_link(&exe).unwrap_or(exe)
    }

    /// Reads its memory.
    pub fn read(&self, at: u64, bytes: &mut [u8]) -> Result<(), Failure> {
        self.memory.read_exact_at(bytes, at).map_err(|error| self.gone(&error))
    }

    /// Writes to its memory.
    pub fn write(&self, at: u64, bytes: &[u8]) -> Result<(), Failure> {
        self.memory.write_all_at(bytes, at).map_err(|error| self.gone(&error))
    }

    /// Reads `count` words of 64 bits.
    #[cfg(target_arch = "x86_64")] // `attach` alone asks, here and below
    pub fn words(&self, at: u64, count: usize) -> Result<Vec<u64>, Failure> {
        let mut bytes = vec![0; count * 8];
        self.read(at, &mut bytes)?;
        let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("8 bytes"));
        Ok(bytes.chunks_exact(8).map(word).collect())
    }

    /// The ids of its threads.
    pub fn threads(&self) -> Vec<libc::pid_t> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid));
        let id = |entry: io::Result<fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
        tasks.into_iter().flatten().filter_map(id).collect()
    }

    /// Reads the file `name` of a thread under `/proc`.
    #[cfg(target_arch = "x86_64")]
    pub fn of_thread(&self, thread: libc::pid_t, name: &str) -> String {
        proc_text(format!("/proc/{}/task/{thread}/{name}", self.pid)).unwrap_or_default()
    }

    /// The line `field` of a thread's `status`; empty if there is none.
    #[cfg(target_arch = "x86_64")]
    pub fn status(&self, thread: libc::pid_t, field: &str) -> String {
        let status = self.of_thread(thread, "status");
        let value =
            |line: &str| Some(line.strip_prefix(field)?.strip_prefix(':')?.trim().to_owned());
        status.lines().find_map(value).unwrap_or_default()
    }

    /// The path under which we see the process's file `path`: the process may be in a container.
    pub fn sees(&self, path: &Path) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.pid));
        root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// This failure, unless the process has ended meanwhile, which explains every other.
    pub fn unless_ended(&self, failure: Failure) -> Failure {
        // Its memory goes first.
        match mappings(self.pid).is_ok_and(|maps| !maps.is_empty()) {
            true => failure,
            false => self.ended(),
        }
    }

    /// The error for a process that has ended since it was opened.
    pub fn ended(&self) -> Failure {
        Failure::new(format!("process {} has ended meanwhile", self.pid))
            .hint(format!("is it still there? ps -p {}", self.pid))
    }

    /// The error for a process that can no longer be read or written.
    pub fn gone(&self, error: &io::Error) -> Failure {
        if error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH) {
            return self.ended();
        }
        // Reading memory that no longer exists looks like the end of a file.
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

/// The error for a process that has no memory.
fn without_memory(pid: libc::pid_t) -> Failure {
    let status = proc_text(format!("/proc/{pid}/status")).unwrap_or_default();
    let field = |name| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let is_zombie = field("State:").is_some_and(|state| state.starts_with('Z'));
    // The kernel keeps a first thread that has ended as long as there are others.
    let others = field("Threads:").and_then(|n| n.parse().ok()).unwrap_or(1_u32) > 1;
    let why = match (is_zombie, others) {
        (true, true) => "can't be reached: its first thread has ended, though others run",
        (true, false) => "has ended, but its parent has not reaped it yet",
        _ if is_kernel_thread(pid) => "is a kernel thread",
        _ => "has ended meanwhile",
    };
    Failure::new(format!("process {pid} {why}")).hint(format!("ps -o pid,ppid,stat,cmd -p {pid}"))
}

fn is_kernel_thread(pid: libc::pid_t) -> bool {
    /// The kernel's `PF_KTHREAD`.
    const KERNEL_THREAD: u32 = 0x0020_0000;
    let stat = proc_text(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name, in brackets, may have blanks and brackets itself. The flags are the seventh word after it.
    let flags = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(6));
    flags.and_then(|flags| flags.parse::<u32>().ok()).is_some_and(|all| all & KERNEL_THREAD != 0)
}

/// Is the process running? A zombie isn't.
pub fn is_running(pid: u32) -> bool {
    started(pid).is_some()
}

/// When a running process started, in clock ticks since boot; `None`: it doesn't run.
pub fn started(pid: u32) -> Option<u64> {
    let stat = proc_text(format!("/proc/{pid}/stat")).ok()?;
    // The state follows the name, which is in parentheses. The start time is field 22. A process whose first thread has
    // ended looks like a zombie.
    let threads = || fs::read_dir(format!("/proc/{pid}/task")).map_or(0, |tasks| tasks.count());
    let runs = |rest: &str| !rest.starts_with(['Z', 'X']) || threads() > 1;
    let (_, rest) = stat.rsplit_once(") ").filter(|(_, rest)| runs(rest))?;
    rest.split(' ').nth(19)?.parse().ok()
}

impl Memory for Process {
    type Error = Failure;

    fn read(&self, at: u64, bytes: &mut [u8]) -> Result<(), Failure> {
        Self::read(self, at, bytes)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), Failure> {
        Self::write(self, at, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mailbox::symbol_in;
    use std::process::Command;

    #[test]
    fn the_end_of_a_process_explains_what_fails() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let process = Process::open(child.id() as libc::pid_t).unwrap();
        let other = || Failure::new("its libc is odd");
        assert_eq!(process.unless_ended(other()).message(), "its libc is odd");
        let why = symbol_in(&process, "lockwright_observe").unwrap_err();
        assert!(why.message().ends_with("(sleep) runs without lockwright"), "{why}");
        child.kill().unwrap();
        let ended = format!("process {} has ended meanwhile", process.pid);
        // It's a zombie until its parent asks, and for a moment less than that.
        while process.unless_ended(other()).message() != ended {
            sleep(Duration::from_millis(1));
        }
        assert_eq!(symbol_in(&process, "lockwright_observe").unwrap_err().message(), ended);
        let not_reaped = "has ended, but its parent has not reaped it yet";
        let is_zombie = || {
            let zombie = Process::open(process.pid).map(|process| process.pid).unwrap_err();
            let is_ending = zombie.message() == ended;
            assert!(is_ending || zombie.message().ends_with(not_reaped), "{zombie}");
            !is_ending
        };
        while !is_zombie() {
            sleep(Duration::from_millis(1));
        }
        child.wait().unwrap();
        assert_eq!(process.unless_ended(other()).message(), ended);
        // Files that are looked up only now are gone, too.
        let maps = mappings(process.pid).unwrap_err();
        assert_eq!(process.gone(&maps).message(), ended);
        let none = Process::open(process.pid).map(|process| process.pid).unwrap_err();
        assert_eq!(none.message(), format!("no process {}", process.pid));
    }

    #[test]
    fn a_first_thread_that_has_ended_is_not_the_end_of_the_process() {
        // Python's first thread ends as a C program's does that calls `pthread_exit`.
        let program = "import ctypes, threading, time\n\
                       threading.Thread(target=time.sleep, args=(600,)).start()\n\
                       ctypes.CDLL(None).syscall(60, 0)";
        let mut child = Command::new("/usr/bin/python3").args(["-c", program]).spawn().unwrap();
        let pid = child.id() as libc::pid_t;
        let why = loop {
            match Process::open(pid) {
                Ok(_) => sleep(Duration::from_millis(5)),
                Err(why) => break why,
            }
        };
        child.kill().unwrap();
        child.wait().unwrap();
        let first = format!(
            "process {pid} can't be reached: its first thread has ended, though others run"
        );
        assert_eq!(why.message(), first);
    }

    #[test]
    fn only_commands_that_may_reach_into_a_process_make_others_wait() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let pid = child.id() as libc::pid_t;
        // Anybody can open this.
        let folder = File::open(format!("/proc/{pid}")).unwrap();
        folder.try_lock().unwrap();
        let process = Process::open(pid).unwrap();
        let why = Process::open(pid).map(|process| process.pid).unwrap_err();
        assert!(why.message().starts_with("another command is working on process"), "{why}");
        process.unlock();
        assert!(Process::open(pid).is_ok());
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn we_run_and_ended_processes_do_not() {
        assert!(is_running(std::process::id()));
        assert!(!is_running(u32::MAX));
    }
}
