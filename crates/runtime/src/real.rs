//! glibc's own functions, for what is not ours: process-shared, robust, PI and PP objects.
//!
//! Looked up by our constructor; or on first use, if somebody needs one before that.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};
use lockwright_native::symbol;

/// One function, by name.
#[derive(Debug)]
pub struct Symbol {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Symbol {
    /// The function called `name`.
    pub const fn new(name: &'static CStr) -> Self {
        Self { name, address: AtomicPtr::new(core::ptr::null_mut()) }
    }

    /// Its address; null if no library behind us has it.
    pub fn get(&self) -> *mut c_void {
        let known = self.address.load(Relaxed); // code, which is never unmapped
        if !known.is_null() {
            return known;
        }
        let found = symbol::find(symbol::Scope::BehindUs, self.name);
        self.address.store(found, Relaxed);
        found
    }
}

/// What a reference to a condvar's function gets that asks for no version, or for the oldest: glibc's oldest.
///
/// Unless another library stands between us and glibc, and has the function with no version: libtsan. A program that was
/// linked with that one asks for no version either, and means today's condvars.
#[derive(Debug)]
pub struct Oldest(Symbol);

impl Oldest {
    /// The function called `name`.
    pub const fn new(name: &'static CStr) -> Self {
        Self(Symbol::new(name))
    }

    /// Its address; `today`: our own function for today's condvars.
    pub fn get(&self, today: *mut c_void) -> *mut c_void {
        let Symbol { name, address } = &self.0;
        let known = address.load(Relaxed); // code, which is never unmapped
        if !known.is_null() {
            return known;
        }
        let version = |version| symbol::find_version(symbol::Scope::BehindUs, name, version);
        let is_glibcs_next = symbol::find(symbol::Scope::BehindUs, name) == version(c"GLIBC_2.3.2");
        let found = if is_glibcs_next { version(c"GLIBC_2.2.5") } else { today };
        address.store(found, Relaxed);
        found
    }
}

macro_rules! real {
    ($($name:ident($($arg:ident: $ty:ty),*);)*) => {
        $(
            #[doc = concat!("glibc's `", stringify!($name), "`; ENOSYS if this glibc has none.")]
            ///
            /// # Safety
            /// As the function of that name.
            pub unsafe fn $name($($arg: $ty),*) -> c_int {
                let address = table::$name.get();
                if address.is_null() {
                    return libc::ENOSYS;
                }
                // SAFETY: the symbol of that name has this type; the caller keeps its contract. It may
                // unwind (cancellation): C-unwind.
                unsafe {
                    let real: unsafe extern "C-unwind" fn($($ty),*) -> c_int =
                        core::mem::transmute(address);
                    real($($arg),*)
                }
            }
        )*
        #[expect(non_upper_case_globals, reason = "named as the functions that they stand for")]
        mod table {
            use super::Symbol;
            $(pub(super) static $name: Symbol = Symbol::new(
                // SAFETY: the literal ends in its only NUL.
                unsafe { core::ffi::CStr::from_bytes_with_nul_unchecked(
                    concat!(stringify!($name), "\0").as_bytes()) });)*
        }
        /// Looks all of them up; the addresses, 0 for what this glibc doesn't have.
        pub(crate) fn resolve() -> impl Iterator<Item = usize> {
            [$(table::$name.get().addr()),*].into_iter()
        }
    };
}

type Mutex = *mut libc::pthread_mutex_t;
type Cond = *mut libc::pthread_cond_t;
type Time = *const libc::timespec;

real! {
    pthread_mutex_lock(mutex: Mutex);
    pthread_mutex_trylock(mutex: Mutex);
    pthread_mutex_timedlock(mutex: Mutex, until: Time);
    pthread_mutex_clocklock(mutex: Mutex, clock: libc::clockid_t, until: Time);
    pthread_mutex_unlock(mutex: Mutex);
    pthread_mutex_destroy(mutex: Mutex);
    pthread_cond_wait(cond: Cond, mutex: Mutex);
    pthread_cond_timedwait(cond: Cond, mutex: Mutex, until: Time);
    pthread_cond_clockwait(cond: Cond, mutex: Mutex, clock: libc::clockid_t, until: Time);
    pthread_cond_signal(cond: Cond);
    pthread_cond_broadcast(cond: Cond);
    pthread_cond_destroy(cond: Cond);
}

/// glibc's `struct dl_find_object`.
#[repr(C)]
pub(crate) struct Found {
    flags: u64,
    pub(crate) map_start: *mut c_void,
    map_end: *mut c_void,
    link_map: *mut LinkMap,
    eh_frame: *mut c_void,
    reserved: [u64; 7],
}

impl Found {
    /// The file that it was loaded from; empty for the program itself.
    pub(crate) fn name(&self) -> &'static [u8] {
        // SAFETY: glibc's own map of the object, and its NUL-terminated name.
        unsafe { CStr::from_ptr((*self.link_map).name) }.to_bytes()
    }
}

/// The public head of glibc's `struct link_map`.
#[repr(C)]
struct LinkMap {
    address: usize,
    name: *const c_char,
}

/// The map of the object that an address belongs to: what `dlopen` hands out as its handle.
#[cfg(target_arch = "x86_64")] // only got.rs asks
pub(crate) fn handle_at(address: usize) -> Option<*mut c_void> {
    object_at(address).map(|found| found.link_map.cast())
}

/// Makes [`object_at`] ready. By the constructor: `dlsym` waits for a lock, which the thread that waits for ours may hold.
pub(crate) fn find_objects() {
    FIND_OBJECT.get();
}

static FIND_OBJECT: Symbol = Symbol::new(c"_dl_find_object");

/// The object that an address belongs to. By `_dl_find_object` (glibc 2.35), which takes no lock.
pub(crate) fn object_at(address: usize) -> Option<Found> {
    let find = FIND_OBJECT.get();
    if find.is_null() || address == 0 {
        return None;
    }
    let mut found = core::mem::MaybeUninit::<Found>::zeroed();
    // SAFETY: the function's type and its result's layout as glibc documents them; on 0 it has filled it.
    unsafe {
        let find: unsafe extern "C" fn(usize, *mut Found) -> c_int = core::mem::transmute(find);
        (find(address, found.as_mut_ptr()) == 0).then(|| found.assume_init())
    }
}
