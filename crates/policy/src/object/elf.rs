//! From an ELF file for eBPF to an [`Object`].
//!
//! The file may come from anybody. `object` checks each access; what it hands out is checked here. (Loaders for one's own objects, as
//! `aya-obj`, panic at damaged ones.)

use super::btf::Btf;
use super::{
    HookCode, Insn, LARGEST_FILE, MOST_MAPS, NamedConstant, NamedMap, Object, ObjectError,
    constants,
};
use lockwright_contract::programs::maps::{Layout, MapKind, MapSpec};
use lockwright_platform::hooks::Hook;
use object::elf::{EM_BPF, FileHeader64};
use object::read::elf::{ElfFile64, FileHeader};
use object::{
    LittleEndian, Object as _, ObjectSection, ObjectSymbol, RelocationFlags, RelocationTarget,
    SectionFlags, SectionIndex, SectionKind, SymbolKind, elf,
};
use std::collections::BTreeMap;

/// How a hook's section begins. The kernel's verifier takes such sections for tracepoints, whose context it only reads.
pub(super) const PREFIX: &str = "tp/lockwright/";

/// The most sections of a file, and the most bytes of a section's name. Compilers write a few dozen.
const MOST_SECTIONS: usize = 1024;
const LONGEST_NAME: usize = 256;

type Elf<'a> = ElfFile64<'a, LittleEndian>;
type Section<'a, 'file> = object::read::elf::ElfSection64<'a, 'file, LittleEndian>;
type Symbol<'a, 'file> = object::read::elf::ElfSymbol64<'a, 'file, LittleEndian>;

pub(super) fn read(file: &[u8]) -> Result<Object, ObjectError> {
    if file.len() > LARGEST_FILE {
        return Err(ObjectError::LargeFile(file.len()));
    }
    let elf = parse(file)?;
    if elf.sections().count() > MOST_SECTIONS {
        return Err(ObjectError::Damaged("it has too many sections"));
    }
    let sections = Sections { types: Types::new(&elf), elf: &elf };
    let code = sections.code()?;
    let mut maps = Maps::new(&sections)?;
    let hooks = code.into_iter().map(|(hook, section)| sections.hook(hook, &section, &mut maps));
    let mut hooks = hooks.collect::<Result<Vec<_>, _>>()?;
    hooks.sort_by_key(|code| code.hook);
    let maps = maps.finish()?;
    Ok(Object { hooks, maps })
}

fn parse(file: &[u8]) -> Result<Elf<'_>, ObjectError> {
    let no_elf = |error: object::Error| ObjectError::NoElf(error.to_string().to_lowercase());
    let kind = object::FileKind::parse(file).map_err(no_elf)?;
    if kind != object::FileKind::Elf64 {
        return Err(ObjectError::OtherMachine(format!("{kind:?}").to_lowercase()));
    }
    let header = FileHeader64::<object::Endianness>::parse(file).map_err(no_elf)?;
    let endian = header.endian().map_err(no_elf)?;
    if header.e_machine(endian) != EM_BPF {
        let machine = object::File::parse(file).map(|file| file.architecture()).map_err(no_elf)?;
        return Err(ObjectError::OtherMachine(format!("{machine:?}").to_lowercase()));
    }
    if endian != object::Endianness::Little {
        return Err(ObjectError::OtherMachine("big-endian eBPF".into()));
    }
    Elf::parse(file).map_err(no_elf)
}

/// The object's debug information.
struct Types<'a> {
    btf: Option<Btf<'a>>,
    ext: &'a [u8],
}

impl<'a> Types<'a> {
    fn new(elf: &Elf<'a>) -> Self {
        let data = |name| elf.section_by_name(name).and_then(|section| section.data().ok());
        let btf = data(".BTF").and_then(Btf::read);
        Self { btf, ext: data(".BTF.ext").unwrap_or_default() }
    }
}

struct Sections<'a, 'file> {
    elf: &'file Elf<'a>,
    types: Types<'a>,
}

impl<'a, 'file> Sections<'a, 'file> {
    fn name(section: &Section<'a, 'file>) -> Result<&'a str, ObjectError> {
        match section.name() {
            Ok(name) if name.len() <= LONGEST_NAME => Ok(name),
            Ok(_) => Err(ObjectError::Damaged("a section's name is too long")),
            Err(_) => Err(ObjectError::Damaged("a section has no name")),
        }
    }

    /// The hooks' sections.
    fn code(&self) -> Result<BTreeMap<Hook, Section<'a, 'file>>, ObjectError> {
        let mut found = BTreeMap::new();
        for section in self.elf.sections() {
            let is_code = matches!(section.flags(), SectionFlags::Elf { sh_flags, .. }
                if sh_flags.0 & elf::SHF_EXECINSTR.0 != 0);
            let name = Self::name(&section)?;
            // Functions that no hook calls are in `.text`.
            if !is_code || section.size() == 0 || name == ".text" {
                continue;
            }
            let hook = name.strip_prefix(PREFIX).unwrap_or(name);
            let Some(known) = Hook::ALL
                .into_iter()
                .find(|known| name.starts_with(PREFIX) && known.name() == hook)
            else {
                let last = hook.rsplit('/').next().unwrap_or(hook);
                let names = Hook::ALL.into_iter().map(Hook::name);
                let nearest = lockwright_text::nearest(last, names);
                return Err(ObjectError::UnknownSection { name: name.to_owned(), nearest });
            };
            if found.insert(known, section).is_some() {
                return Err(ObjectError::Functions { hook: known, count: 2 });
            }
        }
        if found.is_empty() { Err(ObjectError::NoHook) } else { Ok(found) }
    }

    fn hook(
        &self,
        hook: Hook,
        section: &Section<'a, 'file>,
        maps: &mut Maps<'a, 'file>,
    ) -> Result<HookCode, ObjectError> {
        let is_function = |symbol: &Symbol<'a, 'file>| {
            symbol.kind() == SymbolKind::Text
                && symbol.section_index() == Some(section.index())
                && symbol.size() > 0
        };
        let count = self.elf.symbols().filter(is_function).count();
        if count != 1 {
            return Err(ObjectError::Functions { hook, count });
        }
        let damaged = |_| ObjectError::Damaged("a section lies outside of the file");
        let data = section.data().map_err(damaged)?;
        if data.len() % 8 != 0 {
            return Err(ObjectError::Damaged("a hook ends within an instruction"));
        }
        let insns = data.chunks_exact(8).map(insn).collect();
        let lines = self.types.btf.as_ref().map_or(Vec::new(), |btf| {
            btf.lines(self.types.ext, section.name().unwrap_or_default())
        });
        let mut code = HookCode { hook, insns, lines };
        for (offset, relocation) in section.relocations() {
            let RelocationTarget::Symbol(symbol) = relocation.target() else {
                return Err(ObjectError::Damaged("a relocation without a symbol"));
            };
            let RelocationFlags::Elf { r_type } = relocation.flags() else {
                return Err(ObjectError::Damaged("a relocation without a type"));
            };
            let place = usize::try_from(offset).ok().filter(|offset| offset % 8 == 0);
            let place = place.map(|offset| offset / 8).filter(|place| *place < code.insns.len());
            let place =
                place.ok_or(ObjectError::Damaged("a relocation is not at an instruction"))?;
            let symbol = self
                .elf
                .symbol_by_index(symbol)
                .map_err(|_| ObjectError::Damaged("a relocation's symbol is missing"))?;
            if r_type.0 == elf::R_BPF_64_64.0 {
                self.address(&mut code, place, &symbol, maps)?;
            } else {
                return Err(self.call(&code, place, &symbol));
            }
        }
        let is_call = |insn: &Insn| insn.code == 0x85 && insn.src == 1;
        match code.insns.iter().position(is_call) {
            Some(place) => Err(ObjectError::CallsFunction {
                hook,
                function: hook.name().to_owned(),
                line: code.line(place).cloned(),
            }),
            None => Ok(code),
        }
    }

    /// An instruction loads the address of something.
    fn address(
        &self,
        code: &mut HookCode,
        place: usize,
        target: &Symbol<'a, 'file>,
        maps: &mut Maps<'a, 'file>,
    ) -> Result<(), ObjectError> {
        let line = code.line(place).cloned();
        let [first, second] = code
            .insns
            .get_mut(place..)
            .and_then(|rest| rest.first_chunk_mut())
            .filter(|pair: &&mut [Insn; 2]| pair[0].code == 0x18)
            .ok_or(ObjectError::Damaged("a relocation is not at a load of an address"))?;
        // The symbol may be the section: then the instruction has the offset in it.
        let offset = target.address().wrapping_add_signed(i64::from(first.imm));
        match maps.find(target.section_index(), offset)? {
            Some(Global::Map(number)) => {
                (first.src, first.imm, second.imm) = (1, number, 0);
                Ok(())
            }
            Some(Global::Variable(number, offset)) => {
                (first.src, first.imm, second.imm) = (2, number, offset);
                Ok(())
            }
            None if self.is_code(target.section_index()) => Err(ObjectError::CallsFunction {
                hook: code.hook,
                function: named(target).to_owned(),
                line,
            }),
            None => {
                let symbol = named(target).to_owned();
                Err(ObjectError::UnknownSymbol { hook: code.hook, symbol, line })
            }
        }
    }

    fn is_code(&self, section: Option<SectionIndex>) -> bool {
        let section = section.and_then(|section| self.elf.section_by_index(section).ok());
        section.is_some_and(|section| section.kind() == SectionKind::Text)
    }

    /// An instruction calls a function: which?
    fn call(&self, code: &HookCode, place: usize, target: &Symbol<'a, 'file>) -> ObjectError {
        let imm = code.insns[place].imm;
        // The call of a static function names its section, and has the function's place in it.
        let inside = target.address().wrapping_add_signed(8 * (i64::from(imm) + 1));
        let inner = self.elf.symbols().find(|symbol| {
            symbol.kind() == SymbolKind::Text
                && symbol.section_index() == target.section_index()
                && symbol.address() == inside
        });
        let outer = named(target);
        let function = match inner.and_then(|symbol| symbol.name().ok()) {
            Some(name) if outer.is_empty() || outer.starts_with('.') => name,
            _ => outer,
        };
        ObjectError::CallsFunction {
            hook: code.hook,
            function: function.to_owned(),
            line: code.line(place).cloned(),
        }
    }
}

/// The name of what an instruction refers to.
fn named<'a>(symbol: &Symbol<'a, '_>) -> &'a str {
    symbol.name().unwrap_or_default()
}

fn insn(bytes: &[u8]) -> Insn {
    let imm = i32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
    Insn {
        code: bytes[0],
        dst: bytes[1] & 15,
        src: bytes[1] >> 4,
        off: i16::from_le_bytes([bytes[2], bytes[3]]),
        imm,
    }
}

enum Global {
    Map(i32),
    Variable(i32, i32),
}

/// The maps, as far as they are known.
struct Maps<'a, 'file> {
    /// Where each map lies in `.maps`.
    places: BTreeMap<u64, i32>,
    section: Option<SectionIndex>,
    variables: Vec<Variables<'a, 'file>>,
    maps: Vec<NamedMap>,
}

/// A section of variables.
struct Variables<'a, 'file> {
    section: Section<'a, 'file>,
    constants: Vec<NamedConstant>,
    /// The number of its map, once it is used.
    map: Option<i32>,
}

impl<'a, 'file> Maps<'a, 'file> {
    fn new(sections: &Sections<'a, 'file>) -> Result<Self, ObjectError> {
        let mut found = Self {
            places: BTreeMap::new(),
            section: None,
            variables: Vec::new(),
            maps: Vec::new(),
        };
        let mut has_constants = false;
        for section in sections.elf.sections() {
            let name = Sections::name(&section)?;
            if name == ".maps" && section.size() > 0 {
                found.section = Some(section.index());
            } else if name == "maps" || name.starts_with("maps/") {
                let what = "is defined in the old form".to_owned();
                return Err(ObjectError::Map { map: name.to_owned(), what });
            } else if [".data", ".bss", ".rodata"].iter().any(|kind| name.starts_with(kind)) {
                // A file may have several of that name, all of them large.
                let is_first = name == constants::SECTION && !has_constants;
                has_constants |= is_first;
                let constants = match is_first {
                    true => constants::of(sections.elf, sections.types.btf.as_ref(), &section),
                    false => Vec::new(),
                };
                found.variables.push(Variables { section, constants, map: None });
            }
        }
        let Some(section) = found.section else { return Ok(found) };
        let btf = sections.types.btf.as_ref().ok_or(ObjectError::NoTypes)?;
        let mut addresses: BTreeMap<&str, u64> = BTreeMap::new();
        let symbols = sections.elf.symbols().filter(|one| one.section_index() == Some(section));
        // One for each map, and one for the section.
        for symbol in symbols.take(MOST_MAPS + 2) {
            addresses.insert(symbol.name().unwrap_or_default(), symbol.address());
        }
        let variables = btf.variables(".maps");
        if variables.is_empty() {
            return Err(ObjectError::NoTypes);
        }
        if variables.len() > MOST_MAPS {
            return Err(ObjectError::ManyMaps(variables.len()));
        }
        let mut placed = Vec::new();
        for (name, number) in variables {
            let address = addresses.get(name).ok_or(ObjectError::Damaged("a map has no symbol"))?;
            placed.push((*address, name, number));
        }
        placed.sort_unstable();
        for (address, name, number) in placed {
            let spec = map(btf, number)
                .and_then(checked)
                .map_err(|what| ObjectError::Map { map: name.to_owned(), what })?;
            let number = found.add(name, spec, Vec::new())?;
            if found.places.insert(address, number).is_some() {
                return Err(ObjectError::Damaged("two maps have one address"));
            }
        }
        Ok(found)
    }

    fn add(&mut self, name: &str, spec: MapSpec, initial: Vec<u8>) -> Result<i32, ObjectError> {
        let number = self.maps.len();
        if number >= MOST_MAPS {
            return Err(ObjectError::ManyMaps(number + 1));
        }
        let constants = Vec::new();
        self.maps.push(NamedMap { name: name.to_owned(), spec, initial, constants });
        Ok(i32::try_from(number).unwrap_or_default())
    }

    /// The map or the variable at this place. A section of variables becomes a map when it is first used.
    fn find(
        &mut self,
        section: Option<SectionIndex>,
        offset: u64,
    ) -> Result<Option<Global>, ObjectError> {
        if section.is_some() && section == self.section {
            return Ok(self.places.get(&offset).map(|number| Global::Map(*number)));
        }
        let Some(at) = self.variables.iter().position(|one| Some(one.section.index()) == section)
        else {
            return Ok(None);
        };
        let number = match self.variables[at].map {
            Some(number) => number,
            None => {
                let number = self.add_variables(at)?;
                self.variables[at].map = Some(number);
                number
            }
        };
        Ok(i32::try_from(offset).ok().map(|offset| Global::Variable(number, offset)))
    }

    fn add_variables(&mut self, at: usize) -> Result<i32, ObjectError> {
        let section = &self.variables[at].section;
        let name = Sections::name(section)?;
        if section.relocations().next().is_some() {
            return Err(ObjectError::Address(name.to_owned()));
        }
        let spec = MapSpec {
            kind: MapKind::Array,
            key_size: 4,
            value_size: u32::try_from(section.size()).unwrap_or(u32::MAX),
            max_entries: 1,
        };
        let spec = checked(spec).map_err(|what| ObjectError::Map { map: name.to_owned(), what })?;
        let initial = if section.kind() == SectionKind::UninitializedData {
            vec![0; spec.value_size as usize]
        } else {
            let data = section.data();
            data.map_err(|_| ObjectError::Damaged("a section lies outside of the file"))?.to_vec()
        };
        if initial.len() != spec.value_size as usize {
            return Err(ObjectError::Damaged("a section of variables is shorter than it says"));
        }
        let number = self.add(name, spec, initial)?;
        if let Some(map) = self.maps.last_mut() {
            map.constants = std::mem::take(&mut self.variables[at].constants);
        }
        Ok(number)
    }

    fn finish(self) -> Result<Vec<NamedMap>, ObjectError> {
        let specs: Vec<_> = self.maps.iter().map(|map| map.spec).collect();
        match Layout::new(&specs, ROWS) {
            Ok(_) => Ok(self.maps),
            Err((_, bad)) => {
                let of = |spec: &MapSpec| spec.header(0, ROWS).len;
                let largest = self.maps.iter().max_by_key(|map| of(&map.spec));
                let largest = largest.map(|map| map.name.clone()).unwrap_or_default();
                Err(ObjectError::LargeMaps(bad.to_string(), largest))
            }
        }
    }
}

/// A map's definition, by its type.
fn map(btf: &Btf, number: u32) -> Result<MapSpec, String> {
    let members = btf.members(number).ok_or("its type isn't a structure")?;
    let mut kind = None;
    let mut spec = MapSpec { kind: MapKind::Hash, key_size: 0, value_size: 0, max_entries: 0 };
    for (name, member) in members {
        let number = || btf.number(member).ok_or(format!("'{name}' isn't a number"));
        let size = || {
            let size = btf.pointed_size(member).and_then(|size| u32::try_from(size).ok());
            size.ok_or(format!("'{name}' has no size"))
        };
        match name {
            "type" => kind = Some(number()?),
            "max_entries" => spec.max_entries = number()?,
            "key_size" => spec.key_size = number()?,
            "value_size" => spec.value_size = number()?,
            "key" => spec.key_size = size()?,
            "value" => spec.value_size = size()?,
            "map_flags" if number()? == 0 => {}
            _ => return Err(format!("'{name}' is not supported")),
        }
    }
    let kind = kind.ok_or("it has no type")?;
    spec.kind = MapKind::of(kind).ok_or_else(|| {
        format!("type {kind} is none of LW_HASH, LW_ARRAY, LW_PERCPU_ARRAY, LW_RINGBUF")
    })?;
    Ok(spec)
}

/// Checks a map's sizes.
fn checked(spec: MapSpec) -> Result<MapSpec, String> {
    spec.check().map(|()| spec).map_err(|bad| bad.to_string())
}

/// How many rows a per-CPU array is taken to have.
const ROWS: u32 = 64;
