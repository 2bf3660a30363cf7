//! AArch64's instructions as words: those that the translation needs. (*Arm Architecture Reference Manual for A-profile*, C6.)

/// A register, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reg(pub(super) u8);

/// The stack pointer, as the base of memory and in sums with numbers.
pub(super) const SP: Reg = Reg(31);
/// Always zero, everywhere else.
pub(super) const ZERO: Reg = Reg(31);

/// Memory: a register's address plus a number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mem(pub(super) Reg, pub(super) i32);

/// Operations of two registers into a third.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Three {
    Add = 0x0b00_0000,
    Sub = 0x4b00_0000,
    /// With flags.
    Subs = 0x6b00_0000,
    And = 0x0a00_0000,
    /// With flags.
    Ands = 0x6a00_0000,
    Or = 0x2a00_0000,
    Xor = 0x4a00_0000,
    /// Unsigned; by zero: 0.
    Div = 0x1ac0_0800,
    /// By the count modulo the width.
    ShiftLeft = 0x1ac0_2000,
    ShiftRight = 0x1ac0_2400,
    ShiftSigned = 0x1ac0_2800,
}

/// What a conditional branch asks.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cc {
    Equal = 0,
    NotEqual = 1,
    AboveEqual = 2,
    Below = 3,
    Above = 8,
    BelowEqual = 9,
    GreaterEqual = 10,
    Less = 11,
    Greater = 12,
    LessEqual = 13,
}

/// Code that grows.
#[derive(Debug, Default)]
pub(super) struct Code(pub(super) Vec<u32>);

fn n(a: Reg) -> u32 {
    a.0.into()
}

fn sf(wide: bool) -> u32 {
    u32::from(wide) << 31
}

impl Code {
    fn word(&mut self, word: u32) {
        self.0.push(word);
    }

    /// `d = a op b`.
    pub(super) fn three(&mut self, op: Three, wide: bool, d: Reg, a: Reg, b: Reg) {
        self.word(op as u32 | sf(wide) | n(b) << 16 | n(a) << 5 | n(d));
    }

    /// `d = a + number`, of 12 bits and a sign. `a` and `d` may be the stack pointer.
    pub(super) fn add_small(&mut self, wide: bool, d: Reg, a: Reg, number: i32) {
        let op = if number < 0 { 0x5100_0000 } else { 0x1100_0000 };
        self.word(op | sf(wide) | number.unsigned_abs() << 10 | n(a) << 5 | n(d));
    }

    /// The flags of `a - number`, of 12 bits and a sign.
    pub(super) fn compare_small(&mut self, wide: bool, a: Reg, number: i32) {
        let op = if number < 0 { 0x3100_0000 } else { 0x7100_0000 };
        self.word(op | sf(wide) | number.unsigned_abs() << 10 | n(a) << 5 | n(ZERO));
    }

    /// `d = a * b + c`.
    pub(super) fn multiply_add(&mut self, wide: bool, d: Reg, a: Reg, b: Reg, c: Reg) {
        self.word(0x1b00_0000 | sf(wide) | n(b) << 16 | n(c) << 10 | n(a) << 5 | n(d));
    }

    /// `d = c - a * b`.
    pub(super) fn multiply_sub(&mut self, wide: bool, d: Reg, a: Reg, b: Reg, c: Reg) {
        self.word(0x1b00_8000 | sf(wide) | n(b) << 16 | n(c) << 10 | n(a) << 5 | n(d));
    }

    /// `d = a`.
    pub(super) fn mov(&mut self, wide: bool, d: Reg, a: Reg) {
        self.three(Three::Or, wide, d, ZERO, a);
    }

    /// `d = number`.
    pub(super) fn number(&mut self, d: Reg, number: u64) {
        let part = |number: u64, at: u32| (number >> (16 * at) & 0xffff) as u32;
        let ones = (0..4).filter(|at| part(number, *at) == 0xffff).count();
        let zeroes = (0..4).filter(|at| part(number, *at) == 0).count();
        // Begin with what most parts are.
        let (first, background) =
            if ones > zeroes { (0x9280_0000, 0xffff) } else { (0xd280_0000, 0) };
        let mut begun = false;
        for at in 0..4 {
            let bits = part(number, at);
            if bits == background {
                continue;
            }
            let (op, bits) = match (begun, background) {
                (true, _) => (0xf280_0000, bits),
                (false, 0) => (first, bits),
                (false, _) => (first, !bits & 0xffff),
            };
            begun = true;
            self.word(op | at << 21 | bits << 5 | n(d));
        }
        if !begun {
            self.word(first | n(d));
        }
    }

    /// `d = a` shifted to the left by a number below the width.
    pub(super) fn shift_left(&mut self, wide: bool, d: Reg, a: Reg, count: u32) {
        let width = if wide { 64 } else { 32 };
        self.bits(0x5300_0000, wide, d, a, (width - count) % width, width - 1 - count);
    }

    /// `d = a` shifted to the right, zeroes come in.
    pub(super) fn shift_right(&mut self, wide: bool, d: Reg, a: Reg, count: u32) {
        self.bits(0x5300_0000, wide, d, a, count, if wide { 63 } else { 31 });
    }

    /// `d = a` shifted to the right, the sign comes in.
    pub(super) fn shift_signed(&mut self, wide: bool, d: Reg, a: Reg, count: u32) {
        self.bits(0x1300_0000, wide, d, a, count, if wide { 63 } else { 31 });
    }

    fn bits(&mut self, op: u32, wide: bool, d: Reg, a: Reg, from: u32, to: u32) {
        let n_bit = u32::from(wide) << 22;
        self.word(op | sf(wide) | n_bit | from << 16 | to << 10 | n(a) << 5 | n(d));
    }

    /// `d = ` the lower two bytes of a.
    pub(super) fn extend16(&mut self, d: Reg, a: Reg) {
        self.bits(0x5300_0000, false, d, a, 0, 15);
    }

    /// `d = ` the bytes of each two of a in the other order; of 32 bits.
    pub(super) fn reverse16(&mut self, d: Reg, a: Reg) {
        self.word(0x5ac0_0400 | n(a) << 5 | n(d));
    }

    /// `d = ` the bytes of a in the other order.
    pub(super) fn reverse(&mut self, wide: bool, d: Reg, a: Reg) {
        let op = if wide { 0xdac0_0c00 } else { 0x5ac0_0800 };
        self.word(op | n(a) << 5 | n(d));
    }

    /// `d = a | 1`.
    pub(super) fn or_one(&mut self, d: Reg, a: Reg) {
        self.word(0xb240_0000 | n(a) << 5 | n(d));
    }

    /// `d = ` how many of a's highest bits are zero.
    pub(super) fn leading_zeroes(&mut self, d: Reg, a: Reg) {
        self.word(0xdac0_1000 | n(a) << 5 | n(d));
    }

    /// `d = [at]`, zero-extended. May need `scratch`.
    pub(super) fn load(&mut self, size: u8, d: Reg, at: Mem, scratch: Reg) {
        self.memory(0x0040_0000, size, d, at, scratch);
    }

    /// `[at] = d`. May need `scratch`.
    pub(super) fn store(&mut self, size: u8, at: Mem, d: Reg, scratch: Reg) {
        self.memory(0, size, d, at, scratch);
    }

    fn memory(&mut self, load: u32, size: u8, d: Reg, Mem(base, offset): Mem, scratch: Reg) {
        let log = size.trailing_zeros();
        let op = load | log << 30 | n(base) << 5 | n(d);
        match u32::try_from(offset) {
            Ok(offset) if offset % u32::from(size) == 0 && offset >> log < 4096 => {
                self.word(0x3900_0000 | op | offset >> log << 10);
            }
            _ if (-256..256).contains(&offset) => {
                self.word(0x3800_0000 | op | (offset.cast_unsigned() & 0x1ff) << 12);
            }
            _ => {
                let by_register = if load == 0 { 0x3820_6800 } else { 0x3860_6800 };
                self.number(scratch, i64::from(offset).cast_unsigned());
                self.word(by_register | op | n(scratch) << 16);
            }
        }
    }

    /// `d = [a]`, and this CPU watches the place.
    pub(super) fn load_exclusive(&mut self, wide: bool, d: Reg, a: Reg) {
        self.word(0x885f_7c00 | u32::from(wide) << 30 | n(a) << 5 | n(d));
    }

    /// `[a] = d`, if nobody wrote there; `failed` says. What was written before is seen by who sees this.
    pub(super) fn store_exclusive(&mut self, wide: bool, failed: Reg, d: Reg, a: Reg) {
        let op = 0x8800_fc00 | u32::from(wide) << 30;
        self.word(op | n(failed) << 16 | n(a) << 5 | n(d));
    }

    /// What is before is done before what follows.
    pub(super) fn barrier(&mut self) {
        self.word(0xd503_3bbf);
    }

    /// Goes back there, if a isn't zero.
    pub(super) fn back_if_not_zero(&mut self, a: Reg, to: usize) {
        let distance = to as i64 - self.0.len() as i64;
        self.word(0x3500_0000 | (distance as u32 & 0x7_ffff) << 5 | n(a));
    }

    /// Jumps somewhere. Returns the place of the jump, for [`land`](Self::land).
    pub(super) fn jump(&mut self, when: Option<Cc>) -> usize {
        self.word(when.map_or(0x1400_0000, |cc| 0x5400_0000 | cc as u32));
        self.0.len() - 1
    }

    /// That jump goes there.
    pub(super) fn land(&mut self, jump: usize, to: usize) {
        let distance = to as i64 - jump as i64;
        let word = &mut self.0[jump];
        *word |= if *word >> 24 == 0x14 {
            distance as u32 & 0x3ff_ffff
        } else {
            (distance as u32 & 0x7_ffff) << 5
        };
    }

    /// Two registers go on the stack.
    pub(super) fn push(&mut self, a: Reg, b: Reg) {
        self.word(0xa9bf_0000 | n(b) << 10 | n(SP) << 5 | n(a));
    }

    /// And back.
    pub(super) fn pop(&mut self, a: Reg, b: Reg) {
        self.word(0xa8c1_0000 | n(b) << 10 | n(SP) << 5 | n(a));
    }

    pub(super) fn call(&mut self, a: Reg) {
        self.word(0xd63f_0000 | n(a) << 5);
    }

    pub(super) fn ret(&mut self) {
        self.word(0xd65f_03c0);
    }
}
