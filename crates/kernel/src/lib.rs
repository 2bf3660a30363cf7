//! Waits for the kernel's locks and for futexes: which process waits for which lock, for how long, and from which call.
//!
//! An [`Observer`] loads a small program into the kernel (`bpf/contention.bpf.c`), which runs at the tracepoints
//! `contention_begin` and `contention_end` and adds the waits up. [`Observer::finish`] returns them as a [`Profile`],
//! and [`groups`] groups them by lock, caller or type.
//!
//! Linux 5.19 or later has the tracepoints. [`Obstacle`] says what is missing, and how to get it.

mod group;
mod kind;
mod observer;
mod obstacle;
mod profile;
mod raw;
mod symbols;

pub use group::{By, Group, Named, groups};
pub use kind::{Kind, UnknownType, kinds_of};
pub use observer::{Chosen, Observer, WaitedFor};
pub use obstacle::Obstacle;
pub use profile::{Cost, Lock, Lost, Owner, Profile, Role, StackWaits, Sum, Unended};
pub use symbols::Symbols;
