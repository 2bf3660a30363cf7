//! `prctl`: a program may be about to confine itself. See `runtime::machine`.

use core::ffi::{c_int, c_ulong};

export! { prctl as prctl: base; }

unsafe extern "C" fn prctl(
    operation: c_int,
    second: c_ulong,
    third: c_ulong,
    fourth: c_ulong,
    fifth: c_ulong,
) -> c_int {
    // SAFETY: the caller keeps the system call's contract. (It is variadic in C: as with glibc's own function, registers that
    // the caller has not set reach the kernel as they are, and it doesn't look at them.)
    unsafe { lockwright_runtime::machine::prctl(operation, second, third, fourth, fifth) }
}
