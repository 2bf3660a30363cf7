//! Small files of the kernel, read by `open`, `read` and `close` alone: usable before libc is set up,
//! and without an allocator. By raw system calls: libc's functions are cancellation points, and `pthread_mutex_lock`,
//! which may look at these files, is none.

use core::ffi::{c_char, c_int, c_long};

/// Opens for reading; -1: it can't be.
///
/// # Safety
/// `path` is a C string.
pub(crate) unsafe fn open(path: *const c_char, flags: c_int) -> c_long {
    let flags = flags | libc::O_RDONLY | libc::O_CLOEXEC;
    // SAFETY: the caller's promise.
    unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path, flags) }
}

/// Closes.
///
/// # Safety
/// `fd` is the caller's, and used no more.
pub(crate) unsafe fn close(fd: c_long) {
    // SAFETY: the caller's promise.
    unsafe { libc::syscall(libc::SYS_close, fd) };
}

/// A path, built piece by piece. A piece that doesn't fit makes the path unreadable.
pub(crate) struct Path {
    bytes: [u8; 512],
    len: usize,
}

impl Path {
    pub(crate) fn new(start: &[u8]) -> Self {
        let mut path = Self { bytes: [0; 512], len: 0 };
        path.push(start);
        path
    }

    pub(crate) fn push(&mut self, piece: &[u8]) -> &mut Self {
        // The last byte stays zero: the path is a C string at any time.
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

    /// The file's first bytes, as many as `buffer` takes; `None` if it can't be read.
    pub(crate) fn read<'a>(&self, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
        if self.len == 0 {
            return None;
        }
        // SAFETY: `bytes` ends in zero, see `push`.
        let fd = unsafe { open(self.bytes.as_ptr().cast(), 0) };
        if fd < 0 {
            return None;
        }
        let mut len = 0;
        let complete = loop {
            let rest = &mut buffer[len..];
            if rest.is_empty() {
                break true;
            }
            // SAFETY: `rest` is ours, and that long.
            let got = unsafe { libc::syscall(libc::SYS_read, fd, rest.as_mut_ptr(), rest.len()) };
            match usize::try_from(got) {
                Ok(0) => break true,
                Ok(got) => len += got,
                Err(_) if interrupted() => {}
                Err(_) => break false,
            }
        };
        // SAFETY: `fd` is ours and used no more.
        unsafe { close(fd) };
        complete.then_some(&buffer[..len])
    }

    /// The number that the file begins with.
    pub(crate) fn read_number(&self) -> Option<u32> {
        let mut buffer = [0; 32];
        number(self.read(&mut buffer)?.trim_ascii())
    }
}

fn interrupted() -> bool {
    // SAFETY: the calling thread's own `errno`.
    unsafe { *libc::__errno_location() == libc::EINTR }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_is_built_of_pieces_and_read() {
        let mut path = Path::new(b"/proc/");
        path.push(b"sys/kernel/pid_").push(b"max");
        assert!(path.read_number().is_some_and(|max| max > 100));
        assert_eq!(path.truncate(6).push_number(0).push(b"/nothing").read_number(), None);
    }

    #[test]
    fn path_that_is_too_long_is_not_read() {
        let mut path = Path::new(b"/proc/self/cgroup");
        assert_eq!(path.push(&[b'/'; 600]).read(&mut [0; 8]), None);
    }

    #[test]
    fn numbers_are_decimal_and_fit() {
        assert_eq!(number(b"4294967295"), Some(u32::MAX));
        for bad in [&b"4294967296"[..], b"", b"-1", b"0x10", b"1 2"] {
            assert_eq!(number(bad), None, "{bad:?}");
        }
    }
}
