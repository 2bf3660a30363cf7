//! The usable CPUs, and how to bind a thread to one.

use crate::Failure;
use std::io;

/// CPUs that this process may use, in order.
pub(crate) fn usable() -> Result<Vec<usize>, Failure> {
    // SAFETY: a set of bits; all zeroes is the empty one.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: a valid place of the size given.
    let rc = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &mut set) };
    if rc != 0 {
        return Err(failure("sched_getaffinity"));
    }
    // SAFETY: the numbers stay below the set's size.
    let within = |&cpu: &usize| unsafe { libc::CPU_ISSET(cpu, &set) };
    Ok((0..libc::CPU_SETSIZE as usize).filter(within).collect())
}

/// Keeps the calling thread on `cpu`.
pub(crate) fn pin(cpu: usize) -> Result<(), Failure> {
    // SAFETY: as above.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `usable` gave the number, so it is below the set's size.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: a valid set of the size given.
    let rc = unsafe { libc::sched_setaffinity(0, size_of_val(&set), &set) };
    if rc == 0 { Ok(()) } else { Err(failure("sched_setaffinity")) }
}

fn failure(call: &str) -> Failure {
    Failure::Database(format!("{call}: {}", io::Error::last_os_error()))
}
