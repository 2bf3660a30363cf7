//! Who wrote a file: what is the same at the beginning of all files that processes write.

use lockwright_contract::header::{Foreign, Header, Layout};
use std::sync::atomic::Ordering::Relaxed;

/// The process that wrote a file, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Author {
    /// Its id, as it sees it.
    pub pid: u32,
    /// Its command line, with blanks between the words, cut after 511 bytes.
    pub command: String,
    /// The lock that it ran on, as given in `LOCKWRIGHT_LOCK`.
    pub lock: String,
    /// The emulated machine that it ran on, as given in `LOCKWRIGHT_EMULATE`; `None`: a real one.
    pub emulated: Option<String>,
    /// When recording began, ns of `CLOCK_MONOTONIC`.
    pub start_ns: u64,
    /// When something was last recorded, ns of `CLOCK_MONOTONIC`.
    pub last_ns: u64,
}

impl Author {
    /// Who wrote a file that begins with these bytes and has this layout.
    ///
    /// # Errors
    /// It isn't such a file, or another version's.
    pub fn read<L: Layout>(bytes: &[u8]) -> Result<Self, Foreign> {
        Self::of::<L>(&Header::read(bytes).ok_or(Foreign::Short)?)
    }

    /// Who wrote a file with this header and this layout.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub(crate) fn of<L: Layout>(header: &Header) -> Result<Self, Foreign> {
        header.check::<L>()?;
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        Ok(Self {
            pid: header.pid,
            command: text(header.command()),
            lock: text(header.lock()),
            emulated: Some(text(header.emulated())).filter(|emulated| !emulated.is_empty()),
            start_ns: header.start_ns.load(Relaxed),
            last_ns: header.last_ns.load(Relaxed),
        })
    }
}
