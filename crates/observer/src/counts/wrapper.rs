//! Functions that only pass a lock on: `my_mutex_lock`, `uv_mutex_unlock`, `port::Mutex::Lock`, `std::scoped_lock`'s constructor.
//!
//! Whose section it is, their callers say. A function is one of these if its name ends as such functions' names do. A program's own
//! wrappers may have any names: users give those (`--wrapper`).

/// Words with which their names end.
const ENDS: [&str; 20] = [
    "lock", "unlock", "trylock", "rdlock", "wrlock", "rlock", "wlock", "runlock", "wunlock", "lck",
    "unlck", "acquire", "release", "enter", "leave", "locker", "unlocker", "guard", "holder",
    "exit",
];
/// The ends that say enough by themselves.
const CLEAR: usize = 11;
/// Words of which the others need one beside them, in the name or in its class's.
const BESIDE: [&str; 18] = [
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
    "scoped",
    "locked",
];

/// Does a function with this name only pass a lock on?
pub(crate) fn is_wrapper(name: &str) -> bool {
    let plain = without_arguments(name);
    let mut path = plain.rsplit("::");
    let own = words(path.next().unwrap_or_default());
    let class = words(path.next().unwrap_or_default());
    let Some(last) = own.last() else { return false };
    // Suffixes that say how: my_lock_slow, mutex_lock_nested.
    const HOW: [&str; 8] =
        ["slow", "fast", "nested", "contended", "impl", "internal", "wait", "func"];
    let last = match own.len() {
        2.. if HOW.contains(&last.as_str()) => &own[own.len() - 2],
        _ => last,
    };
    let Some(end) = ENDS.iter().position(|end| end == last) else { return false };
    let is_beside = |word: &String| BESIDE.contains(&word.as_str());
    end < CLEAR || own.iter().chain(&class).any(is_beside)
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

/// `MyMutex_lock` has the words my, mutex, lock.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = '_';
    for c in name.chars() {
        let begins = !c.is_alphanumeric() || (c.is_uppercase() && before.is_lowercase());
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
            "main",
            "",
        ] {
            assert!(!is_wrapper(name), "{name}");
        }
    }
}
