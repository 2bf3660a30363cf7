//! Makes a file in which a process records something, and maps it.
//!
//! Folder and file are open for about 50 us, under the lowest free numbers that aren't standard streams'. High numbers
//! would stop a process with threads for 10 ms, while the kernel enlarges its table.

use crate::header::{About, Header, Layout, PAGE};
use core::fmt;
use core::marker::PhantomData;
use core::ptr::null_mut;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Relaxed, Release};
use lockwright_native::access::{self, Access};
use lockwright_native::{kernel, system_call};

/// Files that one process id may have: one for each program that it became by `exec`.
const FILES: u32 = 10_000;

/// Why there is no file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The system's error number.
    System(i32),
    /// The folder is a symbolic link, and may lead anywhere.
    Link,
    /// The folder belongs to another user, who could read or replace its contents.
    Foreign,
}

/// A file that is mapped forever, and begins with its header. As cheap to copy as a pointer.
pub struct Mapped<L> {
    pub(crate) base: *mut u8,
    layout: PhantomData<L>,
}

impl<L> Clone for Mapped<L> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<L> Copy for Mapped<L> {}

impl<L> fmt::Debug for Mapped<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Mapped").field(&self.base).finish()
    }
}

// SAFETY: everything behind it is atomic or constant; a stack's bytes are written by the thread that made its key
// MOVING.
unsafe impl<L: Sync> Send for Mapped<L> {}
// SAFETY: as above.
unsafe impl<L: Sync> Sync for Mapped<L> {}

impl<L> Mapped<L> {
    /// Its address, for [`at`](Self::at).
    pub fn base(self) -> *mut u8 {
        self.base
    }

    /// The file with this [`base`](Self::base).
    ///
    /// # Safety
    /// It is the base of one.
    #[inline]
    pub unsafe fn at(base: *mut u8) -> Self {
        Self { base, layout: PhantomData }
    }

    /// Who writes, and what the format adds.
    #[inline]
    pub fn header(&self) -> &'static L {
        // SAFETY: mapped forever, aligned, written before there is one of us.
        unsafe { &*self.base.cast() }
    }

    /// What is at this offset.
    ///
    /// # Safety
    /// It is a `T`, within the mapping, and its page is populated. The mapping lasts for as long as `'a`: forever, if this process has
    /// made it.
    #[inline]
    pub(crate) unsafe fn place<'a, T>(self, offset: usize) -> &'a T {
        // SAFETY: our caller's promise.
        unsafe { &*self.base.add(offset).cast() }
    }
}

impl<L: Layout> Mapped<L> {
    /// Makes the file `DIR/PID-N` with the format's ending, with the first free N, `length` bytes long. Its first `head` bytes are
    /// populated. `add` sets what the format adds to the header, and what isn't zero.
    ///
    /// # Errors
    /// The system's error from creating, growing or mapping the file; ENAMETOOLONG for a folder whose path has 4000 bytes; or the folder
    /// is a link, or belongs to another user.
    pub(crate) fn make(
        dir: &[u8],
        about: &About<'_>,
        length: usize,
        head: usize,
        add: impl FnOnce(&mut L),
    ) -> Result<Self, Refused> {
        const { assert!(size_of::<L>() <= PAGE) };
        let (base, pid, number) = create(dir, L::ENDING, length, head.max(PAGE))?;
        // SAFETY: the mapping is that long, populated and aligned to a page; zeroes are an `L`; and nobody else has seen it.
        add(unsafe { &mut *base.cast::<L>() });
        // SAFETY: as above; an `L` begins with a header.
        unsafe { &mut *base.cast::<Header>() }.write::<L>(about, pid, number, length);
        // SAFETY: the base of such a file.
        Ok(unsafe { Self::at(base) })
    }
}

/// Replaces a text by what `fill` passes on, as far as there is room. `length` is the text's; 0: there is none, or it is
/// being written. If there is no memory for it, there is none.
///
/// # Safety
/// `at` is a page's start in a file, and `room` bytes there are the text's. Only one thread at a time does this.
pub unsafe fn write_text(
    length: &AtomicU64,
    at: *mut u8,
    room: usize,
    fill: impl FnOnce(&mut dyn FnMut(&[u8])),
) {
    // SAFETY: the caller's promise.
    if length.swap(0, Relaxed) == 0 && unsafe { populate(at, room) }.is_err() {
        return;
    }
    let mut end = 0;
    fill(&mut |piece| {
        if end + piece.len() <= room {
            // SAFETY: within the populated bytes, and nobody else writes there.
            unsafe { at.add(end).copy_from_nonoverlapping(piece.as_ptr(), piece.len()) };
            end += piece.len();
        }
    });
    // ORDERING: Release, pairs with the reader's Acquire: the text is there.
    length.store(end as u64, Release);
}

/// Makes `DIR/PID-N` and `ending`, with the first free N, `length` bytes long. Maps it forever, shared, with its first
/// `head` bytes populated. Also returns the process id and N.
fn create(
    dir: &[u8],
    ending: &str,
    length: usize,
    head: usize,
) -> Result<(*mut u8, u32, u32), Refused> {
    let pid = kernel::process_id();
    let mut most = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a writable rlimit.
    let is_known = unsafe {
        let (limit, none) = (libc::RLIMIT_FSIZE as usize, null_mut::<u8>());
        system_call!(libc::SYS_prlimit64, 0, limit, none, &raw mut most)
    } == 0;
    if is_known && most.rlim_cur < length as libc::rlim_t {
        return Err(Refused::System(libc::EFBIG)); // the kernel would send SIGXFSZ
    }
    let folder = open_folder(dir)?;
    let made = make(folder, pid, ending).and_then(|(fd, number)| {
        let base = map(fd, length, head);
        close(fd);
        if base.is_err() {
            let name = name(pid, number, ending);
            // SAFETY: our own folder, and a NUL-terminated name.
            unsafe { system_call!(libc::SYS_unlinkat, folder, name.as_ptr(), 0) };
        }
        base.map(|base| (base, pid, number))
    });
    close(folder);
    made
}

/// The same file under a number that is no standard stream's: a program may have closed one, to open another file
/// there.
fn not_standard(fd: i32) -> i32 {
    if !(0..3).contains(&fd) {
        return fd;
    }
    // SAFETY: our own descriptor.
    let other = unsafe { system_call!(libc::SYS_fcntl, fd, libc::F_DUPFD_CLOEXEC, 3) };
    if other < 0 {
        return fd;
    }
    close(fd);
    other as i32
}

/// Closes, but not by libc's `close`, which is a cancellation point.
fn close(fd: i32) {
    // SAFETY: the caller's own descriptor, which isn't used any more.
    unsafe { system_call!(libc::SYS_close, fd) };
}

/// Opens a folder that belongs to our user, or is as safe as `/tmp`, and isn't a link. It checks the descriptor,
/// because the name may come to mean another folder.
fn open_folder(dir: &[u8]) -> Result<i32, Refused> {
    // With a slash at its end, a link would be followed.
    let mut len = dir.len();
    while len > 1 && dir[len - 1] == b'/' {
        len -= 1;
    }
    // A thread that waits for a lock may come here, and its stack may be small.
    let fd = match &dir[..len] {
        short if len < 256 => open_path::<256>(short),
        long => open_path::<4096>(long),
    };
    let fd = not_standard(fd?);
    // SAFETY: all-zero bytes are a value of it.
    let mut about: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: a writable `stat`; no preconditions.
    let (known, user) = unsafe {
        let known = system_call!(libc::SYS_fstat, fd, &raw mut about);
        (known, kernel::call(libc::SYS_geteuid, [0; 6]) as u32)
    };
    // In root's folder with the sticky bit, nobody else can rename or remove our file.
    let is_shared = about.st_uid == 0 && about.st_mode & libc::S_ISVTX != 0;
    let why = match about.st_mode & libc::S_IFMT {
        _ if known < 0 => Refused::System(-known as i32),
        libc::S_IFLNK => Refused::Link,
        libc::S_IFDIR if about.st_uid != user && !is_shared => Refused::Foreign,
        libc::S_IFDIR => return Ok(fd),
        _ => Refused::System(libc::ENOTDIR),
    };
    close(fd);
    Err(why)
}

/// Opens this path, of fewer than `ROOM` bytes, if it isn't a link.
#[inline(never)]
fn open_path<const ROOM: usize>(bytes: &[u8]) -> Result<i32, Refused> {
    let mut path = [0_u8; ROOM];
    // Room for the NUL.
    let Some(start) = path[..ROOM - 1].get_mut(..bytes.len()) else {
        return Err(Refused::System(libc::ENAMETOOLONG));
    };
    start.copy_from_slice(bytes);
    let flags = libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    // SAFETY: a NUL-terminated path. Not libc's `open`, which is a cancellation point.
    let fd = unsafe { system_call!(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags) as i32 };
    if fd < 0 { Err(Refused::System(-fd)) } else { Ok(fd) }
}

fn map(fd: i32, length: usize, head: usize) -> Result<*mut u8, Refused> {
    // SAFETY: `fd` is ours; a fresh mapping overlaps nothing.
    let mapped = unsafe {
        let grown = system_call!(libc::SYS_ftruncate, fd, length);
        if grown < 0 {
            grown
        } else {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            system_call!(libc::SYS_mmap, 0_usize, length, protection, libc::MAP_SHARED, fd, 0)
        }
    };
    if mapped < 0 {
        return Err(Refused::System(-mapped as i32));
    }
    let base: *mut u8 = core::ptr::with_exposed_provenance_mut(mapped as usize);
    // SAFETY: within the mapping.
    if let Err(refused) = unsafe { populate(base, head) } {
        // SAFETY: our own mapping, which nobody has seen.
        unsafe { kernel::unmap(base, length) };
        return Err(refused);
    }
    Ok(base)
}

/// Makes the kernel allocate the pages now: a full disk is an error here, but would be a SIGBUS later. A process that has confined itself
/// gets no more pages, since a filter may kill it for asking.
///
/// # Safety
/// `at` is a page's start, and the bytes are mapped.
pub unsafe fn populate(at: *mut u8, len: usize) -> Result<(), Refused> {
    access::asking(|access| match access {
        Access::None => Err(Refused::System(libc::EPERM)),
        // SAFETY: the caller's promise.
        _ => unsafe { populate_now(at, len) },
    })
}

/// As [`populate`], for a process that may ask.
///
/// # Safety
/// As there.
unsafe fn populate_now(at: *mut u8, len: usize) -> Result<(), Refused> {
    const MADV_POPULATE_WRITE: i32 = 23;
    // SAFETY: the caller's promise.
    let result = unsafe { system_call!(libc::SYS_madvise, at, len, MADV_POPULATE_WRITE) };
    match -result as i32 {
        0 => Ok(()),
        // Before Linux 5.14.
        // SAFETY: the caller's promise.
        libc::EINVAL => unsafe { fault_in(at, len) },
        libc::EFAULT => Err(Refused::System(libc::ENOSPC)), // would have been SIGBUS
        error => Err(Refused::System(error)),
    }
}

/// Makes the kernel read a word of each page. In a file on a tmpfs, such as `/dev/shm`, that allocates the page, and if
/// the tmpfs is full, the system call fails. (A file on a disk gets a page of zeros that isn't its own, so there a full
/// disk is a SIGBUS later.)
///
/// # Safety
/// The bytes are mapped.
unsafe fn fault_in(at: *mut u8, len: usize) -> Result<(), Refused> {
    // Every filter lets a program wait for a futex. This call never really waits: the value differs, or its time is
    // over.
    let (operation, other) = (libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG, u32::MAX);
    let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    for page in (0..len).step_by(PAGE) {
        // SAFETY: the word is within the caller's bytes, and only read.
        let waited = unsafe {
            system_call!(libc::SYS_futex, at.add(page), operation, other, &raw const now)
        };
        if waited == -libc::c_long::from(libc::EFAULT) {
            return Err(Refused::System(libc::ENOSPC));
        }
    }
    Ok(())
}

/// A file's name: two numbers, and an ending. Ends in NUL.
pub type Name = [u8; 64];

/// `PID-N` and `ending`, of at most 40 bytes.
pub fn name(pid: u32, number: u32, ending: &str) -> Name {
    let mut name: Name = [0; 64];
    let mut len = 0;
    let mut push = |piece: &[u8]| {
        name[len..len + piece.len()].copy_from_slice(piece);
        len += piece.len();
    };
    let mut digits = [0; 10];
    push(decimal(pid, &mut digits));
    push(b"-");
    push(decimal(number, &mut digits));
    push(ending.as_bytes());
    name
}

/// Makes the file, accessible only to its owner, whatever the umask allows.
fn make(folder: i32, pid: u32, ending: &str) -> Result<(i32, u32), Refused> {
    for number in 0..FILES {
        let name = name(pid, number, ending);
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC;
        // SAFETY: a NUL-terminated name. Not libc's `openat`, which is a cancellation point.
        let fd =
            unsafe { system_call!(libc::SYS_openat, folder, name.as_ptr(), flags, 0o600) as i32 };
        if fd >= 0 {
            return Ok((not_standard(fd), number));
        }
        if fd != -libc::EEXIST {
            return Err(Refused::System(-fd));
        }
    }
    Err(Refused::System(libc::EEXIST))
}

/// In decimal digits.
pub fn decimal(mut number: u32, digits: &mut [u8; 10]) -> &[u8] {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_cannot_be_had_is_an_error_and_no_signal() {
        // SAFETY: a NUL-terminated name; a fresh descriptor and mapping of our own. The second page is beyond the
        // file's end.
        unsafe {
            let fd = libc::memfd_create(c"pages".as_ptr(), 0);
            assert_eq!(libc::ftruncate(fd, PAGE as libc::off_t), 0);
            let (all, rights) = (2 * PAGE, libc::PROT_READ | libc::PROT_WRITE);
            let base = libc::mmap(null_mut(), all, rights, libc::MAP_SHARED, fd, 0).cast::<u8>();
            let mut about: libc::stat = core::mem::zeroed();
            assert!(libc::fstat(fd, &mut about) == 0 && about.st_blocks == 0);
            assert_eq!(fault_in(base, PAGE), Ok(()));
            assert!(libc::fstat(fd, &mut about) == 0 && about.st_blocks > 0, "the page is there");
            assert_eq!(fault_in(base, all), Err(Refused::System(libc::ENOSPC)));
            libc::munmap(base.cast(), all);
            close(fd);
        }
    }
}
