//! Functions that only pass a lock on: `my_mutex_lock`, `uv_mutex_unlock`, `port::Mutex::Lock`, `std::scoped_lock`'s constructor; or a condition
//! variable: `uv_cond_wait`.
//!
//! Whose section it is, their callers say. A function is one of these if its name ends as such functions' names do. A program's own
//! wrappers may have any names: users give those (`--wrapper`).

use super::snapshot::{At, Lock, Seen};
use lockwright_symbols::{Frame, Symboliser};
use std::sync::OnceLock;

/// Those that the user has given, for the life of the command.
static GIVEN: OnceLock<Vec<String>> = OnceLock::new();

/// Functions with these names, too, only pass a lock on. Without a name of its own, a function is `libfoo.so+0x1234`, as reports show it. Only
/// the first call has an effect.
pub fn give(names: &[String]) {
    let _ = GIVEN.set(names.to_vec()); // later names are left out, as documented
}

/// Has the user said so of this function?
pub(crate) fn is_given(frame: &Frame) -> bool {
    let all = GIVEN.get().map_or(&[][..], Vec::as_slice);
    !all.is_empty() && all.contains(&frame.name())
}

/// Words with which their names end.
const ENDS: [&str; 20] = [
    "lock", "unlock", "trylock", "rdlock", "wrlock", "rlock", "wlock", "runlock", "wunlock", "lck",
    "unlck", "acquire", "release", "enter", "leave", "locker", "unlocker", "guard", "holder",
    "exit",
];
/// The ends that say enough by themselves.
const CLEAR: usize = 11;
/// Words of which the others need one beside them, in the name or in its class's.
const BESIDE: [&str; 19] = [
    "lock",
    "mutex",
    "mtx",
    "rwlock",
    "spinlock",
    "spin",
    "latch",
    "critical",
    "crit",
    "monitor",
    "gil",
    "gvl",
    "semaphore",
    "sem",
    "autolock",
    "cs",
    "section",
    "scoped",
    "locked",
];

/// What is locked may come last: `LockMutex`, `lock_writer`, `EnterCriticalSection`.
const OBJECTS: [&str; 14] = [
    "mutex",
    "mtx",
    "rwlock",
    "spinlock",
    "monitor",
    "semaphore",
    "sem",
    "critical",
    "section",
    "reader",
    "writer",
    "shared",
    "exclusive",
    "info",
];
/// Ends of the names of functions that pass a condition variable on, if one of the next is beside them.
const WAITS: [&str; 6] = ["wait", "timedwait", "waituntil", "until", "signal", "broadcast"];
const CONDITIONS: [&str; 5] = ["cond", "condition", "condvar", "cnd", "cv"];

/// Does a function with this name only pass a lock, or a condition variable, on?
pub(crate) fn is_wrapper(name: &str) -> bool {
    let plain = without_arguments(name);
    let mut path = plain.rsplit("::");
    let own = words(path.next().unwrap_or_default());
    let class = words(path.next().unwrap_or_default());
    let is_of = |all: &[&str], word: &String| all.contains(&word.as_str());
    if passes_condition(name) {
        return true;
    }
    let verb = own.iter().rposition(|word| !is_of(&OBJECTS, word)).map_or(0, |at| at + 1);
    let (own, objects) = own.split_at(verb);
    let Some(last) = own.last() else { return false };
    // Suffixes that say how: my_lock_slow, mutex_lock_nested.
    const HOW: [&str; 8] =
        ["slow", "fast", "nested", "contended", "impl", "internal", "wait", "func"];
    let last = match own.len() {
        2.. if HOW.contains(&last.as_str()) => &own[own.len() - 2],
        _ => last,
    };
    let Some(end) = ENDS.iter().position(|end| end == last) else { return false };
    let is_beside = |word: &String| is_of(&BESIDE, word);
    end < CLEAR || own.iter().chain(objects).chain(&class).any(is_beside)
}

/// Does a function with this name only pass a condition variable on?
pub(crate) fn passes_condition(name: &str) -> bool {
    let plain = without_arguments(name);
    let mut path = plain.rsplit("::");
    let own = words(path.next().unwrap_or_default());
    let class = words(path.next().unwrap_or_default());
    own.last().is_some_and(|last| WAITS.contains(&last.as_str()))
        && own.iter().chain(&class).any(|word| CONDITIONS.contains(&word.as_str()))
}

/// Is the function that is returned to there a section of its own, though its name ends like a wrapper's: `wallet_unlock`? Then it both takes the
/// lock and releases it. One that passes a condition variable on does so, too.
pub(super) fn has_section(lock: &Lock, back: u64, symbols: &mut Symboliser) -> bool {
    let frames = symbols.code(back.saturating_sub(1));
    let name = frames.last().and_then(|frame| frame.function.as_deref()).unwrap_or_default();
    if !is_wrapper(name) || passes_condition(name) || frames.iter().any(is_given) {
        return false;
    }
    let mut start = |back: u64| symbols.function_start(back.saturating_sub(1));
    let Some(own) = start(back) else { return false };
    let mut is_among = |sites: &[Seen]| {
        let mut places = sites.iter().filter_map(|site| match site.at {
            At::Address(address) => Some(address),
            _ => None,
        });
        places.any(|address| start(address) == Some(own))
    };
    is_among(&lock.waiters) && is_among(&lock.holders)
}

/// The name without template arguments and parameters.
pub(super) fn without_arguments(name: &str) -> String {
    let mut depth = 0_usize;
    let keep = |&c: &char| {
        match c {
            '<' | '(' => depth += 1,
            '>' | ')' => depth = depth.saturating_sub(1),
            _ => return depth == 0,
        }
        false
    };
    name.chars().filter(keep).collect()
}

/// `MyMutex_lock` has the words my, mutex, lock; `RWLock` has rw, lock.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = '_';
    let mut chars = name.chars().peekable();
    while let Some(c) = chars.next() {
        let mut ends_capitals = || chars.peek().is_some_and(|after| after.is_lowercase());
        let begins = !c.is_alphanumeric()
            || (c.is_uppercase()
                && (before.is_lowercase() || before.is_uppercase() && ends_capitals()));
        if begins {
            words.push(String::new());
        }
        if c.is_alphanumeric() {
            words.last_mut().expect("there is one").extend(c.to_lowercase());
        }
        before = c;
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::is_wrapper;

    #[test]
    fn wrappers_of_known_programs_are_known() {
        for name in [
            "my_mutex_lock",
            "my_mutex_unlock",
            "uv_mutex_lock",
            "uv_rwlock_wrlock",
            "rb_native_mutex_lock",
            "g_mutex_lock_slowpath_lock",
            "rocksdb::port::Mutex::Lock",
            "leveldb::MutexLock::~MutexLock",
            "std::scoped_lock<std::mutex>::scoped_lock",
            "CRYPTO_THREAD_write_lock",
            "apr_thread_mutex_lock",
            "EnterCriticalSection_enter",
            "pthreadMutexEnter",
            "sqlite3_mutex_leave",
            "Monitor::Enter",
            "ngx_shmtx_lock",
            "my_lock",
            "je_malloc_mutex_lock_slow",
            "LockMutex",
            "SlottedRWLock::lock_writer",
            "scm_timed_lock_mutex",
            "CPLAcquireMutex",
            "UnlockSemaphoreInfo",
            "EnterCriticalSection",
            "PR_EnterMonitor",
            "db_enter_section",
            "uv_cond_wait",
            "uv_cond_timedwait",
            "rb_native_cond_wait",
            "Lck_CondWaitUntil",
            "isc_condition_waituntil",
            "rocksdb::port::CondVar::TimedWait",
            "PyCOND_TIMEDWAIT",
        ] {
            assert!(is_wrapper(name), "{name}");
        }
        for name in [
            "flush_journal",
            "get_row",
            "block_read",
            "unblock",
            "db::Table::update",
            "clock",
            "release",
            "Buffer::release",
            "enter",
            "page_acquire",
            "lock_and_update",
            "release_writer",
            "Mutex",
            "unblock_reader",
            "wait",
            "Queue::wait",
            "main",
            "",
        ] {
            assert!(!is_wrapper(name), "{name}");
        }
    }
}
