//! How the files begin in which a process records something: what a file is, who writes it, and since when.
//!
//! ```text
//!   byte 0   Header, the same in each │ what the format adds
//!   PAGE     the format's own
//! ```
//!
//! One function writes a header, from [`About`], and one tells whether a reader knows the file ([`Header::check`]). The magic number is
//! written last: until it is there, the file isn't complete, and nothing else in it counts.

use crate::text::{fill, unpadded};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Release};

/// The unit in which a mapping is populated, bytes. What is behind the header begins here.
pub const PAGE: usize = 4096;
/// Classes of cores that files distinguish; slower ones count as the last.
pub const CLASSES: usize = 4;

/// Who writes the file. What isn't atomic is constant once `magic` is there.
///
/// In all versions of all formats, `magic`, `version` and `pid` lie here.
#[repr(C)]
#[derive(Debug)]
pub struct Header {
    /// [`Layout::MAGIC`]; 0: the file is still being made.
    pub magic: AtomicU64,
    /// [`Layout::VERSION`].
    pub version: u32,
    /// The process's id, as the process sees it.
    pub pid: u32,
    /// The inode of the namespace of that id; 0: not known.
    pub namespace: u64,
    /// The N of the file's name.
    pub number: u64,
    /// The file's length, bytes.
    pub length: u64,
    /// When the process began, in clock ticks since boot (`/proc/PID/stat`, field 22); 0: not known.
    pub started: u64,
    /// When recording began, ns of `CLOCK_MONOTONIC`. Counters that are reset begin later than their file.
    pub start_ns: AtomicU64,
    /// When something was last recorded, ns of `CLOCK_MONOTONIC`, up to a millisecond behind; of operations and their order, `start_ns`.
    pub last_ns: AtomicU64,
    /// This boot's id, from `/proc/sys/kernel/random/boot_id`.
    pub boot: [u8; 40],
    /// The lock in use when recording began, as given in `LOCKWRIGHT_LOCK`; UTF-8, padded with zeroes, like all texts here.
    pub lock: [u8; 128],
    /// The emulated machine, as given in `LOCKWRIGHT_EMULATE`; empty: a real one.
    pub emulated: [u8; 256],
    /// The command line, with blanks between the words; cut if it is longer.
    pub command: [u8; 512],
}

/// What a process says of itself in a header.
#[derive(Clone, Copy, Debug, Default)]
pub struct About<'a> {
    /// Now, ns of `CLOCK_MONOTONIC`.
    pub now_ns: u64,
    /// When the process began, in clock ticks since boot; 0: not known.
    pub started: u64,
    /// The inode of its namespace of process ids; 0: not known.
    pub namespace: u64,
    /// This boot's id.
    pub boot: &'a [u8],
    /// The lock in use.
    pub lock: &'a [u8],
    /// The emulated machine; empty: none.
    pub emulated: &'a [u8],
    /// The command line.
    pub command: &'a [u8],
}

/// A format: what its files are called, and how they begin.
///
/// # Safety
/// The type is `repr(C)`, and begins with a [`Header`]. It is no longer than [`PAGE`]. All of its fields are integers, so that zeroes are
/// one, and so are any bytes.
pub unsafe trait Layout: Sync + 'static {
    /// The first eight bytes of a complete file.
    const MAGIC: u64;
    /// Incremented when the format changes, or the header does.
    const VERSION: u32;
    /// How a file's name ends: `PID-N` and this.
    const ENDING: &'static str;
    /// The length of each file, bytes; `None`: files differ.
    const LENGTH: Option<usize>;
}

/// Why a reader doesn't know a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foreign {
    /// It is shorter than a header.
    Short,
    /// It is still being made, or its process was killed meanwhile.
    Incomplete,
    /// It is something else.
    NotOurs,
    /// It is what it should be, but in this version of the format.
    Version(u32),
}

impl Header {
    /// Writes a header where zeroes are: of file N, which is `length` bytes long and which nobody else has seen.
    pub(crate) fn write<L: Layout>(
        &mut self,
        about: &About<'_>,
        pid: u32,
        number: u32,
        length: usize,
    ) {
        self.version = L::VERSION;
        self.pid = pid;
        self.namespace = about.namespace;
        self.number = number.into();
        self.length = length as u64;
        self.started = about.started;
        self.start_ns = AtomicU64::new(about.now_ns);
        self.last_ns = AtomicU64::new(about.now_ns);
        fill(&mut self.boot, about.boot);
        fill(&mut self.lock, about.lock);
        fill(&mut self.emulated, about.emulated);
        fill(&mut self.command, about.command);
        // ORDERING: Release, pairs with [complete]: whatever the header says was written before.
        self.magic.store(L::MAGIC, Release);
    }

    /// A copy of a file's header; `None`: these bytes, its first, are too few.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.first_chunk::<{ size_of::<Self>() }>()?;
        // SAFETY: as many bytes as the type has; its fields are integers, for which all bit patterns are valid.
        Some(unsafe { bytes.as_ptr().cast::<Self>().read_unaligned() })
    }

    /// Is this a header of a complete file in this format, and in our version of it?
    ///
    /// # Errors
    /// Why it isn't; never [`Foreign::Short`].
    pub fn check<L: Layout>(&self) -> Result<(), Foreign> {
        // [complete] ORDERING: Acquire, pairs with the Release in `write`, if the file is mapped.
        match self.magic.load(Acquire) {
            0 => return Err(Foreign::Incomplete),
            magic if magic != L::MAGIC => return Err(Foreign::NotOurs),
            _ => {}
        }
        let is_as_long = L::LENGTH.is_none_or(|length| self.length == length as u64);
        if self.version == L::VERSION && is_as_long {
            Ok(())
        } else {
            Err(Foreign::Version(self.version))
        }
    }

    /// The lock in use.
    pub fn lock(&self) -> &[u8] {
        unpadded(&self.lock)
    }

    /// The emulated machine; empty: a real one.
    pub fn emulated(&self) -> &[u8] {
        unpadded(&self.emulated)
    }

    /// The command line.
    pub fn command(&self) -> &[u8] {
        unpadded(&self.command)
    }
}

const _: () = {
    assert!(
        core::mem::offset_of!(Header, version) == 8 && core::mem::offset_of!(Header, pid) == 12
    );
    assert!(size_of::<Header>() == 1000);
    assert!(cfg!(target_endian = "little"), "the layouts are for machines such as ours");
};

#[cfg(test)]
mod tests {
    use super::*;
    use std::slice;

    #[repr(C)]
    struct Two(Header);
    // SAFETY: it is a header.
    unsafe impl Layout for Two {
        const MAGIC: u64 = u64::from_le_bytes(*b"lwsecond");
        const VERSION: u32 = 2;
        const ENDING: &'static str = ".two";
        const LENGTH: Option<usize> = Some(8192);
    }

    fn empty() -> Header {
        // SAFETY: a header's fields are integers.
        unsafe { core::mem::zeroed() }
    }

    #[test]
    fn what_is_written_is_read() {
        let about = About {
            now_ns: 9,
            started: 8,
            namespace: 7,
            boot: b"boot",
            lock: b"asl",
            emulated: b"big:0,little:1x2",
            command: &[b'x'; 600],
        };
        let mut written = empty();
        written.write::<Two>(&about, 5, 6, 8192);
        // SAFETY: its own bytes; none of them is padding.
        let bytes = unsafe {
            slice::from_raw_parts((&raw const written).cast::<u8>(), size_of::<Header>())
        };
        assert!(Header::read(&bytes[1..]).is_none());
        let read = Header::read(bytes).unwrap();
        assert_eq!(read.check::<Two>(), Ok(()));
        assert_eq!((read.pid, read.number, read.length), (5, 6, 8192));
        assert_eq!((read.namespace, read.started), (7, 8));
        assert_eq!((read.start_ns.into_inner(), read.last_ns.into_inner()), (9, 9));
        assert_eq!(unpadded(&read.boot), b"boot");
        let read = Header::read(bytes).unwrap();
        assert_eq!((read.lock(), read.emulated()), (&b"asl"[..], &b"big:0,little:1x2"[..]));
        assert_eq!(read.command(), [b'x'; 511]);
    }

    #[test]
    fn a_foreign_file_is_told_from_an_incomplete_one_and_from_another_versions() {
        let seen = |magic: u64, version: u32, length: u64| {
            Header { magic: AtomicU64::new(magic), version, length, ..empty() }.check::<Two>()
        };
        assert_eq!(seen(0, 2, 8192), Err(Foreign::Incomplete));
        assert_eq!(seen(1, 2, 8192), Err(Foreign::NotOurs));
        assert_eq!(seen(Two::MAGIC, 1, 8192), Err(Foreign::Version(1)));
        assert_eq!(seen(Two::MAGIC, 2, 4096), Err(Foreign::Version(2)));
        assert_eq!(seen(Two::MAGIC, 2, 8192), Ok(()));
    }
}
