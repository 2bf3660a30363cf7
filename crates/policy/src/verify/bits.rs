//! Which bits of a number are known: the kernel's tristate numbers.
//!
//! H. Vishwanathan, M. Shachnai, S. Narayana, S. Nagarakatte, *Sound, Precise, and Fast Abstract Interpretation with Tristate Numbers*,
//! CGO 2022.

/// Bits that are known, with their values, and bits that are not. No bit is set in both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bits {
    /// The known bits that are 1.
    pub(super) value: u64,
    /// The unknown bits.
    pub(super) mask: u64,
}

impl Bits {
    pub(super) const UNKNOWN: Self = Self { value: 0, mask: u64::MAX };

    pub(super) fn known(value: u64) -> Self {
        Self { value, mask: 0 }
    }

    /// All numbers from `min` to `max`, and perhaps more.
    pub(super) fn range(min: u64, max: u64) -> Self {
        let mask = (min ^ max).checked_ilog2().map_or(0, |top| u64::MAX >> (63 - top));
        Self { value: min & !mask, mask }
    }

    pub(super) fn min(self) -> u64 {
        self.value
    }

    pub(super) fn max(self) -> u64 {
        self.value | self.mask
    }

    pub(super) fn add(self, other: Self) -> Self {
        let mask = self.mask.wrapping_add(other.mask);
        let value = self.value.wrapping_add(other.value);
        let carries = mask.wrapping_add(value) ^ value;
        let mask = carries | self.mask | other.mask;
        Self { value: value & !mask, mask }
    }

    pub(super) fn sub(self, other: Self) -> Self {
        let value = self.value.wrapping_sub(other.value);
        let borrows = value.wrapping_add(self.mask) ^ value.wrapping_sub(other.mask);
        let mask = borrows | self.mask | other.mask;
        Self { value: value & !mask, mask }
    }

    pub(super) fn and(self, other: Self) -> Self {
        let value = self.value & other.value;
        Self { value, mask: self.max() & other.max() & !value }
    }

    pub(super) fn or(self, other: Self) -> Self {
        let value = self.value | other.value;
        Self { value, mask: (self.mask | other.mask) & !value }
    }

    pub(super) fn xor(self, other: Self) -> Self {
        let mask = self.mask | other.mask;
        Self { value: (self.value ^ other.value) & !mask, mask }
    }

    pub(super) fn mul(self, other: Self) -> Self {
        let product = Self::known(self.value.wrapping_mul(other.value));
        let (mut left, mut right, mut unknown) = (self, other, Self::known(0));
        while left.value != 0 || left.mask != 0 {
            if left.value & 1 != 0 {
                unknown = unknown.add(Self { value: 0, mask: right.mask });
            } else if left.mask & 1 != 0 {
                unknown = unknown.add(Self { value: 0, mask: right.max() });
            }
            left = Self { value: left.value >> 1, mask: left.mask >> 1 };
            right = Self { value: right.value << 1, mask: right.mask << 1 };
        }
        product.add(unknown)
    }

    pub(super) fn shl(self, count: u32) -> Self {
        Self { value: self.value << count, mask: self.mask << count }
    }

    pub(super) fn shr(self, count: u32) -> Self {
        Self { value: self.value >> count, mask: self.mask >> count }
    }

    /// Arithmetic shift of a number with `width` bits.
    pub(super) fn sar(self, count: u32, width: u32) -> Self {
        let shift = |bits| (extended(bits, width) >> count).cast_unsigned() & ones(width);
        Self { value: shift(self.value), mask: shift(self.mask) }
    }

    /// The lower bits; the others are 0.
    pub(super) fn low(self, width: u32) -> Self {
        Self { value: self.value & ones(width), mask: self.mask & ones(width) }
    }

    /// Numbers that are in both; `None`: there are none.
    pub(super) fn intersection(self, other: Self) -> Option<Self> {
        if (self.value ^ other.value) & !self.mask & !other.mask != 0 {
            return None;
        }
        let mask = self.mask & other.mask;
        Some(Self { value: (self.value | other.value) & !mask, mask })
    }

    /// Are all numbers of `other` in this?
    pub(super) fn includes(self, other: Self) -> bool {
        other.mask & !self.mask == 0 && other.value & !self.mask == self.value
    }
}

/// The lower bits.
pub(super) fn ones(width: u32) -> u64 {
    u64::MAX >> (64 - width)
}

/// A number of `width` bits, signed.
pub(super) fn extended(value: u64, width: u32) -> i64 {
    let unused = 64 - width;
    (value << unused).cast_signed() >> unused
}
