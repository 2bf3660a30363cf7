//! bpf(2): the five calls that we need (linux/bpf.h; `libc` has none).

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// BPF_PROG_TYPE_TRACEPOINT.
const TRACEPOINT: u32 = 5;

/// What a map shall be: the beginning of the kernel's attributes.
#[repr(C)]
pub(super) struct CreateMap {
    pub(super) kind: u32,
    pub(super) key_size: u32,
    pub(super) value_size: u32,
    pub(super) max_entries: u32,
    pub(super) flags: u32,
}

#[repr(C)]
struct UpdateMap {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
struct Pin {
    path: u64,
    descriptor: u32,
    flags: u32,
}

/// A program; its instructions outlive it.
pub(super) struct LoadProgram<'a>(&'a [[u8; 8]]);

impl<'a> LoadProgram<'a> {
    pub(super) fn new(insns: &'a [[u8; 8]]) -> Self {
        Self(insns)
    }
}

#[repr(C)]
struct ProgramAttributes {
    kind: u32,
    count: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    version: u32,
    flags: u32,
}

/// What the verifier says.
pub(super) struct Log(Vec<u8>);

impl Default for Log {
    fn default() -> Self {
        Self(vec![0; 1 << 20])
    }
}

impl Log {
    /// What it said.
    pub(super) fn text(&self) -> String {
        let end = self.0.iter().position(|byte| *byte == 0).unwrap_or(self.0.len());
        String::from_utf8_lossy(&self.0[..end]).into_owned()
    }
}

/// Makes a map.
pub(super) fn create(map: &CreateMap) -> io::Result<OwnedFd> {
    // SAFETY: it has no pointers.
    unsafe { call(0, map) }.map(owned)
}

/// Sets a value.
pub(super) fn update(map: &OwnedFd, key: &[u8], value: &[u8]) -> io::Result<()> {
    let update = UpdateMap {
        map: number(map),
        padding: 0,
        key: address(key),
        value: address(value),
        flags: 0,
    };
    // SAFETY: the caller's map has keys and values of these lengths.
    unsafe { call(2, &update) }.map(drop)
}

/// Loads a program for tracepoints.
pub(super) fn load(program: &LoadProgram, log: Option<&mut Log>) -> io::Result<OwnedFd> {
    let log = log.map_or(&mut [][..], |log| &mut log.0);
    let load = ProgramAttributes {
        kind: TRACEPOINT,
        count: program.0.len() as u32,
        insns: program.0.as_ptr() as u64,
        license: c"Dual MIT/GPL".as_ptr() as u64,
        log_level: u32::from(!log.is_empty()),
        log_size: log.len() as u32,
        log: if log.is_empty() { 0 } else { log.as_mut_ptr() as u64 },
        version: 0,
        flags: 0,
    };
    // SAFETY: the kernel reads the instructions and the licence, and writes at most `log_size` bytes to `log`.
    unsafe { call(5, &load) }.map(owned)
}

/// Gives a program a name.
pub(super) fn pin(program: &OwnedFd, path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let pin = Pin { path: path.as_ptr() as u64, descriptor: number(program), flags: 0 };
    // SAFETY: the path ends in a null.
    unsafe { call(6, &pin) }.map(drop)
}

/// Bytes of a page.
pub(super) fn page() -> u32 {
    // SAFETY: only reads a number.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as u32 }
}

/// # Safety
/// The command has these attributes, or more, of which the rest is 0, and what they point to is valid.
unsafe fn call<T>(command: libc::c_long, attributes: &T) -> io::Result<i32> {
    // SAFETY: as the caller says.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), size_of::<T>())
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as i32) }
}

/// The kernel made this descriptor for us.
fn owned(descriptor: i32) -> OwnedFd {
    // SAFETY: so nobody else closes it.
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}

fn number(descriptor: &OwnedFd) -> u32 {
    descriptor.as_raw_fd().cast_unsigned()
}

fn address(bytes: &[u8]) -> u64 {
    bytes.as_ptr() as u64
}
