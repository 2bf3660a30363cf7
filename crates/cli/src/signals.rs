//! Signals: the program gets them as our own parent set them, as if this command weren't there.
//!
//! Rust ignores SIGPIPE before `main`, and its `Command` resets SIGPIPE and the mask of blocked signals when it starts
//! a program. This module records the original state. While a program runs as our child, `Watch` handles the signals
//! meant for the program.

use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Did our parent ignore SIGPIPE?
static PIPE_IGNORED: AtomicBool = AtomicBool::new(false);

/// Runs before Rust's start-up code, which changes the state that this records.
#[used]
// SAFETY: the section takes pointers to functions of this type, which need nothing of Rust's start-up.
#[unsafe(link_section = ".init_array")]
static RECORD: extern "C" fn() = {
    extern "C" fn record() {
        PIPE_IGNORED.store(is_ignored(libc::SIGPIPE), Relaxed); // only one thread exists
    }
    record
};

fn is_ignored(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: `action` is writable; all-zero bytes are a value of it if the call fails.
    let action = unsafe {
        libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr());
        action.assume_init()
    };
    action.sa_sigaction == libc::SIG_IGN
}

/// The inherited state: blocked signals, and which signals are ignored.
#[derive(Clone, Copy)]
struct Inherited {
    mask: libc::sigset_t,
    child_ignored: bool,
    /// For each of [`MEANT`].
    ignored: [bool; MEANT.len()],
}

impl Inherited {
    fn read() -> Inherited {
        let mut mask = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: `mask` is writable; all-zero bytes are the empty set.
        let mask = unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), mask.as_mut_ptr());
            mask.assume_init()
        };
        Inherited { mask, child_ignored: is_ignored(libc::SIGCHLD), ignored: MEANT.map(is_ignored) }
    }

    fn pass_on(self, command: &mut Command) {
        let restore = move || {
            let pipe = if PIPE_IGNORED.load(Relaxed) { libc::SIG_IGN } else { libc::SIG_DFL };
            let child = if self.child_ignored { libc::SIG_IGN } else { libc::SIG_DFL };
            let ignored = MEANT.into_iter().zip(self.ignored).filter(|(_, ignored)| *ignored);
            for (signal, _) in ignored {
                // SAFETY: legal between fork and exec; it can't fail for these signals.
                unsafe { libc::signal(signal, libc::SIG_IGN) };
            }
            // SAFETY: legal between fork and exec; the mask is a valid one.
            let done = unsafe {
                libc::signal(libc::SIGPIPE, pipe) != libc::SIG_ERR
                    && libc::signal(libc::SIGCHLD, child) != libc::SIG_ERR
                    && libc::pthread_sigmask(libc::SIG_SETMASK, &self.mask, std::ptr::null_mut())
                        == 0
            };
            if done { Ok(()) } else { Err(io::Error::last_os_error()) }
        };
        // SAFETY: the closure makes system calls, nothing else.
        unsafe { command.pre_exec(restore) };
    }
}

/// Makes the program of `command` inherit the state that we inherited.
pub(crate) fn pass_on(command: &mut Command) {
    Inherited::read().pass_on(command);
}

/// The signals that are meant for the program while it is our child.
const MEANT: [i32; 7] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGWINCH,
];

/// What a [`Watch`] saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A child changed its state.
    Child,
    /// This signal arrived.
    Signal {
        /// Its number.
        number: i32,
        /// Did it come from the terminal? Then every process in the foreground got it, including the program.
        from_terminal: bool,
    },
    /// Nothing happened in time.
    Nothing,
}

/// Has this process one thread?
fn is_alone() -> bool {
    std::fs::read_dir("/proc/self/task").map_or(true, |threads| threads.count() == 1)
}

/// While this exists, signals neither end nor interrupt this process: they wait until [`next`](Self::next) fetches
/// them.
pub(crate) struct Watch {
    inherited: Inherited,
    set: libc::sigset_t,
}

impl Watch {
    /// Call it while the process has one thread. Threads created later also have these signals blocked.
    pub(crate) fn new() -> Watch {
        let inherited = Inherited::read();
        let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: `set` is writable; the numbers are signals. If SIGCHLD were ignored, there would be nothing
        // to wait for.
        let set = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            // Signals that we inherited as ignored (nohup) stay ignored. Blocking them would make them wait for us.
            let meant = MEANT.into_iter().filter(|signal| !is_ignored(*signal));
            for signal in meant.chain([libc::SIGCHLD]) {
                libc::sigaddset(set.as_mut_ptr(), signal);
            }
            let set = set.assume_init();
            libc::signal(libc::SIGCHLD, libc::SIG_DFL);
            let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, before.as_mut_ptr());
            let was_blocked = libc::sigismember(before.as_ptr(), libc::SIGINT) == 1; // by another watch
            debug_assert!(cfg!(test) || was_blocked || is_alone(), "another thread has them open");
            set
        };
        Watch { inherited, set }
    }

    /// For [`wait_and`](Self::wait_and). A program may handle a signal that it inherits as ignored: shells start what runs in
    /// the background with SIGINT ignored. So this fetches those signals, too. Call it as [`new`](Self::new).
    pub(crate) fn for_program() -> Watch {
        let mut watch = Watch::new();
        for (signal, _) in MEANT.into_iter().zip(watch.inherited.ignored).filter(|(_, is)| *is) {
            // SAFETY: `set` is a set, these are signals. Each is blocked before it is no longer ignored: it waits.
            unsafe {
                libc::sigaddset(&mut watch.set, signal);
                libc::pthread_sigmask(libc::SIG_BLOCK, &watch.set, std::ptr::null_mut());
                libc::signal(signal, libc::SIG_DFL);
            }
        }
        watch
    }

    /// Starts a program with the signal state that we inherited.
    pub(crate) fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        self.inherited.pass_on(command);
        command.spawn()
    }

    /// Starts a program in its own process group: the terminal's signals don't reach it. It ends when this process
    /// does.
    pub(crate) fn spawn_group(&self, command: &mut Command) -> io::Result<ProcessGroup> {
        adopt_orphans();
        command.process_group(0);
        let tie = || {
            // SAFETY: sets one attribute of the process, legal between fork and exec.
            match unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        };
        // SAFETY: the closure makes a system call, nothing else.
        unsafe { command.pre_exec(tie) };
        self.spawn(command).map(|child| ProcessGroup { child, cleared: false })
    }

    /// Waits for the next event, forever if `limit` is `None`.
    pub(crate) fn next(&self, limit: Option<Duration>) -> Event {
        let mut about = MaybeUninit::<libc::siginfo_t>::zeroed();
        let time = limit.map(|limit| libc::timespec {
            tv_sec: limit.as_secs() as libc::time_t,
            tv_nsec: limit.subsec_nanos().into(),
        });
        let time = time.as_ref().map_or(std::ptr::null(), |time| time as *const _);
        // SAFETY: `set` is a set, `about` writable, `time` null or a time that lives long enough.
        let (number, about) = unsafe {
            let number = libc::sigtimedwait(&self.set, about.as_mut_ptr(), time);
            (number, about.assume_init())
        };
        match number {
            libc::SIGCHLD => Event::Child,
            1.. => Event::Signal { number, from_terminal: about.si_code == libc::SI_KERNEL },
            // Timeout, or a signal that isn't ours, such as SIGCONT, interrupted us.
            _ => Event::Nothing,
        }
    }

    /// Waits for the end of `child`, and passes signals on to it. Calls `each` after each `tick`, and at each signal.
    pub(crate) fn wait_and(
        &self,
        child: &mut Child,
        tick: Option<Duration>,
        mut each: impl FnMut(),
    ) -> io::Result<ExitStatus> {
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(status);
            }
            if let Event::Signal { number, from_terminal: false } = self.next(tick) {
                send(child.id(), number);
            }
            each();
        }
    }
}

/// From now on, orphans of our children become our own children, so that we can wait for them.
fn adopt_orphans() {
    // SAFETY: sets one attribute of this process.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
}

/// Ends children that left their process groups and that nobody waits for. Returns how many there were.
pub(crate) fn end_strays() -> usize {
    let mut ended = 0;
    loop {
        let mut status = 0;
        // SAFETY: `status` is writable.
        match unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG) } {
            0 => {}
            1.. => continue,
            _ => return ended,
        }
        // Some are alive. Their own children, if any, will then become ours.
        let lists = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        let lists =
            lists.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
        let strays: Vec<u32> = lists
            .flat_map(|list| {
                list.split(' ').filter_map(|id| id.trim().parse().ok()).collect::<Vec<_>>()
            })
            .collect();
        if strays.is_empty() {
            return ended; // this kernel doesn't list children
        }
        for id in strays {
            send(id, libc::SIGKILL);
            ended += 1;
            // SAFETY: `status` is writable.
            unsafe { libc::waitpid(id as i32, &mut status, 0) };
        }
    }
}

/// A program and all processes in its process group. None of them outlives this.
pub(crate) struct ProcessGroup {
    child: Child,
    cleared: bool,
}

impl ProcessGroup {
    /// Has the program itself ended? This doesn't reap it, so that its id stays reserved.
    pub(crate) fn has_ended(&self) -> bool {
        let mut about = MaybeUninit::<libc::siginfo_t>::zeroed();
        let how = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        // SAFETY: `about` is writable, and zeroed: its process id is 0 if nothing has ended.
        unsafe {
            libc::waitid(libc::P_PID, self.child.id(), about.as_mut_ptr(), how) == 0
                && about.assume_init().si_pid() != 0
        }
    }

    /// Sends a signal to the whole group.
    pub(crate) fn send(&self, signal: i32) {
        // SAFETY: no preconditions; the group is ours as long as its leader has not been reaped.
        unsafe { libc::kill(-self.id(), signal) };
    }

    /// Returns how the program itself ended, and the resources that it and its children used. The other processes have
    /// `patience` to end by themselves. After that they are killed.
    pub(crate) fn clear(
        &mut self,
        patience: Duration,
    ) -> io::Result<(ExitStatus, Vec<libc::rusage>)> {
        let (began, mut all, mut own) = (Instant::now(), Vec::new(), None);
        let mut may_end = true;
        loop {
            // The group is still ours: at least one member has not been reaped.
            if may_end && began.elapsed() >= patience {
                self.send(libc::SIGKILL);
                may_end = false;
            }
            let (mut status, mut usage) = (0, MaybeUninit::<libc::rusage>::zeroed());
            let how = if may_end { libc::WNOHANG } else { 0 };
            // SAFETY: both are writable; all-zero bytes are a value of `usage`.
            let (done, usage) = unsafe {
                let done = libc::wait4(-self.id(), &mut status, how, usage.as_mut_ptr());
                (done, usage.assume_init())
            };
            match done {
                0 => std::thread::sleep(Duration::from_millis(2)),
                1.. => {
                    all.push(usage);
                    if done == self.id() {
                        own = Some(ExitStatus::from_raw(status));
                    }
                }
                _ => {
                    let error = io::Error::last_os_error();
                    match (error.raw_os_error(), own) {
                        (Some(libc::EINTR), _) => {}
                        (Some(libc::ECHILD), Some(status)) => {
                            self.cleared = true;
                            return Ok((status, all));
                        }
                        _ => return Err(error),
                    }
                }
            }
        }
    }

    /// The program's own process id, which is the group's.
    pub(crate) fn id(&self) -> libc::pid_t {
        self.child.id() as libc::pid_t
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if !self.cleared {
            let _ = self.clear(Duration::ZERO);
        }
    }
}

/// Sends a signal to a child that has not been reaped yet.
fn send(id: u32, signal: i32) {
    // SAFETY: no preconditions; the id can't be reused before we reap the child.
    unsafe { libc::kill(id as i32, signal) };
}

/// Ends this process as the program ended: with the same exit code, or by the same signal.
pub(crate) fn end_as(status: ExitStatus) -> ExitCode {
    if let Some(code) = status.code() {
        return ExitCode::from(code as u8);
    }
    let signal = status.signal().unwrap_or(libc::SIGKILL);
    // SAFETY: changes this process alone, which is about to end. Only the program leaves a core file.
    unsafe {
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        libc::setrlimit(libc::RLIMIT_CORE, &none);
        libc::signal(signal, libc::SIG_DFL);
        let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), std::ptr::null_mut());
        libc::raise(signal);
    }
    // Not every signal ends a process. If this one doesn't, use the shell's exit code.
    ExitCode::from(128 + signal as u8)
}
