//! Code in this process's memory. It is never writable and executable at once: it is written into a file without a name, which is then
//! sealed, and mapped to be read and executed.

use lockwright_contract::programs::env::Code;
use lockwright_contract::programs::image::ImageHeader;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr::{NonNull, null_mut};

/// A mapped image.
#[derive(Debug)]
pub(super) struct Mapping {
    begin: NonNull<u8>,
    len: usize,
}

/// An image's header.
pub(super) fn header(image: &[u8]) -> ImageHeader {
    assert!(image.len() >= size_of::<ImageHeader>());
    // SAFETY: as many bytes are there, and any bytes are a header.
    unsafe { image.as_ptr().cast::<ImageHeader>().read_unaligned() }
}

impl Mapping {
    /// Maps an image.
    pub(super) fn new(image: &[u8]) -> io::Result<Self> {
        let mut file = file()?;
        file.write_all(image)?;
        let seals =
            libc::F_SEAL_SEAL | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_WRITE;
        // SAFETY: our file.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let (len, access) = (image.len(), libc::PROT_READ | libc::PROT_EXEC);
        // SAFETY: a new mapping of our file, where the system likes.
        let begin =
            unsafe { libc::mmap(null_mut(), len, access, libc::MAP_PRIVATE, file.as_raw_fd(), 0) };
        match NonNull::new(begin.cast::<u8>()) {
            Some(begin) if begin.as_ptr().cast::<libc::c_void>() != libc::MAP_FAILED => {
                Ok(Self { begin, len })
            }
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The function that begins at this byte.
    ///
    /// # Safety
    /// One begins there. It is called only while this mapping lives.
    pub(super) unsafe fn function(&self, at: usize) -> Code {
        assert!(at < self.len);
        // SAFETY: our caller's promise.
        unsafe { std::mem::transmute::<*mut u8, Code>(self.begin.as_ptr().add(at)) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: our mapping, in which nobody runs any more.
        unsafe { libc::munmap(self.begin.as_ptr().cast(), self.len) };
    }
}

/// An empty file without a name, in memory.
fn file() -> io::Result<File> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // Linux before 6.3 doesn't know MFD_EXEC, and maps any such file for execution.
    for flags in [flags | libc::MFD_EXEC, flags] {
        // SAFETY: a name that ends with zero.
        let fd = unsafe { libc::memfd_create(c"lockwright-policy".as_ptr(), flags) };
        if fd >= 0 {
            // SAFETY: new, and nobody else's.
            return Ok(unsafe { File::from_raw_fd(fd) });
        }
    }
    Err(io::Error::last_os_error())
}
