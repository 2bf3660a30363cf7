//! A thread that waits for a lock reads about the machine again, and its stack may be small.

use core::ffi::c_void;
use core::ptr::{from_mut, null_mut};
use lockwright_native::cpus::{Reach, Room};
use lockwright_native::topology::{Topology, online_hash};

/// The size of the thread's stack, in bytes.
const STACK: usize = 510 * 1024;
/// Marks bytes that no thread has written.
const UNTOUCHED: u8 = 0xa5;

/// What the thread reads into. As in the library, it doesn't lie on the stack.
struct Places {
    topology: Topology,
    room: Room,
}

type Body = extern "C" fn(*mut c_void) -> *mut c_void;

/// How many bytes of stack a thread needs to run `body`.
fn needed_for(body: Body, places: &mut Places) -> usize {
    let mut memory = vec![UNTOUCHED; STACK + 4096];
    let start = memory.as_ptr().align_offset(4096);
    let stack = &mut memory[start..start + STACK];
    // SAFETY: plain data, initialized before it is used; the stack and the places outlive the thread, and nobody else
    // touches them until it has ended.
    unsafe {
        let mut attr: libc::pthread_attr_t = core::mem::zeroed();
        assert_eq!(libc::pthread_attr_init(&mut attr), 0);
        assert_eq!(libc::pthread_attr_setstack(&mut attr, stack.as_mut_ptr().cast(), STACK), 0);
        let mut thread = 0;
        assert_eq!(libc::pthread_create(&mut thread, &attr, body, from_mut(places).cast()), 0);
        assert_eq!(libc::pthread_join(thread, null_mut()), 0);
        libc::pthread_attr_destroy(&mut attr);
    }
    STACK - stack.iter().take_while(|&&byte| byte == UNTOUCHED).count()
}

extern "C" fn nothing(_: *mut c_void) -> *mut c_void {
    null_mut()
}

extern "C" fn read(places: *mut c_void) -> *mut c_void {
    // SAFETY: `needed_for` passes its `places`.
    let Places { topology, room } = unsafe { &mut *places.cast::<Places>() };
    let is_known = online_hash().is_some() && topology.read(b"/sys");
    assert!(is_known && Reach::of_process(room).is_some() && Reach::by_files(room).is_some());
    null_mut()
}

extern "C" fn set(places: *mut c_void) -> *mut c_void {
    // SAFETY: `needed_for` passes its `places`.
    let Places { topology, .. } = unsafe { &mut *places.cast::<Places>() };
    let _ = topology.set("big:0,little:1"); // other machines refuse it, which takes as much stack
    null_mut()
}

#[test]
fn reading_needs_little_stack() {
    let mut places = Box::new(Places { topology: Topology::new(), room: Room::new() });
    let nothing = needed_for(nothing, &mut places);
    let [reading, setting] =
        [read as Body, set].map(|body| needed_for(body, &mut places) - nothing);
    assert!(reading < 2 * 1024, "reading: {reading} bytes");
    assert!(setting < 4 * 1024, "setting: {setting} bytes");
}
