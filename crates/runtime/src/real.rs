//! glibc's own functions, for objects that are not ours: semaphores; process-shared, robust, PI and PP objects.
//!
//! Our constructor looks up the functions of mutexes, condvars and semaphores (`sem_post` may be called in signal handlers), or
//! their first use does, if that comes earlier.

use crate::object::{self, Lookup, Object};
use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::with_exposed_provenance_mut;
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};
use lockwright_native::symbol;

/// One function, by name.
#[derive(Debug)]
pub struct Symbol {
    name: &'static CStr,
    hash: u32,
    address: AtomicPtr<c_void>,
}

impl Symbol {
    /// The function called `name`.
    pub const fn new(name: &'static CStr) -> Self {
        let hash = object::hash(name);
        Self { name, hash, address: AtomicPtr::new(core::ptr::null_mut()) }
    }

    /// The address of glibc's own function, for callers that may ask late. Not by `dlsym`, which waits for a lock of the dynamic
    /// linker: that lock's holder may be loading a library, and wait for a lock that the caller has.
    pub(crate) fn of_glibc(&self) -> *mut c_void {
        let known = self.address.load(Relaxed); // as in `get`
        #[cfg(target_arch = "x86_64")]
        if known.is_null() && symbol::thread_sanitizer().is_null() {
            let found = in_glibc(self.name, None);
            self.address.store(found, Relaxed);
            return if found.is_null() { self.get() } else { found };
        }
        if known.is_null() { self.get() } else { known }
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

/// A condvar function for references without a version, or with the oldest one: glibc's oldest function.
///
/// The exception is libtsan between us and glibc: it has the function without a version. A program that is linked with libtsan
/// asks for no version, either, and means today's condvars.
#[cfg(target_arch = "x86_64")]
#[derive(Debug)]
pub struct Oldest(Symbol);

#[cfg(target_arch = "x86_64")]
impl Oldest {
    /// The function called `name`.
    pub const fn new(name: &'static CStr) -> Self {
        Self(Symbol::new(name))
    }

    /// Its address; `today`: our own function for today's condvars.
    pub fn get(&self, today: *mut c_void) -> *mut c_void {
        let Symbol { name, address, .. } = &self.0;
        let known = address.load(Relaxed); // code, which is never unmapped
        if !known.is_null() {
            return known;
        }
        let has_tool = !symbol::thread_sanitizer().is_null();
        let found = if has_tool { today } else { in_glibc(name, Some(c"GLIBC_2.2.5")) };
        address.store(found, Relaxed);
        found
    }
}

/// The address of glibc's own function, in this version if one is named; null if it has no such function. Doesn't take the
/// dynamic linker's lock.
#[cfg(target_arch = "x86_64")]
fn in_glibc(name: &CStr, version: Option<&CStr>) -> *mut c_void {
    let mut found = core::ptr::null_mut();
    object::each(|info, _| {
        let Some(object) = Object::of(info).filter(|o| o.soname() == Some(c"libc.so.6")) else {
            return true;
        };
        object.definitions(|known, of, value| {
            if known == name && version.is_none_or(|version| version == of) {
                let at = info.dlpi_addr as usize + value.load(Relaxed); // the object's own
                found = with_exposed_provenance_mut(at);
            }
        });
        false
    });
    found
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
            $(#[unsafe(link_section = ".lockwright.start")]
            pub(super) static $name: Symbol = Symbol::new(
                // SAFETY: the literal ends in its only NUL.
                unsafe { core::ffi::CStr::from_bytes_with_nul_unchecked(
                    concat!(stringify!($name), "\0").as_bytes()) });)*
        }
        static ALL: &[&Symbol] = &[$(&table::$name),*];
    };
}

/// glibc's functions that few programs need: looked up on use.
macro_rules! late {
    ($($name:literal)*) => {
        const NAMES: &[&CStr] = &[$($name),*];
        #[unsafe(link_section = ".lockwright.start")]
        static LATE: [Symbol; NAMES.len()] = [$(Symbol::new($name)),*];
    };
}

late! {
    c"pthread_rwlock_rdlock" c"pthread_rwlock_wrlock" c"pthread_rwlock_tryrdlock" c"pthread_rwlock_trywrlock"
    c"pthread_rwlock_timedrdlock" c"pthread_rwlock_timedwrlock" c"pthread_rwlock_clockrdlock"
    c"pthread_rwlock_clockwrlock" c"pthread_rwlock_unlock"
    c"pthread_spin_lock" c"pthread_spin_trylock" c"pthread_spin_unlock"
}

/// The index of the function called `name`.
pub(crate) const fn late(name: &CStr) -> usize {
    let mut at = 0;
    while at < NAMES.len() {
        let (mut byte, one, other) = (0, NAMES[at].to_bytes(), name.to_bytes());
        while one.len() == other.len() && byte < one.len() && one[byte] == other[byte] {
            byte += 1;
        }
        if byte == one.len() && one.len() == other.len() {
            return at;
        }
        at += 1;
    }
    panic!("it is not in the table above")
}

/// The address of the function with this index.
#[inline(never)] // it may have to look it up, which needs a frame
pub(crate) fn late_address(at: usize) -> *mut c_void {
    LATE[at].of_glibc()
}

/// Looks up all of them now: a tool may take a later store for a race, and an attached library must find glibc's functions before
/// their names lead to ours. Returns what [`resolve`] does.
#[unsafe(link_section = ".lockwright.begin")]
pub(crate) fn resolve_late() -> impl Iterator<Item = (&'static CStr, usize)> {
    resolve_all(LATE.iter())
}

/// Looks up the functions that can't be looked up on use; returns names and addresses, 0 for functions that this glibc doesn't have.
#[unsafe(link_section = ".lockwright.begin")]
pub(crate) fn resolve() -> impl Iterator<Item = (&'static CStr, usize)> {
    resolve_all(ALL.iter().copied())
}

#[unsafe(link_section = ".lockwright.begin")]
fn resolve_all(
    symbols: impl Iterator<Item = &'static Symbol> + Clone,
) -> impl Iterator<Item = (&'static CStr, usize)> {
    find_behind_us(symbols.clone());
    for symbol in symbols.clone() {
        symbol.get();
    }
    symbols.map(|symbol| (symbol.name, symbol.get().addr()))
}

/// Finds what `dlsym` would, in a tenth of the time: in the objects from ours to libc, in their order. What isn't there, or isn't plain,
/// is left to `dlsym`.
#[unsafe(link_section = ".lockwright.begin")]
fn find_behind_us(symbols: impl Iterator<Item = &'static Symbol> + Clone) {
    let (here, mut is_behind) = ((&raw const FIND_OBJECT).addr(), false);
    object::each(|info, _| {
        let Some(object) = Object::of(info) else { return true };
        if !is_behind {
            is_behind = object.holds(here);
            return object.soname() != Some(c"libc.so.6");
        }
        for symbol in symbols.clone().filter(|symbol| symbol.address.load(Relaxed).is_null()) {
            match object.function(symbol.name, symbol.hash) {
                Lookup::Absent => {}
                // Relaxed: code, which is never unmapped.
                Lookup::At(at) => symbol.address.store(with_exposed_provenance_mut(at), Relaxed),
                Lookup::Odd => return false,
            }
        }
        object.soname() != Some(c"libc.so.6")
    });
}

type Mutex = *mut libc::pthread_mutex_t;
type Cond = *mut libc::pthread_cond_t;
type Sem = *mut libc::sem_t;
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
    sem_wait(sem: Sem);
    sem_trywait(sem: Sem);
    sem_timedwait(sem: Sem, until: Time);
    sem_clockwait(sem: Sem, clock: libc::clockid_t, until: Time);
    sem_post(sem: Sem);
    sem_destroy(sem: Sem);
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

/// Makes [`object_at`] ready. The constructor does this, because `dlsym` waits for a lock, whose holder may be waiting for one of
/// ours later.
pub(crate) fn find_objects() {
    FIND_OBJECT.get();
}

/// From now on, waits read the clocks by the kernel's own function. The program's `clock_gettime` may be a library's that locks a mutex
/// (libfaketime): then a wait would lead to another one, without end.
pub(crate) fn read_kernels_clocks() {
    const NAME: &CStr = if cfg!(target_arch = "x86_64") {
        c"__vdso_clock_gettime"
    } else {
        c"__kernel_clock_gettime"
    };
    object::each(|info, _| {
        let is_it = |object: &Object| {
            object.soname().is_some_and(|name| name.to_bytes().starts_with(b"linux-vdso"))
        };
        let Some(object) = Object::of(info).filter(is_it) else {
            return true;
        };
        object.definitions(|name, _, value| {
            if name == NAME {
                let at = info.dlpi_addr as usize + value.load(Relaxed); // as in `in_glibc`
                // SAFETY: it does what `clock_gettime` does, and is always mapped.
                unsafe {
                    lockwright_native::futex::read_clocks_by(with_exposed_provenance_mut(at));
                }
            }
        });
        false
    });
}

#[unsafe(link_section = ".lockwright.start")]
static FIND_OBJECT: Symbol = Symbol::new(c"_dl_find_object");

/// The object that an address belongs to, by `_dl_find_object` (glibc 2.35), which takes no lock.
pub(crate) fn object_at(address: usize) -> Option<Found> {
    let find = FIND_OBJECT.get();
    if find.is_null() || address == 0 {
        return None;
    }
    let mut found = core::mem::MaybeUninit::<Found>::zeroed();
    // SAFETY: the function's type and its result's layout are as glibc documents them; if it returns 0, it has filled the result.
    unsafe {
        let find: unsafe extern "C" fn(usize, *mut Found) -> c_int = core::mem::transmute(find);
        (find(address, found.as_mut_ptr()) == 0).then(|| found.assume_init())
    }
}
