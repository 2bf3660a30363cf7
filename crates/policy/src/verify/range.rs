//! Where a number of 32 or 64 bits lies, unsigned and signed.

use super::bits::{extended, ones};
use crate::op::Condition;

/// All numbers that lie in both ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) umin: u64,
    pub(super) umax: u64,
    pub(super) smin: i64,
    pub(super) smax: i64,
}

impl Range {
    /// All numbers of this width.
    pub(super) fn full(width: u32) -> Self {
        let smax = (ones(width) >> 1).cast_signed();
        Self { umin: 0, umax: ones(width), smin: -smax - 1, smax }
    }

    pub(super) fn known(value: u64, width: u32) -> Self {
        let value = value & ones(width);
        let signed = extended(value, width);
        Self { umin: value, umax: value, smin: signed, smax: signed }
    }

    pub(super) fn unsigned(umin: u64, umax: u64, width: u32) -> Self {
        Self { umin, umax, ..Self::full(width) }
    }

    pub(super) fn signed(smin: i64, smax: i64, width: u32) -> Self {
        Self { smin, smax, ..Self::full(width) }
    }

    pub(super) fn is_empty(self) -> bool {
        self.umin > self.umax || self.smin > self.smax
    }

    pub(super) fn intersection(self, other: Self) -> Self {
        Self {
            umin: self.umin.max(other.umin),
            umax: self.umax.min(other.umax),
            smin: self.smin.max(other.smin),
            smax: self.smax.min(other.smax),
        }
    }

    pub(super) fn includes(self, other: Self) -> bool {
        self.umin <= other.umin
            && self.umax >= other.umax
            && self.smin <= other.smin
            && self.smax >= other.smax
    }

    /// Lets each of the two ranges learn from the other.
    pub(super) fn agreed(mut self, width: u32) -> Self {
        if self.is_empty() {
            return self;
        }
        // All numbers have one sign: their order is the same in both.
        let (low, high) = (extended(self.umin, width), extended(self.umax, width));
        if low <= high {
            self.smin = self.smin.max(low);
            self.smax = self.smax.min(high);
        }
        if self.smin >= 0 || self.smax < 0 {
            self.umin = self.umin.max(self.smin.cast_unsigned() & ones(width));
            self.umax = self.umax.min(self.smax.cast_unsigned() & ones(width));
        }
        self
    }

    pub(super) fn add(self, other: Self, width: u32) -> Self {
        let mut sum = Self::full(width);
        let carries = |a: u64, b: u64| u128::from(a) + u128::from(b) > u128::from(ones(width));
        let (low, high) = (carries(self.umin, other.umin), carries(self.umax, other.umax));
        if low == high {
            sum.umin = self.umin.wrapping_add(other.umin) & ones(width);
            sum.umax = self.umax.wrapping_add(other.umax) & ones(width);
        }
        sum.with_signed(self.smin.checked_add(other.smin), self.smax.checked_add(other.smax))
    }

    pub(super) fn sub(self, other: Self, width: u32) -> Self {
        let mut difference = Self::full(width);
        if (self.umin < other.umax) == (self.umax < other.umin) {
            difference.umin = self.umin.wrapping_sub(other.umax) & ones(width);
            difference.umax = self.umax.wrapping_sub(other.umin) & ones(width);
        }
        let (smin, smax) = (self.smin.checked_sub(other.smax), self.smax.checked_sub(other.smin));
        difference.with_signed(smin, smax)
    }

    /// The same unsigned range; the signed one only if both ends are there and fit. `self` has the full signed range.
    fn with_signed(self, smin: Option<i64>, smax: Option<i64>) -> Self {
        match (smin, smax) {
            (Some(smin), Some(smax)) if smin >= self.smin && smax <= self.smax => {
                Self { smin, smax, ..self }
            }
            _ => self,
        }
    }

    pub(super) fn mul(self, other: Self, width: u32) -> Self {
        let mut product = Self::full(width);
        if let Some(umax) = self.umax.checked_mul(other.umax).filter(|most| *most <= ones(width)) {
            (product.umin, product.umax) = (self.umin * other.umin, umax);
        }
        let corners = [
            self.smin.checked_mul(other.smin),
            self.smin.checked_mul(other.smax),
            self.smax.checked_mul(other.smin),
            self.smax.checked_mul(other.smax),
        ];
        let known = || corners.into_iter().flatten();
        if known().count() == corners.len() {
            return product.with_signed(known().min(), known().max());
        }
        product
    }

    /// Unsigned; by zero: 0.
    pub(super) fn div(self, other: Self, width: u32) -> Self {
        match other.umin {
            0 => Self::unsigned(0, self.umax, width),
            least => Self::unsigned(self.umin / other.umax, self.umax / least, width),
        }
    }

    /// Unsigned; by zero: the number.
    pub(super) fn rem(self, other: Self, width: u32) -> Self {
        if self.umax < other.umin {
            return self;
        }
        match other.umin {
            0 => Self::unsigned(0, self.umax, width),
            _ => Self::unsigned(0, self.umax.min(other.umax - 1), width),
        }
    }

    /// By `least` to `most` bits, fewer than the width.
    pub(super) fn shl(self, least: u32, most: u32, width: u32) -> Self {
        let mut shifted = Self::full(width);
        if self.umax <= ones(width) >> most {
            (shifted.umin, shifted.umax) = (self.umin << least, self.umax << most);
        }
        let (smin, smax) = (self.smin << most, self.smax << most);
        if least == most && smin >> most == self.smin && smax >> most == self.smax {
            return shifted.with_signed(Some(smin), Some(smax));
        }
        shifted
    }

    /// By `least` to `most` bits, fewer than the width.
    pub(super) fn shr(self, least: u32, most: u32, width: u32) -> Self {
        Self::unsigned(self.umin >> most, self.umax >> least, width)
    }

    /// By `least` to `most` bits, fewer than the width.
    pub(super) fn sar(self, least: u32, most: u32, width: u32) -> Self {
        let smin = self.smin >> if self.smin < 0 { least } else { most };
        let smax = self.smax >> if self.smax < 0 { most } else { least };
        Self::signed(smin, smax, width)
    }

    /// Both operands, if the condition holds between them; ranges may be empty then.
    pub(super) fn refined(
        self,
        other: Self,
        condition: Condition,
        width: u32,
    ) -> Option<(Self, Self)> {
        let (mut left, mut right) = (self, other);
        match condition {
            Condition::Eq => {
                left = left.intersection(right);
                right = left;
            }
            Condition::Ne => {
                left = left.without(right, width);
                right = right.without(self, width);
            }
            Condition::Gt => {
                left.umin = left.umin.max(right.umin.checked_add(1)?);
                right.umax = right.umax.min(self.umax.checked_sub(1)?);
            }
            Condition::Ge => {
                left.umin = left.umin.max(right.umin);
                right.umax = right.umax.min(self.umax);
            }
            Condition::Sgt => {
                left.smin = left.smin.max(right.smin.checked_add(1)?);
                right.smax = right.smax.min(self.smax.checked_sub(1)?);
            }
            Condition::Sge => {
                left.smin = left.smin.max(right.smin);
                right.smax = right.smax.min(self.smax);
            }
            Condition::Lt | Condition::Le | Condition::Slt | Condition::Sle => {
                let (right, left) = other.refined(self, mirrored(condition), width)?;
                return Some((left, right));
            }
            Condition::Set => {}
        }
        Some((left, right))
    }

    /// Without a number that stands at an end.
    fn without(mut self, other: Self, width: u32) -> Self {
        if other.umin != other.umax {
            return self;
        }
        let (value, signed) = (other.umin, extended(other.umin, width));
        if self.umin == value && self.umax == value {
            self.umin = 1;
            self.umax = 0;
            return self;
        }
        self.umin += u64::from(self.umin == value);
        self.umax -= u64::from(self.umax == value);
        self.smin = self.smin.saturating_add(i64::from(self.smin == signed));
        self.smax = self.smax.saturating_sub(i64::from(self.smax == signed));
        self
    }
}

/// The same condition with its operands exchanged.
fn mirrored(condition: Condition) -> Condition {
    match condition {
        Condition::Gt => Condition::Lt,
        Condition::Ge => Condition::Le,
        Condition::Lt => Condition::Gt,
        Condition::Le => Condition::Ge,
        Condition::Sgt => Condition::Slt,
        Condition::Sge => Condition::Sle,
        Condition::Slt => Condition::Sgt,
        Condition::Sle => Condition::Sge,
        Condition::Eq | Condition::Ne | Condition::Set => condition,
    }
}
