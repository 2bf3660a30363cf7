//! The loaded objects of this process: their relocations against symbols, and what protects their words.

mod function;

pub(crate) use function::{Lookup, hash};

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::null;
use core::sync::atomic::AtomicUsize;

const PAGE: usize = 4096;

/// How many objects were ever loaded and unloaded (base namespace).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Generation {
    pub(crate) loaded: u64,
    pub(crate) unloaded: u64,
}

impl Generation {
    /// The current one.
    pub(crate) fn now() -> Self {
        let mut now = Self::default();
        each(|info, _| {
            now = Self { loaded: info.dlpi_adds, unloaded: info.dlpi_subs };
            false
        });
        now
    }

    /// Both in one.
    pub(crate) fn number(&self) -> u64 {
        self.loaded << 32 | self.unloaded & 0xffff_ffff
    }
}

/// Calls `body` for each loaded object, with its place in the list, until it says `false`. Meanwhile other threads can't
/// load or unload anything. `body` must not do that either, nor look up a symbol.
pub(crate) fn each<F: FnMut(&libc::dl_phdr_info, usize) -> bool>(mut body: F) {
    struct State<'a, F> {
        body: &'a mut F,
        at: usize,
    }
    #[unsafe(link_section = ".lockwright.begin")]
    unsafe extern "C" fn visit<F: FnMut(&libc::dl_phdr_info, usize) -> bool>(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        state: *mut c_void,
    ) -> c_int {
        // SAFETY: `state` is ours, below; glibc lends us `info`.
        let (state, info) = unsafe { (&mut *state.cast::<State<'_, F>>(), &*info) };
        let more = (state.body)(info, state.at);
        state.at += 1;
        c_int::from(!more)
    }
    let mut state = State { body: &mut body, at: 0 };
    // SAFETY: the callback has the right type for this state.
    unsafe { libc::dl_iterate_phdr(Some(visit::<F>), (&raw mut state).cast()) };
}

fn headers(info: &libc::dl_phdr_info) -> &[libc::Elf64_Phdr] {
    if info.dlpi_phdr.is_null() {
        return &[];
    }
    // SAFETY: glibc's own description of a loaded object.
    unsafe { core::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) }
}

/// Does `address` lie in loaded code?
pub(crate) fn is_code(address: usize) -> bool {
    let mut found = false;
    each(|info, _| {
        found = headers(info).iter().any(|header| {
            header.p_type == libc::PT_LOAD
                && header.p_flags & libc::PF_X != 0
                && range(info.dlpi_addr as usize, header).contains(&address)
        });
        !found
    });
    found
}

fn range(base: usize, header: &libc::Elf64_Phdr) -> core::ops::Range<usize> {
    let start = base.wrapping_add(header.p_vaddr as usize);
    start..start.wrapping_add(header.p_memsz as usize)
}

/// The memory of a loaded object, from its first page's start.
pub(crate) fn memory(info: &libc::dl_phdr_info) -> Option<core::ops::Range<usize>> {
    let loads = || {
        let loads = headers(info).iter().filter(|header| header.p_type == libc::PT_LOAD);
        loads.map(|header| range(info.dlpi_addr as usize, header))
    };
    let start = loads().map(|range| range.start & !(PAGE - 1)).min()?;
    Some(start..loads().map(|range| range.end).max()?)
}

/// An entry of a dynamic section.
#[repr(C)]
struct Dynamic {
    tag: i64,
    value: usize,
}

#[repr(C)]
struct Rela {
    offset: usize,
    info: u64,
    addend: i64,
}

#[repr(C)]
struct DynamicEntry {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: usize,
    size: usize,
}

/// The head of a needed library's versions, and one of them.
#[repr(C)]
struct Needed {
    version: u16,
    count: u16,
    file: u32,
    first: u32,
    next: u32,
}

#[repr(C)]
struct NeededVersion {
    hash: u32,
    flags: u16,
    index: u16,
    name: u32,
    next: u32,
}

/// The head of a defined version, and its first name.
#[repr(C)]
struct Defined {
    revision: u16,
    flags: u16,
    index: u16,
    count: u16,
    hash: u32,
    first: u32,
    next: u32,
}

const DT_NULL: i64 = 0;
const DT_PLTRELSZ: i64 = 2;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_RELA: i64 = 7;
const DT_RELASZ: i64 = 8;
const DT_SONAME: i64 = 14;
const DT_RPATH: i64 = 15;
const DT_SYMBOLIC: i64 = 16;
const DT_JMPREL: i64 = 23;
const DT_RUNPATH: i64 = 29;
const DT_FLAGS: i64 = 30;
const DT_GNU_HASH: i64 = 0x6fff_fef5;
const DT_VERSYM: i64 = 0x6fff_fff0;
const DT_VERDEF: i64 = 0x6fff_fffc;
const DT_VERNEED: i64 = 0x6fff_fffe;
const DF_SYMBOLIC: usize = 2;

/// The value that `tag` has in a dynamic section.
#[unsafe(link_section = ".lockwright.begin")]
fn entry(dynamic: *const c_void, tag: i64) -> Option<usize> {
    let mut at = dynamic.cast::<Dynamic>();
    // SAFETY: a loaded object's dynamic section, which ends in DT_NULL.
    unsafe {
        while (*at).tag != DT_NULL {
            if (*at).tag == tag {
                return Some((*at).value);
            }
            at = at.add(1);
        }
    }
    None
}

/// Does the object with this dynamic section say where its libraries are? `old`: in the way that also applies to its libraries'
/// libraries.
pub(crate) fn says_paths(dynamic: *const c_void, old: bool) -> bool {
    entry(dynamic, DT_RPATH).is_some() || (!old && entry(dynamic, DT_RUNPATH).is_some())
}

/// What kind of word a relocation fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RelocationKind {
    /// A slot of the procedure linkage table; possibly not bound yet.
    Jump,
    /// A slot of the global offset table: called, or taken as an address.
    Global,
    /// A word of data, which the program may have changed.
    Data,
}

/// A word that the dynamic linker fills with a symbol's address.
pub(crate) struct Word<'a> {
    pub(crate) kind: RelocationKind,
    pub(crate) slot: &'a AtomicUsize,
    pub(crate) name: &'a CStr,
    /// The version that the reference asks for.
    pub(crate) version: Option<&'a CStr>,
    /// The object's own definition; or, without `defined`, its stand-in for somebody else's.
    pub(crate) own: Option<usize>,
    pub(crate) defined: bool,
}

/// A loaded object, which must stay loaded.
#[derive(Clone, Copy)]
pub(crate) struct Object {
    pub(crate) base: usize,
    pub(crate) dynamic: *const c_void,
    headers: *const libc::Elf64_Phdr,
    count: usize,
}

impl Object {
    /// From glibc's description; `None`: it has no dynamic section.
    pub(crate) fn of(info: &libc::dl_phdr_info) -> Option<Self> {
        let headers = headers(info);
        let base = info.dlpi_addr as usize;
        let section = headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC)?;
        let dynamic = base.wrapping_add(section.p_vaddr as usize) as *const c_void;
        Some(Self { base, dynamic, headers: headers.as_ptr(), count: headers.len() })
    }

    fn headers(&self) -> &[libc::Elf64_Phdr] {
        // SAFETY: glibc's own description; the object stays loaded.
        unsafe { core::slice::from_raw_parts(self.headers, self.count) }
    }

    /// Does it hold `address`?
    pub(crate) fn holds(&self, address: usize) -> bool {
        let mut loads = self.headers().iter().filter(|header| header.p_type == libc::PT_LOAD);
        loads.any(|header| range(self.base, header).contains(&address))
    }

    /// Do its references prefer its own definitions?
    pub(crate) fn is_symbolic(&self) -> bool {
        entry(self.dynamic, DT_SYMBOLIC).is_some()
            || entry(self.dynamic, DT_FLAGS).is_some_and(|flags| flags & DF_SYMBOLIC != 0)
    }

    /// Is `address` among the words that were made read-only after relocation? `None`: it is read-only by itself.
    pub(crate) fn is_sealed(&self, address: usize) -> Option<bool> {
        let of = |kind: u32| self.headers().iter().filter(move |header| header.p_type == kind);
        let sealed = of(libc::PT_GNU_RELRO).any(|header| {
            let words = range(self.base, header);
            // Rounded as the dynamic linker does.
            (words.start & !(PAGE - 1)..words.end & !(PAGE - 1)).contains(&address)
        });
        let writable = of(libc::PT_LOAD).any(|header| {
            header.p_flags & libc::PF_W != 0 && range(self.base, header).contains(&address)
        });
        if sealed || writable { Some(sealed) } else { None }
    }

    /// An address in the dynamic section. The dynamic linker has already added the base to most of them, in place.
    fn table<T>(&self, tag: i64) -> *const T {
        match entry(self.dynamic, tag) {
            None | Some(0) => null(),
            Some(value) if value < self.base => (self.base + value) as *const T,
            Some(value) => value as *const T,
        }
    }

    /// Calls `body` for each word that is filled with the address of a function or variable whose name `wanted`
    /// finds interesting.
    pub(crate) fn words<T>(
        &self,
        wanted: impl Fn(&CStr) -> Option<T>,
        mut body: impl FnMut(T, Word<'_>),
    ) {
        const R_64: u32 = 1;
        const R_GLOB_DAT: u32 = 6;
        const R_JUMP_SLOT: u32 = 7;
        let symbols: *const DynamicEntry = self.table(DT_SYMTAB);
        let strings: *const c_char = self.table(DT_STRTAB);
        if symbols.is_null() || strings.is_null() {
            return;
        }
        for (table, size) in [(DT_JMPREL, DT_PLTRELSZ), (DT_RELA, DT_RELASZ)] {
            let relocations: *const Rela = self.table(table);
            let size = entry(self.dynamic, size).unwrap_or(0);
            if relocations.is_null() {
                continue;
            }
            // SAFETY: the object's own table, of the length that it says.
            let relocations =
                unsafe { core::slice::from_raw_parts(relocations, size / size_of::<Rela>()) };
            for relocation in relocations {
                let kind = match relocation.info as u32 {
                    R_JUMP_SLOT => RelocationKind::Jump,
                    R_GLOB_DAT => RelocationKind::Global,
                    R_64 if relocation.addend == 0 => RelocationKind::Data,
                    _ => continue,
                };
                let index = (relocation.info >> 32) as usize;
                let slot = self.base.wrapping_add(relocation.offset);
                if index == 0 || !slot.is_multiple_of(align_of::<AtomicUsize>()) {
                    continue;
                }
                // SAFETY: the object's own symbol and its name; a word of it, which others may write.
                let (symbol, name, slot) = unsafe {
                    let symbol = &*symbols.add(index);
                    let name = CStr::from_ptr(strings.add(symbol.name as usize));
                    (symbol, name, AtomicUsize::from_ptr(slot as *mut usize))
                };
                if let Some(found) = wanted(name) {
                    let own = self.base.wrapping_add(symbol.value);
                    let word = Word {
                        kind,
                        slot,
                        name,
                        version: self.version(index, strings),
                        own: (symbol.value != 0).then_some(own),
                        defined: symbol.section != 0,
                    };
                    body(found, word);
                }
            }
        }
    }

    /// The name by which other objects refer to this one.
    #[unsafe(link_section = ".lockwright.begin")]
    pub(crate) fn soname(&self) -> Option<&CStr> {
        let strings: *const c_char = self.table(DT_STRTAB);
        let at = entry(self.dynamic, DT_SONAME).filter(|_| !strings.is_null())?;
        // SAFETY: an entry of the object's own table of strings.
        Some(unsafe { CStr::from_ptr(strings.add(at)) })
    }

    /// Calls `body` for each symbol that the object defines in a version: name, version, and the word that says where
    /// it lies, as a distance from the object's base.
    pub(crate) fn definitions(&self, mut body: impl FnMut(&CStr, &CStr, &AtomicUsize)) {
        let symbols: *const DynamicEntry = self.table(DT_SYMTAB);
        let strings: *const c_char = self.table(DT_STRTAB);
        let versions: *const u16 = self.table(DT_VERSYM);
        if symbols.is_null() || strings.is_null() || versions.is_null() {
            return;
        }
        for index in 1..self.symbols() {
            // SAFETY: the object's own tables, which have `symbols` entries; a word that others may write.
            let (symbol, name, version, value) = unsafe {
                let symbol = symbols.add(index);
                (
                    &*symbol,
                    CStr::from_ptr(strings.add((*symbol).name as usize)),
                    *versions.add(index) & 0x7fff,
                    AtomicUsize::from_ptr((&raw const (*symbol).value).cast_mut()),
                )
            };
            if symbol.section != 0
                && let Some(version) = self.defined(version, strings)
            {
                body(name, version, value);
            }
        }
    }

    /// Where the object's symbols lie, and what protects them.
    pub(crate) fn symbol_pages(&self) -> Option<(core::ops::Range<usize>, c_int)> {
        let start = self.table::<DynamicEntry>(DT_SYMTAB).addr();
        let words = start & !(PAGE - 1)
            ..(start + self.symbols() * size_of::<DynamicEntry>()).next_multiple_of(PAGE);
        let mut loads = self.headers().iter().filter(|header| header.p_type == libc::PT_LOAD);
        let load = loads.find(|header| range(self.base, header).contains(&start))?;
        let flag = |flag, is| if load.p_flags & flag != 0 { is } else { 0 };
        let protection = flag(libc::PF_R, libc::PROT_READ)
            | flag(libc::PF_W, libc::PROT_WRITE)
            | flag(libc::PF_X, libc::PROT_EXEC);
        Some((words, protection))
    }

    /// How many symbols the object has, by its hash table. 0: it has no hash table of the kind that we read.
    #[unsafe(link_section = ".lockwright.begin")]
    fn symbols(&self) -> usize {
        let table: *const u32 = self.table(DT_GNU_HASH);
        if table.is_null() {
            return 0;
        }
        // SAFETY: the object's own table: a head of four words, a filter, buckets, chains whose last words are odd.
        unsafe {
            let [buckets, first, filter, _] = *table.cast::<[u32; 4]>();
            let heads = table.add(4 + 2 * filter as usize);
            let chains = heads.add(buckets as usize);
            let heads = core::slice::from_raw_parts(heads, buckets as usize);
            let Some(mut last) = heads.iter().copied().max().filter(|&last| last >= first) else {
                return first as usize;
            };
            while *chains.add((last - first) as usize) & 1 == 0 {
                last += 1;
            }
            last as usize + 1
        }
    }

    /// The name of the object's own version `index`; none if that isn't a version of a symbol.
    fn defined(&self, index: u16, strings: *const c_char) -> Option<&CStr> {
        const BASE: u16 = 1; // a flag: the object's own name
        let mut at: *const Defined = self.table(DT_VERDEF);
        if at.is_null() {
            return None;
        }
        // SAFETY: the object's own list, whose last entry says so; an entry's first name is the version's.
        unsafe {
            loop {
                if (*at).index == index && (*at).flags & BASE == 0 {
                    let name = *at.byte_add((*at).first as usize).cast::<u32>();
                    return Some(CStr::from_ptr(strings.add(name as usize)));
                }
                if (*at).next == 0 {
                    return None;
                }
                at = at.byte_add((*at).next as usize);
            }
        }
    }

    /// The version that the reference to this symbol asks for.
    fn version(&self, symbol: usize, strings: *const c_char) -> Option<&CStr> {
        let versions: *const u16 = self.table(DT_VERSYM);
        let mut needed: *const Needed = self.table(DT_VERNEED);
        if versions.is_null() || needed.is_null() {
            return None;
        }
        // SAFETY: the object's own tables: one index a symbol, and lists whose last entries say so.
        unsafe {
            let wanted = *versions.add(symbol) & 0x7fff;
            loop {
                let mut at = needed.byte_add((*needed).first as usize).cast::<NeededVersion>();
                for _ in 0..(*needed).count {
                    if (*at).index & 0x7fff == wanted {
                        return Some(CStr::from_ptr(strings.add((*at).name as usize)));
                    }
                    at = at.byte_add((*at).next as usize);
                }
                if (*needed).next == 0 {
                    return None;
                }
                needed = needed.byte_add((*needed).next as usize);
            }
        }
    }
}
