//! Small files of the kernel, read only by `open`, `read` and `close`: usable before libc is set up,
//! and without an allocator. We use raw system calls: libc's functions are cancellation points, and `pthread_mutex_lock`,
//! which may look at these files, must not be one.

use crate::kernel::{self, Argument};
use core::ffi::{CStr, c_char, c_int, c_long};

/// Nothing could be read, because the process or the machine has no descriptors or no memory left. This says nothing about
/// the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exhausted;

/// Opens for reading; `None`: it can't be opened.
///
/// # Safety
/// `path` is a C string.
pub(crate) unsafe fn open(path: *const c_char, flags: c_int) -> Result<Option<c_long>, Exhausted> {
    let flags = flags | libc::O_RDONLY | libc::O_CLOEXEC;
    // SAFETY: the caller's promise.
    match unsafe {
        kernel::call(libc::SYS_openat, [libc::AT_FDCWD.word(), path.word(), flags.word(), 0, 0, 0])
    } {
        fd @ 0.. => Ok(Some(fd)),
        error if is_exhausted(error) => Err(Exhausted),
        _ => Ok(None),
    }
}

/// Closes.
///
/// # Safety
/// `fd` is the caller's, and not used any more.
pub(crate) unsafe fn close(fd: c_long) {
    // SAFETY: the caller's promise.
    unsafe { kernel::call(libc::SYS_close, [fd.word(), 0, 0, 0, 0, 0]) };
}

/// A path, built piece by piece. A piece that doesn't fit makes the path unreadable.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    bytes: [u8; 512],
    len: usize,
}

impl Path {
    /// No path yet. Pieces are pushed in place: a path that is built first and returned then lies on the stack twice.
    pub(crate) const fn new() -> Self {
        Self { bytes: [0; 512], len: 0 }
    }

    pub(crate) fn push(&mut self, piece: &[u8]) -> &mut Self {
        // The last byte stays zero, so the path is always a C string.
        if self.len + piece.len() < self.bytes.len() {
            self.bytes[self.len..self.len + piece.len()].copy_from_slice(piece);
            self.len += piece.len();
        } else {
            self.truncate(0);
        }
        self
    }

    pub(crate) fn push_number(&mut self, mut number: u32) -> &mut Self {
        let mut digits = [0; 10];
        let mut at = digits.len();
        loop {
            at -= 1;
            digits[at] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                break;
            }
        }
        self.push(&digits[at..])
    }

    pub(crate) fn truncate(&mut self, len: usize) -> &mut Self {
        self.bytes[len..].fill(0);
        self.len = len;
        self
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The file's first bytes, as many as fit `buffer`; `None` if it can't be read.
    pub(crate) fn read<'a>(&self, buffer: &'a mut [u8]) -> Result<Option<&'a [u8]>, Exhausted> {
        match CStr::from_bytes_until_nul(&self.bytes) {
            Ok(path) if self.len > 0 => read(path, buffer),
            _ => Ok(None),
        }
    }

    /// The number that the file begins with.
    pub(crate) fn read_number(&self) -> Result<Option<u32>, Exhausted> {
        let mut buffer = [0; 32];
        Ok(self.read(&mut buffer)?.and_then(|text| number(text.trim_ascii())))
    }
}

/// The file's first bytes, as many as fit `buffer`; `None` if it can't be read.
#[inline(never)]
pub(crate) fn read<'a>(path: &CStr, buffer: &'a mut [u8]) -> Result<Option<&'a [u8]>, Exhausted> {
    // SAFETY: a C string.
    let Some(fd) = (unsafe { open(path.as_ptr(), 0)? }) else { return Ok(None) };
    let mut len = 0;
    let complete = loop {
        let rest = &mut buffer[len..];
        if rest.is_empty() {
            break Ok(true);
        }
        // SAFETY: `rest` is ours, and that long.
        let got = unsafe {
            kernel::call(libc::SYS_read, [fd.word(), rest.as_mut_ptr().word(), rest.len(), 0, 0, 0])
        };
        match usize::try_from(got) {
            Ok(0) => break Ok(true),
            Ok(got) => len += got,
            Err(_) if got == -c_long::from(libc::EINTR) => {}
            Err(_) if is_exhausted(got) => break Err(Exhausted),
            Err(_) => break Ok(false),
        }
    };
    // SAFETY: `fd` is ours, and not used any more.
    unsafe { close(fd) };
    Ok(complete?.then_some(&buffer[..len]))
}

/// Did the call with this result fail for lack of descriptors or memory?
fn is_exhausted(result: c_long) -> bool {
    [libc::EMFILE, libc::ENFILE, libc::ENOMEM].map(|error| -c_long::from(error)).contains(&result)
}

/// `text` as a decimal number; `None` if it isn't one, or too large.
pub(crate) fn number(text: &[u8]) -> Option<u32> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u32, |sum, &byte| match byte {
        b'0'..=b'9' => sum.checked_mul(10)?.checked_add(u32::from(byte - b'0')),
        _ => None,
    })
}

/// The result of `check` in a process that can't open anything. `check` must not allocate.
#[cfg(test)]
pub(crate) fn without_descriptors(check: impl FnOnce() -> bool) -> bool {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let mut status = 0;
    // SAFETY: the child of a program with threads makes only system calls; the limit is its own.
    unsafe {
        match libc::fork() {
            0 => {
                let holds = libc::setrlimit(libc::RLIMIT_NOFILE, &none) == 0 && check();
                libc::_exit(if holds { 7 } else { 1 })
            }
            child => assert_eq!(libc::waitpid(child, &mut status, 0), child),
        }
    }
    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_is_built_of_pieces_and_read() {
        let mut path = Path::new();
        path.push(b"/proc/").push(b"sys/kernel/pid_").push(b"max");
        assert!(path.read_number().unwrap().is_some_and(|max| max > 100));
        assert_eq!(path.truncate(6).push_number(0).push(b"/nothing").read_number(), Ok(None));
    }

    #[test]
    fn path_that_is_too_long_is_not_read() {
        let mut path = Path::new();
        assert_eq!(path.push(b"/proc/self/cgroup").push(&[b'/'; 600]).read(&mut [0; 8]), Ok(None));
    }

    #[test]
    fn want_of_descriptors_says_nothing_of_the_file() {
        let refused = || read(c"/proc/self/cgroup", &mut [0; 8]) == Err(Exhausted);
        assert!(without_descriptors(refused));
    }

    #[test]
    fn numbers_are_decimal_and_fit() {
        assert_eq!(number(b"4294967295"), Some(u32::MAX));
        for bad in [&b"4294967296"[..], b"", b"-1", b"0x10", b"1 2"] {
            assert_eq!(number(bad), None, "{bad:?}");
        }
    }
}
