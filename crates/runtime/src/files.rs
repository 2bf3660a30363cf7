//! Small files of the kernel, read without allocating and without touching `errno`.
//!
//! We use raw system calls: libc's functions are cancellation points, and an epoch's end must not be one.

use crate::access::{self, Access};
use core::ffi::{CStr, c_char};
use lockwright_contract::About;
use lockwright_native::futex::{self, Clock};
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

/// The path of the program's file; empty if the kernel doesn't tell. If we may not ask: the name that it was started with, which may be a
/// symbolic link.
pub(crate) fn program(buffer: &mut [u8]) -> &[u8] {
    let (folder, name) = (libc::AT_FDCWD, c"/proc/self/exe".as_ptr());
    let asked = access::asking(|access| {
        let (to, room) = (buffer.as_mut_ptr(), buffer.len());
        // SAFETY: a NUL-terminated path, and a buffer of that size.
        let read = || unsafe { system_call!(libc::SYS_readlinkat, folder, name, to, room) };
        (access == Access::All).then(read)
    });
    if let Some(len) = asked {
        return &buffer[..usize::try_from(len).unwrap_or(0)];
    }
    // SAFETY: no preconditions.
    let name = unsafe { libc::getauxval(libc::AT_EXECFN) } as *const c_char;
    // SAFETY: the kernel's own C string, at the top of the stack.
    if name.is_null() { b"" } else { unsafe { CStr::from_ptr(name) }.to_bytes() }
}

/// This process's command line, as much as fits the buffer, its words separated by blanks.
fn command_line(buffer: &mut [u8]) -> &[u8] {
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

/// Room for the texts of [`about`].
pub(crate) struct AboutRoom {
    boot: [u8; 40],
    command: [u8; 512],
}

impl AboutRoom {
    pub(crate) const fn new() -> Self {
        Self { boot: [0; 40], command: [0; 512] }
    }
}

/// What this process says of itself at the beginning of a file, which begins now.
pub(crate) fn about<'a>(room: &'a mut AboutRoom, lock: &'a [u8], emulated: &'a [u8]) -> About<'a> {
    About {
        now_ns: futex::now(Clock::Monotonic),
        started: own_start(),
        namespace: inode(c"/proc/self/ns/pid"),
        boot: read(c"/proc/sys/kernel/random/boot_id", &mut room.boot).unwrap_or(b"").trim_ascii(),
        lock,
        emulated,
        command: command_line(&mut room.command),
    }
}

/// When this process was started, in ticks since boot; 0 if the kernel doesn't tell.
#[inline(never)] // its buffer is too large to keep on a small stack
fn own_start() -> u64 {
    let mut stat = [0_u8; 512]; // 22 fields of 20 digits fit
    read(c"/proc/self/stat", &mut stat).map_or(0, started)
}

/// Field 22 of `/proc/PID/stat`; the second may contain anything.
fn started(stat: &[u8]) -> u64 {
    let end = stat.iter().rposition(|&byte| byte == b')').map_or(0, |at| at + 1);
    let field = stat[end..].split(|&byte| byte == b' ').filter(|field| !field.is_empty()).nth(19);
    let digits = field.unwrap_or(b"").iter().take_while(|byte| byte.is_ascii_digit());
    digits.fold(0, |sum: u64, &digit| sum.wrapping_mul(10).wrapping_add(u64::from(digit - b'0')))
}

/// The inode of a file; 0 if the kernel does not tell.
fn inode(path: &CStr) -> u64 {
    // SAFETY: all-zero bytes are a valid `stat`; the thread's own `errno`; a NUL-terminated path and a writable `stat`. (Not by
    // libc's `stat`, which older glibcs don't export.)
    unsafe {
        let mut about: libc::stat = core::mem::zeroed();
        let (here, to) = (libc::AT_FDCWD, &raw mut about);
        let got = system_call!(libc::SYS_newfstatat, here, path.as_ptr(), to, 0);
        if got == 0 { about.st_ino } else { 0 }
    }
}
