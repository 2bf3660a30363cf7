//! Whose locks a running program sleeps on: its futex waits, counted by the object that asked for them.
//!
//! Every thread and child process is stopped at each system call (ptrace). That slows the program down,
//! and more waits are seen than it would have had alone; shares are comparable, counts are not.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

/// What a traced run showed.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    /// Futex waits by object: a library's file name.
    pub(crate) waits: BTreeMap<String, u64>,
    /// How the program ended; `None`: it was ended at the time limit.
    pub(crate) end: Option<ExitStatus>,
    /// Processes, and those of them that had our library loaded when they waited or ended.
    pub(crate) loaded: bool,
}

/// Runs `command` to its end, or to the end of `limit`, and counts.
pub(crate) fn run(mut command: Command, library: &str, limit: Duration) -> io::Result<Trace> {
    // SAFETY: only system calls between fork and exec.
    unsafe {
        command.pre_exec(|| match libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        });
    }
    // The child stops by itself at its exec, under the eyes of the loop below.
    let child = command.spawn()?;
    let main = child.id() as libc::pid_t;
    let mut tracer =
        Tracer { library, maps: HashMap::new(), trace: Trace::default(), threads: Vec::new() };
    let alarm = Alarm::start();
    let result = tracer.follow(main, Instant::now() + limit);
    drop(alarm);
    result.map(|()| tracer.trace)
}

struct Tracer<'a> {
    library: &'a str,
    maps: HashMap<libc::pid_t, Vec<Mapping>>,
    trace: Trace,
    threads: Vec<libc::pid_t>,
}

struct Mapping {
    start: u64,
    end: u64,
    object: String,
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
            if first {
                first = false;
                options(thread)?;
            }
            let signal = self.stopped(thread, status);
            // SAFETY: the thread is stopped and ours. It may have been killed meanwhile: then the call
            // fails, and its end is reported next.
            unsafe { libc::ptrace(libc::PTRACE_SYSCALL, thread, 0, libc::c_long::from(signal)) };
        }
    }

    /// Looks at a stop; returns the signal to pass on.
    fn stopped(&mut self, thread: libc::pid_t, status: libc::c_int) -> libc::c_int {
        let signal = libc::WSTOPSIG(status);
        let event = status >> 16;
        if signal == libc::SIGTRAP | 0x80 {
            if let Some(call) = entry(thread)
                && is_wait(&call)
            {
                let object = self.owner(thread, &call);
                self.trace.loaded |= object == self.library;
                *self.trace.waits.entry(object).or_default() += 1;
            }
            return 0;
        }
        if event == libc::PTRACE_EVENT_EXEC || event == libc::PTRACE_EVENT_EXIT {
            if event == libc::PTRACE_EVENT_EXIT && !self.trace.loaded {
                self.trace.loaded = mappings(thread).iter().any(|map| map.object == self.library);
            }
            self.maps.remove(&thread);
            return 0;
        }
        // A new thread's first stop is ours, not the program's; and so is its group's.
        let ours = event != 0 || signal == libc::SIGTRAP || signal == libc::SIGSTOP;
        if ours { 0 } else { signal }
    }

    /// The object whose code asked: libc's `syscall` function is looked through.
    fn owner(&mut self, thread: libc::pid_t, call: &Entry) -> String {
        let object = self.object(thread, call.instruction);
        if !object.starts_with("libc.so") {
            return object;
        }
        match return_address(thread, call.stack).map(|caller| self.object(thread, caller)) {
            Some(caller) if caller == self.library => caller,
            _ => object,
        }
    }

    fn object(&mut self, thread: libc::pid_t, address: u64) -> String {
        let find = |maps: &[Mapping]| {
            maps.iter()
                .find(|map| (map.start..map.end).contains(&address))
                .map(|map| map.object.clone())
        };
        if let Some(object) = self.maps.get(&thread).and_then(|maps| find(maps)) {
            return object;
        }
        // Loaded since, or a thread not seen before.
        let maps = mappings(thread);
        let object = find(&maps).unwrap_or_else(|| "unknown".to_owned());
        self.maps.insert(thread, maps);
        object
    }
}

/// The executable mappings of a thread's process.
fn mappings(thread: libc::pid_t) -> Vec<Mapping> {
    let text = fs::read_to_string(format!("/proc/{thread}/maps")).unwrap_or_default();
    let mapping = |line: &str| {
        let mut words = line.split_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let executable = words.next()?.contains('x');
        let path = words.nth(3).unwrap_or("generated code");
        let object = path.rsplit('/').next().unwrap_or(path).to_owned();
        executable.then_some(Mapping {
            start: u64::from_str_radix(start, 16).ok()?,
            end: u64::from_str_radix(end, 16).ok()?,
            object,
        })
    };
    text.lines().filter_map(mapping).collect()
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
    instruction: u64,
    stack: u64,
}

fn entry(thread: libc::pid_t) -> Option<Entry> {
    let mut info = MaybeUninit::<libc::ptrace_syscall_info>::zeroed();
    let size = size_of::<libc::ptrace_syscall_info>();
    // SAFETY: the thread is stopped; the kernel writes at most `size` bytes.
    let got =
        unsafe { libc::ptrace(libc::PTRACE_GET_SYSCALL_INFO, thread, size, info.as_mut_ptr()) };
    // SAFETY: all-zero bytes are a value of it, and the kernel wrote over some.
    let info = unsafe { info.assume_init() };
    if got <= 0 || info.op != libc::PTRACE_SYSCALL_INFO_ENTRY {
        return None;
    }
    // SAFETY: at an entry this is the union's valid member.
    let call = unsafe { info.u.entry };
    Some(Entry {
        number: call.nr,
        operation: call.args[1],
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

/// Where libc's `syscall` will return to; anywhere else in libc, a value without meaning.
#[cfg(target_arch = "x86_64")]
fn return_address(thread: libc::pid_t, stack: u64) -> Option<u64> {
    let mut word = 0u64;
    let local = libc::iovec { iov_base: (&raw mut word).cast(), iov_len: 8 };
    let remote = libc::iovec { iov_base: stack as *mut libc::c_void, iov_len: 8 };
    // SAFETY: `local` is ours; a bad remote address is reported, not touched.
    let got = unsafe { libc::process_vm_readv(thread, &local, 1, &remote, 1, 0) };
    (got == 8).then_some(word)
}

/// Where libc's `syscall` will return to: the link register.
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
    // SAFETY: all-zero bytes are a value of it, and the kernel wrote over them.
    (rc == 0).then(|| unsafe { registers.assume_init() }.regs[30])
}

/// Interrupts our wait ten times a second, so that the time limit is seen.
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
        // SAFETY: the timer is valid; the old one isn't asked for.
        unsafe { libc::setitimer(libc::ITIMER_REAL, &timer, std::ptr::null_mut()) };
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        Self::every(0);
    }
}
