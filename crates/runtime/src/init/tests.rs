//! A process confines itself while another thread of it asks the kernel for something. A debugger holds that thread at one system call
//! after another: so the order is given, and not a matter of time.

use crate::programs::tests::{self as policies, alone};
use crate::{env, files, fork, machine, posts, programs, switch};
use core::ffi::{c_int, c_long, c_void};
use core::mem::{offset_of, zeroed};
use core::ptr::null_mut;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;
use std::string::String;

/// What a filter must allow, and what ends a thread or the process. Everything else kills the process.
const ALLOWED: [c_long; 6] = [
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_clock_gettime,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_rt_sigreturn,
];
/// The call by which the asking thread says that it begins.
const BEGINS: c_long = libc::SYS_getppid;
const FINE: c_int = 7;

/// In the child: the other thread may confine the process.
static MAY_CONFINE: AtomicBool = AtomicBool::new(false);

/// All threads of the process get the filter.
fn confine_all() {
    let step = |code, k, jt, jf| libc::sock_filter { code, jt, jf, k };
    let load = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    let is = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    let says = (libc::BPF_RET | libc::BPF_K) as u16;
    let mut code = std::vec![step(load, offset_of!(libc::seccomp_data, nr) as u32, 0, 0)];
    for (at, number) in ALLOWED.iter().enumerate() {
        code.push(step(is, *number as u32, (ALLOWED.len() - at) as u8, 0));
    }
    code.push(step(says, libc::SECCOMP_RET_KILL_PROCESS, 0, 0));
    code.push(step(says, libc::SECCOMP_RET_ALLOW, 0, 0));
    let mut program = libc::sock_fprog { len: code.len() as u16, filter: code.as_mut_ptr() };
    // SAFETY: plain system calls; the program is complete.
    unsafe {
        assert_eq!(machine::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let (mode, flags) = (libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_FILTER_FLAG_TSYNC);
        assert_eq!(libc::syscall(libc::SYS_seccomp, mode, flags, &raw mut program), 0);
    }
}

/// The child, after it has prepared: one thread runs `ask`, and ends the process; the other confines the process when it may.
fn be_child(prepare: fn(), ask: fn()) -> ! {
    extern "C" fn asks(ask: *mut c_void) -> *mut c_void {
        // SAFETY: passed below. Then the process ends.
        unsafe {
            let ask = core::mem::transmute::<*mut c_void, fn()>(ask);
            libc::syscall(BEGINS);
            ask();
            libc::_exit(FINE)
        }
    }
    fork::era(); // while there is one thread: there may be no fork handler
    prepare();
    let mut id = 0;
    // SAFETY: the parent traces us, and sees the thread begin.
    unsafe {
        libc::ptrace(libc::PTRACE_TRACEME, 0, null_mut::<c_void>(), null_mut::<c_void>());
        libc::raise(libc::SIGSTOP);
        libc::pthread_create(&mut id, core::ptr::null(), asks, ask as *mut c_void);
    }
    while !MAY_CONFINE.load(Relaxed) {
        core::hint::spin_loop();
    }
    confine_all();
    loop {
        lockwright_native::futex::yield_cpu();
    }
}

/// A traced thread.
struct Traced(i32);

enum Stop {
    /// It enters a system call.
    Enters(c_long),
    /// It leaves one.
    Leaves,
    /// It has begun another thread.
    Begins(i32),
    Signal(c_int),
    Ends(c_int),
}

impl Traced {
    fn ask(&self, request: libc::c_uint, address: usize, data: usize) -> c_long {
        // SAFETY: a child of ours, which is stopped. (The kernel checks the addresses.)
        unsafe { libc::ptrace(request, self.0, address, data) }
    }

    /// Lets it run to its next stop.
    fn go_on(&self) {
        self.ask(libc::PTRACE_SYSCALL, 0, 0);
    }

    /// Its stop, if it has stopped.
    fn stop(&self) -> Option<Stop> {
        let mut status = 0;
        // SAFETY: our child.
        match unsafe { libc::waitpid(self.0, &mut status, libc::__WALL | libc::WNOHANG) } {
            0 => return None,
            got if got < 0 => return Some(Stop::Ends(-1)),
            _ => {}
        }
        if !libc::WIFSTOPPED(status) {
            return Some(Stop::Ends(status));
        }
        if status >> 16 == libc::PTRACE_EVENT_CLONE {
            let mut other: libc::c_ulong = 0;
            self.ask(libc::PTRACE_GETEVENTMSG, 0, (&raw mut other).expose_provenance());
            return Some(Stop::Begins(other as i32));
        }
        if libc::WSTOPSIG(status) != libc::SIGTRAP | 0x80 {
            return Some(Stop::Signal(libc::WSTOPSIG(status)));
        }
        // SAFETY: all-zero bytes are one; the kernel writes as much as fits.
        let info = unsafe {
            let mut info: libc::ptrace_syscall_info = zeroed();
            let len = size_of_val(&info);
            self.ask(libc::PTRACE_GET_SYSCALL_INFO, len, (&raw mut info).expose_provenance());
            info
        };
        // SAFETY: which of them it is, the kernel says.
        Some(unsafe {
            match info.op {
                libc::PTRACE_SYSCALL_INFO_ENTRY => Stop::Enters(info.u.entry.nr as c_long),
                _ => Stop::Leaves,
            }
        })
    }

    fn next(&self) -> Stop {
        loop {
            if let Some(stop) = self.stop() {
                return stop;
            }
            std::thread::yield_now();
        }
    }
}

/// Holds the thread that runs `ask` at its `nth` call that a filter may kill for, until the process is confined, or the thread that
/// confines it waits. `Ok(false)`: it makes fewer.
fn hold_at(prepare: fn(), ask: fn(), nth: usize) -> Result<bool, String> {
    // SAFETY: the child runs `be_child`, and nothing of ours.
    let main = Traced(match unsafe { libc::fork() } {
        0 => be_child(prepare, ask),
        child => child,
    });
    assert!(matches!(main.next(), Stop::Signal(libc::SIGSTOP)));
    let options = libc::PTRACE_O_TRACECLONE | libc::PTRACE_O_EXITKILL | libc::PTRACE_O_TRACESYSGOOD;
    main.ask(libc::PTRACE_SETOPTIONS, 0, options as usize);
    main.ask(libc::PTRACE_CONT, 0, 0);
    let other = loop {
        match main.next() {
            Stop::Begins(other) => break Traced(other),
            Stop::Ends(status) => return Err(std::format!("the child ended: {status:#x}")),
            _ => main.go_on(),
        }
    };
    main.go_on();
    let (mut has_begun, mut seen, mut held) = (false, 0, 0);
    while seen < nth {
        match other.next() {
            Stop::Enters(BEGINS) => has_begun = true,
            Stop::Enters(call) if has_begun && !ALLOWED.contains(&call) => {
                seen += 1;
                held = call;
            }
            Stop::Ends(_) => break,
            _ => {}
        }
        if seen < nth {
            other.go_on();
        }
    }
    let mut is_free = seen < nth;
    if !is_free {
        let may = (&raw const MAY_CONFINE).expose_provenance();
        // The child is a copy of ours. Its other thread runs: so the word is written through the one that has stopped.
        let word = may & !7;
        let now = usize::from_ne_bytes(other.ask(libc::PTRACE_PEEKDATA, word, 0).to_ne_bytes());
        other.ask(libc::PTRACE_POKEDATA, word, now | 1 << (8 * (may & 7)));
    }
    let (mut installs, mut status, mut last) = (false, None, held);
    while status.is_none() {
        let mut has_stopped = false;
        if let Some(stop) = main.stop() {
            has_stopped = true;
            let waits = |call| call == libc::SYS_futex || call == libc::SYS_sched_yield;
            let release = match stop {
                Stop::Enters(call) => {
                    installs |= call == libc::SYS_seccomp;
                    waits(call)
                }
                Stop::Leaves => installs,
                Stop::Ends(now) => {
                    status = Some(now);
                    false
                }
                _ => false,
            };
            if release && !is_free {
                is_free = true;
                other.go_on();
            }
            main.go_on();
        }
        if is_free && let Some(stop) = other.stop() {
            has_stopped = true;
            match stop {
                Stop::Ends(_) => {}
                stop => {
                    if let Stop::Enters(call) = stop {
                        last = call;
                    }
                    other.go_on();
                }
            }
        }
        if !has_stopped {
            std::thread::yield_now();
        }
    }
    let status = status.unwrap_or(0);
    if libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == FINE {
        return Ok(seen == nth);
    }
    Err(std::format!("held at its call {nth} ({held}), ended in {last}: {status:#x}"))
}

/// Whatever the thread asks the kernel for, the process doesn't die of it. Returns how many calls were tried.
fn is_never_trapped(what: &str, prepare: fn(), ask: fn()) -> usize {
    let mut nth = 1;
    loop {
        match hold_at(prepare, ask, nth) {
            Ok(true) => nth += 1,
            Ok(false) => return nth - 1,
            Err(why) => panic!("{what}: {why}"),
        }
    }
}

/// Nobody reads what the child says.
fn be_silent() {
    // SAFETY: the child's own descriptors.
    unsafe {
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_WRONLY);
        libc::dup2(null, libc::STDERR_FILENO);
    }
}

fn post_a_table() {
    let mailbox = &posts::lockwright_mailbox;
    let text = b"auto\nkind:recursive=fifo";
    policies::posted(&mailbox.posts, || {
        // SAFETY: the child's own memory; its other thread comes later.
        unsafe { (&mut *mailbox.text.get())[..text.len()].copy_from_slice(text) };
        mailbox.len.store(text.len() as u32, Relaxed);
    });
}

/// What a thread asks for; what happens before; how it asks; and the fewest calls that this takes.
type Path = (&'static str, fn(), fn(), usize);

#[test]
fn a_process_confines_itself_whatever_its_other_threads_are_asking_the_kernel_for() {
    let _alone = alone();
    let say = || env::say(&[b"something\n"]);
    let map = || {
        let memory = posts::map(4096);
        // SAFETY: our own.
        memory.inspect(|memory| unsafe { posts::unmap(*memory, 4096) });
    };
    let program = || assert!(!files::program(&mut [0; 256]).is_empty());
    let paths: [Path; 8] = [
        ("the machine", || {}, machine::look, 10),
        ("the program's name", || {}, program, 2),
        ("memory", || {}, map, 3),
        ("a line on stderr", be_silent, say, 5),
        ("another table", post_a_table, switch::take, 3),
        ("a policy", policies::post_one, programs::take, 5),
        ("another policy", policies::post_another, programs::take, 7),
        ("scheduling", || {}, policies::asks_about_scheduling, 5),
    ];
    for (what, prepare, ask, least) in paths {
        let calls = is_never_trapped(what, prepare, ask);
        assert!(calls >= least, "{what}: {calls} calls");
    }
}
