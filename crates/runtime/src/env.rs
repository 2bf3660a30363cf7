//! The environment variables that our user has set, and our messages on stderr.

use crate::access::{self, Access};
use crate::thread;
use core::ffi::{CStr, c_char, c_int};
use core::ptr::null_mut;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicPtr, AtomicUsize};
use lockwright_contract::Refused;
use lockwright_native::{symbol, system_call};

/// Where the value of an environment variable is; null if it is unset.
#[unsafe(link_section = ".lockwright.begin")]
pub(crate) fn place(name: &CStr) -> *mut c_char {
    // As `getenv`, but null in a program that runs with more rights than the user who started it.
    let get = symbol::environment();
    if get.is_null() {
        return null_mut();
    }
    // SAFETY: the function of that name has this type; a NUL-terminated name.
    unsafe {
        let get: unsafe extern "C" fn(*const c_char) -> *mut c_char = core::mem::transmute(get);
        get(name.as_ptr())
    }
}

/// While our constructor runs: those of our user's variables that begin with LOCKWRIGHT_, and how many there are. Most programs have one
/// or none, and dozens of others: to go through all of those for each name that we know would take longer than all else here.
#[unsafe(link_section = ".lockwright.start")]
static OURS: [AtomicPtr<c_char>; 16] = [const { AtomicPtr::new(null_mut()) }; 16];
/// 0: not known; otherwise one more than there are in OURS.
#[unsafe(link_section = ".lockwright.start")]
static KNOWN: AtomicUsize = AtomicUsize::new(0);
const PREFIX: &[u8] = b"LOCKWRIGHT_";

/// Runs `run`, during which the environment stays as it is.
///
/// # Safety
/// `environment` is the process's, or null.
pub(crate) unsafe fn unchanged<R>(environment: *const *const c_char, run: impl FnOnce() -> R) -> R {
    // SAFETY: the caller's promise: texts, and a null behind the last.
    unsafe {
        let (mut at, mut count) = (environment, 0);
        while !at.is_null() && !(*at).is_null() {
            // Not by libc's function: its page would have to be mapped.
            if (0..PREFIX.len()).all(|byte| *(*at).add(byte) as u8 == PREFIX[byte]) {
                if let Some(place) = OURS.get(count) {
                    place.store((*at).cast_mut(), Relaxed); // one thread
                }
                count += 1;
            }
            at = at.add(1);
        }
        KNOWN.store(if at.is_null() || count > OURS.len() { 0 } else { count + 1 }, Relaxed);
    }
    let result = run();
    KNOWN.store(0, Relaxed); // a thread that another library started finds the same without it
    result
}

/// Is a variable of this name set, as far as [`OURS`] tells?
fn may_be_set(name: &CStr) -> bool {
    let known = KNOWN.load(Relaxed);
    if known == 0 || !name.to_bytes().starts_with(PREFIX) {
        return true;
    }
    let name = name.to_bytes();
    OURS[..known - 1].iter().any(|at| {
        // SAFETY: a text of the environment, which doesn't change now.
        let text = unsafe { CStr::from_ptr(at.load(Relaxed)) }.to_bytes();
        text.strip_prefix(name).is_some_and(|rest| rest.first() == Some(&b'='))
    })
}

/// The value of an environment variable; `None` if it is unset or empty.
#[unsafe(link_section = ".lockwright.begin")]
pub(crate) fn variable(name: &CStr) -> Option<&'static [u8]> {
    let value = if may_be_set(name) { place(name) } else { null_mut() };
    if value.is_null() {
        return None;
    }
    // SAFETY: a NUL-terminated text, which stays as long as nobody changes the environment; our constructor copies what it keeps.
    Some(unsafe { CStr::from_ptr(value) }.to_bytes()).filter(|value| !value.is_empty())
}

/// The parts before and after the first `at`.
pub(crate) fn cut(text: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let place = text.iter().position(|&byte| byte == at)?;
    Some((&text[..place], &text[place + 1..]))
}

/// Writes one message to stderr, truncated if it is very long. Variables may hold anything, so control bytes are written as
/// `\xNN`, and no terminal obeys them. The last piece is our own text and ends the line; a hint may follow on a line of its own.
pub(crate) fn say(pieces: &[&[u8]]) {
    let mut line = [0_u8; 512];
    let len = message(pieces, &mut line);
    write_to_stderr(&line[..len]);
}

/// Writes the message to `line`, and returns its length. An escaped byte is written whole or not at
/// all.
fn message(pieces: &[&[u8]], line: &mut [u8; 512]) -> usize {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let (mut len, mut before) = (0, 0);
    let (last, others) = pieces.split_last().map_or((b"".as_slice(), pieces), |(&l, o)| (l, o));
    let last = last.strip_suffix(b"\n").unwrap_or(last);
    let foreign = others.iter().flat_map(|piece| piece.iter().map(|&byte| (byte, false)));
    let own = |text| <[u8]>::iter(text).map(|&byte| (byte, true));
    let all = own(b"lockwright: ").chain(foreign).chain(own(last));
    for (byte, is_own) in all {
        // In UTF-8 the controls U+0080 to U+009F are two bytes.
        let is_control =
            byte.is_ascii_control() || (before == 0xc2 && (0x80..0xa0).contains(&byte));
        let hex = [b'\\', b'x', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]];
        let is_kept = !is_control || (is_own && byte == b'\n');
        let piece = if is_kept { &[byte] } else { &hex[..] };
        // The last byte is for the newline.
        let Some(room) = line[..511].get_mut(len..len + piece.len()) else { break };
        room.copy_from_slice(piece);
        len += piece.len();
        before = byte;
    }
    line[len] = b'\n';
    len + 1
}

/// Says that nothing is recorded in the folder `dir` of `name`.
pub(crate) fn refused(name: &[u8], dir: &[u8], why: Refused) {
    let why = match why {
        Refused::Link => c"it is a symbolic link",
        Refused::Foreign => c"it belongs to another user",
        Refused::System(error) => error_text(error).unwrap_or(c"unknown error"),
    };
    say(&[b"nothing is recorded in ", name, b" '", dir, b"': ", why.to_bytes(), b"\n"]);
}

/// What an error number means, in English.
fn error_text(error: c_int) -> Option<&'static CStr> {
    let text = symbol::error_text();
    if text.is_null() {
        return None;
    }
    // SAFETY: the function of that name has this type, and no preconditions; the text is constant.
    unsafe {
        let text: unsafe extern "C" fn(c_int) -> *const c_char = core::mem::transmute(text);
        let text = text(error);
        (!text.is_null()).then(|| CStr::from_ptr(text))
    }
}

/// Can we write a line to stderr without waiting for a reader, and without exceeding the program's file size limit (SIGXFSZ)?
fn can_write(line: &[u8]) -> bool {
    let mut ready = libc::pollfd { fd: libc::STDERR_FILENO, events: libc::POLLOUT, revents: 0 };
    let (none, now) = (null_mut::<u64>(), libc::timespec { tv_sec: 0, tv_nsec: 0 });
    let mut longest = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: all-zero bytes are a valid `stat`; the other objects are writable, and of the right types. A pipe that is ready has
    // room for a line of 512 bytes.
    unsafe {
        let mut about: libc::stat = core::mem::zeroed();
        let fds = &raw mut ready;
        let polled = system_call!(libc::SYS_ppoll, fds, 1_usize, &raw const now, none, 0_usize);
        if polled == 0 || ready.revents & (libc::POLLERR | libc::POLLNVAL) != 0 {
            return false;
        }
        let is_file = system_call!(libc::SYS_fstat, libc::STDERR_FILENO, &raw mut about) == 0
            && about.st_mode & libc::S_IFMT == libc::S_IFREG;
        let is_known = system_call!(
            libc::SYS_prlimit64,
            0,
            libc::RLIMIT_FSIZE as usize,
            null_mut::<u64>(),
            &raw mut longest
        ) == 0;
        let end = about.st_size.cast_unsigned().saturating_add(line.len() as u64);
        !is_file || !is_known || end <= longest.rlim_cur
    }
}

/// Writes, if we may ask the kernel for it: a process that has confined itself is told nothing more.
fn write_to_stderr(line: &[u8]) {
    access::asking(|access| {
        if access != Access::None {
            write(line);
        }
    });
}

/// Writes by raw system calls, since libc's `write` is a cancellation point. If nobody reads stderr any more, we swallow the
/// SIGPIPE, since the program didn't cause it. A failure to write is ignored.
fn write(line: &[u8]) {
    if !thread::leaving_errno(|| can_write(line)) {
        return;
    }
    const SET: usize = size_of::<u64>(); // the kernel's signal set
    let pipe = 1_u64 << (libc::SIGPIPE - 1);
    let (mut old, mut pending) = (0_u64, 0_u64);
    // SAFETY: the thread's own `errno` and mask; sets of that size; a buffer of that length.
    unsafe {
        let mask = libc::SYS_rt_sigprocmask;
        system_call!(mask, libc::SIG_BLOCK, &raw const pipe, &raw mut old, SET);
        system_call!(libc::SYS_rt_sigpending, &raw mut pending, SET);
        let wrote = system_call!(libc::SYS_write, libc::STDERR_FILENO, line.as_ptr(), line.len());
        if wrote == -libc::c_long::from(libc::EPIPE) && pending & pipe == 0 {
            let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            let about: *mut libc::siginfo_t = null_mut();
            system_call!(libc::SYS_rt_sigtimedwait, &raw const pipe, about, &raw const now, SET);
        }
        system_call!(mask, libc::SIG_SETMASK, &raw const old, null_mut::<u64>(), SET);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_line_that_no_terminal_obeys() {
        let text = |pieces: &[&[u8]]| {
            let mut line = [0; 512];
            let len = message(pieces, &mut line);
            std::string::String::from_utf8_lossy(&line[..len]).into_owned()
        };
        assert_eq!(
            text(&[b"bad '", b"\x1b[2J\n\x7f", b"'\n"]),
            "lockwright: bad '\\x1b[2J\\x0a\\x7f'\n"
        );
        assert_eq!(text(&["\u{9b}31mé\n".as_bytes()]), "lockwright: \u{fffd}\\x9b31mé\n");
        assert_eq!(text(&[b"a\n", b"b\nhint: c\n"]), "lockwright: a\\x0ab\nhint: c\n");
        assert_eq!(text(&[]), "lockwright: \n");
        let long = text(&[&[b'\r'; 600]]);
        // 12 bytes for the start, 499 for whole escapes and the newline.
        assert_eq!((long.len(), &long[long.len() - 5..]), (12 + 4 * 124 + 1, "\\x0d\n"));
        assert_eq!(text(&[&[b'a'; 511]]).len(), 512);
    }
}
