//! Which objects are still to be looked at, and what keeps one loaded meanwhile.

use super::functions::{DLOPEN, ON};
use crate::object::{self, Generation, Object};
use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::null;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;

/// How many objects we remember as done.
const OBJECTS: usize = 4096;
/// Bytes of a path.
pub(super) const PATH: usize = 4096;
/// Objects that are done: their `key`s, hashed.
pub(super) static DONE: [AtomicUsize; OBJECTS] = [const { AtomicUsize::new(0) }; OBJECTS];

/// The first object from place `at` on that isn't done, and its path.
pub(super) fn next(at: usize, now: &Generation, path: &mut [u8; PATH]) -> Option<(Object, usize)> {
    let ours = (&raw const ON).addr();
    let mut found = None;
    object::each(|info, place| {
        let Some(object) = Object::of(info).filter(|_| place >= at) else { return true };
        if is_done(key(&object, now)) || object.holds(ours) {
            return true;
        }
        let name = if info.dlpi_name.is_null() {
            c""
        } else {
            // SAFETY: glibc's own string, which stays while we are here.
            unsafe { CStr::from_ptr(info.dlpi_name) }
        };
        let name = name.to_bytes_with_nul();
        if name.len() > path.len() || (name.len() == 1 && place > 0) {
            return true;
        }
        path[..name.len()].copy_from_slice(name);
        found = Some((object, place));
        false
    });
    found
}

/// Identifies an object: the address of its dynamic section, combined with the number of unloaded objects. After an unload
/// another object may lie at the same address, and may be looked at before an earlier look has remembered the old one.
pub(super) fn key(object: &Object, now: &Generation) -> usize {
    object.dynamic.addr() ^ (now.unloaded << 48) as usize
}

fn places(key: usize) -> impl Iterator<Item = &'static AtomicUsize> {
    let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48;
    (0..16).map(move |step| &DONE[(hash + step) % OBJECTS])
}

fn is_done(key: usize) -> bool {
    places(key).any(|place| place.load(Relaxed) == key) // a hint
}

pub(super) fn remember(key: usize) {
    for place in places(key) {
        // Relaxed: a hint, as in `look`.
        match place.compare_exchange(0, key, Relaxed, Relaxed) {
            Ok(_) => return,
            Err(known) if known == key => return,
            Err(_) => {}
        }
    }
}

/// Keeps an object loaded. Once this is taken, the object has been relocated.
pub(super) struct Pin(pub(super) *mut c_void);

/// The public head of glibc's `struct link_map`.
#[repr(C)]
pub(super) struct LinkMap {
    address: usize,
    name: *const c_char,
    pub(super) dynamic: *const c_void,
}

impl Pin {
    pub(super) fn take(object: &Object, place: usize, path: &[u8; PATH]) -> Option<Self> {
        let name = if place == 0 { null() } else { path.as_ptr().cast() };
        // By its address: a static program that links our locks must not refer to `dlopen` (the link editor warns).
        // SAFETY: glibc's function, of this type, found by the constructor before the first look. The path is
        // NUL-terminated, or null for the program itself. Nothing gets loaded.
        let handle = unsafe {
            let open: unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void =
                core::mem::transmute(DLOPEN.load(Relaxed)); // written by the constructor
            open(name, libc::RTLD_LAZY | libc::RTLD_NOLOAD)
        };
        if handle.is_null() {
            return None;
        }
        let pin = Self(handle);
        let mut map: *const LinkMap = null();
        // SAFETY: a handle, and room for the pointer that this request writes.
        let same = unsafe {
            libc::dlinfo(handle, libc::RTLD_DI_LINKMAP, (&raw mut map).cast()) == 0
                && !map.is_null()
                && (*map).dynamic == object.dynamic
                && (*map).address == object.base
        };
        same.then_some(pin)
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        // SAFETY: our own reference.
        unsafe { libc::dlclose(self.0) };
    }
}
