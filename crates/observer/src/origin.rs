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

/// Where a runtime's functions are. A program's own functions may have the same names.
#[derive(Clone, Copy)]
enum Home {
    /// In files whose names begin so.
    Files(&'static [&'static str]),
    /// In these files, or in any program in whose stack Python's evaluation is seen: some link the interpreter.
    Python,
    /// Below this namespace: `std::`, also as `<std::`.
    Namespace(&'static str),
    /// Anywhere: the name belongs to the runtime.
    Reserved,
}
use Home::{Files, Namespace, Python, Reserved};

const JVM: Home = Files(&["libjvm"]);
const RUBY: Home = Files(&["libruby", "ruby"]);
const STD: Home = Namespace("std::");
const PARKING_LOT: Home = Namespace("parking_lot");
const ABSL: Home = Namespace("absl::");
const FOLLY: Home = Namespace("folly::");

/// Names of functions in languages' runtimes and libraries, without their namespaces; the first that fits says what that means. They are
/// whole words of the path; after a `*` anything may follow.
const RUNTIMES: [(&str, Home, Meaning); 38] = [
    ("take_gil", Python, Lock(Origin::PythonGil)),
    ("PyMutex_Lock*", Python, Lock(Origin::PyMutex)),
    ("_PyMutex_Lock*", Python, Lock(Origin::PyMutex)),
    ("_PyRWMutex_*", Python, Lock(Origin::PyMutex)),
    ("PyThread_acquire_lock*", Python, Event),
    ("ObjectMonitor::wait*", JVM, Event),
    ("ObjectMonitor::enter*", JVM, Lock(Origin::JavaMonitor)),
    ("ObjectMonitor::EnterI*", JVM, Lock(Origin::JavaMonitor)),
    ("ObjectMonitor::ReenterI*", JVM, Lock(Origin::JavaMonitor)),
    ("Parker::park", JVM, Event),
    ("Monitor::wait*", JVM, Event),
    ("Monitor::lock*", JVM, Lock(Origin::Jvm)),
    ("Mutex::lock*", JVM, Lock(Origin::Jvm)),
    ("SafepointSynchronize::block*", JVM, Event),
    ("SafepointMechanism*", JVM, Event),
    ("sync::mutex::futex::Mutex::lock*", STD, Lock(Origin::RustMutex)),
    ("sync::rwlock::futex::RwLock::read*", STD, Lock(Origin::RustRwLock)),
    ("sync::rwlock::futex::RwLock::write*", STD, Lock(Origin::RustRwLock)),
    ("sync::condvar*", STD, Event),
    ("sync::thread_parking*", STD, Event),
    ("sync::once*", STD, Event),
    ("condvar*", PARKING_LOT, Event),
    ("RawMutex::lock_slow*", PARKING_LOT, Lock(Origin::ParkingLot)),
    ("RawRwLock::lock_*", PARKING_LOT, Lock(Origin::ParkingLot)),
    ("CondVar::Wait*", ABSL, Event),
    ("Mutex::Await*", ABSL, Event),
    ("Mutex::LockSlow*", ABSL, Lock(Origin::Abseil)),
    ("Mutex::Block*", ABSL, Lock(Origin::Abseil)),
    ("Baton*", FOLLY, Event),
    ("SharedMutexImpl*", FOLLY, Lock(Origin::Folly)),
    ("MicroLock*", FOLLY, Lock(Origin::Folly)),
    ("thread_sched_to_running*", RUBY, Lock(Origin::RubyGvl)),
    ("gvl_acquire*", RUBY, Lock(Origin::RubyGvl)),
    ("GOMP_critical*", Reserved, Lock(Origin::OpenMp)),
    ("GOMP_barrier*", Reserved, Event),
    ("gomp_mutex_lock_slow", Reserved, Lock(Origin::OpenMp)),
    ("omp_set_lock*", Reserved, Lock(Origin::OpenMp)),
    ("omp_set_nest_lock*", Reserved, Lock(Origin::OpenMp)),
];

/// What a frame says of its thread; `has_python`: the stack shows that Python code is evaluated.
fn meaning(frame: &Frame, has_python: bool) -> Option<Meaning> {
    let name = frame.function.as_deref()?;
    let is_in = |files: &[&str]| files.iter().any(|start| frame.module.starts_with(start));
    let is_home = |home: &Home| match home {
        Files(files) => is_in(files),
        Python => has_python || is_in(&["python", "libpython"]),
        Namespace(space) => name.trim_start_matches('<').starts_with(space),
        Reserved => true,
    };
    let known = RUNTIMES.iter().find(|(part, home, _)| is_home(home) && has_path(name, part));
    known.map(|(_, _, meaning)| *meaning)
}

/// Does a name contain these whole words of a path? `<a::b::Mutex>::lock` and `a::b::Mutex::lock` are one.
fn has_path(name: &str, part: &str) -> bool {
    let plain = name.replace(['<', '>'], "");
    let (part, may_follow) = match part.strip_suffix('*') {
        Some(part) => (part, true),
        None => (part, false),
    };
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    plain.match_indices(part).any(|(at, _)| {
        let (before, after) =
            (plain[..at].chars().next_back(), plain[at + part.len()..].chars().next());
        !before.is_some_and(is_word) && (may_follow || !after.is_some_and(is_word))
    })
}

/// Is it a function of Python's that evaluates code, or hands the GIL on?
fn is_python(frame: &&Frame) -> bool {
    const STARTS: [&str; 3] = ["_PyEval_", "PyEval_", "PyGILState_"];
    let name = frame.function.as_deref().unwrap_or_default();
    STARTS.iter().any(|start| name.starts_with(start))
}

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
        let has_python = others().take(LOOKED_AT).any(|frame| is_python(&frame));
        let known = others().take(LOOKED_AT).find_map(|frame| meaning(frame, has_python));
        match known {
            Some(Lock(origin)) => return Some(origin),
            Some(Event) => return None,
            None => {}
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
                "use processes, or a free-threaded Python: only one thread runs Python code at a time".into()
            }
            Self::PyMutex => "find the Python code that holds it with py-spy dump --pid PID, and shorten it".into(),
            Self::JavaMonitor => {
                "find the monitor with jcmd PID Thread.print or async-profiler -e lock, and do less in its synchronized code".into()
            }
            Self::Jvm => "try another garbage collector, or see with jcmd PID Thread.print what the JVM's threads do".into(),
            Self::RustMutex | Self::RustRwLock | Self::ParkingLot => {
                "shorten its sections, or put lockwright_sync's in its place: docs/sync.md".into()
            }
            Self::Abseil | Self::Folly => {
                "shorten its sections, or put lockwright::mutex in its place: docs/sync.md".into()
            }
            Self::RubyGvl => "use processes, or Ractors: only one thread runs Ruby code at a time".into(),
            Self::Arena => match arenas(setting) {
                Some(said) => format!("let malloc have more arenas ({said}), or try jemalloc or mimalloc"),
                None => "allocate less in these threads, or try jemalloc or mimalloc".into(),
            },
            Self::Stdio => {
                "write with fewer, larger calls, or give each thread a FILE of its own".into()
            }
            Self::Loader => "throw fewer exceptions, and call dlopen less often: these share it".into(),
            Self::TimeZone => "convert times less often, or use gmtime_r: localtime, mktime and strftime share it".into(),
            Self::Glibc => "call that function from fewer threads".into(),
            Self::LeftToGlibc => {
                "see who holds it: lockwright profile -p PID --sample".into()
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
        && inside.clone().all(|one| {
            let is_its = ["python", "libpython"].iter().any(|start| one.module.starts_with(start));
            one.function.is_none() && is_its
        })
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

    /// The same, with the runtime's functions in this file.
    fn origin_in(module: &str, names: &[&str]) -> Option<Origin> {
        let frame = |name: &&str| Frame {
            function: Some((*name).into()),
            module: module.into(),
            ..Frame::default()
        };
        Origin::of(&names.iter().map(frame).collect::<Vec<_>>())
    }

    const WAIT: &str = "__pthread_cond_wait_common";

    #[test]
    fn a_runtimes_functions_say_more_than_glibcs() {
        let gil = [WAIT, "PyCOND_TIMEDWAIT", "take_gil", "eval"];
        for file in ["python3.11", "libpython3.13.so.1.0"] {
            assert_eq!(origin_in(file, &gil), Some(Origin::PythonGil));
        }
        // A program that has the interpreter inside.
        let inside = [WAIT, "take_gil", "PyEval_RestoreThread", "serve"];
        assert_eq!(origin_in("server", &inside), Some(Origin::PythonGil));
        let jvm = |names: &[&str]| origin_in("libjvm.so", names);
        let park = "os::PlatformEvent::park";
        assert_eq!(jvm(&[WAIT, park, "ObjectMonitor::EnterI"]), Some(Origin::JavaMonitor));
        assert_eq!(jvm(&[WAIT, park, "ObjectMonitor::wait"]), None);
        assert_eq!(jvm(&[WAIT, "Monitor::wait", "CompileQueue::get"]), None);
        let safe = "Mutex::lock_without_safepoint_check";
        assert_eq!(jvm(&["pthread_mutex_lock", safe]), Some(Origin::Jvm));
        let ruby = ["native_cond_wait", "thread_sched_to_running_common"];
        assert_eq!(origin_in("libruby-3.1.so.3.1", &ruby), Some(Origin::RubyGvl));
        assert_eq!(origin(&[WAIT, "pop", "main"]), None);
        let rust = "<std::sys::sync::mutex::futex::Mutex>::lock_contended";
        assert_eq!(origin(&["syscall", rust, "update"]), Some(Origin::RustMutex));
        let legacy = "std::sys::sync::rwlock::futex::RwLock::read_contended";
        assert_eq!(origin(&["syscall", legacy, "look"]), Some(Origin::RustRwLock));
        assert_eq!(origin(&["syscall", "std::sys::sync::condvar::futex::Condvar::wait"]), None);
        let parking = "<parking_lot::raw_mutex::RawMutex>::lock_slow";
        assert_eq!(origin(&["syscall", parking, "update"]), Some(Origin::ParkingLot));
        let abseil = "absl::lts_20220623::Mutex::LockSlowLoop";
        assert_eq!(origin(&["syscall", abseil, "update"]), Some(Origin::Abseil));
        let folly = "folly::SharedMutexImpl<false>::lockExclusiveImpl";
        assert_eq!(origin(&["syscall", folly, "update"]), Some(Origin::Folly));
        assert_eq!(origin(&["syscall", "GOMP_critical_start", "sum"]), Some(Origin::OpenMp));
    }

    #[test]
    fn a_programs_own_functions_are_no_runtimes() {
        for name in [
            "Monitor::lock",
            "Monitor::lock_statistics_wait_for_report",
            "net::Mutex::Block",
            "app::Mutex::LockSlow",
            "take_gillespie_sample",
            "take_gil",
            "ObjectMonitor::enter",
            "gvl_acquire",
            "my::sync::mutex::futex::Mutex::lock",
            "RawMutex::lock_slow",
            "intake_gil",
            "my_GOMP_critical_start",
        ] {
            assert_eq!(origin_in("server", &[WAIT, name, "main"]), None, "{name}");
        }
        assert_eq!(origin_in("python3.11", &[WAIT, "take_gillespie_sample"]), None);
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
        assert!(told("MALLOC_ARENA_MAX", "1").contains("(MALLOC_ARENA_MAX=1 is set)"));
        assert!(told("GLIBC_TUNABLES", "glibc.malloc.arena_max=2").contains("arena_max=2 is set"));
        assert!(told("LANG", "C").starts_with("allocate less"));
    }
}
