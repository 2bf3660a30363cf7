//! Lock policies in eBPF: from an object file to code that a lock may call.
//!
//! ```text
//!   object.rs   ELF and BTF ─► Object: hooks as instructions, maps, source lines
//!   compose.rs  several Objects as one     only.rs  a hook that is for some locks only
//!   op.rs       instructions, decoded: what the next three agree on
//!   verify      Object ─► Verified, or complaints that name line, register, range, and what would mend it
//!   interpret   Verified ─► answers; counts instructions; checks each access: the oracle
//!   jit         Verified ─► code of this machine
//!   image.rs    Verified ─► lockwright-contract's image, with maps
//!   control.rs  the policies of a running process, as the command reads and changes them
//!   loaded.rs   Verified ─► a policy in this process, by either engine     world.rs  its helpers     maps.rs  its maps
//!   cost.rs     Verified ─► ns a question
//!   kernel.rs   Object ─► the kernel's own verdict, where we may ask; programs in the kernel
//!   shipped.rs  the policies that come with lockwright (../policies)
//! ```

pub mod compose;
pub mod control;
mod cost;
pub mod image;
pub mod interpret;
pub mod jit;
pub mod kernel;
pub mod loaded;
pub mod maps;
pub mod object;
pub mod only;
pub mod op;
pub mod shipped;
#[cfg(test)]
mod testing;
pub mod verify;
mod world;

pub use cost::{Cost, cost};

/// `lockwright_policy.h`, which policies in C include.
pub const HEADER: &str = include_str!("../policies/lockwright_policy.h");
