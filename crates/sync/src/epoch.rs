//! [`Epoch`].

use lockwright_runtime::sync;
use std::ffi::CString;
use std::marker::PhantomData;
use std::time::Duration;

/// A piece of the program's work that has a latency objective (SLO); it lasts as long as this guard.
///
/// With `LOCKWRIGHT_LOCK=asl`, threads on little cores let others go first at each lock, ours and, under the
/// preloaded library, pthread's, as long as epochs keep their SLO. With other locks epochs are only counted, if
/// `lockwright run --stats` asks for that. Epochs may lie within each other; the innermost counts.
///
/// ```
/// use lockwright_sync::{Epoch, Mutex};
/// use std::time::Duration;
///
/// static TABLE: Mutex<Vec<u64>> = Mutex::new(Vec::new());
/// const INSERT: u32 = 1;
///
/// fn insert(value: u64) {
///     let _epoch = Epoch::start(INSERT, Duration::from_micros(200));
///     TABLE.lock().push(value);
/// }
///
/// Epoch::name(INSERT, "insert");
/// insert(7);
/// assert_eq!(*TABLE.lock(), [7]);
/// ```
#[derive(Debug)]
#[must_use = "the epoch ends when this is dropped"]
pub struct Epoch {
    id: u32,
    slo_ns: u64,
    /// An epoch belongs to its thread: neither `Send` nor `Sync`.
    thread: PhantomData<*const ()>,
}

impl Epoch {
    /// The epoch `id` (0 to 1023) begins in the calling thread; it should take `slo` at most.
    ///
    /// Another id is said once on standard error, and its epochs are ignored.
    #[inline]
    pub fn start(id: u32, slo: Duration) -> Self {
        let slo_ns = u64::try_from(slo.as_nanos()).unwrap_or(u64::MAX);
        // SAFETY: any id is legal.
        unsafe { sync::epoch_start(id as libc::c_int) };
        Self { id, slo_ns, thread: PhantomData }
    }

    /// The percentage of executions of epoch `id` that must keep the SLO: 90 to 99.9; the default is 99.
    pub fn percentile(id: u32, percent: f64) {
        // SAFETY: any values are legal.
        unsafe { sync::epoch_percentile(id as libc::c_int, percent) };
    }

    /// Reports call epoch `id` so; its first 63 bytes count, and it ends at a NUL.
    pub fn name(id: u32, name: &str) {
        let name: Vec<u8> = name.bytes().take_while(|&byte| byte != 0).collect();
        let Ok(name) = CString::new(name) else { return };
        // SAFETY: a C string.
        unsafe { sync::epoch_name(id as libc::c_int, name.as_ptr()) };
    }
}

impl Drop for Epoch {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: any id is legal.
        unsafe { sync::epoch_end(self.id as libc::c_int, self.slo_ns) };
    }
}
