//! Threads of another process: a list of them, where they sleep, and what is in their memory. No thread is stopped.

use std::fs::{self, File};
use std::io;
use std::mem::size_of;
use std::os::unix::fs::FileExt;

/// The threads of a process.
///
/// # Errors
///
/// There is no such process.
pub fn threads(pid: libc::pid_t) -> io::Result<Vec<libc::pid_t>> {
    let entries = fs::read_dir(format!("/proc/{pid}/task"))?;
    Ok(entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}

/// A thread that sleeps in a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// The call's number; `None`: it sleeps outside a call, in a page fault.
    pub call: Option<i64>,
    /// The call's arguments.
    pub arguments: [u64; 6],
    /// Its stack pointer.
    pub stack_pointer: u64,
    /// The address of the instruction after the call.
    pub instruction: u64,
}

/// Where a thread sleeps; `None`: it runs, or waits for a CPU.
///
/// # Errors
///
/// There is no such thread (`NotFound`), or we may not look (`PermissionDenied`).
pub fn blocked(pid: libc::pid_t, tid: libc::pid_t) -> io::Result<Option<Blocked>> {
    let mut text = [0; 256];
    let file = File::open(format!("/proc/{pid}/task/{tid}/syscall"))?;
    let length = file.read_at(&mut text, 0)?;
    Ok(parse(&String::from_utf8_lossy(&text[..length])))
}

/// `202 0x7f.. 0x80 0x2 0x0 0x0 0x0 0x7ff.. 0x7f..`, `-1 0x7ff.. 0x7f..`, or `running`.
fn parse(text: &str) -> Option<Blocked> {
    let mut words = text.split_whitespace();
    let call: i64 = words.next()?.parse().ok()?;
    let numbers: Option<Vec<u64>> =
        words.map(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok()).collect();
    let (arguments, [stack_pointer, instruction]) = numbers.as_ref()?.split_last_chunk()?;
    Some(Blocked {
        call: (call >= 0).then_some(call),
        arguments: arguments.try_into().unwrap_or_default(),
        stack_pointer: *stack_pointer,
        instruction: *instruction,
    })
}

/// Reads another process's memory. Returns how many bytes could be read, which may be fewer where its memory ends.
///
/// # Errors
///
/// Nothing could be read: the process is gone (`ESRCH`), belongs to another user (`EPERM`), or has nothing there
/// (`EFAULT`).
pub fn read_memory(pid: libc::pid_t, at: u64, bytes: &mut [u8]) -> io::Result<usize> {
    let ours = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let theirs = libc::iovec { iov_base: at as *mut libc::c_void, iov_len: bytes.len() };
    // SAFETY: the kernel writes only to `bytes`, at most its length; it checks the other address itself.
    let count = unsafe { libc::process_vm_readv(pid, &raw const ours, 1, &raw const theirs, 1, 0) };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

/// The address of glibc's record of a thread, to which the thread pointer points: at the upper end of the stack that
/// glibc made for it. The record begins with its own address, repeats it two words later, and contains the thread's id.
#[cfg(target_arch = "x86_64")]
pub(crate) fn thread_pointer(pid: libc::pid_t, tid: libc::pid_t, stack_end: u64) -> Option<u64> {
    const LOOKED_AT: usize = 16 * 1024;
    const ALIGN: usize = 64;
    const SELF: usize = 16;
    const TID: usize = 0x2d0;
    let start = stack_end.checked_sub(LOOKED_AT as u64)?;
    let mut bytes = vec![0; LOOKED_AT];
    let length = read_memory(pid, start, &mut bytes).ok()?;
    let word = |at: usize| {
        let bytes = bytes[..length].get(at..at + size_of::<u64>())?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    };
    let is_record = |&at: &usize| {
        let address = start + at as u64;
        word(at) == Some(address)
            && word(at + SELF) == Some(address)
            && word(at + TID).is_some_and(|id| id as u32 == tid.cast_unsigned())
    };
    (0..length).step_by(ALIGN).rev().find(is_record).map(|at| start + at as u64)
}

/// Not known on other machines.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn thread_pointer(_: libc::pid_t, _: libc::pid_t, _: u64) -> Option<u64> {
    let _ = size_of::<u64>();
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says_of_a_thread_is_read() {
        let text = "202 0x7f10 0x80 0x2 0x0 0x0 0x0 0x7ff0 0x7f20\n";
        let blocked = parse(text).unwrap();
        assert_eq!(blocked.call, Some(202));
        assert_eq!(blocked.arguments[..3], [0x7f10, 0x80, 2]);
        assert_eq!((blocked.stack_pointer, blocked.instruction), (0x7ff0, 0x7f20));
        assert_eq!(parse("-1 0x7ff0 0x7f20").map(|blocked| blocked.call), Some(None));
        assert_eq!((parse("running\n"), parse(""), parse("202 0x1")), (None, None, None));
    }

    #[test]
    fn memory_is_read_as_far_as_it_goes() {
        let here = [1_u8, 2, 3, 4];
        let mut bytes = [0; 4];
        let pid = std::process::id().cast_signed();
        assert_eq!(read_memory(pid, here.as_ptr() as u64, &mut bytes).unwrap(), 4);
        assert_eq!(bytes, here);
        assert!(read_memory(pid, 8, &mut bytes).is_err());
    }
}
