//! x86-64's instructions as bytes: those that the translation needs. (Intel, *Software Developer's Manual*, volume 2.)

/// A register, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reg(pub(super) u8);

pub(super) const RAX: Reg = Reg(0);
pub(super) const RCX: Reg = Reg(1);
pub(super) const RDX: Reg = Reg(2);
pub(super) const RBX: Reg = Reg(3);
pub(super) const RSP: Reg = Reg(4);
pub(super) const RBP: Reg = Reg(5);
pub(super) const RSI: Reg = Reg(6);
pub(super) const RDI: Reg = Reg(7);
pub(super) const R8: Reg = Reg(8);
pub(super) const R9: Reg = Reg(9);
pub(super) const R10: Reg = Reg(10);
pub(super) const R11: Reg = Reg(11);
pub(super) const R12: Reg = Reg(12);
pub(super) const R13: Reg = Reg(13);
pub(super) const R14: Reg = Reg(14);

/// Memory: a register's address plus a number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mem(pub(super) Reg, pub(super) i32);

/// Operations of two operands, by the digit that the encoding uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Two {
    Add = 0,
    Or = 1,
    And = 4,
    Sub = 5,
    Xor = 6,
    Cmp = 7,
}

/// Shifts, likewise.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shift {
    Left = 4,
    Right = 5,
    Signed = 7,
}

/// What a conditional jump asks.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cc {
    Below = 2,
    AboveEqual = 3,
    Equal = 4,
    NotEqual = 5,
    BelowEqual = 6,
    Above = 7,
    Less = 12,
    GreaterEqual = 13,
    LessEqual = 14,
    Greater = 15,
}

/// A jump of 8 bits whose target isn't known yet: where its distance stands.
pub(super) struct Ahead(usize);

/// Code that grows.
#[derive(Debug, Default)]
pub(super) struct Code(pub(super) Vec<u8>);

impl Code {
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// The prefix that makes operands 64 bits wide, and names the upper registers.
    fn rex(&mut self, wide: bool, reg: u8, base: Reg, needed: bool) {
        let rex = 0x40 | u8::from(wide) << 3 | reg >> 3 << 2 | base.0 >> 3;
        if rex != 0x40 || needed {
            self.0.push(rex);
        }
    }

    /// `opcode` with two registers; `reg` may be a digit of the opcode.
    fn registers(&mut self, wide: bool, opcode: &[u8], reg: u8, rm: Reg) {
        self.rex(wide, reg, rm, false);
        self.bytes(opcode);
        self.0.push(0xc0 | (reg & 7) << 3 | rm.0 & 7);
    }

    /// `opcode` with a register and memory.
    fn memory(&mut self, wide: bool, opcode: &[u8], reg: u8, at: Mem, needed: bool) {
        let Mem(base, offset) = at;
        self.rex(wide, reg, base, needed);
        self.bytes(opcode);
        let small = i8::try_from(offset);
        // Without an offset, RBP's and R13's place means something else; RSP's and R12's means that one more byte follows.
        let mode = match small {
            Ok(0) if base.0 & 7 != 5 => 0x00,
            Ok(_) => 0x40,
            Err(_) => 0x80,
        };
        self.0.push(mode | (reg & 7) << 3 | base.0 & 7);
        if base.0 & 7 == 4 {
            self.0.push(0x24);
        }
        match (mode, small) {
            (0x40, Ok(small)) => self.0.push(small.cast_unsigned()),
            (0x80, _) => self.bytes(&offset.to_le_bytes()),
            _ => {}
        }
    }

    /// `a = a op b`, or a comparison.
    pub(super) fn two(&mut self, op: Two, wide: bool, a: Reg, b: Reg) {
        self.registers(wide, &[(op as u8) << 3 | 1], b.0, a);
    }

    /// `a = a op number`, or a comparison.
    pub(super) fn two_number(&mut self, op: Two, wide: bool, a: Reg, number: i32) {
        if let Ok(small) = i8::try_from(number) {
            self.registers(wide, &[0x83], op as u8, a);
            self.0.push(small.cast_unsigned());
        } else {
            self.registers(wide, &[0x81], op as u8, a);
            self.bytes(&number.to_le_bytes());
        }
    }

    /// `[at] = [at] op b`, at once for all CPUs.
    pub(super) fn locked(&mut self, op: Two, wide: bool, at: Mem, b: Reg) {
        self.0.push(0xf0);
        self.memory(wide, &[(op as u8) << 3 | 1], b.0, at, false);
    }

    /// `[at] += b`, and b gets what was there.
    pub(super) fn locked_xadd(&mut self, wide: bool, at: Mem, b: Reg) {
        self.0.push(0xf0);
        self.memory(wide, &[0x0f, 0xc1], b.0, at, false);
    }

    /// `[at] = b`, if RAX was there; else RAX gets what was.
    pub(super) fn locked_cmpxchg(&mut self, wide: bool, at: Mem, b: Reg) {
        self.0.push(0xf0);
        self.memory(wide, &[0x0f, 0xb1], b.0, at, false);
    }

    /// `[at]` and b change places; locked by itself.
    pub(super) fn xchg(&mut self, wide: bool, at: Mem, b: Reg) {
        self.memory(wide, &[0x87], b.0, at, false);
    }

    /// `[at]` of 32 bits is compared with a small number.
    pub(super) fn compare_memory32(&mut self, at: Mem, number: i8) {
        self.memory(false, &[0x83], Two::Cmp as u8, at, false);
        self.0.push(number.cast_unsigned());
    }

    /// Flags of `a & b`.
    pub(super) fn test(&mut self, wide: bool, a: Reg, b: Reg) {
        self.registers(wide, &[0x85], b.0, a);
    }

    /// Flags of `a & number`.
    pub(super) fn test_number(&mut self, wide: bool, a: Reg, number: i32) {
        self.registers(wide, &[0xf7], 0, a);
        self.bytes(&number.to_le_bytes());
    }

    /// `a = b`.
    pub(super) fn mov(&mut self, wide: bool, a: Reg, b: Reg) {
        self.registers(wide, &[0x89], b.0, a);
    }

    /// `a = b` of 64 bits, if they differ.
    pub(super) fn take(&mut self, a: Reg, b: Reg) {
        if a != b {
            self.mov(true, a, b);
        }
    }

    /// `a = number`. The flags are lost.
    pub(super) fn number(&mut self, a: Reg, number: u64) {
        if number == 0 {
            self.two(Two::Xor, false, a, a);
        } else if let Ok(small) = u32::try_from(number) {
            self.rex(false, 0, a, false);
            self.0.push(0xb8 | a.0 & 7);
            self.bytes(&small.to_le_bytes());
        } else if let Ok(small) = i32::try_from(number.cast_signed()) {
            self.registers(true, &[0xc7], 0, a);
            self.bytes(&small.to_le_bytes());
        } else {
            self.rex(true, 0, a, false);
            self.0.push(0xb8 | a.0 & 7);
            self.bytes(&number.to_le_bytes());
        }
    }

    /// `a = a * b`.
    pub(super) fn imul(&mut self, wide: bool, a: Reg, b: Reg) {
        self.registers(wide, &[0x0f, 0xaf], a.0, b);
    }

    /// `a = b * number`.
    pub(super) fn imul_number(&mut self, wide: bool, a: Reg, b: Reg, number: i32) {
        if let Ok(small) = i8::try_from(number) {
            self.registers(wide, &[0x6b], a.0, b);
            self.0.push(small.cast_unsigned());
        } else {
            self.registers(wide, &[0x69], a.0, b);
            self.bytes(&number.to_le_bytes());
        }
    }

    /// RDX:RAX by `b`, unsigned: RAX the quotient, RDX the remainder.
    pub(super) fn div(&mut self, wide: bool, b: Reg) {
        self.registers(wide, &[0xf7], 6, b);
    }

    /// `a = -a`.
    pub(super) fn neg(&mut self, wide: bool, a: Reg) {
        self.registers(wide, &[0xf7], 3, a);
    }

    /// `a` shifted by CL.
    pub(super) fn shift(&mut self, shift: Shift, wide: bool, a: Reg) {
        self.registers(wide, &[0xd3], shift as u8, a);
    }

    /// `a` shifted by a number.
    pub(super) fn shift_number(&mut self, shift: Shift, wide: bool, a: Reg, count: u8) {
        self.registers(wide, &[0xc1], shift as u8, a);
        self.0.push(count);
    }

    /// The bytes of `a` in the other order.
    pub(super) fn bswap(&mut self, wide: bool, a: Reg) {
        self.rex(wide, 0, a, false);
        self.bytes(&[0x0f, 0xc8 | a.0 & 7]);
    }

    /// The lower two bytes of `a` in the other order.
    pub(super) fn swap16(&mut self, a: Reg) {
        self.0.push(0x66);
        self.registers(false, &[0xc1], 0, a);
        self.0.push(8);
    }

    /// `a = ` its lower two bytes.
    pub(super) fn extend16(&mut self, a: Reg) {
        self.registers(false, &[0x0f, 0xb7], a.0, a);
    }

    /// `a = ` the place of the highest bit of b, which isn't 0.
    pub(super) fn bsr(&mut self, a: Reg, b: Reg) {
        self.registers(true, &[0x0f, 0xbd], a.0, b);
    }

    /// `a = ` the address.
    pub(super) fn lea(&mut self, a: Reg, at: Mem) {
        self.memory(true, &[0x8d], a.0, at, false);
    }

    /// `a = base + index * scale + offset`; the scale is 1, 2, 4 or 8.
    pub(super) fn lea_scaled(&mut self, a: Reg, base: Reg, index: Reg, scale: u8, offset: i32) {
        let rex = 0x48 | a.0 >> 3 << 2 | index.0 >> 3 << 1 | base.0 >> 3;
        let bits = scale.trailing_zeros() as u8;
        let sib = bits << 6 | (index.0 & 7) << 3 | base.0 & 7;
        self.bytes(&[rex, 0x8d, 0x84 | (a.0 & 7) << 3, sib]);
        self.bytes(&offset.to_le_bytes());
    }

    /// `a = [at]`, zero-extended.
    pub(super) fn load(&mut self, size: u8, a: Reg, at: Mem) {
        match size {
            1 => self.memory(false, &[0x0f, 0xb6], a.0, at, false),
            2 => self.memory(false, &[0x0f, 0xb7], a.0, at, false),
            _ => self.memory(size == 8, &[0x8b], a.0, at, false),
        }
    }

    /// `[at] = a`.
    pub(super) fn store(&mut self, size: u8, at: Mem, a: Reg) {
        match size {
            // Without the prefix, 4 to 7 would be the second bytes of RAX to RBX.
            1 => self.memory(false, &[0x88], a.0, at, a.0 >= 4),
            2 => {
                self.0.push(0x66);
                self.memory(false, &[0x89], a.0, at, false);
            }
            _ => self.memory(size == 8, &[0x89], a.0, at, false),
        }
    }

    /// `[at] = number`, its sign extended to 64 bits.
    pub(super) fn store_number(&mut self, size: u8, at: Mem, number: i32) {
        let bytes = number.to_le_bytes();
        match size {
            1 => {
                self.memory(false, &[0xc6], 0, at, false);
                self.0.push(bytes[0]);
            }
            2 => {
                self.0.push(0x66);
                self.memory(false, &[0xc7], 0, at, false);
                self.bytes(&bytes[..2]);
            }
            _ => {
                self.memory(size == 8, &[0xc7], 0, at, false);
                self.bytes(&bytes);
            }
        }
    }

    pub(super) fn push(&mut self, a: Reg) {
        self.rex(false, 0, a, false);
        self.0.push(0x50 | a.0 & 7);
    }

    pub(super) fn pop(&mut self, a: Reg) {
        self.rex(false, 0, a, false);
        self.0.push(0x58 | a.0 & 7);
    }

    pub(super) fn ret(&mut self) {
        self.0.push(0xc3);
    }

    /// Calls the function whose address is there.
    pub(super) fn call(&mut self, at: Mem) {
        self.memory(false, &[0xff], 2, at, false);
    }

    /// Jumps ahead, by at most 127 bytes.
    pub(super) fn ahead(&mut self, when: Option<Cc>) -> Ahead {
        self.bytes(&[when.map_or(0xeb, |cc| 0x70 | cc as u8), 0]);
        Ahead(self.0.len())
    }

    /// Here that jump goes.
    pub(super) fn here(&mut self, Ahead(from): Ahead) {
        let distance = i8::try_from(self.0.len() - from).expect("an instruction takes less");
        self.0[from - 1] = distance.cast_unsigned();
    }

    /// Jumps back there, by at most 126 bytes.
    pub(super) fn back(&mut self, when: Cc, to: usize) {
        let distance = (self.0.len() + 2 - to) as i8;
        self.bytes(&[0x70 | when as u8, distance.wrapping_neg().cast_unsigned()]);
    }

    /// Jumps somewhere. Returns where the distance stands, which is `short`, or not.
    pub(super) fn jump(&mut self, when: Option<Cc>, short: bool) -> usize {
        match (when, short) {
            (Some(cc), true) => self.bytes(&[0x70 | cc as u8, 0]),
            (None, true) => self.bytes(&[0xeb, 0]),
            (Some(cc), false) => self.bytes(&[0x0f, 0x80 | cc as u8, 0, 0, 0, 0]),
            (None, false) => self.bytes(&[0xe9, 0, 0, 0, 0]),
        }
        self.0.len() - if short { 1 } else { 4 }
    }
}
