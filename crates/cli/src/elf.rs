//! What a program's file tells: whether a preloaded library reaches it, what it imports, what it loads.

use crate::find;
use crate::hints::{Failure, cause};
use object::elf::{
    EM_386, EM_AARCH64, EM_ARM, EM_RISCV, EM_X86_64, Machine, PT_INTERP, PT_LOAD, R_AARCH64_ABS64,
    R_AARCH64_GLOB_DAT, R_AARCH64_JUMP_SLOT, R_X86_64_64, R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT,
};
use object::read::elf::{ElfFile64, ProgramHeader};
use object::{
    Architecture, Endianness, Object, ObjectSection, ObjectSymbol, ObjectSymbolTable,
    RelocationFlags, RelocationTarget, SymbolKind,
};
use std::collections::BTreeSet;
use std::ffi::{CString, OsStr};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Interpreters of interpreters that are followed, as the kernel does.
const SCRIPT_LEVELS: usize = 4;

/// A program, as far as its files tell.
#[derive(Debug)]
pub(crate) struct Program {
    /// What was asked for.
    pub(crate) path: PathBuf,
    /// The file that will run: the interpreter, if `path` is a script. Without symbolic links.
    pub(crate) file: PathBuf,
    /// The dynamic linker that it names.
    pub(crate) interpreter: Option<String>,
    /// Written in Go.
    pub(crate) go: bool,
    /// Static, and linked with `liblockwright_static.a` or `lockwright-sync`: it reads our variables itself.
    pub(crate) links_ours: bool,
    obstacle: Option<Obstacle>,
    object: Option<ObjectFile>,
}

/// Why a preloaded library can't reach a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Obstacle {
    NotElf,
    OtherArchitecture(&'static str),
    Static,
    Musl,
    OtherLinker(String),
    RaisedRights(&'static str),
}

impl Obstacle {
    pub(crate) fn reason(&self) -> String {
        match self {
            Self::NotElf => "it is neither a program nor a script".to_owned(),
            Self::OtherArchitecture(other) => {
                format!("it is built for {other}, this command for {}", std::env::consts::ARCH)
            }
            Self::Static => "it is statically linked, nothing can be preloaded".to_owned(),
            Self::Musl => "it is linked to musl, the library needs glibc".to_owned(),
            Self::OtherLinker(linker) => format!("its dynamic linker '{linker}' isn't glibc's"),
            Self::RaisedRights(what) => {
                format!("it {what}, so the dynamic linker ignores LD_PRELOAD")
            }
        }
    }

    pub(crate) fn hint(&self, path: &Path) -> String {
        let shown = path.display();
        match self {
            Self::NotElf => format!("file '{shown}'"),
            Self::OtherArchitecture(_) => format!("build it for this machine; file '{shown}'"),
            Self::Static => {
                "link it dynamically, without -static (or -C target-feature=+crt-static), \
                 or with our locks: docs/sync.md"
                    .to_owned()
            }
            Self::Musl | Self::OtherLinker(_) => {
                "build it for a glibc target, such as x86_64-unknown-linux-gnu".to_owned()
            }
            Self::RaisedRights(_) => {
                format!(
                    "run a copy without them: cp '{shown}' /tmp/ && lockwright run -- /tmp/{}",
                    path.file_name().unwrap_or_default().display()
                )
            }
        }
    }
}

impl Program {
    pub(crate) fn obstacle(&self) -> Option<&Obstacle> {
        self.obstacle.as_ref()
    }

    /// The program's own object, and those that the dynamic linker loads with it.
    pub(crate) fn objects(&self) -> Result<Vec<ObjectFile>, Failure> {
        let mut objects: Vec<_> = self.object.clone().into_iter().collect();
        for path in self.libraries()? {
            objects.push(ObjectFile::read(&path, file_name(&path))?);
        }
        Ok(objects)
    }

    /// The libraries that the dynamic linker would load; the program isn't run.
    fn libraries(&self) -> Result<Vec<PathBuf>, Failure> {
        let Some(linker) = self.interpreter.as_ref().filter(|_| self.obstacle.is_none()) else {
            return Ok(Vec::new());
        };
        let fail = |cause: String| {
            let shown = self.file.display();
            Failure::new(format!("cannot find the libraries of '{shown}': {cause}"))
                .hint(format!("ldd '{shown}'"))
        };
        let output = Command::new(linker)
            .arg("--list")
            .arg(&self.file)
            .env_remove("LD_PRELOAD")
            .stdin(Stdio::null())
            .output()
            .map_err(|error| fail(format!("{linker}: {}", cause(&error))))?;
        if !output.status.success() {
            let words = String::from_utf8_lossy(&output.stderr);
            return Err(fail(words.lines().next().unwrap_or("no reason given").to_owned()));
        }
        // `	libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f...)`; a library that the program names by
        // its path: `	./libfoo.so (0x00007f...)`, and so is the dynamic linker.
        let lines = String::from_utf8_lossy(&output.stdout).into_owned();
        let path = |line: &str| {
            let (named, _) = line.trim_start().rsplit_once(" (")?;
            let path = named.split_once(" => ").map_or(named, |(_, path)| path);
            Some(PathBuf::from(path)).filter(|_| path.contains('/') && path != linker)
        };
        Ok(lines.lines().filter_map(path).collect())
    }
}

/// Looks at the file that `path` would run.
pub(crate) fn inspect(path: &Path) -> Result<Program, Failure> {
    let (file, data) = follow(path)?;
    let mut program = Program {
        path: path.to_owned(),
        file,
        interpreter: None,
        go: false,
        links_ours: false,
        obstacle: None,
        object: None,
    };
    program.obstacle = examine(&mut program, &data).err();
    if program.obstacle == Some(Obstacle::Static) && has_our_runtime(&data) {
        program.links_ours = true;
        program.obstacle = None;
    }
    Ok(program)
}

/// Does it hold the name by which a linked runtime looks for the preloaded library? `strip` leaves that.
fn has_our_runtime(data: &[u8]) -> bool {
    const NAME: &[u8] = b"lockwright_preloaded\0";
    ElfFile64::<Endianness>::parse(data).is_ok_and(|elf| {
        let constants = elf.section_by_name(".rodata").and_then(|section| section.data().ok());
        constants.is_some_and(|bytes| bytes.windows(NAME.len()).any(|bytes| bytes == NAME))
    })
}

fn examine(program: &mut Program, data: &[u8]) -> Result<(), Obstacle> {
    let machine = match data {
        [0x7f, b'E', b'L', b'F', rest @ ..] if rest.len() > 60 => {
            Machine(u16::from_le_bytes([data[18], data[19]]))
        }
        _ => return Err(Obstacle::NotElf),
    };
    let other = match machine {
        EM_X86_64 if cfg!(target_arch = "x86_64") && data[4] == 2 => None,
        EM_AARCH64 if cfg!(target_arch = "aarch64") => None,
        EM_X86_64 if data[4] == 1 => Some("x32"),
        EM_X86_64 => Some("x86_64"),
        EM_AARCH64 => Some("aarch64"),
        EM_386 => Some("x86 (32 bits)"),
        EM_ARM => Some("arm (32 bits)"),
        EM_RISCV => Some("riscv"),
        _ => Some("another architecture"),
    };
    if let Some(other) = other {
        return Err(Obstacle::OtherArchitecture(other));
    }
    let elf = ElfFile64::<Endianness>::parse(data).map_err(|_| Obstacle::NotElf)?;
    program.go = elf.section_by_name(".go.buildinfo").is_some()
        || elf.section_by_name(".note.go.buildid").is_some();
    let interpreter = elf
        .elf_program_headers()
        .iter()
        .filter(|header| header.p_type(elf.endian()) == PT_INTERP)
        .find_map(|header| header.interpreter(elf.endian(), data).ok().flatten())
        .ok_or(Obstacle::Static)?;
    let interpreter = String::from_utf8_lossy(interpreter).into_owned();
    program.interpreter = Some(interpreter.clone());
    match interpreter.rsplit('/').next().unwrap_or_default() {
        name if name.starts_with("ld-musl") => return Err(Obstacle::Musl),
        name if name.starts_with("ld-linux") => {}
        _ => return Err(Obstacle::OtherLinker(interpreter)),
    }
    if let Some(what) = raised_rights(&program.file) {
        return Err(Obstacle::RaisedRights(what));
    }
    program.object = Some(ObjectFile::parse(&elf, &program.file, file_name(&program.file)));
    Ok(())
}

/// Does running the file change who we are? Only then does the dynamic linker turn careful.
fn raised_rights(file: &Path) -> Option<&'static str> {
    // SAFETY: these calls have no preconditions and can't fail.
    let (user, group) = unsafe { (libc::getuid(), libc::getgid()) };
    let about = fs::metadata(file).ok()?;
    let path = CString::new(file.as_os_str().as_bytes()).ok()?;
    // SAFETY: both strings end in NUL; with size 0 nothing is written.
    let capabilities = unsafe {
        libc::getxattr(path.as_ptr(), c"security.capability".as_ptr(), std::ptr::null_mut(), 0)
    };
    match () {
        () if about.mode() & libc::S_ISUID != 0 && about.uid() != user => Some("is setuid"),
        () if about.mode() & libc::S_ISGID != 0 && about.gid() != group => Some("is setgid"),
        () if capabilities > 0 && user != 0 => Some("has file capabilities"),
        () => None,
    }
}

/// The file that runs in the end, behind `#!` lines, and its content.
fn follow(path: &Path) -> Result<(PathBuf, Vec<u8>), Failure> {
    let mut path = path.to_owned();
    for _ in 0..SCRIPT_LEVELS {
        let data = read(&path)?;
        match script_interpreter(&data) {
            Some(interpreter) => path = find::program(OsStr::from_bytes(&interpreter))?,
            None => {
                let file = path.canonicalize().unwrap_or(path);
                return Ok((file, data));
            }
        }
    }
    Err(Failure::not_executable(format!(
        "cannot run '{}': more than {SCRIPT_LEVELS} interpreters of interpreters",
        path.display()
    )))
}

/// The interpreter of a script; `env NAME` is looked through. A text without `#!` is the shell's.
fn script_interpreter(data: &[u8]) -> Option<Vec<u8>> {
    let start = &data[..data.len().min(512)];
    let Some(line) = start.strip_prefix(b"#!") else {
        let text = !start.is_empty() && !start.contains(&0);
        return text.then(|| b"/bin/sh".to_vec());
    };
    let line = line.split(|&byte| byte == b'\n').next()?;
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let first = words.next()?;
    if first.ends_with(b"/env") {
        // Options and assignments come before the name: `env -S A=1 python3 -u`.
        return words
            .find(|word| !word.starts_with(b"-") && !word.contains(&b'='))
            .map(<[u8]>::to_vec);
    }
    Some(first.to_vec())
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let mut data = Vec::new();
    File::open(path).and_then(|mut file| file.read_to_end(&mut data)).map_err(|error| {
        Failure::not_executable(format!("cannot read '{}': {}", path.display(), cause(&error)))
            .hint(format!("ls -l '{}'", path.display()))
    })?;
    Ok(data)
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().display().to_string()
}

/// A program's or a library's symbols.
#[derive(Clone, Debug)]
pub(crate) struct ObjectFile {
    /// The name that rules use.
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    /// What it takes from others.
    pub(crate) imports: BTreeSet<String>,
    /// What it offers to others.
    pub(crate) exports: BTreeSet<String>,
    /// What its calls and tables get by the dynamic linker, from others or from itself.
    pub(crate) slots: BTreeSet<String>,
    /// Functions and variables of its own.
    pub(crate) symbols: Vec<Symbol>,
}

/// A function or a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Symbol {
    /// As the object has it, mangled.
    pub(crate) name: String,
    pub(crate) is_function: bool,
    /// From the object's load base.
    pub(crate) offset: u64,
    pub(crate) size: u64,
}

impl ObjectFile {
    pub(crate) fn read(path: &Path, name: String) -> Result<Self, Failure> {
        let data = read(path)?;
        let elf = ElfFile64::<Endianness>::parse(&*data).map_err(|error| {
            Failure::new(format!("cannot read '{}': {error}", path.display()))
                .hint(format!("file '{}'", path.display()))
        })?;
        Ok(Self::parse(&elf, path, name))
    }

    fn parse(elf: &ElfFile64<'_, Endianness>, path: &Path, name: String) -> Self {
        const PAGE: u64 = 4096;
        let endian = elf.endian();
        let base = elf
            .elf_program_headers()
            .iter()
            .filter(|header| header.p_type(endian) == PT_LOAD)
            .map(|header| header.p_vaddr(endian) & !(PAGE - 1))
            .min()
            .unwrap_or(0);
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
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interpreter_is_found_behind_env() {
        let interpreter = |text: &str| script_interpreter(text.as_bytes());
        let some = |name: &str| Some(name.as_bytes().to_vec());
        assert_eq!(interpreter("#!/bin/bash -e\n"), some("/bin/bash"));
        assert_eq!(interpreter("#! /usr/bin/env python3\nx"), some("python3"));
        assert_eq!(interpreter("#!/usr/bin/env -S A=1 perl -w\n"), some("perl"));
        assert_eq!(interpreter("echo hello\n"), some("/bin/sh"));
        assert_eq!(interpreter("\x7fELF\0"), None);
        assert_eq!(interpreter(""), None);
    }

    #[test]
    fn this_test_is_a_reachable_program_with_libc() {
        let program = inspect(&std::env::current_exe().unwrap()).unwrap();
        assert_eq!(program.obstacle(), None);
        let objects = program.objects().unwrap();
        assert!(objects[0].imports.contains("pthread_mutex_lock") || objects.len() > 1);
        let libc = objects.iter().find(|object| object.name == "libc.so.6").unwrap();
        assert!(libc.exports.contains("pthread_mutex_lock"));
    }
}
