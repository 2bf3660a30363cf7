//! Finds what a thread waits for, by its system call and the words of the lock.
//!
//! glibc's locks record their holders: a mutex has its holder's thread id in its third word, and a readers-writer lock
//! has the writer's. Nothing records that a futex belongs to a lock. So a wait counts as one for a mutex if all words
//! are plausible for a mutex, and the holder is a thread of the process. Other waits are judged by the functions on the
//! waiter's stack (`outcome.rs`).

use super::plumbing::is_plumbing;
use lockwright_symbols::{AddressSpace, Blocked, Frame, read_memory};
use serde::Serialize;

/// The purpose of a futex wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// A glibc mutex at this address.
    Mutex {
        lock: u64,
        kind: Mutex,
        /// The holder's id in the process's namespace; 0: unknown.
        owner: u32,
    },
    /// A glibc readers-writer lock, if the waiter's stack agrees. Otherwise it is the word `at`.
    ReadWrite { lock: u64, at: u64, writer: u32, readers: u32, is_shared: bool },
    /// A word that is 2 while threads wait, as in most locks. No owner is recorded.
    Word { lock: u64 },
    /// Condition variables, semaphores, ends of threads: not a lock, as far as we can tell.
    Other,
}

/// The kind of a mutex.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mutex {
    #[default]
    Plain,
    Recursive,
    ErrorChecking,
    Adaptive,
    Robust,
    PriorityInheriting,
    PriorityProtected,
    /// Processes share it.
    Shared,
}

impl Mutex {
    /// By glibc's `__kind`; `None`: no mutex has this value.
    pub(crate) fn of(kind: u32) -> Option<Self> {
        const ROBUST: u32 = 0x10;
        const INHERITING: u32 = 0x20;
        const PROTECTED: u32 = 0x40;
        const SHARED: u32 = 0x80;
        const ELISION: u32 = 0x300;
        let known = 3 | ROBUST | INHERITING | PROTECTED | SHARED | ELISION;
        Some(match kind {
            _ if kind & !known != 0 => return None,
            _ if kind & INHERITING != 0 => Self::PriorityInheriting,
            _ if kind & PROTECTED != 0 => Self::PriorityProtected,
            _ if kind & ROBUST != 0 => Self::Robust,
            _ if kind & SHARED != 0 => Self::Shared,
            _ => match kind & 3 {
                0 => Self::Plain,
                1 => Self::Recursive,
                2 => Self::ErrorChecking,
                _ => Self::Adaptive,
            },
        })
    }

    /// The kind's usual name.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Plain => "mutex",
            Self::Recursive => "recursive mutex",
            Self::ErrorChecking => "error-checking mutex",
            Self::Adaptive => "adaptive mutex",
            Self::Robust => "robust mutex",
            Self::PriorityInheriting => "priority-inheriting mutex",
            Self::PriorityProtected => "priority-protected mutex",
            Self::Shared => "process-shared mutex",
        }
    }
}

const WAIT: u64 = libc::FUTEX_WAIT as u64;
const WAIT_BITSET: u64 = libc::FUTEX_WAIT_BITSET as u64;
const LOCK_PI: u64 = libc::FUTEX_LOCK_PI as u64;
const LOCK_PI2: u64 = 13;
/// The flags for private futexes and for the clock.
const FLAGS: u64 = (libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME) as u64;
/// The bit that marks waiters, next to the holder's id, in robust and priority-inheriting mutexes.
const WAITERS: u32 = 0x8000_0000;
const ID: u32 = 0x3fff_ffff;

/// The writer that holds a readers-writer lock, glibc's or ours, by its id in the process's namespace; 0: none.
pub(crate) fn writer(pid: libc::pid_t, lock: u64) -> u32 {
    /// Where both have it: glibc's `__cur_writer`.
    const WRITER: u64 = 24;
    let mut bytes = [0; 4];
    match read_memory(pid, lock + WRITER, &mut bytes) {
        Ok(4) => u32::from_ne_bytes(bytes),
        _ => 0,
    }
}

/// A mutex's current holder, by its id in the process's namespace; 0: none, or unknown.
pub(crate) fn owner(pid: libc::pid_t, lock: u64, kind: Mutex) -> u32 {
    let mut bytes = [0; 12];
    match read_memory(pid, lock, &mut bytes) {
        Ok(12) => {}
        _ => return 0,
    }
    let word =
        |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    match kind {
        Mutex::Robust | Mutex::PriorityInheriting => word(0) & ID,
        // An owner that a free mutex still names has released it.
        _ => {
            if word(0) == 0 {
                0
            } else {
                word(8)
            }
        }
    }
}

/// What this thread waits for; `None`: it isn't in a futex call. `is_thread` tells whether an id belongs to a thread of
/// the process.
pub(crate) fn of(
    pid: libc::pid_t,
    blocked: &Blocked,
    is_thread: impl Fn(u32) -> bool,
) -> Option<Wait> {
    if blocked.call != Some(libc::SYS_futex) {
        return None;
    }
    let [at, operation, value, ..] = blocked.arguments;
    let is_private = operation & libc::FUTEX_PRIVATE_FLAG as u64 != 0;
    let (operation, value) = (operation & 0xffff_ffff & !FLAGS, value as u32);
    let words = |at: u64| {
        let mut bytes = [0; 56];
        let length = read_memory(pid, at, &mut bytes).unwrap_or(0);
        Words { bytes, length }
    };
    Some(match operation {
        LOCK_PI | LOCK_PI2 => {
            let all = words(at);
            let owner = all.word(0).unwrap_or(0) & ID;
            match all.word(16).and_then(Mutex::of) {
                Some(kind) => Wait::Mutex { lock: at, kind, owner },
                None => Wait::Word { lock: at },
            }
        }
        WAIT | WAIT_BITSET => mutex(at, value, &words(at), &is_thread)
            // A thread of another process may hold what processes share.
            .or_else(|| shared(at, value, &words(at)).filter(|_| !is_private))
            .or_else(|| read_write(at, value, words, |id| is_thread(id) || !is_private))
            .unwrap_or(if value == 2 { Wait::Word { lock: at } } else { Wait::Other }),
        _ => Wait::Other,
    })
}

fn mutex(at: u64, value: u32, words: &Words, is_thread: impl Fn(u32) -> bool) -> Option<Wait> {
    let (state, owner) = (words.word(0)?, words.word(8)?);
    let kind = Mutex::of(words.word(16)?)?;
    let is_one = match kind {
        // The word itself contains the holder's id. A waiter sleeps only after it has set its mark.
        Mutex::Robust => value & WAITERS != 0 && is_thread(value & ID),
        // The upper bits contain a priority.
        Mutex::PriorityProtected => value & 0x7ff == 2 && is_thread(owner),
        _ => value == 2 && state <= 2 && is_thread(owner),
    };
    let owner = if kind == Mutex::Robust { state & ID } else { owner };
    is_one.then_some(Wait::Mutex { lock: at, kind, owner })
}

fn shared(at: u64, value: u32, words: &Words) -> Option<Wait> {
    let (state, owner) = (words.word(0)?, words.word(8)?);
    let kind = Mutex::of(words.word(16)?).filter(|kind| *kind == Mutex::Shared)?;
    let is_one = value == 2 && state <= 2 && owner != 0;
    is_one.then_some(Wait::Mutex { lock: at, kind, owner })
}

/// Readers and writers wait on the third and fourth word.
fn read_write(
    at: u64,
    value: u32,
    words: impl Fn(u64) -> Words,
    is_thread: impl Fn(u32) -> bool,
) -> Option<Wait> {
    if value & 2 == 0 || value > 3 {
        return None;
    }
    [8, 12].into_iter().find_map(|behind| {
        let lock = at.checked_sub(behind).filter(|lock| lock % 8 == 0)?;
        let all = words(lock);
        let word = |offset| all.word(offset);
        let (readers, writer) = (word(0)? >> 3, word(24)?);
        // A thread holds it, or is about to. Otherwise no thread would wait.
        let is_one = word(0)? != 0
            && word(8)? <= 3
            && word(12)? <= 3
            && (word(16)?, word(20)?) == (0, 0)
            && word(28)? <= 1
            && (word(40)?, word(44)?) == (0, 0)
            && word(48)? <= 3
            && (writer == 0 || is_thread(writer));
        let is_shared = word(28)? != 0;
        is_one.then_some(Wait::ReadWrite { lock, at, writer, readers, is_shared })
    })
}

/// May a thread with this stack, the innermost function first, wait for a mutex, glibc's or ours? An event of the program's own may have
/// the same words. Only glibc and our library wait for mutexes, so where a function of theirs has no name, its file says enough.
pub(crate) fn may_be_mutex(frames: &[Frame], is_static: bool) -> bool {
    /// Maximum number of functions below the one that the program called.
    const INNER: usize = 8;
    const MODULES: [&str; 4] = ["libc.so", "libc-2.", "libpthread", "ld-linux"];
    let mut names = frames.iter().take(INNER).filter_map(|frame| frame.function.as_deref());
    let is_named = |name: &str| name.contains("pthread_mutex_") || name.contains("lll_lock_wait");
    let is_nameless = |frame: &Frame| {
        let is_libcs = MODULES.iter().any(|start| frame.module.starts_with(start));
        frame.function.is_none() && (is_static || is_libcs)
    };
    names.any(is_named) || is_in_ours(frames) || frames.first().is_some_and(is_nameless)
}

/// Does a thread with this stack sleep in our library?
pub(crate) fn is_in_ours(frames: &[Frame]) -> bool {
    // Further out, our library may have started the thread.
    let mut inner = frames.iter().take_while(|frame| is_plumbing(frame));
    inner.any(|frame| {
        let name = frame.function.as_deref().unwrap_or_default();
        frame.module.contains("lockwright") || name.contains("lockwright_")
    })
}

/// Is it a program without a C library of its own file?
pub(crate) fn is_static(space: &AddressSpace) -> bool {
    let mut files = space.mappings.iter().filter_map(|mapping| mapping.path.file_name());
    !files.any(|name| {
        let name = name.to_string_lossy();
        ["ld-", "libc.so", "libc-2."].iter().any(|start| name.starts_with(start))
    })
}

/// The first bytes of a possible lock.
struct Words {
    bytes: [u8; 56],
    length: usize,
}

impl Words {
    fn word(&self, at: usize) -> Option<u32> {
        let bytes = self.bytes[..self.length].get(at..at + 4)?;
        Some(u32::from_ne_bytes(bytes.try_into().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(at: u64, operation: i32, value: u32) -> Blocked {
        let arguments = [at, operation as u64, value.into(), 0, 0, 0];
        Blocked { call: Some(libc::SYS_futex), arguments, stack_pointer: 0, instruction: 0 }
    }

    /// Zeroes surround the lock, which is aligned like any lock.
    #[repr(align(8))]
    struct Memory([u32; 32]);

    fn what(lock: &[u32], word: usize, operation: i32, value: u32) -> Wait {
        let mut memory = Memory([0; 32]);
        memory.0[8..8 + lock.len()].copy_from_slice(lock);
        let start = memory.0[8..].as_ptr() as u64;
        let pid = std::process::id().cast_signed();
        let all = waiting(start + 4 * word as u64, operation, value);
        match of(pid, &all, |id| id == 77).unwrap() {
            Wait::Mutex { lock, kind, owner } => Wait::Mutex { lock: lock - start, kind, owner },
            Wait::ReadWrite { lock, at, writer, readers, is_shared } => {
                let (lock, at) = (lock - start, at - start);
                Wait::ReadWrite { lock, at, writer, readers, is_shared }
            }
            Wait::Word { lock } => Wait::Word { lock: lock - start },
            Wait::Other => Wait::Other,
        }
    }

    const PRIVATE: i32 = libc::FUTEX_PRIVATE_FLAG;

    #[test]
    fn mutexes_are_known_by_their_words() {
        let mutex = |state, owner, kind| {
            let mut words = [0; 14];
            (words[0], words[2], words[4]) = (state, owner, kind);
            words
        };
        let wait = libc::FUTEX_WAIT | PRIVATE;
        let plain = Wait::Mutex { lock: 0, kind: Mutex::Plain, owner: 77 };
        assert_eq!(what(&mutex(2, 77, 0), 0, wait, 2), plain);
        let timed = libc::FUTEX_WAIT_BITSET | PRIVATE | libc::FUTEX_CLOCK_REALTIME;
        assert_eq!(what(&mutex(2, 77, 0), 0, timed, 2), plain);
        // The holder is not one of our threads, or there is none, or the word is not a mutex's.
        assert_eq!(what(&mutex(2, 78, 0), 0, wait, 2), Wait::Word { lock: 0 });
        assert_eq!(what(&mutex(2, 0, 0), 0, wait, 2), Wait::Word { lock: 0 });
        assert_eq!(what(&mutex(9, 77, 0), 0, wait, 2), Wait::Word { lock: 0 });
        assert_eq!(what(&mutex(7, 77, 0), 0, wait, 7), Wait::Other);
        // The id is in the word itself.
        let held = 77 | WAITERS;
        let robust = Wait::Mutex { lock: 0, kind: Mutex::Robust, owner: 77 };
        assert_eq!(what(&mutex(held, 77, 0x10), 0, libc::FUTEX_WAIT, held), robust);
        let inheriting = Wait::Mutex { lock: 0, kind: Mutex::PriorityInheriting, owner: 77 };
        assert_eq!(what(&mutex(held, 0, 0x20), 0, libc::FUTEX_LOCK_PI, 0), inheriting);
    }

    #[test]
    fn readers_and_writers_wait_on_two_words() {
        let mut lock = [0_u32; 16];
        (lock[0], lock[2], lock[6]) = (3, 3, 77);
        let wait = libc::FUTEX_WAIT_BITSET | PRIVATE;
        let found = Wait::ReadWrite { lock: 0, at: 8, writer: 77, readers: 0, is_shared: false };
        assert_eq!(what(&lock, 2, wait, 3), found);
        (lock[0], lock[3], lock[6]) = (5 << 3, 3, 0);
        let found = Wait::ReadWrite { lock: 0, at: 12, writer: 0, readers: 5, is_shared: false };
        assert_eq!(what(&lock, 3, wait, 3), found);
        lock[4] = 1;
        assert_eq!(what(&lock, 3, wait, 3), Wait::Other);
    }

    /// Then a thread of another process may hold it.
    #[test]
    fn locks_that_processes_share_are_known_by_their_words() {
        let mut mutex = [0_u32; 14];
        (mutex[0], mutex[2], mutex[4]) = (2, 78, 0x80);
        let shared = Wait::Mutex { lock: 0, kind: Mutex::Shared, owner: 78 };
        assert_eq!(what(&mutex, 0, libc::FUTEX_WAIT, 2), shared);
        assert_eq!(what(&mutex, 0, libc::FUTEX_WAIT | PRIVATE, 2), Wait::Word { lock: 0 });
        mutex[4] = 0x81;
        assert_eq!(what(&mutex, 0, libc::FUTEX_WAIT, 2), shared, "a recursive one");
        let mut lock = [0_u32; 16];
        (lock[0], lock[2], lock[6], lock[7]) = (3, 3, 78, 1);
        let found = Wait::ReadWrite { lock: 0, at: 8, writer: 78, readers: 0, is_shared: true };
        assert_eq!(what(&lock, 2, libc::FUTEX_WAIT_BITSET, 3), found);
        assert_eq!(what(&lock, 2, libc::FUTEX_WAIT_BITSET | PRIVATE, 3), Wait::Other);
    }

    #[test]
    fn words_of_a_mutex_are_one_only_where_mutexes_are_waited_for() {
        let frame = |function: &str, module: &str| Frame {
            function: Some(function.to_owned()).filter(|name| !name.is_empty()),
            module: module.into(),
            ..Frame::default()
        };
        let may = |all: &[(&str, &str)], is_static| {
            let frames: Vec<_> = all.iter().map(|(name, file)| frame(name, file)).collect();
            may_be_mutex(&frames, is_static)
        };
        let own = ("takes", "server");
        let [lock, raw] = [("___pthread_mutex_lock", "libc.so.6"), ("syscall", "libc.so.6")];
        assert!(may(&[("__lll_lock_wait", "libc.so.6"), lock, own], false));
        assert!(may(&[("", "libc.so.6"), own], false));
        assert!(may(&[("", "liblockwright.so"), own], false));
        assert!(may(&[raw, ("", "liblockwright.so"), own], false));
        // Events of the program's own: by glibc's function, and by none; also in a thread that our library has started.
        assert!(!may(&[raw, own, ("", "liblockwright.so"), ("clone3", "libc.so.6")], false));
        assert!(!may(&[own], false) && !may(&[("", "server")], false));
        assert!(may(&[("", "server")], true) && !may(&[raw, own], true));
    }

    #[test]
    fn other_calls_are_no_waits() {
        let mut sleeping = waiting(0, 0, 0);
        sleeping.call = Some(libc::SYS_nanosleep);
        assert_eq!(of(1, &sleeping, |_| true), None);
    }
}
