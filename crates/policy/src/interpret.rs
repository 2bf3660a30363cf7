//! An interpreter of eBPF that believes nothing. It counts instructions, and checks each: that memory is the program's own and was
//! written before it is read, that helpers get what they take, that no pointer leaves, that the answer is in range, and that there is an
//! end. What a verified program can't do is an [`Escape`] here; the verifier's tests run millions of programs that it accepted, and
//! wait for one. Where there is no compiler, and on simulated machines, policies run by it.

mod escape;
mod memory;
pub(crate) mod number;

pub use escape::{Deed, Escape};

use crate::maps::Maps;
use crate::object::{HookCode, Insn, Object};
use crate::op::{Atomic, BadOp, Condition, Constant, FRAME, Op, Operand, REGISTERS, decode};
use crate::world::{self, HELPER_FUNCTIONS};
use lockwright_contract::programs::env::Env;
use lockwright_contract::programs::helpers::{self, Arg, Helper, Returns};
use lockwright_contract::programs::maps::MapKind;
use lockwright_platform::hooks::{Answer, Context, Hook, World};
use memory::{CONTEXT, Memory, Stack, Windows};

/// The most instructions that an answer may take.
pub const LIMIT: u32 = 4096;

/// A policy, ready to be interpreted. It need not be verified.
#[derive(Debug)]
pub struct Interpreter {
    hooks: [Vec<Result<Op, BadOp>>; Hook::ALL.len()],
    maps: Maps,
    windows: Windows,
}

impl Interpreter {
    /// Interprets this object with these maps, which were made for it.
    pub fn new(object: &Object, maps: Maps) -> Self {
        let mut hooks = [const { Vec::new() }; Hook::ALL.len()];
        for HookCode { hook, insns, .. } in &object.hooks {
            hooks[*hook as usize] = decode_all(insns);
        }
        let windows = Windows::new(&maps);
        Self { hooks, maps, windows }
    }

    /// Its maps.
    pub fn maps(&self) -> &Maps {
        &self.maps
    }

    /// Asks it.
    pub fn ask(&self, hook: Hook, context: &Context, world: &dyn World) -> Result<Answer, Escape> {
        let ops = &self.hooks[hook as usize];
        if ops.is_empty() {
            return Err(Escape { insn: 0, deed: Deed::Hook });
        }
        let mut run = Question {
            ops,
            maps: &self.maps,
            windows: &self.windows,
            context,
            world,
            registers: [0; REGISTERS],
            written: 1 << 1 | 1 << FRAME,
            pointers: 1 << 1 | 1 << FRAME,
            stack: Stack::new(),
        };
        run.registers[1] = CONTEXT;
        run.registers[usize::from(FRAME)] = memory::FRAME;
        world::during(world, || run.all(hook.largest()))
    }
}

/// Each place's instruction. A program that jumps into a load of 64 bits finds the second half there, which is none.
fn decode_all(insns: &[Insn]) -> Vec<Result<Op, BadOp>> {
    (0..insns.len()).map(|at| decode(&insns[at..])).collect()
}

/// One question.
struct Question<'a> {
    ops: &'a [Result<Op, BadOp>],
    maps: &'a Maps,
    windows: &'a Windows,
    context: &'a Context,
    world: &'a dyn World,
    registers: [u64; REGISTERS],
    /// The registers that have been written, a bit each.
    written: u16,
    /// Those that were computed from a pointer.
    pointers: u16,
    stack: Stack,
}

/// A number, and whether it was computed from a pointer.
type Tainted = (u64, bool);

impl Question<'_> {
    fn all(&mut self, largest: u64) -> Result<Answer, Escape> {
        let (mut at, mut insns) = (0, 0);
        loop {
            let escape = |deed| Escape { insn: at, deed };
            let op = match self.ops.get(at) {
                Some(Ok(op)) => *op,
                Some(Err(why)) => return Err(escape(Deed::Op(*why))),
                None => return Err(escape(Deed::End)),
            };
            if insns == LIMIT {
                return Err(escape(Deed::Endless));
            }
            insns += 1;
            if op == Op::Exit {
                let value = match self.read(0).map_err(escape)? {
                    (_, true) => return Err(escape(Deed::Leak)),
                    (value, _) if value > largest => return Err(escape(Deed::Answer(value))),
                    (value, _) => value,
                };
                return Ok(Answer { value, insns });
            }
            let off = self.step(op).map_err(escape)?;
            let next = at.checked_add(op.slots()).and_then(|at| at.checked_add_signed(off.into()));
            at = next.ok_or(Escape { insn: at, deed: Deed::End })?;
        }
    }

    /// Returns by how much to jump.
    fn step(&mut self, op: Op) -> Result<i16, Deed> {
        match op {
            Op::Alu { alu, wide, dst, operand } => {
                let (b, pointer) = self.operand(operand)?;
                if alu == crate::op::Alu::Mov {
                    self.write(dst, (number::alu(alu, wide, 0, b), pointer));
                } else {
                    let (a, either) = self.read(dst)?;
                    self.write(dst, (number::alu(alu, wide, a, b), pointer | either));
                }
            }
            Op::Neg { wide, dst } => {
                let (a, pointer) = self.read(dst)?;
                self.write(dst, (number::neg(wide, a), pointer));
            }
            Op::Swap { big, bits, dst } => {
                let (a, pointer) = self.read(dst)?;
                self.write(dst, (number::swap(big, bits, a), pointer));
            }
            Op::Load64 { dst, constant } => {
                let value = match constant {
                    Constant::Number(number) => (number, false),
                    Constant::Map(map) => (self.windows.handle(map).ok_or(Deed::Map(map))?, true),
                    Constant::Value(map, at) => {
                        (self.windows.value(map, at).ok_or(Deed::Map(map))?, true)
                    }
                };
                self.write(dst, value);
            }
            Op::Load { size, dst, src, off } => {
                let place = self.find(src, off, size)?;
                let value = self.load(place, size)?;
                self.write(dst, value);
            }
            Op::Store { size, dst, off, operand } => {
                let value = self.operand(operand)?;
                let place = self.find(dst, off, size)?;
                self.store(place, size, value)?;
            }
            Op::Atomic { atomic, fetch, wide, dst, off, src } => {
                self.atomic(atomic, fetch, wide, (dst, off), src)?;
            }
            Op::Jump { off } => return Ok(off),
            Op::Branch { condition, wide, dst, operand, off } => {
                let ((a, left), (b, right)) = (self.read(dst)?, self.operand(operand)?);
                // Is it null? That is all that a program may ask of a pointer.
                let null = wide && b == 0 && !right;
                if (left || right) && !(null && matches!(condition, Condition::Eq | Condition::Ne))
                {
                    return Err(Deed::Leak);
                }
                if number::holds(condition, wide, a, b) {
                    return Ok(off);
                }
            }
            Op::Call { helper } => self.call(helper)?,
            Op::Exit => {}
        }
        Ok(0)
    }

    fn read(&self, register: u8) -> Result<Tainted, Deed> {
        let bit = 1 << register;
        if self.written & bit == 0 {
            return Err(Deed::Register(register));
        }
        Ok((self.registers[usize::from(register)], self.pointers & bit != 0))
    }

    fn operand(&self, operand: Operand) -> Result<Tainted, Deed> {
        match operand {
            Operand::Register(register) => self.read(register),
            Operand::Number(number) => Ok((i64::from(number).cast_unsigned(), false)),
        }
    }

    fn write(&mut self, register: u8, (value, pointer): Tainted) {
        self.registers[usize::from(register)] = value;
        self.written |= 1 << register;
        self.pointers = self.pointers & !(1 << register) | u16::from(pointer) << register;
    }

    fn find(&self, register: u8, off: i16, size: u8) -> Result<Memory, Deed> {
        let address = self.read(register)?.0.wrapping_add_signed(off.into());
        self.windows.find(self.maps, address, size.into())
    }

    /// The address of a place, in this process.
    fn pointer(&mut self, place: Memory) -> *mut u8 {
        match place {
            Memory::Context(at) => {
                std::ptr::from_ref(self.context).cast_mut().cast::<u8>().wrapping_add(at)
            }
            Memory::Stack(at) => self.stack.bytes.as_mut_ptr().wrapping_add(at),
            Memory::Value(pointer) => pointer,
        }
    }

    fn load(&mut self, place: Memory, size: u8) -> Result<Tainted, Deed> {
        let pointer = match place {
            Memory::Stack(at) => self.stack.readable(at, size.into())?,
            Memory::Context(_) => false,
            Memory::Value(pointer) => {
                self.world.touches(pointer.addr(), false);
                false
            }
        };
        let from = self.pointer(place);
        // SAFETY: `find` has found `size` bytes there, which live as long as this run; and all of the context's are initialised.
        let value = unsafe {
            match size {
                1 => u64::from(from.read_volatile()),
                2 => u64::from(from.cast::<u16>().read_unaligned()),
                4 => u64::from(from.cast::<u32>().read_unaligned()),
                _ => from.cast::<u64>().read_unaligned(),
            }
        };
        Ok((value, pointer))
    }

    fn store(&mut self, place: Memory, size: u8, (value, pointer): Tainted) -> Result<(), Deed> {
        match place {
            Memory::Context(_) => return Err(Deed::ReadOnly),
            Memory::Value(_) if pointer => return Err(Deed::Leak),
            Memory::Value(pointer) => self.world.touches(pointer.addr(), true),
            Memory::Stack(at) => self.stack.mark(at, size.into(), pointer),
        }
        let to = self.pointer(place);
        let bytes = value.to_le_bytes();
        // SAFETY: `find` has found `size` bytes there, which live as long as this run; and they are not the context's.
        unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), size.into()) };
        Ok(())
    }

    fn atomic(
        &mut self,
        atomic: Atomic,
        fetch: bool,
        wide: bool,
        (dst, off): (u8, i16),
        src: u8,
    ) -> Result<(), Deed> {
        let size = if wide { 8 } else { 4 };
        let operand = self.read(src)?;
        let expected = match atomic {
            Atomic::CompareExchange => self.read(0)?,
            _ => (0, false),
        };
        let address = self.read(dst)?.0.wrapping_add_signed(off.into());
        if !address.is_multiple_of(size.into()) {
            return Err(Deed::Misaligned(address));
        }
        let place = self.windows.find(self.maps, address, size.into())?;
        if matches!(place, Memory::Context(_)) {
            return Err(Deed::ReadOnly);
        }
        // One thread interprets, so a load and a store do.
        let old = self.load(place, size)?;
        let new = number::atomic(atomic, wide, old.0, operand.0, expected.0);
        if expected.1 && !matches!(place, Memory::Stack(_)) {
            return Err(Deed::Leak);
        }
        self.store(place, size, (new, old.1 | operand.1))?;
        if fetch {
            let register = if atomic == Atomic::CompareExchange { 0 } else { src };
            self.write(register, old);
        }
        Ok(())
    }

    fn call(&mut self, id: u32) -> Result<(), Deed> {
        let helper = helpers::find(id).ok_or(Deed::Helper(id))?;
        let mut given = [0; 5];
        let mut map = None;
        for (index, arg) in helper.args.iter().enumerate() {
            let wrong = Deed::Argument(helper, index + 1);
            let (value, pointer) = self.read(1 + index as u8)?;
            if *arg == Arg::Number || *arg == Arg::Size {
                if pointer {
                    return Err(Deed::Leak);
                }
                given[index] = value;
                continue;
            }
            given[index] = if let Arg::Map | Arg::Hash | Arg::Ring = arg {
                let number = self.windows.handled(value).ok_or(wrong.clone())?;
                let kind = self.maps.map(number).kind;
                let fits = match arg {
                    Arg::Hash => kind == MapKind::Hash as u32,
                    Arg::Ring => kind == MapKind::Ring as u32,
                    _ => kind != MapKind::Ring as u32,
                };
                if !fits {
                    return Err(wrong);
                }
                map = Some(number);
                self.maps.data().wrapping_add(self.maps.offset(number)).expose_provenance() as u64
            } else {
                let size = match (arg, map) {
                    (Arg::Key, Some(number)) => self.maps.map(number).key_size,
                    (Arg::Value, Some(number)) => self.maps.map(number).value_size,
                    (Arg::Memory, _) => self.size(helper, index + 1)?,
                    _ => return Err(wrong),
                };
                self.memory(value, size)?.expose_provenance() as u64
            };
        }
        let answer = self.run(helper, given);
        match (helper.returns, helper.args.first()) {
            // It has compared the key, which lies beside the value.
            (Returns::ValueOrNull, _) if answer != 0 => self.world.touches(answer as usize, false),
            // It has moved the ring's end.
            (_, Some(Arg::Ring)) => self.world.touches(given[0] as usize, true),
            _ => {}
        }
        self.written &= !0b11_1110;
        let answer = match (helper.returns, map) {
            (Returns::ValueOrNull, Some(number)) if answer != 0 => {
                let offset = answer - self.maps.data().addr() as u64;
                (self.windows.value_at(number, offset), true)
            }
            (Returns::Number32, _) => (u64::from(number::low(answer)), false),
            _ => (answer, false),
        };
        self.write(0, answer);
        Ok(())
    }

    /// The size that a helper is given at this place.
    fn size(&self, helper: &'static Helper, index: usize) -> Result<u32, Deed> {
        let (size, pointer) = self.read(1 + index as u8)?;
        match u32::try_from(size) {
            Ok(size @ 1..=512) if !pointer => Ok(size),
            _ => Err(Deed::Argument(helper, index + 1)),
        }
    }

    /// Memory from which a helper reads `size` bytes.
    fn memory(&mut self, address: u64, size: u32) -> Result<*mut u8, Deed> {
        let place = self.windows.find(self.maps, address, size)?;
        if let Memory::Stack(at) = place
            && self.stack.readable(at, size as usize)?
        {
            return Err(Deed::Leak);
        }
        Ok(self.pointer(place))
    }

    fn run(&self, helper: &Helper, [a, b, c, d, e]: [u64; 5]) -> u64 {
        let env = Env {
            data: self.maps.data(),
            data_len: self.maps.size() as u64,
            helpers: HELPER_FUNCTIONS,
        };
        // SAFETY: the arguments are what it takes: `call` has checked each.
        unsafe { HELPER_FUNCTIONS[helper.index()](a, b, c, d, e, &env) }
    }
}

#[cfg(test)]
mod tests;
