//! What is observed, and commands to try with it.

use lockwright_observer::counts::observation::Ranked;

/// The program or process under observation.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// A program and its arguments, quoted for a shell.
    Program(String),
    Process(libc::pid_t),
}

impl Target {
    /// A command that lets readers of a readers-writer lock wait for a waiting writer.
    pub(super) fn prefer_writers(&self, lock: &Ranked) -> String {
        match self {
            Self::Program(words) => format!("lockwright run --rwlock patient -- {words}"),
            Self::Process(pid) if lock.name.contains(' ') => {
                format!("lockwright switch {pid} --rwlock patient")
            }
            Self::Process(pid) => {
                format!("lockwright switch {pid} {} rwlock:prefer=patient", lock.name)
            }
        }
    }

    /// A command that says who waits for whom; empty: the program has ended.
    pub(super) fn who_waits(&self) -> String {
        match self {
            Self::Program(_) => String::new(),
            Self::Process(pid) => format!("lockwright doctor {pid}"),
        }
    }

    /// A command that tries another lock: for all of a program's mutexes, or for this one in a process.
    pub(super) fn compare(&self, lock: &Ranked, other: &str) -> String {
        match self {
            Self::Program(words) => format!("lockwright compare --lock glibc,auto,fifo -- {words}"),
            Self::Process(pid) => {
                // The list's "0x..., of FUNCTION", and lists of several locks, are not valid targets.
                let name = lock.name.split(',').next().unwrap_or_default();
                let one = if name.contains(' ') { "all" } else { name };
                format!("lockwright switch {pid} {one} {other} --guard 5s")
            }
        }
    }
}
