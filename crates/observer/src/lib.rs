//! Reads a process from outside.

mod bytes;
pub mod counts;
pub mod elf;
pub mod files;
pub mod find;
pub mod mailbox;
pub mod order;
pub mod process;
pub mod sampler;
mod stack;
pub mod table;
pub mod targets;
pub mod traced;
pub mod whose;
pub mod written;
