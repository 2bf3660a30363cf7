//! The stacks of another process's threads.

use crate::elf::Bytes;
use crate::space::AddressSpace;
use crate::symboliser::{Module as File, Symboliser};
use crate::thread::read_memory;
use framehop::{ExplicitModuleSectionInfo, FrameAddress, Module, Unwinder as _};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;

#[cfg(target_arch = "aarch64")]
use framehop::aarch64::{
    CacheAarch64 as Cache, UnwindRegsAarch64 as Native, UnwinderAarch64 as Arch,
};
#[cfg(target_arch = "x86_64")]
use framehop::x86_64::{CacheX86_64 as Cache, UnwindRegsX86_64 as Native, UnwinderX86_64 as Arch};

/// The values of a thread's registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// The instruction.
    pub instruction: u64,
    /// The stack pointer.
    pub stack: u64,
    /// The frame pointer; `None`: unknown.
    pub frame: Option<u64>,
    /// The link register, where there is one (ARM).
    pub link: u64,
}

impl Registers {
    fn native(self) -> Native {
        // Zero would mean that the stack ends here. Nothing can be read at 8, so the walk fails instead.
        let frame = self.frame.unwrap_or(8);
        #[cfg(target_arch = "x86_64")]
        return Native::new(self.instruction, self.stack, frame);
        #[cfg(target_arch = "aarch64")]
        return Native::new(self.link, self.stack, frame);
    }
}

/// Where a function's return address lies, by the registers at a call that it makes: whether relative to the frame pointer, else to
/// the stack pointer; and the distance, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReturnSlot {
    /// The return address.
    pub back: (bool, u16),
    /// The caller's frame pointer; `None`: it is still in its register.
    pub frame: Option<(bool, u16)>,
}

#[cfg(target_arch = "x86_64")]
fn frame_pointer(registers: &Native) -> u64 {
    registers.bp()
}
#[cfg(target_arch = "aarch64")]
fn frame_pointer(registers: &Native) -> u64 {
    registers.fp()
}

/// Deeper stacks are cut off: nobody would read a profile of them.
const DEEPEST: usize = 128;
/// How far to search for a lost frame pointer, in words from the stack pointer.
const LOOKED_AT: u64 = 512;
/// Bytes that are read at once.
const PAGE: u64 = 4096;

/// A file's code.
struct Code {
    range: Range<u64>,
    bias: u64,
    module: Rc<File>,
}

/// How doubtful it is that a function returns to some address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Doubt {
    None,
    Some,
    OtherCall,
    NoCall,
}

/// Walks stacks by the compilers' exception tables (`.eh_frame`), or by frame pointers.
pub struct Unwinder {
    arch: Arch<Bytes>,
    cache: Cache,
    /// Sorted by address.
    modules: Vec<Code>,
    pages: FxHashMap<u64, Box<[u8]>>,
}

impl Unwinder {
    /// An unwinder for the symboliser's process.
    pub fn new(symboliser: &mut Symboliser) -> Self {
        let mut all = Self {
            arch: Arch::new(),
            cache: Cache::new(),
            modules: Vec::new(),
            pages: FxHashMap::default(),
        };
        all.refresh(symboliser);
        all
    }

    /// Adds what the process has loaded since.
    pub fn refresh(&mut self, symboliser: &mut Symboliser) {
        let code = symboliser.space().mappings.iter().filter(|mapping| mapping.is_code);
        let code: Vec<_> = code.cloned().collect();
        let now: BTreeSet<u64> = code.iter().map(|mapping| mapping.start).collect();
        let arch = &mut self.arch;
        self.modules.retain(|code| {
            let stays = now.contains(&code.range.start);
            if !stays {
                arch.remove_module(code.range.start);
            }
            stays
        });
        for mapping in code {
            if self.modules.iter().any(|code| code.range.start == mapping.start) {
                continue;
            }
            let Some((module, bias)) = symboliser.module(&mapping) else { continue };
            let section = |name| module.elf.section(name).unzip();
            let (eh_frame_svma, eh_frame) = section(".eh_frame");
            let (eh_frame_hdr_svma, eh_frame_hdr) = section(".eh_frame_hdr");
            let (text_svma, text) = section(".text");
            let (got_svma, _) = section(".got");
            // framehop counts from the file's start, which isn't zero for programs at fixed addresses.
            let base_svma = module.elf.extent().start;
            self.arch.add_module(Module::new(
                mapping.path.display().to_string(),
                mapping.start..mapping.end,
                base_svma.wrapping_add(bias),
                ExplicitModuleSectionInfo {
                    base_svma,
                    text_svma,
                    text,
                    got_svma,
                    eh_frame_svma,
                    eh_frame,
                    eh_frame_hdr_svma,
                    eh_frame_hdr,
                    ..ExplicitModuleSectionInfo::default()
                },
            ));
            self.modules.push(Code { range: mapping.start..mapping.end, bias, module });
        }
        self.modules.sort_by_key(|code| code.range.start);
    }

    /// The stack of a sleeping thread: addresses to look up, the innermost first. The thread isn't stopped. If it may
    /// have continued in the meantime, check whether it still sleeps there, and discard the stack if not.
    pub fn sleeping(&mut self, space: &AddressSpace, registers: Registers) -> Vec<u64> {
        let mut pages = std::mem::take(&mut self.pages);
        pages.clear();
        let mut read = |at: u64| {
            let page = at & !(PAGE - 1);
            let bytes = pages.entry(page).or_insert_with(|| {
                let mut bytes = vec![0; PAGE as usize];
                let length = read_memory(space.pid, page, &mut bytes).unwrap_or(0);
                bytes.truncate(length);
                bytes.into()
            });
            word(bytes, at - page)
        };
        let stack = self.search(space, registers, &mut read);
        self.pages = pages;
        stack
    }

    /// The stack of a thread whose registers and top of the stack were copied together. `bytes` begin at the stack
    /// pointer.
    pub fn copied(&mut self, space: &AddressSpace, registers: Registers, bytes: &[u8]) -> Vec<u64> {
        let mut read = |at: u64| word(bytes, at.checked_sub(registers.stack).ok_or(())?);
        self.search(space, registers, &mut read)
    }

    /// Without a frame pointer, the stack is walked as if no function needed it. If a function does, we try words of
    /// the stack that may be its frame: above each is an address to which the function may return, and it points up the
    /// stack, or that address is right behind a call of the function. Old frames are there, too, so an address after a call of this very function is preferred.
    fn search(
        &mut self,
        space: &AddressSpace,
        registers: Registers,
        read: &mut impl FnMut(u64) -> Result<u64, ()>,
    ) -> Vec<u64> {
        let (mut best, is_whole) = self.walk(registers, read);
        if is_whole || registers.frame.is_some() {
            return best;
        }
        let function = best.last().and_then(|&at| self.function(at));
        let mut places: Vec<_> = Vec::new();
        for at in (0..LOOKED_AT).map(|words| registers.stack.wrapping_add(words * 8)) {
            let (Ok(next), Ok(back)) = (read(at), read(at.wrapping_add(8))) else { break };
            if !space.mapping(back.wrapping_sub(1)).is_some_and(|map| map.is_code) {
                continue;
            }
            let points_up = next == 0 || (next > at && next - at < 1 << 20);
            let doubt = self.doubt(back, function, read);
            // The caller may use the register for anything. (Rust's std keeps frame pointers, and calls programs that don't.)
            if points_up || doubt == Doubt::None {
                places.push((doubt, at));
            }
        }
        places.sort_unstable();
        for (_, at) in places {
            let (stack, is_whole) = self.walk(Registers { frame: Some(at), ..registers }, read);
            if is_whole {
                return stack;
            }
            if stack.len() > best.len() {
                best = stack;
            }
        }
        best
    }

    /// Where the return address of the function lies that is at `back`, the return address of a call that it has made; and where its
    /// caller's frame pointer is. Only on x86-64. `None`: not known, as where the compiler's tables don't describe the function.
    pub fn return_slot(&mut self, back: u64) -> Option<ReturnSlot> {
        // Two pointers that no distance within a frame confuses.
        const STACK: u64 = 1 << 40;
        const FRAME: u64 = 1 << 41;
        const NEAR: u64 = 1 << 14;
        let relative = |at: u64| match at {
            at if at.wrapping_sub(STACK) < NEAR => Some((false, (at - STACK) as u16)),
            at if at.wrapping_sub(FRAME) < NEAR => Some((true, (at - FRAME) as u16)),
            _ => None,
        };
        if cfg!(not(target_arch = "x86_64")) {
            return None;
        }
        // Without tables, the stack would be walked by frame pointers, which the function may not have.
        self.function(back.wrapping_sub(1))?;
        let registers = Registers { instruction: back, stack: STACK, frame: Some(FRAME), link: 0 };
        let mut native = registers.native();
        // A word that is read is its own address, so that the registers say where they came from.
        let mut read = |at: u64| Ok(at);
        let address = FrameAddress::from_return_address(back)?;
        let from =
            self.arch.unwind_frame(address, &mut native, &mut self.cache, &mut read).ok()??;
        let frame = frame_pointer(&native);
        Some(ReturnSlot {
            back: relative(from)?,
            frame: if frame == FRAME { None } else { Some(relative(frame)?) },
        })
    }

    fn module(&self, address: u64) -> Option<&Code> {
        let after = self.modules.partition_point(|code| code.range.start <= address);
        self.modules[..after].last().filter(|code| code.range.contains(&address))
    }

    /// Where the function at an address begins.
    fn function(&self, address: u64) -> Option<u64> {
        let code = self.module(address)?;
        Some(code.module.elf.function(address.wrapping_sub(code.bias))?.wrapping_add(code.bias))
    }

    /// How doubtful it is that a function returns to that address: not at all if a call of it comes right before.
    fn doubt(
        &self,
        back: u64,
        function: Option<u64>,
        read: &mut impl FnMut(u64) -> Result<u64, ()>,
    ) -> Doubt {
        if cfg!(not(target_arch = "x86_64")) {
            return Doubt::Some;
        }
        let before = |length: u64| self.code(back.wrapping_sub(length), length);
        let target = if let Some(&[0xe8, a, b, c, d]) = before(5) {
            let target = ahead(back, [a, b, c, d]);
            self.jump(target, read).unwrap_or(target)
        } else if let Some(&[0xff, 0x15, a, b, c, d]) = before(6) {
            match read(ahead(back, [a, b, c, d])) {
                Ok(target) => target,
                Err(()) => return Doubt::Some,
            }
        } else {
            // Calls through a register or a table: `ff`, with two in the middle bits of the next byte.
            let is_call =
                |length| matches!(before(length), Some([0xff, how, ..]) if how >> 3 & 7 == 2);
            return if (2..=7).any(is_call) { Doubt::Some } else { Doubt::NoCall };
        };
        if Some(target) == function { Doubt::None } else { Doubt::OtherCall }
    }

    /// Where a jump to another file leads (an entry of `.plt`): `jmp *slot`, after a marker that some machines require.
    fn jump(&self, at: u64, read: &mut impl FnMut(u64) -> Result<u64, ()>) -> Option<u64> {
        const MARK: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
        let at = if self.code(at, 4) == Some(&MARK) { at.wrapping_add(4) } else { at };
        let at = if self.code(at, 1) == Some(&[0xf2]) { at.wrapping_add(1) } else { at };
        match self.code(at, 6) {
            Some(&[0xff, 0x25, a, b, c, d]) => read(ahead(at.wrapping_add(6), [a, b, c, d])).ok(),
            _ => None,
        }
    }

    fn code(&self, at: u64, length: u64) -> Option<&[u8]> {
        let code = self.module(at)?;
        code.module.elf.code(at.wrapping_sub(code.bias), length)
    }

    /// Also returns whether the walk ended where stacks end.
    fn walk(
        &mut self,
        registers: Registers,
        read: &mut impl FnMut(u64) -> Result<u64, ()>,
    ) -> (Vec<u64>, bool) {
        let mut stack = Vec::new();
        let native = registers.native();
        let mut frames =
            self.arch.iter_frames(registers.instruction, native, &mut self.cache, read);
        while stack.len() < DEEPEST {
            match frames.next() {
                Ok(Some(frame)) => stack.push(frame.address_for_lookup()),
                Ok(None) => return (stack, true),
                Err(_) => return (stack, false),
            }
        }
        (stack, true)
    }
}

/// The address at this distance from an instruction's end.
fn ahead(end: u64, distance: [u8; 4]) -> u64 {
    end.wrapping_add_signed(i32::from_le_bytes(distance).into())
}

fn word(bytes: &[u8], at: u64) -> Result<u64, ()> {
    let at = usize::try_from(at).map_err(drop)?;
    let word = bytes.get(at..at.checked_add(8).ok_or(())?).ok_or(())?;
    Ok(u64::from_le_bytes(word.try_into().map_err(drop)?))
}
