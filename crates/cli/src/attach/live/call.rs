//! Calls `dlopen` in another process, on one of its threads that waits in a system call.
//!
//! ```text
//!   the thread's stack     in use │ 128 bytes that are its own │ FPU │ path │ frame: registers, mask │ ◄ __restore_rt
//!                                                                                                     ▲ stack pointer
//! ```
//!
//! We write what the kernel writes when it delivers a signal: below the thread's stack, a frame with its whole state,
//! and the address to which signal handlers return. Then we set its registers, in one step, to the beginning of
//! `dlopen`. When `dlopen` returns, the thread asks the kernel to restore the state in the frame, and restarts its
//! system call. After that one step the thread no longer needs us: if this command is killed, the process goes on
//! unharmed.
//!
//! It must be safe for the thread to call any function. So it must wait for something outside the process, or for a
//! condition variable. It must not be in a signal handler, which may have interrupted `malloc` or the dynamic linker.
//! The other threads keep running. If one of them holds a lock of `malloc` or the linker, it releases it soon.

use super::refuse;
use super::stop::{Registers, Stop, StoppedThread, has_signal, was_cut_short};
use crate::hints::Failure;
use lockwright_observer::process::{Mapping, Process, mappings};
use std::arch::x86_64::__cpuid_count;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long we look for a thread that waits.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long the call may take.
const LIMIT: Duration = Duration::from_secs(10);
/// How much of the thread's stack the call may need.
const STACK: u64 = 64 * 1024;
/// The ABI's red zone: bytes below the stack pointer that are in use.
const RED_ZONE: u64 = 128;
/// How far up a stack we look for a signal frame.
const DEPTH: u64 = 1 << 20;

/// The kernel's internal error numbers. They mean that the system call must be restarted.
const ERESTARTSYS: i64 = 512;
const ERESTARTNOINTR: i64 = 513;
const ERESTARTNOHAND: i64 = 514;
const ERESTART_RESTARTBLOCK: i64 = 516;

/// The addresses to call and to return to.
pub(super) struct Places {
    pub(super) dlopen: u64,
    /// libc's code to which a signal handler returns.
    pub(super) restorer: u64,
}

/// The threads that could not load the library, counted by reason.
#[derive(Default)]
struct Unfit {
    busy: usize,
    small: usize,
    elsewhere: usize,
}

impl Unfit {
    fn failure(&self, process: &Process) -> Failure {
        let reasons = [
            (self.busy, "ran or waited for locks"),
            (self.small, "had less than 64 KiB of stack left"),
            (self.elsewhere, "handled a signal or were on another stack"),
        ];
        let reasons = reasons.iter().filter(|(count, _)| *count > 0);
        let reasons: Vec<_> = reasons.map(|(count, why)| format!("{count} {why}")).collect();
        Failure::new(format!(
            "no thread of process {} could load the library within {} s: {}",
            process.pid,
            PATIENCE.as_secs(),
            reasons.join(", ")
        ))
        .hint("try again; or start it with `lockwright run -- PROGRAM`")
    }
}

/// Loads `library`. An error means that no thread can; whether it was loaded shows in the process's mappings.
pub(super) fn load(process: &Process, places: &Places, library: &Path) -> Result<(), Failure> {
    let end = Instant::now() + PATIENCE;
    loop {
        // A process with thousands of threads has thousands of mappings, so we read them once for all threads.
        let maps = mappings(process.pid).map_err(|error| process.gone(&error))?;
        let mut unfit = Unfit::default();
        let mut waiting = Vec::new();
        for id in process.threads() {
            match wait(process, id) {
                None => unfit.busy += 1,
                Some((_, stack)) if holding(&maps, stack).is_some_and(|map| !map.fits(stack)) => {
                    unfit.small += 1;
                }
                Some((rank, _)) => waiting.push((rank, id)),
            }
        }
        waiting.sort_unstable();
        for (_, id) in waiting {
            let Some(thread) = StoppedThread::stop(process, id)? else { continue };
            if refuse::is_confined(process, id) {
                return Err(refuse::confined(process));
            }
            if let Some(registers) = thread.registers()
                && let Some(back) = begun_anew(process, &thread, &registers)
                && let Some(frame) = frame(process, places, &maps, &thread, &back, library)?
            {
                return call(process, &thread, places.dlopen, &registers, &frame);
            }
            thread.begin_anew(process);
            unfit.elsewhere += 1;
        }
        if Instant::now() > end {
            return Err(unfit.failure(process));
        }
        sleep(Duration::from_millis(5));
    }
}

/// The mapping at this address. The kernel lists them in order.
fn holding(maps: &[Mapping], at: u64) -> Option<Stack<'_>> {
    let before = maps.partition_point(|map| map.start <= at);
    maps[..before].last().filter(|map| at < map.end).map(Stack)
}

/// A mapping that may be a thread's stack.
struct Stack<'a>(&'a Mapping);

impl Stack<'_> {
    /// The kernel extends the first thread's stack when it is needed.
    fn is_main(&self) -> bool {
        self.0.path.as_os_str() == OsStr::new("[stack]")
    }

    /// Does the call fit below this stack pointer?
    fn fits(&self, pointer: u64) -> bool {
        self.is_main() || pointer - self.0.start >= STACK
    }
}

/// Ranks what a thread waits in, if the thread could do so without holding a lock of malloc or the dynamic linker. The
/// best waits are those that the call does not prolong. Also returns the thread's stack pointer.
fn wait(process: &Process, id: libc::pid_t) -> Option<(u32, u64)> {
    // `202 0x7f.. 0x189 0x0 0x0 0x0 0xffffffff 0x7ff.. 0x7f..`, or `running`
    let text = process.of_thread(id, "syscall");
    let mut words = text.split_whitespace();
    let mut number: libc::c_long = words.next()?.parse().ok()?;
    let word = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok();
    let arguments: Vec<u64> = words.filter_map(word).collect();
    const COMMAND: u64 = 0x7f; // without FUTEX_PRIVATE_FLAG and FUTEX_CLOCK_REALTIME
    let &stack = arguments.get(6)?;
    if number == libc::SYS_restart_syscall {
        number = restarted(arguments.first_chunk()?)?;
    }
    let rank = match number {
        // FUTEX_WAIT_BITSET is safe: glibc's mutexes, and those of allocators, use FUTEX_WAIT.
        libc::SYS_futex => {
            (arguments.get(1)? & COMMAND == libc::FUTEX_WAIT_BITSET as u64).then_some(0)
        }
        libc::SYS_read
        | libc::SYS_recvfrom
        | libc::SYS_recvmsg
        | libc::SYS_accept
        | libc::SYS_accept4
        | libc::SYS_rt_sigsuspend
        | libc::SYS_pause
        | libc::SYS_wait4
        | libc::SYS_waitid => Some(0),
        libc::SYS_epoll_wait | libc::SYS_epoll_pwait => {
            Some(u32::from(*arguments.get(3)? as i32 != -1))
        }
        libc::SYS_poll => Some(u32::from(*arguments.get(2)? as i32 != -1)),
        libc::SYS_select | libc::SYS_pselect6 => Some(u32::from(*arguments.get(4)? != 0)),
        libc::SYS_ppoll => Some(u32::from(*arguments.get(2)? != 0)),
        libc::SYS_epoll_pwait2 => Some(u32::from(*arguments.get(3)? != 0)),
        libc::SYS_nanosleep | libc::SYS_clock_nanosleep => Some(2),
        _ => None,
    };
    Some((rank?, stack))
}

/// The number of the system call that the kernel restarted for these arguments. Once a thread that sleeps has been
/// stopped, by whatever command, the kernel no longer shows the number. Only `clock_nanosleep` is certain: it has a small
/// number, no flags and a pointer. The others that are restarted in this way have a pointer first, except `poll` without
/// files, whose third argument has 32 bits, or is negative.
fn restarted(arguments: &[u64; 3]) -> Option<libc::c_long> {
    const CLOCKS: u64 = 16;
    const POINTERS: std::ops::Range<u64> = 1 << 32..1 << 56;
    let [clock, flags, time] = *arguments;
    (clock < CLOCKS && flags == 0 && POINTERS.contains(&time)).then_some(libc::SYS_clock_nanosleep)
}

/// The registers with which the thread restarts its system call. `None`: it isn't in one, or a signal is about to reach
/// it.
fn begun_anew(
    process: &Process,
    thread: &StoppedThread,
    registers: &Registers,
) -> Option<Registers> {
    const CODE_64: u64 = 0x33;
    const SYSCALL: [u8; 2] = [0x0f, 0x05];
    let error = -(registers.rax as i64);
    let again = [ERESTARTSYS, ERESTARTNOINTR, ERESTARTNOHAND, ERESTART_RESTARTBLOCK]
        .contains(&error)
        || was_cut_short(registers);
    let mut code = [0; 2];
    process.read(registers.rip.wrapping_sub(2), &mut code).ok()?;
    let is_in_one = (registers.orig_rax as i64) >= 0 && again && code == SYSCALL;
    if !is_in_one || registers.cs != CODE_64 || has_signal(process, thread.id) {
        return None;
    }
    let mut back = *registers;
    back.rip -= 2;
    // After the return from a signal handler, the kernel doesn't know any more what it restarted.
    back.rax = match registers.orig_rax as libc::c_long {
        libc::SYS_restart_syscall => restarted(&[back.rdi, back.rsi, back.rdx])? as u64,
        _ => registers.orig_rax,
    };
    Some(back)
}

/// A signal frame, as the kernel would make it.
struct Frame {
    at: u64,
    bytes: Vec<u8>,
    path: u64,
}

/// The frame that restores the thread. `None`: the call can't use the thread's stack.
fn frame(
    process: &Process,
    places: &Places,
    maps: &[Mapping],
    thread: &StoppedThread,
    back: &Registers,
    library: &Path,
) -> Result<Option<Frame>, Failure> {
    let Some(stack) = holding(maps, back.rsp) else { return Ok(None) };
    // A thread's control block lies above its stack. This check excludes the stacks of coroutines and signal handlers.
    let is_own = stack.is_main() || (stack.0.start..stack.0.end).contains(&back.fs_base);
    if !is_own || !stack.fits(back.rsp) {
        return Ok(None);
    }
    // The mappings may have changed before the thread stopped.
    let now = mappings(process.pid).map_err(|error| process.gone(&error))?;
    if !now.contains(stack.0) || handles_signal(process, places, stack.0, back.rsp)? {
        return Ok(None);
    }
    let Some(state) = thread.extended_state() else { return Ok(None) };
    let Some(mask) = thread.mask() else { return Ok(None) };
    let mut path = library.as_os_str().as_bytes().to_vec();
    path.push(0);

    let state_at = (back.rsp - RED_ZONE - state.len() as u64) & !63;
    let path_at = state_at - path.len() as u64;
    let context_at = (path_at - CONTEXT as u64) & !15;
    let at = context_at - 8;
    let mut bytes = places.restorer.to_ne_bytes().to_vec();
    bytes.extend(context(back, state_at, mask));
    bytes.resize((path_at - at) as usize, 0);
    bytes.extend(path);
    bytes.resize((state_at - at) as usize, 0);
    bytes.extend(state);
    Ok(Some(Frame { at, bytes, path: path_at }))
}

/// Size of a `ucontext` with the kernel's signal set.
const CONTEXT: usize = 304;

/// A `ucontext` with these registers.
fn context(registers: &Registers, state: u64, mask: u64) -> Vec<u8> {
    /// Extended state is present; `ss` is valid and must be restored.
    const FLAGS: u64 = 1 | 2 | 4;
    let r = registers;
    let segments = r.cs & 0xffff | (r.ss & 0xffff) << 48;
    let mut words = vec![FLAGS, 0, 0, 0, 0]; // no linked context; the alternate stack stays unchanged
    words.extend([r.r8, r.r9, r.r10, r.r11, r.r12, r.r13, r.r14, r.r15]);
    words.extend([r.rdi, r.rsi, r.rbp, r.rbx, r.rdx, r.rax, r.rcx, r.rsp, r.rip, r.eflags]);
    words.extend([segments, 0, 0, 0, 0, state]);
    words.resize(CONTEXT / 8 - 1, 0);
    words.push(mask);
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// Does the stack contain the frame of a signal that is being handled? (It may be an old frame that nothing has
/// overwritten.)
fn handles_signal(
    process: &Process,
    places: &Places,
    stack: &Mapping,
    from: u64,
) -> Result<bool, Failure> {
    /// Words from the frame's beginning to the saved segments: return address, flags, link, stack, 18 registers.
    const SEGMENTS: usize = 1 + 5 + 18;
    let from = from & !7;
    let words = process.words(from, ((stack.end - from).min(DEPTH) / 8) as usize)?;
    let is_frame = |frame: &[u64]| {
        frame[0] == places.restorer
            && frame[1] < 8
            && frame[2] == 0
            && frame[SEGMENTS] & 0xffff == 0x33
    };
    Ok(words.windows(SEGMENTS + 1).any(is_frame))
}

/// Makes the thread do the call, and waits until it has returned.
fn call(
    process: &Process,
    thread: &StoppedThread,
    function: u64,
    before: &Registers,
    frame: &Frame,
) -> Result<(), Failure> {
    const RTLD_NODELETE: libc::c_int = 0x1000;
    const DIRECTION: u64 = 1 << 10; // a flag, which functions expect to be clear
    process.write(frame.at, &frame.bytes)?;
    let there = Registers {
        rip: function,
        rsp: frame.at,
        rdi: frame.path,
        rsi: (libc::RTLD_NOW | RTLD_NODELETE) as u64,
        rax: 0,
        orig_rax: u64::MAX, // no longer in a system call
        eflags: before.eflags & !DIRECTION,
        ..*before
    };
    if !thread.set_registers(&there) {
        return Err(Failure::new(format!("process {} has ended", process.pid)));
    }
    // Signals wait until the call has returned. This comes after the registers: if this command ends between the two
    // steps, the thread still gets its own mask back.
    thread.set_mask(u64::MAX);
    let end = Instant::now() + LIMIT;
    loop {
        thread.go_on(libc::PTRACE_SYSCALL, 0);
        match thread.wait(process, end)? {
            Stop::Gone => {
                return Err(Failure::new(format!("process {} has ended", process.pid)));
            }
            Stop::Still => {}
            Stop::Call => {
                let Some(now) = thread.registers() else { continue };
                if now.orig_rax == libc::SYS_rt_sigreturn as u64 && now.rsp == frame.at + 8 {
                    // The thread runs again, so the call has returned.
                    return Ok(());
                }
            }
        }
    }
}

impl StoppedThread {
    /// The thread's floating-point and vector registers, laid out as in a signal frame.
    fn extended_state(&self) -> Option<Vec<u8>> {
        /// The first 512 bytes are those of old processors. The last of them are for software's use.
        const SOFTWARE: usize = 464;
        const PRESENT: usize = 512;
        const MAGIC_1: u32 = 0x4650_5853;
        const MAGIC_2: u32 = 0x4650_5845;
        const NT_X86_XSTATE: libc::c_int = 0x202;
        /// AMX's tiles: a process has space for them only after it has asked for it.
        const TILES: u64 = 3 << 17;
        let mut state = vec![0_u8; 64 * 1024];
        let mut vector = libc::iovec { iov_base: state.as_mut_ptr().cast(), iov_len: state.len() };
        // SAFETY: writes at most the vector's length.
        let error = unsafe {
            libc::ptrace(libc::PTRACE_GETREGSET, self.id, NT_X86_XSTATE, &raw mut vector)
        };
        if error != 0 || vector.iov_len < PRESENT + 64 {
            return None;
        }
        state.truncate(vector.iov_len);
        let word = |at: usize| u64::from_ne_bytes(state[at..at + 8].try_into().expect("8 bytes"));
        let (mut features, present) = (word(SOFTWARE), word(PRESENT));
        if present & TILES == 0 {
            features &= !TILES;
        }
        // The size and place of each component.
        let part = |number: u32| {
            let about = __cpuid_count(0xd, number);
            (about.eax + about.ebx) as usize
        };
        let parts = (2..63).filter(|number| features >> number & 1 != 0).map(part);
        let size = parts.max().unwrap_or(0).max(PRESENT + 64);
        if size > state.len() {
            return None;
        }
        state.truncate(size);
        let software =
            [MAGIC_1, size as u32 + 4, features as u32, (features >> 32) as u32, size as u32];
        let software = software.iter().flat_map(|word| word.to_ne_bytes());
        state.splice(SOFTWARE..SOFTWARE + 20, software);
        state.extend(MAGIC_2.to_ne_bytes());
        Some(state)
    }

    /// The signals that the thread blocks.
    fn mask(&self) -> Option<u64> {
        let mut mask = 0_u64;
        // SAFETY: writes 8 bytes.
        let error = unsafe { libc::ptrace(libc::PTRACE_GETSIGMASK, self.id, 8, &raw mut mask) };
        (error == 0).then_some(mask)
    }

    fn set_mask(&self, mask: u64) {
        // SAFETY: reads 8 bytes. If it fails, signals are handled during the call.
        unsafe { libc::ptrace(libc::PTRACE_SETSIGMASK, self.id, 8, &raw const mask) };
    }
}

/// The address of libc's code to which a signal handler returns: `mov $15, %rax; syscall`.
pub(super) fn restorer(process: &Process, libc: &Path) -> Option<u64> {
    const CODE: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];
    let maps = mappings(process.pid).ok()?;
    maps.iter().filter(|map| map.is_code && map.path == libc).find_map(|map| {
        let mut code = vec![0; (map.end - map.start) as usize];
        process.read(map.start, &mut code).ok()?;
        let at = code.windows(CODE.len()).position(|bytes| bytes == CODE)?;
        Some(map.start + at as u64)
    })
}
