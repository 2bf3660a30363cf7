//! Who has to do something before a sleeper goes on, and what that thread does meanwhile.

use super::awaited::{Awaited, LockWanted};
use super::elsewhere::{Sought, find, forked_from, has, has_strangers, shared};
use super::looker::{Named, Observer, ids};
use super::sleeper::Sleeper;
use crate::sampler::call::call_name;
use crate::sampler::plumbing::own;
use lockwright_symbols::{Blocked, Frame, TaskState, blocked, task};

/// Who holds what a thread waits for.
#[derive(Clone, Debug, PartialEq)]
pub enum HolderNow {
    /// Another thread of the process, and what it does.
    Thread(Named, Doing),
    /// The waiting thread itself.
    Itself,
    /// A thread that has ended, by its id in the process's own namespace.
    Ended(u32),
    /// A thread of a process that this one was forked from: a fork copies only the thread that calls it.
    NotCopied {
        /// The thread.
        thread: Named,
        /// Its process.
        process: libc::pid_t,
        /// Is that the parent process? Otherwise it is one further up.
        is_parent: bool,
    },
    /// A thread of another process, with which this one shares the lock.
    Elsewhere {
        /// The thread.
        thread: Named,
        /// Its process.
        process: libc::pid_t,
    },
    /// A thread of another process that shares the lock, but it isn't known which.
    AnotherProcess,
    /// No thread of this process, which shares the lock with no other one: an id in the process's own namespace.
    Stranger(u32),
    /// That many readers: the lock only counts them.
    Readers(u32),
    /// Nobody that the lock records.
    Unknown,
}

impl HolderNow {
    /// The thread.
    pub(super) fn thread(&self) -> Option<libc::pid_t> {
        match self {
            Self::Thread(thread, _) => Some(thread.tid),
            _ => None,
        }
    }

    /// Will nobody ever release it?
    pub fn is_hopeless(&self) -> bool {
        matches!(self, Self::Itself | Self::Ended(_) | Self::NotCopied { .. } | Self::Stranger(_))
    }
}

/// What a holder does.
#[derive(Clone, Debug, PartialEq)]
pub enum Doing {
    /// It runs, or could if it had a CPU.
    Runs,
    /// It sleeps in this system call, in this function of the program.
    Sleeps {
        /// The call.
        call: String,
        /// The function.
        at: Frame,
    },
    /// It waits for the lock, or for the thread's end, that another of the waits is for.
    Waits,
    /// It waits for a condition variable, or for something else that a thread has to signal.
    AwaitsSignal {
        /// In this function of the program.
        at: Frame,
    },
    /// It waits for a page of memory.
    Faults {
        /// In this function of the program.
        at: Frame,
    },
    /// A signal or a debugger has stopped it.
    Stopped,
}

/// Holders of this kind are threads that pass a lock on to each other (`front/word.rs`).
const GRANTING: u32 = 1 << 30;

/// Who holds up this sleeper.
pub(super) fn of(observer: &mut Observer, sleeper: &Sleeper, all: &[Sleeper]) -> HolderNow {
    let tid = match sleeper.awaited {
        Awaited::End { thread } => thread,
        Awaited::Lock { owner: 0, readers: 1.., .. } if !is_mutex(&sleeper.awaited) => {
            let Awaited::Lock { readers, .. } = sleeper.awaited else { return HolderNow::Unknown };
            return HolderNow::Readers(readers);
        }
        Awaited::Turn | Awaited::Lock { owner: 0 | GRANTING, .. } => return HolderNow::Unknown,
        Awaited::Lock { owner, address, .. } => match observer.ids.get(&owner) {
            Some(&tid) => tid,
            None => return of_other(observer.pid, address, owner),
        },
    };
    if tid == sleeper.tid {
        return HolderNow::Itself;
    }
    let doing =
        if all.iter().any(|one| one.tid == tid) { Doing::Waits } else { doing(observer, tid) };
    HolderNow::Thread(Named::of(observer.pid, tid), doing)
}

fn is_mutex(awaited: &Awaited) -> bool {
    matches!(awaited, Awaited::Lock { kind: LockWanted::Mutex(_), .. })
}

/// Who holds the lock at this address of a process, by an id that is none of its threads'.
fn of_other(pid: libc::pid_t, lock: u64, owner: u32) -> HolderNow {
    let found = find(pid, owner);
    if let Some(memory) = shared(pid, lock) {
        return match found {
            Sought::Thread { process, tid } if has(process, &memory) => {
                HolderNow::Elsewhere { thread: Named::of(process, tid), process }
            }
            Sought::Nowhere if !has_strangers(pid, &memory) => HolderNow::Ended(owner),
            // It has an id of its own in another container; or the thread with that id has none of this memory, or we may not see it.
            Sought::Nowhere | Sought::Thread { .. } | Sought::Unknown => HolderNow::AnotherProcess,
        };
    }
    for (above, process) in forked_from(pid).enumerate() {
        if let Some(&tid) = ids(process).get(&owner) {
            let thread = Named::of(process, tid);
            return HolderNow::NotCopied { thread, process, is_parent: above == 0 };
        }
    }
    match found {
        Sought::Nowhere => HolderNow::Ended(owner),
        // Some process above it has ended, so that the way up is lost; or the id is another thread's by now.
        Sought::Thread { .. } | Sought::Unknown => HolderNow::Stranger(owner),
    }
}

/// What a thread that isn't among the sleepers does.
fn doing(observer: &mut Observer, tid: libc::pid_t) -> Doing {
    let pid = observer.pid;
    if task(pid, tid).is_ok_and(|task| task.state == TaskState::Stopped) {
        return Doing::Stopped;
    }
    let Ok(Some(state)) = blocked(pid, tid) else { return Doing::Runs };
    let stack = observer.stack(&state);
    let frames = observer.frames(&stack);
    let at = frames.get(own(&frames)).cloned().unwrap_or_default();
    match state {
        Blocked { call: None, .. } => Doing::Faults { at },
        Blocked { call: Some(libc::SYS_futex), .. } => Doing::AwaitsSignal { at },
        Blocked { call: Some(number), .. } => Doing::Sleeps { call: call_name(number), at },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::standing::elsewhere::tests::page;
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    #[test]
    fn a_lock_of_its_own_is_held_by_nobody_elsewhere() {
        let own = std::process::id().cast_signed();
        let (word, gone) = (0_u32, (1 << 22) + 7);
        let private = (&raw const word) as u64;
        assert_eq!(of_other(own, private, gone), HolderNow::Ended(gone));
        let map = page();
        let common = map.as_ptr() as u64;
        assert_eq!(of_other(own, common, gone), HolderNow::Ended(gone));
        // Process 1 has none of our memory.
        assert_eq!(of_other(own, common, 1), HolderNow::AnotherProcess);
        assert!(!of_other(own, common, 1).is_hopeless());
    }

    /// Its threads have other ids there. Where no container may be made, there is nothing to test.
    #[test]
    fn who_shares_the_memory_in_another_container_may_hold_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(4096).unwrap();
        // SAFETY: nobody truncates the file.
        let map = unsafe { memmap2::MmapMut::map_mut(file.as_file()).unwrap() };
        let (own, gone) = (std::process::id().cast_signed(), (1 << 22) + 7);
        let at = map.as_ptr() as u64;
        assert_eq!(of_other(own, at, gone), HolderNow::Ended(gone));
        let script = "import mmap, sys; f = open(sys.argv[1], 'r+b'); m = mmap.mmap(f.fileno(), 0); print(1, flush=True); sys.stdin.read()";
        let mut other = Command::new("unshare");
        other.args(["--pid", "--fork", "python3", "-c", script]).arg(file.path());
        let other = other.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let Ok(mut other) = other.spawn() else { return };
        let mut said = String::new();
        BufReader::new(other.stdout.take().unwrap()).read_line(&mut said).unwrap();
        let found = of_other(own, at, gone);
        drop(other.stdin.take());
        other.wait().unwrap();
        assert!(said.is_empty() || found == HolderNow::AnotherProcess, "{found:?}");
    }
}
