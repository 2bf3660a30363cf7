//! What our constructors do: the preloaded library's, and the part that it shares with a runtime linked into a program.

#[cfg(target_arch = "x86_64")]
use crate::got;
use crate::{access, attached, config, emulate, env, epoch, fast, fork, guard};
use crate::{
    machine, mutex, observe, order, pause, policy, real, recording, switch, thread, trace,
};
use core::ffi::c_char;
use core::ptr::null;

/// Reads the environment and fills the policy table. Everything works before that, too, with early defaults:
/// other libraries' constructors run first.
///
/// Most programs that we are preloaded into end soon, or never contend for a lock. So this asks the kernel for next to
/// nothing, unless a variable asks for something that must begin now. The first thread that waits learns the rest.
///
/// Returns `true` if we stand aside (see `guard`); then all of the program's locks are those without us.
///
/// # Safety
/// Called once, by the dynamic linker, before `main`, or when we are loaded into a running program, with the process's environment
/// (null: not told).
#[unsafe(link_section = ".lockwright.begin")]
pub unsafe fn init(environment: *const *const c_char) -> bool {
    // musl calls constructors without arguments.
    let environment = if guard::is_glibc() { environment } else { null() };
    // SAFETY: the caller's promise, twice.
    unsafe { env::unchanged(environment, || begin_preloaded()) }
}

/// As [`init`], which has looked at the environment.
///
/// # Safety
/// As there.
#[unsafe(link_section = ".lockwright.begin")]
unsafe fn begin_preloaded() -> bool {
    let _ = real::resolve();
    fast::begin();
    attached::learn();
    if attached::is_late() {
        // Now: the command is going to make libc's symbols with our names lead to our functions.
        let _ = real::resolve_late();
        // SAFETY: called once.
        unsafe { begin() };
        return false;
    }
    // SAFETY: called once.
    if unsafe { guard::stand_aside() } {
        // Now, while the process has one thread: the tool may take a later write, without a lock, for a race.
        let _ = real::resolve_late();
        config::is_glibc_only();
        return true;
    }
    // SAFETY: called once.
    unsafe { begin() };
    if let Some(text) = env::variable(c"LOCKWRIGHT_EPOCHS") {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: called once.
        unsafe {
            got::load(text);
        }
        #[cfg(not(target_arch = "x86_64"))]
        env::say(&[b"LOCKWRIGHT_EPOCHS needs x86-64, no function is an epoch: '", text, b"'\n"]);
    }
    false
}

/// Removes what would outlive the process.
///
/// # Safety
/// Called once, by the dynamic linker, when the process ends.
#[unsafe(link_section = ".lockwright.begin")]
pub unsafe fn at_exit() {
    observe::at_exit();
}

/// Makes the process call [`at_exit`] when it ends. A macro, because the linker drops a library's static that nothing refers to.
#[macro_export]
macro_rules! call_at_exit {
    () => {
        #[used]
        #[unsafe(link_section = ".fini_array")]
        static END: unsafe extern "C" fn() = {
            #[unsafe(link_section = ".lockwright.begin")]
            unsafe extern "C" fn end() {
                // SAFETY: called once, when the process ends.
                unsafe { $crate::init::at_exit() };
            }
            end
        };
    };
}

/// Declares glibc's functions that a runtime refers to weakly, so that a static program has them: for a library that is linked into
/// programs.
#[macro_export]
macro_rules! keep_glibcs_functions {
    () => {
        const _: () = {
            unsafe extern "C" {
                fn __register_atfork();
                fn gnu_get_libc_version();
                fn secure_getenv();
                fn strerrordesc_np();
                static __libc_single_threaded: u8;
            }
            #[used]
            static FUNCTIONS: [unsafe extern "C" fn(); 4] =
                [__register_atfork, gnu_get_libc_version, secure_getenv, strerrordesc_np];
            #[used]
            static BYTE: &u8 = {
                // SAFETY: its address alone.
                unsafe { &__libc_single_threaded }
            };
        };
    };
}

/// How every runtime begins: it follows forks, and reads the variables about locks and epochs. Only this module knows
/// the watchers; they register with `watch` if a variable asks for them.
///
/// # Safety
/// Called once.
#[unsafe(link_section = ".lockwright.begin")]
pub(crate) unsafe fn begin() {
    fast::begin();
    thread::learn();
    real::find_objects();
    real::read_kernels_clocks();
    fork::watch();
    access::begin();
    machine::begin();
    pause::load();
    // SAFETY: called once, each of them.
    unsafe {
        machine::load(|topology| emulate::load(topology, mutex::rehearse));
        config::load();
        policy::current().inspect(|table| switch::tell(table));
        epoch::load();
        let emulated = emulate::spec().unwrap_or(b"");
        observe::load(emulated);
        recording::load(emulated);
        trace::load(emulated, machine::cpus(), mutex::rehearse_recorded);
        order::load(emulated);
    }
}

#[cfg(test)]
mod tests;
