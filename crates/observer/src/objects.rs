//! The symbols of a program's file, or of a library's.

use crate::written;
use lockwright_files::map_file;
use lockwright_text::{Failure, cause};
use object::elf::{
    PT_LOAD, R_AARCH64_ABS64, R_AARCH64_GLOB_DAT, R_AARCH64_JUMP_SLOT, R_X86_64_64,
    R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT,
};
use object::read::elf::{ElfFile64, ProgramHeader};
use object::{
    Architecture, Endianness, Object, ObjectSymbol, ObjectSymbolTable, RelocationFlags,
    RelocationTarget, SymbolKind,
};
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

/// A program's or a library's symbols.
#[derive(Clone, Debug)]
pub struct ObjectFile {
    /// The name by which rules refer to it.
    pub name: String,
    /// Its file.
    pub path: PathBuf,
    /// Symbols that it imports.
    pub imports: BTreeSet<String>,
    /// Symbols that it exports.
    pub exports: BTreeSet<String>,
    /// Symbols whose addresses the dynamic linker writes into the object's slots and tables, whichever object defines
    /// them.
    pub slots: BTreeSet<String>,
    /// Functions and variables that it defines.
    pub symbols: Vec<Symbol>,
    /// Does it have restartable sequences of its own (rseq)?
    pub has_rseq: bool,
}

/// A function or a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// The mangled name, as in the object.
    pub name: String,
    /// Else it is a variable.
    pub is_function: bool,
    /// Offset from the object's load base.
    pub offset: u64,
    /// Bytes; 0: not known.
    pub size: u64,
}

impl ObjectFile {
    /// Reads a file. `name` is the name by which rules refer to it.
    pub fn read(path: &Path, name: String) -> Result<Self, Failure> {
        let data = map_file(path).map_err(|error| unreadable(path, &error))?;
        let elf = ElfFile64::<Endianness>::parse(&*data).map_err(|error| invalid(path, error))?;
        Ok(Self::parse(&elf, path, name))
    }

    /// The variable at this offset from the load base, with the offset within it: `cache`, `cache+0x28`.
    pub fn variable(&self, offset: u64) -> Option<String> {
        let mut variables = self.symbols.iter().filter(|symbol| !symbol.is_function);
        let known = variables.rfind(|known| offset.wrapping_sub(known.offset) < known.size)?;
        let name = written::written(&known.name);
        Some(match offset - known.offset {
            0 => name,
            inside => format!("{name}+{inside:#x}"),
        })
    }

    fn parse(elf: &ElfFile64<'_, Endianness>, path: &Path, name: String) -> Self {
        let base = base(elf);
        let mut symbols: Vec<_> = elf
            .symbols()
            .chain(elf.dynamic_symbols())
            .filter(|symbol| symbol.is_definition())
            .filter_map(|symbol| {
                let is_function = match symbol.kind() {
                    SymbolKind::Text => true,
                    SymbolKind::Data => false,
                    _ => return None,
                };
                let name = symbol.name().ok()?.to_owned();
                let offset = symbol.address().checked_sub(base)?;
                Some(Symbol { name, is_function, offset, size: symbol.size() })
            })
            .collect();
        symbols.sort_by(|a, b| (a.offset, &a.name).cmp(&(b.offset, &b.name)));
        symbols.dedup();
        let names = |defined: bool| {
            elf.dynamic_symbols()
                .filter(|symbol| symbol.is_undefined() != defined)
                .filter_map(|symbol| symbol.name().ok().map(str::to_owned))
                .filter(|name| !name.is_empty())
                .collect()
        };
        Self {
            name,
            path: path.to_owned(),
            imports: names(false),
            exports: names(true),
            slots: slots(elf),
            symbols,
            has_rseq: elf.section_by_name("__rseq_cs").is_some(),
        }
    }
}

/// The offset from the load base of the function or variable `name`, in the file of a running process. This reads only the
/// file's symbols.
pub fn offset(path: &Path, name: &str) -> Result<Option<u64>, Failure> {
    let data = map_file(path).map_err(|error| unreadable(path, &error))?;
    let elf = ElfFile64::<Endianness>::parse(&*data).map_err(|error| invalid(path, error))?;
    let mut symbols = elf.symbols().chain(elf.dynamic_symbols());
    let found = symbols.find(|symbol| {
        symbol.is_definition()
            && matches!(symbol.kind(), SymbolKind::Text | SymbolKind::Data)
            && symbol.name() == Ok(name)
    });
    Ok(found.and_then(|symbol| symbol.address().checked_sub(base(&elf))))
}

fn invalid(path: &Path, error: object::Error) -> Failure {
    Failure::new(format!("cannot read '{}': {error}", path.display()))
        .hint(format!("file '{}'", path.display()))
}

/// The load base: where the first page of the object belongs.
fn base(elf: &ElfFile64<'_, Endianness>) -> u64 {
    const PAGE: u64 = 4096;
    let endian = elf.endian();
    let segments = elf.elf_program_headers().iter();
    let loaded = segments.filter(|segment| segment.p_type(endian) == PT_LOAD);
    loaded.map(|segment| segment.p_vaddr(endian) & !(PAGE - 1)).min().unwrap_or(0)
}

/// The symbols whose addresses the dynamic linker writes into words of this object.
fn slots(elf: &ElfFile64<'_, Endianness>) -> BTreeSet<String> {
    let names = elf.dynamic_relocations().into_iter().flatten().filter_map(|(_, relocation)| {
        let RelocationFlags::Elf { r_type } = relocation.flags() else { return None };
        let RelocationTarget::Symbol(index) = relocation.target() else { return None };
        let is_slot = match elf.architecture() {
            Architecture::X86_64 => {
                [R_X86_64_JUMP_SLOT, R_X86_64_GLOB_DAT, R_X86_64_64].contains(&r_type)
            }
            _ => [R_AARCH64_JUMP_SLOT, R_AARCH64_GLOB_DAT, R_AARCH64_ABS64].contains(&r_type),
        };
        let symbols = elf.dynamic_symbol_table().filter(|_| is_slot && relocation.addend() == 0)?;
        Some(symbols.symbol_by_index(index).ok()?.name().ok()?.to_owned())
    });
    names.filter(|name| !name.is_empty()).collect()
}

/// The error for a file that can't be read.
pub(crate) fn unreadable(path: &Path, error: &io::Error) -> Failure {
    Failure::not_executable(format!("cannot read '{}': {}", path.display(), cause(error)))
        .hint(format!("ls -l '{}'", path.display()))
}
