//! The functions and lines of a file's addresses, from its debug information.
//!
//! `addr2line` has a loader, too. It opens every path that a file names, and inflates what a file says to any size.

use crate::elf::{Bytes, Elf};
use addr2line::{Context, FrameIter, LookupContinuation, LookupResult, SplitDwarfLoad};
use gimli::{Dwarf, DwarfPackage, EndianReader, Reader as _, RunTimeEndian, SectionId};
use object::{CompressionFormat, Object, ObjectSection};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

type Reader = EndianReader<RunTimeEndian, Bytes>;

/// How much larger a section may be than what it was compressed to. Compilers' output is 2 to 20 times as large.
const TIMES: u64 = 64;
/// The size to which a section is inflated at most.
const LARGEST: u64 = 1 << 30;

pub(crate) struct Lines {
    context: Context<Reader>,
    /// Parts that the compiler left in files of their own, together in one (`.dwp`).
    package: Option<DwarfPackage<Reader>>,
}

impl Lines {
    /// From this file, at that path. It may share a part with others.
    pub(crate) fn read(elf: &Elf, path: &Path, shared: Option<&Elf>) -> Option<Self> {
        let mut all = dwarf(elf, |id| Some(id.name()))?;
        if let Some(shared) = shared {
            all.set_sup(dwarf(shared, |id| Some(id.name()))?);
        }
        Some(Self { context: Context::from_dwarf(all).ok()?, package: package(path) })
    }

    /// The functions at an address, the innermost first.
    pub(crate) fn frames(&self, address: u64) -> Option<FrameIter<'_, Reader>> {
        // `addr2line` looks at the address after it, too.
        address.checked_add(1)?;
        let mut found = self.context.find_frames(address);
        loop {
            found = match found {
                LookupResult::Output(frames) => return frames.ok(),
                LookupResult::Load { load, continuation } => {
                    continuation.resume(self.apart(&load).map(Arc::new))
                }
            };
        }
    }

    /// A part that the compiler left in a file of its own.
    fn apart(&self, load: &SplitDwarfLoad<Reader>) -> Option<Dwarf<Reader>> {
        let package = self.package.as_ref();
        if let Some(found) = package.and_then(|all| all.find_cu(load.dwo_id, &load.parent).ok()?) {
            return Some(found);
        }
        let mut path = PathBuf::new();
        for part in load.comp_dir.iter().chain([load.path.as_ref()?]) {
            path.push(OsStr::from_bytes(&part.to_slice().ok()?));
        }
        let mut part = dwarf(&Elf::open(&path)?, SectionId::dwo_name)?;
        let unit = part.unit(part.units().next().ok()??).ok()?;
        if unit.dwo_id != Some(load.dwo_id) {
            return None;
        }
        part.make_dwo(&load.parent);
        Some(part)
    }
}

fn package(path: &Path) -> Option<DwarfPackage<Reader>> {
    let mut path = path.as_os_str().to_owned();
    path.push(".dwp");
    let elf = Elf::open(Path::new(&path))?;
    let sections = DebugSections::of(&elf)?;
    let empty = EndianReader::new(Bytes::default(), sections.endian);
    DwarfPackage::load(|id| Ok::<_, gimli::Error>(sections.get(id.dwo_name())), empty).ok()
}

/// The sections of a file.
struct DebugSections<'a> {
    elf: &'a Elf,
    object: object::File<'a>,
    endian: RunTimeEndian,
}

impl<'a> DebugSections<'a> {
    fn of(elf: &'a Elf) -> Option<Self> {
        let object = elf.object()?;
        let endian =
            if object.is_little_endian() { RunTimeEndian::Little } else { RunTimeEndian::Big };
        Some(Self { elf, object, endian })
    }

    /// Its bytes; none, if the file doesn't have it, or it is compressed in a way that no compiler's output is.
    fn get(&self, name: Option<&str>) -> Reader {
        let bytes = || {
            let section = self.object.section_by_name(name?)?;
            let at = section.compressed_file_range().ok()?;
            if at.format == CompressionFormat::None {
                return self.elf.bytes(at.offset, at.uncompressed_size);
            }
            let most = at.compressed_size.saturating_mul(TIMES).min(LARGEST);
            let inflated =
                section.compressed_data().ok().filter(|_| at.uncompressed_size <= most)?;
            Some(Bytes::from(inflated.decompress().ok()?.into_owned()))
        };
        EndianReader::new(bytes().unwrap_or_default(), self.endian)
    }
}

fn dwarf(elf: &Elf, name: impl Fn(SectionId) -> Option<&'static str>) -> Option<Dwarf<Reader>> {
    let sections = DebugSections::of(elf)?;
    let mut all = Dwarf::load(|id| Ok::<_, ()>(sections.get(name(id)))).ok()?;
    all.populate_abbreviations_cache(gimli::AbbreviationsCacheStrategy::Duplicates);
    Some(all)
}
