//! Processes to which we can't attach, and why.

use crate::hints::Failure;
use lockwright_observer::elf::{self, Obstacle};
use lockwright_observer::process::Process;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Checks, by the files under `/proc`, that we can attach to the process.
pub(super) fn check(process: &Process) -> Result<(), Failure> {
    let pid = process.pid;
    let refuse = |why: String| Failure::new(format!("cannot attach to process {pid}: {why}"));
    let says = |field| process.status(pid, field);
    if says("State").starts_with('Z') {
        return Err(refuse("its first thread has ended".to_owned())
            .hint(format!("ps -L -o pid,tid,stat,cmd -p {pid}")));
    }
    if pid == std::process::id() as libc::pid_t {
        return Err(refuse("it is this command".to_owned()));
    }
    let tracer = says("TracerPid");
    if tracer != "0" {
        return Err(refuse(format!("process {tracer} traces it, a debugger or `strace`"))
            .hint(format!("end that one first: ps -p {tracer}")));
    }
    if says("State").starts_with(['T', 't']) {
        return Err(refuse("it is stopped".to_owned()).hint(format!("kill -CONT {pid}")));
    }
    let program = elf::inspect(Path::new(&format!("/proc/{pid}/exe")))?;
    match program.obstacle() {
        // This matters only to the dynamic linker when the program starts.
        None | Some(Obstacle::RaisedRights(_)) => {}
        Some(Obstacle::Static) => {
            return Err(refuse("it is statically linked, and has no dynamic linker".to_owned())
                .hint("a static program may link our locks: docs/sync.md"));
        }
        Some(other) => return Err(refuse(other.reason())),
    }
    if process.threads().iter().any(|&thread| is_confined(process, thread)) {
        return Err(confined(process));
    }
    if says("x86_Thread_features").contains("shstk") {
        return Err(refuse("its threads have shadow stacks".to_owned()).hint(
            "start it with GLIBC_TUNABLES=glibc.cpu.x86_shstk=off, or with `lockwright run`",
        ));
    }
    Ok(())
}

/// May a filter forbid this thread to load a library? The thread may confine itself at any moment, unless it is stopped.
pub(super) fn is_confined(process: &Process, thread: libc::pid_t) -> bool {
    !matches!(process.status(thread, "Seccomp").as_str(), "0" | "")
}

/// The error for a process with such a thread.
pub(super) fn confined(process: &Process) -> Failure {
    Failure::new(format!(
        "cannot attach to process {}: a seccomp filter confines it, which may kill it for loading a library",
        process.pid
    ))
    .hint("start it with `lockwright run -- PROGRAM`")
}

/// The library is later found in the process by its name.
pub(super) fn check_name(library: &Path) -> Result<(), Failure> {
    let name = library.file_name().unwrap_or_default().to_string_lossy();
    if library.is_absolute() && name.contains("lockwright") {
        return Ok(());
    }
    Err(Failure::new(format!("cannot attach with '{}'", library.display()))
        .hint("its path must begin with '/', and its file name must contain 'lockwright'"))
}

/// Do the process and this command see the same file at `library`?
pub(super) fn check_library(process: &Process, library: &Path) -> Result<(), Failure> {
    let same = |a: &fs::Metadata, b: &fs::Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
    let theirs = fs::metadata(process.sees(library));
    match (fs::metadata(library), theirs) {
        (Ok(ours), Ok(theirs)) if same(&ours, &theirs) => Ok(()),
        _ => Err(Failure::new(format!(
            "cannot attach to process {}: it does not see '{}' (it is in a container, or has its own mounts)",
            process.pid,
            library.display()
        ))
        .hint(format!(
            "cp '{}' /proc/{}/root/tmp/, and give --inside /tmp/liblockwright.so",
            library.display(),
            process.pid
        ))),
    }
}
