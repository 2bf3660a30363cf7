//! What is known of registers and of the stack at one place of a path.

use super::scalar::Scalar;
use crate::op::{FRAME, REGISTERS, STACK};
use std::rc::Rc;

/// What a register holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reg {
    /// Nothing that may be read.
    Nothing,
    /// A number.
    Number(Scalar),
    /// The hook's context, plus bytes.
    Context(i64),
    /// The frame pointer, plus bytes.
    Stack(Scalar),
    /// A map.
    Map(u32),
    /// A value of a map, plus bytes.
    Value { map: u32, off: Scalar },
    /// A value of a map, or null. Copies have the same `id`.
    OrNull { map: u32, id: u32 },
}

impl Reg {
    pub(super) fn known(value: u64) -> Self {
        Self::Number(Scalar::known(value))
    }

    pub(super) fn unknown() -> Self {
        Self::Number(Scalar::unknown())
    }

    pub(super) fn is_pointer(&self) -> bool {
        !matches!(self, Self::Nothing | Self::Number(_))
    }
}

/// Eight bytes of the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    /// A register, stored whole.
    Whole(Reg),
    /// Bytes.
    Bytes {
        /// Those that have been written, a bit each.
        written: u8,
        /// The lower and the upper four as numbers, if they were stored so.
        halves: [Option<Scalar>; 2],
    },
}

impl Slot {
    pub(super) const EMPTY: Self = Self::Bytes { written: 0, halves: [None; 2] };

    /// One of its halves, if it is known as a number.
    pub(super) fn half(&self, upper: bool) -> Option<Scalar> {
        match self {
            Self::Bytes { halves, .. } => halves[usize::from(upper)],
            Self::Whole(Reg::Number(number)) if !upper => Some(number.truncated()),
            Self::Whole(_) => None,
        }
    }

    /// The bytes that are numbers.
    pub(super) fn written(&self) -> u8 {
        match self {
            Self::Bytes { written, .. } => *written,
            Self::Whole(Reg::Number(_)) => u8::MAX,
            Self::Whole(_) => 0,
        }
    }
}

/// The number of slots.
pub(super) const SLOTS: usize = STACK / 8;

/// The registers and the stack.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) regs: [Reg; REGISTERS],
    /// From the frame pointer downwards: slot 0 is at -8.
    pub(super) stack: Rc<Vec<Slot>>,
}

impl Known {
    /// As a hook begins: r1 is the context.
    pub(super) fn start() -> Self {
        let mut regs = [Reg::Nothing; REGISTERS];
        regs[1] = Reg::Context(0);
        regs[usize::from(FRAME)] = Reg::Stack(Scalar::known(0));
        Self { regs, stack: Rc::new(Vec::new()) }
    }

    pub(super) fn reg(&self, number: u8) -> Reg {
        self.regs[usize::from(number)]
    }

    pub(super) fn set(&mut self, number: u8, reg: Reg) {
        self.regs[usize::from(number)] = reg;
    }

    pub(super) fn slot(&self, number: usize) -> Slot {
        self.stack.get(number).copied().unwrap_or(Slot::EMPTY)
    }

    pub(super) fn slot_mut(&mut self, number: usize) -> &mut Slot {
        let stack = Rc::make_mut(&mut self.stack);
        if stack.len() <= number {
            stack.resize(number + 1, Slot::EMPTY);
        }
        &mut stack[number]
    }

    /// Applies a change to all registers and slots.
    pub(super) fn each(&mut self, mut change: impl FnMut(Reg) -> Reg) {
        for reg in &mut self.regs {
            *reg = change(*reg);
        }
        let is_other = |slot: &Slot, to: &mut dyn FnMut(Reg) -> Reg| matches!(slot, Slot::Whole(reg) if to(*reg) != *reg);
        if self.stack.iter().any(|slot| is_other(slot, &mut change)) {
            for slot in Rc::make_mut(&mut self.stack) {
                if let Slot::Whole(reg) = slot {
                    *reg = change(*reg);
                }
            }
        }
    }

    /// Forgets what no continuation reads: registers that are not in `live`.
    pub(super) fn forget(&mut self, live: u16) {
        for (number, reg) in self.regs.iter_mut().enumerate() {
            if live & 1 << number == 0 {
                *reg = Reg::Nothing;
            }
        }
    }

    /// Forgets slots that are not in `read`.
    pub(super) fn forget_stack(&mut self, read: u64) {
        let is_unread =
            |number: usize, slot: &Slot| read & 1 << number == 0 && *slot != Slot::EMPTY;
        if self.stack.iter().enumerate().any(|(number, slot)| is_unread(number, slot)) {
            for (number, slot) in Rc::make_mut(&mut self.stack).iter_mut().enumerate() {
                if read & 1 << number == 0 {
                    *slot = Slot::EMPTY;
                }
            }
        }
    }

    /// Numbers whose copies are gone are no copies any more.
    pub(super) fn lonely(&mut self) {
        let slots = self.stack.iter().filter_map(|slot| match slot {
            Slot::Whole(reg) => Some(reg),
            Slot::Bytes { .. } => None,
        });
        let copy = |reg: &Reg| match reg {
            Reg::Number(number) if number.copy != 0 => Some(number.copy),
            _ => None,
        };
        let copies: Vec<u32> = self.regs.iter().chain(slots).filter_map(copy).collect();
        let is_lonely = |one: u32| copies.iter().filter(|other| **other == one).count() == 1;
        if copies.iter().any(|one| is_lonely(*one)) {
            self.each(|reg| match reg {
                Reg::Number(number) if is_lonely(number.copy) => Reg::Number(number.alone()),
                reg => reg,
            });
        }
    }

    /// Forgets numbers in which it differs from `other`, so that one state may stand for many. To know less is always right. In loops the
    /// constants stay: they count.
    pub(super) fn blur(&mut self, other: &Self, in_loop: bool) {
        let mut same = Pairs::default();
        let mut blur = |one: &Reg, other: &Reg| match (one, other) {
            (Reg::Number(one), Reg::Number(known)) if !same.covers(other, &Reg::Number(*one)) => {
                let counts = in_loop && one.constant().is_some() && known.constant().is_some();
                (!counts).then(Reg::unknown)
            }
            _ => None,
        };
        for (reg, other) in self.regs.iter_mut().zip(&other.regs) {
            *reg = blur(reg, other).unwrap_or(*reg);
        }
        for (number, slot) in Rc::make_mut(&mut self.stack).iter_mut().enumerate() {
            match (&mut *slot, other.slot(number)) {
                (Slot::Whole(reg), Slot::Whole(other)) => {
                    *reg = blur(reg, &other).unwrap_or(*reg);
                }
                (Slot::Bytes { halves, .. }, Slot::Bytes { halves: others, .. })
                    if *halves != others =>
                {
                    *halves = [None; 2];
                }
                _ => {}
            }
        }
    }

    /// Is whatever may be so in `other` covered by this state? If nothing goes wrong from here on, nothing goes wrong from there.
    pub(super) fn includes(&self, other: &Self) -> bool {
        let mut same = Pairs::default();
        self.regs.iter().zip(&other.regs).all(|(one, other)| same.covers(one, other))
            && self
                .stack
                .iter()
                .enumerate()
                .all(|(number, slot)| same.covers_slot(slot, &other.slot(number)))
    }
}

/// Which identities of one state stand for which of the other.
#[derive(Default)]
struct Pairs {
    pairs: Vec<(u32, u32)>,
}

impl Pairs {
    /// Does `one` always stand for `other`? Both are not 0.
    fn pair(&mut self, one: u32, other: u32) -> bool {
        match self.pairs.iter().find(|(known, _)| *known == one) {
            Some((_, known)) => *known == other,
            None => {
                self.pairs.push((one, other));
                true
            }
        }
    }

    fn covers(&mut self, one: &Reg, other: &Reg) -> bool {
        match (one, other) {
            (Reg::Nothing, _) => true,
            (Reg::Number(one), Reg::Number(other)) => {
                // Copies tell about each other, so they must be copies in the other state, too.
                one.includes(other)
                    && (one.copy == 0 || (other.copy != 0 && self.pair(one.copy, other.copy)))
            }
            (Reg::Context(one), Reg::Context(other)) => one == other,
            (Reg::Stack(one), Reg::Stack(other)) => one.includes(other),
            (Reg::Map(one), Reg::Map(other)) => one == other,
            (Reg::Value { map, off }, Reg::Value { map: other_map, off: other }) => {
                map == other_map && off.includes(other)
            }
            (Reg::OrNull { map, id }, Reg::OrNull { map: other_map, id: other }) => {
                map == other_map && self.pair(*id, *other)
            }
            _ => false,
        }
    }

    fn covers_slot(&mut self, one: &Slot, other: &Slot) -> bool {
        match (one, other) {
            (Slot::Whole(one), Slot::Whole(other)) => self.covers(one, other),
            (Slot::Whole(Reg::Number(number)), Slot::Bytes { written: u8::MAX, .. }) => {
                number.copy == 0 && number.includes(&Scalar::unknown())
            }
            (Slot::Whole(_), Slot::Bytes { .. }) => false,
            (Slot::Bytes { written, halves }, other) => {
                let covers_half =
                    |upper: bool| match (halves[usize::from(upper)], other.half(upper)) {
                        (None, _) => true,
                        (Some(one), Some(other)) => one.includes(&other),
                        (Some(_), None) => false,
                    };
                written & !other.written() == 0 && covers_half(false) && covers_half(true)
            }
        }
    }
}
