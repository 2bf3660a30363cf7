//! Small files of the kernel, read without allocating and without touching `errno`.
//!
//! We use raw system calls: libc's functions are cancellation points, and an epoch's end must not be one.

use core::ffi::CStr;
use lockwright_native::system_call;

/// The file's first bytes, as many as fit `buffer`; `None` if it can't be read.
pub(crate) fn read<'a>(path: &CStr, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
    // SAFETY: the thread's own `errno`; a NUL-terminated path; a buffer of that size; a file that is ours.
    let len = unsafe {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        let fd = system_call!(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags);
        if fd < 0 {
            -1
        } else {
            let len = system_call!(libc::SYS_read, fd, buffer.as_mut_ptr(), buffer.len());
            system_call!(libc::SYS_close, fd);
            len
        }
    };
    usize::try_from(len).ok().map(|len| &buffer[..len])
}

/// The path of the program's file; empty if the kernel doesn't tell.
pub(crate) fn program(buffer: &mut [u8]) -> &[u8] {
    let name = c"/proc/self/exe".as_ptr();
    // SAFETY: a NUL-terminated path, and a buffer of that size.
    let len = unsafe { libc::readlink(name, buffer.as_mut_ptr().cast(), buffer.len()) };
    &buffer[..usize::try_from(len).unwrap_or(0)]
}

/// This process's command line, as much as fits the buffer, its words separated by blanks.
pub(crate) fn command_line(buffer: &mut [u8]) -> &[u8] {
    let mut len = read(c"/proc/self/cmdline", buffer).map_or(0, <[u8]>::len);
    while len > 0 && buffer[len - 1] == 0 {
        len -= 1;
    }
    for byte in &mut buffer[..len] {
        if *byte < b' ' {
            *byte = b' ';
        }
    }
    &buffer[..len]
}

/// The inode of a file; 0 if the kernel does not tell.
pub(crate) fn inode(path: &CStr) -> u64 {
    // SAFETY: all-zero bytes are a valid `stat`; the thread's own `errno`; a NUL-terminated path and a writable `stat`. (Not by
    // libc's `stat`, which older glibcs don't export.)
    unsafe {
        let mut about: libc::stat = core::mem::zeroed();
        let (here, to) = (libc::AT_FDCWD, &raw mut about);
        let got = system_call!(libc::SYS_newfstatat, here, path.as_ptr(), to, 0);
        if got == 0 { about.st_ino } else { 0 }
    }
}
