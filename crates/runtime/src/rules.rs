//! LOCKWRIGHT_RULES: which mutexes have a lock of their own, by who calls or where the mutex lies.

use crate::access::{self, Access};
use crate::env::{cut, say, variable};
use crate::real;
use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char};

/// Rules that we hold: one place each, beside the default's and the early one.
pub(crate) const RULES: usize = 29;
/// Bytes of LOCKWRIGHT_RULES that we hold.
const TEXT: usize = 16 * 1024;

/// Which mutexes a rule is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// Those first contended by a call from these addresses.
    Call,
    /// Those at these addresses.
    Mutex,
    /// Those first contended by a call from this module.
    Library,
}

/// One rule. `low..high` are offsets from the module's load address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rule<'a> {
    what: What,
    module: &'a [u8],
    low: usize,
    high: usize,
    place: u32,
}

struct Store {
    text: [u8; TEXT],
    rules: [Option<Rule<'static>>; RULES],
    program: [u8; 256],
    program_len: usize,
}

struct Shared(UnsafeCell<Store>);
// SAFETY: written by `load`, once, before the policy table is published; read after that.
unsafe impl Sync for Shared {}
static STORE: Shared = Shared(UnsafeCell::new(Store {
    text: [0; TEXT],
    rules: [None; RULES],
    program: [0; 256],
    program_len: 0,
}));

fn load_program(store: &mut Store) {
    let mut path = [0_u8; 4096];
    let name = if access::now() == Access::All {
        let name = c"/proc/self/exe".as_ptr();
        // SAFETY: a NUL-terminated path, and a buffer of that size.
        let len = unsafe { libc::readlink(name, path.as_mut_ptr().cast(), path.len()) };
        &path[..usize::try_from(len).unwrap_or(0)]
    } else {
        // As it was started, which a symbolic link may call otherwise.
        // SAFETY: no preconditions.
        let name = unsafe { libc::getauxval(libc::AT_EXECFN) } as *const c_char;
        // SAFETY: the kernel's own C string, at the top of the stack.
        if name.is_null() { b"".as_slice() } else { unsafe { CStr::from_ptr(name) }.to_bytes() }
    };
    let name = base_name(name);
    store.program_len = name.len().min(store.program.len());
    store.program[..store.program_len].copy_from_slice(&name[..store.program_len]);
}

/// Reads LOCKWRIGHT_RULES. `place` gives a lock's specification one of [`RULES`] places, or says what is wrong with it.
///
/// # Safety
/// Called once, by the constructor, before the policy table is published.
pub(crate) unsafe fn load(mut place: impl FnMut(&[u8]) -> Result<u32, &'static [u8]>) {
    let Some(text) = variable(c"LOCKWRIGHT_RULES") else { return };
    // SAFETY: nobody reads it before the table is published.
    let store = unsafe { &mut *STORE.0.get() };
    load_program(store);
    real::find_objects(); // now: it waits for a lock that the thread which waits for ours may hold
    if text.len() > TEXT {
        say(&[b"LOCKWRIGHT_RULES is longer than 16384 bytes: no rule applies\n"]);
        return;
    }
    store.text[..text.len()].copy_from_slice(text);
    // SAFETY: in a static, and not written again.
    let text: &'static [u8] =
        unsafe { core::slice::from_raw_parts(store.text.as_ptr(), text.len()) };
    let mut slots = store.rules.iter_mut(); // without gaps: `rule_for` ends at the first
    for piece in text.split(|&byte| byte == b';').filter(|piece| !piece.is_empty()) {
        let placed = match parse(piece) {
            Some((rule, spec)) => place(spec).map(|place| Rule { place, ..rule }),
            None => Err(BAD),
        };
        match placed {
            Ok(rule) => {
                if let Some(slot) = slots.next() {
                    *slot = Some(rule);
                }
            }
            Err(why) => say(&[why, b"'", piece, b"'\n"]),
        }
    }
}

/// What is said of a rule that can't be understood.
pub(crate) const BAD: &[u8] = b"bad rule, it does not apply: ";

/// Understands `WHAT:TARGET=SPEC`: the rule, without a place, and the specification.
fn parse(piece: &[u8]) -> Option<(Rule<'_>, &[u8])> {
    let (what, rest) = cut(piece, b':')?;
    let (target, spec) = cut(rest, b'=')?;
    let what = match what {
        b"call" => What::Call,
        b"mutex" => What::Mutex,
        b"lib" => {
            let rule =
                Rule { what: What::Library, module: target, low: 0, high: usize::MAX, place: 0 };
            return Some((rule, spec));
        }
        _ => return None,
    };
    // The last '+': a module's name may have some of its own (libstdc++.so.6).
    let plus = target.iter().rposition(|&byte| byte == b'+')?;
    let (low, high) = cut(&target[plus + 1..], b'-')?;
    let rule = Rule { what, module: &target[..plus], low: hex(low)?, high: hex(high)?, place: 0 };
    Some((rule, spec))
}

fn hex(text: &[u8]) -> Option<usize> {
    let digits = core::str::from_utf8(text.strip_prefix(b"0x")?).ok()?;
    usize::from_str_radix(digits, 16).ok()
}

fn base_name(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or(path)
}

/// The place that the first fitting rule gives to this mutex, contended by a call at `caller`.
///
/// Objects are found by glibc, from 2.35 on; without it no rule fits.
pub(crate) fn rule_for(mutex: usize, caller: usize) -> Option<u32> {
    // SAFETY: the policy table is published: nobody writes any more.
    let store = unsafe { &*STORE.0.get() };
    store.rules[0]?;
    let (calling, holding) = (locate(store, caller), locate(store, mutex));
    let rules = store.rules.iter().map_while(|rule| rule.as_ref());
    for rule in rules {
        let at = if rule.what == What::Mutex { holding } else { calling };
        if let Some((module, offset)) = at
            && module == rule.module
            && (rule.low..rule.high).contains(&offset)
        {
            return Some(rule.place);
        }
    }
    None
}

/// The module that an address belongs to, and its offset there.
fn locate(store: &Store, address: usize) -> Option<(&[u8], usize)> {
    let found = real::object_at(address)?;
    let name = found.name();
    // The program itself has no name there.
    let name = if name.is_empty() { &store.program[..store.program_len] } else { base_name(name) };
    Some((name, address - found.map_start as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_name_modules_with_plus_signs() {
        let (rule, spec) = parse(b"call:libstdc++.so.6+0x10-0x20=fifo").unwrap();
        assert_eq!(rule.module, b"libstdc++.so.6");
        assert_eq!(spec, b"fifo");
        assert_eq!((rule.what, rule.low, rule.high), (What::Call, 0x10, 0x20));
        let (rule, _) = parse(b"lib:a.so=mcs").unwrap();
        assert_eq!((rule.what, rule.module), (What::Library, b"a.so".as_slice()));
        for bad in ["call:a=fifo", "mutex:a+10-20=fifo", "x:a=fifo", "lib"] {
            assert!(parse(bad.as_bytes()).is_none(), "{bad}");
        }
    }
}
