//! A call of `dlopen` in another process, by one of its threads that waits in a system call.
//!
//! ```text
//!   the thread's stack     in use │ 128 bytes that are its own │ FPU │ path │ frame: registers, mask │ ◄ __restore_rt
//!                                                                                                     ▲ stack pointer
//! ```
//!
//! We write what the kernel writes when it delivers a signal: a frame with all that the thread had, below its stack,
//! and the address that signal handlers return to. Then we set its registers, in one step, to the beginning of `dlopen`.
//! When that returns, the thread asks the kernel for what the frame says, and begins its system call anew. From that one
//! step on it needs us no more: if this command is killed, nothing happens to the process.
//!
//! The thread must be one that may call any function: it waits for something outside of the process, or for a condition
//! variable, and not in a signal handler, which may have interrupted `malloc` or the dynamic linker. The other threads
//! run on. If one of them has the lock of either, it releases it soon.

use super::stop::{Registers, Stop, Thread, has_signal, was_cut_short};
use crate::hints::Failure;
use crate::process::{Mapping, Process, mappings};
use std::arch::x86_64::__cpuid_count;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// For how long we look for a thread that waits.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long the call may take.
const LIMIT: Duration = Duration::from_secs(10);
/// What the call may need of the thread's stack.
const STACK: u64 = 64 * 1024;
/// What lies below the stack pointer and is in use (the ABI's red zone).
const RED_ZONE: u64 = 128;
/// How far up a stack we look for a signal's frame.
const DEPTH: u64 = 1 << 20;

/// The kernel's own error numbers: the system call is to be begun anew.
const ERESTARTSYS: i64 = 512;
const ERESTARTNOINTR: i64 = 513;
const ERESTARTNOHAND: i64 = 514;
const ERESTART_RESTARTBLOCK: i64 = 516;

/// Where to call, and where to return to.
pub(super) struct Places {
    pub(super) dlopen: u64,
    /// libc's code that a signal handler returns to.
    pub(super) restorer: u64,
}

/// Loads `library`. An error if no thread can; whether it has been loaded is seen by the process's mappings.
pub(super) fn load(process: &Process, places: &Places, library: &Path) -> Result<(), Failure> {
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        let mut waiting: Vec<_> =
            process.threads().into_iter().filter_map(|id| Some((wait(process, id)?, id))).collect();
        waiting.sort_unstable();
        for (_, id) in waiting {
            let Some(thread) = Thread::stop(process, id)? else { continue };
            if let Some(registers) = thread.registers()
                && let Some(back) = begun_anew(process, &thread, &registers)
                && let Some(frame) = frame(process, places, &thread, &back, library)?
            {
                return call(process, &thread, places.dlopen, &registers, &frame);
            }
            thread.begin_anew(process);
        }
        sleep(Duration::from_millis(5));
    }
    Err(Failure::new(format!(
        "process {} can't load the library now: no thread waits outside of locks and signal handlers",
        process.pid
    ))
    .hint("try again; or start it with `lockwright run -- PROGRAM`"))
}

/// What a thread waits in, if it is something that it could do without malloc or the dynamic linker, as a rank: those
/// first whose wait does not get longer.
fn wait(process: &Process, id: libc::pid_t) -> Option<u32> {
    // `202 0x7f.. 0x189 0x0 0x0 0x0 0xffffffff 0x7ff.. 0x7f..`, or `running`
    let text = process.of_thread(id, "syscall");
    let mut words = text.split_whitespace();
    let number: libc::c_long = words.next()?.parse().ok()?;
    let word = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok();
    let arguments: Vec<u64> = words.filter_map(word).collect();
    const COMMAND: u64 = 0x7f; // without FUTEX_PRIVATE_FLAG and FUTEX_CLOCK_REALTIME
    match number {
        // glibc's mutexes, and those of allocators, use FUTEX_WAIT.
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
    }
}

/// The registers with which the thread begins its system call anew; none: it is not in one, or about to get a signal.
fn begun_anew(process: &Process, thread: &Thread, registers: &Registers) -> Option<Registers> {
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
    back.rax = registers.orig_rax;
    Some(back)
}

/// A signal's frame, as the kernel would make it.
struct Frame {
    at: u64,
    bytes: Vec<u8>,
    path: u64,
}

/// The frame that leads back; none: the thread's stack isn't one on which to call.
fn frame(
    process: &Process,
    places: &Places,
    thread: &Thread,
    back: &Registers,
    library: &Path,
) -> Result<Option<Frame>, Failure> {
    let maps = mappings(process.pid).map_err(|error| process.gone(&error))?;
    let Some(stack) = maps.iter().find(|map| (map.start..map.end).contains(&back.rsp)) else {
        return Ok(None);
    };
    // A thread's control block lies above its stack: this one is not some coroutine's or a signal handler's.
    let is_main = stack.path.as_os_str() == OsStr::new("[stack]");
    let is_own = is_main || (stack.start..stack.end).contains(&back.fs_base);
    if !is_own || (!is_main && back.rsp - stack.start < STACK) {
        return Ok(None);
    }
    if handles_signal(process, places, stack, back.rsp)? {
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

/// Bytes of a `ucontext` with the kernel's signal set.
const CONTEXT: usize = 304;

/// The `ucontext` with these registers.
fn context(registers: &Registers, state: u64, mask: u64) -> Vec<u8> {
    /// There is extended state; `ss` is valid, and is restored.
    const FLAGS: u64 = 1 | 2 | 4;
    let r = registers;
    let segments = r.cs & 0xffff | (r.ss & 0xffff) << 48;
    let mut words = vec![FLAGS, 0, 0, 0, 0]; // no other context; the other stack stays as it is
    words.extend([r.r8, r.r9, r.r10, r.r11, r.r12, r.r13, r.r14, r.r15]);
    words.extend([r.rdi, r.rsi, r.rbp, r.rbx, r.rdx, r.rax, r.rcx, r.rsp, r.rip, r.eflags]);
    words.extend([segments, 0, 0, 0, 0, state]);
    words.resize(CONTEXT / 8 - 1, 0);
    words.push(mask);
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// Is there a frame on the stack of a signal that is being handled? (Or an old one, which nobody has overwritten.)
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

/// Makes the thread call, and waits until it is back.
fn call(
    process: &Process,
    thread: &Thread,
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
        orig_rax: u64::MAX, // it is in no system call any more
        eflags: before.eflags & !DIRECTION,
        ..*before
    };
    if !thread.set_registers(&there) {
        return Err(Failure::new(format!("process {} has ended", process.pid)));
    }
    // Signals come when it is back. After the registers: if we end between the two, it gets its mask back.
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
                    // It is back when the thread runs on.
                    return Ok(());
                }
            }
        }
    }
}

impl Thread {
    /// The state of its floating-point and vector registers, as in a signal's frame.
    fn extended_state(&self) -> Option<Vec<u8>> {
        /// The state begins with 512 bytes that old processors have, too. The last of them are software's.
        const SOFTWARE: usize = 464;
        const PRESENT: usize = 512;
        const MAGIC_1: u32 = 0x4650_5853;
        const MAGIC_2: u32 = 0x4650_5845;
        const NT_X86_XSTATE: libc::c_int = 0x202;
        /// AMX's tiles: a process has room for them once it has asked for it.
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
        // Each part's size and place.
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

    /// The signals that it holds back.
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

/// Where libc's code is that a signal handler returns to: `mov $15, %rax; syscall`.
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
