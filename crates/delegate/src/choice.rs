//! Which calls of `pthread_mutex_lock` may delegate: LOCKWRIGHT_DELEGATE, which the command writes.
//!
//! `all`, or places in the program's file: `1200-1284,2f00-2f40`, hexadecimal distances from where the file is loaded.

use crate::account::variable;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicUsize};

const MOST: usize = 64;
/// Where places begin and end, as addresses; they end with an empty one.
static PLACES: [[AtomicUsize; 2]; MOST] = [const { [const { AtomicUsize::new(0) }; 2] }; MOST];
static ALL: AtomicBool = AtomicBool::new(false);

/// May the call that returns to `caller` delegate?
#[inline]
pub(crate) fn allows(caller: usize) -> bool {
    // Relaxed, here and below: written by our constructor.
    ALL.load(Relaxed)
        || PLACES
            .iter()
            .map(|[begin, end]| (begin.load(Relaxed), end.load(Relaxed)))
            .take_while(|(_, end)| *end != 0)
            .any(|(begin, end)| (begin..end).contains(&caller.wrapping_sub(1)))
}

/// Reads the variable. `false`: nothing may delegate.
pub(crate) fn read() -> bool {
    let Some(words) = variable(b"LOCKWRIGHT_DELEGATE") else { return false };
    if words == b"all" {
        ALL.store(true, Relaxed);
        return true;
    }
    let base = base();
    let mut count = 0;
    for word in words.split(|byte| *byte == b',') {
        let mut ends = word.split(|byte| *byte == b'-').map(hexadecimal);
        let (Some(Some(begin)), Some(Some(end)), None) = (ends.next(), ends.next(), ends.next())
        else {
            continue;
        };
        if count + 1 < MOST && begin < end {
            PLACES[count][0].store(base + begin, Relaxed);
            PLACES[count][1].store(base + end, Relaxed);
            count += 1;
        }
    }
    count > 0
}

fn hexadecimal(word: &[u8]) -> Option<usize> {
    let text = core::str::from_utf8(word).ok()?;
    usize::from_str_radix(text, 16).ok()
}

/// How far the program's file is moved from the addresses that it names.
fn base() -> usize {
    unsafe extern "C" fn first(
        info: *mut libc::dl_phdr_info,
        _: usize,
        base: *mut core::ffi::c_void,
    ) -> core::ffi::c_int {
        // SAFETY: the dynamic linker's, and ours. The program comes first.
        unsafe { base.cast::<usize>().write((*info).dlpi_addr as usize) };
        1
    }
    let mut base = 0_usize;
    // SAFETY: the function has the right type, and the word stays.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut base).cast()) };
    base
}
