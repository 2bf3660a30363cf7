//! A policy's code, as a process maps it: a header, then the hooks' code.

use lockwright_platform::hooks::Hook;

/// How an image begins. Changes with its layout, and with what hooks are told.
pub const MAGIC: u64 = u64::from_le_bytes(*b"lockpol2");
/// The longest name of a policy, bytes.
pub const NAME: usize = 64;
/// The largest image, bytes: what the [mailbox](crate::programs::mailbox::ROOM) has room for, less 32 KiB for the maps' first contents.
pub const LARGEST: usize = 224 << 10;
/// The most memory for a policy's maps, bytes.
pub const LARGEST_DATA: usize = 64 << 20;

/// The architecture for which the code was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Architecture {
    /// x86-64.
    X86_64 = 62,
    /// AArch64.
    Aarch64 = 183,
}

/// How an image begins.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ImageHeader {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`Architecture`], as ELF numbers it.
    pub machine: u32,
    /// Bytes of the image.
    pub len: u32,
    /// Bytes of the maps' memory.
    pub data_len: u64,
    /// Where each hook's code begins, in bytes from the image's start; 0: the policy has no such hook.
    pub hooks: [u32; Hook::ALL.len()],
    /// The number of maps.
    pub maps: u32,
    /// How often the policy's file has been stored under this name; 0: it is not from the store.
    pub version: u32,
    /// What the policy reads, of [`READS`](lockwright_platform::hooks::READS).
    pub reads: u32,
    /// 0.
    pub unused: u32,
    /// The policy's name, in UTF-8, padded with zeroes.
    pub name: [u8; NAME],
}
