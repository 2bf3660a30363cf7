//! The process to sample, and why it may not be possible.

use crate::elf::inspect;
use crate::mailbox::Remote;
use crate::process::Process;
use lockwright_native::topology::Topology;
use lockwright_symbols::{Mapping, Symboliser, blocked, mappings, proc_text};
use lockwright_text::{Failure, cause};
use memmap2::Mmap;
use serde::Serialize;
use std::fs::{self, File};
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
    /// Is it written in Go, whose goroutines don't sleep in the kernel?
    pub is_go: bool,
    /// Why its locks can't be told from its other waits: it isn't one of glibc's on 64 bits.
    pub unlike: Option<Unlike>,
    /// Its environment when it was started.
    pub(super) environment: Vec<u8>,
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
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let is_go = inspect(&Path::new("/proc").join(pid.to_string()).join("exe"))
            .is_ok_and(|program| program.go);
        let unlike = Unlike::of(pid, &all);
        Ok(Self { pid, name, has_library, symboliser, is_go, unlike, environment })
    }
}

/// A process whose locks have other words, and other system calls, than we know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unlike {
    /// Its program is for 32 bits.
    Narrow,
    /// It has another C library than glibc, or none.
    NoGlibc,
}

impl Unlike {
    /// `None`: it has glibc, and 64 bits, as far as we can see.
    fn of(pid: libc::pid_t, mappings: &[Mapping]) -> Option<Self> {
        let file = File::open(format!("/proc/{pid}/exe")).ok()?;
        // SAFETY: bytes that change meanwhile are only searched.
        let bytes = unsafe { Mmap::map(&file) }.ok()?;
        let mut names = mappings.iter().filter_map(|mapping| mapping.path.file_name()?.to_str());
        Self::by(&bytes, || names.any(is_glibc))
    }

    fn by(program: &[u8], has_glibc: impl FnOnce() -> bool) -> Option<Self> {
        const CLASS: usize = 4;
        const NARROW: u8 = 1;
        // A static program has glibc's variables inside: their names are in it, stripped or not.
        const INSIDE: &[u8] = b"GLIBC_TUNABLES";
        if program.get(CLASS) == Some(&NARROW) {
            return Some(Self::Narrow);
        }
        let is_inside = || program.windows(INSIDE.len()).any(|part| part == INSIDE);
        (!has_glibc() && !is_inside()).then_some(Self::NoGlibc)
    }

    /// In words: `a 32-bit process`.
    pub fn words(self) -> &'static str {
        match self {
            Self::Narrow => "a 32-bit process",
            Self::NoGlibc => "a process without glibc",
        }
    }
}

/// Is a file of this name glibc's?
fn is_glibc(name: &str) -> bool {
    name == "libc.so.6" || name.starts_with("libc-2.")
}

/// The class of each CPU, the fastest first (0), as a process with this environment sees them; empty: they are of one class.
pub(super) fn classes_of_cpus(environment: &[u8]) -> Vec<u8> {
    let mut topology = Box::new(Topology::new());
    topology.read(b"/sys");
    topology.ask_each_cpu();
    let set = variable(environment, "LOCKWRIGHT_TOPOLOGY");
    let emulated = variable(environment, "LOCKWRIGHT_EMULATE");
    // What our library refuses, it has said; then the machine's own classes hold.
    let _ = match (&emulated, &set) {
        (Some(spec), _) => topology.set_emulated(spec).map(drop),
        (None, Some(spec)) => topology.set(spec),
        (None, None) => Ok(()),
    };
    let mut classes = Vec::new();
    for (cpu, about) in topology.online() {
        classes.resize(classes.len().max(cpu + 1), 0);
        classes[cpu] = about.class.0;
    }
    classes
}

/// The value of a variable in an environment.
pub(super) fn variable(environment: &[u8], name: &str) -> Option<String> {
    let mut all = environment.split(|&byte| byte == 0);
    let value = all.find_map(|one| one.strip_prefix(name.as_bytes())?.strip_prefix(b"="))?;
    Some(String::from_utf8_lossy(value).into_owned())
}

/// Did `lockwright attach --undo` give the process glibc's locks back? The library stays loaded.
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
    Failure::new(format!("may not look into process {id}: {}", cause(error)))
        .hint(crate::rights::hint(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_have_the_classes_that_the_process_sees() {
        let plain = classes_of_cpus(b"HOME=/\0");
        let many = plain.len();
        if many < 2 {
            return; // one CPU has one class
        }
        let emulated = format!("A=b\0LOCKWRIGHT_EMULATE=big:0,little:1-{}x3.75\0", many - 1);
        let classes = classes_of_cpus(emulated.as_bytes());
        assert_eq!((classes[0], &classes[1..]), (0, &vec![1; many - 1][..]));
        assert_eq!(classes_of_cpus(b"LOCKWRIGHT_TOPOLOGY=nonsense\0"), plain);
    }

    #[test]
    fn processes_whose_locks_we_know_are_told_from_others() {
        let wide = b"\x7fELF\x02 musl";
        assert_eq!(Unlike::by(b"\x7fELF\x01 GLIBC_TUNABLES", || true), Some(Unlike::Narrow));
        assert_eq!(Unlike::by(wide, || true), None);
        assert_eq!(Unlike::by(wide, || false), Some(Unlike::NoGlibc));
        assert_eq!(Unlike::by(b"\x7fELF\x02 GLIBC_TUNABLES", || false), None);
        assert!(is_glibc("libc.so.6") && is_glibc("libc-2.31.so"));
        assert!(!is_glibc("ld-musl-x86_64.so.1") && !is_glibc("libc.so"));
    }

    #[test]
    fn this_process_is_like_what_we_know() {
        let own = std::process::id().cast_signed();
        assert_eq!(Unlike::of(own, &mappings(own).unwrap()), None);
    }
}
