//! BTF, as far as policies need it: what maps are, and which line an instruction comes from.
//!
//! <https://docs.kernel.org/bpf/btf.html>. The file may come from anybody: whatever it says is checked before it is used.

use super::{LONGEST, SourceLine};
use std::collections::BTreeMap;

/// What is read of a name or of a source's line, bytes. All that follows may be one string, to which everything points.
const LONGEST_TEXT: usize = 1024;

/// How many types may stand between a name and what it means, and between a value and its innermost array.
const DEEPEST: usize = 32;

/// Numbers in a slice of bytes, little-endian.
fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let end = at.checked_add(4)?;
    Some(u32::from_le_bytes(bytes.get(at..end)?.try_into().ok()?))
}

fn at(bytes: &[u8], offset: u32, len: u32) -> Option<&[u8]> {
    let offset = offset as usize;
    bytes.get(offset..offset.checked_add(len as usize)?)
}

const INT: u32 = 1;
const POINTER: u32 = 2;
const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const ENUM: u32 = 6;
const TYPEDEF: u32 = 8;
const VOLATILE: u32 = 9;
const CONST: u32 = 10;
const RESTRICT: u32 = 11;
const FUNC_PROTO: u32 = 13;
const VAR: u32 = 14;
const DATASEC: u32 = 15;
const FLOAT: u32 = 16;
const DECL_TAG: u32 = 17;
const TYPE_TAG: u32 = 18;
const ENUM64: u32 = 19;

#[derive(Clone, Copy)]
struct Type<'a> {
    name: u32,
    kind: u32,
    /// Its size, or the type that it is made of.
    size_or_type: u32,
    rest: &'a [u8],
}

/// A member of a structure: its name and its type.
pub(super) type Member<'a> = (&'a str, u32);

/// The types of an object.
pub(super) struct Btf<'a> {
    /// By number; 0 is void.
    types: Vec<Type<'a>>,
    strings: &'a [u8],
}

impl<'a> Btf<'a> {
    /// The section `.BTF`.
    pub(super) fn read(section: &'a [u8]) -> Option<Self> {
        let header = |place: usize| u32_at(section, place);
        if header(0)? & 0xff_ffff != 0x01_eb9f {
            return None;
        }
        let body = section.get(header(4)? as usize..)?;
        let mut rest = at(body, header(8)?, header(12)?)?;
        let strings = at(body, header(16)?, header(20)?)?;
        let mut types = vec![Type { name: 0, kind: 0, size_or_type: 0, rest: &[] }];
        while !rest.is_empty() {
            let (name, info, size_or_type) = (u32_at(rest, 0)?, u32_at(rest, 4)?, u32_at(rest, 8)?);
            let (kind, count) = (info >> 24 & 0x1f, (info & 0xffff) as usize);
            let more = match kind {
                INT | VAR | DECL_TAG => 4,
                ARRAY => 12,
                STRUCT | UNION | DATASEC | ENUM64 => 12 * count,
                ENUM | FUNC_PROTO => 8 * count,
                _ => 0,
            };
            types.push(Type { name, kind, size_or_type, rest: rest.get(12..12 + more)? });
            rest = &rest[12 + more..];
        }
        Some(Self { types, strings })
    }

    fn string(&self, offset: u32) -> Option<&'a str> {
        let bytes = self.strings.get(offset as usize..)?;
        let bytes = &bytes[..bytes.len().min(LONGEST_TEXT)];
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        match std::str::from_utf8(&bytes[..end]) {
            Ok(text) => Some(text),
            // Cut within a character.
            Err(cut) if cut.error_len().is_none() => {
                std::str::from_utf8(&bytes[..cut.valid_up_to()]).ok()
            }
            Err(_) => None,
        }
    }

    /// Is this the string there?
    fn is(&self, offset: u32, text: &str) -> bool {
        let rest =
            self.strings.get(offset as usize..).and_then(|at| at.strip_prefix(text.as_bytes()));
        rest.is_some_and(|rest| rest.first() == Some(&0))
    }

    /// The type, without its other names and `const`s.
    fn plain(&self, mut number: u32) -> Option<Type<'a>> {
        for _ in 0..DEEPEST {
            let kind = self.types.get(number as usize)?;
            match kind.kind {
                TYPEDEF | VOLATILE | CONST | RESTRICT | TYPE_TAG | VAR => {
                    number = kind.size_or_type;
                }
                _ => return Some(*kind),
            }
        }
        None
    }

    /// A value's size in bytes.
    fn size(&self, number: u32) -> Option<u64> {
        let (mut number, mut times) = (number, 1_u64);
        for _ in 0..DEEPEST {
            let kind = self.plain(number)?;
            let one = match kind.kind {
                POINTER => 8,
                INT | STRUCT | UNION | ENUM | ENUM64 | FLOAT => u64::from(kind.size_or_type),
                ARRAY => {
                    times = times.checked_mul(u64::from(u32_at(kind.rest, 8)?))?;
                    number = u32_at(kind.rest, 0)?;
                    continue;
                }
                _ => return None,
            };
            return one.checked_mul(times);
        }
        None
    }

    /// The variables of a section, in their order: name and type.
    pub(super) fn variables(&self, section: &str) -> Vec<Member<'a>> {
        let is_it = |kind: &&Type| kind.kind == DATASEC && self.is(kind.name, section);
        let Some(found) = self.types.iter().find(is_it) else { return Vec::new() };
        let one = |entry: &[u8]| {
            let number = u32_at(entry, 0)?;
            let variable = self.types.get(number as usize)?;
            Some((self.string(variable.name)?, variable.size_or_type))
        };
        found.rest.chunks_exact(12).filter_map(one).collect()
    }

    /// The members of a structure.
    pub(super) fn members(&self, number: u32) -> Option<Vec<Member<'a>>> {
        let kind = self.plain(number)?;
        let one = |entry: &[u8]| Some((self.string(u32_at(entry, 0)?)?, u32_at(entry, 4)?));
        (kind.kind == STRUCT).then(|| kind.rest.chunks_exact(12).map(one).collect())?
    }

    /// What `__uint(name, number)` says: the length of the array to which a member points.
    pub(super) fn number(&self, member: u32) -> Option<u32> {
        let array = self.pointed(member)?;
        let array = self.plain(array)?;
        if array.kind == ARRAY { u32_at(array.rest, 8) } else { None }
    }

    /// What `__type(name, type)` says: the size of what a member points to.
    pub(super) fn pointed_size(&self, member: u32) -> Option<u64> {
        self.size(self.pointed(member)?)
    }

    /// The size of an integer in bytes, and whether it has a sign, or is a `bool`.
    pub(super) fn integer(&self, number: u32) -> Option<(u32, bool, bool)> {
        const SIGNED: u32 = 1 << 24;
        const BOOL: u32 = 1 << 26;
        let kind = self.plain(number).filter(|kind| kind.kind == INT)?;
        let encoding = u32_at(kind.rest, 0)?;
        Some((kind.size_or_type, encoding & SIGNED != 0, encoding & BOOL != 0))
    }

    fn pointed(&self, member: u32) -> Option<u32> {
        let pointer = self.plain(member)?;
        (pointer.kind == POINTER).then_some(pointer.size_or_type)
    }

    /// The lines of a section's instructions, by `.BTF.ext`, as far as a hook may have instructions; none if it is damaged.
    pub(super) fn lines(&self, ext: &[u8], section: &str) -> Vec<SourceLine> {
        self.read_lines(ext, section).unwrap_or_default().into_values().collect()
    }

    fn read_lines(&self, ext: &[u8], section: &str) -> Option<BTreeMap<usize, SourceLine>> {
        if u32_at(ext, 0)? & 0xff_ffff != 0x01_eb9f {
            return None;
        }
        let body = ext.get(u32_at(ext, 4)? as usize..)?;
        let mut rest = at(body, u32_at(ext, 16)?, u32_at(ext, 20)?)?;
        let size = u32_at(rest, 0)? as usize;
        if size < 16 {
            return None;
        }
        rest = &rest[4..];
        let mut lines = BTreeMap::new();
        while !rest.is_empty() {
            let (name, count) = (u32_at(rest, 0)?, u32_at(rest, 4)? as usize);
            let len = size.checked_mul(count)?;
            let records = rest.get(8..)?.get(..len)?;
            if self.is(name, section) {
                let found = records.chunks_exact(size).filter_map(|record| self.line(record));
                lines.extend(found.map(|line| (line.insn, line)));
            }
            rest = &rest[8 + len..];
        }
        Some(lines)
    }

    fn line(&self, record: &[u8]) -> Option<SourceLine> {
        let text = |place| u32_at(record, place).and_then(|offset| self.string(offset));
        let (insn, number) = (u32_at(record, 0)? as usize / 8, u32_at(record, 12)? >> 10);
        // Code of the compiler's own has line 0.
        if number == 0 || insn > LONGEST {
            return None;
        }
        Some(SourceLine { insn, file: text(4)?.to_owned(), number, text: text(8)?.to_owned() })
    }
}
