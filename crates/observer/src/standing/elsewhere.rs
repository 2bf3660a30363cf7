//! Holders that are no threads of the waiter's process.
//!
//! A lock in shared memory may be held by a thread of another process, which will release it. Any other lock is the process's own: then its
//! holder has ended, or was left behind by a fork.

use super::looker::ids;
use crate::sampler::target::field;
use lockwright_symbols::proc_text;
use std::fs;
use std::io::ErrorKind;
use std::iter::successors;
use std::path::PathBuf;

/// The processes that this one was forked from, the nearest first. One that has started another program has no locks from before.
pub(super) fn forked_from(pid: libc::pid_t) -> impl Iterator<Item = libc::pid_t> {
    let program = |pid| fs::read_link(format!("/proc/{pid}/exe")).ok();
    let own = program(pid);
    let is_fork = move |parent: &libc::pid_t| own.is_some() && program(*parent) == own;
    successors(parent(pid), |&pid| parent(pid)).take_while(is_fork)
}

fn parent(pid: libc::pid_t) -> Option<libc::pid_t> {
    let status = proc_text(format!("/proc/{pid}/status")).ok()?;
    field(&status, "PPid:")?.parse().ok()
}

/// A piece of memory that processes share: the file's device and number, which memory without a file has, too.
pub(super) type Memory = (String, String);

/// The memory at an address, if it is shared with others, or with later forks. A lock's own bit says only what it was made for.
pub(super) fn shared(pid: libc::pid_t, at: u64) -> Option<Memory> {
    let maps = proc_text(format!("/proc/{pid}/maps")).ok()?;
    maps.lines().find_map(|line| {
        let (start, end) = line.split_once(' ')?.0.split_once('-')?;
        let hex = |text| u64::from_str_radix(text, 16).ok();
        if (hex(start)?..hex(end)?).contains(&at) { memory(line) } else { None }
    })
}

/// Does a process have that memory? Not if we can't see.
pub(super) fn has(pid: libc::pid_t, wanted: &Memory) -> bool {
    let maps = proc_text(format!("/proc/{pid}/maps")).unwrap_or_default();
    maps.lines().any(|line| memory(line).as_ref() == Some(wanted))
}

/// What a line of `maps` is about, if that is shared: `7f..-7f.. rw-s 00000000 00:01 1234 /dev/zero (deleted)`.
fn memory(line: &str) -> Option<Memory> {
    let mut words = line.split_whitespace().skip(1);
    words.next().filter(|rights| rights.ends_with('s'))?;
    words.next()?;
    Some((words.next()?.to_owned(), words.next()?.to_owned()))
}

/// Does a process that we may look at have this memory, but other ids than that process: in another container?
pub(super) fn has_strangers(pid: libc::pid_t, wanted: &Memory) -> bool {
    let namespace = |pid| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let its = namespace(pid);
    let names =
        fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.file_name());
    let mut processes = names.filter_map(|name| name.to_str()?.parse().ok());
    processes.any(|one| namespace(one).is_some_and(|of| Some(of) != its) && has(one, wanted))
}

/// A thread of any process, by its id in the namespace of one of them.
#[derive(Debug, PartialEq)]
pub(super) enum Sought {
    Thread {
        process: libc::pid_t,
        tid: libc::pid_t,
    },
    /// No thread there has this id.
    Nowhere,
    /// We may not see them all.
    Unknown,
}

pub(super) fn find(pid: libc::pid_t, id: u32) -> Sought {
    let namespace = |pid: &str| fs::read_link(PathBuf::from(format!("/proc/{pid}/ns/pid")));
    let Ok(its) = namespace(&pid.to_string()) else { return Sought::Unknown };
    if namespace("self").is_ok_and(|ours| ours == its) {
        return match is_thread(id) {
            true => process_of(id).unwrap_or(Sought::Unknown),
            false => Sought::Nowhere,
        };
    }
    // In a container, ids are others than ours.
    let mut found = Sought::Nowhere;
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some((name, process)) = name.to_str().and_then(|name| Some((name, name.parse().ok()?)))
        else {
            continue;
        };
        match namespace(name) {
            Ok(one) if one == its => {
                if let Some(&tid) = ids(process).get(&id) {
                    return Sought::Thread { process, tid };
                }
            }
            Err(error) if error.kind() == ErrorKind::PermissionDenied => found = Sought::Unknown,
            _ => {}
        }
    }
    found
}

fn process_of(id: u32) -> Option<Sought> {
    let tid = id.try_into().ok()?;
    let status = proc_text(format!("/proc/{tid}/status")).ok()?;
    Some(Sought::Thread { process: field(&status, "Tgid:")?.parse().ok()?, tid })
}

/// Is it a thread of some process in our namespace? `/proc` may hide those of other users.
fn is_thread(id: u32) -> bool {
    const NO_SIGNAL: libc::c_int = 0;
    // SAFETY: the call has no preconditions; without a signal the kernel only looks.
    let sent = unsafe { libc::syscall(libc::SYS_tkill, id, NO_SIGNAL) };
    sent == 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use memmap2::MmapMut;
    use std::fs::File;
    use std::os::fd::FromRawFd;

    /// A page that another process could share.
    pub(in crate::standing) fn page() -> MmapMut {
        // SAFETY: a name that ends with zero.
        let fd = unsafe { libc::memfd_create(c"page".as_ptr(), libc::MFD_CLOEXEC) };
        assert!(fd >= 0);
        // SAFETY: just opened, and owned by nobody else.
        let file = unsafe { File::from_raw_fd(fd) };
        file.set_len(4096).unwrap();
        // SAFETY: nobody else has the file.
        unsafe { MmapMut::map_mut(&file).unwrap() }
    }

    #[test]
    fn threads_are_found_by_their_ids_in_any_process() {
        let own = std::process::id().cast_signed();
        // SAFETY: no preconditions.
        let tid = unsafe { libc::gettid() };
        let here = Sought::Thread { process: own, tid };
        assert_eq!(find(own, tid.cast_unsigned()), here);
        // Linux has no ids above 4 million.
        assert_eq!(find(own, (1 << 22) + 7), Sought::Nowhere);
    }

    #[test]
    fn only_shared_memory_is() {
        let own = std::process::id().cast_signed();
        let on_stack = 0_u32;
        assert_eq!(shared(own, (&raw const on_stack) as u64), None);
        let map = page();
        let memory = shared(own, map.as_ptr() as u64).unwrap();
        assert!(has(own, &memory));
        let other = page();
        assert_ne!(shared(own, other.as_ptr() as u64).unwrap(), memory);
        assert_eq!(super::memory("1000-2000 rw-p 00000000 00:01 7 /dev/zero"), None);
    }
}
