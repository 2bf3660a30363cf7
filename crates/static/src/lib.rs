//! `liblockwright_static.a`: the functions of `lockwright_sync.h` and `lockwright.h`. Each just calls the runtime.
//!
//! For programs that the preloaded library can't reach (static ones), or that want our locks without it.
#![no_std]
#![expect(missing_docs, reason = "the functions are documented in include/lockwright_sync.h")]
#![expect(clippy::missing_safety_doc, reason = "the functions are documented in lockwright_sync.h")]

use core::ffi::{c_char, c_int, c_uint, c_void};
use core::ptr::null;
use libc::{clockid_t, timespec};
use lockwright_runtime::delegated::{Delegated, ServerThreads};
use lockwright_runtime::layout::{Cond, Mutex};
use lockwright_runtime::rwlock::RwLock;
use lockwright_runtime::sections::{self, Called};
use lockwright_runtime::sync;

/// The program's constructor: reads LOCKWRIGHT_*, and complains about them, before `main`.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = {
    extern "C" fn start() {
        sync::start();
    }
    start
};

lockwright_runtime::call_at_exit!();
lockwright_runtime::keep_glibcs_functions!();

/// The core library needs a panic handler, though our code never panics. If it does, it must not fail silently.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: no preconditions.
    unsafe { libc::abort() }
}

// The prebuilt core library refers to this symbol, but never calls it here: nothing unwinds through us. It is weak, because
// a program may also link another library written in Rust, which has the real one.
#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".pushsection .text.rust_eh_personality,\"ax\",@progbits",
    ".weak rust_eh_personality",
    ".type rust_eh_personality, @function",
    "rust_eh_personality: mov eax, 8", // _URC_CONTINUE_UNWIND
    "ret",
    ".size rust_eh_personality, . - rust_eh_personality",
    ".popsection",
);
#[cfg(target_arch = "aarch64")] // untested
core::arch::global_asm!(
    ".pushsection .text.rust_eh_personality,\"ax\",@progbits",
    ".weak rust_eh_personality",
    ".type rust_eh_personality, @function",
    "rust_eh_personality: mov w0, 8", // _URC_CONTINUE_UNWIND
    "ret",
    ".size rust_eh_personality, . - rust_eh_personality",
    ".popsection",
);

/// Exports `$name`: the runtime's `$function`, called with `$argument`s.
macro_rules! export {
    ($($name:ident($($arg:ident: $ty:ty),*) = $function:ident($($argument:expr),*);)*) => { $(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> c_int {
            // SAFETY: the program promises what the header asks of it.
            unsafe { sync::$function($($argument),*) }
        }
    )* };
}

export! {
    lw_mutex_lock(lock: *mut Mutex) = mutex_lock(lock);
    lw_mutex_trylock(lock: *mut Mutex) = mutex_try_lock(lock);
    lw_mutex_timedlock(lock: *mut Mutex, clock: clockid_t, until: *const timespec)
        = mutex_lock_until(lock, clock, until);
    lw_mutex_unlock(lock: *mut Mutex) = mutex_unlock(lock);
    lw_mutex_destroy(lock: *mut Mutex) = mutex_destroy(lock);

    lw_cond_wait(cond: *mut Cond, lock: *mut Mutex) = cond_wait(cond, lock, 0, null());
    lw_cond_timedwait(cond: *mut Cond, lock: *mut Mutex, clock: clockid_t, until: *const timespec)
        = cond_wait(cond, lock, clock, until);
    lw_cond_signal(cond: *mut Cond) = cond_signal(cond);
    lw_cond_broadcast(cond: *mut Cond) = cond_broadcast(cond);
    lw_cond_destroy(cond: *mut Cond) = cond_destroy(cond);

    lw_rwlock_rdlock(lock: *mut RwLock) = rwlock_read(lock, 0, null());
    lw_rwlock_tryrdlock(lock: *mut RwLock) = rwlock_try_read(lock);
    lw_rwlock_timedrdlock(lock: *mut RwLock, clock: clockid_t, until: *const timespec)
        = rwlock_read(lock, clock, until);
    lw_rwlock_wrlock(lock: *mut RwLock) = rwlock_write(lock, 0, null());
    lw_rwlock_trywrlock(lock: *mut RwLock) = rwlock_try_write(lock);
    lw_rwlock_timedwrlock(lock: *mut RwLock, clock: clockid_t, until: *const timespec)
        = rwlock_write(lock, clock, until);
    lw_rwlock_unlock(lock: *mut RwLock) = rwlock_unlock(lock);

    lw_epoch_start(id: c_int) = epoch_start(id);
    lw_epoch_end(id: c_int, slo_ns: u64) = epoch_end(id, slo_ns);
    lw_epoch_percentile(id: c_int, percent: f64) = epoch_percentile(id, percent);
    lw_epoch_name(id: c_int, name: *const c_char) = epoch_name(id, name);
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_mutex_init(lock: *mut Mutex) {
    // SAFETY: the program passes memory that nobody else uses.
    unsafe { lock.write(Mutex::new()) };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_cond_init(cond: *mut Cond) {
    // SAFETY: as above.
    unsafe { cond.write(Cond::new()) };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_rwlock_init(lock: *mut RwLock) {
    // SAFETY: as above.
    unsafe { lock.write(RwLock::new()) };
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn lw_execute(
    lock: *const Delegated,
    run: unsafe extern "C-unwind" fn(*mut c_void),
    context: *mut c_void,
) -> c_int {
    // SAFETY: the program says that any thread may run it.
    let section = unsafe { Called::new(run, context) };
    // SAFETY: the program passes a lock of its own, zeroed, or used by this function before.
    let lock = unsafe { &*lock };
    match lock.try_run_exiting(move || section.run()) {
        Some(()) => 0,
        None => libc::EDEADLK,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn lw_section(
    mutex: *mut libc::pthread_mutex_t,
    run: unsafe extern "C-unwind" fn(*mut c_void),
    context: *mut c_void,
) {
    // SAFETY: the program says that any thread may run it.
    let section = unsafe { Called::new(run, context) };
    // SAFETY: the program's own mutex.
    unsafe { sections::run(mutex, move || section.run()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_delegated_mutex(lock: *const Delegated) -> *mut Mutex {
    // SAFETY: as in `lw_execute`.
    unsafe { (*lock).mutex() }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_delegated_mode(lock: *const Delegated, mode: c_int) -> c_int {
    let combines = match mode {
        0 => None,
        1 => Some(false),
        2 => Some(true),
        _ => return libc::EINVAL,
    };
    // SAFETY: as in `lw_execute`.
    unsafe { (*lock).combine(combines) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_delegated_serve(
    lock: *const Delegated,
    server: *const ServerThreads,
) -> c_int {
    // SAFETY: as in `lw_execute`; null, or a server, which stays.
    if unsafe { (*lock).serve_by(server.as_ref()) } { 0 } else { libc::ESRCH }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_delegated_destroy(lock: *mut Delegated) {
    // SAFETY: the program says that nobody asks any more. After this it is as new.
    unsafe {
        lock.drop_in_place();
        lock.write(Delegated::new());
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_server_start(
    server: *mut *const ServerThreads,
    threads: c_uint,
    cpu: c_int,
) -> c_int {
    match ServerThreads::start(threads, cpu) {
        Ok(started) => {
            // SAFETY: the program passes memory for it.
            unsafe { server.write(started) };
            0
        }
        Err(error) => error,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_server_stop(server: *const ServerThreads) {
    // SAFETY: a server stays.
    unsafe { (*server).stop() };
}
