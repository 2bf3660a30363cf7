//! A program's or a library's file: its parts and its symbols.

use crate::space::Mapping;
use gimli::{BaseAddresses, EhFrame, EhFrameHdr, NativeEndian, UnwindSection};
use gimli::{CloneStableDeref, StableDeref};
use lockwright_files::open_file;
use memmap2::Mmap;
use object::{
    BinaryFormat, Object, ObjectSection, ObjectSegment, ObjectSymbol, SectionFlags, SegmentFlags,
    SymbolKind,
};
use std::fs::File;
use std::ops::{Deref, Range};
use std::path::Path;
use std::rc::Rc;

/// Bytes of a file, kept for as long as they are needed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bytes {
    whole: Whole,
    range: Range<usize>,
}

#[derive(Clone, Debug)]
enum Whole {
    File(Rc<Mmap>),
    Inflated(Rc<[u8]>),
}

impl Default for Whole {
    fn default() -> Self {
        Self::Inflated(Rc::default())
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self { range: 0..bytes.len(), whole: Whole::Inflated(bytes.into()) }
    }
}

// SAFETY: what is shared lies where it lies, wherever its handle moves, and nobody changes it through us.
unsafe impl StableDeref for Bytes {}
// SAFETY: a clone shares the same bytes.
unsafe impl CloneStableDeref for Bytes {}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.whole {
            Whole::File(map) => &map[self.range.clone()],
            Whole::Inflated(bytes) => &bytes[self.range.clone()],
        }
    }
}

/// A part of the file that the program loads.
#[derive(Clone, Debug)]
struct Load {
    offset: u64,
    in_file: u64,
    address: u64,
    in_memory: u64,
    is_code: bool,
}

/// A named part of the file. Addresses are as in the file.
#[derive(Clone, Debug)]
pub(crate) struct Section {
    pub(crate) name: String,
    pub(crate) range: Range<u64>,
    file: Option<(u64, u64)>,
    is_thread_local: bool,
}

/// The file, read as far as its users need. Addresses are as in the file.
pub(crate) struct Elf {
    map: Rc<Mmap>,
    loads: Vec<Load>,
    pub(crate) sections: Vec<Section>,
    pub(crate) build_id: Option<String>,
}

impl Elf {
    /// `None`: it is neither a program nor a library, or can't be read.
    pub(crate) fn open(path: &Path) -> Option<Self> {
        Self::read(&open_file(path).ok()?)
    }

    /// As [`open`](Self::open).
    pub(crate) fn read(file: &File) -> Option<Self> {
        let map = Rc::new(lockwright_files::map(file).ok()?);
        let object = object::File::parse(&**map).ok()?;
        if object.format() != BinaryFormat::Elf {
            return None; // other formats name files, too
        }
        let loads = object.segments().map(|segment| {
            let (offset, in_file) = segment.file_range();
            let is_code = matches!(segment.flags(), SegmentFlags::Elf { p_flags, .. }
                if p_flags.0 & object::elf::PF_X.0 != 0);
            let (address, in_memory) = (segment.address(), segment.size());
            Load { offset, in_file, address, in_memory, is_code }
        });
        let loads = loads.collect();
        let sections = object.sections().filter_map(|section| {
            let SectionFlags::Elf { sh_flags, .. } = section.flags() else { return None };
            let flag = |flag: object::elf::SectionFlags| sh_flags.0 & flag.0 != 0;
            flag(object::elf::SHF_ALLOC).then(|| Section {
                name: section.name().unwrap_or_default().to_owned(),
                range: section.address()..section.address().saturating_add(section.size()),
                file: section.file_range(),
                is_thread_local: flag(object::elf::SHF_TLS),
            })
        });
        let sections = sections.collect();
        let build_id = object.build_id().ok().flatten().map(hexadecimal);
        Some(Self { map: map.clone(), loads, sections, build_id })
    }

    pub(crate) fn object(&self) -> Option<object::File<'_>> {
        object::File::parse(&**self.map).ok()
    }

    /// What to subtract from an address in that mapping. It is the same for all mappings of a file that was loaded
    /// once: `first` is the value for another mapping.
    pub(crate) fn bias(&self, mapping: &Mapping, first: Option<u64>) -> Option<u64> {
        // Two parts may share a page of the file, which is mapped twice.
        let within = |load: &&Load| {
            let page = load.offset & !0xfff;
            (page..load.offset.saturating_add(load.in_file.max(1))).contains(&mapping.offset)
        };
        let bias = |load: &Load| {
            let start = load.address.wrapping_add(mapping.offset).wrapping_sub(load.offset);
            mapping.start.wrapping_sub(start)
        };
        let same = |load: &&Load| load.is_code == mapping.is_code;
        let loads = || self.loads.iter().filter(within);
        let known = first.filter(|first| loads().any(|load| bias(load) == *first));
        known.or_else(|| loads().find(same).or_else(|| loads().next()).map(bias))
    }

    /// Does the program load something there, including `.bss`?
    pub(crate) fn holds(&self, address: u64) -> bool {
        self.loads.iter().any(|load| address.wrapping_sub(load.address) < load.in_memory)
    }

    /// The range of addresses that it takes.
    pub(crate) fn extent(&self) -> Range<u64> {
        let start = self.loads.iter().map(|load| load.address).min().unwrap_or(0);
        let end = self.loads.iter().map(|load| load.address.saturating_add(load.in_memory)).max();
        start..end.unwrap_or(0)
    }

    /// The section at an address.
    pub(crate) fn section_at(&self, address: u64) -> Option<&Section> {
        let mut all = self.sections.iter().filter(|section| !section.is_thread_local);
        all.find(|section| section.range.contains(&address))
    }

    /// A section, and its bytes.
    pub(crate) fn section(&self, name: &str) -> Option<(Range<u64>, Bytes)> {
        let section = self.sections.iter().find(|section| section.name == name)?;
        let (offset, size) = section.file?;
        Some((section.range.clone(), self.bytes(offset, size)?))
    }

    /// These bytes of the file.
    pub(crate) fn bytes(&self, offset: u64, size: u64) -> Option<Bytes> {
        let start = usize::try_from(offset).ok()?;
        let end = start.checked_add(usize::try_from(size).ok()?)?;
        let whole = || Whole::File(self.map.clone());
        (end <= self.map.len()).then(|| Bytes { whole: whole(), range: start..end })
    }

    /// The check that a file has which names this one.
    pub(crate) fn check(&self) -> u32 {
        crc32fast::hash(&self.map)
    }

    /// Where the function at an address begins, from the exception tables, which stripped files have, too.
    pub(crate) fn function(&self, address: u64) -> Option<u64> {
        let (head_at, head) = self.section(".eh_frame_hdr")?;
        let (frames_at, frames) = self.section(".eh_frame")?;
        let bases = BaseAddresses::default()
            .set_eh_frame_hdr(head_at.start)
            .set_eh_frame(frames_at.start)
            .set_text(self.section(".text").map_or(0, |(text, _)| text.start));
        let head = EhFrameHdr::new(&head, NativeEndian).parse(&bases, 8).ok()?;
        let frames = EhFrame::new(&frames, NativeEndian);
        let table = head.table()?;
        let found =
            table.fde_for_address(&frames, &bases, address, EhFrame::cie_from_offset).ok()?;
        found.contains(address).then(|| found.initial_address())
    }

    /// This many bytes of code.
    pub(crate) fn code(&self, address: u64, length: u64) -> Option<&[u8]> {
        let holds =
            |load: &&Load| load.is_code && address.wrapping_sub(load.address) < load.in_file;
        let load = self.loads.iter().find(holds)?;
        let start = (address - load.address).checked_add(load.offset)?;
        let start = usize::try_from(start).ok()?;
        self.map.get(start..start.checked_add(usize::try_from(length).ok()?)?)
    }

    /// The size of its thread-local variables, as they lie below the thread pointer: a multiple of their alignment.
    pub(crate) fn thread_local_size(&self) -> Option<u64> {
        use object::read::elf::{FileHeader, ProgramHeader};
        let header = object::elf::FileHeader64::<object::Endianness>::parse(&**self.map).ok()?;
        let endian = header.endian().ok()?;
        let parts = header.program_headers(endian, &**self.map).ok()?;
        let part = parts.iter().find(|part| part.p_type(endian) == object::elf::PT_TLS)?;
        part.p_memsz(endian).checked_next_multiple_of(part.p_align(endian).max(1))
    }
}

pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SymbolType {
    Code,
    Data,
    ThreadLocal,
}

/// A function or a variable.
#[derive(Clone, Debug)]
pub(crate) struct Symbol {
    pub(crate) start: u64,
    size: u64,
    pub(crate) kind: SymbolType,
    is_global: bool,
    pub(crate) name: String,
}

impl Symbol {
    pub(crate) fn range(&self) -> Range<u64> {
        self.start..self.start.saturating_add(self.size)
    }
}

/// The symbols of a file, and of the file with its debug information.
#[derive(Default)]
pub(crate) struct Symbols {
    /// Sorted by kind and start.
    all: Vec<Symbol>,
}

impl Symbols {
    pub(crate) fn read(files: &[&Elf]) -> Self {
        let mut all = Vec::new();
        for object in files.iter().filter_map(|file| file.object()) {
            all.extend(object.symbols().chain(object.dynamic_symbols()).filter_map(|symbol| {
                let kind = match symbol.kind() {
                    SymbolKind::Text => SymbolType::Code,
                    SymbolKind::Data => SymbolType::Data,
                    SymbolKind::Tls => SymbolType::ThreadLocal,
                    _ => return None,
                };
                let name = symbol.name().ok().filter(|name| !name.is_empty())?;
                (!symbol.is_undefined()).then(|| Symbol {
                    start: symbol.address(),
                    size: symbol.size(),
                    kind,
                    is_global: symbol.is_global(),
                    name: name.to_owned(),
                })
            }));
        }
        // If a place has many names, the one that a program would call comes first.
        let underscores = |symbol: &Symbol| symbol.name.bytes().take_while(|&c| c == b'_').count();
        all.sort_by(|a, b| {
            let place = |symbol: &Symbol| (symbol.kind as u8, symbol.start);
            let rank = |symbol: &Symbol| {
                (symbol.size == 0, underscores(symbol), !symbol.is_global, symbol.name.len())
            };
            place(a).cmp(&place(b)).then(rank(a).cmp(&rank(b))).then_with(|| a.name.cmp(&b.name))
        });
        all.dedup_by_key(|symbol| (symbol.kind as u8, symbol.start));
        Self { all }
    }

    /// The symbol at an address. Hand-written code may have no size; then it reaches to the next symbol.
    pub(crate) fn find(&self, kind: SymbolType, address: u64) -> Option<&Symbol> {
        /// Symbols with a size rarely overlap, and then only a few of them do.
        const NESTED: usize = 8;
        let key = (kind as u8, address);
        let after = self.all.partition_point(|symbol| (symbol.kind as u8, symbol.start) <= key);
        let mut before = self.all[..after].iter().rev().take_while(|symbol| symbol.kind == kind);
        let first = before.next()?;
        let contains = |symbol: &&Symbol| address - symbol.start < symbol.size;
        if contains(&first)
            || (first.size == 0 && kind == SymbolType::Code)
            || first.start == address
        {
            return Some(first);
        }
        before.take(NESTED).find(contains)
    }
}
