//! Functions that only pass a lock on: `my_mutex_lock`, `uv_mutex_unlock`, `port::Mutex::Lock`, `std::scoped_lock`'s constructor.
//!
//! Whose section it is, their callers say. A function is one of these if its name ends as such functions' names do. A program's own
//! wrappers may have any names: users give those (`--wrapper`).
//!
//! [`Passers`] tells a running process which they are, so that it counts where they are called ([`lockwright_contract`]'s `wrappers`).

use super::outcome::is_of_a_lock;
use super::snapshot::{At, Snapshot};
use crate::mailbox::symbol_in;
use crate::process::Process;
use lockwright_contract::counters::wrappers::{
    Base, MAGIC, SYMBOL, Slot, WRAPPERS, Wrapper, Wrappers,
};
use lockwright_symbols::{Frame, ReturnSlot, Symboliser, Unwinder};
use std::collections::BTreeSet;
use std::mem::offset_of;

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

/// Finds a process's wrappers in what it has counted, and tells the process.
pub(crate) struct Passers {
    /// Names that the user has given.
    named: Vec<String>,
    /// Addresses that were looked at, or given to the process.
    known: BTreeSet<u64>,
    given: u32,
}

impl Passers {
    pub(crate) fn new(named: &[String]) -> Self {
        Self { named: named.to_vec(), known: BTreeSet::new(), given: 0 }
    }

    /// Looks at places that are new in these counts.
    pub(crate) fn look(
        &mut self,
        process: &Process,
        counts: &Snapshot,
        symbols: &mut Symboliser,
        unwinder: &mut Unwinder,
    ) {
        let sites = counts.locks.iter().flat_map(|lock| lock.waiters.iter().chain(&lock.holders));
        for site in sites {
            let At::Address(back) = site.at else { continue };
            if !self.known.insert(back) || self.given as usize == WRAPPERS {
                continue;
            }
            let frames = symbols.code(back.saturating_sub(1));
            let passes = |frame: &Frame| {
                let name = frame.function.as_deref().unwrap_or_default();
                is_of_a_lock(frame) || self.named.iter().any(|named| named == name)
            };
            if !frames.iter().all(passes) {
                continue;
            }
            let Some(slot) = unwinder.return_slot(back).and_then(slot) else { continue };
            // The process may have ended.
            if let Some(count) = self.give(process, back, slot) {
                self.given = count;
            }
        }
    }

    /// Writes an entry, and then the number of entries, which it returns. An earlier command may have given the process the same one.
    fn give(&self, process: &Process, from: u64, slot: Slot) -> Option<u32> {
        let at = symbol_in(process, SYMBOL).ok()?;
        let mut head = [0; 16];
        process.read(at, &mut head).ok()?;
        let is_ours = head[..8] == MAGIC.to_le_bytes()
            && head[8..12] == (size_of::<Wrappers>() as u32).to_le_bytes();
        let count = u32::from_le_bytes(head[12..].try_into().ok()?);
        if !is_ours || count as usize > WRAPPERS {
            return None;
        }
        let all = at + offset_of!(Wrappers, all) as u64;
        let mut known = vec![0; count as usize * size_of::<Wrapper>()];
        process.read(all, &mut known).ok()?;
        if known.chunks(size_of::<Wrapper>()).any(|one| one[..8] == from.to_le_bytes()) {
            return Some(count);
        }
        if count as usize == WRAPPERS {
            return None;
        }
        let entry = all + known.len() as u64;
        let bytes = [from.to_le_bytes(), slot.pack().to_le_bytes()].concat();
        process.write(entry, &bytes).ok()?;
        let count_at = at + offset_of!(Wrappers, count) as u64;
        process.write(count_at, &(count + 1).to_le_bytes()).ok()?;
        Some(count + 1)
    }
}

/// As the process reads it; `None`: it is too far away.
fn slot(found: ReturnSlot) -> Option<Slot> {
    let place = |(by_frame, distance): (bool, u16)| {
        let base = if by_frame { Base::Frame } else { Base::Stack };
        (distance <= Slot::MOST).then_some((base, distance))
    };
    let frame = match found.frame {
        None => None,
        Some(frame) => Some(place(frame)?),
    };
    Some(Slot { back: place(found.back)?, frame })
}

/// The name without template arguments and parameters.
fn without_arguments(name: &str) -> String {
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
