//! Why something can't be read or written.

use lockwright_contract::header::{Foreign, Layout};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// A file or folder that can't be written, or can't be read as what it should be.
#[derive(Debug)]
pub struct Error {
    pub(crate) path: PathBuf,
    pub(crate) why: Why,
}

#[derive(Debug)]
pub(crate) enum Why {
    /// It can't be read.
    System(io::Error),
    /// It can't be written.
    Unwritable(io::Error),
    /// It isn't what this says.
    NotOurs(&'static str),
    /// It has the first version; we read the second.
    Version(u32, u32),
    /// It is what it should be, but its content is impossible.
    Damaged(String),
}

impl Why {
    /// Why a file that should be `what`, in this layout, isn't read.
    pub(crate) fn foreign<L: Layout>(foreign: Foreign, what: &'static str) -> Self {
        match foreign {
            Foreign::Short | Foreign::Incomplete | Foreign::NotOurs => Self::NotOurs(what),
            Foreign::Version(version) => Self::Version(version, L::VERSION),
        }
    }
}

impl Error {
    pub(crate) fn new(path: &Path, why: Why) -> Self {
        Self { path: path.to_owned(), why }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.why {
            Why::System(error) => write!(f, "cannot read '{path}': {error}"),
            Why::Unwritable(error) => write!(f, "cannot write '{path}': {error}"),
            Why::NotOurs(what) => write!(f, "cannot read '{path}': not {what}"),
            Why::Version(found, ours) => {
                write!(f, "cannot read '{path}': its version is {found}, this program reads {ours}")
            }
            Why::Damaged(what) => write!(f, "cannot read '{path}': damaged: {what}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.why {
            Why::System(error) | Why::Unwritable(error) => Some(error),
            _ => None,
        }
    }
}
