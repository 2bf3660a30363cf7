//! Reads a program's file: whether a preloaded library reaches it, and what it loads.

use crate::find;
use crate::libraries;
use crate::objects::{ObjectFile, unreadable};
use crate::whose::{self, Whose};
use lockwright_files::open_file;
use lockwright_text::Failure;
use object::elf::{
    EM_386, EM_AARCH64, EM_ARM, EM_RISCV, EM_X86_64, FileHeader64, Machine, PT_INTERP,
};
use object::read::ReadCache;
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use object::{Endianness, Object, ObjectSection};
use std::ffi::{CString, OsStr};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// How much of a file the kernel reads to find out how to run it. An ELF header is shorter.
const HEAD: usize = 256;
/// How many nested interpreters we follow: as many as the kernel does.
const SCRIPT_LEVELS: usize = 5;

/// What a program's files tell about it.
#[derive(Debug)]
pub struct Program {
    /// The path that the user gave.
    pub path: PathBuf,
    /// The file that will run: the interpreter, if `path` is a script. Without symbolic links.
    pub file: PathBuf,
    /// The dynamic linker that it names.
    pub interpreter: Option<String>,
    /// Is it written in Go?
    pub go: bool,
    obstacle: Option<Obstacle>,
}

/// Why a preloaded library can't reach a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// It is neither a program nor a script.
    NotElf,
    /// It is built for these processors.
    OtherArchitecture(&'static str),
    /// No dynamic linker loads it.
    Static,
    /// musl's dynamic linker loads it.
    Musl,
    /// This dynamic linker loads it.
    OtherLinker(String),
    /// It runs with more rights than its user: why.
    RaisedRights(&'static str),
}

impl Obstacle {
    /// In words: `it is ...`.
    pub fn reason(&self) -> String {
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

    /// What to do about it. `path` is the program.
    pub fn hint(&self, path: &Path) -> String {
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
                    "run a copy, which has no such right: cp '{shown}' /tmp/ && lockwright run -- /tmp/{}",
                    path.file_name().unwrap_or_default().display()
                )
            }
        }
    }
}

impl Program {
    /// Why a preloaded library can't reach it, if so.
    pub fn obstacle(&self) -> Option<&Obstacle> {
        self.obstacle.as_ref()
    }

    /// Is it a program that no dynamic linker loads?
    pub fn is_static(&self) -> bool {
        self.interpreter.is_none()
    }

    /// The language's runtime, if it has its own locks. This searches the whole file.
    pub fn made_by(&self) -> Option<Whose> {
        let data = ReadCache::new(open_file(&self.file).ok()?);
        whose::made_by(&ElfFile64::<Endianness, _>::parse(&data).ok()?)
    }

    /// Is it linked with `liblockwright_static.a` or `lockwright-sync`? Then it reads our variables itself. This searches
    /// the whole file.
    pub fn links_ours(&self) -> bool {
        open_file(&self.file).is_ok_and(|data| has_our_runtime(&ReadCache::new(data)))
    }

    /// The program's own object, and those that the dynamic linker loads with it. This reads all of these files, and runs none.
    pub fn objects(&self) -> Result<Vec<ObjectFile>, Failure> {
        let Some(linker) = self.interpreter.as_ref().filter(|_| self.obstacle.is_none()) else {
            return Ok(Vec::new());
        };
        let mut objects = vec![ObjectFile::read(&self.file, file_name(&self.file))?];
        for path in libraries::of(&self.file, Path::new(linker))? {
            objects.push(ObjectFile::read(&path, file_name(&path))?);
        }
        Ok(objects)
    }
}

/// Inspects the file that running `path` would execute. This reads only the file's headers, since the program waits
/// for it. (Of a static program it also reads the constants.)
pub fn inspect(path: &Path) -> Result<Program, Failure> {
    let (file, head, data) = follow(path)?;
    let data = ReadCache::new(data);
    let mut program =
        Program { path: path.to_owned(), file, interpreter: None, go: false, obstacle: None };
    program.obstacle = examine(&mut program, &head, &data).err();
    if program.obstacle == Some(Obstacle::Static) && has_our_runtime(&data) {
        program.obstacle = None;
    }
    Ok(program)
}

/// Does it contain the name by which a linked runtime looks for the preloaded library? `strip` keeps this name.
fn has_our_runtime(data: &ReadCache<File>) -> bool {
    const NAME: &[u8] = b"lockwright_preloaded\0";
    ElfFile64::<Endianness, _>::parse(data).is_ok_and(|elf| {
        let constants = elf.section_by_name(".rodata").and_then(|section| section.data().ok());
        constants.is_some_and(|bytes| whose::find(bytes, NAME).is_some())
    })
}

fn examine(program: &mut Program, head: &[u8], data: &ReadCache<File>) -> Result<(), Obstacle> {
    let machine = match head {
        [0x7f, b'E', b'L', b'F', rest @ ..] if rest.len() > 60 => {
            Machine(u16::from_le_bytes([head[18], head[19]]))
        }
        _ => return Err(Obstacle::NotElf),
    };
    let other = match machine {
        EM_X86_64 if cfg!(target_arch = "x86_64") && head[4] == 2 => None,
        EM_AARCH64 if cfg!(target_arch = "aarch64") => None,
        EM_X86_64 if head[4] == 1 => Some("x32"),
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
    let not_elf = |_| Obstacle::NotElf;
    let header = FileHeader64::<Endianness>::parse(data).map_err(not_elf)?;
    let endian = header.endian().map_err(not_elf)?;
    let segments = header.program_headers(endian, data).map_err(not_elf)?;
    // Neither the kernel nor the dynamic linker needs the sections.
    program.go =
        header.sections(endian, data).is_ok_and(|sections| whose::is_go(endian, &sections));
    let interpreter = segments
        .iter()
        .filter(|segment| segment.p_type(endian) == PT_INTERP)
        .find_map(|segment| segment.interpreter(endian, data).ok().flatten())
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
    Ok(())
}

/// Does executing the file raise the user's rights? If so, the dynamic linker ignores LD_PRELOAD.
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

/// The file that finally runs, after following `#!` lines: its path, its first bytes, and the open file.
fn follow(script: &Path) -> Result<(PathBuf, Vec<u8>, File), Failure> {
    let mut path = script.to_owned();
    for _ in 0..=SCRIPT_LEVELS {
        let (head, data) = open(&path)?;
        let Some(line) = interpreter_line(&head) else {
            let file = path.canonicalize().unwrap_or(path);
            return Ok((file, head, data));
        };
        let interpreter = interpreter(line).ok_or_else(|| {
            Failure::not_executable(format!(
                "cannot run '{}': its first line names no interpreter",
                path.display()
            ))
            .hint(format!("head -n 1 '{}'", path.display()))
        })?;
        path = find::program(OsStr::from_bytes(&interpreter)).map_err(|failure| {
            let place = format!("'{}' needs an interpreter: ", path.display());
            failure.within(&place).hint(format!("head -n 1 '{}'", path.display()))
        })?;
    }
    Err(Failure::not_executable(format!(
        "cannot run '{}': more than {SCRIPT_LEVELS} interpreters of interpreters",
        script.display()
    ))
    .hint(format!("head -n 1 '{}' '{}'", script.display(), path.display())))
}

/// What follows `#!`, as far as the kernel reads. A text file without `#!` runs in the shell; `None`: not a script.
fn interpreter_line(start: &[u8]) -> Option<&[u8]> {
    match start.strip_prefix(b"#!") {
        Some(line) => line.split(|&byte| byte == b'\n').next(),
        None if start.is_empty() || start.contains(&0) => None,
        None => Some(b"/bin/sh"),
    }
}

/// The interpreter that a line names, or the program that its `env` starts. The kernel splits words only at blanks, so
/// a carriage return belongs to the word.
fn interpreter(line: &[u8]) -> Option<Vec<u8>> {
    let (name, argument) = word(line);
    if name.is_empty() {
        return None;
    }
    // The interpreter gets everything after its name as one argument.
    match name.rsplit(|&byte| byte == b'/').next() {
        Some(b"env") if !argument.is_empty() => command_of_env(argument),
        _ if name.contains(&b'/') => Some(name.to_vec()),
        // The kernel doesn't search PATH.
        _ => Some([b"./", name].concat()),
    }
}

/// The first word, and the rest with blanks trimmed.
fn word(text: &[u8]) -> (&[u8], &[u8]) {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let trim = |text: &'_ [u8]| {
        let start = text.iter().position(|byte| !is_blank(byte)).unwrap_or(text.len());
        let end = text.iter().rposition(|byte| !is_blank(byte)).map_or(start, |last| last + 1);
        start..end
    };
    let text = &text[trim(text)];
    let (name, rest) = text.split_at(text.iter().position(is_blank).unwrap_or(text.len()));
    (name, &rest[trim(rest)])
}

/// The command that `env` starts, given this single argument. It is split into words only with -S, which other flags
/// may precede (`-iS`).
fn command_of_env(argument: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(argument).ok()?;
    let split = text.strip_prefix("--split-string=").or_else(|| {
        let (flags, words) = text.strip_prefix('-')?.split_once('S')?;
        flags.chars().all(|flag| "iv0".contains(flag)).then_some(words)
    });
    let Some(split) = split else {
        return Some(argument.to_vec());
    };
    let mut words = shlex::split(split)?.into_iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "-u" | "--unset" | "-C" | "--chdir" => drop(words.next()),
            _ if word.starts_with('-') || word.contains('=') => {}
            _ => return Some(word.into_bytes()),
        }
    }
    None
}

/// Opens a file, and reads its first bytes.
fn open(path: &Path) -> Result<(Vec<u8>, File), Failure> {
    let mut head = Vec::with_capacity(HEAD);
    let file = open_file(path)
        .and_then(|file| (&file).take(HEAD as u64).read_to_end(&mut head).map(|_| file));
    Ok((head, file.map_err(|error| unreadable(path, &error))?))
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interpreter_is_what_the_kernel_and_env_take() {
        let cases = [
            ("#!/bin/bash -e\n", "/bin/bash"),
            ("#! /usr/bin/env python3\nx", "python3"),
            ("#!/usr/bin/env -S A=1 perl -w\n", "perl"),
            ("#!/usr/bin/env -vSpython3 -u\n", "python3"),
            ("#!/usr/bin/env -S -i -u B --chdir=/ 'my python' -u\n", "my python"),
            ("#!/usr/bin/env --split-string=node --x\n", "node"),
            // Without -S it is one word, and env finds no such program. Nor does the kernel find this interpreter.
            ("#!/usr/bin/env python3 -u\n", "python3 -u"),
            ("#!/bin/sh\r\n", "/bin/sh\r"),
            ("#!/usr/bin/env\n", "/usr/bin/env"),
            ("#!python3\n", "./python3"),
            ("echo hello\n", "/bin/sh"),
        ];
        for (text, name) in cases {
            let found = interpreter_line(text.as_bytes()).and_then(interpreter);
            assert_eq!(found.as_deref(), Some(name.as_bytes()), "{text}");
        }
        for text in ["#!\nx", "#! \t\n", "#!/usr/bin/env -S A=1\n"] {
            assert_eq!(interpreter_line(text.as_bytes()).map(interpreter), Some(None), "{text}");
        }
        assert_eq!(interpreter_line(b"\x7fELF\0"), None);
        assert_eq!(interpreter_line(b""), None);
    }

    #[test]
    fn inspecting_reads_little_of_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("huge");
        fs::copy(std::env::current_exe().unwrap(), &path).unwrap();
        // A hole. No memory has room for this file.
        File::options().write(true).open(&path).unwrap().set_len(1 << 42).unwrap();
        let program = inspect(&path).unwrap();
        assert_eq!((program.obstacle(), program.go), (None, false));
        assert_eq!(program.made_by(), Some(Whose::Rust));
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
