//! What a thread sleeps for: the lock's words say, or else the functions on its stack.

use super::looker::Observer;
use crate::sampler::plumbing::is_plumbing;
use crate::sampler::wait::{self, Mutex, Wait};
use lockwright_symbols::{Blocked, Frame, read_memory};

/// What a thread sleeps for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Awaited {
    Lock {
        address: u64,
        kind: LockWanted,
        /// The holder's id in the process's own namespace; 0: none is recorded.
        owner: u32,
        /// The number of readers that hold a readers-writer lock.
        readers: u32,
    },
    /// The end of a thread of the process.
    End { thread: libc::pid_t },
    /// Its turn in the line of one of our mutexes, behind other threads that wait.
    Turn,
}

/// The kind of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockWanted {
    Mutex(Mutex),
    /// LockWanted for reading, or for writing.
    Reading,
    Writing,
}

impl Awaited {
    /// In words, with an article.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Lock { kind: LockWanted::Mutex(kind), .. } => kind.word(),
            Self::Lock { kind: LockWanted::Reading, .. } => "readers-writer lock, for reading",
            Self::Lock { kind: LockWanted::Writing, .. } => "readers-writer lock, for writing",
            Self::End { .. } => "join",
            Self::Turn => "line",
        }
    }

    pub(super) fn is_lock(&self) -> bool {
        matches!(self, Self::Lock { .. })
    }

    /// Does this sleep say nothing of how long the wait has taken? Writers at our own locks look again once a second.
    pub(super) fn is_short_of(&self, state: &Blocked) -> bool {
        const TIMEOUT: usize = 3;
        let Self::Lock { address, kind: LockWanted::Writing, .. } = self else { return false };
        state.arguments[0] == address + OUR_WRITERS && state.arguments[TIMEOUT] != 0
    }
}

/// Does this wait end by itself, at a deadline of the program's? glibc's sleeps have one only then; ours may only look again.
pub(super) fn has_deadline(observer: &mut Observer, state: &Blocked, stack: &[u64]) -> bool {
    const TIMEOUT: usize = 3;
    let below = Below::of(&observer.functions(stack));
    if !below.is_ours {
        return state.arguments[TIMEOUT] != 0;
    }
    let timed =
        ["timedlock", "clocklock", "timedrdlock", "clockrdlock", "timedwrlock", "clockwrlock"];
    timed.iter().chain(&["lock_until"]).any(|part| below.calls(part))
}

/// Words of our own readers-writer lock (`crates/runtime/src/rwlock/lock.rs`): where readers sleep, where writers sleep, who writes.
const OUR_WRITERS: u64 = 4;
const OUR_OWNER: u64 = 24;
/// In the first word: readers, from this bit on, and above them a mark.
const OUR_READERS: u32 = 3;
const OUR_MARK: u32 = 1 << 31;
/// In the first word: a writer holds it.
const OUR_WRITE: u32 = 3;

/// What this thread sleeps for; `None`: for nothing that another thread holds.
pub(super) fn of(observer: &mut Observer, state: &Blocked, stack: &[u64]) -> Option<Awaited> {
    let pid = observer.pid;
    let lock = |address, kind, owner, readers| Awaited::Lock { address, kind, owner, readers };
    let by_words = {
        let ids = &observer.ids;
        wait::of(pid, state, |id| ids.contains_key(&id))?
    };
    // A thread of another process may hold what processes share.
    let known = |owner: u32| if observer.ids.contains_key(&owner) { owner } else { 0 };
    let by_words = match by_words {
        Wait::Mutex { lock, kind: Mutex::Shared, owner } => {
            Wait::Mutex { lock, kind: Mutex::Shared, owner: known(owner) }
        }
        Wait::ReadWrite { lock, at, writer, readers, is_shared: true } => {
            Wait::ReadWrite { lock, at, writer: known(writer), readers, is_shared: true }
        }
        other => other,
    };
    let below = Below::of(&observer.functions(stack));
    let at = state.arguments[0];
    if below.calls("rwlock") {
        let kind = if below.calls("wrlock") { LockWanted::Writing } else { LockWanted::Reading };
        return match by_words {
            _ if below.is_ours => ours(pid, at),
            Wait::ReadWrite { lock: address, writer, readers, .. } => {
                Some(lock(address, kind, writer, if writer == 0 { readers } else { 0 }))
            }
            _ => None,
        };
    }
    match by_words {
        Wait::Mutex { lock: address, kind, owner } => {
            Some(lock(address, LockWanted::Mutex(kind), owner, 0))
        }
        _ if below.calls("cond") => None,
        // The holder may have ended, or be a thread of the parent.
        Wait::Word { .. } if below.is_ours || below.calls("mutex") => {
            let (kind, owner) = orphan(pid, at)?;
            Some(lock(at, LockWanted::Mutex(kind), owner, 0))
        }
        // An installed library is stripped, and names none of its functions.
        _ if below.is_ours && is_our_rwlock(pid, at) => ours(pid, at),
        _ if below.is_ours && below.calls("front") => Some(Awaited::Turn),
        _ if below.calls("join") => {
            let thread = *observer.ids.get(&(state.arguments[2] as u32))?;
            Some(Awaited::End { thread })
        }
        _ => None,
    }
}

/// The functions of libraries below the program's own.
struct Below {
    names: Vec<String>,
    /// Are they functions of our library?
    is_ours: bool,
}

impl Below {
    fn of(frames: &[Frame]) -> Self {
        let inner = || frames.iter().take_while(|frame| is_plumbing(frame));
        Self {
            names: inner().filter_map(|frame| frame.function.clone()).collect(),
            is_ours: inner().any(|frame| frame.module.contains("lockwright")),
        }
    }

    fn calls(&self, part: &str) -> bool {
        self.names.iter().any(|name| name.contains(part))
    }
}

/// A mutex whose holder is no thread of the process.
fn orphan(pid: libc::pid_t, at: u64) -> Option<(Mutex, u32)> {
    let kind = Mutex::of(word(pid, at + 16)?)?;
    let owner = wait::owner(pid, at, kind);
    // Linux has no ids above 4 million.
    (word(pid, at)? != 0 && (1..1 << 22).contains(&owner)).then_some((kind, owner))
}

/// Do the words around this one look like a readers-writer lock of ours on which a thread sleeps there?
fn is_our_rwlock(pid: libc::pid_t, at: u64) -> bool {
    // Words that stay zero in a private lock: glibc's futex and padding, sharing, elision, the end.
    const ZEROES: [u64; 7] = [12, 16, 20, 28, 32, 36, 52];
    const PREFER: u64 = 48;
    const ASLEEP: u32 = 4;
    let writes = at % 8 == OUR_WRITERS;
    let address = if writes { at - OUR_WRITERS } else { at };
    let word = |offset| word(pid, address + offset);
    let (Some(state), Some(writers)) = (word(0), word(OUR_WRITERS)) else { return false };
    // A writer that sleeps is counted above two marks; a reader is counted, behind a writer, and has said that it sleeps.
    let sleeps = match writes {
        true => writers >> 2 > 0 && state != 0,
        false => {
            state & OUR_WRITE != 0 && state & ASLEEP != 0 && state & !OUR_MARK >= 1 << OUR_READERS
        }
    };
    sleeps
        && word(PREFER).is_some_and(|prefer| prefer <= 3)
        && ZEROES.iter().all(|offset| word(*offset) == Some(0))
}

/// One of our own readers-writer locks. It is aligned to 8 bytes, so the word says who sleeps there.
fn ours(pid: libc::pid_t, at: u64) -> Option<Awaited> {
    let (address, kind) = match at % 8 {
        OUR_WRITERS => (at - OUR_WRITERS, LockWanted::Writing),
        _ => (at, LockWanted::Reading),
    };
    let (state, owner) = (word(pid, address)?, word(pid, address + OUR_OWNER)?);
    let readers = if state & OUR_WRITE == 0 { (state & !OUR_MARK) >> OUR_READERS } else { 0 };
    Some(Awaited::Lock { address, kind, owner, readers })
}

fn word(pid: libc::pid_t, at: u64) -> Option<u32> {
    let mut bytes = [0; 4];
    let length = read_memory(pid, at, &mut bytes).ok()?;
    (length == bytes.len()).then_some(u32::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A lock of 56 bytes, aligned like one.
    #[repr(align(8))]
    struct Memory([u32; 16]);

    fn is_one(words: &[(usize, u32)], sleeps_at: usize) -> bool {
        let mut memory = Memory([0; 16]);
        words.iter().for_each(|&(at, word)| memory.0[at] = word);
        let start = memory.0.as_ptr() as u64;
        is_our_rwlock(std::process::id().cast_signed(), start + 4 * sleeps_at as u64)
    }

    #[test]
    fn our_readers_writer_locks_are_known_without_names() {
        // A writer behind two readers; a reader behind a writer.
        assert!(is_one(&[(0, 2 << OUR_READERS), (1, 4)], 1));
        let behind_writer = [(0, 1 << OUR_READERS | 4 | 1), (6, 77), (12, 1)];
        assert!(is_one(&behind_writer, 0));
        // Nobody is counted, a free lock, a preference that there isn't, a word that is always zero.
        assert!(!is_one(&[(0, 2 << OUR_READERS), (1, 1)], 1));
        assert!(!is_one(&[(1, 4)], 1));
        assert!(!is_one(&[behind_writer[0], (12, 9)], 0));
        assert!(!is_one(&[behind_writer[0], (8, 1)], 0));
        // A gate of a waiter in line.
        assert!(!is_one(&[(0, 1)], 0));
    }
}
