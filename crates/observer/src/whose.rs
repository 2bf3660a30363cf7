//! Identifies lock implementations in a file by the names of its functions, and by its own name.
//!
//! Locks that don't use libpthread sleep on their own futexes. A preloaded library can't reach them, so users should
//! know where they come from.

use lockwright_files::map_file;
use object::elf::PT_LOAD;
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader, SectionTable};
use object::{Endianness, Object, ObjectSection, ObjectSymbol, ReadRef, SymbolKind};
use std::fmt;
use std::ops::Range;
use std::path::Path;

/// The implementation that a lock belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Whose {
    /// The locks of Rust's standard library.
    RustStd,
    /// The crate `parking_lot`.
    ParkingLot,
    /// Rust's standard library or a crate: stripped files don't tell.
    Rust,
    /// Go's runtime.
    Go,
    /// Google's abseil.
    Abseil,
    /// Facebook's folly.
    Folly,
    /// GNOME's GLib.
    GLib,
    /// Qt.
    Qt,
    /// An OpenMP runtime.
    OpenMp,
    /// The waits of C++'s `std::atomic` and `std::future`.
    CppAtomic,
    /// The allocator jemalloc.
    Jemalloc,
    /// The allocator tcmalloc.
    Tcmalloc,
    /// A sanitizer's runtime.
    Sanitizer,
    /// musl, a C library.
    Musl,
    /// The dynamic linker.
    Linker,
    /// glibc.
    Glibc,
}

impl fmt::Display for Whose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RustStd => "Rust std's locks",
            Self::ParkingLot => "parking_lot's locks",
            Self::Rust => "Rust: std's locks, or a crate's",
            Self::Go => "Go's own locks",
            Self::Abseil => "abseil's Mutex",
            Self::Folly => "folly's locks",
            Self::GLib => "GLib's GMutex",
            Self::Qt => "Qt's QMutex",
            Self::OpenMp => "OpenMP's runtime",
            Self::CppAtomic => "waits of std::atomic, std::future",
            Self::Jemalloc => "jemalloc",
            Self::Tcmalloc => "tcmalloc's locks",
            Self::Sanitizer => "a sanitizer's runtime",
            Self::Musl => "musl",
            Self::Linker => "the dynamic linker",
            Self::Glibc => "semaphores, barriers and other waits inside glibc",
        })
    }
}

impl Whose {
    /// Advice for a program that waits in such locks.
    pub fn advice(self) -> &'static str {
        match self {
            Self::RustStd | Self::ParkingLot | Self::Rust => {
                "use lockwright_sync's Mutex, Condvar, RwLock: docs/sync.md"
            }
            Self::Go => {
                "lockwright can't help: Go's locks are part of its scheduler. Who waits: go tool pprof \
                 http://HOST/debug/pprof/mutex"
            }
            Self::Abseil | Self::Folly | Self::CppAtomic | Self::GLib | Self::Qt => {
                "use std::mutex or lockwright::mutex in their place: docs/sync.md"
            }
            Self::OpenMp => "OMP_WAIT_POLICY says how its threads wait; its locks stay its own",
            Self::Jemalloc | Self::Tcmalloc => "try the program with another allocator",
            Self::Sanitizer => "look at a build without the sanitizer",
            Self::Musl => "build it for a glibc target, such as x86_64-unknown-linux-gnu",
            Self::Linker | Self::Glibc => {
                "glibc's semaphores, barriers and internal locks stay its own: docs/preload.md"
            }
        }
    }

    /// What can't be seen of its locks from outside, and what shows it.
    pub fn unseen(self) -> String {
        format!("{self}: waits for them aren't seen from outside. {}", self.advice())
    }

    /// By a function's name, mangled or not.
    fn of_function(name: &str) -> Option<Self> {
        const PARTS: [(&str, Whose); 17] = [
            ("11parking_lot", Whose::ParkingLot),
            ("16parking_lot_core", Whose::ParkingLot),
            ("3std3sys", Whose::RustStd),
            ("3std6thread", Whose::RustStd),
            ("3std4sync", Whose::RustStd),
            ("4absl", Whose::Abseil),
            ("AbslInternal", Whose::Abseil),
            ("5folly", Whose::Folly),
            ("11__sanitizer", Whose::Sanitizer),
            ("6__tsan", Whose::Sanitizer),
            ("6__asan", Whose::Sanitizer),
            ("__sanitizer_", Whose::Sanitizer),
            ("runtime.futex", Whose::Go),
            ("SpinLockDelay", Whose::Tcmalloc),
            ("malloc_mutex", Whose::Jemalloc),
            ("__atomic_futex_unsigned_base", Whose::CppAtomic),
            ("__platform_wait", Whose::CppAtomic),
        ];
        PARTS.iter().find(|(part, _)| name.contains(part)).map(|&(_, whose)| whose)
    }

    /// By a library's file name.
    pub fn of_object(name: &str) -> Option<Self> {
        const STARTS: [(&str, Whose); 23] = [
            ("libc.so", Whose::Glibc),
            ("libpthread.so", Whose::Glibc),
            ("ld-linux", Whose::Linker),
            ("ld-musl", Whose::Musl),
            ("libc.musl", Whose::Musl),
            ("libabsl_", Whose::Abseil),
            ("libfolly", Whose::Folly),
            ("libglib-2.0.so", Whose::GLib),
            ("libQt5Core", Whose::Qt),
            ("libQt6Core", Whose::Qt),
            ("libgomp.so", Whose::OpenMp),
            ("libomp.so", Whose::OpenMp),
            ("libiomp5.so", Whose::OpenMp),
            ("libstdc++.so", Whose::CppAtomic),
            ("libc++.so", Whose::CppAtomic),
            ("libjemalloc", Whose::Jemalloc),
            ("libtcmalloc", Whose::Tcmalloc),
            ("libstd-", Whose::RustStd),
            ("libasan.so", Whose::Sanitizer),
            ("libtsan.so", Whose::Sanitizer),
            ("liblsan.so", Whose::Sanitizer),
            ("libubsan.so", Whose::Sanitizer),
            ("libclang_rt", Whose::Sanitizer),
        ];
        STARTS.iter().find(|(start, _)| name.starts_with(start)).map(|&(_, whose)| whose)
    }
}

/// A program's or a library's file.
pub struct File {
    /// The implementation that the file's name indicates.
    by_name: Option<Whose>,
    /// The language that the file was written in.
    made_by: Option<Whose>,
    /// Lock functions, by their ranges in the file, with their implementation.
    functions: Vec<(Range<u64>, Whose)>,
}

impl File {
    /// A file that can't be read has no functions.
    pub fn read(path: &Path) -> Self {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let mut file =
            Self { by_name: Whose::of_object(&name), made_by: None, functions: Vec::new() };
        let Ok(data) = map_file(path) else { return file };
        let Ok(elf) = ElfFile64::<Endianness>::parse(&*data) else { return file };
        file.made_by = made_by(&elf);
        file.functions = functions(&elf)
            .filter_map(|(range, name)| Some((range, Whose::of_function(&name)?)))
            .collect();
        file
    }

    /// The lock implementation at that offset in the file.
    pub fn whose(&self, offset: u64) -> Option<Whose> {
        let known = self.functions.iter().find(|(range, _)| range.contains(&offset));
        known.map(|&(_, whose)| whose).or(self.by_name).or(self.made_by)
    }
}

/// Implementations that are linked into the program itself, found by its functions. Loaded libraries don't count.
pub fn linked(functions: impl IntoIterator<Item = impl AsRef<str>>) -> Vec<Whose> {
    let mut all: Vec<_> = functions
        .into_iter()
        .filter_map(|name| Whose::of_function(name.as_ref()))
        // Many programs contain these C++ templates without ever waiting in them.
        .filter(|whose| *whose != Whose::CppAtomic)
        .collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// The language, if its runtime has its own locks. This works for stripped files, too.
pub fn made_by<'data, R: ReadRef<'data>>(elf: &ElfFile64<'data, Endianness, R>) -> Option<Whose> {
    if is_go(elf.endian(), elf.elf_section_table()) {
        return Some(Whose::Go);
    }
    // The source path in the panic messages of std. `/rustc/` and a commit come before it.
    const STD: &[u8] = b"/library/std/src/";
    let constants = elf.section_by_name(".rodata").and_then(|section| section.data().ok());
    let is_rust = constants.is_some_and(|bytes| find(bytes, STD).is_some());
    is_rust.then_some(Whose::Rust)
}

/// Is this a program written in Go? Its names of sections suffice to tell.
pub fn is_go<'data, F: FileHeader, R: ReadRef<'data>>(
    endian: F::Endian,
    sections: &SectionTable<'data, F, R>,
) -> bool {
    let names: [&[u8]; 2] = [b".go.buildinfo", b".note.go.buildid"];
    names.iter().any(|name| sections.section_by_name(endian, name).is_some())
}

/// The position of `part` in `bytes`.
pub fn find(bytes: &[u8], part: &[u8]) -> Option<usize> {
    let first = *part.first()?;
    let mut from = 0;
    while let Some(at) = bytes[from..].iter().position(|&byte| byte == first) {
        if bytes[from + at..].starts_with(part) {
            return Some(from + at);
        }
        from += at + 1;
    }
    None
}

/// The range of a file's function `syscall`, which the C library has.
pub fn syscall_function(path: &Path) -> Option<Range<u64>> {
    let data = map_file(path).ok()?;
    let elf = ElfFile64::<Endianness>::parse(&*data).ok()?;
    functions(&elf).find(|(_, name)| name == "syscall").map(|(range, _)| range)
}

/// The names of functions, with their ranges in the file.
fn functions<'a>(
    elf: &'a ElfFile64<'_, Endianness>,
) -> impl Iterator<Item = (Range<u64>, String)> + 'a {
    let endian = elf.endian();
    let loads = elf.elf_program_headers().iter();
    let loads = loads.filter(move |header| header.p_type(endian) == PT_LOAD);
    let loads: Vec<_> = loads
        .map(|load| (load.p_vaddr(endian), load.p_filesz(endian), load.p_offset(endian)))
        .collect();
    let in_file = move |address: u64| {
        let holds = |&&(at, size, _): &&(u64, u64, u64)| address.wrapping_sub(at) < size;
        loads.iter().find(holds).and_then(|(at, _, offset)| offset.checked_add(address - at))
    };
    let symbols = elf.symbols().chain(elf.dynamic_symbols());
    symbols.filter(|symbol| symbol.is_definition() && symbol.kind() == SymbolKind::Text).filter_map(
        move |symbol| {
            let start = in_file(symbol.address())?;
            let end = start.checked_add(symbol.size())?;
            Some((start..end, symbol.name().ok()?.to_owned()))
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_tell_whose_they_are() {
        let whose = Whose::of_function;
        let legacy = "_ZN3std3sys4sync5mutex5futex5Mutex14lock_contended17h0123456789abcdefE";
        let v0 = "_RNvMNtNtNtNtCs1_3std3sys4sync5mutex5futexNtB2_5Mutex14lock_contended";
        assert_eq!((whose(legacy), whose(v0)), (Some(Whose::RustStd), Some(Whose::RustStd)));
        let core = "_ZN16parking_lot_core13thread_parker3imp12ThreadParker10futex_wait17hE";
        assert_eq!(whose(core), Some(Whose::ParkingLot));
        let absl = "_ZN4absl12lts_2022062324synchronization_internal6Waiter4WaitENS0_10KernelE";
        assert_eq!(whose(absl), Some(Whose::Abseil));
        assert_eq!(whose("AbslInternalPerThreadSemWait_lts_20220623"), Some(Whose::Abseil));
        assert_eq!(whose("_ZN5folly6detail17nativeFutexWaitEv"), Some(Whose::Folly));
        assert_eq!(
            whose("_ZN11__sanitizer9FutexWaitEPNS_14atomic_uint32_tEj"),
            Some(Whose::Sanitizer)
        );
        assert_eq!(whose("runtime.futex.abi0"), Some(Whose::Go));
        assert_eq!(whose("main"), None);
        assert_eq!(linked(["main", absl, v0, absl]), [Whose::RustStd, Whose::Abseil]);
    }

    #[test]
    fn libraries_tell_whose_they_are() {
        let whose = Whose::of_object;
        assert_eq!(whose("libabsl_synchronization.so.20220623"), Some(Whose::Abseil));
        assert_eq!(whose("libc.so.6"), Some(Whose::Glibc));
        assert_eq!(whose("ld-musl-x86_64.so.1"), Some(Whose::Musl));
        assert_eq!(whose("libcurl.so.4"), None);
    }

    #[test]
    fn this_program_is_rust_and_its_functions_are_found() {
        let program = std::env::current_exe().unwrap();
        let data = map_file(&program).unwrap();
        let elf = ElfFile64::<Endianness>::parse(&*data).unwrap();
        assert_eq!(made_by(&elf), Some(Whose::Rust));
        let (range, _) = functions(&elf).find(|(_, name)| name.contains("3std3sys")).unwrap();
        assert_eq!(File::read(&program).whose(range.start), Some(Whose::RustStd));
    }

    #[test]
    fn libc_has_its_function_syscall() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let libc = maps.lines().find(|line| line.ends_with("/libc.so.6")).unwrap();
        let path = libc.split_whitespace().last().unwrap();
        let range = syscall_function(path.as_ref()).unwrap();
        // A few instructions.
        assert!(range.end > range.start && range.end - range.start < 256, "{range:?}");
        assert_eq!(syscall_function("/proc/self/maps".as_ref()), None);
    }

    #[test]
    fn bytes_are_found() {
        assert_eq!(find(b"aab", b"ab"), Some(1));
        assert_eq!((find(b"aab", b"abc"), find(b"", b"a")), (None, None));
    }
}
