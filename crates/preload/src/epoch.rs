//! `lw_epoch_*` and `lw_tag`, as `include/lockwright.h` declares them.

use core::ffi::{c_char, c_int};

use lockwright_runtime::{epoch, programs};

/// Begins the epoch `id`.
#[unsafe(no_mangle)]
extern "C" fn lw_epoch_start(id: c_int) {
    epoch::start(id);
}

/// Ends the epoch `id`; it should have taken at most `slo_ns`.
#[unsafe(no_mangle)]
extern "C" fn lw_epoch_end(id: c_int, slo_ns: u64) {
    epoch::end(id, slo_ns);
}

/// Sets the percentile for the SLO of epoch `id`, 90 to 99.9.
#[unsafe(no_mangle)]
extern "C" fn lw_epoch_percentile(id: c_int, percent: f64) {
    epoch::set_percentile(id, percent);
}

/// Sets the name of epoch `id` in reports.
#[unsafe(no_mangle)]
unsafe extern "C" fn lw_epoch_name(id: c_int, name: *const c_char) {
    // SAFETY: the program promises a C string.
    unsafe { epoch::set_name_of(id, name) }
}

/// Tags the calling thread for lock policies; 0: not any more.
#[unsafe(no_mangle)]
extern "C" fn lw_tag(tag: u64) {
    programs::tag(tag);
}
