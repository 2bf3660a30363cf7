//! Addresses of another process by name: functions with file and line, variables, stacks.
//!
//! An [`AddressSpace`] is the memory map of a process. It can be taken from a running process, stored, and read again
//! when the process has ended. A [`Symboliser`] names the addresses in it; an [`Unwinder`] walks the stacks of its
//! threads. Each file is opened and parsed once, when an address first needs it.
//!
//! No file is trusted, nor the place where it lies ([`lockwright_files`]). `addr2line` reads DWARF, and `framehop` unwinds. Our part is to find out which file is at an address, where its
//! debug information is, and what to say if there is none.

mod debug;
#[cfg(test)]
mod drawn;
mod dwarf;
mod elf;
mod frame;
mod jit;
mod names;
mod place;
mod python;
mod space;
mod symboliser;
mod tail;
mod task;
mod thread;
mod unwind;

pub use frame::Frame;
pub use names::{demangled, demangled_cpp};
pub use place::Place;
pub use python::{Python, PythonFrame};
pub use space::{AddressSpace, Mapping, ThreadPointers, mappings, mappings_in, proc_text};
pub use symboliser::Symboliser;
pub use task::{CpuTime, Task, TaskState, Throttled, cpu_time, slept_for, task, throttled_ns};
pub use thread::{Blocked, blocked, read_memory, threads};
pub use unwind::{Registers, ReturnSlot, Unwinder};
