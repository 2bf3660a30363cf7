//! The functions that stand in front of libc's: those that lock, and those that a section must not call on another kernel thread. Each looks
//! at one byte, and jumps to the function behind it, with its arguments in place, so cancellation and unwinding find nothing of ours.
//!
//! A section that waits, forks, ends its thread, or asks which kernel thread it is goes home first, with its mutex locked.

use crate::section;
use crate::thread::{RUNNING, this};
use core::arch::naked_asm;
use core::ffi::{CStr, c_int, c_void};
use core::mem::transmute;
use core::ptr::null_mut;
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::{Acquire, Release};
use libc::pthread_mutex_t;

macro_rules! hooks {
    ($($name:ident)*) => {
        /// A function that sends sections home.
        #[expect(non_camel_case_types, reason = "libc's names")]
        #[derive(Clone, Copy, PartialEq, Eq)]
        #[repr(usize)]
        pub(crate) enum Hook { $($name),* }

        /// How many there are.
        pub(crate) const HOOKS: usize = [$(stringify!($name)),*].len();

        /// What they are called, each with a 0 behind.
        pub(crate) const NAMES: [&[u8]; HOOKS] = [$(concat!(stringify!($name), "\0").as_bytes()),*];

        /// The hooks by number.
        const ALL: [Hook; HOOKS] = [$(Hook::$name),*];

        mod exported {
            use super::*;
            $(hook!($name);)*
        }
    };
}

/// Most look at one byte, and jump. Those that tell something about their thread always arrive.
macro_rules! hook {
    (pthread_mutex_lock) => { before!(pthread_mutex_lock, section::lock); };
    (pthread_create) => { hook!(@ pthread_create, "jmp 2f"); };
    (thrd_create) => { hook!(@ thrd_create, "jmp 2f"); };
    (pthread_setcanceltype) => { hook!(@ pthread_setcanceltype, "jmp 2f"); };
    ($name:ident) => { hook!(@ $name, ""); };
    (@ $name:ident, $first:literal) => {
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            naked_asm!(
                $first,
                "mov r11, qword ptr [rip + lockwright_delegate_thread@GOTTPOFF]",
                "cmp byte ptr fs:[r11], 0",
                "jne 2f",
                "mov r11, qword ptr [rip + {real} + {at}]",
                "test r11, r11",
                "je 2f",
                "jmp r11",
                "2:",
                "push rax",
                "push rdi",
                "push rsi",
                "push rdx",
                "push rcx",
                "push r8",
                "push r9",
                "mov rsi, rdi",
                "mov edi, {number}",
                "call {arrive}",
                "mov r11, rax",
                "pop r9",
                "pop r8",
                "pop rcx",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                "pop rax",
                "jmp r11",
                real = sym REAL,
                at = const Hook::$name as usize * 8,
                number = const Hook::$name as usize,
                arrive = sym arrive,
            )
        }
    };
}

/// `$name` first asks `$decides(its argument, where it returns to)`, which is not 0 if the function behind is called.
macro_rules! before {
    ($name:ident, $decides:path) => {
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            naked_asm!(
                "push rdi",
                "mov rsi, [rsp + 8]",
                "call {decides}",
                "mov rdi, [rsp]",
                "test eax, eax",
                "jne 2f",
                "add rsp, 8",
                "ret",
                "2:",
                "mov edi, {number}",
                "call {real}",
                "pop rdi",
                "jmp rax",
                decides = sym $decides,
                number = const Hook::$name as usize,
                real = sym real,
            )
        }
    };
}

hooks! {
    pthread_mutex_lock pthread_mutex_timedlock pthread_mutex_clocklock
    mtx_lock mtx_timedlock
    pthread_cond_wait pthread_cond_timedwait pthread_cond_clockwait cnd_wait cnd_timedwait
    pthread_rwlock_rdlock pthread_rwlock_wrlock pthread_rwlock_timedrdlock pthread_rwlock_timedwrlock
    pthread_rwlock_clockrdlock pthread_rwlock_clockwrlock
    pthread_barrier_wait pthread_spin_lock
    sem_wait sem_timedwait sem_clockwait
    pthread_create pthread_exit pthread_join pthread_tryjoin_np pthread_timedjoin_np pthread_clockjoin_np
    pthread_cancel pthread_testcancel pthread_setcancelstate pthread_setcanceltype pthread_kill pthread_sigqueue
    pthread_sigmask sigprocmask sigaltstack sigwait sigwaitinfo sigtimedwait sigsuspend sigpause pause raise
    thrd_create thrd_exit thrd_join thrd_sleep
    fork vfork _Fork clone posix_spawn posix_spawnp system popen pclose
    execve execv execvp execvpe execl execlp execle execveat fexecve
    exit quick_exit wait waitpid waitid wait3 wait4
    nanosleep clock_nanosleep usleep sleep
    read write readv writev pread pwrite pread64 pwrite64 preadv pwritev
    recv recvfrom recvmsg recvmmsg send sendto sendmsg sendmmsg accept accept4 connect
    poll ppoll select pselect epoll_wait epoll_pwait
    open open64 openat openat64 fsync fdatasync fcntl flock lockf ioctl sendfile splice
    msgrcv msgsnd semop semtimedop mq_receive mq_send eventfd_read
    gettid syscall prctl setns unshare
    sched_setaffinity sched_setscheduler sched_setparam sched_setattr setpriority nice
    pthread_setaffinity_np pthread_setschedparam pthread_setschedprio pthread_setname_np
    setuid setgid seteuid setegid setreuid setregid setresuid setresgid setgroups setfsuid setfsgid
}

#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn pthread_mutex_unlock() {
    naked_asm!(
        "mov r11, qword ptr [rip + lockwright_delegate_thread@GOTTPOFF]",
        "cmp byte ptr fs:[r11], 0",
        "jne 2f",
        "mov r11, qword ptr [rip + {unlock}]",
        "test r11, r11",
        "je 2f",
        "jmp r11",
        "2:",
        "push rdi",
        "call {decides}",
        "mov rdi, [rsp]",
        "test eax, eax",
        "jne 3f",
        "add rsp, 8",
        "ret",
        "3:",
        "call {real}",
        "pop rdi",
        "jmp rax",
        unlock = sym UNLOCK,
        decides = sym section::unlock,
        real = sym real_unlock,
    )
}

/// The functions behind ours; null: not looked up yet.
static REAL: [AtomicPtr<c_void>; HOOKS] = [const { AtomicPtr::new(null_mut()) }; HOOKS];
static UNLOCK: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
static TRY_LOCK: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

fn find(place: &AtomicPtr<c_void>, name: &[u8]) -> *mut c_void {
    // ORDERING: Acquire, pairs with the Release below; a symbol's code is there before anyway.
    let known = place.load(Acquire);
    if !known.is_null() {
        return known;
    }
    // SAFETY: each name ends with 0.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr().cast()) };
    let found = if found.is_null() { nothing as *mut c_void } else { found };
    // ORDERING: Release. Threads find the same.
    place.store(found, Release);
    found
}

/// Stands for a function that this libc doesn't have: nobody that is linked to it calls that.
extern "C" fn nothing() -> c_int {
    -1
}

/// The function behind this hook.
pub(crate) extern "C" fn real(number: usize) -> *mut c_void {
    find(&REAL[number], NAMES[number])
}

extern "C" fn real_unlock() -> *mut c_void {
    find(&UNLOCK, b"pthread_mutex_unlock\0")
}

/// A hook was called by a thread that isn't PLAIN, or for the first time. Returns the function behind it.
extern "C" fn arrive(number: usize, argument: usize) -> *mut c_void {
    let function = real(number);
    let thread = this();
    if thread.state() == RUNNING {
        section::go_home(thread, number);
    }
    let hook = ALL[number];
    thread.learn(hook, argument);
    if hook == Hook::pthread_create || hook == Hook::thrd_create {
        crate::watch::begin();
    }
    function
}

/// Tries to lock, by the function behind ours.
///
/// # Safety
/// As that function.
pub(crate) unsafe fn try_lock(mutex: *mut pthread_mutex_t) -> c_int {
    let function = find(&TRY_LOCK, b"pthread_mutex_trylock\0");
    // SAFETY: the function of that name has this type.
    unsafe {
        let function: unsafe extern "C" fn(*mut pthread_mutex_t) -> c_int = transmute(function);
        function(mutex)
    }
}

/// Looks all functions up.
pub(crate) fn find_all() {
    for (place, name) in REAL.iter().zip(NAMES) {
        find(place, name);
    }
    real_unlock();
    find(&TRY_LOCK, b"pthread_mutex_trylock\0");
}

/// The address of a symbol of any object; null: none.
pub(crate) fn symbol(name: &CStr) -> *mut c_void {
    // SAFETY: a name that ends with 0.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

/// glibc's `__rseq_offset`.
pub(crate) fn rseq_offset() -> *const isize {
    symbol_once(0, c"__rseq_offset").cast()
}

/// glibc's `__rseq_size`.
pub(crate) fn rseq_size() -> *const u32 {
    symbol_once(1, c"__rseq_size").cast()
}

fn symbol_once(which: usize, name: &CStr) -> *const c_void {
    static KNOWN: [AtomicPtr<c_void>; 2] = [const { AtomicPtr::new(null_mut()) }; 2];
    // ORDERING: as in `find`.
    let known = KNOWN[which].load(Acquire);
    if !known.is_null() {
        return known;
    }
    let found = symbol(name);
    KNOWN[which].store(found, Release);
    found
}
