//! The program and its libraries as they are in a process's memory: symbols, and the words that the dynamic linker
//! fills. They are not read from files, which may have been replaced since.

use crate::hints::Failure;
use lockwright_observer::process::{Mapping, Process, mappings};
use object::elf::{
    DT_GNU_HASH, DT_JMPREL, DT_PLTRELSZ, DT_RELA, DT_RELACOUNT, DT_RELASZ, DT_SONAME, DT_STRSZ,
    DT_STRTAB, DT_SYMTAB, DT_VERDEF, DT_VERSYM, PT_DYNAMIC, PT_LOAD, R_X86_64_64,
    R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT,
};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Sizes of a symbol, a relocation and a program header, in bytes.
const SYMBOL: u64 = 24;
const RELOCATION: u64 = 24;
const HEADER: u64 = 56;
/// A larger count is invalid: the file is mapped but not loaded, or the process is malicious.
const MOST: u64 = 1 << 22;
const PAGE: u64 = 4096;

/// A loaded object.
pub(super) struct Image<'a> {
    process: &'a Process,
    pub(super) path: PathBuf,
    /// The base of its addresses.
    pub(super) base: u64,
    /// Where it is mapped.
    pub(super) range: Range<u64>,
    dynamic: BTreeMap<i64, u64>,
    strings: Vec<u8>,
}

/// A symbol that the object defines.
pub(super) struct Symbol {
    pub(super) name: String,
    /// glibc's name of its version; empty if it has none.
    pub(super) version: String,
    /// The address of the word that holds its value.
    pub(super) at: u64,
    /// Its index in the symbol table.
    pub(super) index: u64,
    /// Its address, relative to the object's base.
    pub(super) value: u64,
}

/// A word that the dynamic linker fills with a symbol's address.
pub(super) struct Slot {
    pub(super) name: String,
    pub(super) at: u64,
}

/// All loaded objects.
pub(super) fn images(process: &Process) -> Result<Vec<Image<'_>>, Failure> {
    let maps = mappings(process.pid).map_err(|error| process.gone(&error))?;
    let heads = maps.iter().filter(|map| map.path.is_absolute() && map.offset == 0);
    // Skip what can't be read as an object.
    let images = heads.filter_map(|head| Image::read(process, head, &maps).ok().flatten());
    Ok(images.collect())
}

impl<'a> Image<'a> {
    fn read(
        process: &'a Process,
        head: &Mapping,
        maps: &[Mapping],
    ) -> Result<Option<Self>, Failure> {
        let mut start = [0; 64];
        process.read(head.start, &mut start)?;
        if !start.starts_with(b"\x7fELF\x02\x01") {
            return Ok(None);
        }
        let half = |at: usize| u64::from(u16::from_le_bytes([start[at], start[at + 1]]));
        let long = |at: usize| u64::from_le_bytes(start[at..at + 8].try_into().expect("8 bytes"));
        let (headers, count) = (long(32), half(56));
        let headers =
            process.words(head.start.wrapping_add(headers), (count * HEADER / 8) as usize)?;
        let of = |kind: u32| {
            let headers = headers.chunks_exact((HEADER / 8) as usize);
            headers.filter(move |header| header[0] as u32 == kind)
        };
        let start = of(PT_LOAD.0).map(|header| header[2]).min().unwrap_or(0) & !(PAGE - 1);
        let end = of(PT_LOAD.0).map(|header| header[2].wrapping_add(header[5])).max().unwrap_or(0);
        let base = head.start.wrapping_sub(start);
        let range = head.start..base.wrapping_add(end);
        let is_code = |map: &&Mapping| map.is_code && range.contains(&map.start);
        if maps.iter().find(is_code).is_none_or(|code| code.path != head.path) {
            return Ok(None); // mapped only to be read
        }
        let Some(section) = of(PT_DYNAMIC.0).next() else { return Ok(None) };
        let entries =
            process.words(base.wrapping_add(section[2]), (section[5].min(MOST) / 8) as usize)?;
        let entries = entries.chunks_exact(2).map(|entry| (entry[0] as i64, entry[1]));
        let dynamic = entries.take_while(|(tag, _)| *tag != 0).collect();
        let path = head.path.clone();
        let mut image = Self { process, path, base, range, dynamic, strings: Vec::new() };
        let size = image.dynamic.get(&DT_STRSZ.0).copied().filter(|&size| size < MOST * 64);
        if let (Some(at), Some(size)) = (image.table(DT_STRTAB.0), size) {
            image.strings = vec![0; size as usize];
            process.read(at, &mut image.strings)?;
        }
        Ok(Some(image))
    }

    pub(super) fn name(&self) -> String {
        self.path.file_name().unwrap_or(self.path.as_os_str()).display().to_string()
    }

    /// Could it be a sanitizer, or be linked to one?
    pub(super) fn may_be_sanitizer(&self, program: &Path) -> bool {
        self.path == program || self.name().starts_with("libtsan")
    }

    /// The name by which other objects depend on it.
    pub(super) fn soname(&self) -> Option<String> {
        self.dynamic.get(&DT_SONAME.0).map(|&at| self.string(at))
    }

    fn string(&self, at: u64) -> String {
        let bytes = self.strings.get(at as usize..).unwrap_or_default();
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    }

    /// An address from the dynamic section. The dynamic linker has already added the base to most of them, in place.
    fn table(&self, tag: i64) -> Option<u64> {
        let value = *self.dynamic.get(&tag)?;
        Some(if value < self.base { self.base.wrapping_add(value) } else { value })
    }

    /// The symbols that it defines.
    pub(super) fn definitions(&self) -> Result<Vec<Symbol>, Failure> {
        let (Some(table), Some(count)) = (self.table(DT_SYMTAB.0), self.symbols()?) else {
            return Ok(Vec::new());
        };
        let words = self.process.words(table, (count * SYMBOL / 8) as usize)?;
        let indices = match self.table(DT_VERSYM.0) {
            Some(at) => {
                let mut bytes = vec![0; count as usize * 2];
                self.process.read(at, &mut bytes)?;
                bytes.chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]]) & 0x7fff).collect()
            }
            None => vec![0; count as usize],
        };
        let versions = self.versions()?;
        let symbol = |(index, symbol): (usize, &[u64])| {
            let is_defined = (symbol[0] >> 48) as u16 != 0;
            is_defined.then(|| Symbol {
                name: self.string(u64::from(symbol[0] as u32)),
                version: versions.get(&indices[index]).cloned().unwrap_or_default(),
                at: table.wrapping_add(index as u64 * SYMBOL + 8),
                index: index as u64,
                value: symbol[1],
            })
        };
        Ok(words.chunks_exact((SYMBOL / 8) as usize).enumerate().filter_map(symbol).collect())
    }

    /// The number of symbols, from the hash table: a head of four words, a filter, buckets, and chains that end with an
    /// odd word.
    fn symbols(&self) -> Result<Option<u64>, Failure> {
        let Some(table) = self.table(DT_GNU_HASH.0) else { return Ok(None) };
        let half = |at: u64, count: u64| -> Result<Vec<u32>, Failure> {
            let mut bytes = vec![0; count.min(MOST) as usize * 4];
            self.process.read(at, &mut bytes)?;
            let half = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("4 bytes"));
            Ok(bytes.chunks_exact(4).map(half).collect())
        };
        let head = half(table, 4)?;
        let [buckets, first, filter] = [head[0], head[1], head[2]].map(u64::from);
        let heads = table.wrapping_add(16 + filter * 8);
        let chains = heads.wrapping_add(buckets * 4);
        let last = half(heads, buckets)?.into_iter().max().map_or(0, u64::from);
        let Some(mut left) = last.checked_sub(first) else { return Ok(Some(first.min(MOST))) };
        while left < MOST && half(chains.wrapping_add(left * 4), 1)?[0] & 1 == 0 {
            left += 1;
        }
        Ok(Some((first + left + 1).min(MOST)))
    }

    /// The names of the versions that it defines, by number.
    fn versions(&self) -> Result<BTreeMap<u16, String>, Failure> {
        const BASE: u64 = 1; // a flag: the object's own name
        let mut versions = BTreeMap::new();
        let Some(mut at) = self.table(DT_VERDEF.0) else { return Ok(versions) };
        for _ in 0..u16::MAX {
            // {revision, flags, index, count}, {hash, first name}, {next}
            let head = self.process.words(at, 3)?;
            let name = self.process.words(at.wrapping_add(head[1] >> 32), 1)?[0];
            if (head[0] >> 16) & 0xffff != BASE {
                versions.insert((head[0] >> 32) as u16, self.string(u64::from(name as u32)));
            }
            match u64::from(head[2] as u32) {
                0 => break,
                next => at = at.wrapping_add(next),
            }
        }
        Ok(versions)
    }

    /// The words that hold the address of a symbol that `wanted` selects.
    pub(super) fn slots(&self, wanted: impl Fn(&str) -> bool) -> Result<Vec<Slot>, Failure> {
        let mut slots = Vec::new();
        let Some(symbols) = self.table(DT_SYMTAB.0) else { return Ok(slots) };
        let value = |tag: i64| self.dynamic.get(&tag).copied().unwrap_or(0).min(MOST * RELOCATION);
        // Relocations without symbols come first. There may be millions, so skip them.
        let relative = value(DT_RELACOUNT.0) * RELOCATION;
        for (table, size, skip) in [(DT_JMPREL, DT_PLTRELSZ, 0), (DT_RELA, DT_RELASZ, relative)] {
            let Some(table) = self.table(table.0) else { continue };
            let size = value(size.0).saturating_sub(skip);
            let words = self.process.words(table.wrapping_add(skip), (size / 8) as usize)?;
            let filled = words.chunks_exact((RELOCATION / 8) as usize).filter_map(|relocation| {
                let kind = relocation[1] as u32;
                let is_plain = kind == R_X86_64_64.0 && relocation[2] == 0;
                let is_slot = [R_X86_64_JUMP_SLOT.0, R_X86_64_GLOB_DAT.0].contains(&kind);
                let index = relocation[1] >> 32;
                let at = self.base.wrapping_add(relocation[0]);
                ((is_slot || is_plain) && index != 0 && at % 8 == 0).then_some((index, at))
            });
            let filled: Vec<(u64, u64)> = filled.collect();
            let count = filled.iter().map(|(index, _)| index + 1).max().unwrap_or(0);
            let names = self.process.words(symbols, (count.min(MOST) * SYMBOL / 8) as usize)?;
            for (index, at) in filled {
                let name = names.get((index * SYMBOL / 8) as usize).copied().unwrap_or(0);
                let name = self.string(u64::from(name as u32));
                if wanted(&name) {
                    slots.push(Slot { name, at });
                }
            }
        }
        Ok(slots)
    }
}

/// Is it glibc?
pub(super) fn is_libc(image: &Image<'_>) -> bool {
    image.soname().as_deref() == Some("libc.so.6")
}

/// Is it the dynamic linker?
pub(super) fn is_linker(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("ld-linux"))
}
