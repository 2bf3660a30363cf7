//! Numbers, as far as they are known: where all 64 bits lie, where the lower 32 do, and which bits are known.

use super::bits::{Bits, ones};
use super::range::Range;
use crate::op::{Alu, Condition};
use std::fmt;

/// A number that lies in both ranges and has these bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scalar {
    /// All 64 bits.
    pub(super) wide: Range,
    /// The lower 32.
    pub(super) low: Range,
    pub(super) bits: Bits,
    /// Copies of a number have the same, so that a branch on one tells about the others; 0: there is no copy.
    pub(super) copy: u32,
}

impl Scalar {
    pub(super) fn unknown() -> Self {
        Self { wide: Range::full(64), low: Range::full(32), bits: Bits::UNKNOWN, copy: 0 }
    }

    pub(super) fn known(value: u64) -> Self {
        Self {
            wide: Range::known(value, 64),
            low: Range::known(value, 32),
            bits: Bits::known(value),
            copy: 0,
        }
    }

    /// Any number of these many bytes.
    pub(super) fn of_size(size: u8) -> Self {
        Self::unsigned(0, ones(8 * u32::from(size)))
    }

    pub(super) fn unsigned(min: u64, max: u64) -> Self {
        Self { wide: Range::unsigned(min, max, 64), ..Self::unknown() }.agreed()
    }

    /// The number, if there is only one.
    pub(super) fn constant(&self) -> Option<u64> {
        (self.bits.mask == 0).then_some(self.bits.value)
    }

    /// Forgets that it is a copy.
    pub(super) fn alone(self) -> Self {
        Self { copy: 0, ..self }
    }

    /// Are all numbers of `other` here?
    pub(super) fn includes(&self, other: &Self) -> bool {
        self.wide.includes(other.wide)
            && self.low.includes(other.low)
            && self.bits.includes(other.bits)
    }

    /// What all parts know together; `None`: they contradict each other, so there is no such number.
    fn checked(mut self) -> Option<Self> {
        for _ in 0..2 {
            self.wide = self.wide.intersection(of_bits(self.bits, 64)).agreed(64);
            self.low = self.low.intersection(of_bits(self.bits.low(32), 32)).agreed(32);
            // From 64 bits to 32: the numbers lie in one block of 2^32, or are sign extensions.
            let Range { umin, umax, smin, smax } = self.wide;
            if umin >> 32 == umax >> 32 {
                let low = Range::unsigned(umin & ones(32), umax & ones(32), 32);
                self.low = self.low.intersection(low);
            }
            if smin >= i64::from(i32::MIN) && smax <= i64::from(i32::MAX) {
                self.low = self.low.intersection(Range::signed(smin, smax, 32));
            }
            self.low = self.low.agreed(32);
            // And back: the upper half is the same for all.
            if umin >> 32 == umax >> 32 && !self.low.is_empty() {
                let upper = umin & !ones(32);
                let wide = Range::unsigned(upper | self.low.umin, upper | self.low.umax, 64);
                self.wide = self.wide.intersection(wide).agreed(64);
            }
            if self.wide.is_empty() || self.low.is_empty() {
                return None;
            }
            self.bits = self.bits.intersection(Bits::range(self.wide.umin, self.wide.umax))?;
            let low = Bits::range(self.low.umin, self.low.umax);
            let upper = !ones(32);
            let low = Bits { value: low.value & !upper, mask: low.mask | upper };
            self.bits = self.bits.intersection(low)?;
        }
        Some(self)
    }

    fn agreed(self) -> Self {
        // A contradiction means that no execution comes here. To know nothing is always right.
        self.checked().unwrap_or(Self::unknown())
    }

    /// The lower 32 bits; the upper ones are 0.
    pub(super) fn truncated(self) -> Self {
        if self.wide.umax <= ones(32) {
            return self;
        }
        let wide = Range::unsigned(self.low.umin, self.low.umax, 64);
        Self { wide, bits: self.bits.low(32), copy: 0, ..self }.agreed()
    }

    /// The lower bytes; the upper ones are 0.
    pub(super) fn bytes(self, size: u8) -> Self {
        match size {
            8 => self,
            4 => self.truncated(),
            _ if self.wide.umax <= ones(8 * u32::from(size)) => self,
            _ => {
                let bits = self.bits.low(8 * u32::from(size));
                Self { bits, ..Self::unknown() }.agreed()
            }
        }
    }

    /// `self alu other`, of 64 bits, or of 32, whose upper half is 0 then.
    pub(super) fn alu(self, alu: Alu, other: Self, wide: bool) -> Self {
        if wide {
            // Version 3 extends a sign by two shifts; the first one moves the lower half up, with all that is known of it.
            let is_half = alu == Alu::Lsh && other.constant() == Some(32);
            let upper = || Range {
                umin: self.low.umin << 32,
                umax: self.low.umax << 32,
                smin: self.low.smin << 32,
                smax: self.low.smax << 32,
            };
            let result = Self {
                wide: if is_half { upper() } else { range(alu, self.wide, &other, 64) },
                low: self.low_of_wide(alu, &other),
                bits: bits(alu, self.bits, &other, 64),
                copy: 0,
            };
            return result.agreed();
        }
        let (left, right) = (self.truncated(), other.truncated());
        let low = range(alu, left.low, &right, 32);
        let bits = bits(alu, left.bits, &right, 32);
        let wide = Range::unsigned(low.umin, low.umax, 64);
        Self { wide, low, bits, copy: 0 }.agreed()
    }

    /// The lower half of an operation of 64 bits.
    fn low_of_wide(&self, alu: Alu, other: &Self) -> Range {
        match (alu, other.constant()) {
            (Alu::Add | Alu::Sub | Alu::Mul | Alu::And | Alu::Or | Alu::Xor | Alu::Mov, _) => {
                range(alu, self.low, other, 32)
            }
            (Alu::Lsh, Some(count)) if count < 32 => range(alu, self.low, other, 32),
            _ => Range::full(32),
        }
    }

    pub(super) fn negated(self, wide: bool) -> Self {
        Self::known(0).alu(Alu::Sub, self, wide)
    }

    /// In the order of another machine, or of this one: all that is certain is that the upper bits are 0.
    pub(super) fn swapped(self, big: bool, width: u8) -> Self {
        match (self.constant(), width) {
            (_, 64) if !big => self,
            (None, _) if big => Self::of_size(width / 8),
            (None, _) => self.bytes(width / 8),
            (Some(value), _) => {
                let value = value & ones(u32::from(width));
                let swapped = value.swap_bytes() >> (64 - u32::from(width));
                Self::known(if big { swapped } else { value })
            }
        }
    }

    /// Both numbers if the condition holds, or doesn't; `None`: that can't be.
    pub(super) fn refined(
        self,
        other: Self,
        condition: Condition,
        holds: bool,
        wide: bool,
    ) -> Option<(Self, Self)> {
        let width = if wide { 64 } else { 32 };
        if condition == Condition::Set {
            let (mask, left) = (other.bits.low(width), self.bits.low(width));
            return self.refined_bits(mask, left, holds).map(|left| (left, other));
        }
        let condition = if holds { condition } else { opposite(condition) };
        let (mut left, mut right) = (self, other);
        if wide {
            (left.wide, right.wide) = left.wide.refined(right.wide, condition, 64)?;
            if condition == Condition::Eq {
                left.low = left.low.intersection(right.low);
                left.bits = left.bits.intersection(right.bits)?;
                (right.low, right.bits) = (left.low, left.bits);
            }
        } else {
            (left.low, right.low) = left.low.refined(right.low, condition, 32)?;
            if condition == Condition::Eq {
                let upper =
                    |bits: Bits| Bits { value: bits.value & ones(32), mask: bits.mask | !ones(32) };
                let both = upper(left.bits).intersection(upper(right.bits))?;
                left.bits = left.bits.intersection(both)?;
                right.bits = right.bits.intersection(both)?;
            }
        }
        Some((left.checked()?, right.checked()?))
    }

    /// If there is a bit that both have, or none.
    fn refined_bits(self, mask: Bits, left: Bits, holds: bool) -> Option<Self> {
        if holds {
            let common = mask.max() & left.max();
            let mut refined = self;
            if mask.mask == 0 && common.is_power_of_two() {
                refined.bits = self.bits.intersection(Bits { value: common, mask: !common })?;
            }
            return if common == 0 { None } else { refined.checked() };
        }
        let zero = Bits { value: 0, mask: !mask.value };
        Self { bits: self.bits.intersection(zero)?, ..self }.checked()
    }
}

fn opposite(condition: Condition) -> Condition {
    match condition {
        Condition::Eq => Condition::Ne,
        Condition::Ne => Condition::Eq,
        Condition::Gt => Condition::Le,
        Condition::Le => Condition::Gt,
        Condition::Ge => Condition::Lt,
        Condition::Lt => Condition::Ge,
        Condition::Sgt => Condition::Sle,
        Condition::Sle => Condition::Sgt,
        Condition::Sge => Condition::Slt,
        Condition::Slt => Condition::Sge,
        Condition::Set => Condition::Set,
    }
}

fn of_bits(bits: Bits, width: u32) -> Range {
    Range::unsigned(bits.min(), bits.max(), width)
}

/// The counts by which a shift may shift, if they are all smaller than the width.
fn counts(other: &Scalar, width: u32) -> Option<(u32, u32)> {
    let most = u32::try_from(other.wide.umax).ok().filter(|most| *most < width)?;
    Some((u32::try_from(other.wide.umin).ok()?, most))
}

/// The range of a result; `left` has this width.
fn range(alu: Alu, left: Range, other: &Scalar, width: u32) -> Range {
    let right = if width == 64 { other.wide } else { other.low };
    let full = Range::full(width);
    match alu {
        Alu::Add => left.add(right, width),
        Alu::Sub => left.sub(right, width),
        Alu::Mul => left.mul(right, width),
        Alu::Div => left.div(right, width),
        Alu::Mod => left.rem(right, width),
        Alu::Mov => right,
        Alu::And => Range::unsigned(0, left.umax.min(right.umax), width),
        Alu::Or => Range::unsigned(left.umin.max(right.umin), ones(width), width),
        Alu::Xor => full,
        Alu::Lsh => counts(other, width).map_or(full, |(least, most)| left.shl(least, most, width)),
        Alu::Rsh => counts(other, width).map_or(full, |(least, most)| left.shr(least, most, width)),
        Alu::Arsh => {
            counts(other, width).map_or(full, |(least, most)| left.sar(least, most, width))
        }
    }
}

/// The bits of a result of this width.
fn bits(alu: Alu, left: Bits, other: &Scalar, width: u32) -> Bits {
    let right = other.bits;
    let count = || other.constant().and_then(|count| u32::try_from(count).ok());
    let count = || count().filter(|count| *count < width);
    let result = match alu {
        Alu::Add => left.add(right),
        Alu::Sub => left.sub(right),
        Alu::Mul => left.mul(right),
        Alu::And => left.and(right),
        Alu::Or => left.or(right),
        Alu::Xor => left.xor(right),
        Alu::Mov => right,
        Alu::Div | Alu::Mod => Bits::UNKNOWN,
        Alu::Lsh => count().map_or(Bits::UNKNOWN, |count| left.shl(count)),
        Alu::Rsh => count().map_or(Bits::UNKNOWN, |count| left.shr(count)),
        Alu::Arsh => count().map_or(Bits::UNKNOWN, |count| left.sar(count, width)),
    };
    result.low(width)
}

impl fmt::Display for Scalar {
    /// `5`, `-3 to 12`, `0 to 255`, `any number`.
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Range { umin, umax, smin, smax } = self.wide;
        match self.constant() {
            Some(value) if value > u64::from(u32::MAX) && value.cast_signed() > -(1 << 32) => {
                write!(f, "{}", value.cast_signed())
            }
            Some(value) => write!(f, "{value}"),
            None if self.wide == Range::full(64) => write!(f, "any number"),
            None if smin < 0 && (smin > i64::MIN || smax < i64::MAX) => {
                let end = |value: i64, end: i64| if value == end { None } else { Some(value) };
                match (end(smin, i64::MIN), end(smax, i64::MAX)) {
                    (Some(least), None) => write!(f, "{least} or more"),
                    (None, Some(most)) => write!(f, "{most} or less"),
                    _ => write!(f, "{smin} to {smax}"),
                }
            }
            None if umax == u64::MAX => write!(f, "{umin} or more"),
            None if umin == 0 && umax == ones(32) => write!(f, "any 32-bit number"),
            None => write!(f, "{umin} to {umax}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::bits::extended;
    use super::*;
    use crate::interpret::number::{alu as compute, holds};
    use crate::testing::{ALUS, CONDITIONS};

    /// Numbers that look like those in programs: small, near powers of two, negative, and random.
    struct Random(u64);

    impl Random {
        fn next(&mut self) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
        }
        fn below(&mut self, end: u64) -> u64 {
            (self.next() >> 11) % end
        }
        fn number(&mut self) -> u64 {
            let random = self.next();
            match self.below(6) {
                0 => random % 70,
                1 => (random % 70).wrapping_neg(),
                2 => (1_u64 << (random % 64)).wrapping_add(self.below(5)).wrapping_sub(2),
                3 => random & ones(32),
                4 => i64::from(random as u32 as i32) as u64,
                _ => random,
            }
        }
        /// A scalar with this number in it.
        fn around(&mut self, value: u64) -> Scalar {
            let mut scalar = Scalar::unknown();
            if self.below(4) == 0 {
                return Scalar::known(value);
            }
            if self.below(2) == 0 {
                let (less, more) = (self.number(), self.number());
                scalar.wide.umin = value.saturating_sub(less);
                scalar.wide.umax = value.saturating_add(more);
            }
            if self.below(2) == 0 {
                let less = (self.number() >> 1).cast_signed();
                let more = (self.number() >> 1).cast_signed();
                scalar.wide.smin = value.cast_signed().saturating_sub(less);
                scalar.wide.smax = value.cast_signed().saturating_add(more);
            }
            if self.below(2) == 0 {
                let (half, less) = (value & ones(32), self.number() & ones(32));
                scalar.low.umin = half.saturating_sub(less);
                scalar.low.umax = (half + (self.number() & ones(32))).min(ones(32));
            }
            if self.below(2) == 0 {
                let half = extended(value, 32);
                let less = i64::from(self.next() as u32 >> self.below(32));
                scalar.low.smin = (half - less).max(i64::from(i32::MIN));
                scalar.low.smax = (half + less).min(i64::from(i32::MAX));
            }
            if self.below(2) == 0 {
                let mask = self.number();
                scalar.bits = Bits { value: value & !mask, mask };
            }
            scalar.checked().expect("there is a number in it")
        }
    }

    impl Scalar {
        fn has(&self, value: u64) -> bool {
            let in_range = |range: Range, width: u32| {
                let value = value & ones(width);
                let signed = extended(value, width);
                (range.umin..=range.umax).contains(&value)
                    && (range.smin..=range.smax).contains(&signed)
            };
            in_range(self.wide, 64)
                && in_range(self.low, 32)
                && value & !self.bits.mask == self.bits.value
        }
    }

    const CASES: u32 = 200_000;

    #[test]
    fn no_result_is_forgotten() {
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        for _ in 0..CASES {
            let (a, b) = (random.number(), random.number());
            let (left, right) = (random.around(a), random.around(b));
            assert!(left.has(a) && right.has(b), "{a:#x} {left:?}\n{b:#x} {right:?}");
            let (alu, wide) = (ALUS[random.below(12) as usize], random.below(2) == 0);
            let result = compute(alu, wide, a, b);
            let known = left.alu(alu, right, wide);
            assert!(
                known.has(result),
                "{a:#x} {alu:?} {b:#x} wide {wide} = {result:#x}\n{left:?}\n{right:?}\n{known:?}"
            );
            assert!(left.negated(wide).has(compute(Alu::Sub, wide, 0, a)));
            let condition = CONDITIONS[random.below(11) as usize];
            let taken = holds(condition, wide, a, b);
            let refined = left.refined(right, condition, taken, wide);
            let text = format!(
                "{a:#x} {condition:?} {b:#x} wide {wide}: {taken}\n{left:?}\n{right:?}\n{refined:?}"
            );
            let (one, other) = refined.expect(&text);
            assert!(one.has(a) && other.has(b), "{text}");
            assert!(left.truncated().has(a & ones(32)));
            assert!(left.bytes(2).has(a & ones(16)) && left.bytes(1).has(a & ones(8)));
            for (bits, swapped) in [
                (16, u64::from((a as u16).to_be())),
                (32, u64::from((a as u32).to_be())),
                (64, a.to_be()),
            ] {
                assert!(left.swapped(true, bits).has(swapped));
                assert!(left.swapped(false, bits).has(a & ones(u32::from(bits))));
            }
        }
    }

    #[test]
    fn what_programs_need_is_known() {
        let byte = Scalar::of_size(1);
        let masked = Scalar::unknown().alu(Alu::And, Scalar::known(15), true);
        assert_eq!((masked.wide.umin, masked.wide.umax), (0, 15));
        let scaled = masked.alu(Alu::Lsh, Scalar::known(3), true);
        assert_eq!((scaled.wide.umax, scaled.bits.mask), (120, 120), "a multiple of 8");
        let sum = byte.alu(Alu::Add, Scalar::known(1), true).alu(Alu::Sub, Scalar::known(1), true);
        assert_eq!((sum.wide.smin, sum.wide.smax), (0, 255));
        // An int, as version 3 extends its sign.
        let int = Scalar::of_size(4);
        let (less, _) = int.refined(Scalar::known(19), Condition::Sle, true, false).unwrap();
        let (both, _) = less.refined(Scalar::known(0), Condition::Slt, false, false).unwrap();
        assert_eq!((both.wide.umin, both.wide.umax), (0, 19));
        let thirty = Scalar::known(32);
        let extended = less.alu(Alu::Lsh, thirty, true).alu(Alu::Arsh, thirty, true);
        assert_eq!((extended.wide.smin, extended.wide.smax), (i64::from(i32::MIN), 19));
        assert_eq!(Scalar::known(5).refined(Scalar::known(6), Condition::Gt, true, true), None);
        let rest = int.alu(Alu::Mod, Scalar::known(10), false);
        assert_eq!((rest.wide.umin, rest.wide.umax), (0, 9));
        assert_eq!(int.alu(Alu::Mod, int, false).wide.umax, ones(32), "the divisor may be 0");
        let (set, _) = byte.refined(Scalar::known(4), Condition::Set, true, true).unwrap();
        assert_eq!((set.wide.umin, set.bits.value), (4, 4));
        assert_eq!(Scalar::known(3).refined(Scalar::known(4), Condition::Set, true, true), None);
        assert_eq!(Scalar::known(5).refined(Scalar::known(4), Condition::Set, false, true), None);
    }

    #[test]
    fn shown_as_people_write_them() {
        let signed = |smin, smax| {
            Scalar { wide: Range::signed(smin, smax, 64), ..Scalar::unknown() }.agreed().to_string()
        };
        assert_eq!(Scalar::known(7).to_string(), "7");
        assert_eq!(Scalar::known(u64::MAX).to_string(), "-1");
        assert_eq!(Scalar::of_size(1).to_string(), "0 to 255");
        assert_eq!(Scalar::of_size(4).to_string(), "any 32-bit number");
        assert_eq!(Scalar::unknown().to_string(), "any number");
        assert_eq!(signed(-4, 12), "-4 to 12");
        assert_eq!(signed(i64::MIN, -1), "-1 or less");
        assert_eq!(signed(3, i64::MAX), "3 to 9223372036854775807");
    }
}
