//! Counts a running program's futex waits by the object that called, to see whose locks it sleeps on.
//!
//! Every thread and child process is stopped twice at each system call (ptrace), which takes some 10 µs each time. This slows
//! the program down, and it waits more often than it would otherwise. So shares are meaningful, but counts are not. For the same
//! reason only the first [`MOST`] waits are counted. After them threads are stopped no more, except where they begin and end.

use lockwright_observer::process::{Mapping, mappings};
use lockwright_observer::whose::{self, Whose};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::ops::Range;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

/// How many waits are counted, with those for threads to end. Their shares are then known to a percent, within a second or so.
pub(crate) const MOST: u64 = 10_000;

/// What a traced run showed.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    /// Futex waits by caller: a library's file name, and its lock implementation, if known.
    pub(crate) waits: BTreeMap<(String, Option<Whose>), u64>,
    /// Waits for threads to end. They are not in `waits`.
    pub(crate) joins: u64,
    /// How the program ended; `None`: we ended it at the time limit.
    pub(crate) end: Option<ExitStatus>,
    /// Did some process have our library loaded when it waited or ended?
    pub(crate) loaded: bool,
}

/// Runs `command` until it ends or `limit` has passed, and counts its waits.
pub(crate) fn run(mut command: Command, library: &str, limit: Duration) -> io::Result<Trace> {
    // SAFETY: only system calls between fork and exec.
    unsafe {
        command.pre_exec(|| match libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        });
    }
    // The child stops at its exec. The loop below sees that.
    let child = command.spawn()?;
    let main = child.id() as libc::pid_t;
    let mut tracer = Tracer {
        library,
        maps: HashMap::new(),
        wrappers: HashMap::new(),
        trace: Trace::default(),
        places: HashMap::new(),
        left: MOST,
        threads: Vec::new(),
        seen: HashSet::new(),
    };
    let alarm = Alarm::start();
    let result = tracer.follow(main, Instant::now() + limit);
    drop(alarm);
    result?;
    Ok(tracer.named())
}

struct Tracer<'a> {
    library: &'a str,
    maps: HashMap<libc::pid_t, Vec<Mapping>>,
    /// The range of each file's function `syscall`, if it has one.
    wrappers: HashMap<PathBuf, Option<Range<u64>>>,
    trace: Trace,
    /// Waits by calling place. Names are added at the end, because the program stands still while we work.
    places: HashMap<FilePlace, u64>,
    /// How many more waits to count.
    left: u64,
    threads: Vec<libc::pid_t>,
    /// All threads that ever existed.
    seen: HashSet<libc::pid_t>,
}

/// A place in a file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct FilePlace {
    path: PathBuf,
    offset: u64,
}

impl FilePlace {
    fn object(&self) -> String {
        object(&self.path)
    }
}

fn object(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).display().to_string()
}

impl Tracer<'_> {
    fn follow(&mut self, main: libc::pid_t, deadline: Instant) -> io::Result<()> {
        self.threads.push(main);
        let mut first = true;
        let mut killed = false;
        loop {
            if !killed && Instant::now() >= deadline {
                killed = true;
                for &thread in &self.threads {
                    // SAFETY: signals a thread that we trace and haven't seen end.
                    unsafe { libc::kill(thread, libc::SIGKILL) };
                }
            }
            let mut status = 0;
            // SAFETY: `status` is writable.
            let thread = unsafe { libc::waitpid(-1, &mut status, libc::__WALL) };
            if thread < 0 {
                match io::Error::last_os_error().raw_os_error() {
                    Some(libc::EINTR) => continue,
                    Some(libc::ECHILD) => return Ok(()),
                    _ => return Err(io::Error::last_os_error()),
                }
            }
            if !libc::WIFSTOPPED(status) {
                self.threads.retain(|&known| known != thread);
                self.maps.remove(&thread);
                if thread == main && !killed {
                    self.trace.end = Some(ExitStatus::from_raw(status));
                }
                continue;
            }
            if !self.threads.contains(&thread) {
                self.threads.push(thread);
            }
            self.seen.insert(thread);
            if first {
                first = false;
                options(thread)?;
            }
            let signal = libc::c_long::from(self.stopped(thread, status));
            let how = if self.left > 0 { libc::PTRACE_SYSCALL } else { libc::PTRACE_CONT };
            // SAFETY: the thread is stopped and ours. If it was killed in the meantime, the call
            // fails, and its end is reported next.
            unsafe { libc::ptrace(how, thread, 0, signal) };
        }
    }

    /// Handles a stop. Returns the signal to deliver.
    fn stopped(&mut self, thread: libc::pid_t, status: libc::c_int) -> libc::c_int {
        let signal = libc::WSTOPSIG(status);
        let event = status >> 16;
        if signal == libc::SIGTRAP | 0x80 {
            if self.left > 0
                && let Some(call) = entry(thread)
                && is_wait(&call)
            {
                self.left -= 1;
                let place = self.owner(thread, &call);
                self.trace.loaded |= place.object() == self.library;
                match is_libc(&place.path) && self.is_join(&call) {
                    true => self.trace.joins += 1,
                    false => *self.places.entry(place).or_default() += 1,
                }
            }
            return 0;
        }
        if event == libc::PTRACE_EVENT_EXEC || event == libc::PTRACE_EVENT_EXIT {
            if event == libc::PTRACE_EVENT_EXIT && !self.trace.loaded {
                self.trace.loaded =
                    mappings(thread).iter().flatten().any(|map| object(&map.path) == self.library);
            }
            self.maps.remove(&thread);
            return 0;
        }
        // A new thread's first stop comes from ptrace, not from the program. So do stops of its group.
        let ours = event != 0 || signal == libc::SIGTRAP || signal == libc::SIGSTOP;
        if ours { 0 } else { signal }
    }

    /// The calling place. If that is libc's function `syscall`, its caller.
    fn owner(&mut self, thread: libc::pid_t, call: &Entry) -> FilePlace {
        let place = self.place(thread, call.instruction);
        let wrapper = self.wrappers.entry(place.path.clone());
        let wrapper = wrapper.or_insert_with_key(|path| whose::syscall_function(path));
        if !wrapper.as_ref().is_some_and(|range| range.contains(&place.offset)) {
            return place;
        }
        return_address(thread, call.stack).map_or(place, |caller| self.place(thread, caller))
    }

    /// glibc waits like this until the kernel clears a thread's id.
    fn is_join(&self, call: &Entry) -> bool {
        let is_private = call.operation & libc::FUTEX_PRIVATE_FLAG as u64 != 0;
        !is_private && self.seen.contains(&(call.value as libc::pid_t))
    }

    fn place(&mut self, thread: libc::pid_t, address: u64) -> FilePlace {
        let find = |maps: &[Mapping]| {
            let within = |map: &&Mapping| map.is_code && (map.start..map.end).contains(&address);
            let map = maps.iter().find(within)?;
            let is_file = !map.path.as_os_str().is_empty();
            let path = if is_file { map.path.clone() } else { "generated code".into() };
            Some(FilePlace { path, offset: (address - map.start).wrapping_add(map.offset) })
        };
        if let Some(place) = self.maps.get(&thread).and_then(|maps| find(maps)) {
            return place;
        }
        // The code was loaded since, or the thread is new.
        let maps = mappings(thread).unwrap_or_default();
        let place = find(&maps);
        self.maps.insert(thread, maps);
        place.unwrap_or_else(|| FilePlace { path: "unknown".into(), offset: 0 })
    }

    /// The result, with names instead of places.
    fn named(self) -> Trace {
        let mut trace = self.trace;
        let mut files: BTreeMap<PathBuf, Vec<(u64, u64)>> = BTreeMap::new();
        for (place, count) in self.places {
            files.entry(place.path).or_default().push((place.offset, count));
        }
        for (path, places) in files {
            let object = object(&path);
            // Our own library needs no name.
            let file = (object != self.library).then(|| whose::File::read(&path));
            for (offset, count) in places {
                let whose = file.as_ref().and_then(|file| file.whose(offset));
                *trace.waits.entry((object.clone(), whose)).or_default() += count;
            }
        }
        trace
    }
}

fn is_libc(path: &Path) -> bool {
    object(path).starts_with("libc.so")
}

fn options(thread: libc::pid_t) -> io::Result<()> {
    let options = libc::PTRACE_O_TRACESYSGOOD
        | libc::PTRACE_O_TRACECLONE
        | libc::PTRACE_O_TRACEFORK
        | libc::PTRACE_O_TRACEVFORK
        | libc::PTRACE_O_TRACEEXEC
        | libc::PTRACE_O_TRACEEXIT
        | libc::PTRACE_O_EXITKILL;
    // SAFETY: the thread is stopped and ours.
    match unsafe { libc::ptrace(libc::PTRACE_SETOPTIONS, thread, 0, libc::c_long::from(options)) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A system call at its entry.
struct Entry {
    number: u64,
    operation: u64,
    /// The value that the caller expects in the word.
    value: u64,
    instruction: u64,
    stack: u64,
}

fn entry(thread: libc::pid_t) -> Option<Entry> {
    let mut info = MaybeUninit::<libc::ptrace_syscall_info>::zeroed();
    let size = size_of::<libc::ptrace_syscall_info>();
    // SAFETY: the thread is stopped; the kernel writes at most `size` bytes.
    let got =
        unsafe { libc::ptrace(libc::PTRACE_GET_SYSCALL_INFO, thread, size, info.as_mut_ptr()) };
    // SAFETY: all-zero bytes are a valid value, and the kernel overwrote some of them.
    let info = unsafe { info.assume_init() };
    if got <= 0 || info.op != libc::PTRACE_SYSCALL_INFO_ENTRY {
        return None;
    }
    // SAFETY: at an entry this is the union's valid member.
    let call = unsafe { info.u.entry };
    Some(Entry {
        number: call.nr,
        operation: call.args[1],
        value: call.args[2],
        instruction: info.instruction_pointer,
        stack: info.stack_pointer,
    })
}

fn is_wait(call: &Entry) -> bool {
    const COMMAND: u64 = 0x7f; // without FUTEX_PRIVATE_FLAG and FUTEX_CLOCK_REALTIME
    let waits = [
        libc::FUTEX_WAIT,
        libc::FUTEX_WAIT_BITSET,
        libc::FUTEX_LOCK_PI,
        libc::FUTEX_WAIT_REQUEUE_PI,
        libc::FUTEX_LOCK_PI2,
    ];
    let waitv = call.number == libc::SYS_futex_waitv as u64;
    waitv
        || (call.number == libc::SYS_futex as u64
            && waits.iter().any(|&wait| wait as u64 == call.operation & COMMAND))
}

/// The return address of libc's `syscall`. Anywhere else in libc, the value is meaningless.
#[cfg(target_arch = "x86_64")]
fn return_address(thread: libc::pid_t, stack: u64) -> Option<u64> {
    let mut word = 0u64;
    let local = libc::iovec { iov_base: (&raw mut word).cast(), iov_len: 8 };
    let remote = libc::iovec { iov_base: stack as *mut libc::c_void, iov_len: 8 };
    // SAFETY: `local` is ours; a bad remote address is reported, not touched.
    let got = unsafe { libc::process_vm_readv(thread, &local, 1, &remote, 1, 0) };
    (got == 8).then_some(word)
}

/// The return address of libc's `syscall`: the link register.
#[cfg(target_arch = "aarch64")]
fn return_address(thread: libc::pid_t, _stack: u64) -> Option<u64> {
    let mut registers = MaybeUninit::<libc::user_regs_struct>::zeroed();
    let mut vector = libc::iovec {
        iov_base: registers.as_mut_ptr().cast(),
        iov_len: size_of::<libc::user_regs_struct>(),
    };
    // SAFETY: the thread is stopped; the kernel writes at most the vector's length.
    let rc =
        unsafe { libc::ptrace(libc::PTRACE_GETREGSET, thread, libc::NT_PRSTATUS, &raw mut vector) };
    // SAFETY: all-zero bytes are a valid value, and the kernel overwrote them.
    (rc == 0).then(|| unsafe { registers.assume_init() }.regs[30])
}

/// Interrupts waitpid ten times a second, so that we notice the time limit.
struct Alarm;

impl Alarm {
    fn start() -> Self {
        extern "C" fn nothing(_: libc::c_int) {}
        let handler: extern "C" fn(libc::c_int) = nothing;
        // SAFETY: the handler does nothing; without SA_RESTART system calls end with EINTR.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as libc::sighandler_t;
            libc::sigaction(libc::SIGALRM, &action, std::ptr::null_mut());
        }
        Self::every(100_000);
        Self
    }

    fn every(microseconds: libc::suseconds_t) {
        let time = libc::timeval { tv_sec: 0, tv_usec: microseconds };
        let timer = libc::itimerval { it_interval: time, it_value: time };
        // SAFETY: the timer is valid; the old one isn't requested.
        unsafe { libc::setitimer(libc::ITIMER_REAL, &timer, std::ptr::null_mut()) };
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        Self::every(0);
    }
}
