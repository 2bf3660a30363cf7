//! The memory of a lock policy, as the process that runs it and the command that controls it share it. This module says nothing about
//! how a policy is checked or compiled: `lockwright-policy` does that.
//!
//! ```text
//!   code   mapped r-x:   ImageHeader │ code of the hooks             image.rs
//!   data   mapped rw-:   for each map: its Map │ its entries         maps.rs
//!   env    a struct:     where data is, and the helpers              env.rs, calls.rs
//!   how the process gets them from the command                       mailbox.rs
//! ```
//!
//! A hook is `extern "C" fn(&Context, &Env) -> u64`. It reaches its maps as `env.data + offset`, so the code has no relocations, and
//! every process may map it anywhere.

pub mod calls;
pub mod env;
pub mod helpers;
pub mod image;
pub mod mailbox;
pub mod maps;
