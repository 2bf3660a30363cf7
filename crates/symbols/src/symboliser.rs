//! Names for the addresses of a process.

use crate::debug;
use crate::dwarf::Lines;
use crate::elf::{Elf, SymbolType, Symbols};
use crate::frame::Frame;
use crate::jit::JitMap;
use crate::names::demangled;
use crate::place::Place;
use crate::space::{AddressSpace, Mapping, mappings};
use lockwright_files::open_file;
use rustc_hash::FxHashMap;
use std::cell::OnceCell;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Names the addresses of one process. It keeps what it has read, so ask one symboliser for all addresses of a process.
pub struct Symboliser {
    space: AddressSpace,
    modules: FxHashMap<PathBuf, Option<Rc<Module>>>,
    files: FxHashMap<PathBuf, File>,
    frames: FxHashMap<u64, Rc<[Frame]>>,
    jit: OnceCell<JitMap>,
}

impl Symboliser {
    /// For a running process. Its files are opened now, so they can be read even after the process has ended.
    ///
    /// # Errors
    ///
    /// There is no such process, or we may not look.
    pub fn of_process(pid: libc::pid_t) -> std::io::Result<Self> {
        AddressSpace::of_process(pid).map(Self::new)
    }

    /// For a process whose memory map is known. If it has ended, its files are looked for at the paths that it knew.
    pub fn new(space: AddressSpace) -> Self {
        let mut all = Self {
            space,
            modules: FxHashMap::default(),
            files: FxHashMap::default(),
            frames: FxHashMap::default(),
            jit: OnceCell::new(),
        };
        all.open();
        all
    }

    /// The memory map.
    pub fn space(&self) -> &AddressSpace {
        &self.space
    }

    /// The memory map, to note threads in it.
    pub fn space_mut(&mut self) -> &mut AddressSpace {
        &mut self.space
    }

    /// Reads the memory map again, because the process may have loaded libraries. If the process has ended, keeps what
    /// was known. Returns whether anything has changed.
    pub fn refresh(&mut self) -> bool {
        let Ok(now) = mappings(self.space.pid) else { return false };
        if now.is_empty() || now == self.space.mappings {
            return false;
        }
        self.space.mappings = now;
        self.frames.clear();
        self.open();
        true
    }

    /// Opens the files that the process has mapped, while it exists.
    fn open(&mut self) {
        let pid = self.space.pid;
        for mapping in &self.space.mappings {
            let is_program =
                self.space.mappings.iter().any(|m| m.is_code && m.path == mapping.path);
            if !mapping.is_file() || !is_program || self.files.contains_key(&mapping.path) {
                continue;
            }
            // A removed or replaced file can only be reached through its mapping, which needs special rights.
            let (start, end) = (mapping.start, mapping.end);
            let file = match mapping.is_deleted {
                true => open_file(format!("/proc/{pid}/map_files/{start:x}-{end:x}")),
                false => open_file(reachable(pid, mapping)),
            };
            if let Ok(file) = file {
                self.files.insert(mapping.path.clone(), file);
            }
        }
    }

    /// The functions at a code address, the innermost first. Never empty: if they aren't known, it is a module and an
    /// offset. For a return address, ask for the byte before it, which belongs to the call.
    pub fn code(&mut self, address: u64) -> Rc<[Frame]> {
        if let Some(known) = self.frames.get(&address) {
            return known.clone();
        }
        let frames: Rc<[Frame]> = self.look_up(address).into();
        self.frames.insert(address, frames.clone());
        frames
    }

    /// The function at an address, from the symbol tables alone. That is faster than [`code`](Self::code) if the debug
    /// information is large, but leaves out inlined functions.
    pub fn function(&mut self, address: u64) -> Option<String> {
        let mapping = self.space.mapping(address)?.clone();
        let (module, bias) = self.module(&mapping)?;
        let symbol = module.symbols().find(SymbolType::Code, address.wrapping_sub(bias))?;
        Some(demangled(&symbol.name).into())
    }

    /// Where that function begins, if the symbol tables say.
    pub fn function_start(&mut self, address: u64) -> Option<u64> {
        let mapping = self.space.mapping(address)?.clone();
        let (module, bias) = self.module(&mapping)?;
        let symbol = module.symbols().find(SymbolType::Code, address.wrapping_sub(bias))?;
        Some(symbol.start.wrapping_add(bias))
    }

    /// The frame at an address, as far as symbol tables tell ([`function`](Self::function)): function and module.
    pub fn bare(&mut self, address: u64) -> Frame {
        let mapping = self.space.mapping(address);
        let module = mapping.map(|mapping| file_name(&mapping.path)).unwrap_or_default();
        Frame { function: self.function(address), module, ..Frame::default() }
    }

    fn look_up(&mut self, address: u64) -> Vec<Frame> {
        let Some(mapping) = self.space.mapping(address).cloned() else {
            return vec![self.compiled_at_run_time(address).unwrap_or_else(|| bare(address))];
        };
        if let Some((module, bias)) = self.module(&mapping) {
            return module.frames(address.wrapping_sub(bias));
        }
        if let Some(frame) = self.compiled_at_run_time(address) {
            return vec![frame];
        }
        if mapping.path.as_os_str().is_empty() {
            return vec![bare(address)];
        }
        vec![Frame {
            module: file_name(&mapping.path),
            offset: (address - mapping.start).wrapping_add(mapping.offset),
            ..Frame::default()
        }]
    }

    fn compiled_at_run_time(&self, address: u64) -> Option<Frame> {
        let jit = self.jit.get_or_init(|| JitMap::of_process(self.space.pid));
        let (name, _) = jit.find(address)?;
        Some(Frame { function: Some(name.to_owned()), ..bare(address) })
    }

    /// What is at a data address.
    pub fn data(&mut self, address: u64) -> Place {
        let Some(at) = self.space.index(address) else { return Place::Unmapped { address } };
        if let Some(place) = self.variable(at, address) {
            return place;
        }
        let mapping = &self.space.mappings[at];
        if mapping.path.as_os_str() == "[heap]" {
            return Place::Heap { address };
        }
        if mapping.is_file() {
            let offset = (address - mapping.start).wrapping_add(mapping.offset);
            return Place::File { name: file_name(&mapping.path), offset };
        }
        let (start, end) = (mapping.start, mapping.end);
        if mapping.path.as_os_str() == "[stack]" {
            return Place::Stack { tid: self.space.pid, address };
        }
        let owner = self.space.threads.iter().find(|t| (start..end).contains(&t.stack_pointer));
        match owner.cloned() {
            Some(thread)
                if cfg!(target_arch = "x86_64")
                    && (1..=thread.thread_pointer).contains(&address)
                    && address >= thread.stack_pointer
                    && self.is_thread_local(thread.thread_pointer, address) =>
            {
                let name = self.thread_local(thread.thread_pointer, address);
                Place::ThreadLocal { tid: thread.tid, name, address }
            }
            Some(thread) => Place::Stack { tid: thread.tid, address },
            None => Place::Anonymous { address },
        }
    }

    /// A variable of a file. `.bss` is after the file's last mapping, in memory without a file.
    fn variable(&mut self, at: usize, address: u64) -> Option<Place> {
        /// A library has up to five mappings, and `.bss` may be split by `mprotect`.
        const NEAR: usize = 8;
        let near = at.saturating_sub(NEAR)..=at;
        let last =
            self.space.mappings[near].iter().rev().find(|mapping| mapping.is_file())?.clone();
        let (module, bias) = self.module(&last)?;
        let own = address.wrapping_sub(bias);
        if !module.elf.holds(own) {
            return None;
        }
        let name = file_name(&last.path);
        if let Some(symbol) = module.symbols().find(SymbolType::Data, own) {
            let offset = own - symbol.start;
            return Some(Place::Symbol {
                name: demangled(&symbol.name).into(),
                offset,
                module: name,
            });
        }
        let section = module.elf.section_at(own)?;
        Some(Place::Section {
            module: name,
            section: section.name.clone(),
            offset: own - section.range.start,
        })
    }

    /// The program itself: its thread-local variables are right below the thread pointer.
    fn program(&mut self) -> Option<Rc<Module>> {
        let first = self.space.mappings.iter().find(|mapping| mapping.is_file())?.clone();
        self.module(&first).map(|(module, _)| module)
    }

    fn is_thread_local(&mut self, thread_pointer: u64, address: u64) -> bool {
        let size = self.program().and_then(|program| program.elf.thread_local_size());
        thread_pointer - address <= size.unwrap_or(0)
    }

    fn thread_local(&mut self, thread_pointer: u64, address: u64) -> Option<String> {
        let program = self.program()?;
        let own = address.checked_sub(thread_pointer - program.elf.thread_local_size()?)?;
        let symbol = program.symbols().find(SymbolType::ThreadLocal, own)?;
        Some(demangled(&symbol.name).into())
    }

    /// The file at a mapping, and what to subtract from addresses there.
    pub(crate) fn module(&mut self, mapping: &Mapping) -> Option<(Rc<Module>, u64)> {
        if !mapping.is_file() {
            return None;
        }
        let module = match self.modules.get(&mapping.path) {
            Some(known) => known.clone(),
            None => {
                let module = self.load(mapping).map(Rc::new);
                self.modules.insert(mapping.path.clone(), module.clone());
                module
            }
        }?;
        let before = self.space.mappings.iter().rev().skip_while(|map| map.start > mapping.start);
        let first = before.take_while(|map| map.path == mapping.path).last();
        let first = first.and_then(|first| module.elf.bias(first, None));
        let bias = module.elf.bias(mapping, first)?;
        Some((module, bias))
    }

    fn load(&self, mapping: &Mapping) -> Option<Module> {
        let opened = self.files.get(&mapping.path);
        let elf = match opened {
            Some(file) => Elf::read(file),
            None if mapping.is_deleted => return None,
            None => Elf::open(&mapping.path),
        }?;
        let is_same = |noted: &String| elf.build_id.as_ref().is_none_or(|id| id == noted);
        if !mapping.build_id.as_ref().is_none_or(is_same) {
            return None;
        }
        let path = reachable(self.space.pid, mapping);
        let inside = PathBuf::from(format!("/proc/{}/root", self.space.pid));
        let roots = [inside, PathBuf::from("/")].into_iter().filter(|root| root.exists()).collect();
        let name = file_name(&mapping.path);
        let own_path = mapping.path.clone();
        let (apart, lines, symbols) = Default::default();
        Some(Module { name, elf, path, own_path, roots, apart, lines, symbols })
    }
}

/// Where we find a process's file.
fn reachable(pid: libc::pid_t, mapping: &Mapping) -> PathBuf {
    let inside = PathBuf::from(format!("/proc/{pid}/root"))
        .join(mapping.path.strip_prefix("/").unwrap_or(&mapping.path));
    if pid != 0 && inside.exists() { inside } else { mapping.path.clone() }
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().display().to_string()
}

fn bare(address: u64) -> Frame {
    Frame { offset: address, ..Frame::default() }
}

/// A file, with what is known about its code and data.
pub(crate) struct Module {
    name: String,
    pub(crate) elf: Elf,
    /// Where we find it, and files next to it.
    path: PathBuf,
    /// Where the process has it.
    own_path: PathBuf,
    roots: Vec<PathBuf>,
    /// Where its debug information is, if elsewhere.
    apart: OnceCell<Option<debug::Found>>,
    lines: OnceCell<Option<Lines>>,
    symbols: OnceCell<Symbols>,
}

impl Module {
    fn apart(&self) -> Option<&debug::Found> {
        let find = || debug::find(&self.elf, &self.own_path, &self.roots);
        self.apart.get_or_init(find).as_ref()
    }

    fn lines(&self) -> Option<&Lines> {
        let load = || match self.apart() {
            Some(found) => Lines::read(&found.elf, &found.path, found.shared.as_ref()),
            None => {
                let shared = debug::shared(&self.elf, &self.path, &self.roots);
                Lines::read(&self.elf, &self.path, shared.as_ref())
            }
        };
        self.lines.get_or_init(load).as_ref()
    }

    pub(crate) fn symbols(&self) -> &Symbols {
        self.symbols.get_or_init(|| {
            let apart = self.apart().map(|found| &found.elf);
            let files: Vec<&Elf> = apart.into_iter().chain([&self.elf]).collect();
            Symbols::read(&files)
        })
    }

    fn frames(&self, address: u64) -> Vec<Frame> {
        let mut frames = self.frames_with_lines(address).unwrap_or_default();
        let plain = || Frame { module: self.name.clone(), offset: address, ..Frame::default() };
        if frames.is_empty() {
            frames.push(plain());
        }
        // The function into which all others were inlined.
        if let Some(whole) = frames.last_mut().filter(|frame| frame.function.is_none())
            && let Some(symbol) = self.symbols().find(SymbolType::Code, address)
        {
            whole.function = Some(demangled(&symbol.name).into());
        }
        frames
    }

    fn frames_with_lines(&self, address: u64) -> Option<Vec<Frame>> {
        let lines = self.lines()?;
        let mut all = lines.frames(address)?;
        let mut frames: Vec<Frame> = Vec::new();
        while let Ok(Some(found)) = all.next() {
            let name = found.function.as_ref().and_then(|function| function.raw_name().ok());
            let location = found.location.as_ref();
            frames.push(Frame {
                function: name.map(|name| demangled(&name).into()),
                file: location.and_then(|location| location.file).map(str::to_owned),
                line: location.and_then(|location| location.line).filter(|line| *line > 0),
                module: self.name.clone(),
                offset: address,
                is_inlined: true,
            });
        }
        if let Some(whole) = frames.last_mut() {
            whole.is_inlined = false;
        }
        Some(frames)
    }
}
