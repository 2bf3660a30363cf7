//! Epochs, if the process has them: `lw_epoch_start` and `lw_epoch_end`, looked up when the program starts, so
//! that it neither links nor needs the library that offers them.

use std::ffi::{CStr, c_int, c_void};
use std::mem;

/// All operations, short and long, are of one kind and share one epoch.
const OPERATION: c_int = 1;

/// Marks where an operation starts and ends.
#[derive(Clone, Copy)]
pub(crate) struct Epochs {
    start: extern "C" fn(c_int),
    end: extern "C" fn(c_int, u64),
    slo_ns: u64,
}

impl Epochs {
    /// `None` if nobody in this process offers epochs.
    pub(crate) fn find(slo_ns: u64) -> Option<Epochs> {
        let (start, end) = (symbol(c"lw_epoch_start")?, symbol(c"lw_epoch_end")?);
        // SAFETY: these are the functions' types in lockwright.h; their results are ignored.
        unsafe {
            Some(Epochs {
                start: mem::transmute::<*mut c_void, extern "C" fn(c_int)>(start),
                end: mem::transmute::<*mut c_void, extern "C" fn(c_int, u64)>(end),
                slo_ns,
            })
        }
    }

    pub(crate) fn start(&self) {
        (self.start)(OPERATION);
    }

    pub(crate) fn end(&self) {
        (self.end)(OPERATION, self.slo_ns);
    }
}

fn symbol(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: a terminated name, looked up among the process's loaded libraries.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}
