//! [`Epoch`].

use lockwright_runtime::sync;
use std::ffi::CString;
use std::marker::PhantomData;
use std::time::Duration;

/// A piece of the program's work that has a latency objective (SLO). It lasts as long as this guard.
///
/// With `LOCKWRIGHT_LOCK=asl`, threads on little cores let others go first at each lock, as long as epochs keep their SLO.
/// That goes for our locks and, under the preloaded library, for pthread's. With other locks epochs are only counted, and
/// only if `lockwright run --stats` asks for that. Epochs may be nested; the innermost one counts.
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
    /// Begins epoch `id` (0 to 1023) in the calling thread; it should take at most `slo`.
    ///
    /// Epochs with an id out of range are ignored, after one message on standard error.
    #[inline]
    pub fn start(id: u32, slo: Duration) -> Self {
        let slo_ns = u64::try_from(slo.as_nanos()).unwrap_or(u64::MAX);
        // SAFETY: any id is legal.
        unsafe { sync::epoch_start(id as libc::c_int) };
        Self { id, slo_ns, thread: PhantomData }
    }

    /// Sets the percentage of epoch `id`'s executions that must keep the SLO: 90 to 99.9. The default is 99.
    pub fn percentile(id: u32, percent: f64) {
        // SAFETY: any values are legal.
        unsafe { sync::epoch_percentile(id as libc::c_int, percent) };
    }

    /// Sets the name of epoch `id` in reports. Only the first 63 bytes count, and a NUL ends it.
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
