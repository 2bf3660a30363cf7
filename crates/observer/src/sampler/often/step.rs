//! What the innermost code of a running thread is: a lock operation that takes its lock, one that waits, or something else.
//!
//! A thread that waits runs, too: it spins, or is on its way into the kernel. That is no time that goes into taking locks too often. So only the
//! functions that a program calls, and those on the way to a free lock, count as taking. Where neither a name nor the code tells, nothing counts.

use lockwright_symbols::{Frame, Symboliser, read_memory};

/// What the code at an address does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LockStep {
    /// It takes or releases a lock, without waiting.
    Taking,
    /// It waits for a lock, or wakes a thread that does.
    Waiting,
    /// It is a lock's, but the name doesn't say which of these.
    Unclear,
    /// It enters the kernel: for a lock, if a lock's function has called it.
    Call,
    /// It is no lock's.
    Elsewhere,
}

/// How far from a spin's pause its code reaches, bytes.
const NEAR: u64 = 24;

impl LockStep {
    pub(super) fn at(address: u64, symbols: &mut Symboliser) -> Self {
        let frame = symbols.bare(address);
        match Self::of(&frame) {
            Self::Taking => match has_pause(address, symbols) {
                Some(false) => Self::Taking,
                Some(true) => Self::Waiting,
                None => Self::Unclear,
            },
            step => step,
        }
    }

    fn of(frame: &Frame) -> Self {
        /// Parts of names of functions that wait or wake.
        const WAIT: [&str; 17] = [
            "slow",
            "futex",
            "lll_lock_wait",
            "lll_lock_wake",
            "contend",
            "sleep",
            "spin_",
            "saturation",
            "front::line",
            "front::rule",
            "front::near",
            "lock_as_glibc",
            "wait_from",
            "mutex::wait",
            "give_up",
            "revoke",
            "await",
        ];
        /// Parts of names of functions on the way to a free lock, besides those that programs call.
        const FREE: [&str; 7] = [
            "rwlock::unlock_here",
            "config::is_glibc_only",
            "rw::biased::",
            "rw::waiting::",
            "mutex_unlock_usercnt",
            "lw_mutex_",
            "lw_rwlock_",
        ];
        let name = frame.function.as_deref().unwrap_or_default();
        if is_libc(frame) && plain(name) == "syscall" {
            return Self::Call;
        }
        if !is_of_lock(frame) {
            return Self::Elsewhere;
        }
        if is_event(frame) {
            return Self::Unclear;
        }
        let is_called = is_entry(plain(name));
        if is_called && !name.contains("slow") {
            return Self::Taking;
        }
        if WAIT.iter().any(|part| name.contains(part)) {
            return Self::Waiting;
        }
        let is_free = FREE.iter().any(|part| name.contains(part));
        if is_free { Self::Taking } else { Self::Unclear }
    }
}

/// The name without what glibc and the linker put around it: `__GI___pthread_mutex_lock@@GLIBC_2.2.5`.
fn plain(name: &str) -> &str {
    let name = name.split('@').next().unwrap_or_default().trim_start_matches('_');
    name.strip_prefix("GI_").unwrap_or(name).trim_start_matches('_')
}

fn is_libc(frame: &Frame) -> bool {
    ["libc.so", "libc-2.", "libpthread"].iter().any(|start| frame.module.starts_with(start))
}

/// Does a program call a function with this name to take or release a lock?
fn is_entry(plain: &str) -> bool {
    const ENTRIES: [&str; 11] = [
        "pthread_mutex_",
        "pthread_rwlock_",
        "pthread_spin_",
        "mtx_",
        "new_sem_",
        "sem_",
        "lockwright::mutex::",
        "lockwright::rwlock::",
        "lockwright::spin::",
        "lockwright::sem::",
        "lw_mutex_",
    ];
    ENTRIES.iter().any(|start| plain.starts_with(start))
        && !plain.contains("attr_")
        && !["init", "destroy"].iter().any(|end| plain.ends_with(end))
}

/// Is it one of a lock's functions: ours, or those of pthread's locks in glibc?
pub(super) fn is_of_lock(frame: &Frame) -> bool {
    let name = frame.function.as_deref().unwrap_or_default();
    let inner = ["lll_lock_wa", "futex_", "pthread_cond_", "pthread_barrier_"];
    let plain = plain(name);
    frame.module.starts_with("liblockwright")
        || (is_libc(frame) && (is_entry(plain) || inner.iter().any(|part| plain.contains(part))))
        // Linked into the program.
        || name.starts_with("lw_mutex_")
        || name.starts_with("lw_rwlock_")
        || name.contains("lockwright_")
}

/// Is it about something that shall happen, rather than about a lock?
pub(super) fn is_event(frame: &Frame) -> bool {
    let name = frame.function.as_deref().unwrap_or_default();
    ["cond", "cnd_", "barrier", "join"].iter().any(|part| name.contains(part))
}

/// Does this function take a lock? (Others release it.)
pub(super) fn acquires(frame: &Frame) -> bool {
    let name = frame.function.as_deref().unwrap_or_default();
    let takes = ["lock", "sem_wait", "sem_trywait", "sem_timedwait", "sem_clockwait", "sem::"];
    takes.iter().any(|part| name.contains(part))
        && !name.contains("unlock")
        && !name.contains("post")
}

/// Is there the pause of a spin close by? Then the thread may spin there, so it doesn't count as taking the lock. `None`: the code can't be read.
fn has_pause(address: u64, symbols: &Symboliser) -> Option<bool> {
    const PAUSE: [u8; 2] = [0xf3, 0x90];
    let mut bytes = [0; 2 * NEAR as usize];
    let read = read_memory(symbols.space().pid, address.checked_sub(NEAR)?, &mut bytes).ok()?;
    Some(cfg!(target_arch = "x86_64") && bytes[..read].windows(2).any(|two| two == PAUSE))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(function: &str, module: &str) -> Frame {
        Frame { function: Some(function.into()), module: module.into(), ..Frame::default() }
    }

    #[test]
    fn taking_a_free_lock_is_told_from_waiting() {
        for (name, module) in [
            ("pthread_rwlock_rdlock@GLIBC_2.2.5", "libc.so.6"),
            ("__GI___pthread_mutex_unlock_usercnt", "libc.so.6"),
            ("___pthread_mutex_lock", "libc.so.6"),
            ("__new_sem_post", "libc.so.6"),
            ("pthread_mutex_lock@@GLIBC_2.2.5", "liblockwright.so"),
            ("lockwright::mutex::unlock", "liblockwright.so"),
            ("lockwright::mutex::lock_from", "liblockwright.so"),
            ("lockwright_runtime::rwlock::unlock_here", "liblockwright.so"),
            ("lw_mutex_lock", "server"),
        ] {
            assert_eq!(LockStep::of(&frame(name, module)), LockStep::Taking, "{name}");
        }
        for (name, module) in [
            ("__GI___lll_lock_wait", "libc.so.6"),
            ("__GI___lll_lock_wake", "libc.so.6"),
            ("__new_sem_wait_slow64", "libc.so.6"),
            ("lockwright_locks::posix::contended::acquire", "liblockwright.so"),
            ("lockwright_locks::front::learn::saturation::spin", "liblockwright.so"),
            ("lockwright_runtime::mutex::wait_from", "liblockwright.so"),
        ] {
            assert_eq!(LockStep::of(&frame(name, module)), LockStep::Waiting, "{name}");
        }
        for (name, module, step) in [
            ("pthread_mutex_lock", "server", LockStep::Elsewhere),
            ("malloc", "libc.so.6", LockStep::Elsewhere),
            ("syscall", "libc.so.6", LockStep::Call),
            ("___pthread_cond_wait", "libc.so.6", LockStep::Unclear),
            ("lockwright_runtime::observe::note", "liblockwright.so", LockStep::Unclear),
        ] {
            assert_eq!(LockStep::of(&frame(name, module)), step, "{name}");
        }
    }

    #[test]
    fn only_functions_that_take_a_lock_are_counted() {
        for (name, does) in [
            ("pthread_mutex_lock", true),
            ("pthread_rwlock_tryrdlock", true),
            ("sem_wait", true),
            ("pthread_mutex_unlock", false),
            ("pthread_rwlock_unlock", false),
            ("sem_post", false),
        ] {
            assert_eq!(acquires(&frame(name, "libc.so.6")), does, "{name}");
        }
    }
}
