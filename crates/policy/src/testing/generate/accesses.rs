//! Statements that use maps and helpers.

use super::*;

impl Drawing<'_> {
    /// Leaves a key of this map on the stack, and its address in r2. Keys below some number are there, or may be.
    fn key(&mut self, map: u32) {
        let (slot, off) = self.slot();
        let bound = u64::from(self.maps[map as usize].spec.max_entries) + 2;
        let drawn = self.random.below(bound) as i32;
        if self.random.one_in(2) {
            self.emit(put(8, 10, off, drawn));
        } else {
            let register = self.own_number();
            self.emit(alu(Alu::And, register, Number(7)));
            self.emit(store(8, 10, off, register));
        }
        self.state.slots[slot] = Type::Number;
        self.emit(copy(2, 10));
        self.emit(alu(Alu::Add, 2, Number(off.into())));
    }

    fn called(&mut self, helper: u32) {
        self.emit(call(helper));
        for register in 1..=5 {
            self.set(register, Type::Nothing);
        }
        self.set(0, Type::Number);
    }

    pub(super) fn lookup(&mut self) {
        let number = self.random.pick(&[0, 1, 2, 2, 5, 6]);
        let helper =
            if number == 2 && self.random.one_in(2) { helpers::STORAGE } else { helpers::LOOKUP };
        self.key(number);
        self.emit(map(1, number));
        self.called(helper);
        let before = {
            self.set(0, Type::Nothing);
            self.state
        };
        let dst = self.target();
        if !self.random.one_in(6) {
            let null = self.open(branch(Condition::Eq, 0, Number(0), 0));
            self.set(0, Type::Value(number, 0));
            self.access_value();
            if self.random.one_in(2) {
                self.emit(copy(dst, 0));
                self.set(dst, self.state.types[0]);
            }
            self.access_value();
            self.close(null);
            self.state = self.state.meet(before);
        } else {
            // What isn't there ends the program.
            let found = self.open(branch(Condition::Ne, 0, Number(0), 0));
            self.emit(mov(0, 0));
            self.emit(Op::Exit);
            self.close(found);
            self.set(0, Type::Value(number, 0));
            self.access_value();
        }
    }

    pub(super) fn change_map(&mut self) {
        match self.random.below(3) {
            0 => {
                let number = self.random.pick(&[0, 1, 2, 5, 6]);
                self.memory(self.maps[number as usize].spec.value_size);
                self.emit(copy(3, 2));
                self.set(3, Type::Nothing);
                // The key's slot is one of the value's, or not.
                self.emit(put(8, 10, -8, 1));
                self.state.slots[0] = Type::Number;
                self.emit(copy(2, 10));
                self.emit(alu(Alu::Add, 2, Number(-8)));
                self.emit(map(1, number));
                let flags = self.random.below(4) as i32;
                self.emit(mov(4, flags));
                self.called(helpers::UPDATE);
            }
            1 => {
                let number = self.random.pick(&[0, 2]);
                self.key(number);
                self.emit(map(1, number));
                self.called(helpers::DELETE);
            }
            _ => {
                let size = 1 + self.random.below(8 * SLOTS as u64 / 2) as u32;
                self.memory(size);
                self.emit(mov(3, size as i32));
                self.emit(mov(4, 0));
                self.emit(map(1, 3));
                self.called(helpers::REPORT);
            }
        }
    }

    /// Writes `size` bytes of the stack, and leaves their address in r2.
    fn memory(&mut self, size: u32) {
        let slots = size.div_ceil(8) as usize;
        let from = self.random.below((SLOTS - slots + 1) as u64) as usize;
        for slot in from..from + slots {
            if self.state.slots[slot] != Type::Number {
                let drawn = self.random.number() as i32;
                self.emit(put(8, 10, -8 * (slot as i16 + 1), drawn));
                self.state.slots[slot] = Type::Number;
            }
        }
        self.emit(copy(2, 10));
        self.emit(alu(Alu::Add, 2, Number(-8 * (from + slots) as i32)));
        self.set(2, Type::Nothing);
    }

    pub(super) fn ask_world(&mut self) {
        let all =
            helpers::ALL.iter().filter(|helper| helper.args.iter().all(|arg| *arg == Arg::Number));
        let all: Vec<_> = all.collect();
        let helper = self.random.pick(&all);
        if !helper.args.is_empty() {
            let src = self.number();
            self.emit(copy(1, src));
        }
        self.called(helper.id);
    }

    /// Reads or writes a value, if there is a pointer to one.
    pub(super) fn access_value(&mut self) {
        let all = self.having(|is| matches!(is, Type::Value(..)));
        if all.is_empty() {
            return;
        }
        let base = self.random.pick(&all);
        let Type::Value(number, at) = self.state.types[usize::from(base)] else { return };
        let len = self.maps[number as usize].spec.value_size as i32;
        let size = self.size();
        let off = self.random.below(len as u64 / u64::from(size)) as i32 * i32::from(size);
        let off = (off - at) as i16;
        let wide = self.random.one_in(2);
        let atomic_off = (self.random.below(len as u64 / 8) as i32 * 8 - at) as i16;
        match self.random.below(6) {
            0 => {
                let src = self.number();
                if self.state.types[usize::from(base)] == Type::Value(number, at) {
                    self.emit(store(size, base, off, src));
                }
            }
            1 => {
                let drawn = self.random.number() as i32;
                self.emit(put(size, base, off, drawn));
            }
            2 => {
                let dst = self.target();
                self.emit(load(size, dst, base, off));
                self.set(dst, Type::Number);
            }
            3 => {
                let atomic = self.random.pick(&ATOMICS);
                let fetch = matches!(atomic, Atomic::Exchange | Atomic::CompareExchange);
                let fetch = fetch || self.random.one_in(2);
                let src = if fetch { self.own_number() } else { self.number() };
                if atomic == Atomic::CompareExchange {
                    let made = self.state.types[0] != Type::Number;
                    if made && (self.reserved.contains(&0) || base == 0) {
                        return;
                    }
                    if made {
                        let drawn = self.random.number() as i32;
                        self.emit(mov(0, drawn));
                        self.set(0, Type::Number);
                    }
                    if self.reserved.contains(&0) {
                        return;
                    }
                }
                if self.state.types[usize::from(base)] == Type::Value(number, at)
                    && self.state.types[usize::from(src)] == Type::Number
                {
                    self.emit(Op::Atomic { atomic, fetch, wide, dst: base, off: atomic_off, src });
                }
            }
            4 if !self.reserved.contains(&base) => {
                // The pointer moves within its value.
                let to = self.random.below(len as u64 / 8) as i32 * 8;
                self.emit(alu(Alu::Add, base, Number(to - at)));
                self.set(base, Type::Value(number, to));
            }
            _ => {
                // An index that the program bounds.
                let (index, dst) = (self.own_number(), self.target());
                if index == base || dst == base || dst == index {
                    return;
                }
                if self.state.types[usize::from(base)] != Type::Value(number, at) {
                    return;
                }
                let places = len / 8;
                let open = if places.count_ones() == 1 && self.random.one_in(2) {
                    self.emit(alu(Alu::And, index, Number(places - 1)));
                    None
                } else {
                    Some(self.open(branch(Condition::Ge, index, Number(places), 0)))
                };
                let before = self.state;
                self.emit(copy(dst, index));
                self.emit(alu(Alu::Lsh, dst, Number(3)));
                self.emit(alu(Alu::Add, dst, Register(base)));
                if self.random.one_in(2) {
                    self.emit(put(8, dst, -at as i16, 3));
                }
                self.emit(load(8, dst, dst, -at as i16));
                self.set(dst, Type::Number);
                if let Some(open) = open {
                    self.close(open);
                    self.state = self.state.meet(before);
                }
            }
        }
    }

    /// A variable of the program.
    pub(super) fn variable(&mut self) {
        let dst = self.target();
        let (number, at) = self.random.pick(&[(0, 0), (0, 64), (4, 0), (4, 8)]);
        self.emit(Op::Load64 { dst, constant: Constant::Value(number, at) });
        self.set(dst, Type::Value(number, at.cast_signed()));
        self.access_value();
    }
}
