//! The LOCKWRIGHT_* variables, read once by our constructor.
//!
//! * `LOCKWRIGHT_LOCK=NAME[:key=value,...]`: the lock of every mutex that no rule names (default `auto`).
//! * `LOCKWRIGHT_TOPOLOGY=big:0-3,little:4-7`: the CPUs' classes.
//! * `LOCKWRIGHT_EMULATE=big:0,little:1x3.75`: the same, and the little CPUs compute 3.75 times as long.
//! * `LOCKWRIGHT_RULES=call:MODULE+0xLO-0xHI=SPEC;mutex:MODULE+0xLO-0xHI=SPEC;lib:MODULE=SPEC`: written by
//!   `lockwright run --config`; the first rule that fits decides, when a mutex is first contended.
//! * `LOCKWRIGHT_EPOCHS=NAME=FUNCTION:SLO_NS[@PERCENTILE];...`: functions whose calls are epochs, see `got.rs`.
//!
//! * `LOCKWRIGHT_SLO=NS`, `LOCKWRIGHT_PERCENTILE=99.9`: the SLO of every epoch, and the percentile of those that
//!   were given none (`epoch`).
//! * `LOCKWRIGHT_STATS=DIR`: where to record what epochs came to (`recording`).
//! * `LOCKWRIGHT_TRACE=DIR`, `LOCKWRIGHT_TRACE_LIMIT=N`: where to record operations on mutexes, up to about N
//!   acquisitions (`trace`).
//!
//! What can't be understood is said once, on stderr, and the program goes on: a bad lock with glibc's
//! algorithm, a bad rule or topology without it.

use crate::policy::{self, Front, How, PLACES, Policy};
use crate::{emulate, epoch, machine, real, recording, trace, whole};
use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU8, AtomicU32};
use lockwright_locks::catalog::{CATALOG, find};
use lockwright_locks::entry::Kind;
use lockwright_locks::front::{SPIN_NS, Tuning, Window};
use lockwright_native::topology::{SpecProblem, Topology};

/// Rules that we hold: one place each, beside the default's and the early one.
const RULES: usize = PLACES - 2;
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
    topology: Topology,
    /// LOCKWRIGHT_TOPOLOGY, for when CPUs come or go; zeroes after it.
    classes: [u8; 512],
}

struct Shared(UnsafeCell<Store>);
// SAFETY: written by `load`, once, before the policy table is published; read after that.
unsafe impl Sync for Shared {}
static STORE: Shared = Shared(UnsafeCell::new(Store {
    text: [0; TEXT],
    rules: [None; RULES],
    program: [0; 256],
    program_len: 0,
    topology: Topology::new(),
    classes: [0; 512],
}));

/// How long waiters stay awake, ns; what rwlocks and spin locks use.
static SPIN: AtomicU32 = AtomicU32::new(SPIN_NS);
/// 0: not looked at yet, 1: ours, 2: glibc's.
static GLIBC_ONLY: AtomicU8 = AtomicU8::new(0);

/// How long a waiter of no particular lock stays awake, ns.
pub(crate) fn spin_ns() -> u32 {
    SPIN.load(Relaxed) // a hint
}

/// Should everything be glibc's? The answer never changes.
pub(crate) fn is_glibc_only() -> bool {
    match GLIBC_ONLY.load(Relaxed) {
        0 => {
            // Before our constructor too: the environment is the same, so every thread finds the same.
            let usable = Tuning::for_cpus(2);
            let ours = variable(c"LOCKWRIGHT_LOCK").is_none_or(
                |spec| matches!(parse(spec, usable), Ok(p) if !matches!(p.how, How::Glibc)),
            );
            GLIBC_ONLY.store(if ours { 1 } else { 2 }, Relaxed);
            !ours
        }
        answer => answer == 2,
    }
}

unsafe extern "C" {
    /// As `getenv`, but null in a program that runs with more rights than its caller.
    fn secure_getenv(name: *const c_char) -> *const c_char;
}

pub(crate) fn variable(name: &CStr) -> Option<&'static [u8]> {
    // SAFETY: a NUL-terminated name; the value stays as long as nobody changes the environment, and our
    // constructor copies what it keeps.
    unsafe {
        let value = secure_getenv(name.as_ptr());
        if value.is_null() { None } else { Some(CStr::from_ptr(value).to_bytes()) }
    }
    .filter(|value| !value.is_empty())
}

/// Reads the variables and publishes the policies.
///
/// # Safety
/// Called once, by the constructor.
pub(crate) unsafe fn load() {
    // SAFETY: nobody reads it before `publish` below.
    let store = unsafe { &mut *STORE.0.get() };
    let classes = variable(c"LOCKWRIGHT_TOPOLOGY").unwrap_or(b"");
    let learnt = learn_topology(&mut store.topology, classes);
    if learnt == Err(Unlearnt::BadClasses) {
        let hint: &[u8] =
            b"': the machine's own classes stay\nhint: lockwright topology --set SPEC\n";
        say(&[b"bad LOCKWRIGHT_TOPOLOGY '", classes, hint]);
    } else if classes.len() < store.classes.len() {
        store.classes[..classes.len()].copy_from_slice(classes);
    }
    if let Some(text) = variable(c"LOCKWRIGHT_EMULATE") {
        // SAFETY: called once.
        unsafe { load_emulation(&mut store.topology, text) };
    }
    store.topology.publish();
    machine::learn(learnt != Err(Unlearnt::Unread));
    // As for several CPUs: `Policy::tuning` adapts it to how many there are, at each use.
    let tuning = Tuning::for_cpus(machine::cpus().max(2));
    SPIN.store(tuning.on(machine::cpus()).spin_ns, Relaxed); // a hint

    let default = variable(c"LOCKWRIGHT_LOCK").unwrap_or(b"auto");
    let default = parse(default, tuning).unwrap_or_else(|error| {
        error.say(default);
        Policy::new(How::Glibc, tuning)
    });
    let mut policies = [default; PLACES - 1];
    load_program(store);
    load_rules(store, &mut policies, tuning);
    // SAFETY: called once.
    unsafe {
        policy::publish(&policies);
        epoch::load();
        recording::load();
        trace::load();
    }
}

/// # Safety
/// Called once, by the constructor.
unsafe fn load_emulation(topology: &mut Topology, text: &[u8]) {
    let spec = core::str::from_utf8(text).unwrap_or("");
    match topology.set_emulated(spec) {
        // SAFETY: our caller's promise.
        Ok(factors) => unsafe { emulate::enable(topology, &factors, text) },
        Err(error) => {
            let why: &[u8] = match error.problem {
                SpecProblem::UnknownCpu(_) => b"': this machine has no such cpu",
                SpecProblem::CpuMissing(_) => b"': a cpu is online and in no class",
                SpecProblem::BadFactor => b"': a factor is a number from 1 to 100, as in x3.75",
                SpecProblem::BigIsSlowed => b"': big cores keep their speed",
                _ => b"': not as in big:0,little:1x3.75",
            };
            let piece = error.piece.as_bytes();
            say(&[b"bad LOCKWRIGHT_EMULATE, at '", piece, why, b"; nothing is emulated\n"]);
        }
    }
}

/// Why the locks were not given what they should know of the CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unlearnt {
    /// The kernel's files can't be read now: they were given nothing.
    Unread,
    /// The specification is bad: they were given the machine's own classes.
    BadClasses,
}

/// Reads the CPUs' classes, and gives them to the locks.
fn learn_topology(topology: &mut Topology, specification: &[u8]) -> Result<(), Unlearnt> {
    if !topology.read(b"/sys") {
        return Err(Unlearnt::Unread);
    }
    let fine = specification.is_empty()
        || core::str::from_utf8(specification).is_ok_and(|spec| topology.set(spec).is_ok());
    topology.publish();
    if fine { Ok(()) } else { Err(Unlearnt::BadClasses) }
}

/// Reads the CPUs' classes again; `false`: they can't be read now, and nothing has changed for the locks.
///
/// # Safety
/// One caller at a time, after `load`.
pub(crate) unsafe fn read_topology() -> bool {
    if emulate::is_on() {
        return true; // its classes are not the machine's
    }
    let store = STORE.0.get();
    // SAFETY: the caller's promise; `rule_for`, which reads the rest meanwhile, does not look at the topology.
    let (topology, classes) = unsafe { (&mut (*store).topology, &(*store).classes) };
    let length = classes.iter().position(|&byte| byte == 0).unwrap_or(classes.len());
    learn_topology(topology, &classes[..length]) != Err(Unlearnt::Unread)
}

fn load_program(store: &mut Store) {
    let mut path = [0_u8; 4096];
    let name = c"/proc/self/exe".as_ptr();
    // SAFETY: a NUL-terminated path, and a buffer of that size.
    let len = unsafe { libc::readlink(name, path.as_mut_ptr().cast(), path.len()) };
    let name = base_name(&path[..usize::try_from(len).unwrap_or(0)]);
    store.program_len = name.len().min(store.program.len());
    store.program[..store.program_len].copy_from_slice(&name[..store.program_len]);
}

fn load_rules(store: &mut Store, policies: &mut [Policy], tuning: Tuning) {
    let Some(text) = variable(c"LOCKWRIGHT_RULES") else { return };
    if text.len() > TEXT {
        say(&[b"LOCKWRIGHT_RULES is longer than 16384 bytes: no rule applies\n"]);
        return;
    }
    store.text[..text.len()].copy_from_slice(text);
    // SAFETY: in a static, and not written again.
    let text: &'static [u8] =
        unsafe { core::slice::from_raw_parts(store.text.as_ptr(), text.len()) };
    let mut place = 1; // the default's
    for piece in text.split(|&byte| byte == b';').filter(|piece| !piece.is_empty()) {
        match parse_rule(piece, tuning) {
            Some((mut rule, policy)) if place < policies.len() => {
                policies[place] = policy;
                let slot = &mut store.rules[place - 1]; // without gaps: `rule_for` ends at the first
                place += 1;
                rule.place = place as u32;
                *slot = Some(rule);
            }
            Some(_) => {
                say(&[b"too many rules, this one does not apply: '", piece, b"'\n"]);
            }
            None => say(&[b"bad rule, it does not apply: '", piece, b"'\n"]),
        }
    }
}

fn parse_rule<'a>(piece: &'a [u8], tuning: Tuning) -> Option<(Rule<'a>, Policy)> {
    let (what, rest) = cut(piece, b':')?;
    let (target, spec) = cut(rest, b'=')?;
    let policy = parse(spec, tuning).ok()?;
    let what = match what {
        b"call" => What::Call,
        b"mutex" => What::Mutex,
        b"lib" => {
            let rule =
                Rule { what: What::Library, module: target, low: 0, high: usize::MAX, place: 0 };
            return Some((rule, policy));
        }
        _ => return None,
    };
    // The last '+': a module's name may have some of its own (libstdc++.so.6).
    let plus = target.iter().rposition(|&byte| byte == b'+')?;
    let (low, high) = cut(&target[plus + 1..], b'-')?;
    let rule = Rule { what, module: &target[..plus], low: hex(low)?, high: hex(high)?, place: 0 };
    Some((rule, policy))
}

pub(crate) fn cut(text: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let place = text.iter().position(|&byte| byte == at)?;
    Some((&text[..place], &text[place + 1..]))
}

fn hex(text: &[u8]) -> Option<usize> {
    let digits = core::str::from_utf8(text.strip_prefix(b"0x")?).ok()?;
    usize::from_str_radix(digits, 16).ok()
}

fn base_name(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or(path)
}

/// Why a lock's specification is bad.
#[derive(Debug, PartialEq, Eq)]
enum Bad<'a> {
    Name,
    Option(&'a [u8]),
}

impl Bad<'_> {
    fn say(&self, spec: &[u8]) {
        let name = spec.split(|&byte| byte == b':').next().unwrap_or(spec);
        match self {
            Self::Name => say(&[
                b"unknown lock '",
                name,
                b"', the nearest is '",
                nearest(name).as_bytes(),
                b"'; running on glibc's locks\n",
            ]),
            Self::Option(piece) => say(&[
                b"bad option '",
                piece,
                b"' of lock '",
                name,
                b"', see `lockwright explain`; running on glibc's locks\n",
            ]),
        }
    }
}

/// Understands `NAME[:key=value,...]`.
fn parse<'a>(spec: &'a [u8], mut tuning: Tuning) -> Result<Policy, Bad<'a>> {
    let (name, options) = cut(spec, b':').unwrap_or((spec, b""));
    if name == b"glibc" {
        return if options.is_empty() {
            Ok(Policy::new(How::Glibc, tuning))
        } else {
            Err(Bad::Option(options))
        };
    }
    let entry = core::str::from_utf8(name).ok().and_then(find).ok_or(Bad::Name)?;
    let how = match entry.kind {
        Kind::Front => {
            let front = Front::find(entry.id).ok_or(Bad::Name)?;
            tuning = (front.defaults)(tuning);
            How::Front(front)
        }
        Kind::Whole => {
            tuning.window = Window::Epoch; // for those that reorder
            How::Whole(whole::find(entry.id).ok_or(Bad::Name)?)
        }
    };
    for piece in options.split(|&byte| byte == b',').filter(|piece| !piece.is_empty()) {
        let value = cut(piece, b'=').and_then(|(key, value)| {
            let option = entry.options.iter().find(|option| option.key.as_bytes() == key)?;
            let value: u32 = core::str::from_utf8(value).ok()?.parse().ok()?;
            let known = (option.min..=option.max).contains(&value) && tuning.set(option.key, value);
            known.then_some(())
        });
        value.ok_or(Bad::Option(piece))?;
    }
    Ok(Policy::new(how, tuning))
}

/// The catalogue's name that differs from `name` in the fewest letters.
fn nearest(name: &[u8]) -> &'static str {
    let ids = CATALOG.iter().map(|entry| entry.id);
    ids.min_by_key(|id| distance(id.as_bytes(), name)).unwrap_or("auto")
}

/// Letters to insert, delete or change (Levenshtein); of names up to 31 letters.
fn distance(a: &[u8], b: &[u8]) -> usize {
    let (a, b) = (&a[..a.len().min(31)], &b[..b.len().min(31)]);
    let mut row: [usize; 32] = core::array::from_fn(|at| at);
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let change = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}

/// One message on stderr, cut if it is very long.
pub(crate) fn say(pieces: &[&[u8]]) {
    let mut line = [0_u8; 512];
    let mut len = 0;
    for piece in [b"lockwright: ".as_slice()].iter().chain(pieces) {
        let room = &mut line[len..];
        let take = piece.len().min(room.len());
        room[..take].copy_from_slice(&piece[..take]);
        len += take;
    }
    line[len - 1] = b'\n'; // where it is already, unless it was cut
    write_to_stderr(&line[..len]);
}

/// Says that nothing is recorded in the folder `dir` of `name`, for this error of the system's.
pub(crate) fn refused(name: &[u8], dir: &[u8], error: c_int) {
    unsafe extern "C" {
        /// What an error number means, in English; null if nothing.
        fn strerrordesc_np(error: c_int) -> *const c_char;
    }
    // SAFETY: no preconditions; the text is a constant.
    let why = unsafe {
        let text = strerrordesc_np(error);
        if text.is_null() { c"unknown error" } else { CStr::from_ptr(text) }
    };
    say(&[b"nothing is recorded in ", name, b" '", dir, b"': ", why.to_bytes(), b"\n"]);
}

/// By raw system calls: libc's `write` is a cancellation point. If nobody reads stderr any more, the SIGPIPE for it is
/// ours, not the program's. A failure to speak is nobody's failure.
fn write_to_stderr(line: &[u8]) {
    const SET: usize = size_of::<u64>(); // the kernel's signal set
    let pipe = 1_u64 << (libc::SIGPIPE - 1);
    let (mut old, mut pending) = (0_u64, 0_u64);
    // SAFETY: the thread's own `errno` and mask; sets of that size; a buffer of that length.
    unsafe {
        let errno = libc::__errno_location();
        let kept = *errno;
        let mask = libc::SYS_rt_sigprocmask;
        libc::syscall(mask, libc::SIG_BLOCK, &raw const pipe, &raw mut old, SET);
        libc::syscall(libc::SYS_rt_sigpending, &raw mut pending, SET);
        let wrote = libc::syscall(libc::SYS_write, libc::STDERR_FILENO, line.as_ptr(), line.len());
        if wrote < 0 && *errno == libc::EPIPE && pending & pipe == 0 {
            let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            let about: *mut libc::siginfo_t = null_mut();
            libc::syscall(libc::SYS_rt_sigtimedwait, &raw const pipe, about, &raw const now, SET);
        }
        libc::syscall(mask, libc::SIG_SETMASK, &raw const old, null_mut::<u64>(), SET);
        *errno = kept;
    }
}

/// glibc's `struct dl_find_object`.
#[repr(C)]
struct Found {
    flags: u64,
    map_start: *mut c_void,
    map_end: *mut c_void,
    link_map: *mut LinkMap,
    eh_frame: *mut c_void,
    reserved: [u64; 7],
}

/// The public head of glibc's `struct link_map`.
#[repr(C)]
struct LinkMap {
    address: usize,
    name: *const c_char,
}

/// The place that the first fitting rule gives to this mutex, contended by a call at `caller`.
///
/// Objects are found by `_dl_find_object` (glibc 2.35), which takes no lock; without it no rule fits.
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
    let found = object_at(address)?;
    // SAFETY: glibc's own map of the object, and its NUL-terminated name.
    let name = unsafe { CStr::from_ptr((*found.link_map).name) }.to_bytes();
    // The program itself has no name there.
    let name = if name.is_empty() { &store.program[..store.program_len] } else { base_name(name) };
    Some((name, address - found.map_start as usize))
}

/// The map of the object that an address belongs to: what `dlopen` hands out as its handle.
#[cfg(target_arch = "x86_64")] // only got.rs asks
pub(crate) fn handle_at(address: usize) -> Option<*mut c_void> {
    object_at(address).map(|found| found.link_map.cast())
}

fn object_at(address: usize) -> Option<Found> {
    static FIND: real::Symbol = real::Symbol::new(c"_dl_find_object");
    let find = FIND.get();
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

#[cfg(test)]
mod tests {
    use super::*;

    fn tuning() -> Tuning {
        Tuning::for_cpus(2)
    }

    #[test]
    fn every_lock_of_the_catalogue_is_understood() {
        for entry in CATALOG {
            assert!(parse(entry.id.as_bytes(), tuning()).is_ok(), "{}", entry.id);
        }
    }

    #[test]
    fn options_are_checked_against_the_catalogue() {
        assert!(parse(b"fifo:bypass=8,spin=0", tuning()).is_ok());
        for bad in ["bypass=512", "bypass=-1", "bypass", "spinners=1", "spin=x"] {
            let spec = std::format!("fifo:{bad}");
            let spec: &[u8] = spec.as_bytes();
            assert!(matches!(parse(spec, tuning()), Err(Bad::Option(_))), "{bad}");
        }
        assert!(matches!(parse(b"fifp", tuning()), Err(Bad::Name)));
        assert!(matches!(parse(b"", tuning()), Err(Bad::Name)));
    }

    #[test]
    fn the_nearest_name_is_found() {
        assert_eq!(nearest(b"fifp"), "fifo");
        assert_eq!(nearest(b"bargin"), "barging");
        assert_eq!(nearest(b"mcsstp"), "mcs-stp");
    }

    #[test]
    fn rules_name_modules_with_plus_signs() {
        let (rule, _) = parse_rule(b"call:libstdc++.so.6+0x10-0x20=fifo", tuning()).unwrap();
        assert_eq!(rule.module, b"libstdc++.so.6");
        assert_eq!((rule.what, rule.low, rule.high), (What::Call, 0x10, 0x20));
        let (rule, _) = parse_rule(b"lib:a.so=mcs", tuning()).unwrap();
        assert_eq!((rule.what, rule.module), (What::Library, b"a.so".as_slice()));
        for bad in ["call:a=fifo", "mutex:a+10-20=fifo", "call:a+0x1-0x2=nope", "x:a=fifo", "lib"] {
            assert!(parse_rule(bad.as_bytes(), tuning()).is_none(), "{bad}");
        }
    }
}
