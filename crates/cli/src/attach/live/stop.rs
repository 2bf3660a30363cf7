//! Stops the threads of another process.
//!
//! If this command ends in the meantime, for whatever reason, the kernel lets the threads run on. They don't notice
//! that they were stopped, with one exception: normally the kernel would end a few system calls with EINTR. We restart
//! these.

use crate::hints::{Failure, cause};
use lockwright_observer::process::Process;
use lockwright_observer::rights;
use std::collections::HashSet;
use std::io;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long all threads together may take to stop. On a busy machine each has to wait for a CPU. A thread that waits
/// for a disk or for a child of `vfork` can't stop.
const PATIENCE: Duration = Duration::from_secs(10);

/// The minimum number of checks of a thread, whatever the clock says. If the whole virtual machine pauses, time passes
/// in which no thread could have stopped.
const LOOKS: u32 = 1000;

/// The registers of a thread.
pub(super) type Registers = libc::user_regs_struct;

/// A stopped thread. It runs on when this is dropped.
pub(super) struct StoppedThread {
    pub(super) id: libc::pid_t,
}

/// How a thread responded to the request to stop.
pub(super) enum Stop {
    /// It has stopped for us.
    Still,
    /// It is entering or leaving a system call, as requested.
    Call,
    /// The thread, or its process, has ended.
    Gone,
}

impl StoppedThread {
    /// Attaches to a thread and tells it to stop. `None`: it has ended.
    fn seize(process: &Process, id: libc::pid_t) -> Result<Option<Self>, Failure> {
        let options = libc::c_long::from(libc::PTRACE_O_TRACESYSGOOD);
        // SAFETY: asks for a thread by its id; nothing of ours is touched.
        if unsafe { libc::ptrace(libc::PTRACE_SEIZE, id, 0, options) } != 0 {
            let error = io::Error::last_os_error();
            let state = process.status(id, "State");
            if error.raw_os_error() == Some(libc::ESRCH) || state.is_empty() || ended(&state) {
                return Ok(None);
            }
            return Err(Failure::new(format!(
                "may not stop thread {id} of process {}: {}",
                process.pid,
                cause(&error)
            ))
            .hint(rights::hint(process.pid)));
        }
        let thread = Self { id };
        // SAFETY: our tracee. If it has ended, its end is reported next.
        unsafe { libc::ptrace(libc::PTRACE_INTERRUPT, id, 0, 0) };
        Ok(Some(thread))
    }

    /// Stops one thread. `None`: it has ended.
    pub(super) fn stop(process: &Process, id: libc::pid_t) -> Result<Option<Self>, Failure> {
        let Some(thread) = Self::seize(process, id)? else { return Ok(None) };
        match thread.wait(process, Instant::now() + PATIENCE)? {
            Stop::Gone => Ok(None),
            _ => Ok(Some(thread)),
        }
    }

    /// Waits until the thread has stopped.
    pub(super) fn wait(&self, process: &Process, end: Instant) -> Result<Stop, Failure> {
        let mut looks = 0_u32;
        loop {
            let mut status = 0;
            // SAFETY: `status` is writable.
            match unsafe { libc::waitpid(self.id, &mut status, libc::__WALL | libc::WNOHANG) } {
                0 if Instant::now() > end && looks > LOOKS && !self.stands(process) => {
                    return Err(Failure::new(format!(
                        "thread {} of process {} does not stop: it is in state {}",
                        self.id,
                        process.pid,
                        process.status(self.id, "State")
                    ))
                    .hint(format!("what it waits for: cat /proc/{}/stack; try again", self.id)));
                }
                0 => {
                    looks += 1;
                    match looks {
                        ..100 => std::thread::yield_now(),
                        _ => sleep(Duration::from_micros(100)),
                    }
                }
                id if id == self.id && libc::WIFSTOPPED(status) => {
                    let signal = libc::WSTOPSIG(status);
                    if status >> 16 == libc::PTRACE_EVENT_STOP {
                        return Ok(Stop::Still);
                    } else if signal == libc::SIGTRAP | 0x80 {
                        return Ok(Stop::Call);
                    }
                    // A signal was about to reach it; deliver the signal.
                    self.go_on(libc::PTRACE_CONT, signal);
                }
                id if id == self.id => return Ok(Stop::Gone),
                _ => return Ok(Stop::Gone), // it is about to end
            }
        }
    }

    /// Has it stopped, although `waitpid` has not reported this yet?
    fn stands(&self, process: &Process) -> bool {
        process.status(self.id, "State").starts_with('t')
    }

    /// Lets it run on, and delivers this signal.
    pub(super) fn go_on(&self, how: libc::c_uint, signal: libc::c_int) {
        // SAFETY: our tracee. If it has ended, its end is reported next.
        unsafe { libc::ptrace(how, self.id, 0, libc::c_long::from(signal)) };
    }

    pub(super) fn registers(&self) -> Option<Registers> {
        let mut registers = MaybeUninit::<Registers>::zeroed();
        // SAFETY: room for what is written.
        let error =
            unsafe { libc::ptrace(libc::PTRACE_GETREGS, self.id, 0, registers.as_mut_ptr()) };
        // SAFETY: numbers.
        (error == 0).then(|| unsafe { registers.assume_init() })
    }

    pub(super) fn set_registers(&self, registers: &Registers) -> bool {
        // SAFETY: reads what is there.
        unsafe {
            libc::ptrace(libc::PTRACE_SETREGS, self.id, 0, std::ptr::from_ref(registers)) == 0
        }
    }

    /// Restarts a system call that ended with EINTR only because the thread had to stop. Such a call hasn't done
    /// anything yet. (The kernel restarts most others itself.)
    pub(super) fn begin_anew(&self, process: &Process) {
        let Some(mut registers) = self.registers() else { return };
        if was_cut_short(&registers) && !has_signal(process, self.id) {
            registers.rip -= 2;
            registers.rax = registers.orig_rax;
            self.set_registers(&registers);
        }
    }
}

impl Drop for StoppedThread {
    fn drop(&mut self) {
        // SAFETY: our tracee, or no longer traced.
        unsafe { libc::ptrace(libc::PTRACE_DETACH, self.id, null_mut::<u8>(), null_mut::<u8>()) };
    }
}

/// Does this `State` mean that the thread has ended?
fn ended(state: &str) -> bool {
    state.starts_with(['Z', 'X'])
}

/// Is this one of the system calls that end with EINTR when their thread is stopped, and has it done so? signal(7)
/// lists them. They include calls with a timeout by SO_RCVTIMEO or SO_SNDTIMEO.
pub(super) fn was_cut_short(registers: &Registers) -> bool {
    const CALLS: &[libc::c_long] = &[
        libc::SYS_epoll_wait,
        libc::SYS_epoll_pwait,
        libc::SYS_epoll_pwait2,
        libc::SYS_semop,
        libc::SYS_semtimedop,
        libc::SYS_rt_sigtimedwait,
        libc::SYS_io_getevents,
        libc::SYS_read,
        libc::SYS_readv,
        libc::SYS_recvfrom,
        libc::SYS_recvmsg,
        libc::SYS_write,
        libc::SYS_writev,
        libc::SYS_sendto,
        libc::SYS_sendmsg,
        libc::SYS_accept,
        libc::SYS_accept4,
    ];
    registers.rax as i64 == -i64::from(libc::EINTR)
        && CALLS.contains(&(registers.orig_rax as libc::c_long))
}

/// Is a signal about to be delivered to the thread?
pub(super) fn has_signal(process: &Process, id: libc::pid_t) -> bool {
    let set = |field| u64::from_str_radix(&process.status(id, field), 16).unwrap_or(0);
    (set("SigPnd") | set("ShdPnd")) & !set("SigBlk") != 0
}

/// Stops all threads of a process, including those that start in the meantime.
pub(super) fn stop_all(process: &Process) -> Result<Vec<StoppedThread>, Failure> {
    let end = Instant::now() + PATIENCE;
    let mut still: Vec<StoppedThread> = Vec::new();
    let mut known = HashSet::new();
    loop {
        let mut new = Vec::new();
        for id in process.threads() {
            if known.insert(id) {
                new.extend(StoppedThread::seize(process, id)?);
            }
        }
        if new.is_empty() {
            break;
        }
        for thread in new {
            match thread.wait(process, end)? {
                Stop::Gone => {}
                _ => {
                    thread.begin_anew(process);
                    still.push(thread);
                }
            }
        }
    }
    if still.is_empty() {
        return Err(Failure::new(format!("process {} has ended", process.pid)));
    }
    Ok(still)
}
