//! Functions whose calls are epochs, in a program that knows nothing of epochs.
//!
//! `LOCKWRIGHT_EPOCHS=NAME=FUNCTION:SLO_NS[@PERCENTILE];...`, written by `lockwright run --epoch`. The dynamic linker fills
//! certain words with such a function's address: slots of the procedure linkage and global offset tables, and words of data,
//! as in tables of functions and C++'s virtual tables. We make all of these words point to a trampoline instead. Our
//! constructor does that, and we repeat it for objects that are loaded later:
//!
//! * `dlsym` is intercepted. So nobody can look up a function in a library that we have not patched yet, and a
//!   look-up of the function itself gives its trampoline. We jump to the real `dlsym`, because it looks at its
//!   caller.
//! * `dlopen` is intercepted. It looks at its caller, too, for the folders that the caller's file names. If the file names
//!   none, we call `dlopen` from here, and patch what it loaded before the program sees it. Otherwise we jump to it,
//!   and the next `dlsym` or `dlopen` does the rest.
//!
//! Which function does a word mean? Once bound, the word itself says so. If a slot is not bound yet (lazy
//! binding), we look it up as the dynamic linker would: by name and version, in the program's own libraries
//! and then in those that came with the object.
//!
//! Not reached: calls inside one object that its linker bound (static, hidden or `-Bsymbolic` functions),
//! pointers that were taken earlier, other namespaces (`dlmopen`), and what a library's constructors call while the library
//! is being opened. If another thread binds a slot at the very moment when we write, we may miss that slot.
//!
//! Locks: we hold ours for a few instructions and `mprotect`, and take no other lock while we hold it. While another thread
//! loads an object we must not touch it (it isn't relocated yet): `dlopen(RTLD_NOLOAD)` waits until it is loaded, and keeps it
//! loaded while we look at it.

use crate::env::{cut, say};
use crate::object::{self, Generation, Kind, Object, Word};
use crate::trampoline;
use crate::{epoch, fork, real};
use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::{null, null_mut};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use lockwright_locks::amp::feedback::Percentile;

/// Room for this many functions.
const FUNCTIONS: usize = 32;
/// Room for this many bytes of LOCKWRIGHT_EPOCHS.
const TEXT: usize = 16 * 1024;
/// How many objects we remember as done.
const OBJECTS: usize = 4096;
/// Bytes of a path.
const PATH: usize = 4096;
const PAGE: usize = 4096;
const _: () = assert!(FUNCTIONS <= epoch::FUNCTIONS);

/// Functions that look at their caller's frame or return twice: they never get a trampoline. (`lockwright run` says why.)
const REFUSED: &[&CStr] = &[
    c"setjmp",
    c"_setjmp",
    c"__sigsetjmp",
    c"sigsetjmp",
    c"savectx",
    c"vfork",
    c"getcontext",
    c"setcontext",
    c"swapcontext",
    c"dlopen",
    c"dlmopen",
    c"dlsym",
    c"dlvsym",
    c"mcount",
    c"_mcount",
    c"__fentry__",
    c"__tls_get_addr",
];

/// A function whose calls are epochs.
#[derive(Clone, Copy)]
struct Function {
    /// Where its name lies in the text.
    start: usize,
    end: usize,
    epoch: u32,
}

struct Store {
    text: [u8; TEXT],
    functions: [Option<Function>; FUNCTIONS],
}

struct Shared(UnsafeCell<Store>);
// SAFETY: written by `load`, once, before `ON`; read after that.
unsafe impl Sync for Shared {}
static STORE: Shared =
    Shared(UnsafeCell::new(Store { text: [0; TEXT], functions: [None; FUNCTIONS] }));
/// Is there any function?
static ON: AtomicBool = AtomicBool::new(false);

/// Stand-ins for the functions, in a program whose code takes their addresses at fixed places: its own linkage
/// table's entries. Calls to them reach the trampoline by the program's slot.
static STAND_INS: [AtomicUsize; FUNCTIONS] = [const { AtomicUsize::new(0) }; FUNCTIONS];
/// The `Generation::number` as of which all objects have been looked at.
static LOOKED: AtomicU64 = AtomicU64::new(0);
/// How many objects had been unloaded when `DONE` was emptied.
static EMPTIED: AtomicU64 = AtomicU64::new(0);
/// Objects that are done: their `key`s, hashed.
static DONE: [AtomicUsize; OBJECTS] = [const { AtomicUsize::new(0) }; OBJECTS];
/// Does some library (not the program) have the old kind of path (DT_RPATH), which also applies to its libraries'
/// libraries?
static OLD_PATHS: AtomicBool = AtomicBool::new(false);
/// 0, or 1 plus the era of the process whose thread writes.
static WRITER: AtomicUsize = AtomicUsize::new(0);

/// The real functions. Written before any slot leads to their hooks.
static DLSYM: AtomicUsize = AtomicUsize::new(0);
static DLOPEN: AtomicUsize = AtomicUsize::new(0);

/// What a name stands for.
#[derive(Clone, Copy)]
enum Wanted {
    Function(usize),
    Dlsym,
    Dlopen,
}

/// Reads the variable and looks at everything that is loaded.
///
/// # Safety
/// Called once, by the constructor.
pub(crate) unsafe fn load(text: &[u8]) {
    if text.len() >= TEXT {
        say(&[b"LOCKWRIGHT_EPOCHS is longer than 16383 bytes: no function is an epoch\n"]);
        return;
    }
    // SAFETY: nobody reads it before ON.
    let store = unsafe { &mut *STORE.0.get() };
    let mut count = 0;
    let mut free = 0; // bytes of `store.text` that hold names
    for piece in text.split(|&byte| byte == b';').filter(|piece| !piece.is_empty()) {
        let bad = |why: &[u8]| {
            say(&[b"bad epoch '", piece, b"': ", why, b"; that function's calls are no epochs\n"]);
        };
        let said = match parse(piece) {
            Ok(_) if count == FUNCTIONS => {
                bad(b"it is the 33rd");
                continue;
            }
            Ok(said) => said,
            Err(why) => {
                bad(why);
                continue;
            }
        };
        if REFUSED.iter().any(|name| name.to_bytes() == said.function) {
            bad(b"it looks at its caller's frame");
            continue;
        }
        let epoch = count as u32;
        match epoch::define(epoch, said.name, said.slo_ns, said.percentile) {
            true => {
                let start = free;
                free += said.function.len();
                store.text[start..free].copy_from_slice(said.function);
                store.functions[count] = Some(Function { start, end: free, epoch });
                count += 1;
            }
            false => bad(b"there are too many epochs"),
        }
    }
    if count == 0 {
        return;
    }
    // SAFETY: NUL-terminated names.
    unsafe {
        let find = |name: &CStr| libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()).addr();
        DLSYM.store(find(c"dlsym"), Relaxed); // published by ON and by the slots
        DLOPEN.store(find(c"dlopen"), Relaxed); // the same
    }
    // ORDERING: Release, pairs with the Acquire in `store`.
    ON.store(true, Release);
    look();
    // SAFETY: no preconditions. Our failed look-ups are not the program's errors.
    unsafe { libc::dlerror() };
}

/// A piece of the variable.
#[derive(Debug, PartialEq)]
struct Said<'a> {
    name: &'a [u8],
    function: &'a [u8],
    slo_ns: u64,
    percentile: Option<Percentile>,
}

/// Parses `NAME=FUNCTION:SLO_NS[@PERCENTILE]`; the error says what is wrong.
fn parse(piece: &[u8]) -> Result<Said<'_>, &'static [u8]> {
    let (name, rest) = cut(piece, b'=').ok_or(b"no '='".as_slice())?;
    let colon = rest.iter().rposition(|&byte| byte == b':').ok_or(b"no SLO".as_slice())?;
    let (function, slo) = (&rest[..colon], &rest[colon + 1..]);
    let (slo, percentile) = cut(slo, b'@').map_or((slo, None), |(slo, rest)| (slo, Some(rest)));
    let slo_ns = core::str::from_utf8(slo).ok().and_then(|text| text.parse().ok());
    let slo_ns = slo_ns.ok_or(b"its SLO isn't a number of ns".as_slice())?;
    let percentile = match percentile.map(Percentile::parse) {
        Some(None) => return Err(b"its percentile is not from 90 to 99.9"),
        percentile => percentile.flatten(),
    };
    if name.is_empty() || function.is_empty() {
        return Err(b"a name is missing");
    }
    Ok(Said { name, function, slo_ns, percentile })
}

fn store() -> Option<&'static Store> {
    // ORDERING: Acquire, pairs with `load`.
    // SAFETY: ON: nobody writes any more.
    ON.load(Acquire).then(|| unsafe { &*STORE.0.get() })
}

fn find(name: &[u8]) -> Option<usize> {
    let store = store()?;
    let mut functions = store.functions.iter().map_while(|function| *function);
    functions.position(|function| &store.text[function.start..function.end] == name)
}

/// Looks at the objects that were loaded since the last look.
fn look_again() {
    // Relaxed: the number only says whether to look; a thread that sees the new one sees the slots as written.
    if Generation::now().number() != LOOKED.load(Relaxed) {
        look();
    }
}

/// How often a look begins again, because another thread unloads objects meanwhile.
const PASSES: usize = 64;

#[cold]
fn look() {
    for _ in 0..PASSES {
        let now = Generation::now();
        pass(&now);
        // An unloaded object moves the others up the list, and we may have missed one.
        if Generation::now().unloaded == now.unloaded {
            LOOKED.store(now.number(), Relaxed); // see `look_again`
            return;
        }
    }
}

fn pass(now: &Generation) {
    if EMPTIED.swap(now.unloaded, Relaxed) != now.unloaded {
        // Those keys are no longer valid.
        for done in &DONE {
            done.store(0, Relaxed); // a hint: at worst an object is looked at twice
        }
        object::each(|_, _| {
            // In here nobody loads anything. (We never take the two locks in the other order.)
            let _lock = Lock::take();
            // SAFETY: one thread at a time, by the lock. Unloaded code runs no more, and nobody calls it.
            unsafe { trampoline::reclaim(|target| !object::is_code(target)) };
            false
        });
    }
    let mut path = [0; PATH];
    let mut at = 0;
    while let Some((object, place)) = next(at, now, &mut path) {
        at = place + 1;
        if let Some(handle) = Pin::take(&object, place, &path) {
            patch(&object, &handle, place == 0);
        }
        remember(key(&object, now));
    }
}

/// The first object from place `at` on that isn't done, and its path.
fn next(at: usize, now: &Generation, path: &mut [u8; PATH]) -> Option<(Object, usize)> {
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
fn key(object: &Object, now: &Generation) -> usize {
    object.dynamic.addr() ^ (now.unloaded << 48) as usize
}

fn places(key: usize) -> impl Iterator<Item = &'static AtomicUsize> {
    let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48;
    (0..16).map(move |step| &DONE[(hash + step) % OBJECTS])
}

fn is_done(key: usize) -> bool {
    places(key).any(|place| place.load(Relaxed) == key) // a hint
}

fn remember(key: usize) {
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
struct Pin(*mut c_void);

/// The public head of glibc's `struct link_map`.
#[repr(C)]
struct LinkMap {
    address: usize,
    name: *const c_char,
    dynamic: *const c_void,
}

impl Pin {
    fn take(object: &Object, place: usize, path: &[u8; PATH]) -> Option<Self> {
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

fn wanted(name: &CStr) -> Option<Wanted> {
    match name.to_bytes() {
        b"dlsym" => Some(Wanted::Dlsym),
        b"dlopen" => Some(Wanted::Dlopen),
        name => find(name).map(Wanted::Function),
    }
}

/// Makes the object's words point to the trampolines.
fn patch(object: &Object, pin: &Pin, is_program: bool) {
    if !is_program && object::says_paths(object.dynamic, true) {
        OLD_PATHS.store(true, Relaxed); // before the program can open a library by this object
    }
    object.words(wanted, |wanted, word| {
        let value = word.slot.load(Relaxed); // a hint: written only if it is still the same
        if value == 0 || trampoline::is_stub(value) {
            return;
        }
        if let (Wanted::Function(at), Some(own), false) = (wanted, word.own, word.defined) {
            STAND_INS[at].store(own, Relaxed); // before the library that defines it is patched
        }
        let stand_in = match wanted {
            Wanted::Function(at) => STAND_INS[at].load(Relaxed), // written above: the program comes first
            Wanted::Dlsym | Wanted::Dlopen => 0,
        };
        if word.kind != Kind::Jump && value == stand_in {
            return;
        }
        // Not bound yet: it points to the object's own linkage table.
        let lazy = word.kind == Kind::Jump
            && object.holds(value)
            && !(word.defined && word.own == Some(value));
        let target = match word.kind {
            Kind::Jump if lazy => definition(object, pin, &word, stand_in),
            // The program may have changed it.
            Kind::Data if definition(object, pin, &word, stand_in) != value => return,
            _ => value,
        };
        let new = match wanted {
            _ if target == 0 => None,
            Wanted::Function(at) => stub(at, target),
            Wanted::Dlsym if target == DLSYM.load(Relaxed) => {
                Some(dlsym_hook as *const () as usize)
            }
            Wanted::Dlopen if target == DLOPEN.load(Relaxed) => {
                Some(dlopen_hook as *const () as usize)
            }
            Wanted::Dlsym | Wanted::Dlopen => None,
        };
        if let Some(new) = new {
            write(object, &word, value, new);
        }
    });
}

/// The definition that the dynamic linker would bind the word to; 0: none.
fn definition(object: &Object, pin: &Pin, word: &Word<'_>, stand_in: usize) -> usize {
    let look = |handle: *mut c_void| {
        // SAFETY: a handle, and NUL-terminated names.
        unsafe {
            let by_version = word.version.map_or(null_mut(), |version| {
                libc::dlvsym(handle, word.name.as_ptr(), version.as_ptr())
            });
            let found = if by_version.is_null() {
                libc::dlsym(handle, word.name.as_ptr())
            } else {
                by_version
            };
            Some(found.addr()).filter(|&found| found != 0 && found != stand_in)
        }
    };
    let own = || look(pin.0);
    let found = if object.is_symbolic() { own() } else { None };
    found
        .or_else(|| look(libc::RTLD_DEFAULT))
        .or_else(|| look(libc::RTLD_NEXT))
        .or_else(own)
        .unwrap_or(0)
}

/// The trampoline of a function's definition.
fn stub(at: usize, target: usize) -> Option<usize> {
    let function = store()?.functions[at]?;
    if trampoline::is_stub(target) || !object::is_code(target) {
        return None;
    }
    let lock = Lock::take();
    // SAFETY: one thread at a time, by the lock; `target` is code.
    let stub = unsafe { trampoline::stub(target, function.epoch) };
    drop(lock);
    if stub.is_none() {
        static SAID: AtomicBool = AtomicBool::new(false);
        // Relaxed: it is only said once.
        if !SAID.swap(true, Relaxed) {
            say(&[b"more than 256 definitions of functions: some calls are no epochs\n"]);
        }
    }
    stub
}

/// Writes a word, if it is still the same.
fn write(object: &Object, word: &Word<'_>, old: usize, new: usize) {
    let address = core::ptr::from_ref(word.slot).addr();
    let Some(sealed) = object.is_sealed(address) else { return };
    let page = (address & !(PAGE - 1)) as *mut c_void;
    let _lock = Lock::take();
    let protect = |protection| {
        // SAFETY: a page of the object, which is loaded; it stays readable. Nobody else changes its protection, by the lock.
        sealed && unsafe { libc::mprotect(page, PAGE, protection) } != 0
    };
    if protect(libc::PROT_READ | libc::PROT_WRITE) {
        static SAID: AtomicBool = AtomicBool::new(false);
        // Relaxed: it is only said once.
        if !SAID.swap(true, Relaxed) {
            let name = word.name.to_bytes();
            say(&[b"cannot write where '", name, b"' is called: some calls are no epochs\n"]);
        }
        return;
    }
    // Relaxed: if another thread has bound it meanwhile, later calls are missed, as said above.
    // ORDERING: Release, pairs with the address dependency of a jump through it: the stub is filled.
    let _ = word.slot.compare_exchange(old, new, Release, Relaxed);
    protect(libc::PROT_READ);
}

/// Our lock. We hold it for a few instructions and system calls, and take no other lock meanwhile. A forked child doesn't wait
/// for its parent's threads.
struct Lock;

impl Lock {
    fn take() -> Self {
        let mine = fork::era() + 1;
        let mut free = 0;
        // ORDERING: Acquire, pairs with `drop`.
        while let Err(holder) = WRITER.compare_exchange(free, mine, Acquire, Relaxed) {
            if holder == mine || holder == 0 {
                free = 0;
                // SAFETY: no preconditions.
                unsafe { libc::sched_yield() };
            } else {
                free = holder; // the parent's
            }
        }
        Self
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // ORDERING: Release, pairs with `take`.
        WRITER.store(0, Release);
    }
}

// `dlsym` and `dlopen` find their caller by their return address, so we jump to them with the caller's return address.
#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".macro lockwright_hook name, before, real, instead",
    ".hidden \\name",
    ".globl \\name",
    ".type \\name, @function",
    "\\name:",
    ".cfi_startproc",
    "endbr64",
    "push rdi",
    ".cfi_adjust_cfa_offset 8",
    "push rsi",
    ".cfi_adjust_cfa_offset 8",
    "sub rsp, 8",
    ".cfi_adjust_cfa_offset 8",
    "mov rdx, [rsp + 24]",
    "call \\before",
    "add rsp, 8",
    ".cfi_adjust_cfa_offset -8",
    "pop rsi",
    ".cfi_adjust_cfa_offset -8",
    "pop rdi",
    ".cfi_adjust_cfa_offset -8",
    "test rax, rax",
    "jne 20f",
    "mov rax, [rip + \\real]",
    "jmp rax",
    "20:",
    "\\instead",
    ".cfi_endproc",
    ".size \\name, . - \\name",
    ".endm",
    ".pushsection .text.lockwright_hooks,\"ax\",@progbits",
    "lockwright_hook lockwright_dlsym, {before_dlsym}, {dlsym}, ret",
    "lockwright_hook lockwright_dlopen, {before_dlopen}, {dlopen}, \"jmp {open}\"",
    ".popsection",
    before_dlsym = sym before_dlsym,
    dlsym = sym DLSYM,
    before_dlopen = sym before_dlopen,
    dlopen = sym DLOPEN,
    open = sym open,
);

unsafe extern "C" {
    #[link_name = "lockwright_dlsym"]
    fn dlsym_hook();
    #[link_name = "lockwright_dlopen"]
    fn dlopen_hook();
}

/// Called before a symbol is looked up: returns the result, if it is a function whose calls are epochs.
unsafe extern "C" fn before_dlsym(
    handle: *mut c_void,
    name: *const c_char,
    caller: usize,
) -> usize {
    look_again();
    // A wrapper finds the function that it wraps by `RTLD_NEXT`: the wrapper's own call was the epoch.
    if name.is_null() || handle == libc::RTLD_NEXT {
        return 0;
    }
    // SAFETY: the caller's NUL-terminated name.
    let Some(at) = find(unsafe { CStr::from_ptr(name) }.to_bytes()) else { return 0 };
    // SAFETY: the caller's handle and name.
    let mut target = unsafe { libc::dlsym(handle, name) }.addr();
    if target == 0 && handle == libc::RTLD_DEFAULT {
        // The caller's own libraries come last.
        if let Some(map) = real::handle_at(caller) {
            // SAFETY: a handle is the object's map; the caller is in it.
            target = unsafe { libc::dlsym(map, name) }.addr();
        }
    }
    // Relaxed: written by the constructor, or when the program was looked at.
    if target == 0 || target == STAND_INS[at].load(Relaxed) {
        return 0;
    }
    stub(at, target).unwrap_or(0)
}

/// Called before a library is opened: returns 1 if it makes no difference that we are the caller.
unsafe extern "C" fn before_dlopen(path: *const c_char, _mode: c_int, caller: usize) -> usize {
    look_again();
    if path.is_null() {
        return 1;
    }
    // SAFETY: the caller's NUL-terminated path.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    // `$ORIGIN` is the caller's folder; old paths apply to everything that the caller loads.
    if path.contains(&b'$') || OLD_PATHS.load(Relaxed) {
        return 0;
    }
    let is_path = path.contains(&b'/');
    // SAFETY: the head of the link map of the caller's object, as glibc says.
    let says = real::handle_at(caller)
        .map(|map| unsafe { object::says_paths((*map.cast::<LinkMap>()).dynamic, is_path) });
    usize::from(says == Some(false))
}

/// Opens a library, and patches it and its libraries before the program sees them.
unsafe extern "C-unwind" fn open(path: *const c_char, mode: c_int) -> *mut c_void {
    // SAFETY: the real function's address and type; the caller's arguments.
    let handle = unsafe {
        let real: unsafe extern "C-unwind" fn(*const c_char, c_int) -> *mut c_void =
            core::mem::transmute(DLOPEN.load(Relaxed)); // written by the constructor
        real(path, mode)
    };
    if !handle.is_null() {
        look_again();
        // SAFETY: no preconditions. Our failed look-ups are not the program's errors.
        unsafe { libc::dlerror() };
    }
    handle
}

#[cfg(test)]
mod tests;
