//! POSIX semantics on top of the locks: kinds, return codes, time, cancellation, fork. It exports no symbols (the preload
//! does), allocates nothing, and writes nothing to stdout.
//!
//! It has four floors, and no module names one on a higher floor (`cargo xtask tidy` checks that):
//!
//! ```text
//!   entry points   mutex  cond  rwlock  spin  semaphore  epoch   what the preload's symbols and `sync`'s table call
//!                  sync  got ─► trampoline  deepbind       init starts everything, and alone knows the watchers
//!        │
//!   decisions      environment ─► switch ─► config ─► policy ─► rules    which lock?  locks::posix asks
//!                       │            │        └─► whole                  a textbook lock
//!                       └─► programs ┴─► posts          policies in eBPF;  what commands post
//!                  machine                                 how many CPUs, of which classes?
//!                  guard                                   other people's tools
//!        │
//!   watchers       emulate  trace  recording  order        emulate little cores;  record operations, epochs, orders
//!        │             └─ their functions ─► watch
//!        │         observe                                 counts waits; upper floors call it by name
//!   ground         watch  fast                             is this process watched?  watchers register here;  the fast paths
//!                  fork  access                            children, and handlers for them;  what may we ask the kernel?
//!                  thread  shared  clock  env              one thread's memory;  all threads' epochs;  LOCKWRIGHT_*
//!                  attached  apart  urgency                loaded into a running program?  a stack of our own;  who is real-time?
//!                  leave ─► apart                          waits left abnormally;  what one thread at a time does
//!                  layout  real  files  object             glibc's objects, its own functions;  the kernel's files, ELF
//!                  probes  caller                          glibc's static probes;  where the program called us
//! ```
//!
//! Watchers lie below decisions because they decide nothing: they need a clock, a file and a thread's memory. If they
//! need something from an upper floor (a mutex to rehearse on, the number of CPUs), `init` hands it to them. Upper floors
//! tell them through `watch` what happens. So a process that isn't watched runs none of their code, and a new watcher
//! changes no lock.
#![no_std]

#[cfg(test)]
extern crate std;

mod access;
mod apart;
mod attached;
mod caller;
mod clock;
pub mod cond;
mod config;
#[cfg(target_arch = "x86_64")]
pub mod deepbind;
pub mod delegated;
mod emulate;
mod env;
mod environment;
pub mod epoch;
mod fast;
mod files;
mod fork;
#[cfg(target_arch = "x86_64")]
mod got;
mod guard;
pub mod init;
pub mod layout;
mod leave;
mod listed;
pub mod machine;
pub mod mutex;
#[cfg_attr(
    not(target_arch = "x86_64"),
    allow(dead_code, reason = "calls are redirected on x86-64 alone")
)]
mod object;
mod observe;
mod order;
mod pause;
mod policy;
pub mod posts;
mod preference;
mod probes;
pub mod programs;
mod queued;
pub mod real;
mod recording;
mod rules;
pub mod rwlock;
pub mod sections;
pub mod semaphore;
mod shared;
pub mod spin;
pub mod switch;
pub mod sync;
pub mod thread;
mod trace;
#[cfg(target_arch = "x86_64")]
mod trampoline;
mod urgency;
mod watch;
mod whole;
