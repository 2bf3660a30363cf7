//! Which calls of `pthread_mutex_lock` may delegate: LOCKWRIGHT_DELEGATE, which the command writes.
//!
//! `all`, or places: `+1200-1284,libfoo.so.1+2f00-2f40`, hexadecimal distances from where the object is loaded; without a name, the program.
//! Before them may stand the program's file, with a colon: other programs, which this one starts, delegate nothing.

use crate::account::variable;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicUsize};

const MOST: usize = 64;
/// Where places begin and end, as addresses; they end with an empty one.
static PLACES: [[AtomicUsize; 2]; MOST] = [const { [const { AtomicUsize::new(0) }; 2] }; MOST];
static ALL: AtomicBool = AtomicBool::new(false);
/// Where `liblockwright.so` is: its own calls lock.
static LIBRARY: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
/// LOCKWRIGHT_DELEGATE_FREE is `ask`: sections that find their mutex free go the same way as the others, to try that out.
static ASKS_FOR_FREE: AtomicBool = AtomicBool::new(false);

/// May a thread take a free mutex, and run its section as ever?
#[inline]
pub(crate) fn takes_free() -> bool {
    !ASKS_FOR_FREE.load(Relaxed) // as below
}

/// May the call that returns to `caller` delegate?
#[inline]
pub(crate) fn allows(caller: usize) -> bool {
    // Relaxed, here and below: written by our constructor.
    ALL.load(Relaxed) && !is_in(&LIBRARY, caller)
        || PLACES
            .iter()
            .take_while(|[_, end]| end.load(Relaxed) != 0)
            .any(|place| is_in(place, caller))
}

fn is_in([begin, end]: &[AtomicUsize; 2], caller: usize) -> bool {
    (begin.load(Relaxed)..end.load(Relaxed)).contains(&caller.wrapping_sub(1))
}

/// Reads the variable. `library`: an address in `liblockwright.so`. `false`: nothing may delegate.
pub(crate) fn read(library: usize) -> bool {
    find_library(library);
    let Some(words) = variable(b"LOCKWRIGHT_DELEGATE") else { return false };
    ASKS_FOR_FREE.store(variable(b"LOCKWRIGHT_DELEGATE_FREE") == Some(b"ask"), Relaxed);
    let words = match split(words, b':') {
        Some((file, _)) if !is_program(file) => return false,
        Some((_, words)) => words,
        None => words,
    };
    if words == b"all" {
        ALL.store(true, Relaxed);
        return true;
    }
    let mut count = 0;
    for word in words.split(|byte| *byte == b',') {
        let Some((object, place)) = split(word, b'+') else { continue };
        let Some((begin, end)) = split(place, b'-') else { continue };
        let (Some(begin), Some(end)) = (hexadecimal(begin), hexadecimal(end)) else { continue };
        let Some(base) = base(object).filter(|_| count + 1 < MOST && begin < end) else { continue };
        PLACES[count][0].store(base + begin, Relaxed);
        PLACES[count][1].store(base + end, Relaxed);
        count += 1;
    }
    count > 0
}

/// Is this the file that the process runs?
fn is_program(file: &[u8]) -> bool {
    let mut path = [0_u8; 512];
    // SAFETY: a path that ends with 0, and as much room as it says.
    let length =
        unsafe { libc::readlink(c"/proc/self/exe".as_ptr(), path.as_mut_ptr().cast(), path.len()) };
    usize::try_from(length).is_ok_and(|length| path[..length] == *file)
}

fn split(word: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let position = word.iter().rposition(|byte| *byte == at)?;
    Some((&word[..position], &word[position + 1..]))
}

fn hexadecimal(word: &[u8]) -> Option<usize> {
    let text = core::str::from_utf8(word).ok()?;
    usize::from_str_radix(text, 16).ok()
}

/// Finds where the object with this address begins and ends.
fn find_library(address: usize) {
    unsafe extern "C" fn look(
        info: *mut libc::dl_phdr_info,
        _: usize,
        address: *mut core::ffi::c_void,
    ) -> core::ffi::c_int {
        // SAFETY: the dynamic linker's list of segments, for the time of this call.
        let (base, segments) = unsafe {
            let count = usize::from((*info).dlpi_phnum);
            ((*info).dlpi_addr as usize, core::slice::from_raw_parts((*info).dlpi_phdr, count))
        };
        let loaded = segments.iter().filter(|segment| segment.p_type == libc::PT_LOAD);
        let ends = loaded.map(|segment| {
            let begin = base.wrapping_add(segment.p_vaddr as usize);
            (begin, begin.wrapping_add(segment.p_memsz as usize))
        });
        let whole = ends.reduce(|(begin, end), (b, e)| (begin.min(b), end.max(e)));
        let Some((begin, end)) =
            whole.filter(|(begin, end)| (*begin..*end).contains(&address.addr()))
        else {
            return 0;
        };
        LIBRARY[0].store(begin, Relaxed);
        LIBRARY[1].store(end, Relaxed);
        1
    }
    let address = core::ptr::without_provenance_mut(address);
    // SAFETY: the function has the right type, and only looks at the address.
    unsafe { libc::dl_iterate_phdr(Some(look), address) };
}

/// Where the object with this file name is loaded; the program's has none.
fn base(object: &[u8]) -> Option<usize> {
    struct WantedObject<'a> {
        name: &'a [u8],
        base: Option<usize>,
    }
    unsafe extern "C" fn look(
        info: *mut libc::dl_phdr_info,
        _: usize,
        wanted: *mut core::ffi::c_void,
    ) -> core::ffi::c_int {
        // SAFETY: ours, and the dynamic linker's, whose names end with 0.
        let (wanted, path) = unsafe {
            let name = (*info).dlpi_name;
            let path = if name.is_null() { c"" } else { core::ffi::CStr::from_ptr(name) };
            (&mut *wanted.cast::<WantedObject<'_>>(), path.to_bytes())
        };
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        if name != wanted.name {
            return 0;
        }
        // SAFETY: the dynamic linker's, for the time of this call.
        wanted.base = Some(unsafe { (*info).dlpi_addr } as usize);
        1
    }
    let mut wanted = WantedObject { name: object, base: None };
    // SAFETY: the function has the right type, and ours stays.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut wanted).cast()) };
    wanted.base
}
