//! A place in a process's data, in people's terms.

use std::fmt::{self, Display, Formatter};

/// What is at a data address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// In a variable.
    Symbol {
        /// The variable.
        name: String,
        /// From its start, in bytes.
        offset: u64,
        /// The name of the file that defines it.
        module: String,
    },
    /// In a program's or a library's data, but in no named variable.
    Section {
        /// The name of the file.
        module: String,
        /// Such as `.bss`.
        section: String,
        /// From the section's start, in bytes.
        offset: u64,
    },
    /// A thread-local variable.
    ThreadLocal {
        /// The thread.
        tid: libc::pid_t,
        /// The variable, if it is the program's own and known.
        name: Option<String>,
        /// The address.
        address: u64,
    },
    /// On a thread's stack.
    Stack {
        /// The thread.
        tid: libc::pid_t,
        /// The address.
        address: u64,
    },
    /// In the heap, from which `malloc`'s first pieces come.
    Heap {
        /// The address.
        address: u64,
    },
    /// In a file that the process has mapped.
    File {
        /// The name of the file.
        name: String,
        /// From the file's start, in bytes.
        offset: u64,
    },
    /// In memory without a file, which includes larger and later pieces of `malloc`.
    Anonymous {
        /// The address.
        address: u64,
    },
    /// Nothing is there (any more).
    Unmapped {
        /// The address.
        address: u64,
    },
}

impl Display for Place {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Symbol { name, offset: 0, .. } => write!(to, "{name}"),
            Self::Symbol { name, offset, .. } => write!(to, "{name}+{offset:#x}"),
            Self::Section { module, section, offset } => {
                write!(to, "{module} {section}+{offset:#x}")
            }
            Self::ThreadLocal { tid, name: Some(name), .. } => {
                write!(to, "{name} [thread-local of {tid}]")
            }
            Self::ThreadLocal { tid, name: None, address } => {
                write!(to, "{address:#x} [thread-local of {tid}]")
            }
            Self::Stack { tid, address } => write!(to, "{address:#x} [stack of {tid}]"),
            Self::Heap { address } => write!(to, "{address:#x} [heap]"),
            Self::File { name, offset } => write!(to, "{name}+{offset:#x}"),
            Self::Anonymous { address } => write!(to, "{address:#x} [anonymous]"),
            Self::Unmapped { address } => write!(to, "{address:#x} [unmapped]"),
        }
    }
}
