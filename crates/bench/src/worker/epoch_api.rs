//! The program's side of epochs.

/// The epoch functions that an annotated program finds if our library is loaded.
#[derive(Clone, Copy)]
pub(super) struct EpochApi {
    start: unsafe extern "C" fn(libc::c_int),
    end: unsafe extern "C" fn(libc::c_int, u64),
}

impl EpochApi {
    pub(super) fn find() -> Option<EpochApi> {
        // SAFETY: NUL-terminated names; the functions have these types in lockwright.h (a result, if there is
        // one, may be left alone in the C ABI).
        unsafe {
            let start = libc::dlsym(libc::RTLD_DEFAULT, c"lw_epoch_start".as_ptr());
            let end = libc::dlsym(libc::RTLD_DEFAULT, c"lw_epoch_end".as_ptr());
            (!start.is_null() && !end.is_null()).then(|| EpochApi {
                start: std::mem::transmute::<*mut libc::c_void, unsafe extern "C" fn(libc::c_int)>(
                    start,
                ),
                end: std::mem::transmute::<*mut libc::c_void, unsafe extern "C" fn(libc::c_int, u64)>(
                    end,
                ),
            })
        }
    }

    #[inline(always)]
    pub(super) fn start(self, id: libc::c_int) {
        // SAFETY: no preconditions.
        unsafe { (self.start)(id) }
    }

    #[inline(always)]
    pub(super) fn end(self, id: libc::c_int, slo_ns: u64) {
        // SAFETY: no preconditions.
        unsafe { (self.end)(id, slo_ns) }
    }
}
