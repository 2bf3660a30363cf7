//! What the threads of a Python process run: functions, files and lines, read from the interpreter's own memory. No
//! thread is stopped.
//!
//! Supports CPython 3.11 to 3.13. Older versions don't note a thread's system id, and from 3.14 on locks are no longer
//! semaphores, so this code isn't needed. (`py-spy` knows all versions. But as a library it reads all threads at once, and it
//! would bring 14 crates, and second versions of five.)
//!
//! Running threads change the memory while we read it, so a pointer may lead anywhere. We check everything that we read.
//! If a check fails, there is no stack.

mod layout;
mod lines;
mod withs;

use crate::elf::Elf;
use crate::frame::Frame;
use crate::space::Mapping;
use crate::symboliser::Symboliser;
use crate::thread::read_memory;
use layout::{Layout, Text};
use object::{Object, ObjectSymbol};
use rustc_hash::FxHashMap;
use std::io;
use std::rc::Rc;

/// The most that we follow; a longer list isn't a real one.
const INTERPRETERS: usize = 64;
const THREADS: usize = 4096;
const FRAMES: usize = 128;
/// The longest name, characters; the longest table of lines, bytes.
const NAME: u64 = 1024;
const TABLE: u64 = 1 << 20;

/// The interpreter in a running process.
#[derive(Debug)]
pub struct Python {
    pid: libc::pid_t,
    /// Its file's name.
    module: String,
    /// The address of `_PyRuntime`.
    runtime: u64,
    layout: Layout,
    codes: FxHashMap<u64, Rc<Code>>,
}

/// A function that a thread runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PythonFrame {
    /// Function, file and line.
    pub frame: Frame,
    /// The line is in the body of a `with` statement.
    pub is_in_with: bool,
    /// The line begins a `with` statement, which is just being entered.
    pub enters_with: bool,
}

/// A code object, and what is known about it as long as its words stay the same.
#[derive(Debug)]
struct Code {
    words: [u64; 5],
    function: String,
    file: String,
    lines: Vec<u8>,
    handlers: Vec<u8>,
    code: Vec<u8>,
}

impl Python {
    /// The interpreter in this process; `None`: there is none. An error says why its stacks can't be read.
    ///
    /// # Errors
    ///
    /// There is no such process, we may not look, or we don't know its version's memory layout.
    pub fn of_process(pid: libc::pid_t) -> io::Result<Option<Self>> {
        let mut symbols = Symboliser::of_process(pid)?;
        let Some((module, runtime, version)) = find(&mut symbols) else { return Ok(None) };
        let refuse = |why: &str| io::Error::new(io::ErrorKind::Unsupported, why.to_owned());
        let version = match version {
            None => return Err(refuse("it is older than 3.11")),
            Some(at) => read_word(pid, at)?,
        };
        let (major, minor) = (version >> 24 & 0xff, version >> 16 & 0xff);
        let layout = match (major, minor) {
            (3, 11) => layout::V3_11,
            (3, 12) => layout::V3_12,
            (3, 13) => {
                let mut bytes = [0; layout::DEBUG_OFFSETS];
                let length = read_memory(pid, runtime, &mut bytes)?;
                layout::of_3_13(&bytes[..length])
                    .ok_or_else(|| refuse("its table of offsets can't be read"))?
            }
            _ => return Err(refuse(&format!("{major}.{minor} is not known to us"))),
        };
        Ok(Some(Self { pid, module, runtime, layout, codes: FxHashMap::default() }))
    }

    /// What a thread runs, the innermost function first; empty: it runs no Python code. `None`: it isn't a Python
    /// thread, or it changed while we read it.
    pub fn stack(&mut self, tid: u32) -> Option<Vec<PythonFrame>> {
        let mut at = self.innermost(tid)?;
        let mut frames = Vec::new();
        while at != 0 {
            if frames.len() == FRAMES {
                return Some(frames);
            }
            let Layout { code, instruction, previous, owner, .. } = self.layout;
            let [code, instruction, previous, owner] =
                self.words(at, [code, instruction, previous, owner])?;
            // The first frame of each call from C has no code of the program.
            if owner & 0xff != layout::OWNED_BY_C {
                frames.push(self.frame(code, instruction)?);
            }
            at = previous;
        }
        Some(frames)
    }

    /// The address of a thread's innermost frame.
    fn innermost(&self, tid: u32) -> Option<u64> {
        let Layout { interpreters, next_interpreter, threads, .. } = self.layout;
        let Layout { next_thread, thread_id, frame, within, .. } = self.layout;
        let mut interpreter = word(self.pid, self.runtime.wrapping_add(interpreters))?;
        for _ in 0..INTERPRETERS {
            if interpreter == 0 {
                break;
            }
            let [next, mut thread] = self.words(interpreter, [next_interpreter, threads])?;
            for _ in 0..THREADS {
                if thread == 0 {
                    break;
                }
                let [next, id, frame] = self.words(thread, [next_thread, thread_id, frame])?;
                if id == u64::from(tid) {
                    return match within {
                        Some(offset) => word(self.pid, frame.wrapping_add(offset)),
                        None => Some(frame),
                    };
                }
                thread = next;
            }
            interpreter = next;
        }
        None
    }

    fn frame(&mut self, at: u64, instruction: u64) -> Option<PythonFrame> {
        let code = self.code(at)?;
        let start = at.wrapping_add(self.layout.bytecode);
        let unit = instruction.wrapping_sub(start).cast_signed() / 2;
        let opcodes = self.layout.opcodes;
        Some(PythonFrame {
            frame: Frame {
                function: Some(code.function.clone()),
                file: Some(code.file.clone()),
                line: lines::at(&code.lines, code.words[3] as u32, unit),
                module: self.module.clone(),
                ..Frame::default()
            },
            is_in_with: withs::is_inside(&code.handlers, &code.code, unit, opcodes),
            enters_with: withs::begins(&code.code, unit, opcodes),
        })
    }

    fn code(&mut self, at: u64) -> Option<Rc<Code>> {
        let Layout { file, function, lines, first_line, .. } = self.layout;
        let Layout { handlers, units, bytecode, .. } = self.layout;
        let mut words = self.words(at, [file, function, lines, first_line, handlers])?;
        words[3] &= u64::from(u32::MAX);
        if let Some(known) = self.codes.get(&at).filter(|known| known.words == words) {
            return Some(Rc::clone(known));
        }
        let [file, function, lines, _, handlers] = words;
        let units = word(self.pid, at.wrapping_add(units)).filter(|units| *units <= TABLE)?;
        let code = Code {
            words,
            function: self.text(function)?,
            file: self.text(file)?,
            lines: self.bytes(lines)?,
            handlers: self.bytes(handlers)?,
            code: self.copy(at.wrapping_add(bytecode), 2 * units)?,
        };
        let code = Rc::new(code);
        self.codes.insert(at, Rc::clone(&code));
        Some(code)
    }

    /// A `bytes` object's contents.
    fn bytes(&self, at: u64) -> Option<Vec<u8>> {
        let Layout { bytes_size, bytes, .. } = self.layout;
        let size = word(self.pid, at.wrapping_add(bytes_size)).filter(|size| *size <= TABLE)?;
        self.copy(at.wrapping_add(bytes), size)
    }

    /// A `str` object's contents.
    fn text(&self, at: u64) -> Option<String> {
        let Layout { text_length, text_state, ascii, compact, .. } = self.layout;
        let [length, state] = self.words(at, [text_length, text_state])?;
        let text = Text::of(state as u32)?;
        let start = at.wrapping_add(if text.is_ascii { ascii } else { compact });
        let length = (1..=NAME).contains(&length).then_some(length)?;
        text.decode(&self.copy(start, length * text.width)?)
    }

    fn copy(&self, at: u64, size: u64) -> Option<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(size).ok()?];
        let length = read_memory(self.pid, at, &mut bytes).ok()?;
        (length == bytes.len()).then_some(bytes)
    }

    /// Words of an object, from a single read.
    fn words<const N: usize>(&self, at: u64, offsets: [u64; N]) -> Option<[u64; N]> {
        let first = offsets.iter().copied().min()? & !7;
        let last = offsets.iter().copied().max()? + 8;
        let bytes = self.copy(at.checked_add(first)?, last - first)?;
        let word = |offset: u64| {
            let start = (offset - first) as usize;
            u64::from_le_bytes(bytes[start..start + 8].try_into().expect("eight bytes"))
        };
        (at != 0).then(|| offsets.map(word))
    }
}

fn word(pid: libc::pid_t, at: u64) -> Option<u64> {
    read_word(pid, at).ok()
}

fn read_word(pid: libc::pid_t, at: u64) -> io::Result<u64> {
    let mut bytes = [0; 8];
    match read_memory(pid, at, &mut bytes)? {
        8 => Ok(u64::from_le_bytes(bytes)),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// May a file of this name contain an interpreter?
fn is_named(name: &str) -> bool {
    name.contains("python")
}

/// The file with the interpreter, the address of its state, and its version, which versions before 3.11 don't have.
fn find(symbols: &mut Symboliser) -> Option<(String, u64, Option<u64>)> {
    let mut candidates: Vec<Mapping> = Vec::new();
    for mapping in symbols.space().mappings.iter().filter(|mapping| mapping.is_file()) {
        let name = mapping.path.file_name().unwrap_or_default().to_string_lossy();
        let is_known = candidates.iter().any(|known| known.path == mapping.path);
        if !is_known && is_named(&name) {
            candidates.push(mapping.clone());
        }
    }
    candidates.iter().find_map(|mapping| {
        let (module, bias) = symbols.module(mapping)?;
        let at = |name: &str| Some(address(&module.elf, name)?.wrapping_add(bias));
        let name = mapping.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Some((name, at("_PyRuntime")?, at("Py_Version")))
    })
}

/// The address of a file's variable of this name, as in the file.
fn address(elf: &Elf, name: &str) -> Option<u64> {
    let object = elf.object()?;
    let mut all = object.dynamic_symbols().chain(object.symbols());
    let symbol =
        all.find(|symbol| !symbol.is_undefined() && symbol.name_bytes() == Ok(name.as_bytes()))?;
    Some(symbol.address())
}
