//! What a hook's code finds at its second argument.

use crate::programs::helpers::HELPERS;
use lockwright_platform::hooks::Context;

/// A hook, compiled.
pub type Code = unsafe extern "C" fn(&Context, &Env) -> u64;

/// A helper: the five arguments of eBPF, and the environment of the hook that calls it.
pub type HelperFn = unsafe extern "C" fn(u64, u64, u64, u64, u64, &Env) -> u64;

/// A policy's surroundings in a process. The code knows the fields by their offsets.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Env {
    /// The maps' memory.
    pub data: *mut u8,
    /// Bytes there.
    pub data_len: u64,
    /// The helpers, by [index](crate::programs::helpers::Helper::index).
    pub helpers: [HelperFn; HELPERS],
}
