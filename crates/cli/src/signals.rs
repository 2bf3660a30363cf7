//! The program's signals are as our own parent set them, as if we were not there.
//!
//! Rust ignores SIGPIPE before `main`, and its `Command` resets SIGPIPE and the mask of blocked signals
//! when it starts a program. This records what was there before. While a program runs as our child,
//! `Watch` takes the signals that are meant for it.

use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Did our parent ignore SIGPIPE?
static PIPE_IGNORED: AtomicBool = AtomicBool::new(false);

/// Runs before Rust's own start-up, which changes what it records.
#[used]
// SAFETY: the section takes pointers to functions of this type, which need nothing of Rust's start-up.
#[unsafe(link_section = ".init_array")]
static RECORD: extern "C" fn() = {
    extern "C" fn record() {
        PIPE_IGNORED.store(is_ignored(libc::SIGPIPE), Relaxed); // one thread as yet
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

/// What we inherited: blocked signals, and two that may be ignored.
#[derive(Clone, Copy)]
struct Inherited {
    mask: libc::sigset_t,
    child_ignored: bool,
}

impl Inherited {
    fn read() -> Inherited {
        let mut mask = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: `mask` is writable; all-zero bytes are the empty set.
        let mask = unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), mask.as_mut_ptr());
            mask.assume_init()
        };
        Inherited { mask, child_ignored: is_ignored(libc::SIGCHLD) }
    }

    fn pass_on(self, command: &mut Command) {
        let restore = move || {
            let pipe = if PIPE_IGNORED.load(Relaxed) { libc::SIG_IGN } else { libc::SIG_DFL };
            let child = if self.child_ignored { libc::SIG_IGN } else { libc::SIG_DFL };
            // SAFETY: legal between fork and exec; the mask is one that we had.
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

/// Lets the program of `command` inherit what we inherited.
pub(crate) fn pass_on(command: &mut Command) {
    Inherited::read().pass_on(command);
}

/// Signals that are meant for the program while it is our child.
const MEANT: [i32; 7] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGWINCH,
];

/// Something that a [`Watch`] saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A child changed its state.
    Child,
    /// This signal came.
    Signal {
        /// Its number.
        number: i32,
        /// Did the terminal send it? Then every process in the foreground got it, the program too.
        from_terminal: bool,
    },
    /// Nothing within the time.
    Nothing,
}

/// From its creation on, signals neither end nor interrupt us: they wait until [`next`](Self::next)
/// asks.
pub(crate) struct Watch {
    inherited: Inherited,
    set: libc::sigset_t,
}

impl Watch {
    /// For a process with one thread; threads that it makes later have these signals blocked.
    pub(crate) fn new() -> Watch {
        let inherited = Inherited::read();
        let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: `set` is writable; the numbers are signals. With SIGCHLD ignored there would be nothing
        // to wait for.
        let set = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            // What we are to ignore (nohup) stays ignored: blocked, it would wait for us.
            let meant = MEANT.into_iter().filter(|signal| !is_ignored(*signal));
            for signal in meant.chain([libc::SIGCHLD]) {
                libc::sigaddset(set.as_mut_ptr(), signal);
            }
            let set = set.assume_init();
            libc::signal(libc::SIGCHLD, libc::SIG_DFL);
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            set
        };
        Watch { inherited, set }
    }

    /// Starts a program, with signals as we found them.
    pub(crate) fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        self.inherited.pass_on(command);
        command.spawn()
    }

    /// Starts a program in a process group of its own: the terminal's signals don't reach it. It ends when
    /// we do.
    pub(crate) fn spawn_group(&self, command: &mut Command) -> io::Result<Group> {
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
        self.spawn(command).map(|child| Group { child, cleared: false })
    }

    /// Waits for the next event, forever with no `limit`.
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
            // Time is up, or a signal that isn't ours, as SIGCONT, interrupted us.
            _ => Event::Nothing,
        }
    }

    /// Waits for the end of `child`, and passes signals on to it meanwhile; it calls `each` after each `tick`, and at each signal.
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

/// From now on what our children leave behind becomes our own child, which we can wait for.
fn adopt_orphans() {
    // SAFETY: sets one attribute of this process.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
}

/// Ends children that nobody waits for, and says how many there were: they have left their process groups.
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
        // Some are alive; they may have children of their own, which will be ours then.
        let lists = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        let lists =
            lists.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
        let strays: Vec<u32> = lists
            .flat_map(|list| {
                list.split(' ').filter_map(|id| id.trim().parse().ok()).collect::<Vec<_>>()
            })
            .collect();
        if strays.is_empty() {
            return ended; // a kernel that does not list them
        }
        for id in strays {
            send(id, libc::SIGKILL);
            ended += 1;
            // SAFETY: `status` is writable.
            unsafe { libc::waitpid(id as i32, &mut status, 0) };
        }
    }
}

/// A program and what it started, as far as that stays in its process group. None of it outlives this.
pub(crate) struct Group {
    child: Child,
    cleared: bool,
}

impl Group {
    /// Has the program itself ended? It is not waited for, so that its id stays its own.
    pub(crate) fn has_ended(&self) -> bool {
        let mut about = MaybeUninit::<libc::siginfo_t>::zeroed();
        let how = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        // SAFETY: `about` is writable, and zeroed: its process id is 0 if nothing has ended.
        unsafe {
            libc::waitid(libc::P_PID, self.child.id(), about.as_mut_ptr(), how) == 0
                && about.assume_init().si_pid() != 0
        }
    }

    /// Sends a signal to all of it.
    pub(crate) fn send(&self, signal: i32) {
        // SAFETY: no preconditions; the group is ours as long as its leader was not waited for.
        unsafe { libc::kill(-self.id(), signal) };
    }

    /// How the program itself ended, and what it and its children have used. The others have `patience` to end by themselves;
    /// then what is left is ended.
    pub(crate) fn clear(
        &mut self,
        patience: Duration,
    ) -> io::Result<(ExitStatus, Vec<libc::rusage>)> {
        let (began, mut all, mut own) = (Instant::now(), Vec::new(), None);
        let mut may_end = true;
        loop {
            // The group is still ours: somebody of it was not waited for.
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

impl Drop for Group {
    fn drop(&mut self) {
        if !self.cleared {
            let _ = self.clear(Duration::ZERO);
        }
    }
}

/// Sends a signal to a child that was not waited for yet.
fn send(id: u32, signal: i32) {
    // SAFETY: no preconditions; the id can't be another's before we wait for it.
    unsafe { libc::kill(id as i32, signal) };
}

/// Ends us as `status` says the program ended: by the same code, or by the same signal.
pub(crate) fn end_as(status: ExitStatus) -> ExitCode {
    if let Some(code) = status.code() {
        return ExitCode::from(code as u8);
    }
    let signal = status.signal().unwrap_or(libc::SIGKILL);
    // SAFETY: changes this process alone, which is about to end. The core file, if any, is the program's.
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
    // Not every signal ends a process: then use the shells' exit code.
    ExitCode::from(128 + signal as u8)
}
