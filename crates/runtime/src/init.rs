//! Our constructor's work.

use crate::{config, fork, real};
use lockwright_native::place;

/// Reads the environment and fills the policy table. Everything works before it, with early defaults:
/// other libraries' constructors run first.
///
/// # Safety
/// Called once, by the dynamic linker, before `main`.
pub unsafe fn init() {
    fork::watch();
    real::resolve();
    place::learn();
    // SAFETY: called once.
    unsafe { config::load() };
}
