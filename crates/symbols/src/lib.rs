//! Addresses of another process by name: functions with file and line, variables, stacks.
//!
//! An [`AddressSpace`] says what lay where in a process. It can be taken from a process that runs, stored, and read again
//! when the process has ended. A [`Symboliser`] names the addresses in it; an [`Unwinder`] walks the stacks of its
//! threads. Each file is opened and parsed once, when an address first needs it.
//!
//! DWARF is `addr2line`'s work, unwinding is `framehop`'s. What is ours: which file lies at an address, where its debug
//! information is, and what to say when there is none.

mod debug;
mod elf;
mod frame;
mod jit;
mod names;
mod place;
mod python;
mod space;
mod symboliser;
mod tail;
mod thread;
mod unwind;

pub use frame::Frame;
pub use names::demangled;
pub use place::Place;
pub use python::{Python, PythonFrame};
pub use space::{AddressSpace, Mapping, Thread, mappings, mappings_in};
pub use symboliser::Symboliser;
pub use thread::{Blocked, blocked, read_memory, threads};
pub use unwind::{Registers, Unwinder};
