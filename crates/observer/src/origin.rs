//! Whose lock a thread sleeps for, if the lock isn't one of pthread's: judged by the functions on the thread's stack.
//!
//! The functions of a language's runtime say more than those of glibc, on which many of them sleep. So they are asked first.

use lockwright_symbols::Frame;
use serde::Serialize;

/// Whose lock it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// Python's global interpreter lock.
    PythonGil,
    /// A mutex of Python's runtime, or of free-threaded Python.
    PyMutex,
    /// A monitor of Java: `synchronized`.
    JavaMonitor,
    /// A lock inside the JVM.
    Jvm,
    /// `Mutex` of Rust's std.
    RustMutex,
    /// `RwLock` of Rust's std.
    RustRwLock,
    /// The crate parking_lot's.
    ParkingLot,
    /// abseil's `Mutex`.
    Abseil,
    /// folly's.
    Folly,
    /// Ruby's global VM lock.
    RubyGvl,
    /// malloc's lock of an arena.
    Arena,
    /// The lock of a `FILE`.
    Stdio,
    /// The dynamic linker's.
    Loader,
    /// The lock of the time zone.
    TimeZone,
    /// Another lock inside glibc.
    Glibc,
    /// OpenMP's: a critical section or a lock.
    OpenMp,
    /// One of pthread's that glibc serves, and that nobody counts: robust, or with priorities; or any, in a process without our library.
    /// (Beside our library, a sample doesn't tell a process-shared mutex of glibc's from one of ours.)
    LeftToGlibc,
}

/// What a function's name means.
#[derive(Clone, Copy)]
enum Meaning {
    Lock(Origin),
    /// The thread waits for something to happen, not for a lock.
    Event,
}
use Meaning::{Event, Lock};

/// Parts of names of functions in languages' runtimes and libraries; the first that a name contains says what that means.
const RUNTIMES: [(&str, Meaning); 41] = [
    ("take_gil", Lock(Origin::PythonGil)),
    ("PyMutex_Lock", Lock(Origin::PyMutex)),
    ("_PyRWMutex_", Lock(Origin::PyMutex)),
    ("PyThread_acquire_lock", Event),
    ("ObjectMonitor::wait", Event),
    ("ObjectMonitor::enter", Lock(Origin::JavaMonitor)),
    ("ObjectMonitor::EnterI", Lock(Origin::JavaMonitor)),
    ("ObjectMonitor::ReenterI", Lock(Origin::JavaMonitor)),
    ("Parker::park", Event),
    ("Monitor::wait", Event),
    ("Monitor::lock", Lock(Origin::Jvm)),
    ("Mutex::lock_without_safepoint_check", Lock(Origin::Jvm)),
    ("SafepointSynchronize::block", Event),
    ("SafepointMechanism", Event),
    ("sync::mutex::futex::Mutex>::lock", Lock(Origin::RustMutex)),
    ("sync::mutex::futex::Mutex::lock", Lock(Origin::RustMutex)),
    ("sync::rwlock::futex::RwLock>::read", Lock(Origin::RustRwLock)),
    ("sync::rwlock::futex::RwLock::read", Lock(Origin::RustRwLock)),
    ("sync::rwlock::futex::RwLock>::write", Lock(Origin::RustRwLock)),
    ("sync::rwlock::futex::RwLock::write", Lock(Origin::RustRwLock)),
    ("sync::condvar", Event),
    ("sync::thread_parking", Event),
    ("sync::once", Event),
    ("parking_lot::condvar", Event),
    ("RawMutex>::lock_slow", Lock(Origin::ParkingLot)),
    ("RawMutex::lock_slow", Lock(Origin::ParkingLot)),
    ("RawRwLock>::lock_", Lock(Origin::ParkingLot)),
    ("RawRwLock::lock_", Lock(Origin::ParkingLot)),
    ("CondVar::Wait", Event),
    ("Mutex::Await", Event),
    ("Mutex::LockSlow", Lock(Origin::Abseil)),
    ("Mutex::Block", Lock(Origin::Abseil)),
    ("folly::Baton", Event),
    ("folly::SharedMutexImpl", Lock(Origin::Folly)),
    ("folly::MicroLock", Lock(Origin::Folly)),
    ("thread_sched_to_running", Lock(Origin::RubyGvl)),
    ("gvl_acquire", Lock(Origin::RubyGvl)),
    ("GOMP_critical", Lock(Origin::OpenMp)),
    ("GOMP_barrier", Event),
    ("gomp_mutex_lock_slow", Lock(Origin::OpenMp)),
    ("omp_set_lock", Lock(Origin::OpenMp)),
];

/// Functions of glibc above its inner lock; the first that a name contains says what that lock is.
const INNER: [(&str, Origin); 31] = [
    ("malloc", Origin::Arena),
    ("calloc", Origin::Arena),
    ("realloc", Origin::Arena),
    ("memalign", Origin::Arena),
    ("_int_free", Origin::Arena),
    ("libc_free", Origin::Arena),
    ("cfree", Origin::Arena),
    ("arena_get", Origin::Arena),
    ("printf", Origin::Stdio),
    ("_IO_", Origin::Stdio),
    ("fputs", Origin::Stdio),
    ("putc", Origin::Stdio),
    ("fputc", Origin::Stdio),
    ("puts", Origin::Stdio),
    ("fwrite", Origin::Stdio),
    ("fread", Origin::Stdio),
    ("fgets", Origin::Stdio),
    ("getc", Origin::Stdio),
    ("getline", Origin::Stdio),
    ("getdelim", Origin::Stdio),
    ("fflush", Origin::Stdio),
    ("fseek", Origin::Stdio),
    ("flockfile", Origin::Stdio),
    ("vfscanf", Origin::Stdio),
    ("_dl_", Origin::Loader),
    ("dlopen", Origin::Loader),
    ("dlsym", Origin::Loader),
    ("tz_convert", Origin::TimeZone),
    ("tzset", Origin::TimeZone),
    ("mktime", Origin::TimeZone),
    ("strftime", Origin::TimeZone),
];

/// How many functions from the innermost one on may say whose lock it is.
const LOOKED_AT: usize = 16;

impl Origin {
    /// By the functions on a waiter's stack, the innermost first. `None`: it is no lock, as far as they tell, or one of pthread's.
    pub fn of(frames: &[Frame]) -> Option<Self> {
        // Our own functions, many of them inlined, say nothing here.
        let others = || frames.iter().filter(|frame| !frame.module.contains("lockwright"));
        let names = || others().take(LOOKED_AT).filter_map(|frame| frame.function.as_deref());
        for name in names() {
            if let Some((_, meaning)) = RUNTIMES.iter().find(|(part, _)| name.contains(part)) {
                return match meaning {
                    Lock(origin) => Some(*origin),
                    Event => None,
                };
            }
        }
        if waits_for_gil(&frames.iter().collect::<Vec<_>>()) {
            return Some(Self::PythonGil);
        }
        let is_inner = names().take(4).any(|name| name.contains("lll_lock_wait"));
        // pthread's mutexes wait by the same function as glibc's own locks.
        if !is_inner || names().any(|name| name.contains("pthread_")) {
            let is_loader =
                names().any(|name| name.contains("_dl_") || name.contains("dl_iterate"));
            let locks = names().take(4).any(|name| name.contains("mutex_lock"));
            return (is_loader && locks).then_some(Self::Loader);
        }
        let of = |name: &str| {
            let known = INNER.iter().find(|(part, _)| name.contains(part));
            known.map(|(_, origin)| *origin)
        };
        Some(names().find_map(of).unwrap_or(Self::Glibc))
    }

    /// The function of glibc that the program called, of a stack whose function `own` is the program's: `fprintf`.
    pub(crate) fn called(frames: &[Frame], own: usize) -> Option<String> {
        let name = frames.get(own.checked_sub(1)?)?.function.as_deref()?;
        let plain = name.trim_start_matches("__GI_").trim_start_matches('_');
        let plain = plain.trim_start_matches("libc_").trim_start_matches("IO_");
        (!plain.is_empty() && !plain.contains("::")).then(|| plain.to_owned())
    }

    /// Is it inside glibc?
    pub(crate) fn is_glibcs(self) -> bool {
        matches!(self, Self::Arena | Self::Stdio | Self::Loader | Self::TimeZone | Self::Glibc)
    }

    /// What it is called, as a subject: `malloc's arena lock`.
    pub fn name(self) -> &'static str {
        match self {
            Self::PythonGil => "Python's GIL",
            Self::PyMutex => "a mutex of Python's",
            Self::JavaMonitor => "Java monitors",
            Self::Jvm => "locks inside the JVM",
            Self::RustMutex => "a Mutex of Rust's std",
            Self::RustRwLock => "a RwLock of Rust's std",
            Self::ParkingLot => "a lock of parking_lot's",
            Self::Abseil => "a Mutex of abseil's",
            Self::Folly => "a lock of folly's",
            Self::RubyGvl => "Ruby's global VM lock",
            Self::Arena => "malloc's arena lock",
            Self::Stdio => "stdio's lock of a FILE",
            Self::Loader => "the dynamic linker's lock",
            Self::TimeZone => "glibc's lock of the time zone",
            Self::Glibc => "a lock inside glibc",
            Self::OpenMp => "a lock of OpenMP's",
            Self::LeftToGlibc => "a lock that glibc serves",
        }
    }

    /// What a user can do about it. `setting` is the value of an environment variable in the process.
    pub fn advice(self, setting: impl Fn(&str) -> Option<String>) -> String {
        match self {
            Self::PythonGil => {
                "only one thread runs Python code at a time: use processes, or a free-threaded Python".into()
            }
            Self::PyMutex => "py-spy dump --pid PID shows the Python code that holds it".into(),
            Self::JavaMonitor => {
                "synchronized code; which monitor: async-profiler -e lock, or jcmd PID Thread.print".into()
            }
            Self::Jvm => "the JVM's own: jcmd PID Thread.print, or another collector".into(),
            Self::RustMutex | Self::RustRwLock | Self::ParkingLot => {
                "shorten its sections, or put lockwright_sync's in its place: docs/sync.md".into()
            }
            Self::Abseil | Self::Folly => {
                "shorten its sections, or put lockwright::mutex in its place: docs/sync.md".into()
            }
            Self::RubyGvl => "only one thread runs Ruby code at a time: use processes, or Ractors".into(),
            Self::Arena => match arenas(setting) {
                Some(said) => format!("{said}: let it have more arenas, or try jemalloc or mimalloc"),
                None => "allocate less in these threads, or try jemalloc or mimalloc".into(),
            },
            Self::Stdio => {
                "one FILE for all threads: write with fewer, larger calls, or a FILE for each thread".into()
            }
            Self::Loader => "exceptions, dlopen or the first use of thread-local data: do them less often".into(),
            Self::TimeZone => "localtime, mktime and strftime share it: convert less often, or use gmtime_r".into(),
            Self::Glibc => "call that function from fewer threads".into(),
            Self::LeftToGlibc => {
                "only sampled here; who holds it: lockwright profile -p PID --sample".into()
            }
            Self::OpenMp => "shorten the critical section, or use a reduction or atomics".into(),
        }
    }
}

/// Does the interpreter itself wait, right below a function that runs or resumes Python code? A stripped Python doesn't name the
/// function that takes the lock.
fn waits_for_gil(frames: &[&Frame]) -> bool {
    const TAKERS: [&str; 5] = [
        "_PyEval_EvalFrameDefault",
        "PyEval_RestoreThread",
        "PyEval_AcquireThread",
        "PyGILState_Ensure",
        "PyEval_SaveThread",
    ];
    let name = |frame: &&&Frame| frame.function.clone().unwrap_or_default();
    let is_ours = |frame: &&&Frame| frame.module.contains("lockwright");
    let is_libcs = |frame: &&&Frame| frame.module.starts_with("libc.so") || is_ours(frame);
    // glibc's function, or ours, whose name a stripped library doesn't have.
    let mut inner = frames.iter().take_while(is_libcs);
    let waits = inner.any(|one| name(&one).contains("pthread_cond") || is_ours(&one));
    let mut python = frames.iter().skip_while(is_libcs).take(LOOKED_AT / 2);
    let taker = python.position(|one| {
        let name = name(&one);
        TAKERS.iter().any(|taker| name == *taker)
    });
    let inside = frames.iter().skip_while(is_libcs).take(taker.unwrap_or(0));
    waits
        && taker.is_some()
        && inside.clone().all(|one| one.function.is_none() && one.module.contains("python"))
}

/// What limits the number of malloc's arenas.
fn arenas(setting: impl Fn(&str) -> Option<String>) -> Option<String> {
    const VARIABLE: &str = "MALLOC_ARENA_MAX";
    if let Some(value) = setting(VARIABLE) {
        return Some(format!("{VARIABLE}={value} is set"));
    }
    let tunables = setting("GLIBC_TUNABLES")?;
    tunables.contains("arena_max").then(|| format!("GLIBC_TUNABLES={tunables} is set"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(names: &[&str]) -> Option<Origin> {
        let frame = |name: &&str| Frame { function: Some((*name).into()), ..Frame::default() };
        Origin::of(&names.iter().map(frame).collect::<Vec<_>>())
    }

    #[test]
    fn a_runtimes_functions_say_more_than_glibcs() {
        let wait = "__pthread_cond_wait_common";
        assert_eq!(
            origin(&[wait, "PyCOND_TIMEDWAIT", "take_gil", "eval"]),
            Some(Origin::PythonGil)
        );
        assert_eq!(
            origin(&[wait, "os::PlatformEvent::park", "ObjectMonitor::EnterI"]),
            Some(Origin::JavaMonitor)
        );
        assert_eq!(origin(&[wait, "os::PlatformEvent::park", "ObjectMonitor::wait"]), None);
        assert_eq!(origin(&[wait, "Monitor::wait", "CompileQueue::get"]), None);
        assert_eq!(origin(&[wait, "pop", "main"]), None);
        let rust = "<std::sys::sync::mutex::futex::Mutex>::lock_contended";
        assert_eq!(origin(&["syscall", rust, "update"]), Some(Origin::RustMutex));
        assert_eq!(origin(&["syscall", "std::sys::sync::condvar::futex::Condvar::wait"]), None);
    }

    #[test]
    fn glibcs_inner_locks_are_known_by_what_was_called() {
        let inner = "__GI___lll_lock_wait_private";
        assert_eq!(origin(&["futex_wait", inner, "_int_free", "w"]), Some(Origin::Arena));
        assert_eq!(origin(&["futex_wait", inner, "buffered_vfprintf"]), Some(Origin::Stdio));
        assert_eq!(origin(&["futex_wait", inner, "__tz_convert", "log"]), Some(Origin::TimeZone));
        assert_eq!(origin(&["futex_wait", inner, "something", "log"]), Some(Origin::Glibc));
        assert_eq!(origin(&["futex_wait", "__GI___lll_lock_wait", "pthread_mutex_lock"]), None);
    }

    #[test]
    fn what_limits_arenas_is_told() {
        let told = |name: &'static str, value: &'static str| {
            Origin::Arena.advice(move |asked| (asked == name).then(|| value.to_owned()))
        };
        assert!(told("MALLOC_ARENA_MAX", "1").starts_with("MALLOC_ARENA_MAX=1 is set"));
        assert!(told("GLIBC_TUNABLES", "glibc.malloc.arena_max=2").contains("arena_max=2 is set"));
        assert!(told("LANG", "C").starts_with("allocate less"));
    }
}
