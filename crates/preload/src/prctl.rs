//! `prctl`: a program that is about to confine itself. See `runtime::machine`.

use core::ffi::{c_int, c_ulong};

export! { prctl as prctl: base; }

unsafe extern "C" fn prctl(
    operation: c_int,
    second: c_ulong,
    third: c_ulong,
    fourth: c_ulong,
    fifth: c_ulong,
) -> c_int {
    // SAFETY: the caller keeps to the system call's contract. (It is variadic in C: registers that it has not set
    // reach the kernel as they are, as by glibc's own function, and are not looked at.)
    unsafe { lockwright_runtime::machine::prctl(operation, second, third, fourth, fifth) }
}
