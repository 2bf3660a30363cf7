//! Makes a file in which a process records something, and maps it.

use core::ptr::null_mut;

/// Files that one process id may have: one for each program that it became by `exec`.
const FILES: u32 = 10_000;

/// Why there is no file: the system's error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused(pub i32);

/// Makes `DIR/PID-N` and `ending` (which ends in NUL), with the first N that is free, `length` bytes long; maps it
/// for ever, shared, with its first `head` bytes there. Tells the process id too.
pub(crate) fn create(
    dir: &[u8],
    ending: &[u8],
    length: usize,
    head: usize,
) -> Result<(*mut u8, u32), Refused> {
    // SAFETY: no preconditions.
    let pid = unsafe { libc::getpid() } as u32;
    let mut most = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a writable rlimit.
    let is_known = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut most) } == 0;
    if is_known && most.rlim_cur < length as libc::rlim_t {
        return Err(Refused(libc::EFBIG)); // the kernel would send SIGXFSZ
    }
    let mut path = [0; 4096];
    let fd = open(dir, pid, ending, &mut path)?;
    let base = map(fd, length, head);
    // SAFETY: `fd` is ours and used no more; a NUL-terminated path.
    unsafe {
        libc::syscall(libc::SYS_close, fd); // not libc's `close`, which is a cancellation point
        if base.is_err() {
            libc::unlink(path.as_ptr().cast());
        }
    }
    base.map(|base| (base, pid))
}

fn map(fd: i32, length: usize, head: usize) -> Result<*mut u8, Refused> {
    // SAFETY: `fd` is ours; a fresh mapping overlaps nothing.
    let mapped = unsafe {
        let grown = libc::ftruncate(fd, length as libc::off_t);
        let base = if grown == 0 {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(null_mut(), length, protection, libc::MAP_SHARED, fd, 0)
        } else {
            libc::MAP_FAILED
        };
        if base == libc::MAP_FAILED { Err(Refused(errno())) } else { Ok(base.cast::<u8>()) }
    };
    let base = mapped?;
    // SAFETY: within the mapping.
    if let Err(refused) = unsafe { populate(base, head) } {
        // SAFETY: our own mapping, which nobody has seen.
        unsafe { libc::munmap(base.cast(), length) };
        return Err(refused);
    }
    Ok(base)
}

/// Makes the kernel give the pages now: a full disk is an error here, and would be SIGBUS later.
///
/// # Safety
/// `at` is a page's start, and the bytes are mapped.
pub(crate) unsafe fn populate(at: *mut u8, len: usize) -> Result<(), Refused> {
    const MADV_POPULATE_WRITE: i32 = 23;
    // SAFETY: the caller's promise.
    let result = unsafe { libc::madvise(at.cast(), len, MADV_POPULATE_WRITE) };
    match errno() {
        _ if result == 0 => Ok(()),
        libc::EINVAL => Ok(()), // before Linux 5.14: as good as it gets
        libc::EFAULT => Err(Refused(libc::ENOSPC)), // what would have been SIGBUS
        error => Err(Refused(error)),
    }
}

fn open(dir: &[u8], pid: u32, ending: &[u8], path: &mut [u8; 4096]) -> Result<i32, Refused> {
    if dir.len() > 4000 {
        return Err(Refused(libc::ENAMETOOLONG));
    }
    for number in 0..FILES {
        let mut len = 0;
        let mut push = |piece: &[u8]| {
            path[len..len + piece.len()].copy_from_slice(piece);
            len += piece.len();
        };
        let mut digits = [0; 10];
        push(dir);
        push(b"/");
        push(decimal(pid, &mut digits));
        push(b"-");
        push(decimal(number, &mut digits));
        push(ending);
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC;
        // SAFETY: a NUL-terminated path.
        let fd = unsafe {
            // Not libc's `open`, which is a cancellation point.
            libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0o644) as i32
        };
        if fd >= 0 {
            return Ok(fd);
        }
        if errno() != libc::EEXIST {
            return Err(Refused(errno()));
        }
    }
    Err(Refused(libc::EEXIST))
}

fn decimal(mut number: u32, digits: &mut [u8; 10]) -> &[u8] {
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &digits[at..];
        }
    }
}

/// Copies what fits; the last byte stays zero.
pub(crate) fn fill(field: &mut [u8], text: &[u8]) {
    let len = text.len().min(field.len() - 1);
    field[..len].copy_from_slice(&text[..len]);
}

fn errno() -> i32 {
    // SAFETY: the calling thread's own `errno`.
    unsafe { *libc::__errno_location() }
}
